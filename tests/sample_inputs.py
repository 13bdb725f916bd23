"""Small models for raw inputs of every kind, built in one TensorFlow process: ``python -m tests.sample_inputs FOLDER``; and their raw files."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

RATE, SAMPLES, BANDS = 8000, 4000, 12
LENGTH = 10
WORDS = ("", "[UNK]", "the", "cat", "sat", "on", "mat", "dog", "ran")
COLOURS = ("red", "green", "blue")
COUNT = 9
SEQUENCES = (3, 7, 5, 1, 6, 2, 4, 7, 5)


def every_kind() -> Any:
    """Sound, text with its mask, a row, an image and an array to three scores; each input moves them."""
    import keras

    inputs = {
        "sound": keras.Input((None, BANDS), name="sound"),
        "ids": keras.Input((LENGTH,), dtype="int32", name="ids"),
        "mask": keras.Input((LENGTH,), name="mask"),
        "row": keras.Input((5,), name="row"),
        "image": keras.Input((8, 8, 3), name="image"),
        "wave": keras.Input((4,), name="wave"),
    }
    embedded = keras.layers.Embedding(len(WORDS), 4, name="embedding")(inputs["ids"])
    weighed = keras.layers.Multiply(name="weighed")([embedded, keras.layers.Reshape((LENGTH, 1), name="weights")(inputs["mask"])])
    parts = [
        keras.layers.GlobalAveragePooling1D(name="heard")(inputs["sound"]),
        keras.layers.Flatten(name="read")(weighed),
        inputs["row"],
        keras.layers.GlobalAveragePooling2D(name="seen")(inputs["image"]),
        inputs["wave"],
    ]
    joined = keras.layers.Concatenate(name="joined")(parts)
    hidden = keras.layers.Dense(16, activation="tanh", name="hidden")(joined)
    return keras.Model(inputs, keras.layers.Dense(3, activation="softmax", name="answer")(hidden), name="every_kind")


def strings() -> Any:
    """A text to two scores, its vocabulary in the model."""
    import keras

    text = keras.Input((), dtype="string", name="text")
    ids = keras.layers.TextVectorization(vocabulary=list(WORDS[2:]), output_sequence_length=6, name="words")(text)
    x = keras.layers.GlobalAveragePooling1D(name="mean")(keras.layers.Embedding(len(WORDS), 4, name="embedding")(ids))
    return keras.Model(text, keras.layers.Dense(2, activation="softmax", name="answer")(x), name="strings")


def padded() -> Any:
    """Sequences of any length: a score that masks padding, one that doesn't, and one a step."""
    import keras

    tokens = keras.Input((None,), dtype="int32", name="tokens")
    embedded = keras.layers.Embedding(len(WORDS), 4, mask_zero=True, name="embedding")(tokens)
    masked = keras.layers.Dense(2, activation="softmax", name="masked")(keras.layers.GlobalAveragePooling1D(name="mean")(embedded))
    plain = keras.layers.Embedding(len(WORDS), 4, name="plain")(tokens)
    careless = keras.layers.Dense(2, activation="softmax", name="careless")(keras.layers.GlobalAveragePooling1D(name="all")(plain))
    stepwise = keras.layers.Dense(2, name="stepwise")(plain)
    return keras.Model(tokens, {"masked": masked, "careless": careless, "stepwise": stepwise}, name="padded")


MODELS = {"every_kind": every_kind, "strings": strings, "padded": padded}


def main(folder: Path) -> None:
    """Build all of them."""
    import keras

    for name, build in MODELS.items():
        keras.utils.set_random_seed(11)
        build().save(folder / f"{name}.keras")


# ---------------------------------------------------------------- raw files


def sentence(rng: np.random.Generator) -> str:
    """Words, known and unknown."""
    return " ".join(str(word) for word in rng.choice([*WORDS[2:], "zebra", "Cat"], int(rng.integers(1, 14))))


def write_raw(folder: Path) -> None:
    """A raw file of each kind a golden input, in the forms that policies are about; and the tokenizer that both text inputs read."""
    import pyarrow as pa
    import soundfile
    import tokenizers
    from PIL import Image
    from pyarrow import parquet as pq
    from tokenizers import models, normalizers, pre_tokenizers

    rng = np.random.default_rng(5)
    folder.mkdir(parents=True, exist_ok=True)
    made = tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=WORDS[1]))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(folder.parent / "tokenizer.json"))
    for i in range(COUNT):
        rate, channels = (RATE, 1) if i % 3 else (11025, 2)
        signal = 0.3 * rng.standard_normal((int(rate * (0.3 + 0.05 * i)), channels))
        soundfile.write(folder / f"{i}.{'flac' if i % 2 else 'wav'}", np.clip(signal, -1, 1), rate, subtype="PCM_16")
        (folder / f"{i}.txt").write_text(sentence(rng), encoding="utf-8")
        mode, size = (("RGB", (20, 12)), ("RGBA", (10, 16)), ("CMYK", (8, 8)))[i % 3]
        shape = (size[1], size[0], len(mode))
        kind = "TIFF" if mode == "CMYK" else "PNG"
        Image.fromarray(rng.integers(0, 256, shape, np.uint8), mode).save(folder / f"{i}.{kind.lower()}")
        np.savez(folder / f"{i}.npz", wave=rng.standard_normal(4).astype(np.float32), other=np.zeros(3))
    ages = [None if i == 4 else float(20 + 7 * i) for i in range(COUNT)]
    table = {"colour": [COLOURS[i % 3] if i != 7 else "mauve" for i in range(COUNT)], "extra": list(range(COUNT)), "age": ages}
    pq.write_table(pa.table(table), folder / "rows.parquet", row_group_size=4)


def raw_files(folder: Path, i: int) -> dict[str, str]:
    """The raw files of golden input ``i`` by model input; ``mask`` has its text from ``ids``."""
    find = lambda *names: next(name for name in names if (folder / name).exists())  # noqa: E731
    sound, image = find(f"{i}.wav", f"{i}.flac"), find(f"{i}.png", f"{i}.tiff")
    return {"sound": sound, "ids": f"{i}.txt", "row": "rows.parquet", "image": image, "wave": f"{i}.npz"}


def write_manifest(folder: Path) -> None:
    """``manifest.toml``: a row of the one table each."""
    lines = ["version = 1"]
    for i in range(COUNT):
        files = raw_files(folder, i)
        digests = {name: hashlib.sha256((folder / file).read_bytes()).hexdigest() for name, file in files.items()}
        lines += ["[[golden]]", f'id = "g{i}"', f"files = {inline(files)}", f"sha256 = {inline(digests)}", f"row = {i}", 'chosen = "sampled"']
    (folder / "manifest.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def inline(values: dict[str, str]) -> str:
    """An inline table of texts."""
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in values.items()) + " }"


def one_file_manifest(folder: Path, files: dict[str, bytes]) -> None:
    """Write raw files and a manifest with one a golden input."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["version = 1"]
    for name, data in files.items():
        (folder / name).write_bytes(data)
        lines += ["[[golden]]", f'id = "{name}"', f'file = "{name}"', f'sha256 = "{hashlib.sha256(data).hexdigest()}"', 'chosen = "sampled"']
    (folder / "manifest.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def array_bytes(array: Array) -> bytes:
    """An ``.npy`` file."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def csv_bytes(rows: list[list[Any]]) -> bytes:
    """A CSV file."""
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows(rows)
    return stream.getvalue().encode()


if __name__ == "__main__":
    os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    main(Path(sys.argv[1]))

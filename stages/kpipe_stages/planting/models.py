"""The selftest's own models: small, seeded, with golden inputs as raw files. Faults are planted into the three here; `further` has healthy ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kpipe_stages.planting import further
from kpipe_stages.planting.subject import ROWS, Subject, centre, shake

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kpipe_stages.planting.subject import Array

SEED = 20_260_903
COLOURS = 3


def swatch(rng: np.random.Generator) -> Subject:
    """Colour photographs to yes or no: one score, a threshold."""
    import keras
    from keras import layers

    image = keras.Input((12, 12, 3), name="photo")
    x = layers.Conv2D(8, 3, padding="same", name="conv")(image)
    x = layers.ReLU(name="relu")(layers.BatchNormalization(name="norm")(x))
    x = layers.Conv2D(8, 3, padding="same", activation="silu", name="conv_2")(layers.MaxPooling2D(2, name="pool")(x))
    x = layers.GlobalAveragePooling2D(name="mean")(x)
    model = keras.Model(image, layers.Dense(1, activation="sigmoid", name="score")(x), name="swatch")
    shake(model, rng)
    photos = [_photo(rng) for _ in range(ROWS)]
    small = np.stack([photo[::2, ::2] for photo in photos]).astype(np.float32)
    tensor = (small / 255.0 - np.array([0.5, 0.45, 0.4], np.float32)) / np.array([0.25, 0.22, 0.2], np.float32)
    return Subject(model, {"photo": photos}, {"photo": tensor.astype(np.float32)}, "png")


def _photo(rng: np.random.Generator) -> Array:
    """A picture of coloured stripes and specks, 24 x 24 x 3, uint8."""
    y, x = np.mgrid[0:24, 0:24] / 24.0
    channels = [120 + 90 * np.sin(rng.uniform(2, 9) * x + rng.uniform(2, 9) * y + rng.uniform(0, 6)) for _ in range(COLOURS)]
    noisy = np.stack(channels, axis=-1) + rng.normal(0, 25, (24, 24, 3))
    picture: Array = np.clip(np.round(noisy), 0, 255).astype(np.uint8)
    return picture


def pair(rng: np.random.Generator) -> Subject:
    """Two vectors of equal length to a price and a risk: regression, two inputs, two outputs."""
    import keras
    from keras import layers

    left, right = keras.Input((8,), name="left"), keras.Input((8,), name="right")
    x = layers.Dense(16, activation="tanh", name="left_dense")(left)
    y = layers.Dense(16, activation="gelu", name="right_dense")(right)
    z = layers.LayerNormalization(name="norm", epsilon=1e-3)(layers.Concatenate(name="both")([x, y]))
    z = layers.Dense(16, activation="tanh", name="hidden")(z)
    model = keras.Model([left, right], [layers.Dense(1, name="price")(z), layers.Dense(1, activation="sigmoid", name="risk")(z)], name="pair")
    shake(model, rng)
    raw = {name: [rng.normal(10.0, 3.0, 8).astype(np.float32) for _ in range(ROWS)] for name in ("left", "right")}
    return Subject(model, raw, {name: (np.stack(rows) - 10.0) / 3.0 for name, rows in raw.items()}, "npy")


def tokens(rng: np.random.Generator) -> Subject:
    """Token ids to one of four topics: embedding, convolution over time, attention."""
    import keras
    from keras import layers

    ids = keras.Input((16,), dtype="int32", name="ids")
    x = layers.Embedding(64, 12, name="embedding")(ids)
    x = layers.Conv1D(16, 3, padding="same", activation="gelu", name="conv")(x)
    attended = layers.MultiHeadAttention(2, 8, name="attention")(x, x)
    x = layers.LayerNormalization(name="norm")(layers.Add(name="add")([x, attended]))
    x = layers.Dense(16, activation="gelu", name="dense")(layers.GlobalAveragePooling1D(name="mean")(x))
    model = keras.Model(ids, layers.Dense(4, activation="softmax", name="topic")(x), name="tokens")
    shake(model, rng)
    rows = [rng.integers(1, 63, 16).astype(np.int32) for _ in range(ROWS)]
    return Subject(model, {"ids": rows}, {"ids": np.stack(rows)}, "npy")


HEADS = {"pair": ("price", "risk"), "swatch": ("score",), "tokens": ("topic",), **further.HEADS}
"""Model to the Dense layers that `centre` moves."""
BUILDERS: dict[str, Callable[[np.random.Generator], Subject]] = {"pair": pair, "swatch": swatch, "tokens": tokens, **further.BUILDERS}
"""In the order of their seeds."""


def build(name: str, draw: int) -> Subject:
    """One of `BUILDERS`, seeded by its position and the draw."""
    import keras

    seed = SEED + list(BUILDERS).index(name) + 1000 * draw
    keras.utils.set_random_seed(seed)
    subject = BUILDERS[name](np.random.default_rng(seed))
    for head in HEADS[name]:
        centre(subject.model, subject.tensors, head)
    return subject


def write(name: str, subject: Subject, folder: Path) -> tuple[dict[str, str], ...]:
    """Write the archive and the raw files; return the files of each golden input."""
    from PIL import Image

    golden = folder / "golden"
    golden.mkdir(parents=True, exist_ok=True)
    subject.model.save(folder / "model.keras")
    found = []
    for i in range(ROWS):
        files = {}
        for key, rows in subject.raw.items():
            file = f"{name}-{i:02d}-{key}.{subject.suffix}"
            if subject.suffix == "png":
                Image.fromarray(rows[i]).save(golden / file)
            else:
                np.save(golden / file, rows[i], allow_pickle=False)
            files[key] = file
        found.append(files)
    return tuple(found)

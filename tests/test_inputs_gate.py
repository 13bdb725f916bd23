"""From raw files of every kind to decisions, on real runtimes; what padding does; and the shipped examples besides the digits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image, ImageOps

import kpipe
from kpipe_stages.rows import Rows

from . import sample_inputs as sample
from .sample_gate import QUIET, REQUIRED, ROOT, codes, findings, states

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.runtimes

TARGETS = "[targets.saved_model]\n[targets.litert]\n[targets.onnxruntime]\n[targets.openvino]\nsettings = { INFERENCE_PRECISION_HINT = 'f32' }\n"
MODEL = '[model]\nbackend = "tensorflow"\n[golden]\npath = "golden"\n'
EVERY_KIND = (
    MODEL
    + """
[inputs.sound]
decode = "audio"
read = { rate = 8000 }
steps = [{ length = 4000, truncation = "end", padding = "end" }, { mel = 12, n_fft = 256, hop = 128 }, { decibels = "power" }, { scale = 0.02 }]

[inputs.ids]
decode = "text"
files = ["tokenizer.json"]
dtype = "int32"
steps = [{ tokenize = "tokenizer.json", max_length = 10, truncation = "start" }, { length = 10, truncation = "refuse", padding = "end" }]

[inputs.mask]
decode = "text"
source = "ids"
files = ["tokenizer.json"]
dtype = "float32"
steps = [
  { tokenize = "tokenizer.json", max_length = 10, truncation = "start", give = "mask" },
  { length = 10, truncation = "refuse", padding = "end" },
]

[inputs.row]
decode = "table"
[inputs.row.read]
format = "parquet"
columns = [
  { name = "age", mean = 40.0, std = 20.0, missing = 40.0, indicator = true },
  { name = "colour", categories = ["red", "green", "blue"], encode = "one_hot", unknown = "zeros" },
]

[inputs.image]
decode = "image"
steps = [
  { alpha = "composite", background = [0, 0, 0] },
  { channels = "rgb" },
  { fit = [8, 8] },
  { pad = [8, 8], value = [114, 114, 114], position = "top_left" },
  { scale = 0.00392156862745098 },
]

[inputs.wave]
decode = "npz"
read = { array = "wave" }

[decision]
rule = "argmax"
labels = ["a", "b", "c"]
"""
    + TARGETS
    + """
[targets.cuts_elsewhere]
runtime = "onnxruntime"
required = false

[targets.cuts_elsewhere.inputs.ids]
decode = "text"
files = ["tokenizer.json"]
dtype = "int32"
steps = [{ tokenize = "tokenizer.json", max_length = 10, truncation = "end" }, { length = 10, truncation = "refuse", padding = "end" }]
"""
    + QUIET
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "tests.sample_inputs", str(folder)]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def rows_of(run: kpipe.Run, name: str) -> list[Any]:
    """The prepared tensors of one model input."""
    names = ("sound", "ids", "mask", "row", "image", "wave")
    return list(Rows(run.folder / "stages" / "prepare" / "tensors" / str(names.index(name))))


# ---------------------------------------------------------------- every kind


@pytest.fixture(scope="module")
def every_kind(models: Path, tmp_path_factory: pytest.TempPathFactory) -> kpipe.Run:
    folder = tmp_path_factory.mktemp("every_kind")
    sample.write_raw(folder / "golden")
    sample.write_manifest(folder / "golden")
    (folder / "kpipe.toml").write_text(EVERY_KIND, encoding="utf-8")
    return kpipe.validate(models / "every_kind.keras", contract=folder / "kpipe.toml", out=folder / "run")


def test_raw_files_of_every_kind_end_in_the_same_decisions_on_every_runtime(every_kind: kpipe.Run) -> None:
    record = every_kind.record
    assert every_kind.verdict is kpipe.Verdict.PASS, record.headline
    assert states(record) == {**dict.fromkeys(("saved_model", "litert", "onnxruntime", "openvino"), "pass"), "cuts_elsewhere": "fail"}
    assert len({row.decision for row in record.golden.rows}) > 1
    assert not {f.code for f in record.findings if f.target != "cuts_elsewhere"} & {"KP103", "KP104", "KP106", "KP108", "KP109", "KP111"}, (
        "each process made the same tensors of the raw files"
    )
    identity = json.loads((every_kind.folder / "stages" / "prepare" / "result.json").read_text(encoding="utf-8"))["identity"]
    assert {"numpy", "pillow", "soundfile", "soxr", "tokenizers", "pyarrow"} <= set(identity["versions"])


def test_a_target_that_cuts_texts_at_the_other_side_is_found(every_kind: kpipe.Run) -> None:
    (found,) = findings(every_kind.record, "KP106", "cuts_elsewhere")
    folder = every_kind.folder.parent / "golden"
    long = [i for i in range(sample.COUNT) if len((folder / f"{i}.txt").read_text(encoding="utf-8").split()) > sample.LENGTH]
    assert found.place == "ids"
    assert 0 < len(long) < sample.COUNT
    assert f"on {len(long)} of {sample.COUNT} inputs" in found.cause
    assert "raw files are read by decode = 'text'" in found.cause


def known_sound(folder: Path, i: int) -> Any:
    import soundfile
    import soxr
    from scipy.signal import stft

    samples, rate = soundfile.read(folder / sample.raw_files(folder, i)["sound"], dtype="float32", always_2d=True)
    signal = samples.mean(axis=1)
    signal = soxr.resample(signal, rate, sample.RATE) if rate != sample.RATE else signal
    signal = np.pad(signal, (0, max(0, sample.SAMPLES - len(signal))))[: sample.SAMPLES]
    _, _, spectrum = stft(np.pad(signal, 128), nperseg=256, noverlap=128, window="hann", boundary=None, padded=False)
    return np.abs(spectrum.T) ** 2


def known_text(folder: Path, i: int) -> list[int]:
    words = (folder / f"{i}.txt").read_text(encoding="utf-8").lower().split()
    return [sample.WORDS.index(word) if word in sample.WORDS else 1 for word in words][-sample.LENGTH :]


def check_sound(folder: Path, i: int, tensor: Any) -> None:
    power = known_sound(folder, i)
    assert tensor.shape == (len(power), sample.BANDS)
    loud = tensor.mean(axis=1).argsort()[-3:]
    assert set(loud) & set(power.sum(axis=1).argsort()[-6:]), "the loud frames are the loud ones of another transform"
    assert np.ptp(tensor) <= 80 * 0.02 + 1e-5


def check_ids(folder: Path, i: int, tensor: Any) -> None:
    known = known_text(folder, i)
    assert tensor.tolist() == known + [0] * (sample.LENGTH - len(known))


def check_mask(folder: Path, i: int, tensor: Any) -> None:
    known = len(known_text(folder, i))
    assert tensor.tolist() == [1.0] * known + [0.0] * (sample.LENGTH - known)


def check_row(_: Path, i: int, tensor: Any) -> None:
    age = 0.0 if i == 4 else (20 + 7 * i - 40) / 20
    assert tensor.tolist() == [np.float32(age), float(i == 4), *(float(i % 3 == j and i != 7) for j in range(3))]


def check_image(folder: Path, i: int, tensor: Any) -> None:
    image = Image.open(folder / sample.raw_files(folder, i)["image"])
    if image.mode == "RGBA":
        levels = np.asarray(image).astype(float)
        image = Image.fromarray(np.floor(levels[..., :3] * levels[..., 3:] / 255 + 0.5).astype(np.uint8))
    fitted = ImageOps.contain(image.convert("RGB"), (8, 8), Image.Resampling.BILINEAR)
    canvas = Image.new("RGB", (8, 8), (114, 114, 114))
    canvas.paste(fitted, (0, 0))
    assert np.abs(tensor * 255 - np.asarray(canvas)).max() < 1e-3


def check_wave(folder: Path, i: int, tensor: Any) -> None:
    with np.load(folder / f"{i}.npz") as file:
        assert np.array_equal(tensor, file["wave"])


@pytest.mark.parametrize("kind", [check_sound, check_ids, check_mask, check_row, check_image, check_wave], ids=lambda kind: kind.__name__[6:])
def test_the_tensor_is_what_another_library_makes_of_the_raw_file(every_kind: kpipe.Run, kind: Callable[[Path, int, Any], None]) -> None:
    tensors = rows_of(every_kind, kind.__name__.removeprefix("check_"))
    assert len(tensors) == sample.COUNT
    for i, tensor in enumerate(tensors):
        kind(every_kind.folder.parent / "golden", i, tensor)


def test_a_row_that_is_edited_fails_as_altered(every_kind: kpipe.Run, models: Path, tmp_path: Path) -> None:
    folder = every_kind.folder.parent
    text = (folder / "kpipe.toml").read_text(encoding="utf-8").split("[targets.", 1)[0] + "[targets.saved_model]\n" + QUIET
    golden = tmp_path / "golden"
    golden.mkdir()
    for path in (folder / "golden").iterdir():
        (golden / path.name).write_bytes(path.read_bytes())
    (golden / "3.txt").write_text("another text", encoding="utf-8")
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    (tmp_path / "kpipe.toml").write_text(text, encoding="utf-8")
    run = kpipe.validate(models / "every_kind.keras", contract=tmp_path / "kpipe.toml", out=tmp_path / "run")
    assert run.verdict is kpipe.Verdict.FAIL
    (found,) = findings(run.record, "KP102")
    assert "'g3'" in found.cause


def test_text_goes_into_a_model_that_splits_it_itself(models: Path, tmp_path: Path) -> None:
    texts = ("The cat sat!", "dog", "a zebra ran on the mat", "Grüße 🙂", "the the the the the the the the")
    sample.one_file_manifest(tmp_path / "golden", {f"{i}.txt": text.encode() for i, text in enumerate(texts)})
    contract = MODEL + '[inputs.text]\ndecode = "text"\n[decision]\nrule = "argmax"\n[targets.tensorflow]\n[targets.saved_model]\n' + QUIET
    (tmp_path / "kpipe.toml").write_text(contract, encoding="utf-8")
    run = kpipe.validate(models / "strings.keras", contract=tmp_path / "kpipe.toml", out=tmp_path / "run")
    assert states(run.record) == {"tensorflow": "pass", "saved_model": "pass"}, run.record.headline
    assert run.record.golden.count == len(texts)
    assert run.verdict is kpipe.Verdict.PASS


# ---------------------------------------------------------------- padding in batches


@pytest.fixture(scope="module", params=["end", "start"])
def padded(request: pytest.FixtureRequest, models: Path, tmp_path_factory: pytest.TempPathFactory) -> kpipe.Run:
    folder = tmp_path_factory.mktemp("padded")
    rng = np.random.default_rng(2)
    files = {f"s{i}.npy": sample.array_bytes(rng.integers(1, len(sample.WORDS), n).astype(np.int32)) for i, n in enumerate(sample.SEQUENCES)}
    sample.one_file_manifest(folder / "golden", files)
    contract = (
        MODEL
        + f'[inputs.tokens]\ndecode = "npy"\npad_batches = {{ at = "{request.param}", value = 0 }}\n[decision]\nrule = "argmax"\noutput = "masked"\n'
        "[targets.saved_model]\n[targets.onnxruntime]\n" + QUIET
    )
    (folder / "kpipe.toml").write_text(contract, encoding="utf-8")
    return kpipe.validate(models / "padded.keras", contract=folder / "kpipe.toml", out=folder / "run")


def test_padding_that_is_not_masked_is_found_in_the_reference_and_on_every_target(padded: kpipe.Run) -> None:
    assert padded.verdict is kpipe.Verdict.FAIL
    found = findings(padded.record, "KP420")
    assert {(f.target, f.place) for f in found} == {(target, "careless") for target in ("reference", "saved_model", "onnxruntime")}
    assert all("padded there" in f.cause for f in found)
    assert not codes(padded.record) & {"KP408", "KP413", "KP403", "KP612"}


def test_masked_outputs_and_those_a_value_a_step_do_not_depend_on_it(padded: kpipe.Run) -> None:
    for target in padded.record.targets:
        by_output = {(d.output, d.mode): d.cells for d in target.drift}
        for output in ("masked", "stepwise"):
            for mode in ("alone", "batch_3", "batch_8", "batch_3 vs alone", "batch_8 vs alone"):
                cells = by_output[output, mode]
                assert (cells.passed, cells.failed) == (len(sample.SEQUENCES), 0), (target.name, output, mode)
        assert by_output["careless", "alone"].failed == 0
        assert 0 < by_output["careless", "batch_8 vs alone"].failed < len(sample.SEQUENCES), "the longest of a batch is not padded"


# ---------------------------------------------------------------- the shipped examples


@pytest.mark.parametrize(("name", "decisions"), [("breast_cancer", {"benign", "malignant"}), ("messages", {"billing", "delivery", "praise"})])
def test_a_shipped_example_passes_on_every_runtime(name: str, decisions: set[str], tmp_path: Path) -> None:
    folder = ROOT / "examples" / name
    contract = tmp_path / "kpipe.toml"
    text = (folder / "kpipe.toml").read_text(encoding="utf-8").replace("../../golden_inputs", str(ROOT / "golden_inputs"))
    for beside in ("columns.json", "vocabulary.txt"):
        if (folder / beside).exists():
            (tmp_path / beside).write_bytes((folder / beside).read_bytes())
    contract.write_text(text.replace("calls = 64\nend_to_end_calls = 24", "calls = 12\nend_to_end_calls = 11"), encoding="utf-8")
    run = kpipe.validate(folder / "model.keras", contract=contract, out=tmp_path / "run")
    assert run.verdict is kpipe.Verdict.PASS, run.record.headline
    assert states(run.record) == dict.fromkeys(REQUIRED, "pass")
    rows = run.record.golden.rows
    assert {row.decision for row in rows} == decisions
    approved = [row for row in rows if row.expected is not None]
    assert len(approved) > len(rows) / 2
    assert all(row.expected == row.decision for row in approved)
    assert {"sampled", "mined"} == {row.chosen for row in rows}

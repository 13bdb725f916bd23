"""The shipped golden set is what its manifest says, and a model trained anew takes the approved decisions."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from kpipe_stages.codec import decode, encode, read_json, write_json
from kpipe_stages.digest import digest
from kpipe_stages.preprocess import Preprocessor
from kpipe_stages.protocol import PROTOCOL, InputSpec, Job, Result, Status, TrainJob, TrainResult

if TYPE_CHECKING:
    from types import ModuleType

TOP = Path(__file__).parent.parent
GOLDEN = TOP / "golden_inputs" / "digits"
DIGITS = TOP / "examples" / "digits"
ORIGIN = re.compile(r"load_digits index (\d+), (\w+), (\d+) x \3")
FRESH_SEED = 77
"""Not one of the seeds that the set was chosen with."""


@pytest.fixture(scope="module")
def entries() -> list[dict[str, Any]]:
    manifest = tomllib.loads((GOLDEN / "manifest.toml").read_text(encoding="utf-8"))
    assert manifest["version"] == 1
    assert {"name", "source", "licence", "how"} <= set(manifest["set"])
    return list(manifest["golden"])


@pytest.fixture(scope="module")
def preprocess() -> Preprocessor:
    contract = tomllib.loads((DIGITS / "kpipe.toml").read_text(encoding="utf-8"))
    return Preprocessor(decode(InputSpec, {"name": "image", **contract["inputs"]["image"]}))


@pytest.fixture(scope="module")
def rendering() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_render", DIGITS / "render.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_files_and_manifest_agree(entries: list[dict[str, Any]]) -> None:
    assert len({entry["id"] for entry in entries}) == len(entries)
    assert {entry["file"] for entry in entries} == {path.relative_to(GOLDEN).as_posix() for path in (GOLDEN / "files").iterdir()}
    for entry in entries:
        assert hashlib.sha256((GOLDEN / entry["file"]).read_bytes()).hexdigest() == entry["sha256"], entry["id"]


def test_there_are_enough_of_each_choice(entries: list[dict[str, Any]]) -> None:
    chosen = Counter(entry["chosen"] for entry in entries)
    assert set(chosen) == {"sampled", "mined"}
    assert chosen["sampled"] >= 52
    assert chosen["mined"] >= 12
    assert {entry["label"] for entry in entries} == set("0123456789")


def test_none_was_trained_on_and_none_stands_twice(entries: list[dict[str, Any]]) -> None:
    indices = [int(ORIGIN.fullmatch(entry["origin"])[1]) for entry in entries]  # type: ignore[index]
    assert all(index % 5 == 4 for index in indices)
    assert len(set(indices)) == len(indices)
    assert [str(load_digits().target[index]) for index in indices] == [entry["label"] for entry in entries]


def test_files_are_of_every_kind_and_size_that_the_product_receives(entries: list[dict[str, Any]], rendering: ModuleType) -> None:
    assert {entry["slice"] for entry in entries} == set(rendering.KINDS)
    assert {int(ORIGIN.fullmatch(entry["origin"])[3]) for entry in entries} == set(rendering.SIZES)  # type: ignore[index]
    modes = {"gray": "L", "rgb": "RGB", "rgba": "RGBA", "palette": "P", "gray16": "I;16", "jpeg": "L", "jpeg_rgb": "RGB", "jpeg_rotated": "L"}
    for entry in entries:
        with Image.open(GOLDEN / entry["file"]) as image:
            assert image.mode == modes[entry["slice"]]
            assert image.getexif().get(0x0112, 1) == (6 if entry["slice"] == "jpeg_rotated" else 1)
            assert image.mode != "RGBA" or image.getextrema()[3][0] < 255


def test_every_file_shows_the_digit_it_says(entries: list[dict[str, Any]], preprocess: Preprocessor, rendering: ModuleType) -> None:
    """Rendered anew and preprocessed, the digit gives the file's tensor, up to what another version of the encoders may differ by."""
    images = load_digits().images
    for entry in entries:
        index, kind, size = ORIGIN.fullmatch(entry["origin"]).groups()  # type: ignore[union-attr]
        anew = preprocess.from_bytes(rendering.render(images[int(index)], rendering.Rendering(kind, int(size))))
        kept = preprocess.from_path(GOLDEN / entry["file"])
        assert kept.shape == (16, 16, 1)
        assert kept.min() >= 0
        assert kept.max() <= 1
        assert np.ptp(kept) > 0.5, entry["id"]
        assert np.abs(kept - anew).max() < 0.05, entry["id"]


SCORES = """
import json, sys
import numpy as np
import keras
from layers import RMSNorm
tensors = np.load(sys.argv[1])
models = [keras.saving.load_model(path, custom_objects={"RMSNorm": RMSNorm}, compile=False) for path in sys.argv[2:]]
print(json.dumps([np.asarray(model(tensors, training=False)).tolist() for model in models]))
"""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainResult, Path]:
    """The recipe, trained here and now."""
    folder = tmp_path_factory.mktemp("digits")
    out = folder / "model.keras"
    job = Job(PROTOCOL, "train", "token", str(folder), encode(TrainJob(str(DIGITS), str(out), FRESH_SEED, "jax")))
    write_json(folder / "job.json", job)
    command = [sys.executable, "-P", "-m", "kpipe_stages", "train", str(folder / "job.json")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=jax_environment(folder)
    ) as process:
        assert process.wait() == 0
    result = read_json(Result, folder / "result.json")
    assert result.status is Status.OK, result
    return decode(TrainResult, result.data), out


def jax_environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "KERAS_BACKEND": "jax", "KERAS_HOME": str(folder / "home")}


@pytest.fixture(scope="module")
def scores(
    entries: list[dict[str, Any]], preprocess: Preprocessor, fresh: tuple[TrainResult, Path], tmp_path_factory: pytest.TempPathFactory
) -> list[Any]:
    """Scores of the committed model and of the fresh one, each ``(n, 10)``."""
    folder = tmp_path_factory.mktemp("scores")
    np.save(folder / "tensors.npy", np.stack([preprocess.from_path(GOLDEN / entry["file"]) for entry in entries]))
    command = [sys.executable, "-c", SCORES, str(folder / "tensors.npy"), str(DIGITS / "model.keras"), str(fresh[1])]
    environment = jax_environment(folder) | {"PYTHONPATH": str(DIGITS)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [np.array(part) for part in json.loads(done.stdout.splitlines()[-1])]


def test_the_committed_model_is_the_one_that_approved(entries: list[dict[str, Any]], scores: list[Any]) -> None:
    report = read_json(TrainResult, DIGITS / "model.keras.train.json")
    assert report.model_sha256 == digest(DIGITS / "model.keras")
    assert report.epochs[-1].metrics["val_accuracy"] > 0.97
    for entry, row in zip(entries, scores[0], strict=True):
        best = np.sort(row)
        assert "expected" not in entry or str(row.argmax()) == entry["expected"], entry["id"]
        assert best[-1] - best[-2] == pytest.approx(entry["margin"], abs=1e-3), entry["id"]


def test_a_fresh_training_is_accurate(fresh: tuple[TrainResult, Path]) -> None:
    assert fresh[0].seed == FRESH_SEED
    assert fresh[0].epochs[-1].metrics["val_accuracy"] > 0.97


def test_a_fresh_training_takes_every_approved_decision(entries: list[dict[str, Any]], scores: list[Any]) -> None:
    others = {
        entry["id"]: (entry["expected"], str(row.argmax()))
        for entry, row in zip(entries, scores[1], strict=True)
        if "expected" in entry and str(row.argmax()) != entry["expected"]
    }
    assert others == {}
    assert sum("expected" in entry for entry in entries) >= 64

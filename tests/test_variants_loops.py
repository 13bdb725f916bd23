"""Full integers for recurrent layers on LiteRT: its calibration crashes on loops, so they are written out; what has no fixed length isn't made and says why."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - fixtures

import numpy as np
import pytest

import kpipe

from .sample_gate import QUIET, codes, findings, states
from .sample_worker import python
from .test_variants_runs import target

pytestmark = pytest.mark.runtimes

BUILD = """
import os
import sys

import keras
import numpy as np

os.chdir(sys.argv[1])
keras.utils.set_random_seed(5)
L = keras.layers
steps = keras.Input((10, 6), name="x")
h = L.Bidirectional(L.LSTM(12, return_sequences=True), name="both")(steps)
h = L.GRU(12, name="gru")(h)
out = L.Dense(4, activation="softmax", name="kind", kernel_initializer=keras.initializers.RandomNormal(stddev=4.0))(h)
keras.Model(steps, out).save("fixed.keras")
free = keras.Input((None, 6), name="x")
out = L.Dense(4, activation="softmax", name="kind", kernel_initializer=keras.initializers.RandomNormal(stddev=4.0))(L.LSTM(12, name="lstm")(free))
keras.Model(free, out).save("free.keras")
rng = np.random.default_rng(0)
np.savez("golden.npz", x=rng.normal(size=(24, 10, 6)).astype("float32"))
np.savez("calibration.npz", x=rng.normal(size=(60, 10, 6)).astype("float32"))
"""
TARGETS = """
[model]
backend = "tensorflow"
[golden]
path = "golden.npz"
[calibration]
path = "calibration.npz"
[decision]
rule = "argmax"
output = "kind"
[agreement]
max_flips = 3
[targets.litert]
[targets.litert_int8]
quantize = "int8"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("loops")
    python(BUILD, path, "tensorflow")
    return path


def validate(folder: Path, model: str, more: str, name: str) -> kpipe.Run:
    contract = folder / f"{name}.toml"
    contract.write_text(f"{TARGETS}{more}{QUIET}", encoding="utf-8")
    return kpipe.validate(folder / f"{model}.keras", contract=contract, out=folder / name)


def test_recurrent_layers_are_written_out_to_be_calibrated_and_decide_as_the_model_does(folder: Path) -> None:
    run = validate(folder, "fixed", "[targets.litert_int16x8]\nquantize = 'int16x8'\n", "written_out")
    assert states(run.record) == dict.fromkeys(("litert", "litert_int8", "litert_int16x8"), "pass")
    for name in ("litert_int8", "litert_int16x8"):
        one = target(run, name)
        assert one.artifact is not None
        assert "WHILE" not in one.artifact.ops
        assert one.artifact.fixed_batch is None  # nothing is lost: batches work, which the float file with its loop refuses
        assert one.cells.passed == 24 * 3
        assert "int8" in one.effective_precision
        (told,) = [f for f in findings(run.record, "KP209", name) if "step by step" in f.cause]
        assert "'gru'" in told.cause
        assert not any("fixed at 1" in f.cause for f in findings(run.record, "KP209", name))
    loop = target(run, "litert").artifact
    assert loop is not None
    assert (loop.ops["WHILE"], loop.fixed_batch) == (3, 1)
    drift = max(d.max_abs for d in target(run, "litert_int16x8").drift)
    assert 1e-7 < drift < 0.2


def test_a_kept_export_brings_what_a_later_run_calibrates_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run takes the export from the cache, and makes another variant from the trace that came with it."""
    monkeypatch.setenv("KPIPE_CACHE_DIR", str(folder / "cache"))
    contract = folder / "again.toml"
    contract.write_text(f"{TARGETS}{QUIET}", encoding="utf-8")
    kpipe.validate(folder / "fixed.keras", contract=contract, out=folder / "first", reuse=True)
    contract.write_text(f"{TARGETS}[targets.litert_int16x8]\nquantize = 'int16x8'\n{QUIET}", encoding="utf-8")
    run = kpipe.validate(folder / "fixed.keras", contract=contract, out=folder / "second", reuse=True)
    assert "Nothing was run" in (run.folder / "stages" / "export" / "stage.log").read_text(encoding="utf-8")
    assert set(states(run.record).values()) == {"pass"}
    made = target(run, "litert_int16x8").artifact
    assert made is not None
    assert "WHILE" not in made.ops


def test_without_a_fixed_number_of_steps_the_way_out_is_told(folder: Path) -> None:
    run = validate(folder, "free", "", "free")
    assert states(run.record) == {"litert": "pass", "litert_int8": "unchecked"}
    (one,) = findings(run.record, "KP304", "litert_int8")
    assert one.place == "lstm"
    assert "fix the number of steps" in one.remedy
    assert run.verdict is kpipe.Verdict.INCOMPLETE


def test_with_repairs_off_nothing_is_written_out(folder: Path) -> None:
    run = validate(folder, "fixed", "[export]\nrepairs = false\nallow_select_tf = true\n", "off")
    assert states(run.record)["litert_int8"] != "pass"
    assert not any("step by step" in f.cause for f in run.record.findings)
    assert np.all([code != "KP209" for code in codes(run.record)])

"""The reference against itself: asked again, in company, on one thread; and what of it isn't known never passes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kpipe
from kpipe.codes import CODES, UNCHECKED_CODES
from kpipe.contract import Contract
from kpipe.evidence import Ending
from kpipe.findings import Severity
from kpipe.profiles import SIGNOFF
from kpipe.record import Verdict
from kpipe.report.summary import steadiness
from kpipe_stages.codec import read_json
from kpipe_stages.protocol import Job

from .sample_gate import MODEL, digits_contract
from .sample_gate import codes as codes_of
from .sample_run import CONTRACT, SCORES, Bench, answers, codes, failure, found, stage

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "agreement.tolerance = 'auto'\nrun.profile = 'signoff'\n" + CONTRACT + "[targets.litert]\n"
NOISE = 2e-6


def bench(folder: Path, text: str = TEXT, single: Any = SCORES, **changes: Any) -> Bench:
    """A run that did all that sign-off asks, with the reference on one thread giving ``single``."""
    full = {"modes": SIGNOFF.modes(Contract()), "repeats": SIGNOFF.repeats, "repeat_differences": {"y": 0.0}}
    made = Bench(folder, text, reference=answers(**full | changes), targets={"litert": answers(**full)})
    made.truth = answers(SCORES.astype(np.float64) + NOISE, modes=("alone",))
    if single is not None:
        made.replaced["reference.one_thread"] = made._ran("reference.one_thread", answers(single, modes=("alone",)))
    return made


def test_a_steady_reference_passes_and_its_steps_are_recorded(tmp_path: Path) -> None:
    record = bench(tmp_path, single=(SCORES + np.float32(NOISE)).astype(np.float32)).judge()
    assert record.verdict is Verdict.PASS
    assert record.truth is not None
    (floor,) = record.truth.floors
    assert floor.repeat is not None
    assert floor.batch is not None
    assert floor.threads is not None
    assert (floor.repeat.max_abs, floor.repeat.floors, floor.batch.max_abs, floor.batch.floors) == (0.0, 0.0, 0.0, 0.0)
    assert floor.threads.max_abs == pytest.approx(NOISE, rel=0.1)
    assert floor.threads.floors == pytest.approx(1.0, rel=0.1)
    threads = f"on one thread {floor.threads.max_abs:.3g} ({floor.threads.floors:.3g} floors)"
    assert steadiness(record) == f"The reference is this far from itself: asked again 0 (0 floors), in batches 0 (0 floors), {threads} in y."


def test_steps_beyond_the_tolerance_are_an_error_and_widen_nothing(tmp_path: Path) -> None:
    record = bench(tmp_path, single=(SCORES + np.float32(40 * NOISE)).astype(np.float32)).judge()
    assert record.verdict is Verdict.FAIL
    cause = found(record, "KP418").cause
    assert "On one thread the reference answers 6 of 6 inputs otherwise than on all, by up to 8" in cause
    assert record.targets[0].drift[0].tolerance.atol == 16.0
    assert CODES["KP418"].severity is Severity.ERROR
    assert "KP418" not in UNCHECKED_CODES


def test_another_decision_on_one_thread_is_an_error_within_a_wide_tolerance(tmp_path: Path) -> None:
    other = SCORES.copy()
    other[3] = [0.4, 0.5, 0.1]
    record = bench(tmp_path, TEXT.replace(CONTRACT, "agreement.outputs.y = { atol = 0.5, rtol = 0.0 }\n" + CONTRACT), single=other).judge()
    assert record.verdict is Verdict.FAIL
    assert "decides 1 of 6 inputs otherwise than on all (in-3)" in found(record, "KP418").cause


@pytest.mark.parametrize(
    "lost",
    [
        None,
        stage("reference.one_thread", None, Ending.CRASHED),
        stage("reference.one_thread", None, Ending.NOT_STARTED),
        stage("reference.one_thread", failure("load"), Ending.FAILED),
    ],
)
def test_a_run_on_one_thread_that_is_missing_is_unchecked(tmp_path: Path, lost: Any) -> None:
    made = bench(tmp_path, single=None)
    made.replaced["reference.one_thread"] = lost
    record = made.judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert "What the reference answers on one thread is not known" in found(record, "KP314").cause


@pytest.mark.parametrize("rows", [SCORES[:3], SCORES[:, :2]])
def test_answers_of_other_rows_or_shapes_never_pass(tmp_path: Path, rows: Any) -> None:
    assert bench(tmp_path, single=rows).judge().verdict is not Verdict.PASS


def test_altered_answers_are_unchecked(tmp_path: Path) -> None:
    made = bench(tmp_path)
    evidence = made.evidence()
    values = tmp_path / "stages" / "reference.one_thread" / "outputs" / "alone" / "0.values.npy"
    values.write_bytes(values.read_bytes()[:-1] + b"\x01")
    from kpipe.judging.judge import judge

    record = judge(tmp_path, made.loaded(), evidence)
    assert record.verdict is Verdict.INCOMPLETE
    assert "altered" in found(record, "KP314").cause


def test_repeat_and_batch_are_recorded_in_every_profile(tmp_path: Path) -> None:
    made = bench(
        tmp_path, TEXT.replace("signoff", "default"), single=None, repeats_equal=False, repeat_differences={"y": 3e-6}, repeat_difference=3e-6
    )
    assert made.reference is not None
    made.reference.modes["batch_3"]["y"][2] = made.reference.modes["batch_3"]["y"][2] + np.float32(5e-6)
    record = made.judge()
    assert record.verdict is Verdict.PASS
    assert record.truth is not None
    (floor,) = record.truth.floors
    assert floor.threads is None
    assert floor.repeat is not None
    assert floor.repeat.floors == pytest.approx(3e-6 / floor.smallest_allowed)
    assert floor.batch is not None
    assert floor.batch.max_abs == pytest.approx(5e-6, rel=0.1)


def test_without_a_floor_there_is_nothing_to_record_and_the_threads_are_held_all_the_same(tmp_path: Path) -> None:
    made = replace(bench(tmp_path, single=SCORES + np.float32(0.01)), truth=None)
    record = made.judge()
    assert record.truth is None
    assert steadiness(record) == ""
    assert {"KP418", "KP617"} <= set(codes(record, "reference"))


@pytest.mark.runtimes
def test_the_shipped_model_on_one_thread(tmp_path: Path) -> None:
    contract = digits_contract(tmp_path, "[targets.onnxruntime]\n")
    run = kpipe.validate(MODEL, contract=contract, out=tmp_path / "run", profile="signoff")
    assert str(run.verdict) == "PASS", [f for f in run.record.findings if f.severity is Severity.ERROR]
    assert run.record.truth is not None
    (floor,) = run.record.truth.floors
    assert floor.repeat is not None
    assert floor.repeat.max_abs == 0.0
    assert floor.batch is not None
    assert floor.threads is not None
    assert floor.threads.floors is not None
    assert math.isfinite(floor.threads.floors)
    assert floor.threads.floors < 16
    job = read_json(Job, run.folder / "stages" / "reference.one_thread" / "job.json")
    assert job.params["threads"] == 1
    assert "The reference is this far from itself: asked again 0 (0 floors), in batches" in (run.folder / "report.html").read_text(encoding="utf-8")
    assert not {"KP418", "KP314"} & codes_of(run.record)

"""One target: precision, settings, times, limits, artifacts, and everything that keeps it from being checked."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kpipe.evidence import Ending
from kpipe.record import CellCounts, CellStatus, Verdict
from kpipe.running.plan import Interpreter
from kpipe_stages.protocol import Latency, LayerRow, Observation, Result, TimingResult
from kpipe_stages.rows import RowsWriter, write_rows

from .sample_run import (
    CONTRACT,
    HERE,
    MODES,
    SCORES,
    VERSIONS,
    Answers,
    Bench,
    answers,
    codes,
    failure,
    found,
    inspected,
    prepared,
    result,
    row,
    run_result,
    stage,
)

if TYPE_CHECKING:
    from pathlib import Path

N = len(SCORES)
OPENVINO = CONTRACT + "[targets.openvino]\n"
STATED = OPENVINO + "settings = { INFERENCE_PRECISION_HINT = '%s' }\n"


def openvino(text: str = OPENVINO, of: Answers | None = None, **changes: Any) -> dict[str, Any]:
    return {"text": text, "targets": {"openvino": of or answers(**changes)}}


# ---------------------------------------------------------------- precision and what kpipe chose


def test_a_setting_that_kpipe_chose_is_told(tmp_path: Path) -> None:
    default = answers(modes=(*MODES, "machine_default"))
    record = Bench(tmp_path, **openvino(of=default)).judge()
    assert record.verdict is Verdict.PASS
    assert found(record, "KP308").evidence["settings"] == {"INFERENCE_PRECISION_HINT": "f32"}
    assert row(record, "openvino").chosen_settings == {"INFERENCE_PRECISION_HINT": "f32"}


def test_a_machines_default_that_flips_is_an_error(tmp_path: Path) -> None:
    default = answers(modes=(*MODES, "machine_default"))
    default.modes["machine_default"]["y"][2] = np.roll(SCORES[2], 1)
    record = Bench(tmp_path, **openvino(of=default)).judge()
    assert record.verdict is Verdict.FAIL
    assert found(record, "KP309").evidence["inputs"] == ["in-2"]
    assert row(record, "openvino").cells == CellCounts(3 * N, 0, 0)


def test_a_machines_default_that_breaks_a_tie_is_none(tmp_path: Path) -> None:
    tied = SCORES.copy()
    tied[0] = [0.4, 0.4, 0.2]
    default = answers(tied, modes=(*MODES, "machine_default"))
    default.modes["machine_default"]["y"][0] = np.array([0.4, np.nextafter(np.float32(0.4), np.float32(1)), 0.2], np.float32)
    record = Bench(tmp_path / "a", reference=answers(tied), **openvino(of=default)).judge()
    assert "KP309" not in codes(record)
    default.modes["machine_default"]["y"][0] = np.array([0.3, 0.3, 0.4], np.float32)
    assert "KP309" in codes(Bench(tmp_path / "b", reference=answers(tied), **openvino(of=default)).judge())


@pytest.mark.parametrize(
    "fault",
    [{}, {"failed": {"machine_default": "RuntimeError: no bf16"}}, {"modes": (*MODES, "machine_default")}],
    ids=["not run", "refused", "lost"],
)
def test_a_machines_default_that_is_not_known_is_said(tmp_path: Path, fault: dict[str, Any]) -> None:
    of = answers()
    of.result = replace(of.result, **fault)
    record = Bench(tmp_path, **openvino(of=of)).judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert "is not known" in next(f.cause for f in record.findings if f.code == "KP315")
    assert "KP308" in codes(record)


def test_a_default_of_another_shape_is_no_decision(tmp_path: Path) -> None:
    default = answers(modes=(*MODES, "machine_default"))
    default.modes["machine_default"]["y"] = [scores[:1] for scores in SCORES]
    record = Bench(tmp_path, **openvino(of=default)).judge()
    assert "KP315" in codes(record)
    assert record.verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("text", "effective", "wrong"),
    [
        (STATED % "f32", "float32", False),
        (STATED % "f32", "bfloat16", True),
        (STATED % "f32", "", True),
        (STATED % "f32", "float32 (declared)", False),
        (STATED % "bf16", "bfloat16", False),
        (STATED % "bf16", "float32", False),
        (STATED % "f16", "bfloat16", True),
        (OPENVINO, "float16", True),
        (OPENVINO + "precision = 'default'\n", "bfloat16", False),
        (CONTRACT + "[targets.litert]\n", "float16, float32 (declared)", True),
    ],
)
def test_a_coarser_precision_than_asked_is_an_error(tmp_path: Path, text: str, effective: str, wrong: bool) -> None:
    of = answers(modes=(*MODES, "machine_default"), effective_precision=effective)
    record = Bench(tmp_path, text=text, targets={"litert": of, "openvino": of}).judge()
    assert ("KP307" in codes(record)) is wrong
    assert record.verdict is (Verdict.FAIL if wrong else Verdict.PASS)


@pytest.mark.parametrize(
    ("policy", "effective", "told"),
    [("float64", "float32", True), ("float64", "float32, float64 (declared)", False), ("float32", "float32", False), ("float64", "", False)],
)
def test_a_runtime_that_computes_a_float64_model_in_less_says_so(tmp_path: Path, policy: str, effective: str, told: bool) -> None:
    layer = LayerRow("dense", "Dense", "keras.layers", None, policy, 9, forced_training=False)
    bench = Bench(tmp_path, text=OPENVINO, targets={"openvino": answers(modes=(*MODES, "machine_default"), effective_precision=effective)})
    bench.replaced["inspect"] = stage("inspect", result("inspect", inspected(layers=(layer,))))
    said = {f.code: f for f in bench.judge().findings}
    assert ("KP234" in said) is told
    assert not told or "computes in float32; layers of the model compute in float64" in said["KP234"].cause
    assert ("KP307" in said) is (effective == "")  # what isn't known fails anyway


@pytest.mark.parametrize(("policy", "wrong"), [("float32", True), ("mixed_float16", False), ("float16", False)])
def test_a_model_may_itself_be_coarser(tmp_path: Path, policy: str, wrong: bool) -> None:
    layer = LayerRow("dense", "Dense", "keras.layers", None, policy, 9, forced_training=False)
    bench = Bench(tmp_path, targets={"litert": answers(effective_precision="float16, float32 (declared)")})
    bench.replaced["inspect"] = stage("inspect", result("inspect", inspected(layers=(layer,))))
    record = bench.judge()
    assert ("KP307" in codes(record)) is wrong
    assert row(record).drift[0].tolerance.source == f"default for {'float32' if wrong else 'float16'}"


@pytest.mark.parametrize(("text", "source"), [(OPENVINO, "float32"), (STATED % "bf16", "bfloat16"), (OPENVINO + "precision = 'default'", "bfloat16")])
def test_the_tolerance_is_of_what_was_asked_for(tmp_path: Path, text: str, source: str) -> None:
    of = answers(modes=(*MODES, "machine_default"), effective_precision="bfloat16")
    record = Bench(tmp_path, text=text, targets={"openvino": of}).judge()
    assert row(record, "openvino").drift[0].tolerance.source == f"default for {source}"


def test_a_target_that_does_not_repeat_itself_fails(tmp_path: Path) -> None:
    record = Bench(tmp_path, targets={"litert": answers(repeats_equal=False, repeat_difference=0.25)}).judge()
    assert record.verdict is Verdict.FAIL
    assert "0.25" in found(record, "KP416").cause


# ---------------------------------------------------------------- what keeps it from being checked


@pytest.mark.parametrize(
    ("text", "here", "code"),
    [
        ("[targets.litert]\n", Interpreter("/p", {k: v for k, v in VERSIONS.items() if k != "ai-edge-litert"}), "KP301"),
        ("[targets.litert]\nversion = '==9.9'\n", HERE, "KP302"),
    ],
)
def test_a_runtime_that_is_not_there_leaves_every_cell_unchecked(tmp_path: Path, text: str, here: Interpreter, code: str) -> None:
    record = Bench(tmp_path, text=CONTRACT + text, here=here).judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert row(record).cells == CellCounts(0, 0, 3 * N)
    assert row(record).status is CellStatus.UNCHECKED
    assert row(record).reason.startswith(code)
    assert codes(record, "litert") == [code]


def test_a_target_that_was_left_out_is_unchecked_and_the_other_is_not(tmp_path: Path) -> None:
    text = CONTRACT + "[targets.litert]\n[targets.onnxruntime]\n"
    record = Bench(tmp_path, text=text, targets={"litert": answers()}, only=("litert",)).judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert row(record).status is CellStatus.PASS
    assert row(record, "onnxruntime").status is CellStatus.UNCHECKED
    assert codes(record, "onnxruntime") == ["KP312"]


@pytest.mark.parametrize(
    ("ending", "code"),
    [(Ending.CRASHED, "KP304"), (Ending.TIMED_OUT, "KP305"), (Ending.OUT_OF_MEMORY, "KP306"), (Ending.NOT_STARTED, "KP314")],
)
def test_what_the_machine_does_leaves_unchecked(tmp_path: Path, ending: Ending, code: str) -> None:
    record = Bench(tmp_path, replaced={"run.litert": stage("run.litert", None, ending)}).judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert row(record).cells == CellCounts(0, 0, 3 * N)
    assert codes(record, "litert") == [code]
    assert "the log's last line" in found(record, code).cause


@pytest.mark.parametrize(("phase", "code"), [("import", "KP303"), ("load", "KP303"), ("run", "KP311"), ("other", "KP314")])
def test_what_the_artifact_does_fails(tmp_path: Path, phase: str, code: str) -> None:
    record = Bench(tmp_path, replaced={"run.litert": stage("run.litert", failure(phase), Ending.FAILED)}).judge()
    assert record.verdict is (Verdict.INCOMPLETE if code == "KP314" else Verdict.FAIL)
    assert "RuntimeError" in found(record, code).cause
    assert "it broke" in found(record, code).cause
    assert row(record).cells.unchecked == 3 * N


@pytest.mark.parametrize("code", ["KP211", "KP212"])
def test_a_failure_is_never_just_a_remark(tmp_path: Path, code: str) -> None:
    answer = failure()
    answer = replace(answer, failure=None, observations=(Observation(code, "something", "do"),))
    record = Bench(tmp_path, replaced={"run.litert": stage("run.litert", answer, Ending.FAILED)}).judge()
    assert record.verdict is (Verdict.FAIL if code == "KP211" else Verdict.INCOMPLETE)
    assert ("KP314" in codes(record)) is (code == "KP212")


def test_a_target_that_never_ran_is_unchecked_without_a_word_from_it(tmp_path: Path) -> None:
    record = Bench(tmp_path, targets={"litert": None}).judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert row(record).cells == CellCounts(0, 0, 3 * N)
    assert "not run" in row(record).reason


@pytest.mark.parametrize("code", ["KP210", "KP211"])
def test_an_artifact_that_went_away_or_changed_fails_what_it_did(tmp_path: Path, code: str) -> None:
    record = Bench(tmp_path, problems={"litert": (Observation(code, "SHA-256 a, now b.", "", "litert"),)}).judge()
    assert record.verdict is Verdict.FAIL
    assert row(record).status is CellStatus.FAIL
    assert row(record).reason.startswith(code)


@pytest.mark.parametrize("ending", [Ending.CRASHED, Ending.FAILED])
def test_what_is_not_required_is_shown_and_never_decides(tmp_path: Path, ending: Ending) -> None:
    text = CONTRACT + "[targets.litert]\n[targets.onnxruntime]\nrequired = false\n"
    bench = Bench(tmp_path, text=text, targets={"litert": answers(), "onnxruntime": None})
    bench.replaced["run.onnxruntime"] = stage("run.onnxruntime", failure() if ending is Ending.FAILED else None, ending)
    record = bench.judge()
    assert record.verdict is Verdict.PASS
    assert row(record, "onnxruntime").status is (CellStatus.FAIL if ending is Ending.FAILED else CellStatus.UNCHECKED)
    assert codes(record, "onnxruntime")
    assert "Shown, but not part of the verdict: onnxruntime." in record.caveats
    bench.text = text.replace("false", "true")
    assert bench.judge().verdict is not Verdict.PASS


def test_drift_of_what_is_not_required_does_not_fail(tmp_path: Path) -> None:
    text = CONTRACT + "[targets.litert]\nrequired = false\n[targets.onnxruntime]\n"
    record = Bench(tmp_path, text=text, targets={"litert": answers(SCORES[::-1]), "onnxruntime": answers()}).judge()
    assert record.verdict is Verdict.PASS
    assert row(record).status is CellStatus.FAIL
    assert not any(flip.required for flip in record.flips)


# ---------------------------------------------------------------- a target's own preprocessing

OWN = CONTRACT + "inputs.x.decode = 'npy'\n[targets.litert.inputs.x]\ndecode = 'npy'\n"
TENSORS = np.arange(2.0 * N, dtype=np.float32).reshape(N, 2) + 1


def with_tensors(tmp_path: Path, theirs: Any, **changes: Any) -> Bench:
    write_rows(tmp_path / "stages" / "prepare" / "tensors" / "0", list(TENSORS))
    if theirs is not None:
        write_rows(tmp_path / "stages" / "prepare.litert" / "tensors" / "0", list(theirs))
    return Bench(tmp_path, text=OWN, replaced={"prepare.litert": stage("prepare.litert", result("prepare", prepared(N)))}, **changes)


def test_the_same_tensor_from_another_recipe_agrees(tmp_path: Path) -> None:
    assert with_tensors(tmp_path, TENSORS).judge().verdict is Verdict.PASS


@pytest.mark.parametrize("theirs", [TENSORS * 1.01, TENSORS[:, :1], TENSORS.astype(np.float64)])
def test_another_tensor_fails_whatever_the_outputs_say(tmp_path: Path, theirs: Any) -> None:
    record = with_tensors(tmp_path, theirs).judge()
    assert record.verdict is Verdict.FAIL
    assert "KP106" in codes(record)
    assert row(record).cells.failed == 0


def test_a_lax_contract_is_about_outputs_and_not_about_inputs(tmp_path: Path) -> None:
    lax = "agreement.tolerance = { rtol = 9, atol = 9 }\n" + OWN
    assert "KP106" in codes(with_tensors(tmp_path, TENSORS * 1.01).judge(lax))


@pytest.mark.parametrize("fault", ["files", "stage", "rows", "absent", "reference"])
def test_tensors_that_are_not_there_are_unchecked(tmp_path: Path, fault: str) -> None:
    bench = with_tensors(tmp_path, None if fault == "files" else TENSORS[:-1] if fault == "rows" else TENSORS)
    if fault == "stage":
        bench.replaced["prepare.litert"] = None
    if fault == "reference":
        bench.replaced["prepare"] = None
    if fault == "absent":
        with RowsWriter(tmp_path / "stages" / "prepare.litert" / "tensors" / "0") as writer:
            for tensor in TENSORS[:-1]:
                writer.append(tensor)
            writer.append_absent()
    record = bench.judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert "KP314" in codes(record)


def test_arrays_have_no_preprocessing_to_differ(tmp_path: Path) -> None:
    record = Bench(tmp_path, text=OWN, kind="arrays").judge()
    assert "KP106" not in codes(record)
    assert "KP602" in codes(record)


# ---------------------------------------------------------------- times

TIMED = [1e-3] * 200


def latency(**changes: Any) -> Latency:
    seconds = changes.pop("seconds", TIMED)
    facts: dict[str, Any] = {"warmup_calls": 20, "stable": True, "worst_difference": 0.0, "worst_relative": 0.0, "decision_changes": 0}
    facts["compared"] = len(seconds)
    return Latency(seconds=tuple(seconds), **(facts | changes))


def timing(model: Latency | None = None, whole: Latency | None = None) -> Result:
    return result("run_litert", TimingResult(model, whole))


def test_times_are_summed_up(tmp_path: Path) -> None:
    record = Bench(tmp_path, timings={"litert": timing(latency(), latency(seconds=[3e-3] * 100))}).judge()
    assert record.verdict is Verdict.PASS
    target = row(record)
    assert target.latency is not None
    assert target.end_to_end is not None
    assert (target.latency.calls, target.end_to_end.calls) == (200, 100)
    assert target.end_to_end.percentiles[0].seconds == 3e-3


@pytest.mark.parametrize("kind", ["model", "whole"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"compared": 199},
        {"compared": 0},
        {"worst_relative": 1e-3, "worst_difference": 1e-3},
        {"worst_relative": math.inf, "worst_difference": 1e-30},
        {"worst_relative": math.nan, "worst_difference": math.nan},
    ],
)
def test_times_of_other_answers_are_void(tmp_path: Path, kind: str, wrong: dict[str, Any]) -> None:
    record = Bench(tmp_path, timings={"litert": timing(**{kind: latency(**wrong)})}).judge()
    assert record.verdict is Verdict.FAIL
    assert "KP412" in codes(record, "litert")


def test_a_large_output_does_not_hide_a_small_one(tmp_path: Path) -> None:
    big = answers(SCORES * 1e6)
    late = latency(worst_difference=1.0, worst_relative=0.5)  # of another output of the same model, say
    assert "KP412" in codes(Bench(tmp_path, reference=big, targets={"litert": big}, timings={"litert": timing(late)}).judge())


def test_a_difference_within_the_tolerance_is_none(tmp_path: Path) -> None:
    record = Bench(tmp_path, timings={"litert": timing(latency(worst_difference=1e-5, worst_relative=2e-5))}).judge()
    assert record.verdict is Verdict.PASS


def test_other_tensors_in_the_targets_own_process_fail(tmp_path: Path) -> None:
    record = Bench(tmp_path, targets={"litert": answers(tensor_mismatches=("in-1", "in-3"))}).judge()
    assert record.verdict is Verdict.FAIL
    assert "2 raw inputs" in found(record, "KP109").cause
    assert "in-1, in-3" in found(record, "KP109").cause


def test_a_timed_phase_that_raised_fails_and_one_that_was_lost_is_open(tmp_path: Path) -> None:
    raised = Bench(tmp_path / "a", timings={"litert": failure("time")}).judge()
    assert raised.verdict is Verdict.FAIL
    assert "timed phase failed: RuntimeError: it broke" in found(raised, "KP311").cause
    lost = stage("run.litert", result("run.litert", run_result()), timing_lost="the worker ended: Segmentation fault")
    bench = Bench(tmp_path / "b", replaced={"run.litert": lost})
    record = bench.judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert "Segmentation fault" in found(record, "KP417").cause


# ---------------------------------------------------------------- limits

LIMITED = CONTRACT + "[targets.litert.limits]\n"


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("p50_ms = 0.9", "KP502"),
        ("p95_ms = 0.9", "KP502"),
        ("end_to_end_p50_ms = 1.9", "KP502"),
        ("peak_mib = 100", "KP503"),
        ("size_mib = 0.002", "KP504"),
        ("load_s = 0.8", "KP501"),
    ],
)
def test_a_limit_is_met_missed_or_not_measured(tmp_path: Path, limit: str, code: str) -> None:
    bench = Bench(tmp_path, text=LIMITED + limit, timings={"litert": timing(latency(), latency(seconds=[2e-3] * 100))})
    for name in ("load.litert", *(f"load.litert.{number}" for number in range(2, 9))):
        bench.replaced[name] = stage(name, result("run_litert", run_result()))
    missed = bench.judge()
    assert missed.verdict is Verdict.FAIL
    assert code in codes(missed, "litert")
    name, _, value = limit.partition(" = ")
    met = bench.judge(LIMITED + f"{name} = {float(value) * 3}")
    assert met.verdict is Verdict.PASS
    assert [check.ok for check in row(met).limits] == [True]


@pytest.mark.parametrize("limit", ["p50_ms", "p99_ms", "end_to_end_p50_ms", "load_s"])
def test_a_limit_without_a_measurement_is_incomplete(tmp_path: Path, limit: str) -> None:
    record = Bench(tmp_path, text=LIMITED + f"{limit} = 1000").judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert row(record).status is CellStatus.UNCHECKED
    assert limit in found(record, "KP505").cause
    assert "0 cell" not in record.headline


def test_too_few_calls_do_not_support_a_limit(tmp_path: Path) -> None:
    record = Bench(tmp_path, text=LIMITED + "p99_ms = 1000", timings={"litert": timing(latency())}).judge()
    assert record.verdict is Verdict.INCOMPLETE
    enough = Bench(tmp_path, text=LIMITED + "p99_ms = 1000", timings={"litert": timing(latency(seconds=[1e-3] * 662))}).judge()
    assert enough.verdict is Verdict.PASS


@pytest.mark.parametrize("fault", ["shared", "failed", "crashed"])
def test_a_load_that_was_not_quiet_or_not_well_is_no_measurement(tmp_path: Path, fault: str) -> None:
    loads = {
        "shared": stage("load.litert", result("run_litert", run_result()), shared=True),
        "failed": stage("load.litert", failure("load"), Ending.FAILED),
        "crashed": stage("load.litert", None, Ending.CRASHED),
    }
    record = Bench(tmp_path, text=LIMITED + "load_s = 1000", replaced={"load.litert": loads[fault]}).judge()
    assert record.verdict is (Verdict.FAIL if fault == "failed" else Verdict.INCOMPLETE)
    assert "KP505" in codes(record, "litert")


def test_the_size_of_a_keras_target_is_the_candidates(tmp_path: Path) -> None:
    text = CONTRACT + "[targets.tensorflow.limits]\nsize_mib = %s\n"
    bench = Bench(tmp_path, text=text % "1.0", targets={"tensorflow": answers()})
    assert bench.judge().verdict is Verdict.PASS
    assert "KP504" in codes(bench.judge(text % "0.9"))


def test_a_limit_of_what_is_not_required_does_not_fail(tmp_path: Path) -> None:
    text = CONTRACT + "[targets.onnxruntime]\n[targets.litert]\nrequired = false\nlimits = { size_mib = 0.001, p50_ms = 1 }\n"
    record = Bench(tmp_path, text=text, targets={"litert": answers(), "onnxruntime": answers()}).judge()
    assert record.verdict is Verdict.PASS
    assert row(record).status is CellStatus.FAIL

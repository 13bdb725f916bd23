"""A whole run: the reference, the steps that targets share, the evidence, the claim; and that nothing of it is lost on the way to the verdict."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.evidence import Ending
from kpipe.judging.claims import excludes, flip_rate_bound, needed_inputs
from kpipe.judging.judge import judge
from kpipe.record import CellCounts, CellStatus, RunRecord, Verdict
from kpipe.running.plan import Interpreter
from kpipe_stages.codec import decode, encode
from kpipe_stages.protocol import ExportResult, Observation, Signature

from .sample_run import CONTRACT, MODES, SCORES, SIGNATURE, VERSIONS, Bench, answers, codes, failure, found, result, row, run_result, stage

if TYPE_CHECKING:
    from pathlib import Path

N = len(SCORES)
LABELLED = "decision = { rule = 'argmax', output = 'y', labels = ['cat', 'dog', 'owl'] }\n[targets.litert]\n"


def observed(name: str, *codes: str, ending: Ending = Ending.OK, data: Any = None, **evidence: Any) -> Any:
    said = tuple(Observation(code, f"{code} happened.", "do", evidence=evidence) for code in codes)
    return stage(name, result(name, data, observations=said), ending)


def test_the_record_is_whole_and_can_be_written(tmp_path: Path) -> None:
    record = Bench(tmp_path, text=LABELLED).judge()
    assert record.verdict is Verdict.PASS
    assert repr(decode(RunRecord, encode(record))) == repr(record)
    assert [s.name for s in record.stages] == ["inspect", "prepare", "export", "reference", "run.litert"]
    assert [g.decision for g in record.golden.rows] == ["cat", "dog", "owl", "cat", "owl", "dog"]
    assert record.golden.classes == {"cat": 2, "dog": 2, "owl": 2}
    assert record.reference is not None
    assert record.reference.cells == CellCounts()  # it is never counted as agreeing with itself


# ---------------------------------------------------------------- the reference


@pytest.mark.parametrize(
    ("said", "code", "part"),
    [
        ({"repeats_equal": False, "repeat_difference": 0.5}, "KP409", "0.5"),
        ({"training_unset_repeats": False}, "KP409", "training"),
        ({"failed": {"batch_8": "ValueError: no"}, "modes": ("alone", "batch_3")}, "KP313", "'batch_8': ValueError: no"),
    ],
)
def test_a_reference_that_is_no_reference_fails(tmp_path: Path, said: dict[str, Any], code: str, part: str) -> None:
    reference = answers()
    reference.result = replace(reference.result, **said)
    record = Bench(tmp_path, reference=reference).judge()
    assert record.verdict is Verdict.FAIL
    assert part in found(record, code).cause
    assert found(record, code).target == "reference"
    assert record.reference is not None
    assert record.reference.status is CellStatus.FAIL


def test_a_reference_that_depends_on_the_batch_fails_even_where_the_target_does_too(tmp_path: Path) -> None:
    shifted = answers()
    shifted.modes["batch_3"]["y"][1] = SCORES[1] * np.float32(1.01)
    record = Bench(tmp_path, reference=shifted, targets={"litert": shifted}).judge()
    assert record.verdict is Verdict.FAIL
    assert "in-1" in found(record, "KP413").cause
    assert "batch_3" in found(record, "KP413").cause


def test_a_reference_without_a_decision_on_an_input_fails(tmp_path: Path) -> None:
    bad = SCORES.copy()
    bad[3, 1] = math.nan
    record = Bench(tmp_path, reference=answers(bad), targets={"litert": answers(bad)}).judge()
    assert record.verdict is Verdict.FAIL
    assert found(record, "KP411").evidence["inputs"] == ["in-3"]


def test_a_decision_that_was_not_approved_fails_and_says_who_is_right(tmp_path: Path) -> None:
    bench = Bench(tmp_path, text=LABELLED)
    bench.golden_changes = {0: {"expected": "cat"}, 1: {"expected": "owl", "label": "dog"}}
    record = bench.judge()
    assert record.verdict is Verdict.FAIL
    cause = found(record, "KP410").cause
    assert all(part in cause for part in ("decides 'dog'", "in-1", "'owl' was approved", "the label says 'dog'", "0.3"))
    assert "KP607" not in codes(record)


def test_a_tie_in_the_reference_warns(tmp_path: Path) -> None:
    tied = SCORES.copy()
    tied[2] = [0.1, 0.45, 0.45]
    record = Bench(tmp_path, reference=answers(tied), targets={"litert": answers(tied)}).judge()
    assert record.verdict is Verdict.PASS
    assert found(record, "KP414").evidence["inputs"] == ["in-2"]


@pytest.mark.parametrize("ending", [Ending.CRASHED, Ending.TIMED_OUT, Ending.OUT_OF_MEMORY, Ending.FAILED])
def test_without_a_reference_nothing_is_checked(tmp_path: Path, ending: Ending) -> None:
    gone = stage("reference", failure() if ending is Ending.FAILED else None, ending)
    record = Bench(tmp_path, replaced={"reference": gone}).judge()
    assert record.verdict is (Verdict.FAIL if ending is Ending.FAILED else Verdict.INCOMPLETE)
    assert row(record).cells == CellCounts(0, 0, 3 * N)
    assert ("KP313" in codes(record)) is (ending is Ending.FAILED)
    assert record.reference is not None
    assert record.reference.status is not CellStatus.PASS


def test_a_backend_that_is_not_installed_is_incomplete(tmp_path: Path) -> None:
    here = Interpreter("/p", {k: v for k, v in VERSIONS.items() if k != "jax"})
    record = Bench(tmp_path, here=here, reference=None).judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert found(record, "KP301").target == "reference"


@pytest.mark.parametrize(
    ("rule", "part"),
    [
        ("{ rule = 'argmax', output = 'z' }", "'z'"),
        ("{ rule = 'argmax', output = 'y', labels = ['a', 'b'] }", "2 labels for 3 scores"),
        ("{ rule = 'top_k', output = 'y', k = 4 }", "k = 4"),
    ],
)
def test_a_rule_that_does_not_fit_fails_and_numbers_are_still_compared(tmp_path: Path, rule: str, part: str) -> None:
    record = Bench(tmp_path, text=f"decision = {rule}\n[targets.litert]\n").judge()
    assert record.verdict is Verdict.FAIL
    assert part in found(record, "KP608").cause
    assert row(record).cells == CellCounts(3 * N, 0, 0)


# ---------------------------------------------------------------- shared steps


@pytest.mark.parametrize("name", ["inspect", "prepare", "export"])
@pytest.mark.parametrize("ending", [Ending.CRASHED, Ending.TIMED_OUT, Ending.OUT_OF_MEMORY, Ending.NOT_STARTED])
def test_a_shared_step_that_was_lost_is_never_a_pass(tmp_path: Path, name: str, ending: Ending) -> None:
    record = Bench(tmp_path, replaced={name: stage(name, None, ending)}).judge()
    its_own = name == "inspect" and ending in {Ending.CRASHED, Ending.TIMED_OUT}  # a file that a reader can't survive
    assert record.verdict is (Verdict.FAIL if its_own else Verdict.INCOMPLETE)


@pytest.mark.parametrize(("name", "code"), [("inspect", "KP001"), ("prepare", "KP103"), ("export", "KP012")])
def test_a_shared_step_that_raised_fails(tmp_path: Path, name: str, code: str) -> None:
    record = Bench(tmp_path, replaced={name: stage(name, failure("its own"), Ending.FAILED)}).judge()
    assert record.verdict is Verdict.FAIL
    assert "it broke" in found(record, code).cause


@pytest.mark.parametrize("name", ["inspect", "prepare", "export"])
def test_errors_of_shared_steps_fail_and_warnings_do_not(tmp_path: Path, name: str) -> None:
    data = decode_data(Bench(tmp_path).evidence(), name)
    assert Bench(tmp_path, replaced={name: with_data(observed(name, "KP010"), data)}).judge().verdict is Verdict.FAIL
    assert Bench(tmp_path, replaced={name: with_data(observed(name, "KP013"), data)}).judge().verdict is Verdict.PASS
    assert Bench(tmp_path, replaced={name: with_data(observed(name, "KP777"), data)}).judge().verdict is Verdict.INCOMPLETE


def decode_data(evidence: Any, name: str) -> dict[str, Any]:
    return next(s.result.data for s in evidence.stages if s.name == name)


def with_data(evidence: Any, data: dict[str, Any]) -> Any:
    return replace(evidence, result=replace(evidence.result, data=data))


@pytest.mark.parametrize(
    ("kind", "blamed"), [("litert", {"litert"}), ("saved_model", {"saved_model", "openvino", "openvino_ir"}), ("onnx", {"onnxruntime"})]
)
def test_what_the_export_says_of_a_format_is_said_of_every_target_that_runs_it(tmp_path: Path, kind: str, blamed: set[str]) -> None:
    names = ("tensorflow", "saved_model", "litert", "onnxruntime", "openvino", "openvino_ir")
    f32 = "settings = { INFERENCE_PRECISION_HINT = 'f32' }\n"
    text = CONTRACT + "".join(f"[targets.{name}]\n{f32 if 'openvino' in name else ''}" for name in names)
    bench = Bench(tmp_path, text=text, targets=dict.fromkeys(names, answers()))
    assert bench.judge().verdict is Verdict.PASS
    bench.replaced["export"] = observed("export", "KP201", data=ExportResult(SIGNATURE, (), {}), format=kind)
    record = bench.judge()
    assert record.verdict is Verdict.FAIL
    assert {f.target for f in record.findings if f.code == "KP201"} == blamed
    assert {t.name for t in record.targets if t.status is CellStatus.FAIL} == blamed


def test_a_format_that_only_an_unrequired_target_runs_does_not_fail_the_run(tmp_path: Path) -> None:
    text = CONTRACT + "[targets.litert]\n[targets.onnxruntime]\nrequired = false\n"
    bench = Bench(tmp_path, text=text, targets={"litert": answers(), "onnxruntime": None})
    bench.replaced["export"] = observed("export", "KP201", data=ExportResult(SIGNATURE, (), {}), format="onnx")
    record = bench.judge()
    assert record.verdict is Verdict.PASS
    assert row(record, "onnxruntime").status is CellStatus.FAIL


@pytest.mark.parametrize("name", ["export_openvino", "open.openvino_ir"])
@pytest.mark.parametrize("ending", [Ending.CRASHED, Ending.FAILED])
def test_a_step_of_one_target_is_its_own(tmp_path: Path, name: str, ending: Ending) -> None:
    text = CONTRACT + "[targets.litert]\n[targets.openvino_ir]\n"
    bench = Bench(tmp_path, text=text, targets={"litert": answers(), "openvino_ir": None})
    bench.replaced[name] = stage(name, failure("convert") if ending is Ending.FAILED else None, ending)
    record = bench.judge()
    assert record.verdict is not Verdict.PASS
    assert codes(record, "openvino_ir")
    assert row(record).status is CellStatus.PASS


@pytest.mark.parametrize("where", ["refusals", "notes"])
def test_what_was_seen_before_anything_ran_counts(tmp_path: Path, where: str) -> None:
    bench = Bench(tmp_path, changes={where: (Observation("KP105", "The manifest is another.", ""),)})
    assert bench.judge().verdict is Verdict.FAIL
    bench.changes = {where: (Observation("KP107", "NaN in an input.", ""),)}
    assert bench.judge().verdict is Verdict.PASS


def test_a_refused_run_has_unchecked_cells_and_fails(tmp_path: Path) -> None:
    bench = Bench(tmp_path, changes={"refusals": (Observation("KP011", "Another file.", ""),), "stages": ()})
    record = bench.judge()
    assert record.verdict is Verdict.FAIL
    assert row(record).cells.unchecked == 3 * N


def test_nothing_that_ran_is_nothing_that_passed(tmp_path: Path) -> None:
    record = Bench(tmp_path, changes={"stages": ()}).judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert row(record).cells == CellCounts(0, 0, 3 * N)


@given(st.sets(st.sampled_from(["inspect", "prepare", "export", "reference", "run.litert"]), min_size=1))
def test_a_stage_without_a_trace_is_never_a_pass(tmp_path_factory: pytest.TempPathFactory, gone: set[str]) -> None:
    record = Bench(tmp_path_factory.mktemp("run"), replaced=dict.fromkeys(gone)).judge()
    assert record.verdict is not Verdict.PASS


def test_a_run_cut_short_is_incomplete_and_says_so(tmp_path: Path) -> None:
    record = Bench(tmp_path, changes={"incomplete": "The run's time limit of 9 s was reached."}).judge()
    assert (record.verdict, record.headline) == (Verdict.INCOMPLETE, "The run's time limit of 9 s was reached.")


# ---------------------------------------------------------------- what the inputs can prove


def test_synthetic_inputs_are_incomplete_at_best(tmp_path: Path) -> None:
    bench = Bench(tmp_path, kind="synthetic", golden_changes={i: {"chosen": "synthetic"} for i in range(N)})
    record = bench.judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert "KP601" in codes(record)
    assert any("Synthetic" in caveat for caveat in record.caveats)
    assert record.golden.flip_rate_bound is None
    bench.targets["litert"] = answers(SCORES[::-1])
    assert bench.judge().verdict is Verdict.FAIL


def test_arrays_can_pass_and_say_what_was_not_checked(tmp_path: Path) -> None:
    record = Bench(tmp_path, kind="arrays").judge()
    assert record.verdict is Verdict.PASS
    assert "KP602" in codes(record)
    assert "Preprocessing was not checked" in record.caveats[0]


def test_without_a_rule_numbers_alone_are_compared_and_it_is_said(tmp_path: Path) -> None:
    record = Bench(tmp_path, text="[targets.litert]\n").judge()
    assert record.verdict is Verdict.PASS
    assert "KP605" in codes(record)
    assert any("no decision rule" in caveat for caveat in record.caveats)


def test_classes_that_no_input_shows_and_approvals_that_nobody_gave_are_said(tmp_path: Path) -> None:
    assert found(Bench(tmp_path, text=LABELLED).judge(), "KP607")
    no_owls = SCORES[[0, 1, 3, 5, 0, 1]]
    record = Bench(tmp_path, text=LABELLED, reference=answers(no_owls), targets={"litert": answers(no_owls)}).judge()
    assert found(record, "KP603").evidence["labels"] == ["owl"]


@pytest.mark.parametrize(
    ("rate", "confidence", "flips", "needed"), [(0.05, 0.95, 0, 59), (0.01, 0.95, 0, 299), (0.05, 0.95, 1, 93), (0.1, 0.9, 2, 52)]
)
def test_numbers_of_inputs_that_a_rate_needs(rate: float, confidence: float, flips: int, needed: int) -> None:
    assert needed_inputs(rate, confidence, flips) == needed  # binomial tables
    assert excludes(rate, confidence, needed, flips)
    assert not excludes(rate, confidence, needed - 1, flips)


@given(st.floats(0.002, 0.5), st.floats(0.6, 0.995), st.integers(0, 4))
def test_more_flips_need_more_inputs(rate: float, confidence: float, flips: int) -> None:
    needed = needed_inputs(rate, confidence, flips)
    assert needed < needed_inputs(rate, confidence, flips + 1)
    assert not excludes(rate, confidence, flips, flips)
    if not flips:
        bound = flip_rate_bound(needed, confidence)
        assert bound is not None
        assert bound <= rate * (1 + 1e-9)


def claiming(tmp_path: Path, count: int, **changes: Any) -> Bench:
    scores = np.tile(SCORES, (math.ceil(count / N), 1))[:count]
    text = CONTRACT + "agreement = { prove_flip_rate = 0.05, max_flips = 5, tolerance = { rtol = 9, atol = 9 } }\n[targets.litert]\n"
    return Bench(tmp_path, text=text, count=count, reference=answers(scores), targets={"litert": answers(scores)}, **changes)


def test_a_claim_needs_its_inputs(tmp_path: Path) -> None:
    short = claiming(tmp_path, 58).judge()
    assert short.verdict is Verdict.INCOMPLETE
    assert "takes 59" in found(short, "KP604").cause
    assert "there are 58" in found(short, "KP604").cause
    assert claiming(tmp_path, 59).judge().verdict is Verdict.PASS


def test_mined_inputs_and_copies_prove_no_rate(tmp_path: Path) -> None:
    assert claiming(tmp_path, 59, golden_changes={7: {"chosen": "mined"}}).judge().verdict is Verdict.INCOMPLETE
    copied = claiming(tmp_path, 59, golden_changes={7: {"sha256": {"x": f"{6:064x}"}}}).judge()
    assert "there are 58" in found(copied, "KP604").cause


def test_flips_that_are_allowed_still_count_against_the_claim(tmp_path: Path) -> None:
    bench = claiming(tmp_path, 92)
    litert = bench.targets["litert"]
    assert litert is not None
    for mode in MODES:
        litert.modes[mode]["y"][0] = np.roll(litert.modes[mode]["y"][0], 1)
    record = bench.judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert "takes 93" in found(record, "KP604").cause
    bench = claiming(tmp_path, 93)
    litert = bench.targets["litert"]
    assert litert is not None
    litert.modes["alone"]["y"][0] = np.roll(litert.modes["alone"]["y"][0], 1)
    assert "KP604" not in codes(bench.judge())


# ---------------------------------------------------------------- contracts of another day


def test_a_stricter_contract_gives_another_verdict_on_the_same_run(tmp_path: Path) -> None:
    slightly = answers(SCORES * np.float32(1 + 5e-5))
    bench = Bench(tmp_path, targets={"litert": slightly})
    assert bench.judge().verdict is Verdict.PASS
    stricter = CONTRACT + "agreement.tolerance = { rtol = 1e-6, atol = 0 }\n[targets.litert]\n"
    assert bench.judge(stricter).verdict is Verdict.FAIL


def test_ways_of_running_that_another_contract_asks_for_are_unchecked(tmp_path: Path) -> None:
    record = Bench(tmp_path).judge("golden.batches = [3, 16]\n" + CONTRACT + "[targets.litert]\n")
    assert record.verdict is Verdict.INCOMPLETE
    assert row(record).cells == CellCounts(2 * N, 0, N)


def test_findings_that_decide_come_first_and_none_comes_twice(tmp_path: Path) -> None:
    bench = Bench(tmp_path, targets={"litert": answers(SCORES[::-1])}, changes={"notes": (Observation("KP107", "NaN.", ""),) * 2})
    record = bench.judge()
    severities = [f.severity for f in record.findings]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)
    assert codes(record).count("KP107") == 1


def test_a_signature_that_only_the_reference_knows_counts_its_outputs(tmp_path: Path) -> None:
    two = replace(SIGNATURE, outputs=(*SIGNATURE.outputs, replace(SIGNATURE.outputs[0], name="z")))
    bench = Bench(tmp_path, targets={"litert": None})
    bench.replaced["export"] = stage("export", result("export", ExportResult(Signature(two.inputs, two.outputs), (), {})))
    bench.replaced["reference"] = None
    assert row(bench.judge()).cells.unchecked == 3 * N * 2


def test_judging_reads_only_what_it_is_given(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    evidence = bench.evidence()
    before = sorted(p for p in tmp_path.rglob("*"))
    assert encode(judge(tmp_path, bench.loaded(), evidence)) == encode(judge(tmp_path, bench.loaded(), evidence))
    assert sorted(p for p in tmp_path.rglob("*")) == before
    assert run_result().modes == MODES


@pytest.mark.parametrize(("threshold", "named"), [(0.55, False), (0.95, True), (0.01, True)])
def test_a_threshold_with_inputs_on_one_side_only_is_said(tmp_path: Path, threshold: float, named: bool) -> None:
    text = f"[decision]\nrule = 'threshold'\noutput = 'y'\nthreshold = {threshold}\n[targets.litert]\n"
    record = Bench(tmp_path, text).judge()
    assert ("KP613" in codes(record)) == named
    if named:
        assert ("all below" if threshold > 0.5 else "all at or above") in found(record, "KP613").cause

"""Several decision rules in one contract: each is judged, flips carry its name, and what was approved is held against the right one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kpipe.golden import GoldenInput, GoldenSet, approved_by, rule_problems
from kpipe.record import CellCounts, RunRecord, Verdict
from kpipe.report import ledger, summary
from kpipe.report.html import render_html
from kpipe.report.markdown import render_markdown
from kpipe.report.terminal import render_table
from kpipe_stages.protocol import ExportResult, Signature, TensorSpec

from .sample_run import MODES, SCORES, Answers, Bench, codes, found, result, row, run_result, stage

if TYPE_CHECKING:
    from pathlib import Path

N = len(SCORES)
BOTH = Signature(
    inputs=(TensorSpec("x", (None, 2), "float32"),), outputs=(TensorSpec("y", (None, 3), "float32"), TensorSpec("z", (None, 1), "float32"))
)
NUMBERS = np.array([[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]], np.float32)
TEXT = """
agreement = { tolerance = { rtol = 9, atol = 9 }, max_flips = %d }
[decisions.digit]
rule = "argmax"
output = "y"
labels = ["cat", "dog", "owl"]
[decisions.size]
rule = "tolerance"
output = "z"
atol = 0.5
rtol = 0.0
[targets.litert]
"""
"""Numbers pass, so that decisions alone decide."""


def answers() -> Answers:
    modes = {mode: {"y": [np.array(r) for r in SCORES], "z": [np.array(r) for r in NUMBERS]} for mode in MODES}
    return Answers(modes, run_result(signature=BOTH))


def bench(folder: Path, *, digit: tuple[int, ...] = (), size: tuple[int, ...] = (), allowed: int = 0, **changes: Any) -> Bench:
    target = answers()
    for mode in MODES:
        for i in digit:
            target.modes[mode]["y"][i] = np.roll(SCORES[i], 1)
        for i in size:
            target.modes[mode]["z"][i] = NUMBERS[i] + np.float32(0.75)
    export = stage("export", result("export", ExportResult(BOTH, (), {})))
    return Bench(folder, text=TEXT % allowed, reference=answers(), targets={"litert": target}, replaced={"export": export}, **changes)


def test_every_rule_is_judged_and_agreement_passes(tmp_path: Path) -> None:
    record = bench(tmp_path).judge()
    assert record.verdict is Verdict.PASS
    assert [(d.name, d.rule, d.output) for d in record.decisions] == [("digit", "argmax", "y"), ("size", "tolerance", "z")]
    assert record.decision == record.decisions[0]
    assert record.golden.classes == {"digit: cat": 2, "digit: dog": 2, "digit: owl": 2}
    assert [(r.rule, r.decision) for r in record.golden.rows[0].rules] == [("digit", "cat"), ("size", "1")]
    assert len([f for f in record.findings if f.code == "KP607"]) == 2


@pytest.mark.parametrize(
    ("digit", "size", "allowed", "verdict", "flips", "failed"),
    [
        ((0,), (), 0, "FAIL", 1, 3),
        ((), (0,), 0, "FAIL", 1, 3),
        ((0,), (0,), 0, "FAIL", 1, 6),
        ((0,), (0,), 1, "PASS", 1, 0),
        ((0,), (1,), 1, "FAIL", 2, 6),
        ((0, 1), (1, 2), 3, "PASS", 3, 0),
    ],
)
def test_inputs_are_counted_over_all_rules_and_each_fails_its_output(
    tmp_path: Path, digit: tuple[int, ...], size: tuple[int, ...], allowed: int, verdict: str, flips: int, failed: int
) -> None:
    record = bench(tmp_path, digit=digit, size=size, allowed=allowed).judge()
    assert record.verdict == verdict
    assert row(record).flips == flips
    assert row(record).cells == CellCounts(6 * N - failed, failed, 0)
    assert {f.rule for f in record.flips} == ({"digit"} if digit else set()) | ({"size"} if size else set())
    cause = next(f.cause for f in record.findings if f.code in {"KP404", "KP415"})
    assert all(f"{len(inputs)} by rule '{rule}'" in cause for rule, inputs in (("digit", digit), ("size", size)) if inputs)


def test_a_number_within_its_allowance_is_no_flip_and_one_beyond_says_both(tmp_path: Path) -> None:
    made = bench(tmp_path)
    target = made.targets["litert"]
    assert target is not None
    target.modes["alone"]["z"][0] = NUMBERS[0] + np.float32(0.499)
    target.modes["alone"]["z"][1] = NUMBERS[1] + np.float32(0.501)
    (flip,) = made.judge().flips
    assert (flip.rule, flip.input, flip.reference, flip.got, flip.margin, flip.tie) == ("size", "in-1", "2", "2.501", 0.5, False)


def test_what_was_approved_is_held_against_its_own_rule(tmp_path: Path) -> None:
    made = bench(
        tmp_path,
        size=(1,),
        golden_changes={0: {"expected": {"digit": "cat"}}, 1: {"expected": {"digit": "owl", "size": "2.25"}, "label": {"digit": "dog"}}},
    )
    record = made.judge()
    finding = found(record, "KP410")
    assert finding.place == "in-1"
    assert all(part in finding.cause for part in ("Rule 'digit': the reference decides 'dog'", "'owl' was approved", "the label says 'dog'"))
    assert [r.approved for r in record.golden.rows[:3]] == [True, False, None]
    assert [r.approved for r in record.golden.rows[1].rules] == [False, True]
    flip = record.flips[0]
    assert (flip.rule, flip.expected, flip.label, flip.right) == ("size", "2.25", None, "both")
    assert "KP607" not in codes(record)


def test_a_rule_that_cannot_be_used_fails_and_the_others_are_judged(tmp_path: Path) -> None:
    made = bench(tmp_path, size=(2,))
    made.text = made.text.replace('output = "y"', 'output = "q"')
    record = made.judge()
    assert "Rule 'digit'" in found(record, "KP608").cause
    assert {f.rule for f in record.flips} == {"size"}
    assert row(record).cells.failed == 3


def test_a_rule_that_names_no_output_is_not_dropped_in_silence(tmp_path: Path) -> None:
    made = bench(tmp_path)
    made.text = made.text.replace('output = "z"\n', "")
    record = made.judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert "'size' names no output" in found(record, "KP610").cause


def test_a_target_without_one_output_still_answers_for_the_other(tmp_path: Path) -> None:
    made = bench(tmp_path, digit=(0,))
    target = made.targets["litert"]
    assert target is not None
    target.result = replace(target.result, signature=replace(BOTH, outputs=BOTH.outputs[:1]))
    record = made.judge()
    assert {f.rule for f in record.flips} == {"digit"}
    assert row(record).cells == CellCounts(3 * N - 3, 3 * N + 3, 0)


def golden(expected: Any, label: Any = None) -> GoldenSet:
    return GoldenSet("raw", "/g", "g", "", (GoldenInput("one", {}, {}, "", label, expected, "", "sampled"),))


@pytest.mark.parametrize(
    ("expected", "rules", "parts"),
    [
        ("3", ("digit", "size"), ("expected is '3'", "2 rules (digit, size)", "expected = { digit = ... }")),
        ({"digits": "3"}, ("digit", "size"), ("rule 'digits'", "did you mean 'digit'?", "digit, size")),
        ({"digit": "3"}, ("",), ("rule 'digit'", "only text can be given")),
        ({"": "3"}, ("",), ("rule ''",)),
    ],
)
def test_an_entry_has_to_name_the_contracts_rules(expected: Any, rules: tuple[str, ...], parts: tuple[str, ...]) -> None:
    for made in (golden(expected), golden(None, expected if isinstance(expected, dict) else "3")):
        (problem,) = rule_problems(made, rules)
        assert all(part in problem or part.replace("expected", "label") in problem for part in parts)


def test_plain_text_is_about_the_only_rule() -> None:
    assert rule_problems(golden("3", "3"), ("",)) == rule_problems(golden("3"), ("digit",)) == []
    assert rule_problems(golden({"digit": "3"}), ("digit", "size")) == []
    assert approved_by("3", "digit") == approved_by({"digit": "3"}, "digit") == "3"
    assert approved_by({"digit": "3"}, "size") is None


def test_judging_a_set_for_other_rules_is_an_error(tmp_path: Path) -> None:
    record = bench(tmp_path, golden_changes={0: {"expected": "cat"}, 1: {"label": {"sizes": "1"}}}).judge()
    assert record.verdict is Verdict.FAIL
    assert {f.place for f in record.findings if f.code == "KP608"} == {"golden"}


@pytest.fixture(scope="module")
def flipped(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    made = bench(tmp_path_factory.mktemp("flipped"), digit=(0,), size=(0, 3), golden_changes={1: {"expected": {"digit": "owl", "size": "2"}}})
    return made.judge()


def test_the_ledger_has_an_entry_a_rule(flipped: RunRecord) -> None:
    assert [(e.input, e.by_rule) for e in ledger.entries(flipped)] == [("in-0", "size: "), ("in-3", "size: "), ("in-0", "digit: ")]
    assert ledger.flips_by_target(flipped) == [("litert", 2, 0)]
    assert ledger.told(flipped.golden.rows[1], "expected") == "digit: owl; size: 2"
    assert ledger.unapproved(flipped.golden.rows[1])
    assert not ledger.unapproved(flipped.golden.rows[0])


def test_every_report_names_the_rules(flipped: RunRecord) -> None:
    table = render_table(flipped, color=False, width=100)
    assert "digit: argmax of y, size: tolerance of z" in " ".join(table.split())
    page = render_html(flipped, {})
    assert "size: tolerance of <code>z</code>" in page
    assert "rule size; margin 0.5" in page
    assert "digit: owl; size: 2" in page
    source = render_markdown(flipped)
    assert "size: 4" in source
    assert "2 inputs with another decision" in source
    assert summary.rules(replace(flipped, decisions=())) == (flipped.decision,)


# ---------------------------------------------------------------- detection

FINDS = Signature(
    inputs=(TensorSpec("x", (None, 2), "float32"),),
    outputs=(TensorSpec("b", (None, None, 4), "float32"), TensorSpec("s", (None, None), "float32"), TensorSpec("c", (None, None), "int32")),
)
DETECTION = """
agreement = { tolerance = { rtol = 9, atol = 9 } }
[decision]
rule = "detection"
boxes = "b"
scores = "s"
classes = "c"
labels = ["cat", "dog"]
nms = 0.5
[targets.litert]
"""


def seen(**changes: Any) -> Answers:
    """Two boxes on every input, as a row of each output."""
    one = {
        "b": np.array([[0, 0, 10, 10], [20, 0, 30, 10]], np.float32),
        "s": np.array([0.9, 0.75], np.float32),
        "c": np.array([0, 1], np.int32),
    }
    modes = {mode: {name: [np.array(one[name]) for _ in range(N)] for name in one} for mode in MODES}
    made = Answers(modes, run_result(signature=FINDS))
    for name, value in changes.items():
        made.outputs[name][2] = np.array(value, one[name].dtype)
    return made


def detect(folder: Path, target: Answers, reference: Answers | None = None) -> RunRecord:
    export = stage("export", result("export", ExportResult(FINDS, (), {})))
    return Bench(folder, text=DETECTION, reference=reference or seen(), targets={"litert": target}, replaced={"export": export}).judge()


def test_detections_that_agree_pass(tmp_path: Path) -> None:
    record = detect(tmp_path, seen(b=[[1, 0, 11, 10], [20, 0, 30, 10]], s=[0.8, 0.6]))
    assert record.verdict is Verdict.PASS
    assert record.golden.classes == {"1 cat, 1 dog": N}
    assert record.decision is not None
    assert record.decision.detail == "boxes of b with score >= 0.5, the best of those that overlap by more than 0.5, the same at an overlap of 0.5"


@pytest.mark.parametrize(
    ("changes", "got"),
    [({"s": [0.9, 0.4]}, "1 cat"), ({"b": [[6, 0, 16, 10], [20, 0, 30, 10]]}, "1 cat, 1 dog"), ({"c": [1, 1]}, "2 dog")],
    ids=["a box less", "a box elsewhere", "another class"],
)
def test_a_detection_that_differs_fails_every_output_that_it_was_read_from(tmp_path: Path, changes: dict[str, Any], got: str) -> None:
    record = detect(tmp_path, seen(**changes))
    (flip,) = record.flips
    assert (flip.input, flip.mode, flip.reference, flip.got, flip.tie) == ("in-2", "alone", "1 cat, 1 dog", got, False)
    assert flip.margin == pytest.approx(0.25)
    assert record.verdict is Verdict.FAIL
    assert row(record).cells.failed >= 3
    assert "KP404" in codes(record)


def test_a_box_at_the_threshold_is_a_tie(tmp_path: Path) -> None:
    record = detect(tmp_path, seen(s=[0.9, 0.49999997]), seen(s=[0.9, 0.5]))
    assert record.verdict is Verdict.PASS
    assert [flip.tie for flip in record.flips] == [True]
    assert {"KP405", "KP414"} <= set(codes(record))


def test_detections_of_another_shape_are_no_pass(tmp_path: Path) -> None:
    fewer = detect(tmp_path / "fewer", seen(b=[[0, 0, 10, 10]], s=[0.9], c=[0]))
    assert (fewer.verdict, [flip.got for flip in fewer.flips]) == (Verdict.FAIL, ["1 cat"])
    assert "KP403" in codes(fewer)
    odd = detect(tmp_path / "odd", seen(s=[0.9]))
    assert odd.verdict is Verdict.FAIL
    assert "KP608" in codes(odd)

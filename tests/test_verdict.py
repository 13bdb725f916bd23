"""Nothing that failed or was left unchecked ends in PASS."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.api import EXIT_OF_VERDICT
from kpipe.codes import CODES, UNCHECKED_CODES
from kpipe.errors import Exit
from kpipe.findings import Finding, Severity
from kpipe.judging.grade import finding, from_observation
from kpipe.judging.verdict import failing, reach, unchecking
from kpipe.record import CellCounts, CellStatus, TargetRecord, Verdict
from kpipe_stages.protocol import Observation

RANK = {Verdict.FAIL: 0, Verdict.INCOMPLETE: 1, Verdict.PASS: 2}

findings = st.builds(finding, code=st.sampled_from(sorted(CODES)), cause=st.just("something happened."), required=st.booleans())
counts = st.builds(CellCounts, *[st.integers(0, 3)] * 3)
targets = st.builds(
    TargetRecord,
    name=st.sampled_from(["litert", "openvino"]),
    runtime=st.just("litert"),
    title=st.just("LiteRT"),
    required=st.booleans(),
    status=st.sampled_from(CellStatus),
    reason=st.just(""),
    cells=counts,
)
GOOD = TargetRecord("litert", "litert", "LiteRT", required=True, status=CellStatus.PASS, reason="agrees", cells=CellCounts(6))


def verdict(found: list[Finding], of: list[TargetRecord], *, synthetic: bool = False, incomplete: str = "") -> Verdict:
    return reach(found, of, synthetic=synthetic, incomplete=incomplete)[0]


@given(
    st.lists(findings, max_size=4), st.lists(targets, max_size=4), st.booleans(), st.sampled_from(["", "The run's time limit of 9 s was reached."])
)
def test_pass_means_that_nothing_failed_and_nothing_is_open(found: list[Finding], of: list[TargetRecord], synthetic: bool, incomplete: str) -> None:
    answer, why = reach(found, of, synthetic=synthetic, incomplete=incomplete)
    required = [t for t in of if t.required]
    errors = [f for f in found if f.required and CODES[f.code].severity is Severity.ERROR and f.code not in UNCHECKED_CODES]
    failed = bool(errors) or any(t.cells.failed or t.status is CellStatus.FAIL for t in required)
    unchecked = any(t.cells.unchecked or not t.cells.passed or t.status is CellStatus.UNCHECKED for t in required)
    open_ = unchecked or any(f.required and f.code in UNCHECKED_CODES for f in found) or not required or synthetic or bool(incomplete)
    assert answer is (Verdict.FAIL if failed else Verdict.INCOMPLETE if open_ else Verdict.PASS)
    assert why.endswith(".")
    assert "  " not in why
    assert not why.startswith("0 ")


@given(st.lists(findings, max_size=4), st.lists(targets, max_size=4), st.booleans(), findings, targets)
def test_nothing_that_is_added_makes_it_better(
    found: list[Finding], of: list[TargetRecord], synthetic: bool, more: Finding, another: TargetRecord
) -> None:
    before = RANK[verdict(found, of, synthetic=synthetic)]
    assert RANK[verdict([*found, more], of, synthetic=synthetic)] <= before
    assert RANK[verdict(found, of, synthetic=True)] <= before
    assert RANK[verdict(found, of, synthetic=synthetic, incomplete="It was stopped.")] <= before
    if any(t.required for t in of):  # the first required target turns "nothing was checked" into an answer
        assert RANK[verdict(found, [*of, another], synthetic=synthetic)] <= before


@given(st.lists(findings, max_size=4), st.lists(targets, max_size=3))
def test_order_does_not_matter(found: list[Finding], of: list[TargetRecord]) -> None:
    assert verdict(found, of) is verdict(found[::-1], of[::-1])


@given(findings.filter(lambda f: not f.required), targets.filter(lambda t: not t.required))
def test_what_is_not_required_never_decides(found: Finding, of: TargetRecord) -> None:
    assert reach([found], [GOOD, of], synthetic=False, incomplete="") == reach([], [GOOD], synthetic=False, incomplete="")


def test_every_cell_passed_is_a_pass_and_says_how_many() -> None:
    one = "1 required target agrees with the reference on all 6 cells."
    assert reach([], [GOOD], synthetic=False, incomplete="") == (Verdict.PASS, one)
    answer, why = reach([], [GOOD, replace(GOOD, name="openvino")], synthetic=False, incomplete="")
    assert (answer, why) == (Verdict.PASS, "2 required targets agree with the reference on all 12 cells.")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"cells": CellCounts(6, 0, 1)}, "1 cell of litert could not be checked."),
        ({"cells": CellCounts(0, 0, 4)}, "4 cells of litert could not be checked."),
        ({"cells": CellCounts()}, "Nothing of litert was checked."),
        ({"status": CellStatus.UNCHECKED}, "Nothing of litert was checked."),
    ],
)
def test_an_open_target_is_named(changes: dict[str, Any], why: str) -> None:
    assert reach([], [replace(GOOD, **changes)], synthetic=False, incomplete="") == (Verdict.INCOMPLETE, why)


def test_a_limit_that_was_not_measured_is_named_and_not_counted_in_cells() -> None:
    limit = finding("KP505", "Limit p99_ms = 5 ms could not be checked.", target="litert")
    answer, why = reach([limit], [replace(GOOD, status=CellStatus.UNCHECKED)], synthetic=False, incomplete="")
    assert answer is Verdict.INCOMPLETE
    assert "KP505" in why
    assert "p99_ms" in why


def test_no_required_target_is_incomplete() -> None:
    assert reach([], [replace(GOOD, required=False)], synthetic=False, incomplete="")[0] is Verdict.INCOMPLETE
    assert reach([], [], synthetic=False, incomplete="")[0] is Verdict.INCOMPLETE


def test_synthetic_inputs_are_never_a_pass_and_say_what_is_next() -> None:
    answer, why = reach([], [GOOD], synthetic=True, incomplete="")
    assert answer is Verdict.INCOMPLETE
    assert "kpipe init" in why


def test_the_first_error_and_the_number_of_others_are_said() -> None:
    errors = [finding("KP404", "flip.", target="litert"), finding("KP401", "drift.", target="litert"), finding("KP402", "nan.", target="litert")]
    assert reach(errors, [GOOD], synthetic=False, incomplete="")[1] == "litert: Decision flipped (KP404), and 2 more error findings."


@pytest.mark.parametrize("code", sorted(CODES))
def test_each_code_decides_as_its_severity_says(code: str) -> None:
    severity = CODES[code].severity
    expected = Verdict.INCOMPLETE if code in UNCHECKED_CODES else Verdict.FAIL if severity is Severity.ERROR else Verdict.PASS
    assert verdict([finding(code, "something.")], [GOOD]) is expected


def test_codes_that_leave_unchecked_are_in_the_table() -> None:
    assert set(CODES) > UNCHECKED_CODES
    assert all(row.code == code for code, row in CODES.items())


def test_an_unknown_code_of_a_worker_is_a_failed_stage() -> None:
    graded = from_observation(Observation("KP999", "odd", "do"), target="litert")
    assert graded.code == "KP314"
    assert verdict([graded], [GOOD]) is Verdict.INCOMPLETE
    assert unchecking([graded]) == [graded]
    assert failing([graded]) == []


def test_exit_codes_follow_the_verdict() -> None:
    assert {v: EXIT_OF_VERDICT[v] for v in Verdict} == {Verdict.PASS: Exit.PASS, Verdict.FAIL: Exit.FAIL, Verdict.INCOMPLETE: Exit.INCOMPLETE}
    assert [int(EXIT_OF_VERDICT[v]) for v in (Verdict.PASS, Verdict.FAIL, Verdict.INCOMPLETE)] == [0, 1, 3]

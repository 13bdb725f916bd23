"""Words and numbers of the reports, and what a record may not hide."""

from __future__ import annotations

import math
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.record import CellCounts, CellStatus, LimitCheck, RunRecord, TargetRecord
from kpipe.report import ledger, summary, text

from .sample_record import failing, finding, incomplete, passing

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=200)


@given(ANY_TEXT)
def test_clean_text_is_harmless_everywhere(raw: str) -> None:
    cleaned = text.clean(raw)
    cleaned.encode("utf-8")
    assert not [c for c in cleaned if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}]
    assert text.clean(cleaned) == cleaned


@given(ANY_TEXT, st.integers(12, 80))
def test_shortened_text_keeps_both_ends(raw: str, limit: int) -> None:
    whole, short = text.clean(raw), text.shorten(raw, limit)
    assert len(short) <= limit
    assert short == whole or (whole.startswith(short.split("...")[0]) and len(short) == limit)


def test_numbers_that_are_not_finite_are_named() -> None:
    assert [text.number(v) for v in (math.nan, math.inf, -math.inf, None, 0.0)] == ["NaN", "inf", "-inf", "-", "0"]
    assert (text.seconds(math.nan), text.size(math.inf), text.share(math.nan)) == ("NaN", "inf", "NaN")


def test_durations_and_sizes_have_units() -> None:
    assert [text.seconds(v) for v in (2.4e-5, 3.1e-3, 0.99999, 28.4, 3599.6)] == ["24 us", "3.1 ms", "1 s", "28.4 s", "60 min 00 s"]
    assert [text.size(v) for v in (12, 96_400, 9_600_000, 2.5e9)] == ["12 B", "96.4 kB", "9.6 MB", "2.5 GB"]


@given(st.floats(min_value=1, exclude_min=True, allow_infinity=False))
def test_a_share_above_the_tolerance_never_reads_as_within(factor: float) -> None:
    shown = text.share(factor)
    assert shown.endswith(" x")
    assert float(shown.removesuffix(" x")) > 1 or factor < 1 + 1e-5


def altered(record: RunRecord, **changes: object) -> RunRecord:
    """``record`` with its second target changed."""
    targets = list(record.targets)
    targets[1] = replace(targets[1], **changes)  # type: ignore[arg-type]
    return replace(record, targets=tuple(targets))


def greener_than_the_cells() -> dict[str, RunRecord]:
    """Records that say PASS and shouldn't."""
    base = passing()
    drifts = base.targets[1].drift
    limit = LimitCheck("p50_ms", 5.0, None, "ms", ok=False)
    return {
        "no target": replace(base, targets=()),
        "none required": replace(base, targets=tuple(replace(t, required=False) for t in base.targets)),
        "unchecked target": altered(base, status=CellStatus.UNCHECKED),
        "failed target": altered(base, status=CellStatus.FAIL),
        "zero cells": altered(base, cells=CellCounts()),
        "unchecked cell": altered(base, cells=CellCounts(1187, 0, 1)),
        "failed cell": altered(base, cells=CellCounts(1187, 1, 0)),
        "failed comparison": altered(base, drift=(replace(drifts[0], cells=CellCounts(296, 1, 0)), *drifts[1:])),
        "empty comparison": altered(base, drift=(replace(drifts[0], cells=CellCounts()), *drifts[1:])),
        "NaN factor": altered(base, drift=(replace(drifts[0], smallest_factor=math.nan), *drifts[1:])),
        "limit not measured": altered(base, limits=(limit,)),
        "error finding": replace(base, findings=(finding("KP404", "saved_model", "x", "A decision flipped."),)),
        "run finding": replace(base, findings=(finding("KP102", "", "x", "A golden file was altered."),)),
        "target left out": replace(base, findings=(finding("KP312", "saved_model", "", "Left out."),)),
    }


def test_a_clean_pass_is_trusted_and_nothing_else_is() -> None:
    assert summary.trusted(passing())
    assert not summary.trusted(failing())
    assert not summary.trusted(incomplete())


@pytest.mark.parametrize("name", greener_than_the_cells())
def test_a_pass_that_its_cells_contradict_is_named_first(name: str) -> None:
    record = greener_than_the_cells()[name]
    assert not summary.trusted(record)
    assert summary.warnings_first(record)[0].startswith("This record contradicts itself: ")


def test_what_was_not_measured_is_not_zero() -> None:
    rows = {row.name: row for row in summary.rows(failing())}
    assert (rows["openvino_ir"].flips, rows["openvino_ir"].drift, rows["openvino_ir"].p50) == ("-", "-", "-")
    assert rows["tensorflow"].flips == "0"


def test_without_a_decision_rule_there_is_no_number_of_flips() -> None:
    assert {row.flips for row in summary.rows(replace(passing(), decision=None))} == {"-"}


def test_times_are_told_in_utc() -> None:
    assert text.utc("2026-03-02T11:15:00+01:00") == text.utc("2026-03-02T10:15:00Z") == text.utc("2026-03-02T10:15:00.5") == "2026-03-02T10:15:00Z"
    assert text.utc("yesterday") == ""


def test_the_worst_drift_is_the_one_that_is_not_a_number() -> None:
    target: TargetRecord = passing().targets[0]
    drifts = (target.drift[0], replace(target.drift[1], smallest_factor=math.nan, max_abs=math.nan), replace(target.drift[2], smallest_factor=9e9))
    worst = summary.worst_drift(replace(target, drift=drifts))
    assert worst is not None
    assert math.isnan(worst.max_abs)


def test_the_ledger_gathers_targets_and_modes_of_an_input() -> None:
    found = ledger.entries(failing())
    assert [(e.reference, [o.got for o in e.outcomes], e.tie) for e in found] == [("2", ["7"], False), ("4", ["9"], False), ("9", ["4"], True)]
    assert found[1].brief == "9: openvino (alone, batch_3), keras_openvino (alone)"
    assert found[0].outcomes[0].right == "the reference is right by the approved decision 2"
    assert ledger.flips_by_target(failing()) == [("openvino", 2, 1), ("keras_openvino", 1, 0)]


def test_a_score_that_one_side_lacks_is_missing_not_zero() -> None:
    flip = replace(failing().flips[0], reference_scores=(0.5, 0.4), target_scores=(0.2,))
    entry = ledger.entries(replace(failing(), flips=(flip,)))[0]
    assert [(b.label, b.reference, b.target) for b in entry.outcomes[0].bars] == [("[0]", "0.5", "0.2"), ("[1]", "0.4", "missing")]

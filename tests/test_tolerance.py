"""Which tolerance holds: the most specific one of the contract, else the default of the precision class."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.contract import AgreementTable, TargetTable, ToleranceTable
from kpipe.judging.precision import fine_enough
from kpipe.judging.tolerance import COARSER, DEFAULTS, precision_class, tolerance_for


def table(number: int) -> ToleranceTable:
    return ToleranceTable(atol=float(number), rtol=number / 10)


@pytest.mark.parametrize(
    ("agreement", "target", "source"),
    [
        (AgreementTable(), None, "default for float32"),
        (AgreementTable(), TargetTable(), "default for float32"),
        (AgreementTable(tolerance=table(1)), None, "contract: agreement.tolerance"),
        (AgreementTable(tolerance=table(1), outputs={"y": table(2)}), TargetTable(), "contract: agreement.outputs.y"),
        (AgreementTable(tolerance=table(1), outputs={"z": table(2)}), TargetTable(), "contract: agreement.tolerance"),
        (AgreementTable(tolerance=table(1), outputs={"y": table(2)}), TargetTable(tolerance=table(3)), "contract: tolerance"),
        (AgreementTable(outputs={"y": table(2)}), TargetTable(tolerance=table(3), outputs={"y": table(4)}), "contract: outputs.y"),
    ],
)
def test_the_most_specific_one_holds(agreement: AgreementTable, target: TargetTable | None, source: str) -> None:
    found = tolerance_for("y", "float32", agreement, target)
    assert found.source == source
    tables = [t for t in (agreement.tolerance, *agreement.outputs.values()) if isinstance(t, ToleranceTable)]
    tables += [t for t in (target.tolerance, *target.outputs.values()) if t] if target else []
    assert (found.rtol, found.atol) in {(t.rtol, t.atol) for t in tables} | {DEFAULTS["float32"]}
    assert found.numeric


def test_a_tolerance_of_nothing_is_taken_as_such() -> None:
    exact = tolerance_for("y", "bfloat16", AgreementTable(tolerance=ToleranceTable(atol=0.0, rtol=0.0)), None)
    assert (exact.rtol, exact.atol) == (0.0, 0.0)


@pytest.mark.parametrize("precision", sorted(DEFAULTS))
def test_defaults_grow_with_the_epsilon_of_their_class(precision: str) -> None:
    found = tolerance_for("y", precision, AgreementTable(), None)
    assert (found.rtol, found.atol) == DEFAULTS[precision]
    finer = [DEFAULTS[name] for name in COARSER[: COARSER.index(precision)]]
    assert all(rtol <= found.rtol and atol <= found.atol for rtol, atol in finer)


@pytest.mark.parametrize(
    ("model", "effective", "asked", "expected"),
    [
        ({"float32"}, "float32", "f32", "float32"),
        ({"float32"}, "bfloat16", "f32", "float32"),
        ({"float32"}, "bfloat16", "default", "bfloat16"),
        ({"float32"}, "float16 (declared)", "default", "float16"),
        ({"float32"}, "something new", "default", "float32"),
        ({"float32"}, "", "default", "float32"),
        ({"float16", "float32"}, "float32", "f32", "float16"),
        ({"bfloat16"}, "float32", "f32", "bfloat16"),
        ({"float64"}, "float64", "f32", "float64"),
        ({"int8_from_float32"}, "float32", "f32", "float32"),
        (set(), "", "f32", "float32"),
    ],
)
def test_only_the_model_and_an_allowed_default_make_it_coarser(model: set[str], effective: str, asked: str, expected: str) -> None:
    assert precision_class(model, effective, asked) == expected


@pytest.mark.parametrize(
    ("effective", "allowed", "fine"),
    [
        ("float32", {"float32"}, True),
        ("float32 (declared)", {"float32"}, True),
        ("float16, float32 (declared)", {"float32"}, False),
        ("float16, float32 (declared)", {"float16"}, True),
        ("bfloat16", {"float32"}, False),
        ("bfloat16", {"float16"}, False),
        ("float32", {"bfloat16"}, True),
        ("float64", {"float32"}, True),
        ("", {"float32"}, False),
        ("(declared)", {"float32"}, False),
        ("int64, float32", {"float32"}, True),
        ("int64, bfloat16", {"float32"}, False),
        ("float8", {"float32"}, False),
        ("float32", {"dynamic"}, False),
        ("undefined", {"float32", "bfloat16"}, False),
    ],
)
def test_a_precision_that_is_unknown_or_coarser_is_not_fine(effective: str, allowed: set[str], fine: bool) -> None:
    assert fine_enough(effective, allowed) is fine


@given(st.text(max_size=20), st.sets(st.sampled_from(COARSER), min_size=1))
def test_an_unknown_word_is_never_fine(effective: str, allowed: set[str]) -> None:
    assert not fine_enough(f"{effective} float32x", allowed)
    assert not fine_enough(f"float32, x{effective}", allowed)

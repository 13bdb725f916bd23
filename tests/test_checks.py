"""Prepared inputs against the model's signature: what doesn't fit is found before a runtime broadcasts or casts it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.running.checks import check_prepared, nonfinite
from kpipe_stages.protocol import PrepareResult, Signature, TensorSpec


def prepared(dtype: str = "float32", *shapes: tuple[int, ...], name: str = "x", **changes: Any) -> PrepareResult:
    facts: dict[str, Any] = {"names": (name,), "rows": 3, "dtypes": {name: dtype}, "shapes": {name: shapes}, "nonfinite_rows": {name: ()}}
    return PrepareResult(**(facts | changes))


def model(*shape: int | None, dtype: str = "float32", name: str = "x") -> Signature:
    return Signature((TensorSpec(name, shape, dtype),), ())


def causes(ready: PrepareResult, signature: Signature) -> list[str]:
    found = check_prepared(ready, signature)
    assert {o.code for o in found} <= {"KP104"}
    return [o.cause for o in found]


def test_what_fits_fits() -> None:
    assert causes(prepared("float32", (4, 5)), model(None, 4, 5)) == []
    assert causes(prepared("float32", (4, 5), (6, 5)), model(None, None, 5)) == []
    assert causes(prepared("float32", ()), model(None)) == []
    assert causes(prepared("string", (1,)), model(None, 1, dtype="string")) == []
    assert causes(prepared("float32", (4, 5)), Signature((TensorSpec("x", None, "float32"),), ())) == []


@pytest.mark.parametrize(
    ("shape", "wanted"), [((4,), (None, 4, 5)), ((4, 5, 1), (None, 4, 5)), ((5, 4), (None, 4, 5)), ((1, 5), (None, 4, 5)), ((), (None, 1))]
)
def test_a_shape_that_does_not_fit_is_named_with_both(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> None:
    (cause,) = causes(prepared("float32", shape), model(*wanted))
    assert str(list(shape)) in cause
    assert str(list(wanted[1:])) in cause


def test_every_odd_shape_is_named() -> None:
    assert len(causes(prepared("float32", (4,), (5,), (6,)), model(None, 4))) == 2


@pytest.mark.parametrize(("got", "wanted"), [("float64", "float32"), ("int64", "int32"), ("uint8", "float32"), ("float32", "string")])
def test_another_dtype_is_named_with_both(got: str, wanted: str) -> None:
    (cause,) = causes(prepared(got, (4,)), model(None, 4, dtype=wanted))
    assert f"'x' is {got}" in cause
    assert wanted in cause


def test_names_have_to_be_the_models() -> None:
    missing, other = sorted(causes(prepared("float32", (4,), name="imag"), model(None, 4, name="image")), key=len)
    assert {"'image'" in missing, "did you mean 'image'?" in other} == {True}


@given(st.lists(st.integers(1, 4), max_size=3), st.lists(st.none() | st.integers(1, 4), max_size=3))
def test_exactly_the_shapes_that_the_model_takes_fit(shape: list[int], wanted: list[int | None]) -> None:
    fits = len(shape) == len(wanted) and all(w in (None, n) for n, w in zip(shape, wanted, strict=False))
    assert (causes(prepared("float32", tuple(shape)), model(None, *wanted)) == []) is fits


def test_numbers_that_are_not_finite_are_a_remark_with_the_inputs() -> None:
    (found,) = nonfinite(prepared("float32", (4,), nonfinite_rows={"x": (0, 2), "y": ()}), ["a", "b", "c"])
    assert (found.code, found.place, found.evidence) == ("KP107", "x", {"inputs": ["a", "c"]})
    assert nonfinite(prepared("float32", (4,)), ["a"]) == []

"""The comparison of numbers: what may pass, and that nothing else does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kpipe.judging import compare as compare_module
from kpipe.judging.compare import FLOAT32_EPSILON, Problem, RowDrift, chunks, compare, kind_of
from kpipe.record import Tolerance
from kpipe_stages.rows import Rows, RowsWriter, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Compare = Callable[..., list[RowDrift]]

TOLERANCE = Tolerance(rtol=1e-4, atol=1e-5, source="test")
SPECIAL = (math.nan, math.inf, -math.inf)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, max_side=4)
ON_DISK = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
"""Files are written anew for every example, so the folder may stay the same."""


@pytest.fixture
def rows(tmp_path: Path) -> Callable[[str, Sequence[Any]], Rows]:
    def make(name: str, values: Sequence[Any]) -> Rows:
        write_rows(tmp_path / name, values)
        return Rows(tmp_path / name)

    return make


@pytest.fixture
def held(rows: Callable[[str, Sequence[Any]], Rows]) -> Compare:
    """Two lists of arrays, compared; dtypes of the target are accepted unless said otherwise."""

    def run(
        reference: Sequence[Any], target: Sequence[Any], tolerance: Tolerance = TOLERANCE, accepted: frozenset[str] | None = None
    ) -> list[RowDrift]:
        left, right = rows("reference", reference), rows("target", target)
        return compare(left, right, tolerance, frozenset({left.dtype, right.dtype}) if accepted is None else accepted)

    return run


def floats(dtype: type = np.float32, **limits: Any) -> st.SearchStrategy[Any]:
    width = 64 if dtype is np.float64 else 32
    return hnp.arrays(dtype, SHAPES, elements=st.floats(width=width, **limits))


# ---------------------------------------------------------------- what agrees


@given(row=floats(allow_nan=True, allow_infinity=True) | floats(np.float64, allow_nan=True, allow_infinity=True), repeat=st.integers(1, 5))
@ON_DISK
def test_what_is_the_same_agrees_whatever_it_is(held: Compare, row: Any, repeat: int) -> None:
    drifts = held([row] * repeat, [row] * repeat, Tolerance(0.0, 0.0, "test"))
    assert [d.index for d in drifts] == list(range(repeat))
    assert all((d.problem, d.factor, d.max_abs, d.rms, d.max_ulp) == (Problem.NONE, 0.0, 0.0, 0.0, 0.0) for d in drifts)


@given(row=hnp.arrays(np.int64, SHAPES) | hnp.arrays(np.uint8, SHAPES) | hnp.arrays(np.bool_, SHAPES))
@ON_DISK
def test_the_same_integers_agree(held: Compare, row: Any) -> None:
    assert [(d.problem, d.factor) for d in held([row], [row])] == [(Problem.NONE, 0.0)]


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.str_])
def test_empty_outputs_of_one_shape_agree_and_of_two_do_not(held: Compare, shape: tuple[int, ...], dtype: Any) -> None:
    empty = np.zeros(shape, dtype)
    assert [(d.problem, d.factor) for d in held([empty] * 2, [empty] * 2)] == [(Problem.NONE, 0.0)] * 2
    other = np.zeros(tuple(n + 1 for n in shape), dtype)
    assert [d.problem for d in held([empty], [other])] == [Problem.SHAPE]
    assert [d.problem for d in held([other], [empty])] == [Problem.SHAPE]


# ---------------------------------------------------------------- the bound


@given(
    row=hnp.arrays(np.float64, st.integers(1, 6), elements=st.floats(-1e6, 1e6).filter(lambda v: v == 0 or abs(v) > 1e-3)),
    index=st.integers(0, 5),
    rtol=st.sampled_from([0.0, 1e-6, 1e-3, 0.5]),
    atol=st.sampled_from([0.0, 1e-6, 1e-2]),
    over=st.sampled_from([0.5, 0.99, 1.01, 2.0, 1e6]),
)
@ON_DISK
def test_a_difference_passes_up_to_the_bound_and_not_beyond(held: Compare, row: Any, index: int, rtol: float, atol: float, over: float) -> None:
    index %= row.size
    bound = atol * np.abs(row).max() + rtol * abs(row[index])
    moved = row.copy()
    moved[index] += over * bound
    if bound < 1e-9:  # lost in the rounding of the sum
        return
    (drift,) = held([row], [moved], Tolerance(rtol, atol, "test"))
    assert drift.problem is (Problem.NONE if over < 1 else Problem.DRIFT)
    assert drift.factor == pytest.approx(over, rel=1e-3)
    assert drift.element == (index,)
    assert drift.pair == (row[index], moved[index])
    assert drift.max_abs == pytest.approx(over * bound, rel=1e-3)


def test_exactly_the_bound_passes_and_the_next_number_does_not(held: Compare) -> None:
    tolerance = Tolerance(rtol=2.0**-10, atol=2.0**-12, source="test")
    row = np.array([2.0, 1.0])
    bound = 2.0**-12 * 2.0 + 2.0**-10 * 1.0  # exact in binary
    (at,) = held([row], [np.array([2.0, 1.0 + bound])], tolerance)
    (beyond,) = held([row], [np.array([2.0, np.nextafter(1.0 + bound, 2.0)])], tolerance)
    assert (at.problem, at.factor) == (Problem.NONE, 1.0)
    assert beyond.problem is Problem.DRIFT
    assert beyond.factor > 1.0


@given(
    row=floats(np.float64, min_value=-1e9, max_value=1e9, allow_subnormal=False).filter(lambda a: not (np.abs(a)[a != 0] < 1e-200).any()),
    noise=st.floats(1e-9, 1e3),
    data=st.data(),
)
@ON_DISK
def test_the_smallest_passing_factor_is_the_smallest(held: Compare, row: Any, noise: float, data: st.DataObject) -> None:
    moved = row + noise * data.draw(hnp.arrays(np.float64, row.shape, elements=st.floats(-1, 1)))
    (first,) = held([row], [moved])
    if first.factor == 0 or not math.isfinite(first.factor):
        return
    for times, expected in ((first.factor * (1 + 1e-9), Problem.NONE), (first.factor * (1 - 1e-9), Problem.DRIFT)):
        (again,) = held([row], [moved], Tolerance(TOLERANCE.rtol * times, TOLERANCE.atol * times, "test"))
        assert again.problem is expected


@given(row=floats(min_value=-1e3, max_value=1e3), by=st.floats(1e-30, 1e30))
@ON_DISK
def test_the_unit_of_an_output_does_not_matter(held: Compare, row: Any, by: float) -> None:
    row = row.astype(np.float64)
    (one,), (scaled,) = held([row], [row * (1 + 3e-4)]), held([row * by], [row * by * (1 + 3e-4)])
    assert one.problem is scaled.problem
    if np.abs(row).max(initial=0) * by > 1e-250:
        assert one.factor == pytest.approx(scaled.factor, rel=1e-6, abs=1e-9)


def test_the_tolerance_is_of_the_reference_and_its_scale_of_the_same_row(held: Compare) -> None:
    large, small = np.array([1e6, 1.0], np.float32), np.array([1.0, 1e-3], np.float32)
    assert [d.problem for d in held([large, small], [large + np.float32([0, 5]), small + np.float32([0, 5e-4])])] == [Problem.NONE, Problem.DRIFT]


# ---------------------------------------------------------------- numbers that aren't numbers


@given(row=floats(allow_nan=False, allow_infinity=False).filter(lambda a: a.size > 0), data=st.data())
@ON_DISK
def test_nan_and_infinity_pass_only_where_both_have_the_same_one(held: Compare, row: Any, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, row.size - 1))
    ours, theirs = data.draw(st.tuples(*[st.sampled_from([*SPECIAL, 0.0, 1.0])] * 2))
    left, right = row.copy(), row.copy()
    left.flat[place], right.flat[place] = ours, theirs
    (drift,) = held([left], [right], Tolerance(rtol=10.0, atol=10.0, source="lax"))
    same = ours == theirs or (math.isnan(ours) and math.isnan(theirs))
    if math.isfinite(ours) and math.isfinite(theirs):
        return
    assert drift.problem is (Problem.NONE if same else Problem.NONFINITE)
    if not same:
        assert drift.factor == math.inf
        assert drift.element == tuple(int(n) for n in np.unravel_index(place, row.shape))


def test_a_wrong_number_beside_a_shared_nan_is_seen(held: Compare) -> None:
    (drift,) = held([np.array([math.nan, 1.0], np.float32)], [np.array([math.nan, 1.1], np.float32)])
    assert (drift.problem, drift.element) == (Problem.DRIFT, (1,))


def test_nan_fails_even_where_numbers_are_not_judged(held: Compare) -> None:
    lax = Tolerance(1e-4, 1e-5, "int8", numeric=False)
    one = np.array([1.0, 2.0], np.float32)
    assert held([one], [one * 2], lax)[0].problem is Problem.NONE
    assert held([one], [np.array([1.0, math.nan], np.float32)], lax)[0].problem is Problem.NONFINITE


@pytest.mark.parametrize("big", [1e308, -1e308, 1.7e308])
@pytest.mark.parametrize("tolerance", [TOLERANCE, Tolerance(10.0, 10.0, "overflows too"), Tolerance(0.0, 0.0, "exact")])
def test_differences_beyond_float64_fail(held: Compare, big: float, tolerance: Tolerance) -> None:
    (drift,) = held([np.array([big, 1.0])], [np.array([-big, 1.0])], tolerance)
    assert (drift.problem, drift.factor) == (Problem.DRIFT, math.inf)


@pytest.mark.parametrize("tiny", [5e-324, 1e-310, 2.0**-149])
def test_subnormal_references_are_held_to_their_own_scale(held: Compare, tiny: float) -> None:
    row = np.array([tiny, 0.0])
    assert held([row], [row])[0].problem is Problem.NONE
    assert held([row], [row * 2])[0].problem is Problem.DRIFT
    assert held([row], [np.array([tiny, 1.0])])[0].problem is Problem.DRIFT


def test_nothing_may_differ_from_a_reference_of_zeros(held: Compare) -> None:
    zeros = np.zeros(3, np.float32)
    assert held([zeros], [-zeros])[0].problem is Problem.NONE
    (drift,) = held([zeros], [np.array([0, 1e-30, 0], np.float32)])
    assert (drift.problem, drift.factor, drift.element) == (Problem.DRIFT, math.inf, (1,))


# ---------------------------------------------------------------- other things


@given(row=hnp.arrays(np.int32, SHAPES.filter(len), elements=st.integers(-(2**31), 2**31 - 1)), data=st.data())
@ON_DISK
def test_integers_are_exact(held: Compare, row: Any, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, row.size - 1))
    other = row.copy()
    other.reshape(-1)[place] ^= data.draw(st.integers(1, 2**31 - 1))
    (drift,) = held([row], [other], Tolerance(10.0, 10.0, "lax"))
    assert (drift.problem, drift.factor) == (Problem.DRIFT, math.inf)
    assert drift.element == tuple(int(n) for n in np.unravel_index(place, row.shape))


def test_integers_beyond_float64_are_exact(held: Compare) -> None:
    (drift,) = held([np.array([2**53, 2**63 - 1])], [np.array([2**53, 2**63 - 2])])
    assert (drift.problem, drift.element) == (Problem.DRIFT, (1,))


@pytest.mark.parametrize(("left", "right"), [("cat", "Cat"), ("", " "), ("a", "a "), (b"\xff", b"\xfe"), ("\u00e4", "a\u0308")])
def test_strings_are_exact(held: Compare, left: Any, right: Any) -> None:
    assert held([np.array([left, "x"], object)], [np.array([right, "x"], object)])[0].problem is Problem.DRIFT
    assert held([np.array([left, "x"], object)], [np.array([left, "x"], object)])[0].problem is Problem.NONE


@given(shapes=st.tuples(SHAPES, SHAPES))
@ON_DISK
def test_another_shape_never_passes(held: Compare, shapes: tuple[tuple[int, ...], ...]) -> None:
    left, right = (np.ones(shape, np.float32) for shape in shapes)
    (drift,) = held([left], [right])
    assert (drift.problem is Problem.SHAPE) == (shapes[0] != shapes[1])
    assert (drift.factor == math.inf) == (shapes[0] != shapes[1])


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "bool", "uint8"])
def test_a_dtype_that_was_not_accepted_never_passes(held: Compare, dtype: str) -> None:
    ones = np.ones(3, np.float32)
    drifts = held([ones] * 2, [ones.astype(dtype)] * 2, accepted=frozenset({"float32"}))
    assert [d.problem for d in drifts] == [Problem.DTYPE] * 2


@pytest.mark.parametrize(("left", "right"), [("float32", "int32"), ("int32", "bool"), ("float32", "bool")])
def test_another_kind_never_passes_even_where_it_was_accepted(held: Compare, left: str, right: str) -> None:
    assert held([np.ones(2, left)], [np.ones(2, right)])[0].problem is Problem.DTYPE


def test_an_accepted_width_is_compared_as_numbers(held: Compare) -> None:
    row = np.array([0.5, 0.25], np.float32)
    assert held([row], [row.astype(np.float16)])[0].problem is Problem.NONE
    assert held([np.array([3], np.int64)], [np.array([3], np.int32)])[0].problem is Problem.NONE


@pytest.mark.parametrize(
    ("dtype", "kind"), [("bfloat16", "float"), ("float16", "float"), ("uint64", "integer"), ("bool", "bool"), ("string", "string")]
)
def test_kinds(dtype: str, kind: str) -> None:
    assert kind_of(dtype) == kind


@pytest.mark.parametrize(("ours", "theirs"), [(3, 2), (2, 3), (1, 2)])
def test_rows_that_are_missing_or_extra_are_never_paired_off(held: Compare, ours: int, theirs: int) -> None:
    with pytest.raises(ValueError, match=f"{theirs} rows against {ours}"):
        held([np.ones(2, np.float32)] * ours, [np.ones(2, np.float32)] * theirs)


def test_an_absent_row_is_never_compared(tmp_path: Path, rows: Callable[[str, Sequence[Any]], Rows]) -> None:
    with RowsWriter(tmp_path / "holey") as writer:
        writer.append(np.ones(2, np.float32))
        writer.append_absent()
    whole = rows("whole", [np.ones(2, np.float32)] * 2)
    for pair in ((whole, Rows(tmp_path / "holey")), (Rows(tmp_path / "holey"), whole)):
        with pytest.raises(LookupError, match="row 1 is absent"):
            compare(*pair, TOLERANCE, frozenset({"float32"}))


# ---------------------------------------------------------------- chunks


@given(
    shapes=st.lists(st.sampled_from([(2, 3), (2, 2), (1, 3), (0, 3), (3, 0)]), min_size=1, max_size=9),
    at_once=st.sampled_from([1, 5, 7, 13, 1000]),
    seed=st.integers(0, 99),
    wrong=st.sampled_from(["no", "value", "shape", "nan"]),
)
@ON_DISK
def test_chunks_change_nothing(held: Compare, shapes: list[tuple[int, ...]], at_once: int, seed: int, wrong: str) -> None:
    random = np.random.default_rng(seed)
    reference = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    target = [row * np.float32(1 + 1e-4 * random.standard_normal()) for row in reference]
    last = target[-1]
    if wrong == "shape":
        target[-1] = np.ones((*last.shape[:-1], last.shape[-1] + 1), np.float32)
    elif last.size and wrong != "no":
        last.flat[0] = math.nan if wrong == "nan" else last.flat[0] + 1
    whole = held(reference, target)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare_module, "CHUNK_VALUES", at_once)
        parts = held(reference, target)
    assert repr(whole) == repr(parts)  # NaN is NaN in words
    assert [d.index for d in parts] == list(range(len(shapes)))
    alone = [held([a], [b])[0] for a, b in zip(reference, target, strict=True)]
    assert [d.problem for d in alone] == [d.problem for d in whole]


@given(widths=st.lists(st.integers(0, 9), min_size=1, max_size=12), at_once=st.integers(1, 20))
@ON_DISK
def test_chunks_cover_every_row_once(rows: Callable[[str, Sequence[Any]], Rows], widths: list[int], at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare_module, "CHUNK_VALUES", at_once)
        ranges = list(chunks(rows("some", [np.ones(w, np.float32) for w in widths])))
    assert [i for start, stop in ranges for i in range(start, stop)] == list(range(len(widths)))


# ---------------------------------------------------------------- what reports print


def test_ulp_is_the_spacing_of_float32_at_the_reference(held: Compare) -> None:
    (drift,) = held([np.array([1.0], np.float32)], [np.array([1.0 + 3 * FLOAT32_EPSILON], np.float32)])
    assert drift.max_ulp == 3.0
    assert drift.max_abs == 3 * FLOAT32_EPSILON
    assert drift.rms == 3 * FLOAT32_EPSILON


def test_cosine_is_one_for_a_multiple_and_zero_against_nothing(held: Compare) -> None:
    row = np.array([3.0, 4.0], np.float32)
    assert held([row], [row * 2])[0].cosine == pytest.approx(1.0)
    assert held([row], [np.array([-4.0, 3.0], np.float32)])[0].cosine == pytest.approx(0.0)
    assert held([row], [row * 0])[0].cosine == 0.0
    assert held([row * 0], [row * 0])[0].cosine == 1.0

"""What is done to many rows together is what is done to each of them."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.judging.compare import compare
from kpipe.judging.floor import _floor
from kpipe.record import Tolerance
from kpipe_stages.decisions import DecisionError, decide, decide_rows
from kpipe_stages.protocol import DecisionSpec
from kpipe_stages.rows import AbsentRowError, Rows, RowsWriter, write_rows

EDGES = st.sampled_from([0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf])


@st.composite
def pairs(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """Rows of one dtype and rank on both sides: mostly of one shape, mostly alike."""
    dtype = draw(st.sampled_from(["float16", "float32", "float64", "int64", "bool"]))
    shape = draw(st.sampled_from([(), (1,), (4,), (2, 3), (0,)]))
    ragged = bool(shape) and draw(st.booleans())

    def row(of: tuple[int, ...]) -> Any:
        if dtype.startswith("float"):
            return draw(arrays.arrays(dtype, of, elements=EDGES | st.floats(width=int(dtype[5:]))))
        return draw(arrays.arrays(dtype, of))

    left = [row((draw(st.integers(0, 3)), *shape[1:]) if ragged else shape) for _ in range(draw(st.integers(1, 5)))]
    right = [one if draw(st.booleans()) else row(one.shape) for one in left]
    return left, right


def _bits(value: Any) -> Any:
    """Told apart bit for bit, but for NaN's payload."""
    if isinstance(value, tuple):
        return tuple(map(_bits, value))
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1, value))
    return value


@given(pairs(), st.sampled_from(["scale", "floor"]), st.booleans())
@np.errstate(all="ignore")
def test_rows_compared_together_are_as_each_alone(rows: tuple[list[Any], list[Any]], unit: str, numeric: bool) -> None:
    tolerance, widths = Tolerance(1e-4, 1e-5, "test", numeric=numeric, unit=unit), np.linspace(0.0, 2.0, len(rows[0]))
    with tempfile.TemporaryDirectory() as folder:
        for name, side in zip("ab", rows, strict=True):
            write_rows(Path(folder) / name, side)
        ours, theirs = Rows(Path(folder) / "a"), Rows(Path(folder) / "b")
        together = compare(ours, theirs, tolerance, frozenset({ours.dtype}), widths)
        for index, (left, right) in enumerate(zip(*rows, strict=True)):
            for name, one in zip("cd", (left, right), strict=True):
                write_rows(Path(folder) / name, [one])
            alone = compare(Rows(Path(folder) / "c"), Rows(Path(folder) / "d"), tolerance, frozenset({ours.dtype}), widths[index : index + 1])
            assert _bits(tuple(together[index])) == _bits(tuple(alone[0]._replace(index=index)))
        if ours.dtype.startswith("float"):
            floor = _floor(ours, theirs, "float32", np.zeros(len(ours)))
            for index, (left, right) in enumerate(zip(*rows, strict=True)):
                a, b = left.astype(np.float64).ravel(), right.astype(np.float64).ravel()
                finite = np.isfinite(a)
                both = finite & np.isfinite(b)
                assert floor.scales[index] == np.abs(a[finite]).max(initial=0.0)
                assert floor.errors[index] == np.abs(a[both] - b[both]).max(initial=0.0)


@given(arrays.arrays("float32", arrays.array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=6), elements=EDGES | st.floats(width=32)))
def test_rows_decided_together_are_as_each_alone(scores: Any) -> None:
    spec = DecisionSpec(rule="argmax", output="y", labels=tuple("abcdef"[: scores.shape[1]]))
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder) / "y", list(scores))
        found = decide_rows(spec, Rows(Path(folder) / "y"))
    for one, row in zip(found, scores, strict=True):
        known = decide(spec, row)
        assert (one.value, one.index, one.tied) == (known.value, known.index, known.tied)
        assert repr(one.margin) == repr(known.margin)
        assert one.scores == known.scores


def test_rows_that_are_no_scores_are_refused_together_too(tmp_path: Path) -> None:
    spec = DecisionSpec(rule="argmax", output="y", labels=("a", "b"))
    for rows in ([np.zeros(3, np.float32)] * 2, [np.zeros(1, np.float32)] * 2, [np.zeros(0, np.float32)] * 2, [np.full(2, 2**60 + 1)] * 2):
        write_rows(tmp_path / "y", rows)
        with pytest.raises(DecisionError) as each:
            decide(spec, rows[0])
        with pytest.raises(DecisionError) as together:
            decide_rows(spec, Rows(tmp_path / "y"))
        assert str(together.value) == str(each.value)


def test_a_block_is_of_rows_of_one_shape(tmp_path: Path) -> None:
    with RowsWriter(tmp_path / "x") as writer:
        for row in ([1.0, 2.0], [3.0, 4.0], [5.0]):
            writer.append(np.array(row, np.float32))
        writer.append_absent()
        writer.append(np.array([6.0], np.float32))
    rows = Rows(tmp_path / "x")
    assert rows.common_shape(0, 2) == (2,)
    assert rows.block(0, 2).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert rows.common_shape(1, 3) is rows.common_shape(2, 4) is rows.common_shape(2, 5) is rows.common_shape(0, 0) is None
    with pytest.raises(ValueError, match="no shape in common"):
        rows.block(1, 3)
    spec = DecisionSpec(rule="argmax", output="y", labels=())
    with pytest.raises(AbsentRowError):
        decide_rows(DecisionSpec(rule="bins", output="y", edges=(0.0,), labels=("a", "b")), rows)
    with pytest.raises(DecisionError):
        decide_rows(spec, rows)


def test_bfloat16_is_widened_in_a_block_as_in_a_row(tmp_path: Path) -> None:
    import ml_dtypes

    values = np.array([[1.0, -2.5], [0.0, math.inf]], dtype=ml_dtypes.bfloat16)
    write_rows(tmp_path / "x", list(values))
    rows = Rows(tmp_path / "x")
    assert rows.block(0, 2).tolist() == [row.tolist() for row in rows]
    assert rows.block(0, 2).dtype == np.float32

"""Numbers of a target against numbers of the reference, row by row. Pure, over saved outputs.

Per row (one output of one golden input): ``|target - reference| <= atol * scale + rtol * |reference|`` elementwise, where ``scale`` is the
largest finite magnitude of the reference's output on that input, or the row's noise floor (`kpipe.judging.floor`). NaN and infinities have to be the same on both sides. Integers, booleans
and strings have to be equal. A row that can't be compared has failed, never vanished.
"""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from kpipe_stages import rows as stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpipe.record import Tolerance

Array = np.ndarray[Any, np.dtype[Any]]

FLOAT32_EPSILON = 2.0**-23
CHUNK_VALUES = 4_000_000
"""Values compared at a time: bounds memory whatever the number of rows."""


class Rows(Protocol):
    """What is compared: `kpipe_stages.rows.Rows`, or anything that answers likewise."""

    @property
    def dtype(self) -> str:
        """Of all rows."""

    def __len__(self) -> int:
        """How many there are."""

    def shape(self, index: int, /) -> tuple[int, ...]:
        """Of one row."""

    def __getitem__(self, index: int, /) -> Array:
        """One row."""


class Problem(enum.StrEnum):
    """Why a row failed, worst last."""

    NONE = ""
    DRIFT = "drift"
    NONFINITE = "nonfinite"
    DTYPE = "dtype"
    SHAPE = "shape"


class RowDrift(NamedTuple):
    """One row's numbers. A tuple, since a run of 20,000 inputs makes millions of them."""

    index: int  # type: ignore[assignment] # hides the method of tuples, which nobody looks a row up with
    problem: Problem
    max_abs: float
    max_rel: float
    """Relative to the scale of the reference's row."""
    rms: float
    cosine: float
    max_ulp: float
    factor: float
    """Largest difference over what is allowed: above 1 fails. The smallest passing tolerance is this times the tolerance."""
    element: tuple[int, ...]
    pair: tuple[float, float]


def kind_of(dtype: str) -> str:
    """``float``, ``integer``, ``bool`` or ``string``."""
    if dtype == "string":
        return "string"
    if dtype == "bool":
        return "bool"
    return "float" if "float" in dtype else "integer"


class Column(Protocol):
    """One output, a row an input: `kpipe_stages.rows.Rows`, or what was read of one call."""

    @property
    def dtype(self) -> str:
        """Its dtype's name."""

    def __len__(self) -> int: ...

    def shape(self, index: int) -> tuple[int, ...]:
        """Shape of one row."""

    def __getitem__(self, index: int) -> Array: ...


def compare(reference: Column, target: Column, tolerance: Tolerance, accepted_dtypes: frozenset[str], widths: Array | None = None) -> list[RowDrift]:
    """Compare two outputs, row for row.

    Args:
        reference: the reference's rows.
        target: the target's rows.
        tolerance: what is allowed where both are floating point.
        accepted_dtypes: the dtypes that the target's output may have.
        widths: the noise floor of each row, in output units; what ``tolerance.atol`` multiplies where its unit is the floor.

    Returns:
        One `RowDrift` per row, in order.

    Raises:
        ValueError: the two differ in their number of rows, or the tolerance is in floors and there are none.
    """
    if tolerance.unit == "floor" and (widths is None or len(widths) != len(reference)):
        raise ValueError(f"the tolerance is a multiple of the noise floor, which is not known for all {len(reference)} rows")
    own = widths if tolerance.unit == "floor" else None
    if len(reference) != len(target):
        raise ValueError(f"{len(target)} rows against {len(reference)} of the reference")
    if target.dtype not in accepted_dtypes or kind_of(target.dtype) != kind_of(reference.dtype):
        return [_whole(i, Problem.DTYPE) for i in range(len(reference))]
    exact = kind_of(reference.dtype) != "float"
    drifts: list[RowDrift] = []
    for start, stop in chunks(reference):
        indices = range(start, stop)
        if not _alike(reference, target, start, stop):
            for i in indices:
                drifts += (
                    _rows(reference, target, i, i + 1, tolerance, exact, own) if reference.shape(i) == target.shape(i) else [_whole(i, Problem.SHAPE)]
                )
        else:
            drifts += _rows(reference, target, start, stop, tolerance, exact, own)
    return drifts


def _alike(reference: Column, target: Column, start: int, stop: int) -> bool:
    """Whether all these rows have one shape, on both sides."""
    if isinstance(reference, stored.Rows) and isinstance(target, stored.Rows):
        shape = reference.common_shape(start, stop)
        return shape is not None and shape == target.common_shape(start, stop)
    shapes = [reference.shape(i) for i in range(start, stop)]
    return len(set(shapes)) == 1 and all(target.shape(i) == shape for i, shape in zip(range(start, stop), shapes, strict=True))


def raveled(rows: Column, start: int, stop: int) -> Array:
    """Rows of one shape, one below the other: shape (``stop - start``, values of a row)."""
    return rows.block(start, stop) if isinstance(rows, stored.Rows) else np.stack([rows[i].ravel() for i in range(start, stop)])


def chunks(rows: Column) -> Iterator[tuple[int, int]]:
    """Ranges of rows of about `CHUNK_VALUES` values."""
    start = 0
    while start < len(rows):
        width = max(1, math.prod(rows.shape(start)))
        stop = min(len(rows), start + max(1, CHUNK_VALUES // width))
        yield start, stop
        start = stop


def _whole(index: int, problem: Problem) -> RowDrift:
    return RowDrift(index, problem, math.nan, math.nan, math.nan, math.nan, math.nan, math.inf, (), (math.nan, math.nan))


def _rows(reference: Column, target: Column, start: int, stop: int, tolerance: Tolerance, exact: bool, widths: Array | None) -> list[RowDrift]:
    shape = reference.shape(start)
    if math.prod(shape) == 0:
        return [RowDrift(i, Problem.NONE, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, (), (math.nan, math.nan)) for i in range(start, stop)]
    left, right = raveled(reference, start, stop), raveled(target, start, stop)
    if exact:
        return _exact_rows(left, right, shape, start)
    return _float_rows(left.astype(np.float64), right.astype(np.float64), shape, start, tolerance, None if widths is None else widths[start:stop])


def _exact_rows(left: Array, right: Array, shape: tuple[int, ...], start: int) -> list[RowDrift]:
    different = left != right
    worst = different.argmax(axis=1)
    numeric = left.dtype.kind in "iub"
    rows = []
    for i, column in enumerate(worst):
        count = int(different[i].sum())
        pair = (float(left[i, column]), float(right[i, column])) if numeric else (math.nan, math.nan)
        gap = float(np.abs(left[i].astype(np.float64) - right[i].astype(np.float64)).max()) if numeric else float(count > 0)
        share = count / different.shape[1]
        rows.append(
            RowDrift(
                start + i,
                Problem.DRIFT if count else Problem.NONE,
                gap,
                share,
                math.sqrt(share),
                1.0 - share,
                math.nan,
                math.inf if count else 0.0,
                tuple(int(n) for n in np.unravel_index(column, shape)),
                pair,
            )
        )
    return rows


@np.errstate(over="ignore", under="ignore")  # float64 outputs near its ends: what overflows is infinite, and fails
def _float_rows(left: Array, right: Array, shape: tuple[int, ...], start: int, tolerance: Tolerance, widths: Array | None) -> list[RowDrift]:
    finite = np.isfinite(left) & np.isfinite(right)
    same_special = (np.isnan(left) & np.isnan(right)) | (np.isinf(left) & (left == right))
    mismatch = ~(finite | same_special)
    a, b = np.where(finite, left, 0.0), np.where(finite, right, 0.0)
    gap = np.abs(a - b)
    scale = np.where(np.isfinite(left), np.abs(left), 0.0).max(axis=1)
    allowed = tolerance.atol * (scale if widths is None else widths)[:, None] + tolerance.rtol * np.abs(a)
    factor = _ratio(gap, allowed)
    single = np.finfo(np.float32)
    ulp = gap / np.spacing(np.clip(np.abs(a), single.tiny, single.max / 2).astype(np.float32)).astype(np.float64)
    worst = np.where(mismatch.any(axis=1), mismatch.argmax(axis=1), np.where(factor.max(axis=1) > 0, factor.argmax(axis=1), gap.argmax(axis=1)))
    bad, each = mismatch.any(axis=1), np.arange(len(left))
    top = np.where(bad, np.inf, factor.max(axis=1))
    drifted = (top > 1.0) | np.isnan(top) if tolerance.numeric else np.zeros(len(top), dtype=bool)
    problems = [Problem.NONFINITE if b else Problem.DRIFT if d else Problem.NONE for b, d in zip(bad.tolist(), drifted.tolist(), strict=True)]
    largest = gap.max(axis=1)
    columns = (
        np.where(bad, np.inf, largest),
        np.where(bad, np.inf, _ratio(largest, scale)),
        np.sqrt((gap**2).mean(axis=1)),
        _cosine(a, b),
        ulp.max(axis=1),
        top,
    )
    elements = zip(*(axis.tolist() for axis in np.unravel_index(worst, shape)), strict=True) if shape else [()] * len(left)
    pairs = zip(left[each, worst].tolist(), right[each, worst].tolist(), strict=True)
    numbers = (column.tolist() for column in columns)
    return list(map(RowDrift, range(start, start + len(left)), problems, *numbers, elements, pairs))


def _ratio(gap: Array, allowed: Array) -> Array:
    """``gap / allowed``, 0 where both are 0 and infinite where only ``allowed`` is or where the gap is beyond float64."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gap == 0, 0.0, np.where(np.isinf(gap), np.inf, np.divide(gap, allowed)))


def _cosine(a: Array, b: Array) -> Array:
    """Cosine similarity per row; 1 where both rows are zero, 0 where one is, NaN where it is beyond float64."""
    norm_a, norm_b = np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine = (a * b).sum(axis=1) / (norm_a * norm_b)
    return np.where((norm_a == 0) & (norm_b == 0), 1.0, np.where((norm_a == 0) | (norm_b == 0), 0.0, cosine))

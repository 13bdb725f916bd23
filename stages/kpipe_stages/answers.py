"""Answers on disk in the order of the golden inputs, and how two answers of one runtime compare."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kpipe_stages.rows import RowsWriter, to_storable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from kpipe_stages.session import Array


class ModeWriter:
    """Writes the answers of one mode to ``<folder>/<position of the output>``, in the order of the golden inputs.

    Answers may come in any order; those that are early wait in memory. Absent rows stay absent. Nothing is left to be read where the
    ``with`` block ends badly.
    """

    def __init__(self, folder: Path, names: Sequence[str], rows: int, present: Collection[int]) -> None:
        """Take ``rows`` rows of which those in ``present`` will be answered."""
        self._names = tuple(names)
        self._rows = rows
        self._present = frozenset(present)
        self._writers = {name: RowsWriter(folder / str(position)) for position, name in enumerate(self._names)}
        self._early: dict[int, Mapping[str, Array]] = {}
        self._next = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for writer in self._writers.values():
            self._stack.enter_context(writer)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._early.clear()
        self._stack.__exit__(kind, error, trace)

    def add(self, index: int, answer: Mapping[str, Array]) -> None:
        """Take the answer to one row; a later answer to the same row is dropped."""
        if index >= self._next and index not in self._early:
            self._early[index] = {name: np.array(answer[name], copy=True) for name in self._names}
        self._write_ready()

    def _write_ready(self) -> None:
        while self._next < self._rows and (self._next in self._early or self._next not in self._present):
            row = self._early.pop(self._next, None)
            for name, writer in self._writers.items():
                if row is None:
                    writer.append_absent()
                else:
                    writer.append(row[name])
            self._next += 1

    def finish(self) -> None:
        """See that every row was answered.

        Raises:
            ValueError: one wasn't.
        """
        self._write_ready()
        if self._next != self._rows:
            raise ValueError(f"golden input {self._next} of {self._rows} has no answer")


def widened(array: Any) -> Array:
    """An answer as `kpipe_stages.rows.Rows` would give it back: bfloat16 as float32, strings as unicode."""
    stored, name = to_storable(array)
    return np.asarray(array).astype(np.float32) if name == "bfloat16" else stored


def same_bits(left: Any, right: Any) -> bool:
    """Equal dtype, shape and bits. NaN equals NaN whatever its payload; 0.0 and -0.0 differ."""
    left, right = widened(left), widened(right)
    if left.dtype.kind == right.dtype.kind == "U":
        return left.shape == right.shape and bool((left == right).all())
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype.kind not in "fc":
        return bool((left == right).all())
    equal = left == right
    signs = np.signbit(left.real) == np.signbit(right.real)
    return bool(((equal & signs) | (np.isnan(left) & np.isnan(right))).all())


def difference(left: Any, right: Any) -> float:
    """Largest absolute difference of two answers; infinite where they can't be subtracted or only one is NaN, 0 where they are equal."""
    left, right = widened(left), widened(right)
    if left.shape != right.shape or "U" in (left.dtype.kind, right.dtype.kind):
        return 0.0 if left.shape == right.shape and bool((left == right).all()) else math.inf
    if left.size == 0:
        return 0.0
    if left.dtype.kind in "iub" and right.dtype.kind in "iub":
        return float(np.abs(left.astype(object) * 1 - right.astype(object) * 1).max())  # int64 doesn't fit float64
    wide = np.complex128 if "c" in (left.dtype.kind, right.dtype.kind) else np.float64
    a, b = left.astype(wide), right.astype(wide)
    settled = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.where(settled, 0.0, np.abs(a - b))
    return math.inf if np.isnan(gap).any() else float(gap.max())

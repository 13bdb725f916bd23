"""Golden rows as the arrays that a runtime is given, checked before anything sees them, and how rows make up batches."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.preprocessing.lengths import pad_first_axis
from kpipe_stages.rows import Rows
from kpipe_stages.session import Answer, Array, fault

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from kpipe_stages.protocol import RunJob, TensorSpec
    from kpipe_stages.session import Session

Shapes = tuple[tuple[int, ...], ...]


def plan_batches(kinds: Mapping[int, Hashable], size: int) -> list[tuple[int, ...]]:
    """Put rows into full batches.

    Rows of one kind (equal input shapes) share batches. The last batch of a kind is filled from the kind's first rows on, around and
    around where the kind has fewer rows than a batch: every batch is full, every row is in one at least.

    Args:
        kinds: row number to what its batch mates must share.
        size: rows in a batch, at least 1.

    Returns:
        Row numbers, ``size`` of them per batch; kinds in order of appearance.
    """
    groups: dict[Hashable, list[int]] = {}
    for row, kind in kinds.items():
        groups.setdefault(kind, []).append(row)
    return [
        tuple(group[(start + offset) % len(group)] for offset in range(size)) for group in groups.values() for start in range(0, len(group), size)
    ]


def lonely_rows(batches: Iterable[Sequence[int]], contents: Mapping[int, Hashable]) -> tuple[int, ...]:
    """The rows that had no different row beside them where their answer comes from: the first batch that holds them.

    Args:
        batches: row numbers, batch by batch, in the order they are run.
        contents: row number to what two rows share exactly when their tensors are the same.
    """
    first: dict[int, Sequence[int]] = {}
    for batch in batches:
        for row in batch:
            first.setdefault(row, batch)
    return tuple(sorted(row for row, batch in first.items() if len({contents[mate] for mate in batch}) == 1))


def split_answer(answer: Answer, size: int, unbatched: Iterable[str]) -> tuple[list[Answer], frozenset[str]]:
    """Cut the answer to a batch into one answer a row.

    Args:
        answer: outputs by name.
        size: rows in the batch.
        unbatched: outputs known to have no batch axis, whatever their first axis is.

    Returns:
        One dict per row, and the outputs that have no batch axis here: their first axis isn't ``size``, and each row gets the whole.
    """
    whole = frozenset(unbatched) | {name for name, value in answer.items() if value.ndim == 0 or value.shape[0] != size}
    rows = [{name: value if name in whole else value[index] for name, value in answer.items()} for index in range(size)]
    return rows, whole


@dataclass(frozen=True)
class Span:
    """Where a row lies on an axis that was padded."""

    start: int
    stop: int
    length: int
    """Of the axis, padding and all."""


def without_padding(row: Answer, axes: Mapping[str, tuple[int | None, ...] | None], spans: frozenset[Span], whole: Iterable[str]) -> Answer:
    """One row's answer without what belongs to its padding: outputs that have a value a step, and so are as long as the padded input.

    Args:
        row: the answer of one row.
        axes: output to its shape with the batch axis, None where free.
        spans: where the row lies in its padded inputs; empty where nothing was padded. Where two inputs were padded differently an output's own
            axis can't be told, and nothing is cut: the shapes then differ, and that is found.
        whole: outputs that have no batch axis.
    """
    if len(spans) != 1:
        return row
    (span,) = spans
    free = {name: tuple(n is None for n in shape[1:]) for name, shape in axes.items() if shape is not None and name not in set(whole)}
    return {
        name: _cut(value, free[name], span) if any(free.get(name, ())) and len(free[name]) == value.ndim else value for name, value in row.items()
    }


def _cut(value: Array, free: tuple[bool, ...], span: Span) -> Array:
    return value[
        tuple(slice(span.start, span.stop) if open_ and n == span.length else slice(None) for open_, n in zip(free, value.shape, strict=True))
    ]


def as_fed(row: Array, dtype: str) -> Array:
    """A stored row in the dtype it stands for, native byte order, C-contiguous. bfloat16 rows come widened; narrowing them is exact."""
    if dtype == "bfloat16":
        import ml_dtypes

        return np.ascontiguousarray(row.astype(ml_dtypes.bfloat16))
    return np.ascontiguousarray(row.astype(row.dtype.newbyteorder("="), copy=False)).reshape(row.shape)


@dataclass(frozen=True)
class Narrowed:
    """A whole number that a smaller dtype can't hold."""

    name: str
    row: int
    dtype: str
    smaller: str
    value: int
    becomes: int


class Golden:
    """The prepared rows of every input, known to fit the signature of the session that will be fed.

    A row that is absent for one input (its raw file didn't decode) is not in `present`, and is never run.
    """

    def __init__(self, order: RunJob, session: Session) -> None:
        """Open the prepared rows and check all of them.

        Raises:
            StageError: KP101 (no rows), KP104 (a name, dtype or shape that isn't the signature's, or the artifact's).
        """
        if order.rows < 1:
            raise fault("KP101", "There are no golden inputs: nothing would be compared.", "Add golden inputs to the golden set.")
        specs = {spec.name: spec for spec in session.signature.inputs}
        _check_input_names(order.names, list(specs))
        self.names = order.names
        self.rows = order.rows
        self._rows = {name: Rows(f"{order.tensors}/{position}") for position, name in enumerate(order.names)}
        absent = frozenset[int]().union(*(rows.absent for rows in self._rows.values()))
        self._padding = {name: padding for name, padding in order.padding.items() if name in self._rows}
        self.present = tuple(row for row in range(order.rows) if row not in absent)
        if not self.present:
            raise fault("KP101", f"None of the {order.rows} golden inputs has a tensor: nothing would be compared.", "Mend the golden set.")
        for name, rows in self._rows.items():
            _check_input(name, rows, specs[name], order.rows, self.present)
            _check_taken(name, rows.dtype, session.takes)
            if name in self._padding and any(not rows.shape(index) for index in self.present):
                raise fault("KP104", f"Input '{name}' is padded in batches and has no axis.", f"Drop pad_batches of input '{name}'.", place=name)

    def narrowed(self, smaller: Mapping[str, str]) -> Narrowed | None:
        """The first value that doesn't survive one of these conversions (dtype to smaller dtype); None where all do."""
        for name, rows in self._rows.items():
            for index in self.present if rows.dtype in smaller else ():
                row = rows[index]
                cast = row.astype(smaller[rows.dtype])
                if (changed := row != cast).any():
                    return Narrowed(name, index, rows.dtype, smaller[rows.dtype], int(row[changed].flat[0]), int(cast[changed].flat[0]))
        return None

    def shapes(self, row: int) -> Shapes:
        """The shapes of a row's inputs, in the order of `names`."""
        return tuple(self._rows[name].shape(row) for name in self.names)

    def row(self, index: int) -> dict[str, Array]:
        """One row's inputs without a batch axis."""
        return {name: as_fed(rows[index], rows.dtype) for name, rows in self._rows.items()}

    def batch(self, indices: Sequence[int]) -> dict[str, Array]:
        """Some rows' inputs, stacked: ``(len(indices), ...)`` each; padded to the longest where the input says how."""
        rows = [self.row(index) for index in indices]
        for name, padding in self._padding.items():
            longest = self._longest(name, indices)
            for row in rows:
                row[name] = pad_first_axis(row[name], longest, padding.value, padding.at)
        return stack(rows)

    def _longest(self, name: str, indices: Sequence[int]) -> int:
        return max(self._rows[name].shape(index)[0] for index in indices)

    def spans(self, indices: Sequence[int], at: int) -> frozenset[Span]:
        """Where one row of a batch lies in each of its inputs that were padded for it; empty where none was."""
        found = set()
        for name, padding in self._padding.items():
            longest, own = self._longest(name, indices), self._rows[name].shape(indices[at])[0]
            start = longest - own if padding.at == "start" else 0
            found |= {Span(start, start + own, longest)} if own < longest else set()
        return frozenset(found)

    @cached_property
    def contents(self) -> dict[int, bytes]:
        """A digest of each present row's tensors, equal where the shapes and bytes of every input are."""
        digests = {}
        for index in self.present:
            total = hashlib.sha256()
            for name in self.names:
                row = self._rows[name][index]
                total.update(f"{row.dtype.str} {row.shape} ".encode() + row.tobytes())
            digests[index] = total.digest()
        return digests

    def plan(self, size: int) -> list[tuple[int, ...]]:
        """`plan_batches` over the present rows."""
        return plan_batches(self.kinds, size)

    @property
    def kinds(self) -> dict[int, Shapes]:
        """Each present row's shapes: what rows of one batch must share."""
        return {
            row: tuple(shape[1:] if name in self._padding else shape for name, shape in zip(self.names, self.shapes(row), strict=True))
            for row in self.present
        }


def stack(rows: Sequence[Mapping[str, Any]]) -> dict[str, Array]:
    """Rows to one batch: ``(len(rows), ...)`` each, C-contiguous."""
    return {name: np.ascontiguousarray(np.stack([row[name] for row in rows])) for name in rows[0]}


def _check_input_names(given: Sequence[str], wanted: Sequence[str]) -> None:
    if set(given) != set(wanted) or len(given) != len(set(given)):
        raise fault(
            "KP104",
            f"The golden inputs have the tensors {sorted(given)}; the model takes {sorted(wanted)}.",
            "Name each model input in [inputs] of the contract, and give each golden input a file for it.",
            given=sorted(given),
            wanted=sorted(wanted),
        )


def _check_input(name: str, rows: Rows, spec: TensorSpec, count: int, present: Sequence[int]) -> None:
    if len(rows) != count:
        raise fault("KP104", f"Input '{name}' has {len(rows)} prepared rows; the job says {count}.", "Run the validation again.", place=name)
    if rows.dtype != spec.dtype:
        raise fault(
            "KP104",
            f"The golden tensors of input '{name}' are {rows.dtype}; the model takes {spec.dtype}.",
            f"End the steps of input '{name}' with a cast to {spec.dtype}.",
            place=name,
        )
    for index in present:
        shape = rows.shape(index)
        if spec.shape is not None and not _fits(shape, spec.shape[1:]):
            wanted = ", ".join("any" if n is None else str(n) for n in spec.shape[1:])
            raise fault(
                "KP104",
                f"Golden input {index} has shape {shape} for input '{name}'; the model takes ({wanted}) per input.",
                f"Correct the steps of input '{name}', or the golden input.",
                place=name,
                row=index,
            )


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(w is None or n == w for n, w in zip(shape, wanted, strict=True))


def _check_taken(name: str, dtype: str, takes: Mapping[str, str]) -> None:
    if takes[name] != dtype:
        raise fault(
            "KP104",
            f"The artifact takes {takes[name]} for input '{name}'; the model, and so the golden tensors, have {dtype}. kpipe doesn't cast.",
            f"Export the artifact with a {dtype} input.",
            place=name,
            artifact=takes[name],
            model=dtype,
        )

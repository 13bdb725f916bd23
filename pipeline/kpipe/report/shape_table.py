"""The shapes that were tried, as every report shows them: a case a row, and what each target does with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpipe.record import ShapeStatus
from kpipe.report import text

if TYPE_CHECKING:
    from kpipe.record import RunRecord, ShapeRecord

NOTE = "Golden inputs cut or tiled to the size: agreement of numbers only, no decisions."
BAD = frozenset({ShapeStatus.DIFFERS, ShapeStatus.REFUSED, ShapeStatus.UNCHECKED})
ORDER = (ShapeStatus.DIFFERS, ShapeStatus.REFUSED, ShapeStatus.UNCHECKED, ShapeStatus.NOT_OFFERED, ShapeStatus.WORKS, ShapeStatus.RECOMPILES)


@dataclass(frozen=True)
class Cell:
    """One shape on one target."""

    word: str
    bad: bool
    detail: str


@dataclass(frozen=True)
class ShapeRow:
    """One shape."""

    name: str
    sizes: str
    """``steps[1] = 20, batch 4``."""
    cells: tuple[Cell | None, ...]
    """In the order of the targets; None where it was not owed nor tried."""
    brief: str
    """``works: litert; recompiles: tensorflow 442 ms``."""


def targets(record: RunRecord) -> list[str]:
    """The targets that have shapes."""
    return [text.clean(target.name) for target in record.targets if target.shapes]


def rows(record: RunRecord) -> list[ShapeRow]:
    """A row a case, in the order in which they were tried."""
    with_shapes = [target for target in record.targets if target.shapes]
    names = list(dict.fromkeys((row.name, row.batch, row.axes) for target in with_shapes for row in target.shapes))
    found = []
    for key in names:
        own = [next((row for row in target.shapes if (row.name, row.batch, row.axes) == key), None) for target in with_shapes]
        sizes = text.listing([*(f"{text.clean(one.input)}[{one.axis}] = {one.size}" for one in key[2]), f"batch {key[1]}"])
        pairs = [(text.clean(target.name), row) for target, row in zip(with_shapes, own, strict=True) if row is not None]
        found.append(ShapeRow(text.clean(key[0]), sizes, tuple(_cell(row) if row else None for row in own), _brief(pairs)))
    return found


def worth_showing(record: RunRecord) -> bool:
    """Whether a terminal should show them: ranges were promised, or something owed doesn't work."""
    shapes = [row for target in record.targets for row in target.shapes]
    return any(row.axes for row in shapes) or any(row.owed and row.status in BAD for row in shapes)


def _cell(row: ShapeRecord) -> Cell:
    return Cell(_word(row), row.owed and row.status in BAD, text.clean(row.detail))


def _word(row: ShapeRecord) -> str:
    if row.status is ShapeStatus.RECOMPILES and row.first_s is not None:
        return f"recompiles ({text.seconds(row.first_s - (row.again_s or 0.0))})"
    return row.status.value


def _brief(pairs: list[tuple[str, ShapeRecord]]) -> str:
    parts = []
    for status in ORDER:
        own = [(name, row) for name, row in pairs if row.status is status]
        told = (
            f"{name} {text.seconds((row.first_s or 0.0) - (row.again_s or 0.0))}" if status is ShapeStatus.RECOMPILES else name for name, row in own
        )
        parts += [f"{status.value}: {text.listing(told)}"] if own else []
    return "; ".join(parts)

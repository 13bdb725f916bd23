"""What changed between two tables: the effect of an upgrade, cell by cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpipe.compatibility.result import SCHEMA, WORST_LAST, Cell, Status, Table
from kpipe.errors import UsageError
from kpipe_stages.codec import CodecError, read_json

if TYPE_CHECKING:
    from pathlib import Path

GREW = 10.0
"""A drift that grew or shrank by this factor, both cells working, is told too; below `LEAST` it is rounding."""
LEAST = 1e-6


@dataclass(frozen=True)
class Change:
    """One cell that isn't what it was."""

    unit: str
    config: str
    runtime: str
    old: Cell | None
    """None where it is new."""
    new: Cell | None
    """None where it is gone."""

    @property
    def direction(self) -> str:
        """``better``, ``worse``, ``changed`` (as good, for another reason), ``new`` or ``gone``."""
        if self.old is None or self.new is None:
            return "new" if self.old is None else "gone"
        a, b = WORST_LAST.index(self.old.status), WORST_LAST.index(self.new.status)
        return "changed" if a == b else "better" if b < a else "worse"


@dataclass(frozen=True)
class Differences:
    """All of it."""

    versions: dict[str, tuple[str, str]]
    """Distribution to old and new version, empty for none."""
    changes: tuple[Change, ...]


def load(path: Path) -> Table:
    """An earlier ``--json``.

    Raises:
        UsageError: it can't be read, or isn't one.
    """
    try:
        table = read_json(Table, path)
    except OSError as error:
        raise UsageError(f"--against {path} can't be read: {error.strerror}.") from error
    except CodecError as error:
        raise UsageError(f"--against {path} is no table of kpipe compatibility --json: {error}.") from error
    if table.schema != SCHEMA:
        raise UsageError(f"--against {path} has schema {table.schema}; this kpipe reads {SCHEMA}. Make it again with this version.")
    return table


def differences(old: Table, new: Table, *, whole: bool = True) -> Differences:
    """Compare cell by cell; with ``whole`` False, cases that the new table left out aren't gone."""
    names = dict.fromkeys([*old.versions, *new.versions])
    versions = {name: (old.versions.get(name, ""), new.versions.get(name, "")) for name in names}
    before, after = _cells(old), _cells(new)
    left = set(after) if not whole else set(before) | set(after)
    changes = [
        Change(*key, before.get(key), after.get(key))
        for key in [*after, *(key for key in before if key not in after)]
        if key in left and _changed(before.get(key), after.get(key))
    ]
    return Differences({name: pair for name, pair in versions.items() if pair[0] != pair[1]}, tuple(changes))


def _cells(table: Table) -> dict[tuple[str, str, str], Cell]:
    return {(row.unit, row.config, runtime): cell for row in table.cases for runtime, cell in row.cells.items()}


def _changed(old: Cell | None, new: Cell | None) -> bool:
    if old is None or new is None or old.status is not new.status or old.code != new.code or old.repairs != new.repairs:
        return True
    if old.status not in {Status.WORKS, Status.NARROWED, Status.DIFFERS}:
        return False
    small, large = sorted((max(old.drift, LEAST), max(new.drift, LEAST)))
    return large / small > GREW


def text(found: Differences) -> str:
    """For a terminal: versions, then what got worse, better and otherwise different."""
    lines = [f"{name}: {old or 'none'} -> {new or 'none'}" for name, (old, new) in found.versions.items()] or ["The versions are the same."]
    if not found.changes:
        return "\n".join([*lines, "No cell changed."])
    for direction in ("worse", "better", "changed", "new", "gone"):
        some = [change for change in found.changes if change.direction == direction]
        lines += [f"{direction}: {len(some)}"] * bool(some)
        lines += [f"  {change.unit}: {change.config}, on {change.runtime}: {_cell(change.old)} -> {_cell(change.new)}" for change in some]
    return "\n".join(lines)


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    drift = f" ({cell.drift:.1g})" if cell.status in {Status.WORKS, Status.DIFFERS} and cell.drift else ""
    return f"{cell.status}{drift}" + (f" [{cell.reason[:120]}]" if cell.reason else "")

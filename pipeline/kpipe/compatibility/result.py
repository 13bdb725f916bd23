"""The table as data: what ``--json`` writes and ``--against`` reads."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

SCHEMA = 1


class Status(enum.StrEnum):
    """What became of one model on one runtime, best first."""

    WORKS = "works"
    NARROWED = "shape lost"
    """The numbers agree; an axis that is free in the model isn't in the artifact."""
    DIFFERS = "differs"
    RUN_FAILS = "run fails"
    """It loads, and gives no answer to one row."""
    LOAD_FAILS = "load fails"
    EXPORT_FAILS = "export fails"
    CRASHED = "crashed"
    """It ended the process, or outlasted the limit."""
    UNCHECKED = "unchecked"
    """There is nothing to compare with, or the step was lost."""
    NO_MODEL = "no model"
    """Keras itself can't build or save it."""


WORST_LAST = tuple(Status)


@dataclass(frozen=True)
class Cell:
    """One model on one runtime."""

    status: Status
    reason: str = ""
    """One line; empty where it works."""
    code: str = ""
    """Finding code where kpipe has one for it."""
    drift: float = 0.0
    """Largest difference from the reference over the reference's scale, all ways of running."""
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True)
class CaseRow:
    """One model on every runtime."""

    unit: str
    group: str
    config: str
    dtypes: tuple[str, ...]
    reference: str
    """The runtime that the others were compared with; empty where none answered."""
    cells: dict[str, Cell]


@dataclass(frozen=True)
class Table:
    """All of them."""

    schema: int
    versions: dict[str, str]
    """Distribution to version."""
    python: str
    cpu: str
    runtimes: tuple[str, ...]
    cases: tuple[CaseRow, ...]
    seconds: float
    """Of the clock."""
    cpu_seconds: float
    """Of all workers."""
    machine: dict[str, str] = field(default_factory=dict)


def worst(cells: list[Cell]) -> Status:
    """The worst status of some cells."""
    return max((cell.status for cell in cells), key=WORST_LAST.index, default=Status.UNCHECKED)

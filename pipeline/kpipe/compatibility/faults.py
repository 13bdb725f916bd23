"""The causes behind the cells that aren't green, as they were found by looking at every one: whose they are, a minimal model, the way out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kpipe.compatibility.result import CaseRow, Cell


@dataclass(frozen=True)
class Fault:
    """One cause."""

    title: str
    runtimes: tuple[str, ...]
    statuses: tuple[str, ...]
    reason: str
    """Regular expression that is searched for in the cell's reason."""
    rows: str
    """Likewise in ``unit: config``."""
    cause: str
    model: str
    way_out: str


FAULTS: tuple[Fault, ...] = ()


def fault_of(runtime: str, row: CaseRow, cell: Cell) -> Fault | None:
    """The cause of a cell, None where it works or nobody has looked at it yet."""
    for fault in FAULTS:
        if (
            runtime in fault.runtimes
            and cell.status.value in fault.statuses
            and re.search(fault.reason, cell.reason)
            and re.search(fault.rows, f"{row.unit}: {row.config}")
        ):
            return fault
    return None

"""What a fault is, and what it is planted into."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kpipe.record import RunRecord
from kpipe_stages.plant_orders import Edit
from kpipe_stages.protocol import Trust

Table = dict[str, Any]
"""A TOML table."""


class NotPlantableError(Exception):
    """This setup has no place for the fault: it takes no colour, has no such step, ..."""


class Family(enum.StrEnum):
    """Where faults come from."""

    PREPROCESSING = "preprocessing"
    WEIGHTS = "weights"
    EXPORT = "export"
    RUNTIME = "runtime"
    DECISION = "decision"
    GOLDEN = "golden"


@dataclass(frozen=True)
class Setup:
    """A healthy model with its contract, golden folder, and artifacts from a validation that passed."""

    name: str
    model: Path
    contract: Table
    """As TOML has it, every path absolute; its targets are the ones that may be faulted."""
    trust: Trust
    run: Path
    """The healthy run."""
    record: RunRecord
    artifacts: dict[str, str]
    """Format to the healthy artifact."""

    @property
    def golden(self) -> Path:
        """The golden folder."""
        return Path(self.contract["golden"]["path"])


ContractEdit = Callable[[Table, str, Setup], None]
"""Changes a copy of the healthy contract, given the name of the one target that is left in it.

Raises:
    NotPlantableError: there is no place for it.
"""

GoldenEdit = Callable[[Path, Table, Setup], None]
"""Changes a copy of the golden folder and its manifest (which is written afterwards).

Raises:
    NotPlantableError: there is no place for it.
"""


@dataclass(frozen=True)
class FileFault:
    """A fault in an archive or an artifact, planted by a worker (`kpipe_stages.plant_orders`)."""

    on: str
    """``keras``, ``onnx``, ``litert``, ``convert`` or ``raw``."""
    edits: tuple[Edit, ...]
    candidate: bool = False
    """The edited archive is the candidate itself; else it only makes the artifact."""


@dataclass(frozen=True)
class Fault:
    """One fault. Exactly what it changes is in its edits; everything else stays healthy."""

    name: str
    family: Family
    edges: frozenset[str]
    """The edges that would be right to name, of `kpipe.judging.edges`."""
    subjects: frozenset[str]
    """The selftest's own setups that it is planted into; a user's setup gets every fault that it has a place for."""
    runtime: str = "litert"
    """The target that is judged."""
    file: FileFault | None = None
    contract: ContractEdit | None = None
    golden: GoldenEdit | None = None


def edit(kind: str, **args: Any) -> Edit:
    """An `Edit` in one line."""
    return Edit(kind, args)

"""What ``kpipe selftest`` tells its worker: which fault to plant into which file. Standard library only; both sides import it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kpipe_stages.protocol import Trust


def objects_file() -> str:
    """The file of the functions that edited archives name; absolute."""
    return str(Path(__file__).with_name("planting") / "given" / "objects.py")


@dataclass(frozen=True)
class Edit:
    """One change of a file."""

    kind: str
    """A key of the tables in `kpipe_stages.planting`."""
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PlantOrder:
    """One fault that is a file: an archive, or an artifact made from it or from a healthy one."""

    name: str
    """Folder below the job's ``out``."""
    on: str
    """``keras``: the archive is edited, then exported. ``onnx``, ``litert``: the healthy artifact is edited. ``convert``: the healthy SavedModel is
    converted anew, with the options that the one edit names. ``raw``: the golden folder's files are written anew."""
    edits: tuple[Edit, ...]
    formats: tuple[str, ...] = ()
    """``keras`` only: what is exported of the edited archive."""


@dataclass(frozen=True)
class PlantJob:
    """Plant every order, each into its own copy."""

    model: str
    trust: Trust
    out: str
    orders: tuple[PlantOrder, ...]
    artifacts: dict[str, str] = field(default_factory=dict)
    """The healthy ``onnx`` and ``litert`` files and the ``saved_model`` folder."""
    tensors: str = ""
    """The healthy run's prepared tensors, which a good calibration would use."""
    names: tuple[str, ...] = ()
    """Model input names in the order of that folder."""
    golden: str = ""
    """The healthy golden folder."""


@dataclass(frozen=True)
class Planted:
    """What came of an order."""

    name: str
    archive: str
    """The edited ``.keras`` file; empty where only an artifact was edited."""
    files: dict[str, str]
    """Format to artifact; ``golden`` to a golden folder, whose manifest is still the healthy one."""


@dataclass(frozen=True)
class PlantResult:
    """All orders, each in exactly one of the three."""

    made: tuple[Planted, ...]
    impossible: dict[str, str]
    """Order to why this model has no place for it."""
    failed: dict[str, str]
    """Order to why it could not be planted, though it should have been."""


@dataclass(frozen=True)
class SubjectsJob:
    """Build the selftest's own models and their raw golden files."""

    out: str
    names: tuple[str, ...]
    draw: int = 0
    """Which weights and inputs are drawn: the selftest's faults go into draw 0."""


@dataclass(frozen=True)
class SubjectsResult:
    """A folder a model: ``model.keras`` and ``golden/<id>-<input>.<suffix>``."""

    files: dict[str, tuple[dict[str, str], ...]]
    """Subject to its golden inputs: model input name to the file's path, relative to the subject's ``golden`` folder."""


@dataclass(frozen=True)
class ReadJob:
    """Evaluate an ONNX file in float64 on prepared tensors, one by one."""

    model: str
    tensors: str
    names: tuple[str, ...]
    """Model input names in the order of that folder."""
    out: str


@dataclass(frozen=True)
class ReadResult:
    """Rows lie in ``<out>/<position>`` (`kpipe_stages.rows`)."""

    outputs: tuple[str, ...]
    """Names, by position."""

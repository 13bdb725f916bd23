"""What the orchestrator tells the stage ``zoo``, and what a case leaves behind on disk."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field

from kpipe_stages.protocol import Artifact, Observation, Signature

EXPORT = "export"
"""The step that builds a case's model, saves it, and runs kpipe's own export stage on it."""
OPENVINO_IR = "openvino_ir"
"""The step that converts its SavedModel."""


@dataclass(frozen=True)
class ZooJob:
    """Take some cases through some steps, one after another; what is done already is not done again."""

    root: str
    """Folder with a folder for each case."""
    cases: tuple[str, ...]
    """Names of `kpipe_stages.zoo.case.Case`."""
    steps: tuple[str, ...]
    """`EXPORT`, `OPENVINO_IR` or ``run.<runtime>``, in order."""
    limit_s: float
    """For one step of one case; the process ends there."""


@dataclass(frozen=True)
class ZooResult:
    """How many steps were taken; what came of each lies in its case's folder."""

    steps: int


@dataclass(frozen=True)
class Exported:
    """``export.json``: ended False until the step has."""

    ended: bool
    refusal: Observation | None = None
    """Why there is no model, or no trace of it."""
    policy: str = ""
    dtypes: tuple[str, ...] = ()
    """Compute dtypes of its layers, and of its inputs."""
    signature: Signature | None = None
    parameters: int = 0
    artifacts: tuple[Artifact, ...] = ()
    observations: tuple[Observation, ...] = ()
    """Each with ``format`` in its evidence."""


@dataclass(frozen=True)
class Ran:
    """``run.<runtime>.json``: ended False until the step has. Outputs lie beside it in ``run.<runtime>.npz`` as ``way/position``."""

    ended: bool
    refusal: Observation | None = None
    """KP311 and the like where it was loaded and gave no answer to one row alone; otherwise it wasn't loaded. None where it answered."""
    ways: dict[str, str] = field(default_factory=dict)
    """Way of running to the runtime's message where it refused, empty where it answered; ``not offered`` outside the artifact's signature."""
    dtypes: tuple[str, ...] = ()
    """Of the outputs, in order."""


def folder_of(case: str) -> str:
    """A case's folder: its name in letters that any system takes."""
    return f"{re.sub(r'[^A-Za-z0-9]+', '_', case)}_{zlib.crc32(case.encode()):08x}"

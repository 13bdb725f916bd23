"""Training, and its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cadence:
    """How often a training writes a checkpoint."""

    kind: str = "auto"
    """``auto``: as often as costs a hundredth of the time; ``steps``, ``epochs``: every ``count``; ``off``."""
    count: int = 0


@dataclass(frozen=True)
class TrainJob:
    """Run a recipe."""

    recipe: str
    """Folder or file of the recipe."""
    out: str
    """The ``.keras`` file to write."""
    seed: int
    backend: str
    epochs: int | None = None
    checkpoint: Cadence = Cadence()
    """Checkpoints lie in ``<out>.checkpoints`` until the model is written."""
    resume: bool = False
    """Go on from the newest one that is whole."""
    calibration: int = 0
    """Training inputs to leave beside the model, for precision variants to be calibrated on; 0 for none."""


@dataclass(frozen=True)
class Epoch:
    """Loss and metrics of one epoch."""

    epoch: int
    metrics: dict[str, float]
    seconds: float
    """With those before an interruption."""


@dataclass(frozen=True)
class Preserved:
    """One row of the table of what a checkpoint preserves."""

    what: str
    preserved: str
    """``yes``, ``no``, or ``by digest``: not kept, and refused where it changed."""
    detail: str


@dataclass(frozen=True)
class Resumption:
    """Where a training was taken up again."""

    checkpoint: str
    """Name of its folder: the number of steps."""
    epoch: int
    """Epochs that were finished."""
    batch: int
    """Batches of the next one that were done."""
    written: str
    """When the checkpoint was: ISO 8601, UTC."""
    damaged: tuple[str, ...]
    """Newer checkpoints that could not be used, and why."""
    notes: tuple[str, ...]
    """Why what comes of it isn't bit for bit what an uninterrupted run gives; empty where it is."""


@dataclass(frozen=True)
class CheckpointCost:
    """What checkpoints cost."""

    written: int = 0
    seconds: float = 0.0
    replay_s: float = 0.0
    """Taking the first steps twice, to see that a checkpoint holds all that decides."""
    bytes: int = 0
    """Of the last one."""


@dataclass(frozen=True)
class TrainResult:
    """What the run was. Also beside the model as ``<model>.train.json``."""

    model_sha256: str
    seed: int
    epochs: tuple[Epoch, ...]
    compile_s: float
    steps_s: float
    save_s: float
    total_s: float
    """Of the last process, where the training was resumed."""
    checkpoints: CheckpointCost = CheckpointCost()
    no_checkpoints: str = ""
    """Why there were none; empty where there were, or none were due."""
    notes: tuple[str, ...] = ()
    """Why a resumed run isn't, or wouldn't be, bit for bit an uninterrupted one; empty where nothing is known against it."""
    resumed: tuple[Resumption, ...] = ()
    preserved: tuple[Preserved, ...] = ()
    calibration: str = ""
    """The ``.npz`` of training inputs beside the model; empty where none was asked for."""
    calibration_sha256: str = ""

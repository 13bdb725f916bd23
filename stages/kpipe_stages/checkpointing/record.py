"""What a checkpoint says of itself: ``checkpoint.json``. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kpipe_stages.protocol import Epoch, Preserved, Resumption

CHECKPOINT_VERSION = 1


@dataclass(frozen=True)
class StoredArray:
    """One array of ``state.npz``, where its bytes lie as uint8 under ``a<position in the list>``."""

    group: str
    """``model``, ``optimizer``, ``metrics``, ``seeds`` or ``optimizer.<attribute>``."""
    name: str
    """The variable's path."""
    shape: tuple[int, ...]
    dtype: str
    """A numpy or ml_dtypes name."""


@dataclass(frozen=True)
class Witness:
    """The first steps of the training, taken twice from one state: what a fresh process has to give again."""

    steps: int
    before_sha256: str
    """Of the state before them: every variable and every random generator."""
    after_sha256: str
    loss: float
    """After them."""
    differs: str
    """Which variable differed between the two passes; empty where none did."""


@dataclass(frozen=True)
class CheckpointRecord:
    """The whole of it, but for the arrays."""

    version: int
    written: str
    """ISO 8601, UTC."""
    epoch: int
    """Epochs that are finished."""
    batch: int
    """Batches of the epoch after them that are done."""
    batches: int
    """Batches an epoch."""
    of: dict[str, str]
    """What the training is of: a part (a recipe's file, a tensor of the data, the seed) to its digest or value. All must be the same on resuming."""
    environment: dict[str, str]
    """Versions and processor: may differ on resuming, which is said."""
    arrays: tuple[StoredArray, ...]
    random: dict[str, Any]
    """States of Python's and of numpy's generator."""
    epochs: tuple[Epoch, ...]
    """The finished ones."""
    running_s: float
    """Seconds of the running one so far."""
    witness: Witness
    preserved: tuple[Preserved, ...]
    resumed: tuple[Resumption, ...] = ()
    """Where the training was taken up again before this."""
    notes: tuple[str, ...] = ()
    """Why what comes of it isn't bit for bit what an uninterrupted run gives; empty where nothing is known against it."""

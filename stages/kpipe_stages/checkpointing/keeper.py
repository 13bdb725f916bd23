"""When a checkpoint is due, and what it costs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kpipe_stages.checkpointing.files import write
from kpipe_stages.checkpointing.record import CHECKPOINT_VERSION, CheckpointRecord, Witness
from kpipe_stages.checkpointing.state import capture
from kpipe_stages.checkpointing.subject import table
from kpipe_stages.protocol import Cadence, CheckpointCost, Epoch, Preserved, Resumption

AUTO_SHARE = 0.01
"""``auto`` spends so much of the time on checkpoints."""

AUTO_FLOOR_S = 2.0
"""And never writes more often than this."""


def is_due(cadence: Cadence, *, steps: int, epochs: int, seconds: float, last_cost_s: float) -> bool:
    """Whether to write, given what has passed since the last checkpoint.

    Args:
        cadence: what was asked for.
        steps: batches since.
        epochs: ends of epochs since; 0 in the middle of one.
        seconds: since the last one was written.
        last_cost_s: what it took to write it; 0 where none was.
    """
    if cadence.kind == "steps":
        return steps >= cadence.count
    if cadence.kind == "epochs":
        return epochs >= cadence.count
    return cadence.kind == "auto" and seconds >= max(AUTO_FLOOR_S, last_cost_s / AUTO_SHARE)


@dataclass
class Keeper:
    """Writes the checkpoints of one training."""

    folder: Path
    cadence: Cadence
    of: dict[str, str]
    environment: dict[str, str]
    witness: Witness
    batches: int
    """An epoch."""
    all_epochs: int
    resumed: tuple[Resumption, ...] = ()
    notes: tuple[str, ...] = ()
    cost: CheckpointCost = field(default_factory=CheckpointCost)
    preserved: tuple[Preserved, ...] = ()
    _steps: int = 0
    _epoch: int = 0
    _since: float = 0.0
    _last_cost: float = 0.0

    def start(self, epoch: int, batch: int) -> None:
        """Begin to count here."""
        self._steps, self._epoch, self._since = epoch * self.batches + batch, epoch, time.monotonic()

    def due(self, epoch: int, batch: int) -> bool:
        """Whether to write one here; the last batch of an epoch waits for its end. The end of the training is always kept: saving may fail."""
        if self.cadence.kind == "off" or batch >= self.batches:
            return False
        steps = epoch * self.batches + batch
        at_end = epoch - self._epoch if batch == 0 else 0
        seconds = time.monotonic() - self._since
        return epoch == self.all_epochs or is_due(
            self.cadence, steps=steps - self._steps, epochs=at_end, seconds=seconds, last_cost_s=self._last_cost
        )

    def keep(self, model: Any, epoch: int, batch: int, epochs: list[Epoch], running_s: float) -> None:
        """Write one.

        Args:
            model: its variables synced.
            epoch: epochs finished.
            batch: batches of the next one done.
            epochs: the finished ones.
            running_s: seconds of the running one so far.

        Raises:
            StageError: it can't be written.
        """
        start = time.monotonic()
        state = capture(model)
        steps = epoch * self.batches + batch
        position = f"{epoch} of {self.all_epochs} epochs, then {batch} of {self.batches} batches"
        self.preserved = table(state.rows, model, self.of, position, self.witness, len(epochs))
        record = CheckpointRecord(
            version=CHECKPOINT_VERSION,
            written=datetime.now(UTC).isoformat(timespec="seconds"),
            epoch=epoch,
            batch=batch,
            batches=self.batches,
            of=self.of,
            environment=self.environment,
            arrays=state.rows,
            random=state.random,
            epochs=tuple(epochs),
            running_s=running_s,
            witness=self.witness,
            preserved=self.preserved,
            resumed=self.resumed,
            notes=self.notes,
        )
        size = write(self.folder, steps, record, state.arrays)
        self._last_cost = time.monotonic() - start
        self.cost = replace(self.cost, written=self.cost.written + 1, seconds=self.cost.seconds + self._last_cost, bytes=size)
        self.start(epoch, batch)

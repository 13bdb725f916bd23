"""The calibration set, as a converter is fed it. numpy only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.feeds import as_fed
from kpipe_stages.protocol import TensorSpec
from kpipe_stages.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpipe_stages.protocol import QuantizeJob

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Samples:
    """Calibration rows by the model's input names, one batch at a time."""

    specs: tuple[TensorSpec, ...]
    """The model's inputs."""
    rows: dict[str, Rows]
    count: int
    """0 where the variant needs no calibration."""
    batch: int
    """Rows in a call: the artifact's fixed batch, else 1."""

    def __iter__(self) -> Iterator[dict[str, Array]]:
        """Feeds by the model's names, ``batch`` rows each; the last one is filled from the first rows on."""
        for start in range(0, self.count, self.batch):
            chosen = [(start + offset) % self.count for offset in range(self.batch)]
            yield {spec.name: np.stack([as_fed(self.rows[spec.name][row], spec.dtype) for row in chosen]) for spec in self.specs}


def open_samples(params: QuantizeJob) -> Samples:
    """The rows that the job names.

    Raises:
        OSError: they are gone.
        ValueError: they contradict one another.
    """
    rows = {name: Rows(f"{params.tensors}/{position}") for position, name in enumerate(params.names)}
    return Samples(params.signature.inputs, rows, params.rows if params.tensors else 0, params.source.batch or 1)

"""What a diagnosis found: ``diagnosis.json``, and what ``kpipe diagnose --json`` prints."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kpipe.judging.layers import LayerDrift

DIAGNOSIS_VERSION = 1


class Outcome(enum.StrEnum):
    """What could be said."""

    NAMED = "named"
    """A layer leaves the reference, and its name is known."""
    NOTHING = "nothing differs"
    FUSION = "fusion"
    """The fault vanishes when outputs inside the model are exposed."""
    HANDED_IN = "handed-in artifact"
    """The artifact that was handed in differs, and the one that kpipe exports doesn't."""
    REFERENCE = "reference"
    """The reference itself leaves float64."""
    UNTOLD = "can't be told"


@dataclass(frozen=True)
class Fusion:
    """What bisecting the exposed outputs gave."""

    hides: tuple[str, ...]
    """The smallest set of layers whose exposed outputs make the fault vanish."""
    complete: bool
    """False where time ran out before the set was known to be smallest."""
    trials: int
    still_shows: tuple[str, ...] = ()
    """Layers that leave where all other outputs are exposed and the fault still shows; empty where it never does."""


@dataclass(frozen=True)
class Reproducer:
    """The offending layer alone, in a folder."""

    folder: str
    reproduces: bool | None
    """Whether the layer alone differs; None where its script could not be run."""
    said: str
    """What the script printed last, or why there is none."""


@dataclass(frozen=True)
class Diagnosis:
    """The whole of it."""

    version: int
    run: str
    target: str
    runtime: str
    mode: str
    inputs: tuple[str, ...]
    """Golden ids that were looked at, in the order of rows."""
    outcome: Outcome
    sentence: str
    remedy: str
    before_cut: float | None
    """Largest drift of the target's own outputs as the run had it, in floors; None where it isn't known."""
    after_cut: float | None
    """The same with the layers' outputs exposed."""
    layer: LayerDrift | None
    """The layer that is named."""
    layers: tuple[LayerDrift, ...]
    """Every output that was compared, in the order of computation."""
    notes: tuple[str, ...]
    fusion: Fusion | None
    reproducer: Reproducer | None
    seconds: float

"""The timed phases."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TimingPlan:
    """How much to time. Nothing is timed when ``calls`` is 0."""

    calls: int = 200
    """Single-stream model-only calls after the warm-up."""
    end_to_end_calls: int = 200
    """Calls from the raw file to the decision; 0 where no raw file is there."""
    max_warmup: int = 200
    max_seconds: float = 20.0


@dataclass(frozen=True)
class LoadTimes:
    """Seconds in a fresh process."""

    import_s: float
    """With the seconds of `Identity.inherited`."""
    load_s: float
    first_s: float
    lean: bool
    """Keras was imported without what it only takes along (`kpipe_stages.lean`): less than its import costs where that is installed."""


@dataclass(frozen=True)
class Latency:
    """A latency sample. Seconds, every call kept."""

    seconds: tuple[float, ...]
    warmup_calls: int
    stable: bool
    """The warm-up rule was met before its bound."""
    worst_difference: float
    """Largest absolute difference between a timed call's output and the same input's alone output."""
    worst_relative: float
    """The same over the largest magnitude of that output on that input; infinite where an output that isn't floating point differs at all."""
    decision_changes: int
    """Timed calls one of whose decisions isn't the one that the same input's alone output gives; 0 where nothing is decided: model only, or no
    rule."""
    compared: int
    """Timed outputs compared; equal to the number of calls, or the timing is void."""


@dataclass(frozen=True)
class TimingResult:
    """``timing.json``."""

    model_only: Latency | None
    """None where nothing was to be timed."""
    end_to_end: Latency | None
    """None where nothing was to be timed, or the raw files give no tensors here that the artifact takes."""

"""The timed phases."""

from __future__ import annotations

from dataclasses import dataclass, field

LEAST_COMPARED = 16
"""Answers of the server that are compared at least, however large they are."""


@dataclass(frozen=True)
class TimingPlan:
    """How much to time. Nothing is timed when ``calls`` and ``end_to_end_calls`` are 0."""

    calls: int = 200
    """Single-stream model-only calls after the warm-up."""
    end_to_end_calls: int = 200
    """Calls from the raw file to the decision; 0 where no raw file is there."""
    max_warmup: int = 200
    max_seconds: float = 20.0
    limits_s: dict[str, float] = field(default_factory=dict)
    """Model only: percentile (``99``) to the seconds that the contract allows; calls go on until each is decided or the time is up."""
    end_to_end_limits_s: dict[str, float] = field(default_factory=dict)
    fresh_pairs: int = 48
    """Calls with an input never seen before, each beside one with an input seen before: a cache of results would show."""
    server_rate: float = 0.0
    """Requests a second, at random moments (Poisson), whether or not the one before is done; 0 for no such phase."""
    server_seconds: float = 5.0
    offline: tuple[int, ...] = ()
    """Batch sizes whose throughput is measured; empty for none."""


@dataclass(frozen=True)
class Window:
    """A stretch of consecutive calls, and what else happened on the machine meanwhile. None: the system doesn't say."""

    calls: int
    seconds: float
    """Of the stretch, with what lies between the calls."""
    waited_s: float | None
    """Time that this process's threads were ready to run and had no processor, all threads together."""
    others: float | None
    """Share of the processors that this process may use that others used; None also where the stretch is too short for the system's clock."""
    stolen: float | None
    """Share that the hypervisor took."""
    switches: int
    """Times that a thread was made to give up its processor."""
    in_calls_s: float | None = None
    """What threads waited between the first and the last of each few calls, but for what `Latency.waits` says of the calling one; None where that
    wasn't looked at."""
    stolen_s: float = 0.0
    """Processor time that the hypervisor took, seconds of all processors together."""


@dataclass(frozen=True)
class LoadTimes:
    """Seconds in a fresh process."""

    import_s: float
    """With the seconds of `Identity.inherited`."""
    load_s: float
    first_s: float
    lean: bool
    """Keras was imported without what it only takes along (`kpipe_stages.lean`): less than its import costs where that is installed."""
    second_s: float | None = None
    """The second inference, with the same shapes; None where only the answers were asked for."""
    new_shape_s: float | None = None
    """The first inference with a batch of two rows; None where the artifact takes one size only, or it wasn't asked for."""
    dropped: bool = False
    """The artifact's pages were dropped from the system's file cache before it was loaded."""
    window: Window | None = None
    """What else happened on the machine from the import to the first inference."""
    waited_s: float | None = None
    """How long threads waited for a processor in these three, all together; None where the system doesn't say."""
    worked_s: float = 0.0
    """Processor time of the loading thread in these three."""


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
    looks: int = 1
    """How often it was looked at whether the limits were decided, more calls being taken where they weren't."""
    windows: tuple[Window, ...] = ()
    """The calls in stretches, in order; their calls sum to the sample's."""
    steps_s: dict[str, float] = field(default_factory=dict)
    """End to end: step to its seconds in all calls together."""
    waits: tuple[float, ...] = ()
    """Of each call the seconds that the calling thread was ready to run and had no processor; empty where the system doesn't say, or the plan
    has no limit."""
    memory: tuple[tuple[int, int], ...] = ()
    """Calls made so far and bytes resident then, between stretches of calls since the last look."""


@dataclass(frozen=True)
class Freshness:
    """Inputs seen before beside inputs never seen before, in random order within each pair."""

    fresh: tuple[float, ...]
    """Seconds, pair by pair."""
    repeated: tuple[float, ...]
    why_not: str = ""
    """Why nothing was compared; empty where it was."""


@dataclass(frozen=True)
class Served:
    """Open loop: requests at intended moments, one at a time."""

    rate: float
    """Requests a second, asked for."""
    seconds: tuple[float, ...]
    """From the intended moment of each request to its answer."""
    service: tuple[float, ...]
    """Of the call alone."""
    worst_relative: float
    """As `Latency.worst_relative`, of the answers that were compared."""
    windows: tuple[Window, ...] = ()
    compared: int = 0
    """Answers compared: a seeded sample of all; at least `LEAST_COMPARED` or every one, or the phase is void."""


@dataclass(frozen=True)
class BatchTimes:
    """Calls with one batch size."""

    batch: int
    seconds: tuple[float, ...]
    refused: str = ""
    """The runtime's message; empty where it answered."""
    compared: int = 0
    """Timed answers compared with what the same batch gave when nothing was timed; none makes the times void."""
    worst_relative: float = 0.0
    """As `Latency.worst_relative`, of those."""


@dataclass(frozen=True)
class TimingResult:
    """``timing.json``."""

    model_only: Latency | None
    """None where nothing was to be timed."""
    end_to_end: Latency | None
    """None where nothing was to be timed, or the raw files give no tensors here that the artifact takes."""
    freshness: Freshness | None = None
    """None where it wasn't asked for."""
    server: Served | None = None
    offline: tuple[BatchTimes, ...] = ()

"""Two artifacts timed in turns."""

from __future__ import annotations

from dataclasses import dataclass, field

from kpipe_stages.protocol.running import RunJob
from kpipe_stages.protocol.timing import Window


@dataclass(frozen=True)
class RaceJob:
    """Open the baseline's artifact and the candidate's in one process, and time them call by call on the same golden inputs."""

    before: RunJob
    """What the baseline's worker was told, with the candidate's threads and settings."""
    now: RunJob
    rows: tuple[tuple[int, int], ...]
    """Golden inputs that both have: row before, row now."""
    max_seconds: float
    """For everything but the runtime's import; a round that has begun is finished."""
    smallest: float
    """The smallest difference of the medians that counts, a share."""
    limits: dict[str, float] = field(default_factory=dict)
    """Key of the contract's relative limits (``p90_ms``, ``load_s``) to the factor: calls go on until each is known to hold or not."""
    calls: int = 11
    """Calls of each side, at least, before it may end early."""
    seed: int = 0
    """Of the order of calls."""


@dataclass(frozen=True)
class RaceRound:
    """A session of each, opened one after the other, and calls in turns. Nanoseconds."""

    before_first: bool
    """The baseline's session was opened first."""
    load_before_ns: int
    """Load or compile and first inference."""
    load_now_ns: int
    before_ns: tuple[int, ...]
    """Every timed call; none is clipped."""
    now_ns: tuple[int, ...]
    windows: tuple[Window, ...] = ()
    """What else happened on the machine from the opening of the sessions to the last call; their ``calls`` are both sides'."""


@dataclass(frozen=True)
class RaceResult:
    """What was measured; the answer is `kpipe_stages.ratio`'s, from ``rounds`` and ``looks``."""

    rounds: tuple[RaceRound, ...]
    looks: int
    """How often the intervals were looked at, the end included."""
    rows: int
    """Different golden inputs that were called."""
    batch: int
    """Rows of a call."""
    called: int
    """Calls in rounds, with those of the warm-ups."""
    compared: int
    """Outputs of them that were held against the same artifact's first answers to the same inputs; as many, or the times are void."""
    worst_before: float
    """Largest difference of a timed output from that, over the output's scale."""
    worst_now: float
    resolution_s: float
    """Of the clock."""
    seconds: float

"""Whether a latency limit is met, missed, or can't be told yet. Pure; the worker stops by it and the judge judges by it.

All calls decide. A machine that is busy with other work makes calls slower and never faster: a limit that is met there is met. One that is missed
while others took the machine is missed for sure only where

- the calls of the undisturbed stretches alone miss it too, or
- the disturbance can't be the reason: even against `SLOWER` times the limit (what sharing caches, memory and a core's second thread may cost),
  enough calls are too slow after each has been let off what its own thread waited for a processor, and bringing them below takes more seconds
  than all other threads waited meanwhile and the hypervisor took.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.disturbance import is_disturbed
from kpipe_stages.intervals import Held, Interval, error_at, held, interval, nearest_rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe_stages.protocol import Latency, Window

    Floats = np.ndarray[Any, np.dtype[np.float64]]

SLOWER = 3.0


@dataclass(frozen=True)
class Decided:
    """One limit against a sample."""

    held: Held
    found: Interval
    disturbed: bool
    """It is open because calls that miss it were made while others took the machine."""


def decide(seconds: Sequence[float], windows: Sequence[Window], p: float, limit: float, look: int, waits: Sequence[float] = ()) -> Decided:
    """Hold a limit (seconds) against calls in the order they were made; ``waits`` as in `Latency`.

    Raises:
        ValueError: there are no calls.
    """
    calls = np.asarray(seconds, dtype=np.float64)
    error = error_at(look)
    found = interval(calls, p, error)
    answer = held(found, limit)
    if answer is not Held.MISSED or not is_disturbed(windows):
        return Decided(answer, found, disturbed=False)
    quiet = calls[quiet_calls(windows, len(calls))]
    alone = len(quiet) > 0 and held(interval(quiet, p, error), limit) is Held.MISSED
    sure = alone or _unexplained(calls, windows, waits, p, limit)
    return Decided(Held.MISSED if sure else Held.OPEN, found, disturbed=not sure)


def quiet_calls(windows: Sequence[Window], count: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which of ``count`` calls were made in a stretch that is known to be undisturbed."""
    marks = np.concatenate([np.full(w.calls, is_disturbed((w,)) is False) for w in windows] or [np.zeros(0, bool)])
    return marks if len(marks) == count else np.zeros(count, bool)


def _unexplained(calls: Floats, windows: Sequence[Window], waits: Sequence[float], p: float, limit: float) -> bool:
    """Whether neither waiting nor `SLOWER` work can have made enough calls miss the limit."""
    own = np.asarray(waits, dtype=np.float64) if len(waits) == len(calls) else np.zeros(len(calls))
    waited = sum((w.in_calls_s if w.in_calls_s is not None else w.waited_s) or 0.0 for w in windows)
    left = waited + sum(w.stolen_s for w in windows)
    over = calls - own - SLOWER * limit
    excess = np.sort(over[over > 0])
    surplus = len(excess) - (len(calls) - nearest_rank(len(calls), p))  # calls that would have to be faster
    return surplus > 0 and float(excess[:surplus].sum()) > left


def undecided(latency: Latency, limits: dict[str, float], look: int) -> bool:
    """Whether more calls may still settle one of the limits (percentile, as text, to seconds)."""
    return any(decide(latency.seconds, latency.windows, float(p), limit, look, latency.waits).held is Held.OPEN for p, limit in limits.items())

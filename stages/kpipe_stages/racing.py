"""What two artifacts that were timed in turns say of a percentile, of the load, and of limits that are relative. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kpipe_stages.ratio import MEDIAN, Ratio, Told, ratio_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe_stages.protocol import RaceJob, RaceRound

LOAD = "load_s"
P50 = "p50_ms"
PERCENTILES = {P50: MEDIAN, "p90_ms": 90.0, "p95_ms": 95.0, "p99_ms": 99.0}
"""Key of a limit to the percentile of the calls."""
NANO = 1e-9


@dataclass(frozen=True)
class Claim:
    """Something to be known before the calls may end."""

    key: str
    """`LOAD` or a key of `PERCENTILES`."""
    factor: float = 0.0
    """The limit; 0 where the question is only which of the two is faster."""
    smallest: float = 0.0


def claims_of(order: RaceJob) -> tuple[Claim, ...]:
    """Which one is faster, and whether each limit holds."""
    return (Claim(P50, smallest=order.smallest), *(Claim(key, factor) for key, factor in order.limits.items()))


def known(claim: Claim, rounds: Sequence[RaceRound], look: int) -> bool:
    """Whether these rounds settle it."""
    ratio = measured(claim.key, rounds, look)
    if ratio is None:
        return False
    return ratio.within(claim.factor) is not None if claim.factor else ratio.told(claim.smallest) is not Told.UNKNOWN


def measured(key: str, rounds: Sequence[RaceRound], look: int, resolution: float = NANO) -> Ratio | None:
    """Now over before, of a percentile of the calls or of the median load; None where too few rounds were made.

    The first round's loads are left out: what a process does once, and what the file cache hadn't yet, falls to whichever came first.
    """
    if key == LOAD:
        loads = rounds[1:]
        before, now = [np.array([one.load_before_ns * NANO]) for one in loads], [np.array([one.load_now_ns * NANO]) for one in loads]
        return ratio_of(before, now, MEDIAN, look, resolution)
    calls = [(np.array(one.before_ns) * NANO, np.array(one.now_ns) * NANO) for one in rounds]
    return ratio_of([a for a, _ in calls], [b for _, b in calls], PERCENTILES[key], look, resolution)

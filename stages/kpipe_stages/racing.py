"""What two artifacts that were timed in turns say of a percentile, of the load, and of limits that are relative. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kpipe_stages.disturbance import is_disturbed
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


def known(claim: Claim, rounds: Sequence[RaceRound], look: int, calls: int = 1) -> bool:
    """Whether these rounds settle it."""
    ratio = measured(claim.key, rounds, look)
    if ratio is None:
        return False
    return within(claim.key, claim.factor, ratio, rounds, look, calls) is not None if claim.factor else ratio.told(claim.smallest) is not Told.UNKNOWN


def within(key: str, factor: float, ratio: Ratio, rounds: Sequence[RaceRound], look: int, calls: int, resolution: float = NANO) -> bool | None:
    """Whether a limit holds, by the ratio of all rounds; None where that can't be told.

    What others take of the machine is added to calls of both sides and pulls a ratio towards 1, so it may hide a slowdown: where enough was taken
    to move this percentile, the limit has to hold by the undisturbed rounds alone, too, and by ``calls`` of each side in them. A system that doesn't tell is not quiet.
    """
    told = ratio.within(factor)
    quiet = [one for one in rounds if is_disturbed(one.windows) is False]
    most = len(rounds) / 2 if key in {LOAD, P50} else 0  # a median withstands what befalls fewer than half
    if told is not True or len(rounds) - len(quiet) <= most:
        return told
    if key != LOAD and sum(len(one.now_ns) for one in quiet) < calls:
        return None
    alone = measured(key, quiet, look, resolution)
    return True if alone is not None and alone.within(factor) is True else None


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

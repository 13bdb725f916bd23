"""Cold loads in fresh processes: how many, and what they say of a limit.

Pure; shared by the run, which loads on until it is decided, and by the judge.

The loads of one target are few and dear. Between the fastest and the slowest of n lies the median of all loads with a confidence of
1 - 2^(1 - n): 75 % for 3, 99.2 % for 8, whatever their distribution; from 8 on the interval is the one of 99 %.

A limit below the median of all loads is called met with less than 1 % chance, over all looks: by 8 loads within it 2^-8, by 11 of 12 another 0.3 %,
0.7 % together and whatever the distribution. Fewer loads settle it only by a margin, which takes that loads don't vary so much: that at most one in
a thousand takes less than half of the median, one in ten less than three quarters of it (a load is work that has to be done, and what disturbs it
makes it slower); these add 0.1 % each. A miss likewise: 8 loads beyond the limit, or 3 beyond twice of it, where one in ten may take twice the median.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpipe.evidence import Ending
from kpipe_stages.codec import decode
from kpipe_stages.deciding_limits import SLOWER
from kpipe_stages.disturbance import is_disturbed
from kpipe_stages.intervals import ERROR, Held, ranks
from kpipe_stages.protocol import RunResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe.evidence import StageEvidence
    from kpipe_stages.protocol import LoadTimes

LEAST = 3
CHEAP_LEAST = 8
CHEAP_S = 1.0
"""Loads that take less are repeated at least `CHEAP_LEAST` times."""
MOST = 12
SPREAD = 0.1
"""The spread is known once the interval is no wider than this share of the median."""
CLEARLY = 0.5
"""One load that takes no more than this share of its limit settles it, where no sign-off is asked; `LEAST` that take no less than 1 / this miss it."""
NEARLY = 0.75
"""`LEAST` loads that take no more than this share of their limit settle it."""


@dataclass(frozen=True)
class Loads:
    """What repeated loads say, seconds."""

    median: float
    low: float | None
    """None: one load alone."""
    high: float | None
    confidence: float
    """That the median of all loads lies between ``low`` and ``high``."""


def load_of(stage: StageEvidence) -> LoadTimes | None:
    """The load times that a stage answered; None where it gave none."""
    if stage.ending is not Ending.OK or stage.result is None or not stage.result.data:
        return None
    return decode(RunResult, stage.result.data).load


def total(load: LoadTimes) -> float:
    """Import, load or compile, and first inference together."""
    return load.import_s + load.load_s + load.first_s


def sum_up(totals: Sequence[float]) -> Loads:
    """The median (the lower one of two) and its interval.

    Raises:
        ValueError: there are none.
    """
    if not totals:
        raise ValueError("no loads")
    ordered = sorted(totals)
    count = len(ordered)
    median = ordered[(count - 1) // 2]
    if count == 1:
        return Loads(median, None, None, 0.0)
    low, high = ranks(count, 50.0, ERROR)
    if low is None or high is None:
        return Loads(median, ordered[0], ordered[-1], 1 - 2.0 ** (1 - count))
    return Loads(median, ordered[low - 1], ordered[high - 1], 1 - ERROR)


def decide(loads: Sequence[LoadTimes], limit: float) -> Held:
    """Hold a limit against loads.

    Met: all of the 99 % interval is within it, or all loads clearly are: one by `CLEARLY`, `LEAST` by `NEARLY`. Missed: all of that interval is
    beyond it, or at least `LEAST` loads clearly are; and what else happened on the machine isn't the reason: the undisturbed ones alone say so, or
    waiting for a processor and `SLOWER` times slower work don't explain more than half of them.
    """
    totals = [total(load) for load in loads]
    if not totals:
        return Held.OPEN
    found = sum_up(totals)
    known = found.confidence >= 1 - ERROR
    if found.high is not None and known and found.high <= limit:
        return Held.MET
    if max(totals) <= (NEARLY if len(totals) >= LEAST else CLEARLY) * limit:
        return Held.MET
    missed = found.low is not None and known and found.low > limit
    if not missed and not (len(totals) >= LEAST and CLEARLY * min(totals) >= limit):
        return Held.OPEN
    if not any(disturbed(load) for load in loads) or _missed_quietly(loads, limit):
        return Held.MISSED
    sure = sum(_unexplained(load, limit) for load in loads)
    return Held.MISSED if sure >= LEAST and 2 * sure > len(loads) else Held.OPEN


def disturbed(load: LoadTimes) -> bool:
    """Whether others took the machine during a load, as far as the system says."""
    return load.window is not None and bool(is_disturbed((load.window,)))


def _missed_quietly(loads: Sequence[LoadTimes], limit: float) -> bool:
    quiet = [total(load) for load in loads if not disturbed(load)]
    return len(quiet) >= LEAST and min(quiet) > limit


def _unexplained(load: LoadTimes, limit: float) -> bool:
    waited = load.waited_s if load.waited_s is not None else load.window.waited_s if load.window is not None else None
    stolen = load.window.stolen_s if load.window is not None else 0.0
    least = max(total(load) - (waited or 0.0) - stolen, load.worked_s)  # threads that wait at once delay a load by less than all of their waiting
    return least > SLOWER * limit


def enough(loads: Sequence[LoadTimes], limit: float | None, *, spent_s: float, budget_s: float, thorough: bool) -> bool:
    """Whether to stop loading: the stopping rule.

    Not before the limit is decided; where ``thorough``, not before `LEAST` loads (`CHEAP_LEAST` of cheap ones) and a known spread. Never more than
    `MOST`, and none that the budget has no room for.

    Args:
        loads: so far, at least one.
        limit: seconds; None where the contract has none.
        spent_s: seconds that these loads took, with starting their processes.
        budget_s: seconds that all may take.
        thorough: as the sign-off profile asks.
    """
    count = len(loads)
    if count >= MOST or spent_s * (count + 1) / count > budget_s:
        return True
    if limit is not None and decide(loads, limit) is Held.OPEN:
        return False
    if not thorough:
        return True
    found = sum_up([total(load) for load in loads])
    least = CHEAP_LEAST if found.median < CHEAP_S else LEAST
    known = found.low is not None and found.high is not None and found.high - found.low <= SPREAD * found.median
    return count >= least and known

"""What a sample of times says for sure: intervals for its percentiles, and limits held against them.

Pure; shared by the worker, which times on until a limit is decided, and by the judge.

A percentile's interval has two of the sample's own order statistics for ends (David & Nagaraja, *Order Statistics*, 7.1): the number of calls
below the true percentile is binomial, whatever the times' distribution, so nothing is assumed of its shape, and no call is left out or clipped.
That holds for independent calls. Calls that follow one another are alike, so the number of calls is first divided by how much more the share of
slow calls varies between batches of consecutive calls than independent calls would (batch means; the worst of the batch sizes 2, 4, 8, ... that
leave at least `BATCHES` batches). What an upper end can't be had for stays open, and an open end decides nothing.

Looking again after more calls gives chance another try: the k-th look has its error bounded by `ERROR` / (k (k + 1)), which sums to `ERROR`
however often one looks.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    Floats = np.ndarray[Any, np.dtype[np.float64]]
    Marks = np.ndarray[Any, np.dtype[np.bool_]]

ERROR = 0.01
"""Of all looks together: 99 % confidence."""
BATCHES = 16
"""Fewer batch means say little of how they vary."""


class Held(enum.StrEnum):
    """What an interval says of a limit."""

    MET = "met"
    MISSED = "missed"
    OPEN = "open"


@dataclass(frozen=True)
class Interval:
    """A percentile of a sample, and where the true one lies."""

    value: float
    """The smallest call that so many per cent of the calls do not exceed (nearest rank)."""
    low: float | None
    """None: the calls leave it open."""
    high: float | None
    effective: int
    """Independent calls that these are worth."""


def error_at(look: int) -> float:
    """The error that the ``look``-th look (1 is the first) may make."""
    return ERROR / (look * (look + 1))


def nearest_rank(count: int, p: float) -> int:
    """The rank, from 1, of the smallest of ``count`` samples that at least ``p`` % of them do not exceed."""
    thousandths = round(p * 1000)  # whole numbers: 99.9 % of 1000 calls are 999, and not a rounding more
    return max(1, -(-thousandths * count // 100_000))


def ranks(count: int, p: float, error: float) -> tuple[int | None, int | None]:
    """Ranks, from 1, of the order statistics between which the ``p``-th percentile of independent samples lies, but for ``error``.

    Each end misses with a probability of at most ``error / 2``; None where no rank does so.
    """
    share = p / 100
    below = _binomial_cdf(count, share)  # below[k]: P(at most k samples lie below the percentile)
    low = int(np.searchsorted(below, error / 2, side="right"))  # rank l misses where fewer than l samples lie below: below[l - 1]
    high = int(np.searchsorted(below, 1 - error / 2, side="left")) + 1
    return low or None, high if high <= count else None


def _binomial_cdf(count: int, share: float) -> Floats:
    """``P(X <= k)`` for k from 0 to ``count``."""
    logs = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, count + 1)))))
    k = np.arange(count + 1)
    choose = logs[count] - logs - logs[::-1]
    below: Floats = np.minimum(np.cumsum(np.exp(choose + k * math.log(share) + (count - k) * math.log1p(-share))), 1.0)
    return below


def inflation(slow: Sequence[bool] | Marks) -> float:
    """How much more the share of slow calls varies than that of independent calls would; at least 1.

    Args:
        slow: for each call, in the order they were made, whether it was slower than the percentile in question.
    """
    marks = np.asarray(slow, dtype=np.float64)
    share = float(marks.mean()) if len(marks) else 0.0
    alone = share * (1 - share)
    worst, size = 1.0, 2
    while alone and len(marks) // size >= BATCHES:
        batches = marks[: len(marks) // size * size].reshape(-1, size).mean(axis=1)
        worst = max(worst, float(batches.var(ddof=1)) * size / alone)
        size *= 2
    return worst


def interval(seconds: Sequence[float] | Floats, p: float, error: float = ERROR) -> Interval:
    """The ``p``-th percentile of calls in the order they were made, with its interval.

    Raises:
        ValueError: there are no calls.
    """
    calls = np.asarray(seconds, dtype=np.float64)
    if not len(calls):
        raise ValueError("no calls")
    ordered = np.sort(calls)
    count = len(ordered)
    value = float(ordered[nearest_rank(count, p) - 1])
    alike = max(inflation(calls > value), inflation(calls >= value))  # they differ where many calls took just as long
    effective = max(1, int(count / alike))
    low, high = ranks(effective, p, error)
    scale = count / effective
    below = None if low is None else float(ordered[math.floor((low - 1) * scale)])
    above = None if high is None else float(ordered[min(count, math.ceil(high * scale)) - 1])
    return Interval(value, below, above, effective)


def held(found: Interval, limit: float) -> Held:
    """Whether a limit is met or missed for sure; a value that isn't a number decides nothing."""
    if found.high is not None and found.high <= limit:
        return Held.MET
    return Held.MISSED if found.low is not None and found.low > limit else Held.OPEN

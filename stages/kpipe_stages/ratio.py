"""How much slower or faster: the ratio of a percentile of two latency samples that were taken in turns, with an interval. Pure.

Calls come in rounds. A round has sessions of its own and lasts a moment, so what is peculiar to a session (where its buffers lie in memory) and
what lasts longer than a round (another program, the clock rate) is the same for all calls of one side of it, or of both. Rounds are what is
independent, not calls. Therefore

- the calls of each round are divided by the round's level, the geometric mean of its two medians: a machine that is slow for a while counts for
  neither side;
- the interval comes from resampling whole rounds, both sides together (a block bootstrap with rounds for blocks): its standard error, times the
  quantile of Student's t with one degree of freedom less than there are rounds, because few blocks know little of their own spread.

The sample grows until the answer is known, so the interval is looked at more than once. The n-th look spends ``ERROR / (n (n + 1))``, half of
it on each side, of the error that is allowed over all looks together (`kpipe_stages.intervals.error_at`): these sum to at most `ERROR` however many
there are, whatever their dependence (Boole's inequality).

Kunsch (1989), "The jackknife and the bootstrap for general stationary observations"; Kalibera and Jones (2013), "Rigorous benchmarking in
reasonable time", for repetition at every level that varies; Abramowitz and Stegun (1964), 26.7.3 and 26.7.4, for Student's t.
"""

from __future__ import annotations

import enum
import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.intervals import ERROR as ERROR  # noqa: PLC0414 - it is also taken from here
from kpipe_stages.intervals import error_at, nearest_rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    Array = np.ndarray[Any, np.dtype[Any]]

FEWEST = 3
"""Rounds below which nothing is said."""

LOOKS = (4, 6, 9, 14, 21, 32, 48, 72, 108, 162, 243)
"""Rounds at which the interval is looked at; and once more when the time is up."""

RESAMPLES = 400

MEDIAN = 50.0


class Told(enum.StrEnum):
    """What can be said."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    """The whole interval lies within the smallest difference that counts."""
    UNKNOWN = "can't tell yet"


@dataclass(frozen=True)
class Ratio:
    """Now over before: 1.1 is ten per cent slower."""

    value: float
    low: float
    high: float

    def told(self, smallest: float) -> Told:
        """The answer, where differences below ``smallest`` (a share) don't count."""
        if self.low > 1.0 + smallest:
            return Told.SLOWER
        if self.high < 1.0 / (1.0 + smallest):
            return Told.FASTER
        return Told.SAME if self.low >= 1.0 / (1.0 + smallest) and self.high <= 1.0 + smallest else Told.UNKNOWN

    def within(self, factor: float) -> bool | None:
        """Whether the ratio is at most ``factor``; None where the interval doesn't say."""
        if self.high <= factor:
            return True
        return False if self.low > factor else None


def ratio_of(before: Sequence[Array], now: Sequence[Array], p: float, look: int, resolution: float = 0.0) -> Ratio | None:
    """The ratio of the p-th percentiles (nearest rank), with its interval at this look.

    Args:
        before: the baseline's calls, an array of seconds (float64, shape ``(calls,)``, each above 0) a round.
        now: the candidate's, likewise; as many rounds.
        p: above 0, at most 100, to a thousandth.
        look: how many times the interval has been looked at, this time included.
        resolution: of the clock, seconds: no difference below it is seen.

    Returns:
        None for fewer than `FEWEST` rounds.

    Raises:
        ValueError: the two have other numbers of rounds, a round without calls, or a time that isn't a positive number.
    """
    if len(before) != len(now):
        raise ValueError(f"{len(before)} rounds before and {len(now)} now; every round has both")
    if any(not len(calls) or not (np.isfinite(calls).all() and (calls > 0).all()) for calls in (*before, *now)):
        raise ValueError("every round has calls on both sides, each of a positive number of seconds")
    rounds = len(before)
    if rounds < FEWEST:
        return None
    levels = [math.sqrt(float(np.median(a)) * float(np.median(b))) for a, b in zip(before, now, strict=True)]
    counts = _resampled(rounds)
    logs = _percentiles(now, levels, p, counts) - _percentiles(before, levels, p, counts)
    value, spread = float(logs[0]), float(np.std(logs[1:])) * math.sqrt(rounds / (rounds - 1))
    width = student(rounds - 1, error_at(look)) * spread + resolution / min(levels)
    return Ratio(math.exp(value), math.exp(value - width), math.exp(min(value + width, 700.0)))


@functools.lru_cache(maxsize=32)
def _resampled(rounds: int) -> Array:
    """How often each round is in the sample: all of them once, then `RESAMPLES` drawings with replacement. ``(1 + RESAMPLES, rounds)``, int64."""
    drawn = np.random.default_rng(rounds).multinomial(rounds, np.full(rounds, 1.0 / rounds), size=RESAMPLES)
    return np.concatenate([np.ones((1, rounds), np.int64), drawn])


def _percentiles(calls: Sequence[Array], levels: Sequence[float], p: float, counts: Array) -> Array:
    """Logarithm of the p-th percentile of the rounds' calls over their levels, for each way to count rounds. ``(len(counts),)``, float64."""
    values = np.concatenate([one / level for one, level in zip(calls, levels, strict=True)])
    of = np.repeat(np.arange(len(calls)), [len(one) for one in calls])
    order = np.argsort(values, kind="stable")
    values, of = values[order], of[order]
    found = np.empty(len(counts))
    for position, weights in enumerate(counts):
        reached = np.cumsum(weights[of])
        found[position] = values[np.searchsorted(reached, nearest_rank(int(reached[-1]), p))]
    return np.log(found)


@functools.lru_cache(maxsize=256)
def student(freedom: int, error: float) -> float:
    """What Student's t with so many degrees of freedom exceeds in magnitude with probability ``error``."""
    low, high = 0.0, 1.0
    while _inside(high, freedom) < 1.0 - error:
        high *= 2.0
    for _ in range(80):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _inside(middle, freedom) < 1.0 - error else (low, middle)
    return high


def _inside(t: float, freedom: int) -> float:
    """Probability that Student's t lies between ``-t`` and ``t``."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    term, total = (cosine, 0.0) if freedom % 2 else (1.0, 0.0)
    for k in range(2 + freedom % 2, freedom + 1, 2):
        total += term
        term *= cosine * cosine * (k - 1) / k
    return 2.0 / math.pi * (angle + sine * total) if freedom % 2 else sine * total

"""What a number of golden inputs can prove of a flip rate. Pure.

The bounds are the exact binomial ones of Clopper and Pearson (1934), one-sided: with ``k`` flips in ``n`` random inputs, a rate ``p`` is
excluded at confidence ``c`` where ``P(X <= k | n, p) <= 1 - c``.
"""

from __future__ import annotations

import bisect
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe.golden import GoldenSet


PRECISE = 1e-9


def sampled_ids(golden: GoldenSet) -> list[str]:
    """The inputs that count as evidence of a rate: sampled, and of raw files that are the same only one."""
    distinct = {tuple(sorted(g.sha256.items())) if golden.kind == "raw" else g.id: g.id for g in golden.inputs if g.chosen == "sampled"}
    return list(distinct.values())


def flip_rate_bound(sampled: int, confidence: float) -> float | None:
    """The flip rate that no flip in ``sampled`` random inputs excludes: ``1 - (1 - c)^(1/n)``; None without inputs."""
    return 1.0 - (1.0 - confidence) ** (1.0 / sampled) if sampled else None


def flip_rate_upper(flips: int, sampled: int, confidence: float) -> float | None:
    """The exact upper bound of a flip rate, one-sided: the largest ``p`` with ``P(X <= flips | sampled, p) >= 1 - confidence``.

    Clopper and Pearson (1934); found by bisection to 1e-9. None without inputs.
    """
    if not sampled:
        return None
    if flips >= sampled:
        return 1.0
    low, high = flips / sampled, 1.0
    while high - low > PRECISE:
        middle = (low + high) / 2
        low, high = (low, middle) if excludes(middle, confidence, sampled, flips) else (middle, high)
    return high


def predicted_flip_rate(margins: Sequence[float], drifts: Sequence[float], safe: float) -> float | None:
    """How often an unseen input may flip, if drift does not depend on the margin: the share of pairs in which a drift exceeds what a margin bears.

    Args:
        margins: of sampled inputs, in output units.
        drifts: largest score differences, of any inputs, in the same units.
        safe: the share of a margin that scores may move by without another decision (`kpipe_stages.decisions.moves_within`).

    Returns:
        Between 0 and 1: an upper estimate, because a drift that large need not flip anything. None without margins or drifts.
    """
    bears = [safe * margin for margin in margins if not math.isnan(margin)]
    known = sorted(drifts)
    if not bears or not known:
        return None
    return sum(len(known) - bisect.bisect_left(known, bear) for bear in bears) / (len(bears) * len(known))


def excludes(rate: float, confidence: float, sampled: int, flips: int) -> bool:
    """Whether ``flips`` flips in ``sampled`` random inputs exclude the flip rate ``rate``."""
    return flips < sampled and sum(_probability(k, sampled, rate) for k in range(flips + 1)) <= 1.0 - confidence


def _probability(flips: int, sampled: int, rate: float) -> float:
    """``P(X = flips)``, binomial; by logarithms, because the coefficient is beyond float64 soon."""
    ways = math.lgamma(sampled + 1) - math.lgamma(flips + 1) - math.lgamma(sampled - flips + 1)
    return math.exp(ways + flips * math.log(rate) + (sampled - flips) * math.log1p(-rate))


def needed_inputs(rate: float, confidence: float, flips: int) -> int:
    """The smallest number of random inputs in which ``flips`` flips exclude ``rate``."""
    enough = 1
    while not excludes(rate, confidence, enough, flips):
        enough *= 2
    too_few = enough // 2
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if excludes(rate, confidence, middle, flips) else (middle, enough)
    return enough

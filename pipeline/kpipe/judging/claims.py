"""What a number of golden inputs can prove of a flip rate. Pure.

The bounds are the exact binomial ones of Clopper and Pearson (1934), one-sided: with ``k`` flips in ``n`` random inputs, a rate ``p`` is
excluded at confidence ``c`` where ``P(X <= k | n, p) <= 1 - c``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kpipe.golden import GoldenSet


def sampled_ids(golden: GoldenSet) -> list[str]:
    """The inputs that count as evidence of a rate: sampled, and of raw files that are the same only one."""
    distinct = {tuple(sorted(g.sha256.items())) if golden.kind == "raw" else g.id: g.id for g in golden.inputs if g.chosen == "sampled"}
    return list(distinct.values())


def flip_rate_bound(sampled: int, confidence: float) -> float | None:
    """The flip rate that no flip in ``sampled`` random inputs excludes: ``1 - (1 - c)^(1/n)``; None without inputs."""
    return 1.0 - (1.0 - confidence) ** (1.0 / sampled) if sampled else None


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

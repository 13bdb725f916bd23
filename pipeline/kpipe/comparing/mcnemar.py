"""McNemar's exact test: do two models differ in how often they are right? Pure.

Of the inputs on which exactly one of the two is right, each is as likely the one's as the other's if they are right as often: the smaller number
follows a binomial distribution with p = 1/2 (McNemar 1947, in its exact form). Inputs on which both are right or both wrong say nothing.
"""

from __future__ import annotations

import math
from fractions import Fraction


def p_value(only_before: int, only_now: int) -> float:
    """How likely so great a difference or a greater one is by chance, two-sided: between 0 and 1.

    Args:
        only_before: inputs on which only the earlier model is right.
        only_now: inputs on which only the later one is.

    Raises:
        ValueError: a negative number.
    """
    if only_before < 0 or only_now < 0:
        raise ValueError(f"{only_before} and {only_now} are no numbers of inputs")
    trials, fewer = only_before + only_now, min(only_before, only_now)
    tail = sum(math.comb(trials, k) for k in range(fewer + 1))
    return float(min(Fraction(1), Fraction(2 * tail, 2**trials)))

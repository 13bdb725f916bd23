"""Whether a process's memory grows with the calls it answers. Pure.

Resident memory is read between stretches of calls. The first quarter is left out: allocators and runtimes fill their pools there. What is left
is cut in two halves; each must rise by its own robust slope (Theil and Sen: the median of the slopes between all pairs of points, with Sen's
interval by Kendall's statistic), the later one by at least half of the earlier: a pool that fills up subsides, a leak does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

Z = 2.5758
"""99 %, two-sided, of a normal distribution."""
LEAST_POINTS = 6
"""In each half."""
LEAST_BYTES = 2**20
"""A rise over both halves that is smaller isn't looked at: pages are counted, and a few come and go."""
LEAST_PER_CALL = 128.0
"""Bytes: what timing itself keeps of a call is less."""
SUBSIDES = 0.5


@dataclass(frozen=True)
class Growth:
    """Bytes a call."""

    per_call: float
    low: float
    high: float
    calls: int
    """That the slope was taken over."""
    steady: float
    """Bytes resident: the median of the points after the first quarter."""
    grows: bool


def growth(points: Sequence[tuple[int, int]]) -> Growth | None:
    """The growth over ``(calls so far, bytes)``; None where there are too few points."""
    kept = list(points)[len(points) // 4 :]
    half = len(kept) // 2
    if half < LEAST_POINTS:
        return None
    slope, low, high = theil_sen(kept)
    early, late = theil_sen(kept[:half]), theil_sen(kept[half:])
    rise = float(np.median([size for _, size in kept[-3:]]) - np.median([size for _, size in kept[:3]]))
    grows = rise >= LEAST_BYTES and min(low, early[1], late[1]) >= LEAST_PER_CALL and late[0] >= SUBSIDES * early[0]
    return Growth(slope, low, high, kept[-1][0] - kept[0][0], float(np.median([size for _, size in kept])), grows)


def theil_sen(points: Sequence[tuple[int, int]]) -> tuple[float, float, float]:
    """The median slope and its 99 % interval.

    Raises:
        ValueError: fewer than two points.
    """
    x, y = np.array(points, dtype=np.float64).T
    first, second = np.triu_indices(len(x), k=1)
    if not len(first):
        raise ValueError("a slope needs two points")
    slopes = np.sort((y[second] - y[first]) / (x[second] - x[first]))
    count, pairs = len(x), len(slopes)
    spread = Z * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low, high = max(0, math.floor((pairs - spread) / 2)), min(pairs - 1, math.ceil((pairs + spread) / 2))
    return float(np.median(slopes)), float(slopes[low]), float(slopes[high])

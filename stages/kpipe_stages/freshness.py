"""Inputs never seen before beside inputs seen before: where the repeated ones are faster, results are kept, and the times are those of a cache.

A fresh input is a golden one with its values moved so little that the work is the same: the largest number changed in its last bits; whole numbers
and texts, which may be keys of a table and can't be nudged, in another order along their last axis. Calls come in pairs, fresh and repeated in
random order, so that a busy machine, its caches and the order have the same effect on both.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import numpy as np

from kpipe_stages.feeds import stack
from kpipe_stages.protocol import Freshness
from kpipe_stages.timing import Model

if TYPE_CHECKING:
    from kpipe_stages.measure import Kept
    from kpipe_stages.session import Array, Feeds

SHARE = 0.1
"""Of the time that a target may be timed for."""
NUDGE = 2.0**-16
NONE = "no other input is known to be allowed: the first golden one is whole numbers or texts, and all alike"


class FreshModel(Model):
    """As `kpipe_stages.timing.Model`, with inputs that differ from each other and from all golden ones."""

    def __init__(self, kept: Kept) -> None:
        super().__init__(kept)
        self._number = 0
        self._random = random.Random(0)  # noqa: S311 - which order, not a secret

    def before(self, row: int) -> Feeds:
        """Untimed: the batch."""
        self._number += 1
        tensors = {name: fresh(tensor, self._number, self._random) for name, tensor in self.kept.golden.row(row).items()}
        return stack([tensors] * self.kept.batch)


def fresh(tensor: Array, number: int, order: random.Random) -> Array:
    """A tensor of the same shape and dtype, and nearly the same values, that isn't the given one; for floating point each ``number`` gives another."""
    if tensor.dtype.kind not in "fV" or not tensor.size:
        return np.ascontiguousarray(_reordered(tensor, order))
    moved = np.array(tensor, copy=True)
    flat = moved.reshape(-1)
    finite = np.where(np.isfinite(flat.astype(np.float64)), np.abs(flat.astype(np.float64)), -1.0)
    at = int(finite.argmax())
    step = NUDGE if tensor.dtype.itemsize > 2 else 2.0**-6  # noqa: PLR2004 - half precision has 7 to 10 bits
    size = finite[at] if finite[at] > 0 else 1.0
    flat[at] = (float(flat[at]) if finite[at] >= 0 else 0.0) + number * step * size
    return moved


def _reordered(tensor: Array, order: random.Random) -> Array:
    """Its values along the last axis in another order; the tensor itself where that has one."""
    if tensor.ndim == 0 or tensor.shape[-1] < 2:  # noqa: PLR2004 - one can't be reordered
        return tensor
    places = list(range(tensor.shape[-1]))
    order.shuffle(places)
    return tensor[..., places]


def can_be_fresh(kept: Kept) -> bool:
    """Whether any input can be made another."""
    order = random.Random(0)  # noqa: S311 - as above
    row = kept.golden.row(kept.golden.present[0])
    return any(fresh(tensor, 1, order).tobytes() != tensor.tobytes() for tensor in row.values())


def compare_fresh(kept: Kept, pairs: int, max_seconds: float) -> Freshness:
    """Time up to ``pairs`` pairs, in `SHARE` of ``max_seconds``; at least one. To be called after the golden inputs were, many times."""
    if not can_be_fresh(kept):
        return Freshness((), (), NONE)
    new, known = FreshModel(kept), Model(kept)
    first, deadline = random.Random(1), time.perf_counter() + SHARE * max_seconds  # noqa: S311 - which goes first, not a secret
    present = kept.golden.present
    fresh_s: list[float] = []
    repeated: list[float] = []
    while len(fresh_s) < pairs and (not fresh_s or time.perf_counter() < deadline):
        row = present[len(fresh_s) % len(present)]
        feeds = {True: new.before(row), False: known.before(row)}
        known.call(known.before(present[-1]))  # what was just done to make the inputs is forgotten
        times = {is_new: _timed(known, feeds[is_new]) for is_new in first.sample((True, False), 2)}
        fresh_s.append(times[True])
        repeated.append(times[False])
    return Freshness(tuple(fresh_s), tuple(repeated))


def _timed(work: Model, feeds: Feeds) -> float:
    start = time.perf_counter_ns()
    work.call(feeds)
    return (time.perf_counter_ns() - start) * 1e-9

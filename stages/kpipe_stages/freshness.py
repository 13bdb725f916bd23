"""Inputs never seen before beside inputs seen before: where the repeated ones are faster, results are kept, and the times are those of a cache.

A fresh input is a golden one with its values moved so little that the work is the same: of floating point tensors the largest number changes in
its last bits. Whole numbers and texts may be keys of a table and can't be nudged: place by place they are taken from this or from another golden
input of the same shape, so that no place gets a value that it never has. Calls come in pairs, fresh and repeated in random order, so that a busy
machine, its caches and the order have the same effect on both.
"""

from __future__ import annotations

import hashlib
import random
import time
from typing import TYPE_CHECKING

import numpy as np

from kpipe_stages.feeds import stack
from kpipe_stages.protocol import Freshness
from kpipe_stages.session import raise_if_out_of_memory, telling_line
from kpipe_stages.timed_calls import Model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe_stages.measure import Kept
    from kpipe_stages.session import Array, Feeds

SHARE = 0.1
"""Of the time that a target may be timed for."""
NUDGE = 2.0**-16
TRIES = 8
NONE = "no other input is known to be allowed: they are whole numbers or texts that can't be combined to a new one"


class FreshInputs:
    """Makes inputs that differ from each other and from all golden ones."""

    def __init__(self, kept: Kept) -> None:
        self._golden = kept.golden
        self._batch = kept.batch
        self._number = 0
        self._random = random.Random(0)  # noqa: S311 - which order, not a secret
        self._seen = {_digest(kept.golden.row(row)) for row in kept.golden.present}
        self._mates: dict[object, list[int]] = {}
        for row, kind in kept.golden.kinds.items():
            self._mates.setdefault(kind, []).append(row)

    def like(self, row: int) -> Feeds | None:
        """A batch like the golden ``row``, and never seen; None where none was found."""
        own, mates = self._golden.row(row), self._mates[self._golden.kinds[row]]
        for _ in range(TRIES):
            self._number += 1
            mate = self._golden.row(self._random.choice(mates))
            tensors = {name: fresh(tensor, mate[name], self._number, self._random) for name, tensor in own.items()}
            if (found := _digest(tensors)) not in self._seen:
                self._seen.add(found)
                return stack([tensors] * self._batch)
        return None


def _digest(tensors: Mapping[str, Array]) -> bytes:
    total = hashlib.sha256()
    for name in sorted(tensors):
        total.update(f"{name} {tensors[name].shape} ".encode() + tensors[name].tobytes())
    return total.digest()


def fresh(tensor: Array, mate: Array, number: int, order: random.Random) -> Array:
    """A tensor of the same shape and dtype, and nearly the same values; for floating point each ``number`` gives another one.

    Args:
        tensor: a golden input's, without a batch axis.
        mate: another one's, the same where there is no other; only its values are taken, place by place, and only where nudging won't do.
        number: from 1.
        order: which places.
    """
    if tensor.dtype.kind not in "fV" or not tensor.size:
        if mate.shape != tensor.shape:
            return tensor
        taken = np.array([order.random() < 0.5 for _ in range(tensor.size)], dtype=bool).reshape(tensor.shape)  # noqa: PLR2004 - half of them
        return np.ascontiguousarray(np.where(taken, mate, tensor)).astype(np.result_type(tensor, mate), copy=False)
    moved = np.array(tensor, copy=True)
    flat = moved.reshape(-1)
    values = flat.astype(np.float64)
    sizes = np.where(np.isfinite(values), np.abs(values), -1.0)
    at = int(sizes.argmax())
    step = NUDGE if tensor.dtype.itemsize > 2 else 2.0**-6  # noqa: PLR2004 - half precision has 7 to 10 bits
    flat[at] = values[at] * (1 + number * step) if sizes[at] > 0 else number * step  # all zero, or none of them a number
    return moved


def compare_fresh(kept: Kept, pairs: int, max_seconds: float) -> Freshness:
    """Time up to ``pairs`` pairs, in `SHARE` of ``max_seconds``; at least one. To be called after the golden inputs were, many times."""
    new, known = FreshInputs(kept), Model(kept)
    first, deadline = random.Random(1), time.perf_counter() + SHARE * max_seconds  # noqa: S311 - which goes first, not a secret
    present = kept.golden.present
    fresh_s: list[float] = []
    repeated: list[float] = []
    why = NONE
    for number in range(pairs):
        if fresh_s and time.perf_counter() >= deadline:
            break
        row = present[number % len(present)]
        if (made := new.like(row)) is None:
            continue
        feeds = {True: made, False: known.before(row)}
        try:
            known.call(known.before(present[-1]))  # what was just done to make the inputs is forgotten
            times = {is_new: _timed(known, feeds[is_new]) for is_new in first.sample((True, False), 2)}
        except Exception as error:  # noqa: BLE001 - kpipe's own input: that it is refused says nothing of the target
            raise_if_out_of_memory(error)
            why = f"the runtime refused a new input: {type(error).__name__}: {telling_line(error)}"
            kept.open_again()
            break
        fresh_s.append(times[True])
        repeated.append(times[False])
    return Freshness(tuple(fresh_s), tuple(repeated), "" if fresh_s else why)


def _timed(work: Model, feeds: Feeds) -> float:
    start = time.perf_counter_ns()
    work.call(feeds)
    return (time.perf_counter_ns() - start) * 1e-9

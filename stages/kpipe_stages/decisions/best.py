"""The rules that rank scores: ``argmax``, ``top_k`` and ``ranking``.

With ``s(1) >= s(2) >= ... >= s(n)`` the scores in falling order (equal ones by rising index):

- ``argmax``: ``m = s(1) - s(2)``. No other class wins while every score moves by less than ``m / 2``: the winner falls by less than half
  the gap and any other rises by less than half. Among equal scores the lowest index wins, and the decision is ``tied``.
- ``top_k``: the k best in order; ``m = min (s(i) - s(i+1))`` over ``i = 1 .. min(k, n - 1)``. Neither the set nor its order changes while
  every score moves by less than ``m / 2``.
- ``top_k`` without order: the set of the k best, ``k < n``; ``m = s(k) - s(k+1)``. Nothing outside gets in while every score moves by less
  than ``m / 2``: what is inside stays above the middle of that gap, and what is outside below it.
- ``ranking``: the order of all, or of the best k; the margin of ``top_k`` with that k.

In each case moving the two scores of the smallest gap towards each other, each by a little more than ``m / 2``, changes the decision.

Outputs of several axes are decided position by position along the last one.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.decisions.common import (
    Array,
    Decision,
    DecisionError,
    check_labels,
    decided_map,
    digest,
    gap,
    label,
    smallest_gap,
    some_numbers,
    undecided,
    value_of,
)

if TYPE_CHECKING:
    from kpipe_stages.protocol import DecisionSpec

WRITTEN_OUT = 20
"""A longer ranking is named by a digest."""


def argmax(spec: DecisionSpec, row: Any) -> Decision:
    """The class with the highest score."""
    scores = _scores(spec, row)
    if np.isnan(scores).any():
        return undecided()
    if scores.ndim > 1:
        return decided_map(scores.argmax(axis=-1), smallest_gap(np.partition(scores, -2, axis=-1)[..., :-3:-1]))
    top = int(scores.argmax())
    best = float(scores[top])
    second = max(float(scores[:top].max(initial=-math.inf)), float(scores[top + 1 :].max(initial=-math.inf)))
    return Decision(label(spec, top), top, gap(best, second), (best, second), tied=best == second)


def argmax_block(spec: DecisionSpec, block: Array) -> list[Decision]:
    """As `argmax` on each row of a block, shape (rows, classes)."""
    scores = _scores(spec, block)
    tops = scores.argmax(axis=1)
    each = np.arange(len(scores))
    best = scores[each, tops]
    others = scores.copy()
    others[each, tops] = -math.inf
    second = others.max(axis=1)
    undecidable = np.asarray(np.isnan(scores).any(axis=1)).tolist()
    found = zip(tops.tolist(), best.tolist(), second.tolist(), undecidable, strict=True)
    return [undecided() if nan else Decision(label(spec, top), top, gap(high, low), (high, low), tied=high == low) for top, high, low, nan in found]


def top_k(spec: DecisionSpec, row: Any) -> Decision:
    """The ``k`` best classes, in order or as a set."""
    scores = _scores(spec, row)
    k = _k(spec, scores.shape[-1])
    if np.isnan(scores).any():
        return undecided()
    order = np.argsort(-scores, axis=-1, kind="stable")
    best = np.take_along_axis(scores, order[..., : k + 1], axis=-1)
    chosen, counted = (order[..., :k], best) if spec.ordered else (np.sort(order[..., :k], axis=-1), best[..., k - 1 :])
    if scores.ndim > 1:
        return decided_map(chosen, smallest_gap(counted))
    margin = min(gap(float(high), float(low)) for high, low in itertools.pairwise(counted))
    return Decision(_named(spec, chosen), tuple(int(i) for i in chosen), margin, tuple(float(s) for s in best), tied=margin == 0)


def ranking(spec: DecisionSpec, row: Any) -> Decision:
    """The order of all items, or of the best ``k``."""
    return top_k(spec, row)


def _scores(spec: DecisionSpec, row: Any) -> Array:
    scores = some_numbers(spec.output, row)
    classes = scores.shape[-1]
    if classes == 1:
        raise DecisionError(
            f"{spec.rule} over the one score of output {spec.output!r} decides nothing (expected two classes or more). Use threshold."
        )
    check_labels(spec, classes, classes)
    return scores


def _k(spec: DecisionSpec, classes: int) -> int:
    most = classes if spec.ordered else classes - 1  # the set of all classes is the same whatever the scores
    if spec.rule == "ranking" and spec.k == 0:
        return classes
    if not 1 <= spec.k <= most:
        raise DecisionError(f"k = {spec.k} with {classes} classes (expected 1 to {most}). Mend k.")
    return spec.k


def _named(spec: DecisionSpec, chosen: Array) -> str:
    if spec.rule == "ranking" and len(chosen) > WRITTEN_OUT:
        return f"order {digest(chosen, '<i4')}"
    return value_of([label(spec, int(i)) for i in chosen])

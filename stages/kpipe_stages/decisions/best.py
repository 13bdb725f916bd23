"""The rules that rank scores: ``argmax`` and ``top_k``.

With ``s(1) >= s(2) >= ...`` the scores in falling order (equal ones by rising index):

- ``argmax``: ``m = s(1) - s(2)``. No other class wins while every score moves by less than ``m / 2``: the winner falls by less than half
  the gap and the other rises by less than half. Among equal scores the lowest index wins, and the decision is ``tied``.
- ``top_k``: the k best in order; ``m = min (s(i) - s(i+1))`` over ``i = 1 .. min(k, n - 1)``. Neither the set nor its order changes while
  every score moves by less than ``m / 2``.

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
    gap,
    label,
    smallest_gap,
    some_numbers,
    undecided,
    value_of,
)

if TYPE_CHECKING:
    from kpipe_stages.protocol import DecisionSpec


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


def top_k(spec: DecisionSpec, row: Any) -> Decision:
    """The ``k`` best classes."""
    scores = _scores(spec, row)
    classes = scores.shape[-1]
    if not 1 <= spec.k <= classes:
        raise DecisionError(f"k = {spec.k} with {classes} classes (expected 1 to {classes}). Mend k.")
    if np.isnan(scores).any():
        return undecided()
    order = np.argsort(-scores, axis=-1, kind="stable")
    best = np.take_along_axis(scores, order[..., : spec.k + 1], axis=-1)
    if scores.ndim > 1:
        return decided_map(order[..., : spec.k], smallest_gap(best))
    ranked = tuple(float(s) for s in best)
    margin = min(gap(high, low) for high, low in itertools.pairwise(ranked))
    chosen = tuple(int(i) for i in order[: spec.k])
    return Decision(value_of([label(spec, i) for i in chosen]), chosen, margin, ranked, tied=margin == 0)


def _scores(spec: DecisionSpec, row: Any) -> Array:
    scores = some_numbers(spec.output, row)
    classes = scores.shape[-1]
    if classes == 1:
        raise DecisionError(
            f"{spec.rule} over the one score of output {spec.output!r} decides nothing (expected two classes or more). Use threshold."
        )
    check_labels(spec, classes, classes)
    return scores

"""The rules that hold a score against a border: ``threshold``, ``multilabel`` and ``bins``.

- ``threshold`` and ``multilabel``: ``m = min |s_i - t_i|`` over all scores, ``t_i`` being the class's own threshold or the common one. Nothing
  changes while every score moves by less than ``m``, and the nearest score crosses its threshold by a move of a little more. A score exactly
  at its threshold is a yes. ``threshold`` on one score answers yes or no, ``multilabel`` gives a set even there.
- ``bins``: edges ``e_1 < ... < e_n`` make bins 0 to n; a score on an edge belongs to the bin above. ``m = min |s - e_j|``: the bin is the same
  while the score moves by less than ``m``, and another one by a move of a little more towards the nearest edge.

Outputs of several axes are decided position by position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.decisions.common import Array, Decision, DecisionError, check_labels, decided_map, label, some_numbers, undecided, value_of

if TYPE_CHECKING:
    from kpipe_stages.protocol import DecisionSpec


def threshold(spec: DecisionSpec, row: Any) -> Decision:
    """Yes or no for one score; for several the set of those at or above their threshold."""
    scores = some_numbers(spec.output, row)
    classes = scores.shape[-1]
    single = classes == 1 and spec.rule == "threshold"
    check_labels(spec, 2 if single else classes, classes)
    limits = thresholds(spec, classes)
    if np.isnan(scores).any():
        return undecided()
    above = scores >= limits
    margin = float(np.abs(scores - limits).min())
    if scores.ndim > 1:
        return decided_map(above, margin)
    shown = tuple(float(s) for s in scores)
    if single:
        index = int(above[0])
        return Decision(label(spec, index), index, margin, shown, tied=margin == 0)
    chosen = tuple(int(i) for i in np.flatnonzero(above))
    return Decision(value_of([label(spec, i) for i in chosen]), chosen, margin, shown, tied=margin == 0)


def thresholds(spec: DecisionSpec, classes: int) -> Array:
    """The threshold of each class, or one for all; rank 1.

    Raises:
        DecisionError: there are thresholds for another number of classes.
    """
    if not isinstance(spec.threshold, tuple):
        return np.array([spec.threshold])
    if len(spec.threshold) != classes:
        raise DecisionError(
            f"{len(spec.threshold)} thresholds for {classes} scores of output {spec.output!r} (expected {classes}, or one number for all). Mend the threshold."
        )
    return np.array(spec.threshold)


def bins(spec: DecisionSpec, row: Any) -> Decision:
    """The bin that each score lies in; for one score its label."""
    scores = some_numbers(spec.output, row)
    if np.isnan(scores).any():
        return undecided()
    edges = np.array(spec.edges)
    chosen = np.searchsorted(edges, scores, side="right")
    margin = min(float(np.abs(scores - edge).min()) for edge in edges)
    if scores.ndim > 1:
        return decided_map(chosen, margin)
    names = [label(spec, int(i)) for i in chosen]
    index = tuple(int(i) for i in chosen)
    return Decision(value_of(names), index[0] if len(index) == 1 else index, margin, tuple(float(s) for s in scores), tied=margin == 0)

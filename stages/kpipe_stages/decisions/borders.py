"""The rules that hold a score against a border: ``threshold``.

``m = min |s - t|``: nothing changes while every score moves by less than ``m``. A score exactly at the threshold is a yes.

Outputs of several axes are decided position by position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.decisions.common import Decision, check_labels, decided_map, label, some_numbers, undecided, value_of

if TYPE_CHECKING:
    from kpipe_stages.protocol import DecisionSpec


def threshold(spec: DecisionSpec, row: Any) -> Decision:
    """Yes or no for one score; for several the set of those at or above."""
    scores = some_numbers(spec.output, row)
    classes = scores.shape[-1]
    check_labels(spec, 2 if classes == 1 else classes, classes)
    if np.isnan(scores).any():
        return undecided()
    above = scores >= spec.threshold
    margin = float(np.abs(scores - spec.threshold).min())
    if scores.ndim > 1:
        return decided_map(above, margin)
    if classes == 1:
        index = int(above[0])
        return Decision(label(spec, index), index, margin, (float(scores[0]),), tied=margin == 0)
    chosen = tuple(int(i) for i in np.flatnonzero(above))
    return Decision(value_of([label(spec, i) for i in chosen]), chosen, margin, tuple(float(s) for s in scores), tied=margin == 0)

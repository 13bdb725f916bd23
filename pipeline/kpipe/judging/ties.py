"""Whether a decision that differs merely breaks a tie of the reference's. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from kpipe_stages.protocol import DecisionSpec

Array = np.ndarray[Any, np.dtype[Any]]

TIE_ULPS = 8
"""Scores within so many float32 spacings of each other, or of the threshold, are tied: no runtime promises to keep their order."""


def breaks_tie(spec: DecisionSpec, reference: Array, target: Array) -> bool:
    """Whether the reference's own scores allow the target's decision, to float32 resolution.

    That one score is tied does not excuse another: every class that the target chooses, ranks higher or drops has to be tied itself, at every
    position of a map.

    Args:
        spec: the rule.
        reference: the reference's scores on one input, classes last.
        target: the target's.
    """
    if reference.shape != target.shape or np.isnan(reference).any() or np.isnan(target).any():
        return False
    ours, theirs = (np.atleast_1d(scores).astype(np.float64) for scores in (reference, target))
    width = TIE_ULPS * 2.0**-23 * np.where(np.isfinite(ours), np.abs(ours), 0.0).max(axis=-1, keepdims=True)
    if spec.rule == "threshold":
        changed = (ours >= spec.threshold) != (theirs >= spec.threshold)
        near = TIE_ULPS * 2.0**-23 * np.maximum(np.abs(ours), abs(spec.threshold))
        return bool(((np.abs(ours - spec.threshold) <= near) | ~changed).all())
    chosen = min(spec.k if spec.rule == "top_k" else 1, ours.shape[-1] - 1)
    ranked = np.take_along_axis(ours, np.argsort(-theirs, axis=-1, kind="stable"), axis=-1)
    best_behind = np.flip(np.maximum.accumulate(np.flip(ranked, axis=-1), axis=-1), axis=-1)[..., 1 : chosen + 1]
    return bool((best_behind <= ranked[..., :chosen] + width).all())

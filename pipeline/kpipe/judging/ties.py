"""Whether a decision that differs merely breaks a tie of the reference's. Pure.

A target's decision is a tie's other side where the reference's own scores allow it to within a band: `TIE_ULPS` float32 spacings of the scores
concerned, or ``band`` where that is wider. That one score is tied does not excuse another: everything that the target decides otherwise has to be
tied itself, at every position of a map.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe.judging.tied_boxes import boxes_tie
from kpipe_stages.decisions import runs_code
from kpipe_stages.decisions.borders import thresholds
from kpipe_stages.decisions.regression import allowance

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe_stages.protocol import DecisionSpec

Array = np.ndarray[Any, np.dtype[Any]]

TIE_ULPS = 8
"""Scores within so many float32 spacings of each other, or of the threshold, are tied: no runtime promises to keep their order."""


def breaks_tie(spec: DecisionSpec, reference: Any, target: Any, *, band: float = 0.0) -> bool:
    """Whether the reference's own scores allow the target's decision, to float32 resolution or to within ``band``.

    Args:
        spec: the rule.
        reference: the reference's scores on one input, classes last; its outputs by name where the rule reads several.
        target: the target's.
        band: a wider resolution than float32's, absolute, in output units; gaps between two scores and distances to a border are held against it
            alike.

    What the user's own code decides otherwise is never a tie: nobody but it knows how it came to it.
    """
    if runs_code(spec.rule):
        return False
    if spec.rule == "detection":
        return boxes_tie(spec, reference, target, functools.partial(_near, band=band))
    if reference.shape != target.shape or np.isnan(reference).any() or np.isnan(target).any():
        return False
    ours, theirs = (np.atleast_1d(scores).astype(np.float64) for scores in (reference, target))
    return _ALLOWS[spec.rule](spec, ours, theirs, band)


def _near(*sizes: Any, band: float) -> Any:
    """The band around numbers of these sizes; an infinite one has no spacing."""
    largest = np.maximum.reduce(np.broadcast_arrays(*(np.abs(size) for size in sizes)))
    return np.maximum(TIE_ULPS * 2.0**-23 * np.where(np.isfinite(largest), largest, 0.0), band)


def _order(spec: DecisionSpec, ours: Array, theirs: Array, band: float) -> bool:
    """The target's best ``k``: nothing behind one of them is clearly better in the reference."""
    width = _width(ours, band)
    ranked = np.take_along_axis(ours, np.argsort(-theirs, axis=-1, kind="stable"), axis=-1)
    best_behind = np.flip(np.maximum.accumulate(np.flip(ranked, axis=-1), axis=-1), axis=-1)
    k = _chosen(spec, ours.shape[-1])
    if spec.rule == "top_k" and not spec.ordered:
        worst = ranked[..., :k].min(axis=-1, keepdims=True)
        return bool((best_behind[..., k : k + 1] <= worst + width).all())
    return bool((best_behind[..., 1 : k + 1] <= ranked[..., :k] + width).all())


def _chosen(spec: DecisionSpec, classes: int) -> int:
    k = 1 if spec.rule == "argmax" else spec.k or classes
    return min(k, classes - 1)


def _width(ours: Array, band: float) -> Any:
    """The band for gaps between scores: by the largest finite one at each position."""
    largest = np.where(np.isfinite(ours), np.abs(ours), 0.0).max(axis=-1, keepdims=True)
    return _near(largest, band=band)


def _yes_or_no(spec: DecisionSpec, ours: Array, theirs: Array, band: float) -> bool:
    """Every score that is on another side of its threshold lies at it."""
    limits = thresholds(spec, ours.shape[-1])
    changed = (ours >= limits) != (theirs >= limits)
    return bool(((np.abs(ours - limits) <= _near(ours, limits, band=band)) | ~changed).all())


def _bin(spec: DecisionSpec, ours: Array, theirs: Array, band: float) -> bool:
    """Every score lies at an edge of the bin that the target puts it in, or within it."""
    edges = np.array([-np.inf, *spec.edges, np.inf])
    at = np.searchsorted(np.array(spec.edges), theirs, side="right")
    low, high = edges[at], edges[at + 1]
    return bool(((ours >= low - _near(ours, low, band=band)) & (ours <= high + _near(ours, high, band=band))).all())


def _allowance(spec: DecisionSpec, ours: Array, theirs: Array, band: float) -> bool:
    """Every element exceeds what is allowed by no more than the band."""
    with np.errstate(invalid="ignore"):  # infinity less infinity
        within = np.abs(theirs - ours) <= allowance(spec, ours) + _near(ours, theirs, band=band)
    return bool((within & np.isfinite(ours) & np.isfinite(theirs) | (ours == theirs)).all())


_ALLOWS: dict[str, Callable[[DecisionSpec, Array, Array, float], bool]] = {
    "argmax": _order,
    "top_k": _order,
    "ranking": _order,
    "threshold": _yes_or_no,
    "multilabel": _yes_or_no,
    "bins": _bin,
    "tolerance": _allowance,
}

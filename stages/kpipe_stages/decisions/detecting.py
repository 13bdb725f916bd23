"""The rule for object detection: ``detection``.

The model gives ``n`` boxes and their scores: one score each (with a class each, where there is an output of classes), or one for each class,
shape ``(n, c)``; then every box is a candidate of every class. Kept is a candidate with ``s >= t``; with ``nms`` only if no kept candidate of its
class with a higher score (an equal one and a lower index) overlaps it by more than that: greedy non-maximum suppression. The decision is the set
of kept boxes and their classes. Two are the same where the boxes of each class match one to one with ``IoU >= iou`` (`boxes.one_to_one`).

The margin is about scores, boxes and classes held fixed. With ``K`` the kept candidates and ``K(v)`` those of them that suppress ``v``:

    ``m = min( min over u in K of s_u - t,  min over v not in K of max(t - s_v, max over u in K(v) of (s_u - s_v) / 2) )``

While every score moves by less than ``m`` the same candidates are kept: each in ``K`` stays at or above ``t`` and has no kept neighbour, and each
other one stays below ``t`` or below one that suppresses it; greedy suppression has exactly one outcome like that. A move of a little more, of
that ``v`` up and of ``K(v)`` down, changes ``K``. The margin is therefore safe, and tight for which candidates are kept; whether the decision
changes too depends on the boxes: one that takes the place of another which it overlaps by ``iou`` is the same decision.

The margin promises nothing about boxes that move. That they match is compared, not promised.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.decisions.boxes import corners, one_to_one, overlap
from kpipe_stages.decisions.common import Array, Decision, DecisionError, label, numbers, undecided, value_of

if TYPE_CHECKING:
    from kpipe_stages.protocol import DecisionSpec

SCORES_SHOWN = 8


@dataclass(frozen=True)
class Candidates:
    """Boxes with a score and a class each, ``m`` of them."""

    boxes: Array
    """``(m, 4)``, corners."""
    scores: Array
    """``(m,)``."""
    classes: Array
    """``(m,)``, whole numbers; not checked below the threshold."""

    def __getitem__(self, chosen: Array) -> Candidates:
        return Candidates(self.boxes[chosen], self.scores[chosen], self.classes[chosen])


def detection(spec: DecisionSpec, row: dict[str, Any]) -> Decision:
    """The boxes that the product shows, by the names of their classes."""
    found = candidates(spec, row)
    above = found[found.scores >= spec.threshold]
    if any(np.isnan(values).any() for values in (found.scores, above.boxes, above.classes)):
        return undecided()
    if np.isinf(above.boxes).any():
        raise DecisionError(f"output {spec.boxes!r} holds an infinite box that is kept (expected finite corners). Find the layer that overflows.")
    _check_classes(spec, above.classes)
    kept = keep(spec, found)
    chosen = found[kept]
    margin = _margin(spec, found, kept)
    return Decision(
        value=named(spec, chosen.classes),
        index=tuple(int(i) for i in np.sort(kept)),
        margin=margin,
        scores=tuple(float(s) for s in np.sort(found.scores)[::-1][: max(1, min(len(kept), SCORES_SHOWN))]),
        tied=margin == 0,
        basis=chosen,
    )


def candidates(spec: DecisionSpec, row: dict[str, Any]) -> Candidates:
    """What the outputs of one input hold.

    Raises:
        DecisionError: shapes or dtypes that don't fit one another or the rule.
    """
    boxes, scores = numbers(spec.boxes, row[spec.boxes]), numbers(spec.output, row[spec.output])
    if boxes.ndim != 2 or boxes.shape[1] != 4:  # noqa: PLR2004 - four numbers make a box
        raise DecisionError(f"output {spec.boxes!r} has shape {boxes.shape} (expected n boxes of 4 numbers). Name the boxes' output.")
    if scores.ndim not in {1, 2} or len(scores) != len(boxes):
        raise DecisionError(
            f"output {spec.output!r} has shape {scores.shape} for {len(boxes)} boxes (expected a row a box). Name the scores' output."
        )
    boxes = _corners(spec, boxes)
    many = scores.shape[1] if scores.ndim > 1 else 1
    if spec.classes:
        return Candidates(boxes, _column(spec, scores), _classes(spec, row, len(boxes)))
    if spec.labels and len(spec.labels) != many:
        raise DecisionError(f"{len(spec.labels)} labels for {many} scores a box of output {spec.output!r} (expected {many}). Mend the labels.")
    return Candidates(np.repeat(boxes, many, axis=0), scores.ravel(), np.tile(np.arange(many, dtype=np.float64), len(boxes)))


def _corners(spec: DecisionSpec, boxes: Array) -> Array:
    """Corners; all of them are infinite where one number of the box is, so that no NaN comes of it that the model didn't give."""
    with np.errstate(invalid="ignore"):
        found = corners(boxes, spec.box_format)
    infinite = np.isinf(boxes).any(axis=1, keepdims=True) & ~np.isnan(boxes).any(axis=1, keepdims=True)
    return np.where(infinite, np.inf, found)


def _column(spec: DecisionSpec, scores: Array) -> Array:
    if scores.ndim > 1 and scores.shape[1] != 1:
        raise DecisionError(
            f"output {spec.output!r} has {scores.shape[1]} scores a box and output {spec.classes!r} gives the class (expected one score a box). Drop classes, or name another output."
        )
    return scores.reshape(len(scores))


def _classes(spec: DecisionSpec, row: dict[str, Any], count: int) -> Array:
    classes = numbers(spec.classes, row[spec.classes])
    if classes.size != count or len(classes) != count:
        raise DecisionError(
            f"output {spec.classes!r} has shape {classes.shape} for {count} boxes (expected a class a box). Name the classes' output."
        )
    return classes.reshape(count)


def _check_classes(spec: DecisionSpec, classes: Array) -> None:
    most = len(spec.labels) if spec.labels else math.inf
    if len(wrong := classes[(classes != np.round(classes)) | (classes < 0) | (classes >= most)]):
        known = f"0 to {len(spec.labels) - 1}, a label each" if spec.labels else "whole numbers from 0"
        raise DecisionError(f"output {spec.classes or spec.output!r} names class {wrong[0]:g} (expected {known}). Mend the labels or the output.")


def named(spec: DecisionSpec, classes: Array) -> str:
    """``2 cat, 1 dog``: how many boxes of each class, in the order of the classes."""
    counts = Counter(int(c) for c in classes)
    return value_of([f"{counts[c]} {label(spec, c)}" for c in sorted(counts)])


def keep(spec: DecisionSpec, found: Candidates) -> Array:
    """Indices of the candidates that are kept, best first."""
    order = np.argsort(-found.scores, kind="stable")
    order = order[found.scores[order] >= spec.threshold]
    if spec.nms is None:
        return order
    kept = []
    while len(order):
        first, rest = order[0], order[1:]
        kept.append(first)
        order = rest[~suppressed(spec.nms, found, first, rest)]
    return np.array(kept, dtype=np.int64)


def suppressed(nms: float, found: Candidates, by: Any, others: Array) -> Array:
    """Which of ``others`` (indices) overlap candidate ``by`` too much, and are of its class."""
    near: Array = overlap(found.boxes[by], found.boxes[others]) > nms
    rival: Array = found.classes[others] == found.classes[by]
    return np.logical_and(near, rival)


def _margin(spec: DecisionSpec, found: Candidates, kept: Array) -> float:
    """The module's ``m``; infinite where there is no candidate."""
    needed = np.maximum(spec.threshold - found.scores, 0.0)  # for one that isn't kept: by how much it misses
    if spec.nms is not None:
        everyone = np.arange(len(found.scores))
        for best in kept:
            beaten = suppressed(spec.nms, found, best, everyone)
            lead = (found.scores[best] - found.scores) / 2
            needed = np.where(beaten, np.maximum(needed, lead), needed)
    needed[kept] = found.scores[kept] - spec.threshold
    return float(needed.min(initial=math.inf))


def same_boxes(spec: DecisionSpec, ours: Candidates, theirs: Candidates) -> bool:
    """Whether the boxes of every class match one to one."""
    classes = set(ours.classes.tolist()) | set(theirs.classes.tolist())
    return all(one_to_one(ours.boxes[ours.classes == c], theirs.boxes[theirs.classes == c], spec.iou) for c in classes)

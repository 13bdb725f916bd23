"""Boxes: their overlap, and whether two sets of them are one. Pure numpy."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

FORMATS = ("xyxy", "xywh", "center_xywh")
"""Two corners; the left upper corner and a size; the centre and a size."""


def corners(boxes: Array, box_format: str) -> Array:
    """Boxes ``(n, 4)`` of a format as ``x1, y1, x2, y2``."""
    if box_format == "xyxy":
        return boxes
    start = boxes[:, :2] - (boxes[:, 2:] / 2 if box_format == "center_xywh" else 0.0)
    return np.concatenate([start, start + boxes[:, 2:]], axis=1)


def overlap(box: Array, others: Array) -> Array:
    """Intersection over union of one box ``(4,)`` with each of ``(n, 4)``; 1 for a box of the same corners, even one without area."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        shared = np.prod(np.maximum(high - low, 0.0), axis=1)
        union = _area(box[np.newaxis]) + _area(others) - shared
        ratio = np.where((union > 0) & np.isfinite(union), shared / union, 0.0)
    return np.where((others == box).all(axis=1), 1.0, ratio)


def _area(boxes: Array) -> Any:
    return np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0.0), axis=1)


def one_to_one(ours: Array, theirs: Array, least: float) -> bool:
    """Whether the boxes of two sets can be paired so that the two of each pair overlap by ``least`` or more.

    Exact: where any such pairing exists it is found, by augmenting paths (Berge 1957); taking the best partner for one box after another would
    miss some.
    """
    if len(ours) != len(theirs):
        return False
    partners = []
    for box in ours:
        found = overlap(box, theirs)
        near = np.flatnonzero(found >= least)
        partners.append(near[np.argsort(-found[near], kind="stable")].tolist())
    return _pairs_all(partners, len(theirs))


def _pairs_all(partners: list[list[int]], count: int) -> bool:
    """Whether every one on the left gets a partner of its own from its list."""
    owner, given = [-1] * count, [-1] * len(partners)
    return all(_augment(start, partners, owner, given) for start in range(len(partners)))


def _augment(start: int, partners: list[list[int]], owner: list[int], given: list[int]) -> bool:
    """Find a partner for ``start``, moving others to another of theirs where that helps."""
    reached: dict[int, int] = {}
    waiting = deque([start])
    while waiting:
        left = waiting.popleft()
        for right in partners[left]:
            if right in reached:
                continue
            reached[right] = left
            if owner[right] >= 0:
                waiting.append(owner[right])
                continue
            _pass_on(right, reached, owner, given)
            return True
    return False


def _pass_on(right: int, reached: dict[int, int], owner: list[int], given: list[int]) -> None:
    """Back along the path: each on the left takes the one that it reached, and gives up its former partner to the one before."""
    while right >= 0:
        left = reached[right]
        former = given[left]
        owner[right], given[left] = left, right
        right = former

"""Whether boxes that a target keeps or drops otherwise merely break a tie of the reference's scores. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.decisions import DecisionError
from kpipe_stages.decisions.boxes import overlap
from kpipe_stages.decisions.detecting import Candidates, candidates, keep

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe_stages.protocol import DecisionSpec

    Near = Callable[..., Any]

EDGE = 2.0**-20
"""8 float32 spacings of an overlap, which is at most 1."""


def boxes_tie(spec: DecisionSpec, reference: dict[str, Any], target: dict[str, Any], near: Near) -> bool:
    """Whether the reference's own scores allow the candidates that the target keeps.

    They do where each of them is within the band of the threshold or above; no two of one class overlap too much; every other one is within the
    band of the threshold or below, or one that is kept suppresses it with a score that isn't below its own by more than the band. The boxes and
    classes that the target gives them have to be the reference's: a box that moved too far excuses nothing.

    Args:
        spec: the rule.
        reference: the reference's outputs on one input, by name.
        target: the target's.
        near: the band around numbers of given sizes.
    """
    try:
        ours, theirs = candidates(spec, reference), candidates(spec, target)
    except DecisionError:
        return False
    if ours.scores.shape != theirs.scores.shape or not (_readable(ours) and _readable(theirs)):
        return False
    chosen = keep(spec, theirs)
    moved = any(ours.classes[i] != theirs.classes[i] or overlap(ours.boxes[i], theirs.boxes[i : i + 1])[0] < spec.iou - EDGE for i in chosen.tolist())
    low = spec.threshold - near(ours.scores, spec.threshold)
    high = spec.threshold + near(ours.scores, spec.threshold)
    return bool(not moved and (ours.scores[chosen] >= low[chosen]).all() and _others_stay_out(spec, ours, chosen, ours.scores <= high, near))


def _readable(found: Candidates) -> bool:
    return not np.isnan(found.scores).any() and bool(np.isfinite(found.boxes).all() and np.isfinite(found.classes).all())


def _others_stay_out(spec: DecisionSpec, ours: Candidates, chosen: Any, out: Any, near: Near) -> bool:
    """Whether everything that isn't chosen may be out, and nothing that is chosen has to be; ``out``: too low to be kept."""
    inside = np.zeros(len(ours.scores), dtype=bool)
    inside[chosen] = True
    out = out | inside
    if spec.nms is None:
        return bool(out.all())
    for best in chosen.tolist():
        covered = overlap(ours.boxes[best], ours.boxes)
        rival = ours.classes == ours.classes[best]
        rival[best] = False
        if (inside & rival & (covered > spec.nms + EDGE)).any():
            return False
        beats = ours.scores[best] >= ours.scores - near(ours.scores, ours.scores[best])
        out = out | (rival & (covered > spec.nms - EDGE) & beats)
    return bool(out.all())

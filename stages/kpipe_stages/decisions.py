"""From scores to the decision that a product takes, with its margin: how far the scores are from another decision.

Pure numpy. Two decisions are the same when their ``value`` is the same. Margins are in output units and are infinity-norm distances:

- ``argmax``: ``m = s(1) - s(2)``, the gap between the two best scores. No other class can win while every score moves by less than
  ``m / 2``. Among equal scores the lowest index wins, and the decision is ``tied``.
- ``threshold``: ``m = min |s - t|``; positive where ``s >= t``. Nothing changes while every score moves by less than ``m``.
- ``top_k``: the k best in order; ``m = min (s(i) - s(i+1))`` over ``i = 1 .. min(k, n - 1)``. Neither the set nor its order changes
  while every score moves by less than ``m / 2``.

Outputs with more than one axis (a class map, a mask) are decided position by position along the last axis; the decision is the whole
map, named by a digest, and its margin the smallest of any position. NaN in the scores is the decision ``undecided``, never a class.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kpipe_stages.protocol import DecisionSpec

Array = np.ndarray[Any, np.dtype[Any]]

RULES = ("argmax", "threshold", "top_k")
UNDECIDED = "undecided"
NOTHING = "(none)"
"""No class reached the threshold."""
_RESERVED = (UNDECIDED, NOTHING, "")
_SEPARATOR = ", "


class DecisionError(ValueError):
    """The rule can't be used on these scores."""


@dataclass(frozen=True)
class Decision:
    """One decision on one input's scores."""

    value: str
    """What the product is told; `UNDECIDED` where a score is NaN. Equal values are equal decisions."""
    index: int | tuple[int, ...]
    """Class index, or class indices (threshold on several classes: those at or above it; top_k: best first); -1 where undecided or a map."""
    margin: float
    """Distance to another decision, in output units; NaN where undecided."""
    scores: tuple[float, ...]
    """The scores that decided: the two best, the score, or the k + 1 best. Empty for a map."""
    tied: bool
    """The scores alone don't decide: equal ones, or one exactly at the threshold."""


def check_decision(spec: DecisionSpec) -> list[str]:
    """Say what is wrong with a rule, before there are scores; empty when nothing is."""
    problems = []
    if spec.rule not in RULES:
        problems.append(f"rule = {spec.rule!r} (expected one of {', '.join(RULES)}). Mend the rule.")
    if spec.k < 1:
        problems.append(f"k = {spec.k} (expected 1 or more). Mend k.")
    if not math.isfinite(spec.threshold):
        problems.append(f"threshold = {spec.threshold} (expected a finite number). Mend the threshold.")
    if len(set(spec.labels)) != len(spec.labels):
        twice = next(label for label in spec.labels if spec.labels.count(label) > 1)
        problems.append(f"label {twice!r} stands twice (expected a label for each class). Give each class its own.")
    if unusable := [label for label in spec.labels if label in _RESERVED or (_SEPARATOR in label and spec.rule != "argmax")]:
        problems.append(f"label {unusable[0]!r} (expected text without {_SEPARATOR!r}, neither {UNDECIDED!r} nor {NOTHING!r}). Rename it.")
    return problems


def value_of(names: Sequence[str]) -> str:
    """The ``value`` of a decision for these classes, in this order; also what a manifest's list of names stands for."""
    return _SEPARATOR.join(names) or NOTHING


def decide(spec: DecisionSpec, row: Any) -> Decision:
    """Decide on one input's output (without a batch axis).

    Raises:
        DecisionError: the output's shape or dtype doesn't suit the rule, or the labels don't suit the number of classes.
    """
    scores = _scores(spec, row)
    if scores.ndim > 1:
        return _decide_map(spec, scores)
    if np.isnan(scores).any():
        return Decision(UNDECIDED, -1, math.nan, (), tied=False)
    return _FLAT[spec.rule](spec, scores)


def decide_rows(spec: DecisionSpec, rows: Iterable[Any]) -> list[Decision]:
    """Decide on each row. The same as `decide` row by row; rows may differ in shape."""
    return [decide(spec, row) for row in rows]


def _scores(spec: DecisionSpec, row: Any) -> Array:
    """The output as scores of rank 1 or more, float64 (exact for float32 and float16)."""
    array = np.asarray(row)
    if array.dtype.kind not in "biuf":
        raise DecisionError(f"output {spec.output!r} holds {array.dtype.name} values (expected numbers). Name another output for the decision.")
    if array.size == 0:
        raise DecisionError(f"output {spec.output!r} has shape {array.shape}, no scores (expected some). Name another output for the decision.")
    if array.dtype.name in ("int64", "uint64") and np.any(array.astype(np.float64).astype(array.dtype) != array):
        raise DecisionError(f"output {spec.output!r} holds integers beyond 2**53 (expected scores). Name another output for the decision.")
    scores = array.astype(np.float64, copy=False)
    scores = scores.reshape(1) if scores.ndim == 0 else scores
    _check_classes(spec, scores.shape[-1])
    return scores


def _check_classes(spec: DecisionSpec, classes: int) -> None:
    if spec.rule != "threshold" and classes == 1:
        raise DecisionError(
            f"{spec.rule} over the one score of output {spec.output!r} decides nothing (expected two classes or more). Use threshold."
        )
    if spec.rule == "top_k" and not 1 <= spec.k <= classes:
        raise DecisionError(f"k = {spec.k} with {classes} classes (expected 1 to {classes}). Mend k.")
    wanted = 2 if spec.rule == "threshold" and classes == 1 else classes
    if spec.labels and len(spec.labels) != wanted:
        raise DecisionError(f"{len(spec.labels)} labels for {classes} scores of output {spec.output!r} (expected {wanted}). Mend the labels.")


def _label(spec: DecisionSpec, index: int) -> str:
    return spec.labels[index] if spec.labels else str(index)


def _gap(high: float, low: float) -> float:
    return 0.0 if high == low else high - low  # infinity less infinity would be NaN


def _argmax(spec: DecisionSpec, scores: Array) -> Decision:
    top = int(scores.argmax())
    best = float(scores[top])
    second = max(float(scores[:top].max(initial=-math.inf)), float(scores[top + 1 :].max(initial=-math.inf)))
    return Decision(_label(spec, top), top, _gap(best, second), (best, second), tied=best == second)


def _threshold(spec: DecisionSpec, scores: Array) -> Decision:
    above = scores >= spec.threshold
    distance = np.abs(scores - spec.threshold)
    margin = float(distance.min())
    if len(scores) == 1:
        index = int(above[0])
        return Decision(_label(spec, index), index, margin, (float(scores[0]),), tied=margin == 0)
    chosen = tuple(int(i) for i in np.flatnonzero(above))
    value = value_of([_label(spec, i) for i in chosen])
    return Decision(value, chosen, margin, tuple(float(s) for s in scores), tied=margin == 0)


def _top_k(spec: DecisionSpec, scores: Array) -> Decision:
    order = np.argsort(-scores, kind="stable")[: spec.k + 1]
    best = [float(scores[i]) for i in order]
    margin = min(_gap(high, low) for high, low in itertools.pairwise(best))
    chosen = tuple(int(i) for i in order[: spec.k])
    return Decision(value_of([_label(spec, i) for i in chosen]), chosen, margin, tuple(best), tied=margin == 0)


_FLAT: dict[str, Callable[[DecisionSpec, Array], Decision]] = {"argmax": _argmax, "threshold": _threshold, "top_k": _top_k}


def _smallest_gap(best: Array) -> float:
    """The smallest gap between neighbours along the last axis, which falls."""
    with np.errstate(invalid="ignore"):  # infinity less infinity: equal, so no gap
        return float(np.where(best[..., :-1] == best[..., 1:], 0.0, best[..., :-1] - best[..., 1:]).min())


def _decide_map(spec: DecisionSpec, scores: Array) -> Decision:
    if np.isnan(scores).any():
        return Decision(UNDECIDED, -1, math.nan, (), tied=False)
    if spec.rule == "threshold":
        chosen: Array = scores >= spec.threshold
        margin = float(np.abs(scores - spec.threshold).min())
    elif spec.rule == "argmax":
        chosen = scores.argmax(axis=-1)
        margin = _smallest_gap(np.partition(scores, -2, axis=-1)[..., :-3:-1])
    else:
        order = np.argsort(-scores, axis=-1, kind="stable")
        margin = _smallest_gap(np.take_along_axis(scores, order[..., : spec.k + 1], axis=-1))
        chosen = order[..., : spec.k]
    digest = hashlib.sha256(repr(chosen.shape).encode() + np.ascontiguousarray(chosen).astype("<i4").tobytes())
    return Decision(f"map {digest.hexdigest()[:16]}", -1, margin, (), tied=margin == 0)

"""What can be wrong with a rule before there are scores."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from kpipe_stages.decisions.boxes import FORMATS
from kpipe_stages.decisions.common import NOTHING, RESERVED, SEPARATOR, UNDECIDED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kpipe_stages.protocol import DecisionSpec

REQUIRED: dict[str, tuple[str, ...]] = {
    "argmax": (),
    "threshold": (),
    "multilabel": (),
    "top_k": (),
    "ranking": (),
    "bins": ("edges",),
    "tolerance": ("atol", "rtol"),
    "detection": ("boxes", "scores"),
}
"""Rule to the keys that it can't do without."""

OPTIONAL: dict[str, tuple[str, ...]] = {
    "argmax": ("output", "labels"),
    "threshold": ("output", "labels", "threshold"),
    "multilabel": ("output", "labels", "threshold"),
    "top_k": ("output", "labels", "k", "ordered"),
    "ranking": ("output", "labels", "k"),
    "bins": ("output", "labels"),
    "tolerance": ("output",),
    "detection": ("classes", "labels", "threshold", "box_format", "iou", "nms"),
}
"""Rule to the other keys that mean something to it."""

RULES = tuple(REQUIRED)


def check_keys(rule: str, keys: Iterable[str]) -> list[str]:
    """Say which keys of a rule's table mean nothing to it, and which are missing; empty when all is well."""
    given = [key for key in keys if key != "rule"]
    known = (*REQUIRED[rule], *OPTIONAL[rule])
    problems = [f"{key} means nothing to rule = {rule!r} (it knows {', '.join(known)}). Drop it." for key in given if key not in known]
    missing = [key for key in REQUIRED[rule] if key not in given]
    return problems + [f"rule = {rule!r} needs {key}. Give it." for key in missing]


def check_decision(spec: DecisionSpec) -> list[str]:
    """Say what is wrong with a rule, before there are scores; empty when nothing is."""
    if spec.rule not in RULES:
        return [f"rule = {spec.rule!r} (expected one of {', '.join(RULES)}). Mend the rule."]
    return [*_check_numbers(spec), *_check_bins(spec), *_check_allowance(spec), *_check_detection(spec), *_check_labels(spec)]


def _check_numbers(spec: DecisionSpec) -> Iterator[str]:
    if spec.k < (0 if spec.rule == "ranking" else 1):
        yield f"k = {spec.k} (expected 1 or more). Mend k."
    limits = spec.threshold if isinstance(spec.threshold, tuple) else (spec.threshold,)
    if not limits or not all(math.isfinite(limit) for limit in limits):
        yield f"threshold = {spec.threshold} (expected a finite number, or one for each class). Mend the threshold."


def _check_bins(spec: DecisionSpec) -> Iterator[str]:
    if spec.rule != "bins":
        return
    rising = all(math.isfinite(edge) for edge in spec.edges) and all(low < high for low, high in itertools.pairwise(spec.edges))
    if not spec.edges or not rising:
        yield f"edges = {list(spec.edges)} (expected one finite number or more, rising). Mend the edges."
    if spec.labels and len(spec.labels) != len(spec.edges) + 1:
        yield f"{len(spec.labels)} labels for {len(spec.edges)} edges (expected {len(spec.edges) + 1}, a label for each bin). Mend the labels."


def _check_allowance(spec: DecisionSpec) -> Iterator[str]:
    if spec.rule != "tolerance":
        return
    if not all(math.isfinite(value) and value >= 0 for value in (spec.atol, spec.rtol)):
        yield f"atol = {spec.atol}, rtol = {spec.rtol} (expected finite numbers, 0 or more). Mend them."
    elif spec.atol == 0 == spec.rtol:
        yield "atol = 0 and rtol = 0 allow no difference at all (expected one of them above 0). Say what the product's user would not notice."


def _check_detection(spec: DecisionSpec) -> Iterator[str]:
    if spec.rule != "detection":
        return
    if isinstance(spec.threshold, tuple):
        yield f"threshold = {list(spec.threshold)} (expected one number for all boxes). Mend the threshold."
    if not 0 < spec.iou <= 1 or not (spec.nms is None or 0 < spec.nms <= 1):
        yield f"iou = {spec.iou}, nms = {spec.nms} (expected overlaps above 0, at most 1). Mend them."
    if spec.box_format not in FORMATS:
        yield f"box_format = {spec.box_format!r} (expected one of {', '.join(FORMATS)}). Mend it."
    if len({spec.output, spec.boxes, spec.classes}) < 3:  # noqa: PLR2004 - three roles
        yield f"scores = {spec.output!r}, boxes = {spec.boxes!r}, classes = {spec.classes!r} (expected an output of its own for each). Name them."


def _check_labels(spec: DecisionSpec) -> Iterator[str]:
    if len(set(spec.labels)) != len(spec.labels):
        twice = next(label for label in spec.labels if spec.labels.count(label) > 1)
        yield f"label {twice!r} stands twice (expected a label for each class). Give each class its own."
    if unusable := [label for label in spec.labels if label in RESERVED or (SEPARATOR in label and spec.rule != "argmax")]:
        yield f"label {unusable[0]!r} (expected text without {SEPARATOR!r}, neither {UNDECIDED!r} nor {NOTHING!r}). Rename it."

"""What can be wrong with a rule before there are scores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kpipe_stages.decisions.common import NOTHING, RESERVED, SEPARATOR, UNDECIDED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpipe_stages.protocol import DecisionSpec

RULES = ("argmax", "threshold", "top_k")


def check_decision(spec: DecisionSpec) -> list[str]:
    """Say what is wrong with a rule, before there are scores; empty when nothing is."""
    return [*_check_numbers(spec), *_check_labels(spec)]


def _check_numbers(spec: DecisionSpec) -> Iterator[str]:
    if spec.rule not in RULES:
        yield f"rule = {spec.rule!r} (expected one of {', '.join(RULES)}). Mend the rule."
    if spec.k < 1:
        yield f"k = {spec.k} (expected 1 or more). Mend k."
    if not math.isfinite(spec.threshold):
        yield f"threshold = {spec.threshold} (expected a finite number). Mend the threshold."


def _check_labels(spec: DecisionSpec) -> Iterator[str]:
    if len(set(spec.labels)) != len(spec.labels):
        twice = next(label for label in spec.labels if spec.labels.count(label) > 1)
        yield f"label {twice!r} stands twice (expected a label for each class). Give each class its own."
    if unusable := [label for label in spec.labels if label in RESERVED or (SEPARATOR in label and spec.rule != "argmax")]:
        yield f"label {unusable[0]!r} (expected text without {SEPARATOR!r}, neither {UNDECIDED!r} nor {NOTHING!r}). Rename it."

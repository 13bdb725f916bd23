"""The answer as data."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Answer(enum.StrEnum):
    """Of one target, and of the whole. None of them is a verdict: nothing is known of the trained model."""

    OK = "would convert and agree"
    FAILS = "would not"
    UNCHECKED = "unchecked"


@dataclass(frozen=True)
class Problem:
    """One thing that stands in the way, and three ways out."""

    target: str
    """Empty where it is about the model itself."""
    code: str
    error: bool
    layer: str
    layer_class: str
    ops: tuple[str, ...]
    cause: str
    ways: tuple[str, ...]


@dataclass(frozen=True)
class TargetAnswer:
    """One target."""

    name: str
    title: str
    required: bool
    answer: Answer
    drift: float | None
    """Largest difference over the output's scale; None where nothing was compared."""
    ops: dict[str, int]
    batch: int | None
    """The artifact's fixed batch size."""
    size: int | None


@dataclass(frozen=True)
class Preflight:
    """All of it."""

    model: str
    parameters: int
    answer: Answer
    targets: tuple[TargetAnswer, ...]
    problems: tuple[Problem, ...]
    seconds: float
    report: str
    """The page of the validation behind it."""

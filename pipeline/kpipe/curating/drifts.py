"""What the reference decided on each raw file, by how much, and how far targets are from it. Pure, over saved outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpipe.errors import UsageError
from kpipe.judging.answers import ALONE, Answers
from kpipe.judging.compare import Problem, compare
from kpipe.judging.ruled import Ruled
from kpipe.record import Tolerance
from kpipe_stages.decisions import UNDECIDED, Decision, DecisionError, same

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe_stages.protocol import DecisionSpec

SCALE = Tolerance(rtol=0.0, atol=1.0, source="mining")
"""No judgement: drifts are ranked by their share of the output's scale."""

APART = (Problem.SHAPE, Problem.DTYPE, Problem.NONFINITE)
"""Rows that can't be put into a number: as far apart as can be."""


@dataclass(frozen=True)
class FileAnswer:
    """What was made of one raw file."""

    decision: str | None
    """The reference's; None where there is no rule."""
    margin: float | None
    """In output units; None where there is no rule, NaN where it is undecided."""
    tied: bool
    """The reference's own scores leave the decision open."""
    flipped: tuple[str, ...]
    """Targets that decide otherwise."""
    drift: float
    """The largest difference of any target and output, over the scale of the reference's output; infinite where they can't be compared."""
    drift_on: str
    """The target that it is on; empty where none was asked or none differs."""

    @property
    def undecided(self) -> bool:
        """NaN among the scores."""
        return self.decision == UNDECIDED


def read_answers(reference: Answers, targets: Mapping[str, Answers], spec: DecisionSpec | None) -> list[FileAnswer]:
    """One `FileAnswer` a row, in order.

    Raises:
        UsageError: the decision rule can't be used on the outputs.
    """
    count = len(reference.rows(ALONE, reference.outputs[0]))
    decisions = _decisions(reference, spec)
    ties = Ruled(spec, tuple(decisions)) if spec is not None and decisions is not None else None
    flips: list[list[str]] = [[] for _ in range(count)]
    drifts: list[tuple[float, str]] = [(0.0, "")] * count
    for name, answers in targets.items():
        others = _decisions(answers, spec)
        for row in range(count):
            if spec is not None and decisions is not None and others is not None and not same(spec, decisions[row], others[row]):
                flips[row].append(name)
        drifts = [max(known, (drift, name), key=lambda pair: pair[0]) for known, drift in zip(drifts, _drifts(reference, answers), strict=True)]
    return [
        FileAnswer(
            decision=decisions[row].value if decisions is not None else None,
            margin=decisions[row].margin if decisions is not None else None,
            tied=ties is not None and decisions is not None and decisions[row].value != UNDECIDED and ties.tied(row),
            flipped=tuple(flips[row]),
            drift=drifts[row][0],
            drift_on=drifts[row][1],
        )
        for row in range(count)
    ]


def _decisions(answers: Answers, spec: DecisionSpec | None) -> list[Decision] | None:
    if spec is None:
        return None
    try:
        return answers.decisions(spec, ALONE)
    except DecisionError as error:
        raise UsageError(f"the decision rule can't be used on the model's outputs: {error}") from error


def _drifts(reference: Answers, target: Answers) -> list[float]:
    """The largest drift of any output, row by row."""
    worst: list[float] = []
    for output in reference.outputs:
        known, other = reference.rows(ALONE, output), target.rows(ALONE, output)
        found = [_number(d.problem, d.max_rel) for d in compare(known, other, SCALE, frozenset({other.dtype}))]
        worst = [max(pair) for pair in zip(worst, found, strict=True)] if worst else found
    return worst


def _number(problem: Problem, share: float) -> float:
    return math.inf if problem in APART or math.isnan(share) else share

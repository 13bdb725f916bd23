"""From scores to the decision that a product takes, with its margin: how far the scores are from another decision.

Pure numpy. Margins are in output units and are infinity-norm distances; each rule's stands in its module: `best` for rules that rank
scores, `borders` for those that hold a score against a border, `regression` for numbers, `detecting` for boxes. `same` says whether two
decisions are one.

Outputs with more than one axis (a class map, a mask) are decided position by position along the last axis; the decision is the whole
map, named by a digest, and its margin the smallest of any position. NaN in the scores is the decision ``undecided``, never a class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kpipe_stages.decisions import detecting, regression
from kpipe_stages.decisions.best import argmax, argmax_block, ranking, top_k
from kpipe_stages.decisions.borders import bins, threshold
from kpipe_stages.decisions.checking import RULES, check_decision, check_keys
from kpipe_stages.decisions.common import NOTHING, SEPARATOR, UNDECIDED, Decision, DecisionError, NoDecisionError, value_of
from kpipe_stages.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kpipe_stages.protocol import DecisionSpec

__all__ = [
    "NOTHING",
    "RULES",
    "UNDECIDED",
    "Decision",
    "DecisionError",
    "NoDecisionError",
    "approves",
    "check_decision",
    "check_keys",
    "decide",
    "decide_rows",
    "moves_within",
    "outputs_of",
    "runs_code",
    "same",
    "value_of",
]

_DECIDE: dict[str, Callable[[DecisionSpec, Any], Decision]] = {
    "argmax": argmax,
    "threshold": threshold,
    "multilabel": threshold,
    "top_k": top_k,
    "ranking": ranking,
    "bins": bins,
    "tolerance": regression.tolerance,
    "detection": detecting.detection,
}

BLOCK = 4096
"""Rows decided together at most: bounds memory whatever their number."""

_TO_A_BORDER = ("threshold", "multilabel", "bins", "tolerance", "detection")
"""Rules whose margin one score has to move by; with the others it is a gap between two scores that may both move."""


def runs_code(rule: str) -> bool:
    """Whether a rule is a function of the user's: its decisions are taken in a stage of their own (`kpipe_stages.decide`) and read back."""
    return ":" in rule


def outputs_of(spec: DecisionSpec) -> tuple[str, ...]:
    """The names of the outputs that the rule reads."""
    if runs_code(spec.rule):
        return spec.reads
    return tuple(name for name in (spec.output, spec.boxes, spec.classes) if name) or (spec.output,)


def decide(spec: DecisionSpec, row: Any) -> Decision:
    """Decide on one input's output (without a batch axis).

    Args:
        spec: the rule.
        row: the output's array; arrays by output name where `outputs_of` names several.

    Raises:
        DecisionError: the output's shape or dtype doesn't suit the rule, or the labels don't suit the number of classes.
        NoDecisionError: the rule is the user's own code, which isn't run here.
    """
    if runs_code(spec.rule):
        raise NoDecisionError(f"rule {spec.rule!r} is code of your own, and only a validation runs it")
    return _DECIDE[spec.rule](spec, row)


def decide_rows(spec: DecisionSpec, rows: Iterable[Any]) -> list[Decision]:
    """Decide on each row. The same as `decide` row by row; rows may differ in shape."""
    if spec.rule == "argmax" and isinstance(rows, Rows):
        return [decision for start in range(0, len(rows), BLOCK) for decision in _argmax_block(spec, rows, start)]
    return [decide(spec, row) for row in rows]


def _argmax_block(spec: DecisionSpec, rows: Rows, start: int) -> list[Decision]:
    """Rows of scores are decided together, which takes a tenth of the time; what isn't one row of scores an input, row by row."""
    stop = min(start + BLOCK, len(rows))
    shape = rows.common_shape(start, stop)
    if shape is None or len(shape) != 1 or not shape[0]:
        return [decide(spec, rows[index]) for index in range(start, stop)]
    return argmax_block(spec, rows.block(start, stop))


def same(spec: DecisionSpec, ours: Decision, theirs: Decision) -> bool:
    """Whether ``theirs``, a target's or a later one, is the decision ``ours`` of the reference."""
    if ours.basis is None or theirs.basis is None:  # equal text is an equal decision; `UNDECIDED` is never a number
        return ours.value == theirs.value
    if spec.rule == "detection":
        return detecting.same_boxes(spec, ours.basis, theirs.basis)
    return regression.close(spec, ours.basis, theirs.basis)


def approves(spec: DecisionSpec, expected: str, decision: Decision) -> bool:
    """Whether the text ``expected`` of a manifest approves the decision; a set may be written in any order. Of boxes it says how many of which class."""
    if spec.rule == "tolerance" and decision.basis is not None:
        return regression.approved(spec, expected, decision.basis)
    if spec.rule in {"threshold", "multilabel", "detection"} or (spec.rule == "top_k" and not spec.ordered):
        return sorted(expected.split(SEPARATOR)) == sorted(decision.value.split(SEPARATOR))
    return expected == decision.value


def moves_within(rule: str, margin: float) -> float:
    """How far every score may move before a decision with that margin can be another one, in output units."""
    return margin if rule in _TO_A_BORDER or runs_code(rule) else margin / 2

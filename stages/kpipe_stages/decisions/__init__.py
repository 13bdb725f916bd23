"""From scores to the decision that a product takes, with its margin: how far the scores are from another decision.

Pure numpy. Margins are in output units and are infinity-norm distances; each rule's stands in its module: `best` for rules that rank
scores, `borders` for those that hold a score against a border. `same` says whether two decisions are one.

Outputs with more than one axis (a class map, a mask) are decided position by position along the last axis; the decision is the whole
map, named by a digest, and its margin the smallest of any position. NaN in the scores is the decision ``undecided``, never a class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kpipe_stages.decisions.best import argmax, top_k
from kpipe_stages.decisions.borders import threshold
from kpipe_stages.decisions.checking import RULES, check_decision
from kpipe_stages.decisions.common import NOTHING, UNDECIDED, Decision, DecisionError, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kpipe_stages.protocol import DecisionSpec

__all__ = ["NOTHING", "RULES", "UNDECIDED", "Decision", "DecisionError", "check_decision", "decide", "decide_rows", "same", "value_of"]

_DECIDE: dict[str, Callable[[DecisionSpec, Any], Decision]] = {"argmax": argmax, "threshold": threshold, "top_k": top_k}


def decide(spec: DecisionSpec, row: Any) -> Decision:
    """Decide on one input's output (without a batch axis).

    Raises:
        DecisionError: the output's shape or dtype doesn't suit the rule, or the labels don't suit the number of classes.
    """
    return _DECIDE[spec.rule](spec, row)


def decide_rows(spec: DecisionSpec, rows: Iterable[Any]) -> list[Decision]:
    """Decide on each row. The same as `decide` row by row; rows may differ in shape."""
    return [decide(spec, row) for row in rows]


def same(spec: DecisionSpec, ours: Decision, theirs: Decision) -> bool:  # noqa: ARG001 - rules that come next look at it
    """Whether ``theirs`` is the decision ``ours``."""
    return ours.value == theirs.value

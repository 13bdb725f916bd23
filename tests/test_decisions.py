"""Decisions and margins: what a margin promises is tested as a property, by moving scores."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kpipe_stages.decisions import NOTHING, UNDECIDED, DecisionError, check_decision, decide, decide_rows, value_of
from kpipe_stages.protocol import DecisionSpec

ARGMAX = DecisionSpec("argmax", "y")
SCORES = hnp.arrays(np.float64, st.integers(2, 8), elements=st.floats(-10, 10, width=32))
RULES = st.sampled_from([ARGMAX, DecisionSpec("threshold", "y", threshold=0.25), DecisionSpec("top_k", "y", k=1), DecisionSpec("top_k", "y", k=2)])


def test_argmax_names_the_class_and_its_margin() -> None:
    decision = decide(DecisionSpec("argmax", "y", labels=("cat", "dog", "hen")), np.array([0.25, 0.625, 0.125], np.float32))
    assert (decision.value, decision.index, decision.margin, decision.scores, decision.tied) == ("dog", 1, 0.375, (0.625, 0.25), False)


def test_equal_scores_are_a_tie_for_the_lowest_index() -> None:
    decision = decide(ARGMAX, [0.1, 0.7, 0.7])
    assert (decision.index, decision.margin, decision.tied) == (1, 0.0, True)
    assert decide(ARGMAX, [math.inf, math.inf]).margin == 0
    assert decide(ARGMAX, [-math.inf, 1.0]).margin == math.inf


@pytest.mark.parametrize("scores", [[0.1, math.nan, 0.9], [math.nan, 1.0], [[0.1, math.nan], [1, 2]]])
@pytest.mark.parametrize("rule", ["argmax", "threshold", "top_k"])
def test_nan_is_never_a_confident_class(scores: Any, rule: str) -> None:
    decision = decide(DecisionSpec(rule, "y", labels=("a", "b", "c")[: np.shape(scores)[-1]]), scores)
    assert decision.value == UNDECIDED
    assert decision.index == -1
    assert math.isnan(decision.margin)
    assert not decision.tied


def test_threshold_on_one_score() -> None:
    spec = DecisionSpec("threshold", "y", threshold=0.5, labels=("keep", "reject"))
    assert decide(spec, np.float32(0.75)).value == "reject"
    assert decide(spec, np.array([0.25])).value == "keep"
    assert decide(spec, [0.25]).margin == 0.25
    at = decide(spec, [0.5])
    assert (at.value, at.index, at.margin, at.tied) == ("reject", 1, 0.0, True)


def test_threshold_on_several_classes() -> None:
    spec = DecisionSpec("threshold", "y", threshold=0.5, labels=("red", "green", "blue"))
    decision = decide(spec, [0.9, 0.125, 0.625])
    assert (decision.value, decision.index, decision.margin) == ("red, blue", (0, 2), 0.125)
    assert decide(spec, [0.0, 0.0, 0.0]).value == NOTHING


def test_top_k_is_ordered_and_its_margin_the_smallest_gap_that_counts() -> None:
    decision = decide(DecisionSpec("top_k", "y", k=2), [0.5, 0.0, 3.0, 0.25])
    assert (decision.value, decision.index, decision.margin) == ("2, 0", (2, 0), 0.25)
    assert decision.value == value_of(["2", "0"])
    assert decide(DecisionSpec("top_k", "y", k=2), [1.0, 4.0]).margin == 3.0
    assert decide(DecisionSpec("top_k", "y", k=2), [1.0, 1.0, 0.0]).tied


def test_maps_are_decided_position_by_position() -> None:
    scores = np.random.default_rng(0).normal(size=(3, 4, 5))
    decision = decide(ARGMAX, scores)
    best = np.sort(scores, axis=-1)
    assert decision.margin == (best[..., -1] - best[..., -2]).min()
    other = scores.copy()
    other[2, 3] = np.roll(other[2, 3], 1)
    assert decide(ARGMAX, other).value != decision.value
    assert decide(ARGMAX, scores + 1).value == decision.value
    assert decide(DecisionSpec("threshold", "y"), scores).value != decide(DecisionSpec("threshold", "y"), -scores).value
    assert decide(ARGMAX, np.zeros((2, 2, 3))).tied
    assert decide(ARGMAX, np.full((2, 3), math.inf)).margin == 0


def test_a_map_of_another_shape_is_another_decision() -> None:
    assert decide(ARGMAX, np.eye(4).reshape(4, 4)).value != decide(ARGMAX, np.eye(4).reshape(2, 2, 4)).value


@given(RULES, SCORES, st.data())
def test_scores_that_move_by_less_than_the_margin_allows_decide_the_same(spec: DecisionSpec, scores: Any, data: st.DataObject) -> None:
    decision = decide(spec, scores)
    reach = (decision.margin if spec.rule == "threshold" else decision.margin / 2) * (1 - 1e-6)
    moves = data.draw(hnp.arrays(np.float64, scores.shape, elements=st.floats(-1, 1)))
    assume(not decision.tied)
    assert decide(spec, scores + moves * reach).value == decision.value


@given(RULES, SCORES)
def test_the_margin_is_tight(spec: DecisionSpec, scores: Any) -> None:
    """A move barely beyond the margin can flip the decision: a margin that was too small would hide real flips as ties."""
    decision = decide(spec, scores)
    step = decision.margin * (1 + 1e-6) + 1e-9
    if spec.rule == "threshold":
        moved = [np.where(np.arange(len(scores)) == i, scores + sign * step, scores) for i in range(len(scores)) for sign in (-1, 1)]
    else:
        order = np.argsort(-scores, kind="stable")
        pairs = list(itertools.pairwise(order))
        moved = [scores + step / 2 * ((np.arange(len(scores)) == low) * 1.0 - (np.arange(len(scores)) == high)) for high, low in pairs]
    assert any(decide(spec, scores + (move - scores)).value != decision.value for move in moved)


@given(SCORES)
def test_argmax_and_top_1_agree(scores: Any) -> None:
    one, other = decide(ARGMAX, scores), decide(DecisionSpec("top_k", "y", k=1), scores)
    assert (one.value, one.margin, one.tied) == (other.value, other.margin, other.tied)


@given(RULES, SCORES)
def test_one_position_of_a_map_has_the_margin_of_the_row(spec: DecisionSpec, scores: Any) -> None:
    row, as_map = decide(spec, scores), decide(spec, scores[np.newaxis])
    assert (row.margin, row.tied) == (as_map.margin, as_map.tied)


@given(st.lists(SCORES, max_size=5))
def test_rows_are_decided_one_by_one(rows: list[Any]) -> None:
    assert decide_rows(ARGMAX, rows) == [decide(ARGMAX, row) for row in rows]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint8", "bool"])
def test_number_dtypes_decide_alike(dtype: str) -> None:
    decision = decide(ARGMAX, np.array([0, 1, 0]).astype(dtype))
    assert (decision.index, decision.margin) == (1, 1.0)


@pytest.mark.parametrize(
    ("spec", "scores", "message"),
    [
        (ARGMAX, [0.3], "decides nothing"),
        (ARGMAX, np.float32(1), "decides nothing"),
        (ARGMAX, np.zeros((4, 4, 1)), "decides nothing"),
        (ARGMAX, [], "no scores"),
        (ARGMAX, ["a", "b"], "expected numbers"),
        (ARGMAX, np.array([2**53 + 1, 0]), "beyond 2"),
        (DecisionSpec("top_k", "y", k=4), [1, 2, 3], "k = 4 with 3 classes"),
        (DecisionSpec("argmax", "y", labels=("a", "b")), [1, 2, 3], "2 labels for 3 scores"),
        (DecisionSpec("threshold", "y", labels=("a",)), [1], "1 labels for 1 scores"),
    ],
)
def test_a_rule_that_does_not_suit_the_output_is_refused(spec: DecisionSpec, scores: Any, message: str) -> None:
    with pytest.raises(DecisionError, match=message):
        decide(spec, scores)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (DecisionSpec("argmin", "y"), "one of argmax"),
        (DecisionSpec("top_k", "y", k=0), "1 or more"),
        (DecisionSpec("threshold", "y", threshold=math.nan), "finite"),
        (DecisionSpec("argmax", "y", labels=("a", "b", "a")), "'a' stands twice"),
        (DecisionSpec("argmax", "y", labels=("a", UNDECIDED)), "Rename"),
        (DecisionSpec("threshold", "y", labels=("a, b", "c")), "Rename"),
    ],
)
def test_a_wrong_rule_is_named_before_there_are_scores(spec: DecisionSpec, message: str) -> None:
    assert message in check_decision(spec)[0]
    assert check_decision(ARGMAX) == []

"""The rules beside argmax: what each decides, and what its margin promises, as properties."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kpipe_stages.decisions import NOTHING, UNDECIDED, DecisionError, approves, check_decision, check_keys, decide, moves_within, same
from kpipe_stages.protocol import DecisionSpec

SCORES = hnp.arrays(np.float64, st.integers(3, 8), elements=st.floats(-10, 10, width=32))
EDGES = (-2.0, 0.5, 3.0)
SPECS = [
    DecisionSpec("top_k", "y", k=2, ordered=False),
    DecisionSpec("multilabel", "y", threshold=0.25),
    DecisionSpec("bins", "y", edges=EDGES),
    DecisionSpec("tolerance", "y", atol=0.1, rtol=0.01),
    DecisionSpec("ranking", "y", k=0),
    DecisionSpec("ranking", "y", k=2),
]
RULES = st.sampled_from(SPECS)


def pushed(spec: DecisionSpec, scores: Any, step: float) -> list[Any]:
    """Every score moved up and down by ``step``; for rules about order every two scores moved towards each other by that much."""
    units = np.eye(len(scores))
    if moves_within(spec.rule, 1.0) == 1.0:
        return [scores + sign * step * unit for unit in units for sign in (-1, 1)]
    return [scores + step * (a - b) for a in units for b in units if a is not b]


@given(RULES, SCORES, st.data())
def test_no_decision_changes_within_the_margin(spec: DecisionSpec, scores: Any, data: st.DataObject) -> None:
    decision = decide(spec, scores)
    moves = data.draw(hnp.arrays(np.float64, scores.shape, elements=st.floats(-1, 1)))
    assume(not decision.tied)
    assert same(spec, decision, decide(spec, scores + moves * moves_within(spec.rule, decision.margin) * (1 - 1e-6)))


@given(RULES, SCORES)
def test_a_move_barely_beyond_the_margin_can_change_it(spec: DecisionSpec, scores: Any) -> None:
    decision = decide(spec, scores)
    step = moves_within(spec.rule, decision.margin) * (1 + 1e-6) + 1e-9
    assert any(not same(spec, decision, decide(spec, moved)) for moved in pushed(spec, scores, step))


@given(RULES, SCORES)
def test_one_position_of_a_map_has_the_margin_of_the_row(spec: DecisionSpec, scores: Any) -> None:
    row, as_map = decide(spec, scores), decide(spec, scores[np.newaxis])
    assert (row.margin, row.tied) == (as_map.margin, as_map.tied)


@given(st.sampled_from(SPECS), SCORES)
def test_a_decision_is_the_same_as_itself_and_nan_is_none(spec: DecisionSpec, scores: Any) -> None:
    assert same(spec, decide(spec, scores), decide(spec, scores.copy()))
    scores[0] = math.nan
    assert decide(spec, scores).value == UNDECIDED
    assert not same(spec, decide(spec, np.nan_to_num(scores)), decide(spec, scores))
    assert not same(spec, decide(spec, scores), decide(spec, np.nan_to_num(scores)))


def test_a_set_of_the_best_has_no_order() -> None:
    spec = DecisionSpec("top_k", "y", k=2, ordered=False, labels=("a", "b", "c", "d"))
    one, other = decide(spec, [0.5, 0.0, 3.0, 0.25]), decide(spec, [3.0, 0.0, 0.5, 0.25])
    assert (one.value, one.index, one.margin) == ("a, c", (0, 2), 0.25)
    assert same(spec, one, other)
    assert approves(spec, "c, a", one)
    assert not approves(spec, "c, b", one)
    assert not approves(spec, "a", one)
    ordered = DecisionSpec("top_k", "y", k=2, labels=spec.labels)
    assert not approves(ordered, "a, c", decide(ordered, [0.5, 0.0, 3.0, 0.25]))


def test_a_threshold_for_each_class() -> None:
    spec = DecisionSpec("threshold", "y", threshold=(0.25, 0.75), labels=("red", "blue"))
    decision = decide(spec, [0.5, 0.5])
    assert (decision.value, decision.margin) == ("red", 0.25)
    assert decide(spec, np.full((2, 2), 0.5)).margin == 0.25
    with pytest.raises(DecisionError, match="2 thresholds for 3 scores"):
        decide(DecisionSpec("threshold", "y", threshold=(0.25, 0.75)), [0.5, 0.5, 0.5])


def test_multilabel_gives_a_set_even_of_one() -> None:
    spec = DecisionSpec("multilabel", "y", threshold=0.5, labels=("rain",))
    assert (decide(spec, [0.75]).value, decide(spec, [0.25]).value) == ("rain", NOTHING)
    assert approves(spec, NOTHING, decide(spec, [0.25]))


def test_bins_take_their_lower_edge() -> None:
    spec = DecisionSpec("bins", "y", edges=EDGES, labels=("cold", "cool", "warm", "hot"))
    found = [decide(spec, np.float32(score)) for score in (-math.inf, -2.0, 0.25, 0.5, 4.0)]
    assert [d.value for d in found] == ["cold", "cool", "cool", "warm", "hot"]
    assert [d.margin for d in found] == [math.inf, 0.0, 0.25, 0.0, 1.0]
    assert [d.tied for d in found] == [False, True, False, True, False]
    assert decide(spec, [0.0, 9.0]).value == "cool, hot"


def test_a_number_is_the_same_within_its_allowance_of_the_reference() -> None:
    spec = DecisionSpec("tolerance", "y", atol=0.5, rtol=0.1)
    ours = decide(spec, [10.0])
    assert (ours.value, ours.margin) == ("10", 1.5)
    assert same(spec, ours, decide(spec, [11.5]))
    assert not same(spec, ours, decide(spec, [11.51]))
    assert not same(spec, ours, decide(spec, [math.nan]))
    assert not same(spec, ours, decide(spec, [10.0, 10.0]))
    assert not same(spec, ours, decide(spec, [math.inf]))
    infinite = decide(spec, [math.inf])
    assert same(spec, infinite, decide(spec, [math.inf]))
    assert not same(spec, infinite, decide(spec, [-math.inf]))
    assert not same(spec, infinite, ours)


def test_an_approved_number_is_read_as_one() -> None:
    spec = DecisionSpec("tolerance", "y", atol=0.5, rtol=0.0)
    assert approves(spec, "10.25", decide(spec, 10.0))
    assert not approves(spec, "10.75", decide(spec, 10.0))
    assert approves(spec, "1, 2", decide(spec, [[1.0, 2.25]]))
    assert not approves(spec, "1", decide(spec, [1.0, 1.0]))
    assert not any(approves(spec, text, decide(spec, 10.0)) for text in ("ten", "", "nan", UNDECIDED, "10, 10"))


def test_a_long_ranking_is_named_by_a_digest() -> None:
    spec = DecisionSpec("ranking", "y", k=0)
    scores = np.linspace(1, 0, 30)
    swapped = scores.copy()
    swapped[[28, 29]] = swapped[[29, 28]]
    assert decide(spec, scores).value.startswith("order ")
    assert not same(spec, decide(spec, scores), decide(spec, swapped))
    assert decide(DecisionSpec("ranking", "y", k=3), scores).value == "0, 1, 2"


@pytest.mark.parametrize(
    ("spec", "scores", "message"),
    [
        (DecisionSpec("top_k", "y", k=3, ordered=False), [1, 2, 3], "expected 1 to 2"),
        (DecisionSpec("ranking", "y", k=4), [1, 2, 3], "k = 4 with 3 classes"),
        (DecisionSpec("ranking", "y", k=0), [1], "decides nothing"),
        (DecisionSpec("tolerance", "y", atol=1), [], "no scores"),
        (DecisionSpec("bins", "y", edges=(1.0,)), ["a"], "expected numbers"),
        (DecisionSpec("multilabel", "y", labels=("a", "b")), [1], "2 labels for 1 scores"),
    ],
)
def test_a_rule_that_does_not_suit_the_output_is_refused(spec: DecisionSpec, scores: Any, message: str) -> None:
    with pytest.raises(DecisionError, match=message):
        decide(spec, scores)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (DecisionSpec("bins", "y", edges=(1.0, 1.0)), "rising"),
        (DecisionSpec("bins", "y", edges=(1.0,), labels=("a",)), "expected 2"),
        (DecisionSpec("tolerance", "y", atol=math.inf), "finite"),
        (DecisionSpec("tolerance", "y"), "no difference at all"),
        (DecisionSpec("multilabel", "y", threshold=()), "one for each class"),
        (DecisionSpec("threshold", "y", threshold=(0.5, math.nan)), "finite"),
        (DecisionSpec("ranking", "y", k=-1), "1 or more"),
    ],
)
def test_a_wrong_rule_is_named_before_there_are_scores(spec: DecisionSpec, message: str) -> None:
    assert message in check_decision(spec)[0]


def test_keys_of_other_rules_are_refused() -> None:
    assert check_keys("top_k", ["rule", "output", "labels", "k", "ordered"]) == []
    assert check_keys("bins", ["rule", "k"]) == [
        "k means nothing to rule = 'bins' (it knows edges, output, labels). Drop it.",
        "rule = 'bins' needs edges. Give it.",
    ]

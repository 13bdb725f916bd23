"""Detections: which boxes are kept, when two sets of them are one, and what the margin promises."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kpipe.judging.ties import breaks_tie
from kpipe_stages.decisions import NOTHING, UNDECIDED, DecisionError, approves, check_decision, decide, outputs_of, same
from kpipe_stages.decisions.boxes import corners, one_to_one, overlap
from kpipe_stages.protocol import DecisionSpec

SPEC = DecisionSpec("detection", "s", threshold=0.5, boxes="b", classes="c", labels=("cat", "dog"))
NMS = replace(SPEC, nms=0.25)
ULP = 2.0**-23


def row(boxes: Any, scores: Any, classes: Any) -> dict[str, Any]:
    return {"b": np.array(boxes, np.float64).reshape(-1, 4), "s": np.array(scores, np.float64), "c": np.array(classes)}


def square(x: float, y: float = 0.0, side: float = 10.0) -> list[float]:
    return [x, y, x + side, y + side]


THREE = row([square(0), square(50), square(100)], [0.9, 0.75, 0.25], [0, 1, 0])
coordinates = st.integers(0, 12)
box = st.tuples(coordinates, coordinates, st.integers(1, 8), st.integers(1, 8)).map(lambda b: [b[0], b[1], b[0] + b[2], b[1] + b[3]])
detections = st.lists(st.tuples(box, st.floats(0, 1, width=16), st.integers(0, 1)), min_size=1, max_size=7).map(
    lambda found: row([b for b, _, _ in found], [s for _, s, _ in found], [c for _, _, c in found])
)
specs = st.sampled_from([SPEC, NMS, replace(SPEC, nms=0.6)])


# ---------------------------------------------------------------- overlap and pairing


def test_overlap_is_intersection_over_union() -> None:
    one = np.array(square(0), np.float64)
    others = np.array([square(0), square(5), square(10), square(20), [0, 0, 5, 5], [5, 5, 5, 5], [10, 10, 0, 0]], np.float64)
    assert overlap(one, others).tolist() == [1.0, 50 / 150, 0.0, 0.0, 0.25, 0.0, 0.0]
    flat = np.array([5.0, 5.0, 5.0, 5.0])
    assert overlap(flat, np.array([flat, one])).tolist() == [1.0, 0.0]
    assert overlap(np.array([0, 0, 1e300, 1e300]), np.array([[0, 0, 1e300, 2e300]])).tolist() == [0.0]


@given(box, box, st.sampled_from([(0, 0), (3, 1)]))
def test_overlap_is_symmetric_and_moves_with_both(one: Any, other: Any, by: Any) -> None:
    a, b, move = np.array(one, np.float64), np.array(other, np.float64), np.array([*by, *by], np.float64)
    assert overlap(a, b[np.newaxis]) == overlap(b, a[np.newaxis]) == overlap(a + move, b[np.newaxis] + move)


def test_formats_name_the_same_box() -> None:
    assert corners(np.array([[1.0, 2.0, 4.0, 6.0]]), "xywh").tolist() == [[1, 2, 5, 8]]
    assert corners(np.array([[3.0, 5.0, 4.0, 6.0]]), "center_xywh").tolist() == [[1, 2, 5, 8]]
    assert corners(np.array([[1.0, 2.0, 5.0, 8.0]]), "xyxy").tolist() == [[1, 2, 5, 8]]


def test_pairing_gives_way_where_the_best_partner_is_needed_elsewhere() -> None:
    """Taking the best partner one after another would leave the second box without one."""
    ours = np.array([[0, 0, 10, 10], [4, 0, 14, 10]], np.float64)
    theirs = np.array([[1, 0, 11, 10], [-5, 0, 5, 10]], np.float64)
    assert overlap(ours[0], theirs).argmax() == 0
    assert one_to_one(ours, theirs, 0.33)
    assert not one_to_one(ours, theirs, 0.4)
    assert not one_to_one(ours, theirs[:1], 0.1)
    assert one_to_one(ours[:0], theirs[:0], 0.5)


@given(st.lists(box, max_size=5), st.lists(box, max_size=5), st.sampled_from([0.2, 0.5, 0.9]))
def test_pairing_finds_what_trying_every_order_finds(ours: Any, theirs: Any, least: float) -> None:
    a, b = np.array(ours, np.float64).reshape(-1, 4), np.array(theirs, np.float64).reshape(-1, 4)
    tried = (
        any(all(overlap(x, y[np.newaxis])[0] >= least for x, y in zip(a, order, strict=True)) for order in itertools.permutations(b))
        if len(a) == len(b)
        else False
    )
    assert one_to_one(a, b, least) == tried


# ---------------------------------------------------------------- the decision


def test_what_is_kept_is_told_by_class() -> None:
    decision = decide(SPEC, THREE)
    assert (decision.value, decision.index, decision.margin, decision.tied) == ("1 cat, 1 dog", (0, 1), 0.25, False)
    assert outputs_of(SPEC) == ("s", "b", "c")
    assert approves(SPEC, "1 dog, 1 cat", decision)
    assert not approves(SPEC, "1 cat", decision)
    nothing = decide(replace(SPEC, threshold=0.95), THREE)
    assert nothing.value == NOTHING
    assert nothing.margin == pytest.approx(0.05)
    empty = decide(SPEC, row([], [], []))
    assert (empty.value, empty.margin) == (NOTHING, math.inf)
    assert same(SPEC, empty, empty)
    assert not same(SPEC, empty, decision)
    assert not same(SPEC, decision, empty)


def test_a_column_a_class_makes_every_box_a_candidate_of_every_class() -> None:
    spec = DecisionSpec("detection", "s", boxes="b", labels=("cat", "dog"))
    given_ = {"b": np.array([square(0), square(50)]), "s": np.array([[0.9, 0.75], [0.1, 0.2]])}
    assert decide(spec, given_).value == "1 cat, 1 dog"
    one = {"b": given_["b"], "s": np.array([[0.9], [0.8]])}
    assert decide(replace(spec, labels=("cat",)), one).value == "2 cat"
    assert decide(replace(spec, labels=("cat",)), one | {"s": np.array([0.9, 0.8])}).value == "2 cat"


def test_the_best_of_overlapping_boxes_of_a_class_is_kept() -> None:
    found = row([square(0), square(2), square(4), square(2)], [0.9, 0.8, 0.7, 0.75], [0, 0, 0, 1])
    assert decide(replace(NMS, nms=0.5), found).index == (0, 2, 3)  # the third overlaps the first by 60 / 140
    assert decide(NMS, found).index == (0, 3)
    assert decide(SPEC, found).index == (0, 1, 2, 3)
    assert decide(replace(NMS, nms=0.5), found).margin == pytest.approx(0.05)


def test_boxes_are_the_same_while_they_overlap_and_are_of_one_class() -> None:
    ours = decide(SPEC, THREE)
    moved = row([square(3), square(50), square(100)], [0.9, 0.75, 0.25], [0, 1, 0])
    assert same(SPEC, ours, decide(SPEC, moved))  # 70 / 130
    assert not same(replace(SPEC, iou=0.6), ours, decide(replace(SPEC, iou=0.6), moved))
    assert not same(SPEC, ours, decide(SPEC, row(THREE["b"], THREE["s"], [1, 1, 0])))
    swapped = row(THREE["b"][::-1], THREE["s"][::-1], THREE["c"][::-1])
    assert same(SPEC, ours, decide(SPEC, swapped))


@pytest.mark.parametrize(
    ("changes", "value"),
    [({"s": [0.9, math.nan, 0.1]}, UNDECIDED), ({"b": [square(math.nan), square(50), square(100)]}, UNDECIDED), ({"c": [math.nan, 1, 0]}, UNDECIDED)],
)
def test_nan_where_it_matters_decides_nothing(changes: dict[str, Any], value: str) -> None:
    decision = decide(SPEC, THREE | {key: np.array(given_) for key, given_ in changes.items()})
    assert decision.value == value
    assert not same(SPEC, decide(SPEC, THREE), decision)
    assert not same(SPEC, decision, decide(SPEC, THREE))


@pytest.mark.parametrize("box_format", ["xyxy", "xywh", "center_xywh"])
def test_an_infinite_box_that_is_kept_is_refused_rather_than_undecided(box_format: str) -> None:
    infinite = THREE | {"b": np.array([[math.inf, 0, math.inf, 10], square(50), square(100)])}
    with pytest.raises(DecisionError, match="infinite box"):
        decide(replace(SPEC, box_format=box_format), infinite)
    low = infinite | {"s": np.array([0.1, 0.75, 0.25])}
    assert decide(replace(NMS, box_format=box_format), low).value == "1 dog"


def test_padding_below_the_threshold_is_not_looked_at() -> None:
    padded = row([square(0), square(50), [-1, -1, -1, -1]], [0.9, 0.75, -1.0], [0, 1, -1])
    assert same(SPEC, decide(SPEC, THREE), decide(SPEC, padded))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"b": np.zeros((3, 5))}, "n boxes of 4 numbers"),
        ({"b": np.zeros((1, 3, 4))}, "n boxes of 4 numbers"),
        ({"s": np.ones(2)}, "for 3 boxes"),
        ({"s": np.ones((3, 2))}, "2 scores a box"),
        ({"c": np.zeros(2)}, "a class a box"),
        ({"c": np.array([0, 2, 0])}, "names class 2"),
        ({"c": np.array([0.5, 1, 0])}, "names class 0.5"),
        ({"c": np.array([-1, 1, 0])}, "names class -1"),
        ({"s": np.array(["a", "b", "c"])}, "expected numbers"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DecisionError, match=message):
        decide(SPEC, THREE | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"iou": 0.0}, "above 0"),
        ({"nms": 1.5}, "at most 1"),
        ({"box_format": "yxyx"}, "xyxy, xywh, center_xywh"),
        ({"threshold": (0.5, 0.6)}, "one number for all boxes"),
        ({"boxes": "s"}, "an output of its own"),
        ({"classes": "b"}, "an output of its own"),
    ],
)
def test_a_wrong_rule_is_named_before_there_are_boxes(changes: dict[str, Any], message: str) -> None:
    assert message in check_decision(replace(SPEC, **changes))[0]
    assert check_decision(SPEC) == check_decision(replace(SPEC, classes="")) == []


# ---------------------------------------------------------------- the margin


@settings(max_examples=300)
@given(specs, detections, st.data())
def test_no_other_boxes_are_kept_within_the_margin(spec: DecisionSpec, found: dict[str, Any], data: st.DataObject) -> None:
    decision = decide(spec, found)
    assume(not decision.tied)
    moves = np.array(data.draw(st.lists(st.floats(-1, 1), min_size=len(found["s"]), max_size=len(found["s"]))))
    moved = decide(spec, found | {"s": found["s"] + moves * decision.margin * (1 - 1e-6)})
    assert moved.index == decision.index
    assert same(spec, decision, moved)


@settings(max_examples=300)
@given(specs, detections)
def test_a_move_barely_beyond_the_margin_can_keep_others(spec: DecisionSpec, found: dict[str, Any]) -> None:
    """One box pushed up and all that are kept down, or one that is kept down."""
    decision = decide(spec, found)
    step = decision.margin * (1 + 1e-6) + 1e-9
    kept = np.isin(np.arange(len(found["s"])), decision.index)
    unit = np.eye(len(found["s"]))
    moves = [-step * unit[i] for i in decision.index]
    for i in np.flatnonzero(~kept):
        beside = kept & (found["c"] == found["c"][i]) & (overlap(found["b"][i], found["b"]) > (spec.nms or 1))
        moves.append(step * unit[i] - step * beside)
    assert any(decide(spec, found | {"s": found["s"] + move}).index != decision.index for move in moves)


# ---------------------------------------------------------------- ties


def test_a_box_at_the_threshold_is_a_tie_and_excuses_no_other() -> None:
    at = row([square(0), square(50)], [0.5, 0.9], [0, 1])
    tie = functools.partial(breaks_tie, SPEC, at)
    assert tie(row(at["b"], [0.4, 0.9], [0, 1]))
    assert not tie(row(at["b"], [0.4, 0.4], [0, 1]))
    assert not tie(row([square(0), square(90)], [0.4, 0.9], [0, 1]))
    assert not tie(row(at["b"], [0.4, 0.9], [0, 0]))
    assert not tie(row([square(0)], [0.4], [0]))
    assert breaks_tie(SPEC, row(at["b"], [0.75, 0.9], [0, 1]), row(at["b"], [0.4, 0.9], [0, 1]), band=0.25)
    assert not breaks_tie(SPEC, row(at["b"], [0.75, 0.9], [0, 1]), row(at["b"], [0.4, 0.9], [0, 1]), band=0.2)


def test_equal_boxes_that_suppress_one_another_are_a_tie() -> None:
    found = row([square(0), square(5)], [0.75, 0.75], [0, 0])
    spec = replace(NMS, iou=0.5)
    other = row(found["b"], [0.7, 0.75], [0, 0])
    assert not same(spec, decide(spec, found), decide(spec, other))
    assert breaks_tie(spec, found, other)
    assert not breaks_tie(spec, row(found["b"], [0.75 + 40 * ULP, 0.75], [0, 0]), other)


def test_what_follows_from_a_tie_is_one_too() -> None:
    """The first box is at the threshold; without it the second, which it suppressed, is kept."""
    found = row([square(0), square(5)], [0.5 + ULP, 0.5], [0, 0])
    assert breaks_tie(NMS, found, row(found["b"], [0.49, 0.5], [0, 0]))


@given(specs, detections)
def test_the_same_candidates_are_a_tie_and_clear_ones_are_none(spec: DecisionSpec, found: dict[str, Any]) -> None:
    assert breaks_tie(spec, found, found)
    decision = decide(spec, found)
    flipped = found | {"s": 1.0 - found["s"]}
    if decision.margin > 1e-4 and decide(spec, flipped).index != decision.index:
        assert not breaks_tie(spec, found, flipped)

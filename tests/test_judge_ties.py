"""A flip is a tie only where the reference's own scores allow exactly that decision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kpipe.judging.ties import TIE_ULPS, breaks_tie
from kpipe_stages.decisions import decide, moves_within, same
from kpipe_stages.protocol import DecisionSpec

ARGMAX = DecisionSpec("argmax", "y")
HALF = DecisionSpec("threshold", "y", threshold=0.5)
TOP_2 = DecisionSpec("top_k", "y", k=2)
SPECS = [
    ARGMAX,
    HALF,
    TOP_2,
    DecisionSpec("top_k", "y", k=2, ordered=False),
    DecisionSpec("ranking", "y", k=0),
    DecisionSpec("multilabel", "y", threshold=(0.5, 1.0, -1.0, 2.0, 0.0)),
    DecisionSpec("bins", "y", edges=(-1.0, 0.5, 2.0)),
    DecisionSpec("tolerance", "y", atol=0.25, rtol=0.125),
]
ULP = 2.0**-23
scores = hnp.arrays(np.float32, 5, elements=st.floats(-4, 4, width=32))


def tie(spec: DecisionSpec, reference: Any, target: Any) -> bool:
    return breaks_tie(spec, np.array(reference, np.float64), np.array(target, np.float64))


@pytest.mark.parametrize(
    ("reference", "target", "expected"),
    [
        ([0.4, 0.4, 0.2], [0.4, 0.5, 0.2], True),
        ([0.4, 0.4, 0.2], [0.4, 0.4, 0.5], False),
        ([0.4 + 8 * 0.4 * ULP, 0.4, 0.2], [0.3, 0.4, 0.2], True),
        ([0.4 + 9 * 0.4 * ULP, 0.4, 0.2], [0.3, 0.4, 0.2], False),
        ([0.5, 0.4, 0.1], [0.4, 0.5, 0.1], False),
        ([math.inf, math.inf, 0], [1, 2, 0], True),
        ([math.inf, 1, 0], [1, 2, 0], False),
        ([math.nan, 0.4, 0.4], [0.1, 0.4, 0.5], False),
        ([0.4, 0.4, 0.2], [0.4, math.nan, 0.2], False),
        ([0.4, 0.4, 0.2], [0.4, 0.5], False),
        ([0.0, 0.0], [0.0, 1.0], True),
    ],
)
def test_argmax(reference: Any, target: Any, expected: bool) -> None:
    assert tie(ARGMAX, reference, target) is expected


@pytest.mark.parametrize(
    ("reference", "target", "expected"),
    [
        ([0.5], [0.4], True),
        (0.5, 0.4, True),
        ([0.5 - 3.9 * ULP], [0.6], True),
        ([0.5 - 5 * ULP], [0.6], False),
        ([0.5, 0.9], [0.4, 0.8], True),
        ([0.5, 0.9], [0.4, 0.3], False),
        ([0.5, 0.9], [0.6, 0.3], False),
    ],
)
def test_threshold(reference: Any, target: Any, expected: bool) -> None:
    assert tie(HALF, reference, target) is expected


@pytest.mark.parametrize(
    ("reference", "target", "expected"),
    [
        ([0.4, 0.4, 0.1, 0.1], [0.3, 0.4, 0.1, 0.2], True),
        ([0.4, 0.3, 0.3, 0.0], [0.4, 0.2, 0.3, 0.0], True),
        ([0.4, 0.3, 0.3, 0.0], [0.3, 0.4, 0.2, 0.0], False),
        ([0.4, 0.3, 0.3, 0.0], [0.4, 0.2, 0.1, 0.3], False),
        ([0.4, 0.3, 0.2, 0.2], [0.4, 0.2, 0.3, 0.1], False),
    ],
)
def test_top_k(reference: Any, target: Any, expected: bool) -> None:
    assert tie(TOP_2, reference, target) is expected


def test_top_k_of_all_classes_is_about_their_order() -> None:
    everything = DecisionSpec("top_k", "y", k=3)
    assert tie(everything, [0.4, 0.4, 0.2], [0.3, 0.4, 0.2])
    assert not tie(everything, [0.5, 0.3, 0.2], [0.5, 0.2, 0.3])


def test_one_tied_position_excuses_no_other_of_a_map() -> None:
    reference = np.array([[0.5, 0.5], [0.9, 0.1]])
    assert tie(ARGMAX, reference, [[0.4, 0.6], [0.9, 0.1]])
    assert not tie(ARGMAX, reference, [[0.4, 0.6], [0.1, 0.9]])
    assert not tie(ARGMAX, reference, [[0.5, 0.5], [0.1, 0.9]])
    assert tie(HALF, reference, [[0.4, 0.6], [0.9, 0.1]])
    assert not tie(HALF, reference, [[0.4, 0.6], [0.9, 0.6]])


@pytest.mark.parametrize("spec", SPECS)
@given(reference=scores, target=scores)
def test_a_decision_that_clear_scores_do_not_allow_is_no_tie(spec: DecisionSpec, reference: Any, target: Any) -> None:
    ours, theirs = decide(spec, reference), decide(spec, target)
    if same(spec, ours, theirs):
        assert breaks_tie(spec, reference, target)
    elif spec.rule != "tolerance" and ours.margin > 2 * TIE_ULPS * ULP * max(2.0, float(np.abs(reference).max())):
        assert not breaks_tie(spec, reference, target)


@pytest.mark.parametrize("spec", SPECS)
@given(reference=scores, data=st.data())
def test_moves_of_less_than_half_a_tie_never_make_a_flip(spec: DecisionSpec, reference: Any, data: st.DataObject) -> None:
    sizes = np.abs(reference.astype(np.float64))
    width = TIE_ULPS * ULP * (sizes.max() if moves_within(spec.rule, 1.0) < 1 else sizes)  # a border knows its own score only
    moves = data.draw(hnp.arrays(np.float64, 5, elements=st.floats(-0.49, 0.49)))
    assert breaks_tie(spec, reference.astype(np.float64), reference + moves * width)


@pytest.mark.parametrize("spec", SPECS)
@given(reference=scores, target=scores, band=st.floats(0, 1, width=32))
def test_a_wider_band_excuses_more_and_never_less(spec: DecisionSpec, reference: Any, target: Any, band: float) -> None:
    assert breaks_tie(spec, reference, target, band=band) or not breaks_tie(spec, reference, target)
    assert breaks_tie(spec, reference, target, band=1000.0)


@pytest.mark.parametrize("spec", SPECS)
@given(reference=scores, data=st.data())
def test_moves_of_less_than_half_the_band_are_excused_by_it(spec: DecisionSpec, reference: Any, data: st.DataObject) -> None:
    moves = data.draw(hnp.arrays(np.float64, 5, elements=st.floats(-0.49, 0.49)))
    assert breaks_tie(spec, reference.astype(np.float64), reference + moves * 0.25, band=0.25)


@pytest.mark.parametrize(
    ("spec", "reference", "target", "band", "expected"),
    [
        (ARGMAX, [0.5, 0.375], [0.4, 0.5], 0.125, True),
        (ARGMAX, [0.5, 0.375], [0.4, 0.5], 0.12, False),
        (HALF, [0.625], [0.4], 0.125, True),
        (HALF, [0.625], [0.4], 0.12, False),
        (HALF, [0.625, 0.9], [0.4, 0.4], 0.125, False),
        (DecisionSpec("top_k", "y", k=2, ordered=False), [3, 2, 1.75], [3, 1, 2], 0.25, True),
        (DecisionSpec("top_k", "y", k=2, ordered=False), [3, 2, 1.75], [3, 1, 2], 0.2, False),
        (DecisionSpec("top_k", "y", k=2, ordered=False), [3, 2, 1.75], [1, 3, 2], 0.25, False),
        (DecisionSpec("ranking", "y", k=0), [3, 2, 1.75], [3, 1, 2], 0.25, True),
        (DecisionSpec("ranking", "y", k=0), [3, 2, 1.75], [2, 3, 1], 0.25, False),
        (DecisionSpec("bins", "y", edges=(1.0, 2.0)), [0.75], [1.5], 0.25, True),
        (DecisionSpec("bins", "y", edges=(1.0, 2.0)), [0.75], [2.5], 0.25, False),
        (DecisionSpec("bins", "y", edges=(1.0, 2.0)), [1.25], [0.5], 0.25, True),
        (DecisionSpec("tolerance", "y", atol=0.5), [1.0], [1.75], 0.25, True),
        (DecisionSpec("tolerance", "y", atol=0.5), [1.0], [1.75], 0.2, False),
        (DecisionSpec("tolerance", "y", atol=0.5), [1.0], [math.inf], 0.25, False),
        (DecisionSpec("tolerance", "y", atol=0.5), [math.inf], [math.inf], 0.0, True),
        (DecisionSpec("tolerance", "y", atol=0.5), [math.inf], [1.0], 9.0, False),
    ],
)
def test_the_band_by_rule(spec: DecisionSpec, reference: Any, target: Any, band: float, expected: bool) -> None:
    assert breaks_tie(spec, np.array(reference, np.float64), np.array(target, np.float64), band=band) is expected


def test_bins_and_numbers_at_their_border_are_ties() -> None:
    edges = DecisionSpec("bins", "y", edges=(0.5,))
    assert tie(edges, [0.5 - 3.9 * ULP], [0.6])
    assert not tie(edges, [0.5 - 5 * ULP], [0.6])
    allowance = DecisionSpec("tolerance", "y", atol=0.5)
    assert tie(allowance, [1.0], [1.5 + 7 * ULP])
    assert not tie(allowance, [1.0], [1.5 + 17 * ULP])


def test_only_the_class_that_changed_has_to_lie_at_its_threshold() -> None:
    spec = DecisionSpec("threshold", "y", threshold=(0.25, 0.75))
    assert tie(spec, [0.25, 0.9], [0.2, 0.8])
    assert not tie(spec, [0.25, 0.9], [0.2, 0.7])

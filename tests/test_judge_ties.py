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
from kpipe_stages.decisions import decide
from kpipe_stages.protocol import DecisionSpec

ARGMAX = DecisionSpec("argmax", "y")
HALF = DecisionSpec("threshold", "y", threshold=0.5)
TOP_2 = DecisionSpec("top_k", "y", k=2)
SPECS = [ARGMAX, HALF, TOP_2]
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
    if ours.value == theirs.value:
        assert breaks_tie(spec, reference, target)
    elif ours.margin > 2 * TIE_ULPS * ULP * float(np.abs(reference).max()):
        assert not breaks_tie(spec, reference, target)


@pytest.mark.parametrize("spec", SPECS)
@given(reference=scores, data=st.data())
def test_moves_of_less_than_half_a_tie_never_make_a_flip(spec: DecisionSpec, reference: Any, data: st.DataObject) -> None:
    width = TIE_ULPS * ULP * float(np.abs(reference).max())
    moves = data.draw(hnp.arrays(np.float64, 5, elements=st.floats(-0.49, 0.49)))
    assert breaks_tie(spec, reference.astype(np.float64), reference + moves * width)

"""The ratio of two latency samples that were taken in turns, under noise as machines make it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe_stages.intervals import ERROR, error_at
from kpipe_stages.ratio import FEWEST, LOOKS, Ratio, Told, ratio_of, student

Array = np.ndarray[Any, np.dtype[Any]]
SMALLEST = 0.02


def noise(rng: np.random.Generator, calls: int) -> Array:
    """Factors on a call's time: a neighbour on the core that comes and goes, a slow drift, and interruptions in bursts, as long as a Pareto tail."""
    busy = np.logical_xor.accumulate(np.concatenate([[rng.random() < 0.5], rng.random(calls - 1) < 0.02]))
    steps = rng.normal(0, 0.02, calls)
    drift = np.array(list(itertools.accumulate(steps, lambda x, step: 0.95 * x + step)))
    burst = np.convolve(rng.random(calls) < 0.01, np.ones(3))[:calls] > 0
    spikes = np.where(burst, 1.0 + rng.pareto(1.5, calls), 1.0)
    return np.asarray((1.0 + 0.6 * busy) * np.exp(drift + rng.normal(0, 0.03, calls)) * spikes)


@dataclass
class Race:
    told: Told
    ratio: Ratio
    rounds: int


def race(rng: np.random.Generator, effect: float, *, p: float = 50.0, most: int = 48, fours: int = 24, sessions: float = 0.01) -> Race:
    """Rounds until the answer is known: fours by lot, sessions that differ by a per cent, and the effect."""
    before, now = list[Array](), list[Array]()
    look = 0
    for count in range(1, most + 1):
        seconds = 20e-6 * noise(rng, 4 * fours)
        turn = np.concatenate([[0, 1, 1, 0] if rng.random() < 0.5 else [1, 0, 0, 1] for _ in range(fours)]).astype(bool)
        own = np.exp(rng.normal(0, sessions, 2))
        before.append(seconds[~turn] * own[0])
        now.append(seconds[turn] * own[1] * effect)
        if count in LOOKS or count == most:
            look += 1
            ratio = ratio_of(before, now, p, look)
            assert ratio is not None
            if (told := ratio.told(SMALLEST)) is not Told.UNKNOWN or count == most:
                return Race(told, ratio, count)
    raise AssertionError


def test_equals_are_never_called_slower_or_faster() -> None:
    rng = np.random.default_rng(1)
    found = [race(rng, 1.0) for _ in range(120)]
    assert not [one for one in found if one.told in {Told.SLOWER, Told.FASTER}]
    assert sum(one.told is Told.SAME for one in found) >= 60
    assert sum(not one.ratio.low <= 1.0 <= one.ratio.high for one in found) <= 3


def test_a_tenth_is_found_nineteen_times_of_twenty() -> None:
    rng = np.random.default_rng(2)
    found = [race(rng, 1.10) for _ in range(120)]
    assert sum(one.told is Told.SLOWER for one in found) >= 0.95 * len(found)
    assert sum(not one.ratio.low <= 1.10 <= one.ratio.high for one in found) <= 3
    assert np.mean([one.rounds for one in found]) < 15, "it ends as soon as the answer is known"


def test_a_tenth_faster_is_found_as_well() -> None:
    rng = np.random.default_rng(3)
    assert sum(race(rng, 1 / 1.10).told is Told.FASTER for _ in range(40)) >= 38


@pytest.mark.parametrize("p", [90.0, 99.0])
def test_the_tail_of_equals_is_never_called_slower_either(p: float) -> None:
    rng = np.random.default_rng(4)
    found = [race(rng, 1.0, p=p, most=21, fours=32) for _ in range(60)]
    assert not [one for one in found if one.told in {Told.SLOWER, Told.FASTER}]


def test_sessions_that_differ_more_than_their_calls_are_not_taken_for_the_files() -> None:
    """Calls alone would be sure of it: four hundred a side, and sessions that are five per cent apart."""
    rng = np.random.default_rng(5)
    found = [race(rng, 1.0, sessions=0.05, most=9) for _ in range(100)]
    assert sum(one.told in {Told.SLOWER, Told.FASTER} for one in found) == 0
    assert all(one.ratio.high / one.ratio.low > 1.04 for one in found)


def test_one_pair_of_sessions_says_nothing() -> None:
    calls = np.full(1000, 1e-3)
    assert ratio_of([calls] * (FEWEST - 1), [calls * 2] * (FEWEST - 1), 50.0, 1) is None
    assert ratio_of([calls] * FEWEST, [calls * 2] * FEWEST, 50.0, 1) is not None


def test_a_machine_that_is_slow_for_a_while_counts_for_neither() -> None:
    rng = np.random.default_rng(6)
    rounds = [(1.0 if r < 4 else 3.0) * 1e-3 * np.exp(rng.normal(0, 0.01, (2, 50))) for r in range(8)]
    ratio = ratio_of([r[0] for r in rounds], [r[1] * 1.1 for r in rounds], 50.0, 1)
    assert ratio is not None
    assert ratio.told(SMALLEST) is Told.SLOWER
    assert ratio.value == pytest.approx(1.1, rel=0.01)


def test_what_the_clock_cannot_tell_is_not_told() -> None:
    before, now = [np.full(20, 10e-6)] * 6, [np.full(20, 11e-6)] * 6
    exact, coarse = ratio_of(before, now, 50.0, 1), ratio_of(before, now, 50.0, 1, resolution=1e-6)
    assert exact is not None
    assert coarse is not None
    assert exact.told(SMALLEST) is Told.SLOWER
    assert coarse.told(SMALLEST) is Told.UNKNOWN


@given(st.lists(st.lists(st.floats(1e-7, 10.0), min_size=1, max_size=5), min_size=3, max_size=6), st.sampled_from([50.0, 90.0, 99.0]))
def test_the_interval_holds_its_value_and_turns_with_the_sides(calls: list[list[float]], p: float) -> None:
    before, now = [np.array(one) for one in calls], [np.array(one[::-1]) * 1.5 for one in calls]
    there, back = ratio_of(before, now, p, 2), ratio_of(now, before, p, 2)
    assert there is not None
    assert back is not None
    assert there.low <= there.value <= there.high
    assert there.value * back.value == pytest.approx(1.0)
    assert there.told(SMALLEST) != Told.SLOWER or back.told(SMALLEST) is Told.FASTER


def test_what_is_no_sample_is_refused() -> None:
    calls = [np.array([1.0])] * 3
    for bad in ([np.array([])] * 3, [np.array([0.0])] * 3, [np.array([np.nan])] * 3, calls[:2]):
        with pytest.raises(ValueError, match="round"):
            ratio_of(calls, bad, 50.0, 1)


def test_all_looks_together_spend_what_is_allowed() -> None:
    assert sum(error_at(look) for look in range(1, 10_000)) < ERROR
    assert sum(error_at(look) for look in range(1, 10_000)) == pytest.approx(ERROR, rel=1e-3)


@pytest.mark.parametrize(
    ("freedom", "error", "value"), [(1, 0.05, 12.706), (2, 0.05, 4.303), (3, 0.005, 7.453), (7, 0.01, 3.499), (39, 0.001, 3.558)]
)
def test_students_quantiles_are_those_of_the_tables(freedom: int, error: float, value: float) -> None:
    assert student(freedom, error) == pytest.approx(value, abs=1e-3)


def test_limits_hold_break_or_are_not_known() -> None:
    assert Ratio(1.05, 1.02, 1.08).within(1.10) is True
    assert Ratio(1.15, 1.12, 1.18).within(1.10) is False
    assert Ratio(1.10, 1.08, 1.12).within(1.10) is None


@pytest.mark.parametrize(
    ("ratio", "told"),
    [
        (Ratio(1.10, 1.03, 1.2), Told.SLOWER),
        (Ratio(1.03, 1.01, 1.05), Told.UNKNOWN),
        (Ratio(1.0, 0.99, 1.01), Told.SAME),
        (Ratio(0.9, 0.85, 0.95), Told.FASTER),
        (Ratio(1.0, 0.5, 2.0), Told.UNKNOWN),
    ],
)
def test_an_answer_needs_the_whole_interval(ratio: Ratio, told: Told) -> None:
    assert ratio.told(SMALLEST) is told

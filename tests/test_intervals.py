"""Intervals hold what they promise: exactly where calls are independent, nearly where they are alike; what can't be told stays open."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.percentiles import NEEDED
from kpipe_stages.intervals import ERROR, Held, error_at, held, inflation, interval, nearest_rank, ranks

LEVELS = sorted(NEEDED)
times = st.lists(st.floats(1e-6, 10), min_size=1, max_size=400)


def below(count: int, p: float, rank: int) -> float:
    """P(fewer than ``rank`` of ``count`` lie below the percentile), summed up one by one."""
    share = p / 100
    return math.fsum(math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(rank))


@pytest.mark.parametrize("p", [50.0, 90.0, 95.0, 99.0])
@pytest.mark.parametrize("error", [0.01, 0.005, 0.2])
def test_ranks_are_the_tightest_that_keep_the_error(p: float, error: float) -> None:
    for count in (1, 5, 11, 64, 200, 531):
        low, high = ranks(count, p, error)
        if low is not None:
            assert below(count, p, low) <= error / 2 + 1e-12
        if (next_low := (low or 0) + 1) <= count:
            assert below(count, p, next_low) > error / 2 - 1e-12
        if high is not None:
            assert 1 - below(count, p, high) <= error / 2 + 1e-12
            assert high == 1 or 1 - below(count, p, high - 1) > error / 2 - 1e-12
        else:
            assert 1 - below(count, p, count) > error / 2 - 1e-12


@pytest.mark.parametrize("p", LEVELS)
def test_a_percentile_that_is_printed_has_both_ends_at_the_first_look(p: float) -> None:
    low, high = ranks(NEEDED[p], p, error_at(1))
    assert low is not None
    assert high is not None


def test_all_looks_together_err_no_more_than_once() -> None:
    assert sum(error_at(look) for look in range(1, 10_000)) < ERROR


@given(times, st.sampled_from(LEVELS))
def test_ends_are_calls_of_the_sample_and_hold_the_value_between_them(sample: list[float], p: float) -> None:
    found = interval(sample, p)
    assert found.value == sorted(sample)[nearest_rank(len(sample), p) - 1]
    for end in (found.low, found.high):
        assert end is None or end in sample
    assert found.low is None or found.low <= found.value
    assert found.high is None or found.high >= found.value
    assert 1 <= found.effective <= len(sample)


@given(times, st.floats(0.1, 10), st.sampled_from(LEVELS))
def test_nothing_is_assumed_of_the_distribution(sample: list[float], factor: float, p: float) -> None:
    """Any strictly rising change of the clock changes the ends alike."""
    plain, changed = interval(sample, p), interval([math.expm1(factor * x) for x in sample], p)
    assert changed.effective == plain.effective
    assert changed.low == (None if plain.low is None else pytest.approx(math.expm1(factor * plain.low)))
    assert changed.high == (None if plain.high is None else pytest.approx(math.expm1(factor * plain.high)))


def test_no_calls_are_no_interval() -> None:
    with pytest.raises(ValueError, match="no calls"):
        interval([], 50)


def misses(draw: np.ndarray, p: float, true: float) -> tuple[float, float]:
    """How often the interval lies above and below the true percentile; ``draw`` has a sample a row."""
    found = [interval(sample, p) for sample in draw]
    above = sum(one.low is not None and one.low > true for one in found)
    under = sum(one.high is not None and one.high < true for one in found)
    return above / len(found), under / len(found)


@pytest.mark.parametrize(("count", "p"), [(200, 50.0), (200, 90.0), (700, 99.0)])
def test_coverage_on_independent_calls(count: int, p: float) -> None:
    generator = np.random.default_rng(5)
    sample = generator.exponential(size=(800, count))
    for miss in misses(sample, p, -math.log1p(-p / 100)):
        assert miss <= 0.012  # 0.5 % is promised; four standard errors of 800 tries


def alike(generator: np.random.Generator, tries: int, count: int, memory: float) -> np.ndarray:
    """Exponential calls, each like the one before (a Gaussian AR(1) put through its distribution)."""
    steps = generator.standard_normal((tries, count))
    walk = np.empty_like(steps)
    walk[:, 0] = steps[:, 0]
    for at in range(1, count):
        walk[:, at] = memory * walk[:, at - 1] + math.sqrt(1 - memory**2) * steps[:, at]
    share = np.vectorize(math.erf)(walk / math.sqrt(2)) / 2 + 0.5
    return -np.log1p(-np.minimum(share, 1 - 1e-15))


@pytest.mark.parametrize(("count", "memory", "most"), [(200, 0.5, 0.02), (1000, 0.8, 0.03)])
def test_coverage_on_calls_that_are_alike(count: int, memory: float, most: float) -> None:
    sample = alike(np.random.default_rng(7), 300, count, memory)
    for miss in misses(sample, 50.0, math.log(2)):
        assert miss <= most
    plain = sum(
        not (s[(low or 1) - 1] <= math.log(2) <= s[(high or count) - 1]) for s in np.sort(sample) for low, high in [ranks(count, 50.0, ERROR)]
    )
    assert plain / len(sample) > 3 * most  # what would have been promised without looking at how alike they are


def test_a_burst_is_worth_less_than_as_many_slow_calls_here_and_there() -> None:
    spread = [2.0 if call % 20 == 0 else 1.0 for call in range(640)]
    burst = [2.0 if call < 32 else 1.0 for call in range(640)]
    assert inflation(np.array(spread) > 1.5) == 1.0
    assert inflation(np.array(burst) > 1.5) > 10
    assert interval(burst, 90).high in {2.0, None}
    assert interval(spread, 90).high == 1.0


def test_a_trend_leaves_the_median_wide_open() -> None:
    found = interval(np.linspace(1, 2, 1000), 50)
    assert found.effective < 40
    assert found.low is None or found.low < 1.3
    assert found.high is None or found.high > 1.7


@given(times, st.floats(1e-6, 10), st.sampled_from(LEVELS))
def test_a_limit_is_decided_by_the_interval_alone(sample: list[float], limit: float, p: float) -> None:
    found = interval(sample, p)
    answer = held(found, limit)
    assert (answer is Held.MET) == (found.high is not None and found.high <= limit)
    assert (answer is Held.MISSED) == (found.low is not None and found.low > limit)


def test_few_calls_decide_nothing_about_the_tail() -> None:
    found = interval([1e-3] * 200, 99)
    assert found.high is None
    assert held(found, 1.0) is Held.OPEN
    assert held(found, 1e-6) is Held.MISSED
    assert held(interval([math.nan] * 700, 50), 1.0) is Held.OPEN

"""A leak is told from pools that fill up, from noise and from steps that end."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe_stages.growth import growth, theil_sen

MIB = 2**20
CALLS = [6 * block for block in range(34)]


def points(*sizes: float) -> list[tuple[int, int]]:
    return list(zip(CALLS, (int(size) for size in sizes), strict=False))


def test_a_leak_of_a_mebibyte_a_call_is_found_and_measured() -> None:
    found = growth(points(*(300 * MIB + calls * MIB for calls in CALLS)))
    assert found is not None
    assert found.grows
    assert found.per_call == pytest.approx(MIB)
    assert found.low <= MIB <= found.high


@given(st.integers(0, 2**31), st.floats(20e3, 1e6))
def test_a_leak_is_found_through_noise(seed: int, leak: float) -> None:
    noise = np.random.default_rng(seed).integers(0, 300_000, len(CALLS))
    found = growth(points(*(300 * MIB + leak * calls + extra for calls, extra in zip(CALLS, noise, strict=True))))
    assert found is not None
    assert found.low <= leak * 1.3
    assert found.high >= leak * 0.7
    assert found.grows or leak * CALLS[-1] < 6 * MIB


@given(st.integers(0, 2**31))
def test_noise_is_no_leak(seed: int) -> None:
    noise = np.random.default_rng(seed).integers(0, 20 * MIB, len(CALLS))
    found = growth(points(*(300 * MIB + extra for extra in noise)))
    assert found is not None
    assert not found.grows or found.low > 0


def test_noise_is_hardly_ever_a_leak() -> None:
    alarms = 0
    for seed in range(500):
        noise = np.random.default_rng(seed).integers(0, 20 * MIB, len(CALLS))
        found = growth(points(*(300 * MIB + extra for extra in noise)))
        assert found is not None
        alarms += found.grows
    assert alarms == 0


@pytest.mark.parametrize(
    "sizes",
    [
        [300 * MIB + 64 * MIB * (1 - math.exp(-calls / 20)) for calls in CALLS],
        [300 * MIB + (40 * MIB if calls > 60 else 0) for calls in CALLS],
        [300 * MIB + (40 * MIB if calls > 150 else 0) for calls in CALLS],
        [300 * MIB + min(calls, 48) * MIB for calls in CALLS],
        [300 * MIB + 4096 * calls for calls in CALLS],
        [300 * MIB] * len(CALLS),
        [300 * MIB + (16 * MIB if (calls // 6) % 2 else 0) for calls in CALLS],
    ],
    ids=["pool", "step", "late step", "cache of 48", "under a mebibyte", "still", "to and fro"],
)
def test_what_subsides_is_no_leak(sizes: list[float]) -> None:
    found = growth(points(*sizes))
    assert found is not None
    assert not found.grows


def test_too_few_points_say_nothing() -> None:
    assert growth(points(*range(10))) is None
    assert growth(()) is None
    with pytest.raises(ValueError, match="two points"):
        theil_sen([(0, 1)])


def test_the_slopes_interval_covers_it() -> None:
    generator, missed = np.random.default_rng(3), 0
    for _ in range(400):
        noise = generator.standard_cauchy(25)
        _, low, high = theil_sen([(x, 2 * x + extra) for x, extra in enumerate(noise)])
        missed += not low <= 2 <= high
    assert missed / 400 <= 0.02

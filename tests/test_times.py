"""Percentiles that the sample supports, never interpolated; limits that are held only where they were measured."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.contract import LimitsTable
from kpipe.judging.times import HISTOGRAM_POINTS, summarise
from kpipe.percentiles import NEEDED, calls_needed
from kpipe_stages.intervals import interval, nearest_rank
from kpipe_stages.protocol import Latency

LEVELS = sorted(NEEDED)


def latency(*seconds: float, **changes: Any) -> Latency:
    facts = {
        "warmup_calls": 20,
        "stable": True,
        "worst_difference": 0.0,
        "worst_relative": 0.0,
        "decision_changes": 0,
        "compared": len(seconds),
    } | changes
    return Latency(seconds=tuple(seconds), **facts)


@pytest.mark.parametrize("p", LEVELS)
def test_the_rank_is_exact_for_every_sample_size(p: float) -> None:
    for count in [*range(1, 2001), 6636, 10_000, 123_456]:
        rank = max(1, math.ceil(Fraction(str(p)) / 100 * count))
        assert nearest_rank(count, p) == rank, count


@given(st.lists(st.floats(1e-6, 10), min_size=1, max_size=300), st.sampled_from([50.0, 90.0, 95.0, 99.0]))
def test_it_is_numpys_inverted_cdf(sample: list[float], p: float) -> None:
    assert interval(sample, p).value == np.percentile(sample, p, method="inverted_cdf")


@pytest.mark.parametrize("p", LEVELS)
def test_a_percentile_needs_its_calls(p: float) -> None:
    for count, there in ((NEEDED[p] - 1, False), (NEEDED[p], True)):
        record = summarise(latency(*np.linspace(1e-3, 2e-3, count)))
        assert record is not None
        assert (p in {q.p for q in record.percentiles}) is there


@given(st.lists(st.floats(1e-6, 10), min_size=1, max_size=1500))
def test_no_call_is_left_out(sample: list[float]) -> None:
    record = summarise(latency(*sample))
    assert record is not None
    assert record.calls == len(sample)
    assert record.mean_s == pytest.approx(sum(sample) / len(sample))
    assert [q.p for q in record.percentiles] == [p for p in LEVELS if len(sample) >= NEEDED[p]]
    assert [q.seconds for q in record.percentiles] == sorted(q.seconds for q in record.percentiles)
    assert list(record.histogram) == sorted(record.histogram)
    assert (record.histogram[0], record.histogram[-1]) == (min(sample), max(sample))
    assert len(record.histogram) <= HISTOGRAM_POINTS + 1


def test_nothing_timed_is_nothing() -> None:
    assert summarise(None) is None
    assert summarise(latency()) is None


def test_calls_that_limits_need() -> None:
    assert calls_needed(LimitsTable()) == (0, 0)
    assert calls_needed(LimitsTable(p50_ms=1.0, p99_ms=1.0)) == (662, 0)
    assert calls_needed(LimitsTable(end_to_end_p95_ms=1.0, p90_ms=1.0)) == (64, 130)

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
from kpipe.judging.times import HISTOGRAM_POINTS, check_limits, percentile, summarise
from kpipe.percentiles import NEEDED, calls_needed
from kpipe.record import LatencyRecord, LoadRecord, Percentile
from kpipe_stages.protocol import Latency

LEVELS = sorted(NEEDED)
LOAD = LoadRecord(1.0, 0.5, 0.25, shared=False)


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
        assert percentile(range(1, count + 1), p) == rank, count


@given(st.lists(st.floats(1e-6, 10), min_size=1, max_size=300), st.sampled_from([50.0, 90.0, 95.0, 99.0]))
def test_it_is_numpys_inverted_cdf(sample: list[float], p: float) -> None:
    ordered = sorted(sample)
    assert percentile(ordered, p) in ordered
    assert percentile(ordered, p) == np.percentile(ordered, p, method="inverted_cdf")


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


def record(**percentiles: float) -> LatencyRecord:
    marks = tuple(Percentile(float(name[1:]), seconds) for name, seconds in percentiles.items())
    return LatencyRecord(calls=1000, warmup_calls=20, stable=True, percentiles=marks, mean_s=1e-3)


def held(limits: LimitsTable, **measured: Any) -> list[tuple[str, float | None, bool]]:
    facts: dict[str, Any] = {"load": None, "model_only": None, "end_to_end": None, "peak_bytes": None, "size_bytes": None} | measured
    return [(check.name, check.value, check.ok) for check in check_limits(limits, **facts)]


@pytest.mark.parametrize("name", sorted(LimitsTable.model_fields))
def test_every_limit_is_checked_and_one_without_a_measurement_is_not_ok(name: str) -> None:
    assert held(LimitsTable(**{name: 1e9})) == [(name, None, False)]
    full = {
        "load": LOAD,
        "model_only": record(p50=1e-3, p90=2e-3, p95=3e-3, p99=4e-3),
        "end_to_end": record(p50=5e-3, p90=6e-3, p95=7e-3, p99=8e-3),
        "peak_bytes": 64 * 2**20,
        "size_bytes": 2**20,
    }
    ((_, value, ok),) = held(LimitsTable(**{name: 1e9}), **full)
    assert value is not None
    assert ok
    assert held(LimitsTable(**{name: value}), **full) == [(name, value, True)]
    assert held(LimitsTable(**{name: math.nextafter(value, 0)}), **full) == [(name, value, False)]


def test_values_are_in_the_limits_own_units() -> None:
    assert held(LimitsTable(load_s=9.0), load=LOAD) == [("load_s", 1.75, True)]
    assert held(LimitsTable(p50_ms=9.0), model_only=record(p50=0.002)) == [("p50_ms", 2.0, True)]
    assert held(LimitsTable(end_to_end_p50_ms=9.0), end_to_end=record(p50=0.002)) == [("end_to_end_p50_ms", 2.0, True)]
    assert held(LimitsTable(peak_mib=9.0), peak_bytes=2**21) == [("peak_mib", 2.0, True)]
    assert held(LimitsTable(size_mib=9.0), size_bytes=2**21) == [("size_mib", 2.0, True)]


def test_a_load_beside_other_work_is_no_measurement() -> None:
    assert held(LimitsTable(load_s=9.0), load=LoadRecord(1.0, 1.0, 1.0, shared=True)) == [("load_s", None, False)]
    assert held(LimitsTable(load_s=9.0), load=LoadRecord(1.0, 1.0, 1.0, shared=False, lean=True)) == [("load_s", None, False)]


def test_model_only_never_stands_for_end_to_end() -> None:
    assert held(LimitsTable(end_to_end_p50_ms=9.0), model_only=record(p50=1e-3)) == [("end_to_end_p50_ms", None, False)]


def test_nan_is_not_within_a_limit() -> None:
    assert held(LimitsTable(p50_ms=9.0), model_only=record(p50=math.nan))[0][2] is False

"""Samples of times summed up: percentiles with their intervals, loads, servers, batches. Pure."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from kpipe.loads import disturbed, sum_up, total
from kpipe.percentiles import NEEDED
from kpipe.record import (
    BatchRecord,
    FreshRecord,
    LatencyRecord,
    LoadRecord,
    LoadVariant,
    MachineRecord,
    MemoryRecord,
    OfflineRecord,
    Percentile,
    ServerRecord,
)
from kpipe_stages.deciding_limits import quiet_calls
from kpipe_stages.disturbance import is_disturbed, share
from kpipe_stages.growth import growth
from kpipe_stages.intervals import error_at, interval, ranks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kpipe_stages.protocol import BatchTimes, Freshness, Latency, LoadTimes, Served, Window

HISTOGRAM_POINTS = 400
FRESH_ERROR = 0.002
KNEE = 0.9
PILED_UP = 3.0
"""A server that holds its rate has, at the end, no more than so many calls' time of waiting beyond what it had in the first half."""


def summarise(latency: Latency | None) -> LatencyRecord | None:
    """Percentiles that the sample supports, no call left out."""
    if latency is None or not latency.seconds:
        return None
    error = error_at(latency.looks)
    spent = sum(latency.steps_s.values())
    record = _sample(latency.seconds, latency.windows, error)
    found = growth(latency.memory)
    return LatencyRecord(
        calls=record.calls,
        warmup_calls=latency.warmup_calls,
        stable=latency.stable,
        percentiles=record.percentiles,
        mean_s=record.mean_s,
        histogram=record.histogram,
        confidence=1 - error,
        looks=latency.looks,
        machine=record.machine,
        memory=MemoryRecord(found.steady, found.per_call, found.low, found.high, found.calls, found.grows) if found else None,
        steps={name: seconds / spent for name, seconds in latency.steps_s.items()} if spent else {},
    )


def _sample(seconds: Sequence[float], windows: Sequence[Window], error: float) -> LatencyRecord:
    count, ordered = len(seconds), sorted(seconds)
    step = max(1, math.ceil(count / HISTOGRAM_POINTS))
    return LatencyRecord(
        calls=count,
        warmup_calls=0,
        stable=True,
        percentiles=tuple(_percentile(seconds, p, error) for p, needed in NEEDED.items() if count >= needed),
        mean_s=sum(seconds) / count,
        histogram=(*ordered[::step], ordered[-1]) if step > 1 else tuple(ordered),
        confidence=1 - error,
        machine=machine(windows, count),
    )


def _percentile(seconds: Sequence[float], p: float, error: float) -> Percentile:
    found = interval(seconds, p, error)
    return Percentile(p, found.value, found.low, found.high, found.effective)


def machine(windows: Sequence[Window], calls: int) -> MachineRecord | None:
    """What the machine did meanwhile; None where nobody looked."""
    seconds = sum(window.seconds for window in windows)
    if not seconds:
        return None
    known = [window.waited_s for window in windows if window.waited_s is not None]
    return MachineRecord(
        disturbed=is_disturbed(windows),
        waited=sum(known) / seconds if known else None,
        others=share(windows, "others"),
        stolen=share(windows, "stolen"),
        switches=sum(window.switches for window in windows),
        quiet_calls=int(quiet_calls(windows, calls).sum()),
    )


def sum_up_loads(loads: Sequence[LoadTimes], variants: Mapping[str, LoadTimes], *, shared: bool) -> LoadRecord | None:
    """Loads of one target; ``variants`` as `LoadVariant.kind` says."""
    if not loads:
        return None
    found = sum_up([total(load) for load in loads])
    windows = [load.window for load in loads if load.window is not None]
    return LoadRecord(
        import_s=statistics.median_low(load.import_s for load in loads),
        load_s=statistics.median_low(load.load_s for load in loads),
        first_s=statistics.median_low(load.first_s for load in loads),
        shared=shared,
        lean=any(load.lean for load in loads),
        loads=len(loads),
        total_s=found.median,
        low_s=found.low,
        high_s=found.high,
        confidence=found.confidence,
        second_s=_middle([load.second_s for load in loads]),
        new_shape_s=_middle([load.new_shape_s for load in loads]),
        variants=tuple(LoadVariant(kind, load.import_s, load.load_s, load.first_s) for kind, load in variants.items()),
        machine=_beside(machine(windows, len(loads)), loads),
    )


def _beside(found: MachineRecord | None, loads: Sequence[LoadTimes]) -> MachineRecord | None:
    """One disturbed load among quiet ones is said."""
    from dataclasses import replace

    return replace(found, disturbed=any(disturbed(load) for load in loads)) if found is not None and found.disturbed is not None else found


def _middle(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median_low(known) if known else None


def sum_up_freshness(found: Freshness | None) -> FreshRecord | None:
    """What a repeated input saves, and how much of that is sure: the median of the pairs' differences has the sign test's interval."""
    if found is None:
        return None
    pairs = len(found.fresh)
    if not pairs:
        return FreshRecord(0, None, None, found.why_not or "no pair was timed")
    saved = sorted(new - known for new, known in zip(found.fresh, found.repeated, strict=True))
    whole = statistics.median(found.fresh)
    low, _ = ranks(pairs, 50.0, FRESH_ERROR)
    return FreshRecord(pairs, statistics.median(saved) / whole, saved[low - 1] / whole if low else None)


def sum_up_server(found: Served | None) -> ServerRecord | None:
    """The server's latencies, and whether requests piled up."""
    if found is None or not found.seconds:
        return None
    mean = sum(found.service) / len(found.service)
    waits = [latency - service for latency, service in zip(found.seconds, found.service, strict=True)]
    half = len(waits) // 2
    early, late = (statistics.median(part) if part else 0.0 for part in (waits[:half], waits[half:]))
    held = found.rate * mean < 1 and late <= early + PILED_UP * max(mean, 1 / found.rate)
    return ServerRecord(found.rate, len(found.seconds), 1 / mean, held, _sample(found.seconds, found.windows, error_at(1)))


def sum_up_offline(found: Sequence[BatchTimes]) -> OfflineRecord | None:
    """Throughput by batch size; None where no sweep was made."""
    if not found:
        return None
    rows = tuple(_batch(one) for one in found)
    best = max((row.throughput for row in rows if row.throughput is not None), default=None)
    reaching = [row.batch for row in rows if best is not None and row.throughput is not None and row.throughput >= KNEE * best]
    return OfflineRecord(rows, min(reaching, default=None))


def _batch(one: BatchTimes) -> BatchRecord:
    if not one.seconds:
        return BatchRecord(one.batch, None, None, None, None, one.refused or "no call was timed")
    middle = interval(one.seconds, 50.0)
    return BatchRecord(
        batch=one.batch,
        seconds=middle.value,
        throughput=one.batch / middle.value,
        low=one.batch / middle.high if middle.high is not None else None,
        high=one.batch / middle.low if middle.low is not None else None,
    )

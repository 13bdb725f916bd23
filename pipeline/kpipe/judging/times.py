"""Latency samples summed up, and limits held against them. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kpipe.percentiles import NEEDED
from kpipe.record import LatencyRecord, LimitCheck, LoadRecord, Percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe.contract import LimitsTable
    from kpipe_stages.protocol import Latency

HISTOGRAM_POINTS = 400


def percentile(ordered: Sequence[float], p: float) -> float:
    """The smallest sample that at least ``p`` % of the samples do not exceed (nearest rank; never interpolated, never below what was seen)."""
    thousandths = round(p * 1000)  # whole numbers: 99.9 % of 1000 calls are 999, and not a rounding more
    return ordered[max(0, -(-thousandths * len(ordered) // 100_000) - 1)]


def summarise(latency: Latency | None) -> LatencyRecord | None:
    """Percentiles that the sample supports, no call left out."""
    if latency is None or not latency.seconds:
        return None
    ordered = sorted(latency.seconds)
    count = len(ordered)
    step = max(1, math.ceil(count / HISTOGRAM_POINTS))
    thinned = (*ordered[::step], ordered[-1]) if step > 1 else tuple(ordered)
    return LatencyRecord(
        calls=count,
        warmup_calls=latency.warmup_calls,
        stable=latency.stable,
        percentiles=tuple(Percentile(p, percentile(ordered, p)) for p, needed in NEEDED.items() if count >= needed),
        mean_s=sum(ordered) / count,
        histogram=thinned,
    )


def check_limits(
    limits: LimitsTable,
    *,
    load: LoadRecord | None,
    model_only: LatencyRecord | None,
    end_to_end: LatencyRecord | None,
    peak_bytes: int | None,
    size_bytes: int | None,
) -> tuple[LimitCheck, ...]:
    """Every absolute limit that the contract sets, against its measurement; one without a measurement is not ok."""
    values: dict[str, tuple[float | None, str]] = {
        "load_s": (load.import_s + load.load_s + load.first_s if load and not load.shared and not load.lean else None, "s"),
        "peak_mib": (peak_bytes / 2**20 if peak_bytes else None, "MiB"),
        "size_mib": (size_bytes / 2**20 if size_bytes is not None else None, "MiB"),
    }
    for prefix, record in (("", model_only), ("end_to_end_", end_to_end)):
        known = {p.p: p.seconds * 1e3 for p in record.percentiles} if record else {}
        values |= {f"{prefix}p{p}_ms": (known.get(float(p)), "ms") for p in (50, 90, 95, 99)}
    checks = []
    for name, limit in limits.absolute.items():
        value, unit = values[name]
        checks.append(LimitCheck(name, limit, value, unit, ok=value is not None and value <= limit))
    return tuple(checks)

"""Limits of the contract held against what was measured: met or missed for sure, or it can't be told yet. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kpipe.loads import decide as decide_loads
from kpipe.loads import sum_up, total
from kpipe.percentiles import NEEDED, percentile_limits
from kpipe.record import LimitCheck
from kpipe_stages.deciding_limits import decide
from kpipe_stages.intervals import Held
from kpipe_stages.protocol import LoadTimes, Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe.contract import LimitsTable

CODES = {"load_s": "KP501", "peak_mib": "KP503", "size_mib": "KP504"}

STRADDLES = "it lies within what the calls leave open"
DISTURBED = "it is missed, and others took the machine meanwhile"
NEXT = "Run again on a quiet machine; raise [timing] max_seconds (load_seconds for loads) so that more calls can settle it, or move the limit away from what is measured."


@dataclass(frozen=True)
class Sample:
    """Calls in the order they were made, and the machine meanwhile."""

    seconds: Sequence[float]
    windows: Sequence[Window]
    looks: int = 1
    waits: Sequence[float] = ()
    """Of each call, as `Latency.waits`."""


@dataclass(frozen=True)
class Measured:
    """What limits can be held against; None where it wasn't measured."""

    loads: Sequence[LoadTimes] = ()
    """Cold, quiet and whole ones only."""
    model_only: Sample | None = None
    end_to_end: Sample | None = None
    server: Sample | None = None
    peak_bytes: int | None = None
    size_bytes: int | None = None


def check_limits(limits: LimitsTable, measured: Measured) -> tuple[LimitCheck, ...]:
    """Every absolute limit that the contract sets, against its measurement; one without a measurement is not ok."""
    checks: dict[str, LimitCheck] = {}
    for prefix, sample in (("", measured.model_only), ("end_to_end_", measured.end_to_end), ("server_", measured.server)):
        for p, seconds in percentile_limits(limits, prefix).items():
            name = f"{prefix}p{p}_ms"
            checks[name] = _percentile(name, limits.absolute[name], float(p), seconds, sample)
    sizes = {"peak_mib": measured.peak_bytes, "size_mib": measured.size_bytes}
    found = []
    for name, limit in limits.absolute.items():
        if name == "load_s":
            found.append(_load(limit, measured.loads))
        elif name in sizes:
            value = sizes[name]
            mib = value / 2**20 if value is not None else None
            found.append(LimitCheck(name, limit, mib, "MiB", ok=mib is not None and mib <= limit))
        else:
            found.append(checks[name])
    return tuple(found)


def _percentile(name: str, limit: float, p: float, seconds: float, sample: Sample | None) -> LimitCheck:
    if sample is None or len(sample.seconds) < NEEDED[p]:
        return LimitCheck(name, limit, None, "ms", ok=False)
    decided = decide(sample.seconds, sample.windows, p, seconds, sample.looks, sample.waits)
    found = decided.found
    low, high = (end * 1e3 if end is not None else None for end in (found.low, found.high))
    why = (DISTURBED if decided.disturbed else STRADDLES) if decided.held is Held.OPEN else ""
    return LimitCheck(name, limit, found.value * 1e3, "ms", decided.held is Held.MET, low, high, why)


def _load(limit: float, loads: Sequence[LoadTimes]) -> LimitCheck:
    if not loads:
        return LimitCheck("load_s", limit, None, "s", ok=False)
    held, found = decide_loads(loads, limit), sum_up([total(load) for load in loads])
    why = ""
    if held is Held.OPEN:
        missed = decide_loads([replace(load, window=None) for load in loads], limit) is Held.MISSED  # as if nobody had taken the machine
        why = DISTURBED if missed else f"{len(loads)} loads leave it open" if len(loads) > 1 else "one load leaves it open"
    return LimitCheck("load_s", limit, found.median, "s", held is Held.MET, found.low, found.high, why)


def limit_findings(checks: Sequence[LimitCheck], add: Callable[..., None]) -> None:
    """A finding for every limit that isn't met for sure."""
    for check in checks:
        if check.value is None:
            cause = f"Limit {check.name} = {check.limit:g} {check.unit} could not be checked: it was not measured, or too few calls support it."
            add("KP505", cause, place=check.name)
        elif check.undecided:
            cause = f"{check.name} is {told(check)}; whether the contract's {check.limit:g} is kept can't be told yet: {check.undecided}."
            add("KP506", cause, place=check.name, remedy=NEXT, value=check.value, low=check.low, high=check.high, limit=check.limit)
        elif not check.ok:
            cause = f"{check.name} is {told(check)}; the contract allows {check.limit:g}."
            add(CODES.get(check.name, "KP502"), cause, place=check.name, value=check.value, low=check.low, high=check.high, limit=check.limit)


def told(check: LimitCheck) -> str:
    """``1.2 ms (1.1 to 1.4)``; an open end is said to be open."""
    if check.value is None:
        return "not measured"
    value = f"{check.value:.4g} {check.unit}"
    if check.low is None and check.high is None:
        return value
    low, high = (f"{end:.4g}" if end is not None else "open" for end in (check.low, check.high))
    return f"{value} ({low} to {high})"

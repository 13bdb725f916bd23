"""How many calls a latency percentile needs. Shared by the plan, which asks for them, and the judge, which prints no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kpipe.contract import LimitsTable

NEEDED = {50.0: 11, 90.0: 64, 95.0: 130, 99.0: 662, 99.9: 6636}
"""Calls that support a percentile at 99 % confidence (MLPerf Inference's early-stopping rule); below it, it isn't printed."""


def calls_needed(limits: LimitsTable) -> tuple[int, int]:
    """Model-only and end-to-end calls that the percentile limits need; relative ones are held against calls of their own (`kpipe_stages.race`)."""
    model = [NEEDED[float(p)] for p in (50, 90, 95, 99) if f"p{p}_ms" in limits.absolute]
    whole = [NEEDED[float(p)] for p in (50, 90, 95, 99) if f"end_to_end_p{p}_ms" in limits.absolute]
    return max(model, default=0), max(whole, default=0)


def percentile_limits(limits: LimitsTable, prefix: str) -> dict[str, float]:
    """Percentile, as text, to the seconds that the contract allows: of the model alone (no prefix), ``end_to_end_`` or ``server_``."""
    found = limits.absolute
    return {f"{p}": found[key] * 1e-3 for p in (50, 90, 95, 99) if (key := f"{prefix}p{p}_ms") in found}

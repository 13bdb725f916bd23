"""What a target's drift says of inputs that nobody has seen: bounds and predictions of its flip rate, and drift beside each margin. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from kpipe.judging.claims import flip_rate_upper, predicted_flip_rate, sampled_ids
from kpipe_stages.decisions import moves_within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe.golden import GoldenSet
    from kpipe.judging.ruled import Ruled
    from kpipe.judging.target import Judged
    from kpipe.record import GoldenSummary


def with_outlook(judged: Sequence[Judged], golden: GoldenSet, rules: Sequence[Ruled], confidence: float) -> list[Judged]:
    """Add to every target that was compared what the sampled inputs prove, and what its drift against their margins predicts."""
    if not rules:
        return list(judged)
    sampled = set(sampled_ids(golden))
    return [_looked(one, golden, rules, sampled, confidence) for one in judged]


def _looked(one: Judged, golden: GoldenSet, rules: Sequence[Ruled], sampled: set[str], confidence: float) -> Judged:
    if not one.record.cells.passed + one.record.cells.failed:
        return one
    flipped = {flip.input for flip in one.flips if not flip.tie}
    predictions = [p for ruled in rules if (p := _predicted(one, golden, ruled, sampled)) is not None]
    record = replace(
        one.record,
        flip_rate_bound=flip_rate_upper(len(flipped & sampled), len(sampled), confidence),
        predicted_flip_rate=max(predictions, default=None),
    )
    return replace(one, record=record)


def _predicted(one: Judged, golden: GoldenSet, ruled: Ruled, sampled: set[str]) -> float | None:
    drifts = one.per_input.get(ruled.spec.output)
    if not drifts:
        return None
    margins = [d.margin for g, d in zip(golden.inputs, ruled.decisions, strict=True) if g.id in sampled]
    return predicted_flip_rate(margins, drifts, moves_within(ruled.spec.rule, 1.0))


def with_drift(summary: GoldenSummary, judged: Sequence[Judged], output: str) -> GoldenSummary:
    """Put beside each input's margin the largest drift of a required target on the decision's output."""
    columns = [(one.record.name, one.per_input[output]) for one in judged if one.record.required and output in one.per_input]
    if not columns:
        return summary
    rows = []
    for i, row in enumerate(summary.rows):
        drift, name = max((drifts[i], name) for name, drifts in columns)
        rows.append(replace(row, drift=drift if not math.isnan(drift) else math.inf, drift_target=name))
    return replace(summary, rows=tuple(rows))

"""Margin against drift: on which side of the line each golden input lies, and how near."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kpipe.report import svg, text
from kpipe_stages.decisions import moves_within

if TYPE_CHECKING:
    from kpipe.record import GoldenRow, RunRecord

ROWS = 7
"""Height of the plot in rows."""
MOST_POINTS = 4000
"""The nearest to the line; a drawing of 20,000 points would be no page any more."""
NAMED = 3
EMPTY_DECADES = 0.5
DEEPEST = 1e-9
"""How far below the top the drawing goes: what is smaller lies on its lower edge."""


def reach_plot(record: RunRecord) -> str:
    """Every golden input: the margin of the reference's decision across, the largest drift of a required target up, both on log axes.

    Above the line a drift is large enough to make another decision; below it, none can be.

    Returns:
        An ``<svg>`` element, or the empty string where no input has both numbers.
    """
    rows = [r for r in record.golden.rows if math.isfinite(r.margin) and r.margin > 0 and not math.isnan(r.drift)]
    if not rows or record.decision is None:
        return ""
    safe = moves_within(record.decision.rule, 1.0)
    drawn = sorted(rows, key=lambda r: safe * r.margin / r.drift if r.drift > 0 else math.inf)[:MOST_POINTS]
    low_x, high_x = _span([r.margin for r in drawn])
    finite = [r.drift for r in drawn if 0 < r.drift < math.inf] or [low_x * 1e-3]
    high_y = max(safe * high_x, *finite) * 1.5
    low_y = max(min(finite) / 3, high_y * DEEPEST)
    with svg.canvas("reach", rows=ROWS, row=0.34) as page:
        axes = page.axes
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(low_x, high_x)
        axes.set_ylim(low_y, high_y)
        line = [safe * low_x, safe * high_x]
        axes.fill_between([low_x, high_x], line, [high_y, high_y], color=svg.FAIL, alpha=0.08, lw=0)
        axes.plot([low_x, high_x], line, color=svg.FAIL, lw=1.4)
        axes.text(low_x * 1.15, high_y * 0.4, "a drift above the line can flip the decision", color=svg.FAIL, fontsize=10.5, va="top")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_minor_formatter(lambda _value, _: "")
        axes.tick_params(axis="both", which="minor", length=0)
        for over in (False, True):
            points = [(r.margin, min(max(r.drift, low_y * 1.2), high_y * 0.85)) for r in drawn if (r.drift >= safe * r.margin) is over]
            marker, size, color = ("X", 7.0, svg.FAIL) if over else ("o", 4.5, svg.ACCENT)
            axes.plot([x for x, _ in points], [y for _, y in points], marker, ms=size, color=color, alpha=0.7, ls="none", mew=0)
        axes.grid(axis="y", color=svg.GRID, lw=0.6)
        axes.set_xlabel("margin of the reference's decision, in output units")
        axes.set_ylabel("largest drift of a required target")
        return page.finish("Margin against drift, by golden input", _words(drawn, safe, len(rows)))


def _span(values: list[float]) -> tuple[float, float]:
    low, high = math.log10(min(values)), math.log10(max(values))
    return 10 ** (low - EMPTY_DECADES), 10 ** (high + EMPTY_DECADES)


def _words(rows: list[GoldenRow], safe: float, total: int) -> str:
    over = sum(r.drift >= safe * r.margin for r in rows)
    near = ", ".join(
        f"{text.shorten(r.id, 40)} ({text.number(safe * r.margin / r.drift if r.drift > 0 else math.inf)} times its drift)" for r in rows[:NAMED]
    )
    return f"{text.count(total, 'input')}; {over} within reach of a flip; nearest: {near}"

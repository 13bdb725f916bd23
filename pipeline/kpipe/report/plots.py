"""Drift, margins, latency and the run's timeline as SVG text.

Figures are drawn through `matplotlib.figure.Figure` (never pyplot), with colours that `svg.finish` turns into CSS variables, so
that one drawing is legible on light and dark paper. No date, no random ids: the same record gives the same bytes.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kpipe.record import LatencyRecord
from kpipe.report import summary, svg, text
from kpipe_stages.decisions import moves_within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from kpipe.record import Drift, RunRecord, TargetRecord

MAX_ROWS = 60
"""A plot with more rows than this is no longer read; the table has them all."""

_ROW = 0.34
"""Inches."""


@dataclass(frozen=True)
class Timed:
    """A target with a latency sample that can be drawn."""

    name: str
    sample: tuple[float, ...]
    latency: LatencyRecord


def drift_plot(record: RunRecord) -> str:
    """Every output and mode of every target: how much of its tolerance it used up (log axis), the tolerance as a line.

    Returns:
        An ``<svg>`` element, or the empty string where nothing was compared.
    """
    targets = [t for t in record.targets if t.drift][:MAX_ROWS]
    if not targets:
        return ""
    low, high = _decades([d.smallest_factor for t in targets for d in t.drift if d.tolerance.numeric], (-2, 1))
    with svg.canvas("drift", rows=len(targets), row=_ROW) as page:
        axes = page.axes
        _rows(axes, [_label(t.name) for t in targets])
        _log_axis(axes, low, high, left=low * 0.12, right=high * 8)
        axes.axvspan(1, high * 8, color=svg.FAIL, alpha=0.08, lw=0)
        axes.axvline(1, color=svg.INK, lw=1.2)
        axes.text(1.12, -0.72, "tolerance", color=svg.INK, fontsize=10.5, va="center")
        for y, target in enumerate(targets):
            for d in target.drift:
                if d.tolerance.numeric:
                    _drift_dot(axes, d, y, low, high)
            if not any(d.tolerance.numeric for d in target.drift):
                axes.text(low, y, "judged by decisions", color=svg.INK, fontsize=10.5, va="center")
        axes.set_xlabel("largest difference as a multiple of what is allowed (left edge: exact; right edge: not finite)")
        return page.finish("Drift by target against the tolerance", _drift_words(targets))


def _drift_dot(axes: Axes, drift: Drift, y: float, low: float, high: float) -> None:
    factor = drift.smallest_factor
    x = high * 4 if not math.isfinite(factor) else min(max(factor, low * 0.35 if factor <= 0 else low), high)
    failed = not summary.drift_passes(drift)
    marker = "X" if failed else ("o" if drift.mode == "alone" else "D" if " vs " in drift.mode else "s")
    color = svg.FAIL if failed else svg.PASS
    lift = 0.0 if drift.mode == "alone" else (0.2 if " vs " in drift.mode else -0.2)
    axes.plot([x], [y + lift], marker, ms=7 if failed else 6, mfc=color, mec=color, mew=1, ls="none", alpha=0.9)


def _drift_words(targets: Sequence[TargetRecord]) -> str:
    parts = []
    for target in targets:
        worst = summary.worst_drift(target)
        if worst:
            told = f"{text.share(worst.smallest_factor)} of the tolerance" if worst.tolerance.numeric else "judged by decisions"
            parts.append(f"{_label(target.name)}: {told}")
    return "; ".join(parts)


def margin_plot(record: RunRecord) -> str:
    """Histogram of the reference's margins (log axes); shaded is what the largest drift could flip."""
    margins = [r.margin for r in record.golden.rows if math.isfinite(r.margin) and r.margin > 0]
    if not margins:
        return ""
    reach = decision_reach(record)
    low, high = _decades([*margins, *([reach] if reach else [])], (-1, 0))
    edges = _log_edges(low, high, per_decade=6)
    heights = _histogram(margins, edges)
    with svg.canvas("margin", rows=5, row=_ROW) as page:
        axes = page.axes
        axes.bar(edges[:-1], heights, [(b - a) * 0.94 for a, b in itertools.pairwise(edges)], align="edge", color=svg.ACCENT, alpha=0.75, lw=0)
        _log_axis(axes, low, high, left=low, right=high)
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(0, max(heights) * 3)
        ticks = [0, *(10**e for e in range(math.ceil(math.log10(max(heights) + 1)) + 1) if 10**e <= max(heights) * 2)]
        axes.set_yticks(ticks, [f"{t:,}" for t in ticks], minor=False)
        axes.tick_params(axis="y", which="minor", length=0)
        axes.set_ylabel("golden inputs, log scale")
        by = f" by rule {_label(record.decision.name)}" if record.decision and record.decision.name else ""
        axes.set_xlabel(f"margin of the reference's decision{by}, in output units")
        if reach:
            _mark_reach(axes, reach, (low, high), max(heights) * 1.9)
        words = f"{len(margins)} inputs; smallest margin {text.number(min(margins))}; the largest drift could flip margins up to {text.number(reach)}"
        return page.finish("Margins of the reference's decisions", words)


def _mark_reach(axes: Axes, reach: float, span: tuple[float, float], height: float) -> None:
    low, high = span
    axes.axvspan(low, reach, color=svg.FAIL, alpha=0.08, lw=0)
    axes.axvline(reach, color=svg.FAIL, lw=1.4)
    right = math.log(reach / low) > 0.6 * math.log(high / low)
    axes.text(reach, height, f"  within reach: {text.number(reach)}  ", color=svg.FAIL, fontsize=10.5, va="center", ha="right" if right else "left")


def decision_reach(record: RunRecord) -> float | None:
    """The largest margin that the largest finite drift of a required target on the decision's output could flip.

    A threshold flips where the score moves by the margin; between two scores both may move, so half the margin suffices (the margins are
    `kpipe_stages.decisions`'). None where there is no decision or no drift.
    """
    if record.decision is None:
        return None
    drifts = [d.max_abs for t in record.targets if t.required for d in t.drift if d.output == record.decision.output]
    worst = max((d for d in drifts if math.isfinite(d) and d > 0), default=None)
    return worst / moves_within(record.decision.rule, 1.0) if worst is not None else None


def latency_plot(record: RunRecord) -> str:
    """Model-only latency: the distribution of the calls per target (log axis) with p50 and p90 marked."""
    timed = [t for t in map(_timed, [*([record.reference] if record.reference else []), *record.targets]) if t][:MAX_ROWS]
    if not timed:
        return ""
    low, high = _decades([x for t in timed for x in t.sample], None)
    edges = _log_edges(low, high, per_decade=24)
    with svg.canvas("latency", rows=len(timed), row=_ROW * 1.25) as page:
        axes = page.axes
        _rows(axes, [t.name for t in timed])
        _log_axis(axes, low, high, left=low, right=high * 1.6)
        for y, target in enumerate(timed):
            _latency_row(axes, y, target, edges)
        axes.xaxis.set_major_formatter(lambda x, _: text.seconds(x))
        axes.set_xlabel("seconds a call, log scale; filled: the calls, | p50, > p90")
        return page.finish("Latency by target", "; ".join(f"{t.name}: p50 {text.seconds(summary.percentile(t.latency, 50))}" for t in timed))


def _timed(target: TargetRecord) -> Timed | None:
    if target.latency is None:
        return None
    sample = tuple(x for x in target.latency.histogram if math.isfinite(x) and x > 0)
    return Timed(_label(target.name), sample, target.latency) if sample else None


def _latency_row(axes: Axes, y: float, target: Timed, edges: list[float]) -> None:
    heights = _histogram(target.sample, edges)
    # Only from the first to the last bin that holds a call: a line of zeros would say that something was measured there.
    first = next(i for i, h in enumerate(heights) if h)
    last = len(heights) - next(i for i, h in enumerate(reversed(heights)) if h)
    shape = [h / max(heights) * 0.62 for h in heights[first:last]]
    axes.stairs([y + 0.3 - h for h in shape], edges[first : last + 1], baseline=y + 0.3, fill=True, color=svg.ACCENT, alpha=0.6, lw=0)
    for p, marker, size in ((50.0, "|", 9), (90.0, ">", 5)):
        value = summary.percentile(target.latency, p)
        if value is not None and math.isfinite(value) and value > 0:
            axes.plot([value], [y + 0.3], marker, color=svg.INK, ms=size, mew=1.6, ls="none")
    p50 = summary.percentile(target.latency, 50)
    axes.text(
        max(target.sample) * 1.15, y + 0.12, text.seconds(p50) if p50 is not None else "too few calls", color=svg.INK, fontsize=10.5, va="center"
    )


def timeline_plot(record: RunRecord) -> str:
    """One bar a worker process, from its start to its end."""
    drawable = [s for s in record.stages if math.isfinite(s.begin_s) and math.isfinite(s.end_s) and s.end_s >= s.begin_s]
    drawable = sorted(drawable, key=lambda s: (s.begin_s, s.name))[:MAX_ROWS]
    if not drawable:
        return ""
    end = max(s.end_s for s in drawable) or 1.0
    with svg.canvas("timeline", rows=len(drawable), row=0.27) as page:
        axes = page.axes
        _rows(axes, [_label(s.name) for s in drawable])
        for y, stage in enumerate(drawable):
            fine = stage.outcome in ("ok", "reused")
            hatch: dict[str, Any] = {} if fine else {"hatch": "////"}
            axes.barh(
                y,
                max(stage.end_s - stage.begin_s, end / 400),
                left=stage.begin_s,
                height=0.56,
                color=svg.ACCENT if fine else svg.FAIL,
                alpha=0.75,
                lw=0,
                **hatch,
            )
            note = text.seconds(stage.end_s - stage.begin_s) + ("" if stage.outcome == "ok" else f", {text.shorten(stage.outcome, 20)}")
            axes.text(stage.end_s + end * 0.008, y, note, color=svg.INK, fontsize=10, va="center")
        axes.set_xlim(0, end * 1.16)
        axes.set_xlabel("seconds since the run began")
        return page.finish(
            "Timeline of the run", "; ".join(f"{_label(s.name)} {text.seconds(s.begin_s)} to {text.seconds(s.end_s)}" for s in drawable)
        )


def _label(name: str) -> str:
    return text.shorten(name, 22)


def _rows(axes: Axes, labels: list[str]) -> None:
    """Name the rows, the first on top."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.45, -1.0 if len(labels) else 0)
    axes.tick_params(axis="y", length=0)
    for y in range(len(labels)):
        axes.axhline(y + 0.5, color=svg.GRID, lw=0.6, zorder=0)


def _log_axis(axes: Axes, low: float, high: float, *, left: float, right: float) -> None:
    axes.set_xscale("log")
    axes.set_xlim(left, right)
    ticks = [10.0**e for e in range(round(math.log10(low)), round(math.log10(high)) + 1)]
    step = math.ceil(len(ticks) / 9)
    axes.set_xticks(ticks[::step], [f"{t:g}" for t in ticks[::step]])
    axes.minorticks_off()


def _decades(values: Sequence[float], at_least: tuple[int, int] | None) -> tuple[float, float]:
    """Powers of ten around the finite positive values, at most 16 decades."""
    logs = [math.log10(v) for v in values if math.isfinite(v) and v > 0]
    low, high = (math.floor(min(logs)), math.ceil(max(logs))) if logs else (0, 1)
    if at_least:
        low, high = min(low, at_least[0]), max(high, at_least[1])
    high = max(high, low + 1)
    low, high = max(low, high - 16, -300), min(high, 300)
    return 10.0**low, 10.0**high


def _log_edges(low: float, high: float, *, per_decade: int) -> list[float]:
    start, decades = math.log10(low), math.log10(high / low)
    bins = max(1, round(decades * per_decade))
    return [10 ** (start + decades * i / bins) for i in range(bins + 1)]


def _histogram(values: Sequence[float], edges: list[float]) -> list[int]:
    """Counts per bin; what lies outside goes to the outermost bins, so that the sum is the number of values."""
    start, width = math.log(edges[0]), math.log(edges[-1] / edges[0])
    bins = len(edges) - 1
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, max(0, int((math.log(value) - start) / width * bins)))] += 1
    return counts

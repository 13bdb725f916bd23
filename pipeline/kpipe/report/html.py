"""``report.html``: one file, no script, nothing fetched; the verdict first."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kpipe.codes import CODES
from kpipe.record import CellCounts
from kpipe.report import grouping, ledger, plots, reach_plot, savings, shape_table, summary, text
from kpipe.report.comparison import blocks as comparison_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Environment

    from kpipe.codes import Code
    from kpipe.record import Drift, RunRecord

MAX_BYTES = 5_000_000
"""What a mail server, a browser on a phone and a CI artifact viewer take without a word."""

GALLERY = 24
"""Pictures of inputs that did not flip."""

_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*")
_TEXT_LIMIT = 4000
"""Characters of one value: a log's tail fits, a log doesn't."""


@dataclass(frozen=True)
class Limits:
    """How much of each list is shown. Failures come first in every one; what is left out is counted in the page."""

    cards: int
    """Flipped inputs with picture and scores."""
    lines: int
    """Further flipped inputs, a line each."""
    findings: int
    """Findings of one code on one target."""
    groups: int
    """Pairs of code and target."""
    rows: int
    """Golden inputs; comparisons take four times as many."""
    picture_bytes: int
    """All pictures together."""


LADDER = (
    Limits(cards=60, lines=40_000, findings=20, groups=400, rows=100, picture_bytes=1_500_000),
    Limits(cards=60, lines=10_000, findings=20, groups=200, rows=100, picture_bytes=1_000_000),
    Limits(cards=30, lines=2_000, findings=10, groups=100, rows=50, picture_bytes=500_000),
    Limits(cards=10, lines=200, findings=5, groups=40, rows=20, picture_bytes=100_000),
    Limits(cards=5, lines=20, findings=2, groups=20, rows=5, picture_bytes=0),
)


def render_html(record: RunRecord, pictures: Mapping[str, str]) -> str:
    """The page.

    Args:
        record: the run.
        pictures: golden input id to a ``data:`` URI of a PNG, JPEG, GIF or WebP; anything else is not shown.

    Returns:
        The document, below `MAX_BYTES` in UTF-8 unless the record holds thousands of targets: the page shows fewer rows,
        pictures and findings until it fits, failures first, and says how many are left out.
    """
    context = _context(record)
    page = ""
    for limits in LADDER:
        page = _environment().get_template("report.html.j2").render(**context, **cut_lists(record, pictures, limits))
        if len(page.encode()) <= MAX_BYTES:
            break
    return page


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # The lint rule can't see that autoescape is on for every template, whatever its name.
    environment = Environment(
        loader=PackageLoader("kpipe.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        num=text.number,
        secs=text.seconds,
        bytes=text.size,
        share=text.share,
        portion=text.portion,
        score=text.score,
        brief=text.shorten,
        count=text.count,
        listing=text.listing,
        jsonish=_jsonish,
        told=ledger.told,
        steadiness=summary.steadiness,
        shape=_shape,
        utc=lambda stamp: text.utc(stamp).replace("T", " ").replace("Z", " UTC") or text.clean(stamp),
    )
    environment.tests["agreeing"] = summary.drift_passes
    environment.tests["unapproved"] = ledger.unapproved
    return environment


def _printable(value: Any) -> Any:
    """Whatever reaches the page is free of control characters; autoescape then takes care of markup."""
    if value is None:
        return text.ABSENT
    if isinstance(value, str) and not hasattr(value, "__html__"):
        if _PICTURE.fullmatch(value):
            return value  # `_pictures` has counted it; half a picture is none
        cut = value if len(value) <= _TEXT_LIMIT else f"{value[:_TEXT_LIMIT]}... ({len(value) - _TEXT_LIMIT:,} more characters in run.json)"
        return text.clean(cut, multiline=True)
    return value


def _jsonish(value: Any) -> str:
    """A fact of a runtime on one line."""
    return text.shorten(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str), 300)


def _shape(shape: Sequence[int | None] | None) -> str:
    """``? x 16 x 16 x 1``; ``scalar``; ``rank not known``."""
    if shape is None:
        return "rank not known"
    return " x ".join("?" if n is None else str(n) for n in shape) or "scalar"


def _context(record: RunRecord) -> dict[str, Any]:
    """What does not depend on how much is shown."""
    from markupsafe import Markup

    flips = ledger.flips_by_target(record)
    drawn = {
        "drift": plots.drift_plot(record),
        "margin": plots.margin_plot(record),
        "reach": reach_plot.reach_plot(record),
        "latency": plots.latency_plot(record),
        "timeline": plots.timeline_plot(record),
    }
    return {
        "record": record,
        "row_of_reference": summary.target_row(record.reference) if record.reference else None,
        "rules": summary.rules(record),
        "rows": list(zip(summary.rows(record), record.targets, strict=True)),
        "gauges": [_gauge(summary.worst_drift(t)) for t in record.targets],
        "cells": _cells(record),
        "savings": savings.saving_rows(record),
        "saving_headings": savings.HEADINGS,
        "savings_explained": savings.EXPLAINED,
        "statuses": summary.status_counts(record),
        "caveats": summary.warnings_first(record),
        "trusted": summary.trusted(record),
        "counts": {severity.value: len(found) for severity, found in summary.by_severity(record.findings).items()},
        "flips_by_target": flips,
        "flipped": len({f.input for f in record.flips}),
        "reach": plots.decision_reach(record),
        "classes": ledger.histogram(record.golden.classes, 24),
        "slices": ledger.histogram(record.golden.slices, 24),
        "codes": _codes(record),
        "baseline_blocks": comparison_blocks(record.baseline) if record.baseline else [],
        "shape_rows": shape_table.rows(record),
        "shape_targets": shape_table.targets(record),
        "shape_note": shape_table.NOTE,
        # Drawn here, from text that matplotlib escaped.
        "plots": {name: Markup(drawing) for name, drawing in drawn.items()},  # noqa: S704 - as said
    }


def _cells(record: RunRecord) -> dict[str, Any]:
    """The cells of the required targets, counted, with per cents for the bar."""
    counted = [t.cells for t in record.targets if t.required]
    total = CellCounts(sum(c.passed for c in counted), sum(c.failed for c in counted), sum(c.unchecked for c in counted))
    everything = total.passed + total.failed + total.unchecked
    parts = [("pass", total.passed), ("fail", total.failed), ("unchecked", total.unchecked)]
    # A single failing cell among millions must still be seen.
    widths = {name: max(1.5, n / everything * 100) if n else 0.0 for name, n in parts}
    return {"total": everything, "parts": parts, "widths": widths}


def _gauge(drift: Drift | None) -> float | None:
    """Where a drift lies on a log scale from 1/10,000 to 100 times its tolerance, per cent; None where numbers aren't judged."""
    if drift is None or not drift.tolerance.numeric:
        return None
    factor = drift.smallest_factor
    if not math.isfinite(factor):
        return 100.0
    return round(min(100.0, max(1.0, (math.log10(factor) + 4) / 6 * 100)), 1) if factor > 0 else 1.0


def _codes(record: RunRecord) -> list[Code]:
    return [CODES[code] for code in sorted({f.code for f in record.findings}) if code in CODES]


def cut_lists(record: RunRecord, pictures: Mapping[str, str], limits: Limits) -> dict[str, Any]:
    """The lists, cut to size; every one with the number of what it leaves out."""
    found = ledger.entries(record)
    flipped = {e.input for e in found}
    cards, lines = found[: limits.cards], found[limits.cards : limits.cards + limits.lines]
    drifts = sorted(
        ((t, d) for t in record.targets for d in t.drift),
        key=lambda pair: (summary.drift_passes(pair[1]), not pair[0].required, -text.badness(pair[1].smallest_factor)),
    )
    golden = ledger.rows_worth_showing(record.golden.rows, flipped, limits.rows)
    close = [row for row in golden if row.id not in flipped][:GALLERY]
    uris = _pictures([*(e.input for e in cards), *(row.id for row in close)], pictures, limits.picture_bytes)
    return {
        "cards": list(zip(cards, uris[: len(cards)], strict=True)),
        "gallery": [(row, uri) for row, uri in zip(close, uris[len(cards) :], strict=True) if uri],
        "lines": lines,
        "lines_left_out": len({entry.input for entry in found[len(cards) + len(lines) :]}),
        "drifts": drifts[: limits.rows * 4],
        "drifts_left_out": max(0, len(drifts) - limits.rows * 4),
        "golden_rows": [(row, ledger.wrong(row, flipped)) for row in golden],
        "golden_left_out": len(record.golden.rows) - len(golden),
        "groups": {
            severity.value: grouping.group(members, each=limits.findings, most=limits.groups)
            for severity, members in summary.by_severity(record.findings).items()
        },
    }


def _pictures(inputs: Sequence[str], pictures: Mapping[str, str], budget: int) -> list[str]:
    """A usable ``data:`` URI per input, empty where there is none or where the budget is spent."""
    chosen = []
    for name in inputs:
        uri = pictures.get(name, "")
        usable = _PICTURE.fullmatch(uri) is not None and len(uri) <= budget
        budget -= len(uri) if usable else 0
        chosen.append(uri if usable else "")
    return chosen

"""``kpipe diagnose``: the first layer that leaves the reference, in text or JSON."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from kpipe.cli.console import Progress, width
from kpipe.errors import Exit
from kpipe.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kpipe.diagnosis.result import Diagnosis
    from kpipe.judging.layers import LayerDrift

SHOWN = 24
"""Rows of the table around the layer that is named; all of them are in ``diagnosis.json``."""
INPUTS = 4
"""Golden ids that the last line names."""
COLUMNS = ("layer", "class", "output", "before", "floors", "verdict")


def run_diagnose(run: Path, target: str, golden: str | None, out: Path | None, *, as_json: bool) -> int:
    """Diagnose and print; 0 where a layer is named, an artifact, a fusion or the reference is blamed, or nothing differs; 1 where it can't be told."""
    from kpipe.diagnosis.diagnose import DiagnoseRequest, diagnose
    from kpipe.diagnosis.result import Outcome
    from kpipe_stages.codec import encode

    progress = Progress(quiet=as_json)
    try:
        found = diagnose(DiagnoseRequest(run, target, golden, out, os.environ.get("KPIPE_CACHE_DIR")), progress)
    finally:
        progress.close()
    if as_json:
        print(json.dumps(encode(found), ensure_ascii=False, indent=1))
    else:
        print("\n".join(printable(line) for line in lines(found, width())))
    return Exit.FAIL if found.outcome is Outcome.UNTOLD else Exit.PASS


def lines(found: Diagnosis, columns: int) -> Iterator[str]:
    """The table, the sentence, what to do, and what is in the folder."""
    import textwrap

    rows = _around(found)
    if rows:
        yield from _table(rows)
        if (left := len(found.layers) - len(rows)) > 0:
            yield f"  {left} more in diagnosis.json"
        yield ""
    for text in (found.sentence, found.remedy):
        yield from textwrap.wrap(text, max(60, columns))
    for note in found.notes:
        yield from textwrap.wrap(note, max(60, columns), initial_indent="  ", subsequent_indent="  ")
    if found.reproducer is not None:
        yield from textwrap.wrap(_reproduced(found), max(60, columns))
    shown = ", ".join(found.inputs[:INPUTS]) + (" ..." if len(found.inputs) > INPUTS else "")
    yield f"{found.target}, mode {found.mode}, {len(found.inputs)} golden inputs ({shown}), {found.seconds:.0f} s"


def _reproduced(found: Diagnosis) -> str:
    made = found.reproducer
    assert made is not None
    if made.reproduces is None:
        return f"Reproducer {made.folder}: it could not be tried. {made.said}"
    if made.reproduces:
        return f"Reproducer {made.folder}: the layer alone differs too ({made.said})."
    return f"Reproducer {made.folder}: the layer alone does NOT differ ({made.said}); the fault needs what stands around it."


def _around(found: Diagnosis) -> list[LayerDrift]:
    """The rows to show: all of a small model, else those around the layer that is named."""
    rows = list(found.layers)
    if len(rows) <= SHOWN:
        return rows
    at = next((i for i, row in enumerate(rows) if found.layer is not None and row.point == found.layer.point), 0)
    start = max(0, min(at - SHOWN // 3, len(rows) - SHOWN))
    return rows[start : start + SHOWN]


def _table(rows: list[LayerDrift]) -> Iterator[str]:
    cells = [COLUMNS, *(_cells(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(COLUMNS))]
    for row in cells:
        yield "  ".join(
            cell.rjust(wide) if i in {3, 4} else cell.ljust(wide) for i, (cell, wide) in enumerate(zip(row, widths, strict=True))
        ).rstrip()


def _cells(row: LayerDrift) -> tuple[str, ...]:
    shape = "?" if row.shape is None else "x".join("?" if n is None else str(n) for n in row.shape[1:]) or "scalar"
    floors = "-" if row.drift is None else row.drift.problem or f"{row.drift.floors:.3g}"
    return row.layer, row.class_name, f"{row.dtype} {shape}", f"{row.before:.3g}", floors, row.standing.value

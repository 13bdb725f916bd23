"""``kpipe golden``: a golden set verified, added to, mined for; then what was found, in text or JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kpipe.cli.console import Progress
from kpipe.errors import Exit
from kpipe.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kpipe.curating.add import AddReport, AddRequest
    from kpipe.curating.mine import MineReport, MineRequest
    from kpipe.curating.verify import SetReport

LISTED = 20
"""Rejected files that are named; the others are counted, and in the JSON."""

TABLE = ("id", "why", "margin", "decision")


def run_verify(folder: Path, contract: Path | None, *, as_json: bool) -> int:
    """Verify and print; 1 where something is wrong."""
    from kpipe.curating.verify import verify_set

    report = _watched(lambda hear: verify_set(folder, contract, hear), quiet=as_json)
    _show(report, _verified(report), as_json=as_json)
    return Exit.PASS if report.ok else Exit.FAIL


def run_add(request: AddRequest, *, as_json: bool) -> int:
    """Add and print."""
    from kpipe.curating.add import add_files

    report = _watched(lambda hear: add_files(request, hear), quiet=as_json)
    _show(report, _added(report), as_json=as_json)
    return Exit.PASS


def run_mine(request: MineRequest, *, as_json: bool) -> int:
    """Mine and print; 1 where fewer were found than asked for."""
    from kpipe.curating.mine import mine_pool

    report = _watched(lambda hear: mine_pool(request, hear), quiet=as_json)
    _show(report, _mined(report), as_json=as_json)
    return Exit.PASS if len(report.added) == report.wanted else Exit.FAIL


def _watched(work: Callable[[Progress], Any], *, quiet: bool) -> Any:
    progress = Progress(quiet=quiet)
    try:
        return work(progress)
    finally:
        progress.close()


def _show(report: Any, lines: Iterator[str], *, as_json: bool) -> None:
    from kpipe_stages.codec import encode

    print(json.dumps(encode(report), ensure_ascii=False, indent=1) if as_json else "\n".join(map(printable, lines)))


def _verified(report: SetReport) -> Iterator[str]:
    state = "all is well" if report.ok else f"{len(report.problems)} problem{'s' if len(report.problems) > 1 else ''}"
    yield f"{report.folder}: {report.inputs} golden inputs, {report.decoded} of them decoded by {report.contract}; {state}"
    yield f"  chosen           {_counts(report.chosen)}"
    yield f"  expected         {_counts(report.expected)}"
    yield f"  labels           {_counts(report.labels)}"
    yield f"  slices           {_counts(report.slices)}"
    yield f"  manifest sha256  {report.manifest_sha256}"
    yield from (f"{problem.id}: {problem.what}" for problem in report.problems)
    yield from (f"note: {note}" for note in report.notes)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"


def _added(report: AddReport) -> Iterator[str]:
    yield from _taken_back(report.taken_back)
    for item in report.added:
        asked = f"; the model decides '{item.decision}', margin {item.margin:.4g}" if item.decision is not None and item.margin is not None else ""
        other = " (NOT the approved one)" if item.decision is not None and item.expected not in {None, item.decision} else ""
        tied = " (tied: it proves nothing)" if item.tied else ""
        yield f"{item.id}: {item.file}, {item.chosen}, expected {item.expected or 'nothing'}{asked}{other}{tied}"
    yield f"{report.folder}: {len(report.added)} golden input{'s' if len(report.added) > 1 else ''} added"
    if report.approved_by:
        yield f"Each expected decision above is the model's own (SHA-256 {report.approved_by[:12]}). A model that approves itself proves nothing:"
        yield "look at every file, correct manifest.toml where the decision is wrong, and let a second person review it."
    yield from (f"note: {note}" for note in report.notes)
    yield from _manifest(report.manifest_sha256, report.manifest_named)


def _mined(report: MineReport) -> Iterator[str]:
    yield from _taken_back(report.taken_back)
    rows = [(i.id, i.how, "-" if i.margin is None else f"{i.margin:.4g}", "-" if i.decision is None else i.decision) for i in report.added]
    yield from _columns([TABLE, *rows])
    mix = ", ".join(f"{share} by {by}" for by, share in report.shares.items())
    yield f"{report.folder}: {len(report.added)} of {report.wanted} added as mined, none with an expected decision ({mix})"
    yield (
        f"  of {report.pool} files in the pool: {report.in_set} in the set already, {report.twice} with the bytes of another, "
        f"{len(report.rejected)} that can't be inputs, {report.unusable} undecided or tied"
    )
    rejected = list(report.rejected.items())
    yield from (f"  {name}: {why}" for name, why in rejected[:LISTED])
    if len(rejected) > LISTED:
        yield f"  and {len(rejected) - LISTED} more; --json lists all"
    if report.missing:
        yield f"  never decided, in the set or by what was added: {', '.join(report.missing)}"
    yield "Look at each, and write the decision that the product may give as its expected in manifest.toml."
    yield from _manifest(report.manifest_sha256, report.manifest_named)


def _taken_back(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield f"note: an earlier addition was interrupted; what it had left was removed: {', '.join(names)}"


def _manifest(digest: str, named: str) -> Iterator[str]:
    yield f"  manifest sha256  {digest}"
    if named and named != digest:
        yield f"The contract names another one, {named}: update [golden] manifest_sha256 on purpose."


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

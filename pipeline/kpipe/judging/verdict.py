"""Findings and cells to one verdict. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.codes import CODES, UNCHECKED_CODES
from kpipe.findings import Severity
from kpipe.record import CellStatus, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe.findings import Finding
    from kpipe.record import TargetRecord


def failing(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that fail the run: errors of required targets that are about the artifact, not the machine, and that nobody answers for."""
    return [f for f in findings if f.required and f.severity is Severity.ERROR and f.code not in UNCHECKED_CODES and not f.waived]


def unchecking(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that leave something of a required target unchecked."""
    return [f for f in findings if f.required and f.code in UNCHECKED_CODES]


def reach(findings: Sequence[Finding], targets: Sequence[TargetRecord], *, synthetic: bool, incomplete: str) -> tuple[Verdict, str]:
    """The verdict and the sentence that says why.

    FAIL over INCOMPLETE over PASS: an error finding or a failed cell of a required target fails, unless a waiver covers it; an unchecked cell, no required target at
    all, synthetic inputs or a run cut short leave it incomplete; only what is left has passed.
    """
    required = [t for t in targets if t.required]
    failed = [t.name for t in required if (t.cells.failed or t.status is CellStatus.FAIL) and not t.waived]
    errors = failing(findings)
    if errors or failed:
        return Verdict.FAIL, _why_failed(errors, failed)
    if reason := incomplete or _why_incomplete(findings, required, synthetic=synthetic):
        return Verdict.INCOMPLETE, reason
    return Verdict.PASS, _why_passed(findings, required)


def _why_passed(findings: Sequence[Finding], required: Sequence[TargetRecord]) -> str:
    cells = sum(t.cells.passed for t in required)
    who = f"{len(required)} required targets agree" if len(required) != 1 else "1 required target agrees"
    if waived := [f for f in findings if f.waived and f.required]:
        left = sum(t.cells.failed for t in required)
        differ = f", and differ on {left}" if left else ""
        owners = ", ".join(dict.fromkeys(f.waived.split(" until ")[0] for f in waived))
        return f"{who} with the reference on {cells} cells{differ}; {len(waived)} finding{'s' if len(waived) > 1 else ''} waived by {owners}."
    return f"{who} with the reference on all {cells} cells."


def _why_failed(errors: list[Finding], failed: list[str]) -> str:
    if not errors:
        return f"Cells failed on {', '.join(failed)}."
    first = errors[0]
    where = f"{first.target}: " if first.target else ""
    others = len(errors) - 1
    more = f", and {others} more error finding{'' if others == 1 else 's'}" if others else ""
    return f"{where}{CODES[first.code].title} ({first.code}){more}."


def _why_incomplete(findings: Sequence[Finding], required: Sequence[TargetRecord], *, synthetic: bool) -> str:
    if not required:
        return "No required target was checked."
    if cells := sum(t.cells.unchecked for t in required):
        names = ", ".join(t.name for t in required if t.cells.unchecked)
        return f"{cells} cell{'s' if cells != 1 else ''} of {names} could not be checked."
    if left := unchecking(findings):
        return f"{CODES[left[0].code].title} ({left[0].code}): {left[0].cause}"
    if empty := [t.name for t in required if t.status is CellStatus.UNCHECKED or not (t.cells.passed or t.waived)]:
        return f"Nothing of {', '.join(empty)} was checked."
    if synthetic:
        return "Numbers agree on synthetic inputs; nothing is known of decisions on real data. Run 'kpipe init' next."
    return ""

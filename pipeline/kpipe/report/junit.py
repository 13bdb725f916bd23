"""``junit.xml``: a suite a target, a case an output and way of running; red whenever the verdict is not PASS.

What a required target was to show and didn't is an ``<error>``, not ``<skipped>``: CI services count skipped cases as green, and what was
not checked has not passed. ``<failure>`` is for what was checked and is wrong. A target that isn't required can only be ``<skipped>``:
it is shown and never part of the verdict. So is what somebody answers for by a waiver.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kpipe.codes import UNCHECKED_CODES
from kpipe.findings import Severity
from kpipe.record import CellStatus, Verdict
from kpipe.report import summary, text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kpipe.findings import Finding
    from kpipe.record import Drift, RunRecord, TargetRecord

MAX_DETAILS = 200
"""Findings written out in one case; the rest is counted."""


@dataclass(frozen=True)
class Case:
    """One test case."""

    suite: str
    name: str
    outcome: str = ""
    """Element to write: ``failure``, ``error``, ``skipped``; empty for a pass."""
    message: str = ""
    details: tuple[str, ...] = ()


@dataclass
class Suite:
    """One suite on its way."""

    name: str
    cases: list[Case] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, name: str, outcome: str = "", message: str = "", details: Iterable[str] = ()) -> None:
        """Append a case."""
        self.cases.append(Case(self.name, name, outcome, message, tuple(details)))


def render_junit(record: RunRecord) -> str:
    """The document. Its failures and errors together are above zero exactly where `summary.trusted` does not hold."""
    suites = [_run_suite(record), *(_target_suite(record, target) for target in record.targets)]
    root = ET.Element("testsuites", {"name": "kpipe", **_counts([c for s in suites for c in s.cases]), "time": _time(record.wall_s)})
    for suite in suites:
        _write_suite(root, suite, record)
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _run_suite(record: RunRecord) -> Suite:
    """The verdict itself, and what is about no target."""
    suite = Suite("run", seconds=record.wall_s)
    problems = summary.contradictions(record)
    outcome = {Verdict.PASS: "error" if problems else "", Verdict.FAIL: "failure", Verdict.INCOMPLETE: "error"}[record.verdict]
    suite.add("verdict", outcome, f"{record.verdict.value}: {record.headline}" if outcome else "", summary.warnings_first(record))
    names = {t.name for t in record.targets}
    _add_findings(suite, [f for f in record.findings if f.target not in names], required=True)
    return suite


def _target_suite(record: RunRecord, target: TargetRecord) -> Suite:
    suite = Suite(target.name, seconds=sum(s.end_s - s.begin_s for s in record.stages if s.name in {f"run.{target.name}", f"load.{target.name}"}))
    status = summary.status_of(target)
    outcome = {CellStatus.PASS: "", CellStatus.FAIL: "failure", CellStatus.UNCHECKED: "error"}[status]
    row = summary.target_row(target)
    _add(suite, target, "status", outcome, row.reason or f"cells: {row.cells}", [f"cells: {row.cells}"])
    for drift in target.drift:
        _add(suite, target, f"{drift.output} [{drift.mode}]", *_drift_outcome(drift))
    for mode in target.modes_not_offered:
        suite.add(f"[{mode}]", "skipped", "not offered: outside the artifact's declared signature")
    _add_decisions(suite, target, record)
    for limit in target.limits:
        measured = "it could not be measured" if limit.value is None else f"{text.number(limit.value)} {limit.unit} was measured"
        _add(
            suite,
            target,
            f"limit {limit.name}",
            "" if limit.ok else "error" if limit.value is None else "failure",
            f"{text.number(limit.limit)} {limit.unit} is allowed, {measured}",
        )
    _add_findings(suite, [f for f in record.findings if f.target == target.name], required=target.required)
    return suite


def _add(suite: Suite, target: TargetRecord, name: str, outcome: str, message: str, details: Iterable[str] = ()) -> None:
    if outcome and target.waived:
        suite.add(name, "skipped", f"waived: {message}", details)
    elif outcome and not target.required:
        suite.add(name, "skipped", f"not required; {outcome}: {message}", details)
    else:
        suite.add(name, outcome, message if outcome else "", details)


def _drift_outcome(drift: Drift) -> tuple[str, str]:
    """Outcome and message of one comparison; one of zero cells has shown nothing."""
    if summary.drift_passes(drift):
        return "", ""
    cells = f"{drift.cells.passed} pass, {drift.cells.failed} fail, {drift.cells.unchecked} unchecked"
    allowed = f"{text.share(drift.smallest_factor)} of what is allowed" if drift.tolerance.numeric else "where decisions judge"
    worst = f"largest difference {text.number(drift.max_abs)} on {text.shorten(drift.worst_input, 80)}, {allowed}"
    nothing_wrong = drift.cells.failed == 0 and (drift.cells.unchecked > 0 or drift.cells.passed == 0)
    return "error" if nothing_wrong else "failure", f"cells: {cells}; {worst}"


def _add_decisions(suite: Suite, target: TargetRecord, record: RunRecord) -> None:
    """A case a mode that has flips. Whether they are allowed the verdict says: in a target that passed they are told, not failed."""
    by_mode: dict[str, list[str]] = {}
    for flip in record.flips:
        if flip.target == target.name and not flip.tie:
            by_mode.setdefault(flip.mode, []).append(
                f"{flip.input}: {f'{flip.rule}: ' if flip.rule else ''}{flip.reference} became {flip.got}, margin {text.number(flip.margin)}, drift {text.number(flip.drift)}"
            )
    for mode, lines in by_mode.items():
        outcome = "" if summary.status_of(target) is CellStatus.PASS else "failure"
        _add(suite, target, f"decisions [{mode}]", outcome, f"{text.count(len(lines), 'decision')} flipped", lines)


def _add_findings(suite: Suite, findings: list[Finding], *, required: bool) -> None:
    """A case a code: errors fail it, or leave it open where the machine and not the artifact is the cause."""
    for code in sorted({f.code for f in findings}):
        found = [f for f in findings if f.code == code]
        errors = [f for f in found if f.severity is Severity.ERROR and f.required and required and not f.waived]
        open_ = any(f.code in UNCHECKED_CODES and f.required and required for f in found)
        aside = any(f.severity is Severity.ERROR for f in found) and not errors
        outcome = "error" if open_ else "failure" if errors else "skipped" if aside else ""
        why = "waived; " if any(f.waived for f in found) else "not required; "
        message = (why if aside else "") + f"{(errors or found)[0].cause} {(errors or found)[0].remedy}"
        suite.add(code, outcome, message if outcome else "", [_line(f) for f in found])


def _line(finding: Finding) -> str:
    aside = f", waived by {finding.waived}" if finding.waived else "" if finding.required else ", not required"
    return f"{finding.code} ({finding.severity.value}{aside}) {summary.place_of(finding)}: {finding.cause} {finding.remedy}"


def _write_suite(root: ET.Element, suite: Suite, record: RunRecord) -> None:
    name = text.shorten(suite.name, 200)
    element = ET.SubElement(
        root,
        "testsuite",
        {"name": f"kpipe.{name}", **_counts(suite.cases), "time": _time(suite.seconds), "timestamp": text.utc(record.started).removesuffix("Z")},
    )
    for case in suite.cases:
        node = ET.SubElement(element, "testcase", {"classname": f"kpipe.{name}", "name": text.shorten(case.name, 200), "time": "0"})
        lines = [text.clean(line) for line in case.details[:MAX_DETAILS]]
        if len(case.details) > MAX_DETAILS:
            lines.append(f"and {len(case.details) - MAX_DETAILS} more in run.json")
        if case.outcome:
            child = ET.SubElement(node, case.outcome, {"message": text.shorten(case.message, 1000)})
            child.text = "\n".join(lines) if case.outcome != "skipped" else None
        elif lines:
            ET.SubElement(node, "system-out").text = "\n".join(lines)


def _counts(cases: list[Case]) -> dict[str, str]:
    def of(outcome: str) -> str:
        return str(sum(c.outcome == outcome for c in cases))

    return {"tests": str(len(cases)), "failures": of("failure"), "errors": of("error"), "skipped": of("skipped")}


def _time(seconds: float) -> str:
    """Seconds; readers of the format don't know NaN."""
    return f"{seconds:.3f}" if math.isfinite(seconds) and seconds >= 0 else "0"

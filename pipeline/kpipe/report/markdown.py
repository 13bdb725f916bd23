"""``report.md``: what a pull request or a CI job summary has room for, in GitHub's Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kpipe.findings import Severity
from kpipe.record import CellStatus, Verdict
from kpipe.report import ledger, savings, shape_table, summary, text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kpipe.findings import Finding
    from kpipe.record import RunRecord

MAX_FINDINGS = 25
MAX_FLIPS = 15
_TEXT_LIMIT = 600

_MARKS = {CellStatus.PASS: "\u2705 pass", CellStatus.FAIL: "\u274c **fail**", CellStatus.UNCHECKED: "\u2754 **unchecked**"}
_VERDICT_MARKS = {Verdict.PASS: "\u2705", Verdict.FAIL: "\u274c", Verdict.INCOMPLETE: "\u2754"}
# Underscores and colons only where they would be emphasis, an emoji or a link: names stay readable in the source.
_SPECIAL = re.compile(r"[\\`*{}\[\]<>|~&@#$^!]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?=[\w/+-])|\bwww\.", re.IGNORECASE)


def render_markdown(record: RunRecord) -> str:
    """Verdict, caveats, the table, the first findings and flips, and where the rest is. At most some 60 kB, mostly 3."""
    blocks = [
        _heading(record),
        _facts(record),
        _table(record),
        _savings(record),
        _shapes(record),
        *(_findings(severity, found) for severity, found in summary.by_severity(record.findings).items()),
        _flips(record),
        _baseline(record),
        "The whole record: `report.html` and `run.json` in the run folder.",
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _baseline(record: RunRecord) -> str:
    """What the baseline makes of the run, where it was held against one."""
    if record.baseline is None:
        return ""
    from kpipe.report.comparison import blocks, comparison_block  # which escapes as this module does

    return "\n\n".join(
        [f"### Against the baseline\n\n{escape(record.baseline.headline)}", *(comparison_block(block) for block in blocks(record.baseline))]
    )


def escape(value: object, limit: int = _TEXT_LIMIT) -> str:
    """Text that renders as itself on one line, in a table cell or out of it.

    Everything that Markdown, GitHub's extensions (mentions, issue numbers, formulas, links by themselves) or HTML could read as their own
    becomes a character reference.
    """
    flat = " ".join(text.shorten(value, limit).split())
    return _SPECIAL.sub(lambda match: "".join(_reference(char) for char in match.group()), flat)


def _reference(char: str) -> str:
    return char if char.isalnum() else f"&#{ord(char)};"


def code(value: object, limit: int = 120) -> str:
    """A name in a fixed-width font."""
    return f"<code>{escape(value, limit)}</code>"


def _heading(record: RunRecord) -> str:
    mark = _VERDICT_MARKS[record.verdict] if not summary.contradictions(record) else _VERDICT_MARKS[Verdict.FAIL]
    lines = [f"## {mark} {record.verdict.value}: {code(record.candidate.path)}", "", f"**{escape(record.headline)}**"]
    notes = [f"> - {escape(caveat)}" for caveat in summary.warnings_first(record)]
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def _facts(record: RunRecord) -> str:
    golden = record.golden
    reference = escape(record.reference.title, 80) if record.reference else "no reference"
    told = (
        (f"{escape(rule.name, 40)}: " if rule.name else "") + f"{escape(rule.rule, 40)} of {code(rule.output, 60)}" for rule in summary.rules(record)
    )
    rule = ", ".join(told) or "no decision rule"
    return f"{text.count(golden.count, 'golden input')} ({escape(golden.kind, 40)}) against {reference}; {rule}{summary.profile_in_brief(record)}; sha256 {code(record.candidate.sha256, 20)}; {text.seconds(record.wall_s)}"


def _table(record: RunRecord) -> str:
    rows = summary.rows(record)
    if not rows:
        return "No target was run."
    head = (
        "| target | status | worst drift | of the tolerance | flips | load | p50 | p90 | size | reason |\n|:--|:--|--:|--:|--:|--:|--:|--:|--:|:--|"
    )
    legend = ["", escape(summary.DISTURBED_LEGEND)] if summary.disturbed(record) else []
    return "\n".join([head, *(_row(row) for row in rows), *legend])


def _savings(record: RunRecord) -> str:
    rows = savings.saving_rows(record)
    if not rows:
        return ""
    head = f"| {' | '.join(savings.HEADINGS)} |\n|:--|{'--:|' * (len(savings.HEADINGS) - 1)}"
    lines = [f"| {' | '.join([('&nbsp;&nbsp;' if row.variant else '') + code(row.name, 60), *row.values])} |" for row in rows]
    return "\n".join(["### What each saving costs", "", escape(savings.EXPLAINED), "", head, *lines])


def _row(row: summary.TargetRow) -> str:
    name = code(row.name, 60) + ("" if row.required else " (not required)")
    flips = row.flips + (f" (and {text.count(row.ties, 'tie')})" if row.ties else "")
    mark = "\u26a0 **waived**" if row.word == "WAIVED" else _MARKS[row.status]
    values = (name, mark, row.drift, escape(row.used), flips, escape(row.load), escape(row.p50), escape(row.p90), row.size, escape(row.reason, 200))
    return "| " + " | ".join(values) + " |"


def _shapes(record: RunRecord) -> str:
    if not shape_table.worth_showing(record):
        return ""
    names = shape_table.targets(record)
    head = f"| shape | {' | '.join(code(name, 40) for name in names)} |\n|:--|{':--|' * len(names)}"
    lines = []
    for row in shape_table.rows(record):
        words = ("" if cell is None else f"**{escape(cell.word)}**" if cell.bad else escape(cell.word) for cell in row.cells)
        lines.append(f"| {escape(row.name, 80)} | {' | '.join(words)} |")
    return "\n".join([f"Shapes. {shape_table.NOTE}", "", head, *lines])


def _findings(severity: Severity, findings: Iterable[Finding]) -> str:
    listed = list(findings)
    if not listed or severity is Severity.NOTE:
        return f"{text.count(len(listed), 'note')} in the report." if listed else ""
    lines = [f"### {text.count(len(listed), severity.value)}", *(_finding(f) for f in listed[:MAX_FINDINGS])]
    if len(listed) > MAX_FINDINGS:
        lines.append(f"- and {text.count(len(listed) - MAX_FINDINGS, f'more {severity.value}')} in the report")
    return "\n".join([lines[0], "", *lines[1:]])


def _finding(finding: Finding) -> str:
    where = code(finding.target or "run", 60) + (f" {code(place)}" if (place := summary.place_of(finding)) else "")
    aside = " (waived)" if finding.waived else "" if finding.required else " (not required)"
    return f"- **{escape(finding.code, 20)}** {where}{aside}: {escape(finding.cause)} *{escape(finding.remedy)}*"


def _flips(record: RunRecord) -> str:
    entries = ledger.entries(record)
    if not entries:
        return ""
    head = "| input | reference | became | margin | |\n|:--|:--|:--|--:|:--|"
    lines = []
    for entry in entries[:MAX_FLIPS]:
        remarks = [word for word, holds in (("tie", entry.tie), ("not required", not entry.required)) if holds]
        lines.append(
            f"| {code(entry.input, 80)} | {escape(entry.by_rule + entry.reference, 60)} | {escape(entry.brief, 200)} | {text.number(entry.margin)} | {text.listing(remarks)} |"
        )
    title = f"### {text.count(len({entry.input for entry in entries}), 'input')} with another decision"
    left = len({entry.input for entry in entries[MAX_FLIPS:]})
    rest = [f"\nand {text.count(left, 'more input')} in the report"] if left else []
    return "\n".join([title, "", head, *lines, *rest])

"""The table and the findings as a terminal shows them."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kpipe.findings import Severity
from kpipe.record import CellStatus, Verdict
from kpipe.report import savings, shape_table, summary, text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from kpipe.findings import Finding
    from kpipe.record import RunRecord

COLUMNS = ("target", "status", "worst drift", "flips", "load", "p50", "p90", "size")
SHOWN_PER_CODE = 3
MAX_SHOWN = 12
"""Findings of one severity, give or take a group: more than a screen is no longer read."""

_VERDICT_STYLE = {Verdict.PASS: "bold green", Verdict.FAIL: "bold red", Verdict.INCOMPLETE: "bold yellow"}
_STATUS_STYLE = {CellStatus.PASS: "green", CellStatus.FAIL: "bold red", CellStatus.UNCHECKED: "bold yellow"}
_SEVERITY_STYLE = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "dim"}


def render_table(record: RunRecord, *, color: bool, width: int) -> str:
    """Verdict, caveats, a row a target with its reason below, errors, warnings.

    Args:
        record: the run.
        color: write ANSI colours; without, the text is pure ASCII (other characters become escapes), safe in any log.
        width: columns of the terminal; below 60 counts as 60.

    Returns:
        Lines that end in a line feed. No trailing blanks.
    """
    console = _console(color=color, width=max(60, width))
    _print_verdict(console, record)
    _print_targets(console, record)
    _print_savings(console, record)
    _print_shapes(console, record)
    for severity in (Severity.ERROR, Severity.WARNING):
        _print_findings(console, severity, summary.by_severity(record.findings)[severity])
    notes = len(summary.by_severity(record.findings)[Severity.NOTE])
    if notes:
        _print(console, f"{text.count(notes, 'note')} in the report.", style="dim")
    out = _stream(console).getvalue()
    out = "".join(f"{_inert(line.rstrip())}\n" for line in out.split("\n")).rstrip("\n") + "\n"
    return out if color else out.encode("ascii", "backslashreplace").decode("ascii")


def _inert(line: str) -> str:
    """CI services read a line that begins with ``::`` or ``##[`` as a command of the job, indented or not."""
    return f"> {line}" if line.lstrip().startswith(("::", "##[", "##vso[")) else line


def _console(*, color: bool, width: int) -> Console:
    from rich.console import Console

    return Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )


def _stream(console: Console) -> io.StringIO:
    stream = console.file
    assert isinstance(stream, io.StringIO)
    return stream


def _plain(console: Console, value: str) -> str:
    """In a log without colours non-ASCII is escaped before the layout, so that columns still line up."""
    return value if console.is_terminal else value.encode("ascii", "backslashreplace").decode("ascii")


def _print(console: Console, value: str, *, style: str = "", indent: int = 0) -> None:
    from rich.padding import Padding
    from rich.text import Text

    content: RenderableType = Text(_plain(console, text.clean(value)), style=style, overflow="fold")
    console.print(Padding(content, (0, 0, 0, indent)) if indent else content)


def _print_verdict(console: Console, record: RunRecord) -> None:
    style = _VERDICT_STYLE[record.verdict] if not summary.contradictions(record) else "bold red"
    console.print()
    _print(console, f"{record.verdict.value}  {record.headline}", style=style)
    for caveat in summary.warnings_first(record):
        _print(console, f"! {caveat}", indent=2)
    golden = record.golden
    _print(
        console,
        f"{text.shorten(record.candidate.path, 60)}; {text.count(golden.count, 'golden input')} ({text.clean(golden.kind)}); {summary.rules_in_brief(record)}{summary.profile_in_brief(record)}; {text.seconds(record.wall_s)}",
        style="dim",
    )
    console.print()


def _print_targets(console: Console, record: RunRecord) -> None:
    rows = summary.rows(record)
    lines = _table_lines(console, rows)
    _raw(console, lines[0])
    for row, line in zip(rows, lines[1:], strict=True):
        _raw(console, line)
        remarks = [row.reason.rstrip(".")] if row.reason else []
        if not row.required and "not required" not in row.reason:
            remarks.append("not required")
        if row.ties:
            remarks.append(f"{text.count(row.ties, 'flip')} on tied scores")
        if remarks:
            _print(console, "; ".join(remarks), indent=2, style="" if row.status is not CellStatus.PASS else "dim")
    if not rows:
        _print(console, "no target was run", style=_STATUS_STYLE[CellStatus.UNCHECKED])
    if summary.disturbed(record):
        _print(console, summary.DISTURBED_LEGEND, style="dim")
    console.print()


def _print_shapes(console: Console, record: RunRecord) -> None:
    """A line a shape: which targets work, which compile anew, and which don't."""
    if not shape_table.worth_showing(record):
        return
    _print(console, f"shapes    {shape_table.NOTE}", style="dim")
    for row in shape_table.rows(record):
        bad = any(cell is not None and cell.bad for cell in row.cells)
        _print(console, f"{text.shorten(row.name, 60)}  {row.brief}", indent=2, style=_STATUS_STYLE[CellStatus.FAIL] if bad else "")
    console.print()


def _print_savings(console: Console, record: RunRecord) -> None:
    """What each precision variant saves, and what that costs; nothing where there is none. A narrow terminal gets no ratios."""
    rows = savings.saving_rows(record)
    lines = _saving_lines(console, rows, savings.HEADINGS)
    if max((len(line) for line in lines), default=0) > console.width:
        short = [replace(row, values=tuple(map(savings.without_ratio, row.values))) for row in rows]
        lines = _saving_lines(console, short, savings.SHORT_HEADINGS)
    for line in lines:
        _raw(console, line)
    if lines:
        console.print()


def _saving_lines(console: Console, rows: list[savings.SavingRow], headings: tuple[str, ...]) -> list[str]:
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return []
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for position, name in enumerate(headings):
        table.add_column(name, justify="right" if position else "left", no_wrap=True)
    for row in rows:
        name = text.shorten(_plain(console, row.name), max(14, console.width - 60))
        table.add_row(Text(f"  {name}" if row.variant else name), *(Text(value) for value in row.values))
    wide = _console(color=False, width=1000)  # measured before it is shown: nothing is cut or folded
    wide.print(table)
    return [line.rstrip() for line in _stream(wide).getvalue().split("\n")[:-1]]


def _table_lines(console: Console, rows: list[summary.TargetRow]) -> list[str]:
    """The header and one line a row. Reasons are not a column: at 80 characters they would be cut to nothing."""
    scratch = _console(color=console.is_terminal, width=console.width)
    scratch.print(_table(console, rows))
    lines = _stream(scratch).getvalue().split("\n")[:-1]
    assert len(lines) == len(rows) + 1, "a row of the table wrapped"
    return lines


def _table(console: Console, rows: list[summary.TargetRow]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    numeric: dict[str, Any] = {"justify": "right"}
    for name in COLUMNS:
        options = {} if name in ("target", "status") else numeric
        table.add_column(name, no_wrap=True, overflow="ellipsis" if console.is_terminal else "crop", **options)
    room = max(14, console.width - 66)
    for row in rows:
        name = text.shorten(_plain(console, row.name), room)
        values = (row.drift, row.flips, row.load, row.p50, row.p90, row.size)
        style = _STATUS_STYLE[CellStatus.UNCHECKED if row.word == "WAIVED" else row.status]
        table.add_row(Text(name), Text(row.word, style=style), *(Text(v) for v in values))
    return table


def _raw(console: Console, line: str) -> None:
    _stream(console).write(line + "\n")


def _print_findings(console: Console, severity: Severity, findings: list[Finding]) -> None:
    if not findings:
        return
    aside = sum(not f.required for f in findings)
    waived = sum(bool(f.waived) for f in findings)
    title = text.count(len(findings), severity.value) + (f", {waived} of them waived" if waived else "")
    title += f", {aside} of them on targets that are not required" if aside else ""
    _print(console, title, style=_SEVERITY_STYLE[severity])
    left, shown = len(findings), 0
    for _, group in groupby(findings, key=lambda f: (f.code, f.target)):
        if shown >= MAX_SHOWN:
            break
        members = list(group)
        _print_group(console, members)
        left -= len(members)
        shown += min(len(members), SHOWN_PER_CODE)
    if left:
        _print(console, f"{text.count(left, f'more {severity.value}')}: see the report.", indent=2)
    console.print()


def _print_group(console: Console, members: list[Finding]) -> None:
    """Findings of one code on one target; the remedy that they share is said once."""
    shown = members[:SHOWN_PER_CODE]
    for finding, following in zip(shown, [*shown[1:], None], strict=True):
        _print_finding(console, finding, remedy=following is None or following.remedy != finding.remedy)
    if len(members) > len(shown):
        last = members[0]
        _print(console, f"{len(members) - len(shown):,} more {last.code} on {text.clean(last.target) or 'the run'}: see the report.", indent=2)


def _print_finding(console: Console, finding: Finding, *, remedy: bool) -> None:
    where = text.shorten(finding.target or "run", 40)
    place = f" at {text.shorten(place, 60)}" if (place := summary.place_of(finding)) else ""
    aside = " (waived)" if finding.waived else "" if finding.required else " (not required)"
    _print(console, f"{finding.code} {where}{place}{aside}", indent=2, style=_SEVERITY_STYLE[finding.severity])
    _print(console, finding.cause, indent=4)
    if remedy:
        _print(console, f"-> {finding.remedy}", indent=4, style="dim")

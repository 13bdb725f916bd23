"""The detection table, for terminals and for Markdown. Pure text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.selftest.result import score

if TYPE_CHECKING:
    from kpipe.selftest.result import Healthy, Row, Score, Table

HEADERS = ("fault", "model", "kpipe", "by", "edge", "floors", "margin", "random", "golden")
WIDEST = 46


def rendered(table: Table, *, markdown: bool = False) -> str:
    """The table, family by family, and what it comes to.

    Args:
        table: what was found.
        markdown: pipes and headings instead of columns.
    """
    parts = [_legend(markdown=markdown)]
    for family in dict.fromkeys(row.family for row in table.rows):
        rows = tuple(row for row in table.rows if row.family == family)
        parts.append(_family(family, rows, markdown=markdown))
    if lost := [s for s in table.skipped if s.failed]:
        parts.append("Could not be planted:\n" + "".join(f"  {s.setup}: {s.name}: {s.reason}\n" for s in lost))
    if left := [s for s in table.skipped if not s.failed]:
        parts.append(
            f"No place for {len(left)} faults:\n" + "".join(f"  {s.setup}: {s.name}: {s.reason}\n" for s in left)
            if not markdown
            else _left(len(left))
        )
    parts.append(summary(table))
    return "\n".join(parts)


def _left(count: int) -> str:
    return f"{count} more faults had no place in these models (no alpha channel, no embedding, ...).\n"


def _legend(*, markdown: bool) -> str:
    lines = [
        "kpipe: caught or MISSED; '=' is a fault that changes nothing: no decision, and in float64 less than the noise floor on every golden input.",
        "small: as '=', but between that floor and the 16 floors that the tolerance allows; counted among the faults, and not as caught.",
        "by: finding codes, or how the command ended. edge: the one named, '!' where it is a wrong one.",
        "floors, margin: the largest difference of the shipped answers from the healthy reference's, in noise floors and over the smallest margin.",
        "random, golden: whether numpy.allclose(rtol=1e-5, atol=1e-5) of reference and target catches it, on seeded random and on the golden inputs.",
    ]
    return "".join(f"{'- ' if markdown else ''}{line}\n" for line in lines)


def _family(family: str, rows: tuple[Row, ...], *, markdown: bool) -> str:
    cells = [HEADERS, *(_cells(row) for row in rows)]
    counted = summary_line(score(rows))
    if markdown:
        lines = ["| " + " | ".join(line) + " |" for line in cells]
        lines.insert(1, "|" + "|".join(":--" if i < 5 else "--:" for i in range(len(HEADERS))) + "|")  # noqa: PLR2004 - words left, numbers right
        return f"### {family.capitalize()}\n\n" + "\n".join(lines) + f"\n\n{counted}\n"
    widths = [min(WIDEST, max(len(line[i]) for line in cells)) for i in range(len(HEADERS))]
    text = "".join("  ".join(f"{word:<{width}}" for word, width in zip(line, widths, strict=True)).rstrip() + "\n" for line in cells)
    return f"{family}\n{text}{counted}\n"


def _cells(row: Row) -> tuple[str, ...]:
    caught = ("= alarm" if row.caught else "=") if row.equivalent else "caught" if row.caught else "small" if row.small else "MISSED"
    edge = "-" if not row.caught else f"{row.edge or '?'}{'' if row.right_edge else ' !'}"
    by = " ".join(row.codes) if row.codes else row.verdict
    return (row.name, row.setup, caught, by, edge, _number(row.floors), _number(row.margins), _word(row.random), _word(row.golden))


def _number(value: float | None) -> str:
    return "-" if value is None else "inf" if value == float("inf") else f"{value:.2g}"


def _word(caught: bool | None) -> str:
    return "-" if caught is None else "caught" if caught else "missed"


def summary_line(counts: Score) -> str:
    """One line of counts."""
    small = f" ({counts.small} more too small for the tolerance)" if counts.small else ""
    alarms = f", {counts.equivalent_alarms} of them stopped" if counts.equivalent_alarms else ""
    return (
        f"{counts.faults} faults: kpipe {counts.caught}{small}, right edge {counts.right_edge}, allclose on random inputs {counts.random}, on golden inputs {counts.golden}; "
        f"{counts.equivalent} equivalent{alarms}."
    )


def summary(table: Table) -> str:
    """What the whole table comes to."""
    missed = [f"{row.setup}: {row.name}" for row in table.rows if not row.caught and not row.equivalent and not row.small]
    wrong = [f"{row.setup}: {row.name} ({row.edge or 'none'})" for row in table.rows if row.caught and not row.right_edge and not row.equivalent]
    lines = [summary_line(table.score)]
    lines += [f"Missed: {', '.join(missed)}."] if missed else []
    lines += [f"Wrong edge: {', '.join(wrong)}."] if wrong else []
    for way, alarms in (("random", table.random_alarms), ("golden", table.golden_alarms)):
        lines += [f"allclose on {way} inputs takes healthy targets for faulty: {', '.join(alarms)}."] if alarms else []
    return "".join(f"{line}\n" for line in lines)


def healthy_line(healthy: Healthy) -> str:
    """What healthy validations come to."""
    head = f"{healthy.runs} healthy validations, {len(healthy.alarms)} alarm{'s' if len(healthy.alarms) != 1 else ''}.\n"
    return head + "".join(f"  {alarm}\n" for alarm in healthy.alarms)

"""A comparison as text, as Markdown for a pull request, and as rows for the page. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpipe.comparison import Answer
from kpipe.report import text
from kpipe.report.markdown import escape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kpipe.comparison import Changed, Comparison, Pair, Tally

SHOWN = 15
"""Changed inputs and differences; all of them are in the JSON."""

TIMES = ("load", "p50", "p90", "end to end p50")


@dataclass(frozen=True)
class Block:
    """A table with its title; numbers stand on the right."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()
    """Columns of numbers."""
    below: str = ""


def render_comparison_text(found: Comparison, *, findings: bool = True) -> str:
    """For a terminal; pure ASCII. Without ``findings`` below a report that has them already."""
    lines = ["", f"{found.outcome}  {text.clean(found.headline)}", *(f"  {line}" for line in _about(found)), ""]
    for block in blocks(found):
        lines += [block.title, *(f"  {line}" for line in _columns(block)), *([f"  {block.below}"] if block.below else []), ""]
    for f in found.findings if findings else ():
        lines += [f"{f.code} {f.severity}: {text.clean(f.cause)}", f"  {text.clean(f.remedy)}"]
    return "\n".join(line.rstrip() for line in lines).encode("ascii", "backslashreplace").decode("ascii") + "\n"


def render_comparison_markdown(found: Comparison) -> str:
    """For a pull request."""
    mark = {"PASS": "\u2705", "FAIL": "\u274c", "INCOMPLETE": "\u2754"}[found.outcome]
    parts = [
        f"## {mark} {found.outcome}: compared with the baseline",
        f"**{escape(found.headline)}**",
        "\n".join(f"- {escape(line)}" for line in _about(found)),
    ]
    parts += [comparison_block(block) for block in blocks(found)]
    if found.findings:
        parts.append("\n".join(f"- **{escape(f.code)}** {escape(f.severity)}: {escape(f.cause)} *{escape(f.remedy)}*" for f in found.findings))
    return "\n\n".join(parts) + "\n"


def comparison_block(block: Block) -> str:
    """One table in Markdown."""
    ruler = "|" + "|".join("--:" if i in block.right else ":--" for i in range(len(block.head))) + "|"
    rows = [f"| {' | '.join(escape(cell, 200) for cell in row)} |" for row in block.rows]
    return "\n".join(
        [f"### {escape(block.title)}", "", f"| {' | '.join(block.head)} |", ruler, *rows, *(["", escape(block.below)] if block.below else [])]
    )


def _about(found: Comparison) -> Iterator[str]:
    for name, side in (("before", found.before), ("now", found.now)):
        yield f"{name}: {side.kind} {text.shorten(side.path, 80)} ({side.verdict}, {side.made}), model {side.candidate_sha256[:12]}"
    inputs = found.inputs
    alone = len(inputs.only_before) + len(inputs.only_now)
    yield f"{inputs.shared} golden inputs in common, by SHA-256" + (f"; {alone} that only one side has are unchecked" if alone else "; no other")


def blocks(found: Comparison) -> list[Block]:
    """Every table that has rows: policy, who is right, changed decisions, the model's outputs, targets, surroundings."""
    made = [_policy(found), _right(found.tallies), _changed(found.changed), _moved(found), _targets(found), _surroundings(found)]
    return [block for block in made if block.rows]


def _policy(found: Comparison) -> Block:
    marks = {Answer.HOLDS: "holds", Answer.BROKEN: "BROKEN", Answer.UNCHECKED: "UNCHECKED"}
    rows = tuple((one.rule, f"{one.allowed:.4g}", marks[one.answer], one.why) for one in found.checks)
    return Block("Policy", ("rule", "allowed", "", "why"), rows, (1,))


def _right(tallies: Sequence[Tally]) -> Block:
    rows = tuple(
        (
            (f"{t.rule}: " if t.rule else "") + (t.slice or "all"),
            str(t.inputs),
            str(t.changed),
            f"{t.right_before}/{t.known}" if t.known else text.ABSENT,
            f"{t.right_now}/{t.known}" if t.known else text.ABSENT,
            str(t.only_before),
            str(t.only_now),
            text.number(t.p_value),
        )
        for t in tallies
    )
    head = ("slice", "inputs", "changed", "right before", "right now", "lost", "won", "p")
    return Block("Decisions", head, rows, tuple(range(1, 8)), "p: McNemar's exact test, two-sided, over the inputs whose truth is known")


def _changed(lines: Sequence[Changed]) -> Block:
    ordered = sorted(lines, key=lambda line: ({"before": 0, "neither": 1, "": 2, "both": 3, "now": 4}[line.right], line.input))
    rows = tuple(
        (
            line.input,
            ", ".join(line.slices) or text.ABSENT,
            line.before,
            line.now,
            text.number(line.margin_before),
            text.number(line.margin_now),
            line.truth or text.ABSENT,
            line.right or text.ABSENT,
        )
        for line in ordered[:SHOWN]
    )
    left = len(ordered) - len(rows)
    return Block(
        "Changed decisions",
        ("input", "slice", "before", "now", "margin before", "now", "truth", "right"),
        rows,
        (4, 5),
        f"and {left} more in the JSON" if left else "",
    )


def _moved(found: Comparison) -> Block:
    rows = tuple((m.since, m.output, text.number(m.max_abs), text.number(m.max_rel), m.worst_input, f"{m.changed}/{m.inputs}") for m in found.moved)
    return Block("The model's own outputs", ("since", "output", "moved", "of its scale", "most on", "decisions changed"), rows, (2, 3, 5))


def _targets(found: Comparison) -> Block:
    rows = []
    for t in found.targets:
        rows.append((t.target, "status", t.before or text.ABSENT, t.now or text.ABSENT, "same" if t.before == t.now else "changed"))
        rows += [("", pair.name, shown(pair, pair.before), shown(pair, pair.now), "*" if _apart(pair) else pair.told) for pair in t.numbers]
    note = next((pair.told for t in found.targets for pair in t.numbers if _apart(pair)), "")
    return Block("Targets", ("target", "", "before", "now", ""), tuple(rows), (2, 3), f"* {note}" if note else "")


def _apart(pair: Pair) -> bool:
    """A time of which only each run's own session is known."""
    return pair.name in TIMES and pair.told.startswith("not interleaved")


def shown(pair: Pair, value: float | None) -> str:
    """One number in its unit."""
    if value is None:
        return text.ABSENT
    if pair.unit == "s":
        return text.seconds(value)
    if pair.unit == "bytes":
        return text.size(value)
    return text.share(value) if pair.unit == "x" else text.number(value)


def _surroundings(found: Comparison) -> Block:
    rows = tuple((d.where, d.what, text.shorten(d.before, 60), text.shorten(d.now, 60)) for d in found.differences[:SHOWN])
    left = len(found.differences) - len(rows)
    return Block("Not the same besides the model", ("where", "what", "before", "now"), rows, (), f"and {left} more in the JSON" if left else "")


def _columns(block: Block) -> Iterator[str]:
    cells = [block.head, *(tuple(text.shorten(cell, 70) for cell in row) for row in block.rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(block.head))]
    for row in cells:
        yield "  ".join(
            cell.rjust(wide) if i in block.right else cell.ljust(wide) for i, (cell, wide) in enumerate(zip(row, widths, strict=True))
        ).rstrip()

"""``docs/benchmarks.md`` from what was measured. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rows import Row

INTRODUCTION = """# Benchmarks

`make bench` measures all of this in one run, side by side and interleaved, and writes this page and `build/bench.json`; `python bench/run.py --only NAME` measures one table and prints it. Ratios of one run are what is promised, absolute times are not: they depend on the machine and on what else runs there.
"""


def document(facts: Mapping[str, str], tables: Mapping[str, Sequence[Row]], titles: Mapping[str, str]) -> str:
    """The page.

    Args:
        facts: the machine, the loads before and after, the time that it took.
        tables: name to rows.
        titles: name to what the table is about.
    """
    lines = [INTRODUCTION, "| machine | |", "|:--|:--|", *(f"| {name} | {value} |" for name, value in facts.items()), ""]
    for name, rows in tables.items():
        lines += [f"## {titles[name]}", "", "| what | measured | bound | unit | met |", "|:--|--:|--:|:--|:--|"]
        lines += [f"| {row.name} | {row.value:g} | {row.bound:g} | {row.unit} | {'yes' if row.met else '**no**'} |" for row in rows]
        lines += ["", *(f"- {row.name}: {row.detail}." for row in rows if row.detail), ""]
    lines += [f"## {title}\n\nNot measured in this run.\n" for name, title in titles.items() if name not in tables]
    missed = [row for rows in tables.values() for row in rows if not row.met]
    lines += ["## Bounds that are not met", ""]
    if not missed:
        lines += ["None.", ""]
    for row in missed:
        lines += [f"### {row.name}: {row.value:g} {row.unit}, bound {row.bound:g}", "", f"{row.detail}.", ""]
        if row.profile:
            lines += ["```text", row.profile, "```", ""]
    return "\n".join(lines).rstrip() + "\n"

"""The table of a re-check: rows artifacts, columns environments. As text, and as Markdown for a pull request. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kpipe.record import CellStatus
from kpipe.text import printable

if TYPE_CHECKING:
    from kpipe.recheck.outcome import Against, Outcome
    from kpipe.recheck.recheck import Rechecked

SHORT = 12
NAMED = 5
WORDS = {CellStatus.PASS: "pass", CellStatus.FAIL: "FAIL", CellStatus.UNCHECKED: "UNCHECKED"}


def rendered(found: Rechecked, *, markdown: bool = False) -> str:
    """The verdict, a table for each bundle, and what is behind every cell that didn't pass."""
    lines = [f"{'## ' if markdown else ''}{found.verdict}: {_headline(found)}", ""]
    for bundle in found.environments:
        lines += _bundle(found, bundle, markdown=markdown)
    if not found.times:
        lines.append(f"{'- ' if markdown else ''}latency was not measured, so the contract's limits on it and on the load were not checked")
    for bundle, limits in found.relative.items():
        if limits:
            said = f"{bundle[:SHORT]}: limits that are relative to a baseline were not checked: {', '.join(limits)}"
            lines.append(f"{'- ' if markdown else ''}{said}")
    bad = [o for o in found.outcomes if o.status is not CellStatus.PASS]
    for one in bad:
        lines.append(f"{'- ' if markdown else ''}{WORDS[one.status]} {one.bundle[:SHORT]} {one.target}, {one.column}: {_inert(one.reason)}")
    for one in found.outcomes:
        if one.against is not None and one.against.changed:
            lines.append(f"{'- ' if markdown else ''}{one.bundle[:SHORT]} {one.target}, {one.column}: decides otherwise on {_named(one.against)}")
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _headline(found: Rechecked) -> str:
    cells = len(found.outcomes)
    failed = sum(o.status is CellStatus.FAIL for o in found.outcomes)
    unchecked = sum(o.status is CellStatus.UNCHECKED for o in found.outcomes)
    where = f"{len(found.environments)} bundle{'s' if len(found.environments) != 1 else ''}, {len(found.columns)} environments"
    if not cells:
        return f"nothing was run again ({where})."
    if failed or unchecked:
        return f"{failed} failed and {unchecked} unchecked of {cells} re-checks ({where})."
    return f"all {cells} re-checks gave what was signed off, by contract and decision ({where})."


def _bundle(found: Rechecked, bundle: str, *, markdown: bool) -> list[str]:
    titles = [title for title in found.columns if title in found.environments[bundle]]
    rows = list(dict.fromkeys(o.target for o in found.outcomes if o.bundle == bundle))
    cells = {(o.target, o.column): o for o in found.outcomes if o.bundle == bundle}
    table = [["target", *titles], *([name, *(_cell(cells.get((name, title))) for title in titles)] for name in rows)]
    lines = [f"{'### ' if markdown else ''}bundle {bundle[:SHORT]}", ""]
    lines += _markdown(table) if markdown else _text(table)
    lines.append("")
    for title in titles:
        place, changed = found.environments[bundle][title], found.changed[bundle][title]
        versions = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in changed.items()) or "the sealed versions"
        lines.append(
            f"{'- ' if markdown else ''}{title}: {_inert(place.problem) if place.problem else f'{versions} ({place.how}, Python {place.version})'}"
        )
    if found.machine[bundle]:
        lines.append(f"{'- ' if markdown else ''}machine: {found.machine[bundle]}")
    return [*lines, ""]


def _cell(one: Outcome | None) -> str:
    if one is None:
        return "-"
    parts = [WORDS[one.status]]
    if one.against is not None:
        parts += [_numbers(one.against), f"{len(one.against.changed)} decisions changed" if one.against.changed else "same decisions"]
    if one.load_s is not None:
        parts.append(f"load {one.load_s:.2f} s")
    if one.p50_s is not None:
        parts.append(f"p50 {one.p50_s * 1e3:.3g} ms")
    return ", ".join(parts)


def _numbers(against: Against) -> str:
    if against.same_bits:
        return "same bits"
    return "not comparable" if math.isinf(against.factor) else f"drift {against.factor:.2g} of allowed"


def _named(against: Against) -> str:
    shown = [f"{name}{' (tie)' if name in against.ties else ''}" for name in against.changed[:NAMED]]
    more = len(against.changed) - len(shown)
    return ", ".join(printable(name) for name in shown) + (f" and {more} more" if more else "")


def _inert(text: str) -> str:
    return printable(" ".join(text.split()))


def _markdown(table: list[list[str]]) -> list[str]:
    head, *rows = [[cell.replace("|", "\\|") for cell in row] for row in table]
    return [f"| {' | '.join(head)} |", f"|{':--|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]


def _text(table: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]

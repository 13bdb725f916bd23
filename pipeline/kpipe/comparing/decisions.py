"""Decisions of two models on the inputs that both were asked, and who is right. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.comparing.mcnemar import p_value
from kpipe.comparison import Changed, Tally
from kpipe.golden import approved_by
from kpipe_stages.decisions import approves, same

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kpipe.comparing.pairing import Row
    from kpipe.comparing.subject import Decided
    from kpipe.golden import GoldenInput
    from kpipe_stages.decisions import Decision

RIGHT = {(True, True): "both", (True, False): "before", (False, True): "now", (False, False): "neither"}


def is_same(before: Decided, now: Decided, ours: Decision, theirs: Decision) -> bool:
    """Whether two models take the same decision: by the new rule where both have one of a kind, else by its text."""
    if before.spec.rule == now.spec.rule:
        return same(now.spec, ours, theirs)
    return ours.value == theirs.value


def both_sides(before: Decided, now: Decided, rows: Sequence[Row], inputs: Sequence[GoldenInput]) -> list[tuple[Changed, bool]]:
    """Every shared input with both decisions, and whether they differ.

    Args:
        before: decisions of the earlier model.
        now: of the later one, by the rule of the same name.
        rows: the shared inputs.
        inputs: golden inputs of the later side, which say what is right.
    """
    found = []
    for row in rows:
        ours, theirs, golden = before.decisions[row.before], now.decisions[row.now], inputs[row.now]
        expected = approved_by(golden.expected, now.spec.name)
        truth = expected if expected is not None else approved_by(golden.label, now.spec.name)
        right = RIGHT[approves(before.spec, truth, ours), approves(now.spec, truth, theirs)] if truth is not None else ""
        line = Changed(golden.id, now.spec.name, row.slices, ours.value, theirs.value, ours.margin, theirs.margin, truth, right)
        found.append((line, not is_same(before, now, ours, theirs)))
    return found


def tallies(rule: str, lines: Sequence[tuple[Changed, bool]]) -> list[Tally]:
    """All inputs, then each slice by name."""
    slices = sorted({name for line, _ in lines for name in line.slices})
    return [tally(rule, "", lines), *(tally(rule, name, [pair for pair in lines if name in pair[0].slices]) for name in slices)]


def tally(rule: str, name: str, lines: Iterable[tuple[Changed, bool]]) -> Tally:
    """One slice."""
    lines = list(lines)
    known = [line for line, _ in lines if line.right]
    only_before, only_now = (sum(line.right == who for line in known) for who in ("before", "now"))
    both = sum(line.right == "both" for line in known)
    return Tally(
        rule=rule,
        slice=name,
        inputs=len(lines),
        changed=sum(differs for _, differs in lines),
        known=len(known),
        right_before=both + only_before,
        right_now=both + only_now,
        only_before=only_before,
        only_now=only_now,
        p_value=p_value(only_before, only_now) if known else None,
    )

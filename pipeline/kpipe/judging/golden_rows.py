"""The golden inputs as the record keeps them: what the reference decides on each, by every rule, and how often each decision was seen. Pure."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from kpipe.golden import approved_by
from kpipe.judging.claims import flip_rate_bound, sampled_ids
from kpipe.record import GoldenRow, GoldenSummary, RuleRow
from kpipe_stages.decisions import approves

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kpipe.golden import GoldenInput, GoldenSet
    from kpipe.judging.reference import Reference
    from kpipe.judging.ruled import Ruled

SCORES_SHOWN = 8


def golden_summary(golden: GoldenSet, reference: Reference | None, confidence: float) -> GoldenSummary:
    """What the inputs are, and what they can prove at that confidence."""
    rules = reference.rules if reference else ()
    return GoldenSummary(
        kind=golden.kind,
        path=golden.shown,
        manifest_sha256=golden.manifest_sha256,
        count=len(golden.inputs),
        sampled=sum(g.chosen == "sampled" for g in golden.inputs),
        mined=sum(g.chosen == "mined" for g in golden.inputs),
        slices=_tally(g.slice for g in golden.inputs if g.slice),
        classes=_tally(_seen(rules)),
        flip_rate_bound=flip_rate_bound(len(sampled_ids(golden)), confidence),
        confidence=confidence,
        rows=tuple(_row(g, [_rule_row(ruled, i, g) for ruled in rules]) for i, g in enumerate(golden.inputs)),
    )


def _seen(rules: tuple[Ruled, ...]) -> Iterable[str]:
    """Every decision of the reference; numbers, which hardly come twice, are left out."""
    for ruled in rules:
        prefix = f"{ruled.spec.name}: " if ruled.spec.name else ""
        if ruled.spec.rule != "tolerance":
            yield from (prefix + decision.value for decision in ruled.decisions)


def _tally(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _rule_row(ruled: Ruled, index: int, golden: GoldenInput) -> RuleRow:
    decision, name = ruled.decisions[index], ruled.spec.name
    expected = approved_by(golden.expected, name)
    return RuleRow(
        rule=name,
        decision=decision.value,
        margin=decision.margin,
        expected=expected,
        label=approved_by(golden.label, name),
        approved=approves(ruled.spec, expected, decision) if expected is not None else None,
        scores=decision.scores[:SCORES_SHOWN],
    )


def _row(golden: GoldenInput, rules: list[RuleRow]) -> GoldenRow:
    judged = [row.approved for row in rules if row.approved is not None]
    first = rules[0] if rules else None
    return GoldenRow(
        id=golden.id,
        file=golden.shown,
        slice=golden.slice,
        chosen=golden.chosen,
        label=first.label if first else _text(golden.label),
        expected=first.expected if first else _text(golden.expected),
        decision=first.decision if first else "",
        margin=first.margin if first else math.nan,
        scores=first.scores if first else (),
        approved=all(judged) if judged else None,
        rules=tuple(rules) if first and first.rule else (),
    )


def _text(given: str | dict[str, str] | None) -> str | None:
    """What an entry says where no rule was decided by."""
    return "; ".join(f"{rule}: {text}" for rule, text in given.items()) if isinstance(given, dict) else given

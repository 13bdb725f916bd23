"""What each precision variant saves and what that costs in decisions: the rows of one table, as every report shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpipe.report import text

if TYPE_CHECKING:
    from kpipe.record import RunRecord, VariantCosts

HEADINGS = ("precision", "size", "p50", "load", "drift", "flips", "margin lost", "least left")
SHORT_HEADINGS = (*HEADINGS[:6], "lost", "left")

EXPLAINED = (
    "Each precision variant below the target that runs its float artifact. Margin lost: the reference's margin on the most clear-cut input that flipped. "
    "Least left: the smallest share of the reference's margin that is left on any input; below 0 the decision went over."
)


@dataclass(frozen=True)
class SavingRow:
    """One line; every field is text, `text.ABSENT` where nothing was measured."""

    name: str
    variant: bool
    """False for the float row above its variants."""
    values: tuple[str, ...]
    """As `HEADINGS`, without the first."""


def saving_rows(record: RunRecord) -> list[SavingRow]:
    """Float rows in the record's order, each with its variants below; variants without one come last."""
    rows: list[SavingRow] = []
    for beside in dict.fromkeys(sorted((v.beside for v in record.variants), key=lambda name: not name)):
        members = [v for v in record.variants if v.beside == beside]
        if (known := members[0].float_costs) is not None:
            rows.append(SavingRow(beside, variant=False, values=_values(known, None)))
        rows += [SavingRow(v.target, variant=True, values=_values(v.costs, v.float_costs)) for v in members]
    return rows


def _values(costs: VariantCosts, beside: VariantCosts | None) -> tuple[str, ...]:
    ties = f", {text.count(costs.ties, 'tie')}" if costs.ties else ""
    flips = text.ABSENT if costs.flips is None else f"{costs.flips}{ties}"
    return (
        _against(text.size(costs.size), costs.size, beside.size if beside else None),
        _against(text.seconds(costs.p50_s), costs.p50_s, beside.p50_s if beside else None),
        text.seconds(costs.load_s),
        text.number(costs.max_abs),
        flips,
        text.number(costs.widest_margin_lost) if costs.flips else text.ABSENT,
        text.ABSENT if costs.least_margin_left is None else f"{costs.least_margin_left:.0%}",
    )


def without_ratio(value: str) -> str:
    """A value as `SavingRow` has it, for where there is no room for its ratio."""
    return value.partition(" (")[0]


def _against(shown: str, value: float | None, beside: float | None) -> str:
    """``49.3 kB (0.31x)``: the value, and its ratio to the float row's."""
    return f"{shown} ({value / beside:.2f}x)" if value is not None and beside else shown

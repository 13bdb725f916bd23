"""Faults in how outputs become decisions: the contract says another thing than the one that was approved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kpipe.selftest.fault import Family, Fault, NotPlantableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe.selftest.fault import ContractEdit, Setup, Table

EDGES = frozenset({"decision", "golden"})


def rules_of(contract: Table) -> dict[str, Table]:
    """Every rule's table, by name; empty for the only one."""
    return dict(contract["decisions"]) if "decisions" in contract else {"": contract["decision"]} if "decision" in contract else {}


def rule_where(needed: str, change: Callable[[Table, str, Setup], None]) -> ContractEdit:
    """The first rule that has the key, or is of the kind, is changed."""

    def plant(contract: Table, _target: str, setup: Setup) -> None:
        for name, table in rules_of(contract).items():
            if needed in table or table["rule"] == needed:
                change(table, name, setup)
                return
        raise NotPlantableError(f"no rule has '{needed}'")

    return plant


def _labels(order: Callable[[list[str]], list[str]]) -> ContractEdit:
    def change(table: Table, _name: str, _setup: Setup) -> None:
        if order(table["labels"]) == table["labels"]:
            raise NotPlantableError("the order of the labels says nothing")
        table["labels"] = order(table["labels"])

    return rule_where("labels", change)


def _margins(setup: Setup, rule: str) -> list[tuple[float, float]]:
    """Margin and score of every golden input that one rule decides by one score, nearest first."""
    rows: list[Any] = [r for g in setup.record.golden.rows for r in (g.rules or (g,)) if not rule or getattr(r, "rule", "") == rule]
    return sorted((row.margin, row.scores[0]) for row in rows if len(row.scores) == 1)


def _moved(times: float) -> Callable[[Table, str, Setup], None]:
    """The threshold, or the edge that lies nearest, moves over the nearest score by ``times`` of its margin."""

    def change(table: Table, name: str, setup: Setup) -> None:
        margin, score = (_margins(setup, name) or [(0.0, 0.0)])[0]
        if not margin:
            raise NotPlantableError("no score stands alone")
        if "edges" in table:
            at = min(range(len(table["edges"])), key=lambda i: abs(table["edges"][i] - score))
            edges = list(table["edges"])
            edges[at] += times * (score - edges[at])
            table["edges"] = edges
            return
        table["threshold"] = table.get("threshold", 0.5) + times * (score - table.get("threshold", 0.5))

    return change


def _fault(name: str, contract: ContractEdit, *subjects: str) -> Fault:
    return Fault(name, Family.DECISION, EDGES, frozenset(subjects), contract=contract)


def _other_output(contract: Table, _target: str, _setup: Setup) -> None:
    for table in rules_of(contract).values():
        table["output"] = f"{table.get('output', 'output')}_2"


def _top_two(table: Table, _name: str, _setup: Setup) -> None:
    table["rule"], table["k"] = "top_k", 2


FAULTS = (
    _fault("labels in the other order", _labels(lambda labels: labels[::-1]), "swatch", "tokens"),
    _fault("labels sorted as text", _labels(sorted), "tokens"),
    _fault("labels one further", _labels(lambda labels: labels[1:] + labels[:1]), "tokens"),
    _fault("threshold moved by half the smallest margin", rule_where("threshold", _moved(0.5)), "swatch"),
    _fault("threshold moved just over the nearest score", rule_where("threshold", _moved(1.01)), "swatch"),
    _fault("edge moved just over the nearest score", rule_where("edges", _moved(1.01)), "pair"),
    _fault("two best for the best", rule_where("argmax", _top_two), "tokens"),
    _fault("an output that the model doesn't have", _other_output, "pair"),
)

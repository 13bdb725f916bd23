"""What can be read off the model where the contract is silent. Pure; everything inferred is said in a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.record import DecisionRecord
from kpipe.rules import in_words, only_output, rule_of
from kpipe_stages.protocol import DecisionSpec

if TYPE_CHECKING:
    from kpipe.contract import Contract
    from kpipe.rules import DecisionTable
    from kpipe_stages.protocol import InspectResult, Signature

RULE_OF_ACTIVATION = {"softmax": "argmax", "sigmoid": "threshold", "hard_sigmoid": "threshold"}


def decision_spec(contract: Contract, signature: Signature | None, inspected: InspectResult | None) -> tuple[DecisionSpec | None, bool]:
    """The decision rule in force, and whether it was inferred.

    The contract's, else the one that the activation of the only output with a telling activation suggests: softmax is decided by argmax,
    sigmoid at 0.5. No rule where several outputs or none would do.
    """
    if contract.decision is not None:
        return _from_table(contract.decision, signature), False
    activations = inspected.activations if inspected else {}
    telling = [(output, RULE_OF_ACTIVATION[name]) for output, name in activations.items() if name in RULE_OF_ACTIVATION]
    if len(telling) != 1:
        return None, False
    output, rule = telling[0]
    return DecisionSpec(rule=rule, output=output), True


def _from_table(table: DecisionTable, signature: Signature | None) -> DecisionSpec | None:
    output = table.output or only_output(signature)
    return rule_of(table, output) if output is not None else None


def decision_record(spec: DecisionSpec | None, *, inferred: bool) -> DecisionRecord | None:
    """The rule as reports show it."""
    if spec is None:
        return None
    return DecisionRecord(rule=spec.rule, output=spec.output, detail=in_words(spec), inferred=inferred)

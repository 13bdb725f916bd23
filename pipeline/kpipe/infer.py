"""What can be read off the model where the contract is silent. Pure; everything inferred is said in a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.record import DecisionRecord
from kpipe_stages.protocol import DecisionSpec

if TYPE_CHECKING:
    from kpipe.contract import Contract, DecisionTable
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
    output = table.output or (signature.outputs[0].name if signature and len(signature.outputs) == 1 else None)
    if output is None:
        return None
    return DecisionSpec(rule=table.rule, output=output, threshold=table.threshold, k=table.k, labels=table.labels)


def decision_record(spec: DecisionSpec | None, *, inferred: bool) -> DecisionRecord | None:
    """The rule as reports show it."""
    if spec is None:
        return None
    detail = {"threshold": f"score >= {spec.threshold:g}", "top_k": f"the best {spec.k}, in order"}.get(spec.rule, "the highest score")
    return DecisionRecord(rule=spec.rule, output=spec.output, detail=detail, inferred=inferred)

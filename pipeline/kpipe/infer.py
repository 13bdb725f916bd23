"""What can be read off the model where the contract is silent. Pure; everything inferred is said in a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.record import DecisionRecord
from kpipe.rules import in_words, output_names, rule_of
from kpipe_stages.protocol import DecisionSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe.contract import Contract
    from kpipe_stages.protocol import InspectResult, Signature

RULE_OF_ACTIVATION = {"softmax": "argmax", "sigmoid": "threshold", "hard_sigmoid": "threshold"}


def decision_specs(contract: Contract, signature: Signature | None, inspected: InspectResult | None) -> tuple[tuple[DecisionSpec, ...], bool]:
    """The decision rules in force, and whether they were inferred.

    The contract's, else the one that the activation of the only output with a telling activation suggests: softmax is decided by argmax,
    sigmoid at 0.5. No rule where several outputs or none would do. A rule of the contract that names no output, where the model hasn't
    exactly one, is left out; who compares the names with the contract's can tell.
    """
    if tables := contract.rule_tables:
        found = (rule_of(table, output_names(signature), name) for name, table in tables.items())
        return tuple(spec for spec in found if spec is not None), False
    activations = inspected.activations if inspected else {}
    telling = [(output, RULE_OF_ACTIVATION[name]) for output, name in activations.items() if name in RULE_OF_ACTIVATION]
    if len(telling) != 1:
        return (), False
    output, rule = telling[0]
    return (DecisionSpec(rule=rule, output=output),), True


def decision_record(spec: DecisionSpec, *, inferred: bool, files: Mapping[str, str] | None = None) -> DecisionRecord:
    """The rule as reports show it; ``files`` are the user's own code, with digests."""
    return DecisionRecord(rule=spec.rule, output=spec.output, detail=in_words(spec), inferred=inferred, name=spec.name, files=dict(files or {}))

"""What is read off the model where the contract is silent, and that a guess is called one."""

from __future__ import annotations

from typing import Any

import pytest

from kpipe.contract import Contract, DecisionTable
from kpipe.infer import RULE_OF_ACTIVATION, decision_record, decision_specs
from kpipe_stages.decisions import RULES
from kpipe_stages.protocol import DecisionSpec, InspectResult, Signature, TensorSpec


def signature(*outputs: str) -> Signature:
    return Signature((TensorSpec("x", (None, 2), "float32"),), tuple(TensorSpec(name, (None, 3), "float32") for name in outputs))


def inspected(**activations: str) -> InspectResult:
    facts: dict[str, Any] = {"sha256": "", "size": 1, "keras_version": "3", "saved_at": "", "model_class": "Functional", "model_name": "m"}
    rest: dict[str, Any] = {"layers": (), "parameters": 0, "weight_bytes": 0, "signature": None, "members": {}, "has_optimizer": False}
    return InspectResult(**facts, **rest, activations=activations)


@pytest.mark.parametrize("activation", sorted(RULE_OF_ACTIVATION))
def test_one_telling_activation_is_a_rule(activation: str) -> None:
    (spec,), inferred = decision_specs(Contract(), signature("y", "z"), inspected(y=activation, z="linear"))
    assert inferred
    assert spec == DecisionSpec(rule=RULE_OF_ACTIVATION[activation], output="y", threshold=0.5)
    assert spec.rule in RULES


@pytest.mark.parametrize("activations", [{}, {"y": "linear"}, {"y": "softmax", "z": "sigmoid"}, {"y": "softmax", "z": "softmax"}])
def test_no_telling_activation_or_several_are_none(activations: dict[str, str]) -> None:
    assert decision_specs(Contract(), signature("y", "z"), inspected(**activations)) == ((), False)
    assert decision_specs(Contract(), None, None) == ((), False)


def test_the_contract_comes_first_and_is_no_guess() -> None:
    contract = Contract(decision=DecisionTable(rule="top_k", output="z", k=2, labels=("a", "b", "c"), threshold=0.1))
    (spec,), inferred = decision_specs(contract, signature("y", "z"), inspected(y="softmax"))
    assert not inferred
    assert spec == DecisionSpec("top_k", "z", threshold=0.1, k=2, labels=("a", "b", "c"))


def test_the_only_output_need_not_be_named() -> None:
    contract = Contract(decision=DecisionTable(rule="argmax"))
    assert decision_specs(contract, signature("y"), None)[0] == (DecisionSpec("argmax", "y"),)
    assert decision_specs(contract, signature("y", "z"), None)[0] == ()
    assert decision_specs(contract, None, None)[0] == ()


@pytest.mark.parametrize(
    ("spec", "detail"),
    [
        (DecisionSpec("argmax", "y"), "the highest score"),
        (DecisionSpec("threshold", "y", threshold=0.25), "score >= 0.25"),
        (DecisionSpec("top_k", "y", k=3), "the best 3, in order"),
    ],
)
def test_the_record_says_the_rule_in_words(spec: DecisionSpec, detail: str) -> None:
    record = decision_record(spec, inferred=True)
    assert (record.rule, record.output, record.detail, record.inferred) == (spec.rule, "y", detail, True)

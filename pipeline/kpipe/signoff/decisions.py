"""The decisions of a run as a bundle writes them down. Pure, over saved answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.infer import decision_specs
from kpipe.judging.answers import ALONE, open_answers
from kpipe.judging.decided import DECIDE_STAGE, stored_decisions
from kpipe.judging.judge import inspection, model_signature

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe.contract import Contract
    from kpipe.evidence import Evidence
    from kpipe_stages.protocol import DecisionSpec


def specs_of(contract: Contract, evidence: Evidence) -> tuple[DecisionSpec, ...]:
    """The decision rules in force."""
    stages = {stage.name: stage for stage in evidence.stages}
    return decision_specs(contract, model_signature(stages), inspection(stages.get("inspect")))[0]


def decisions_by_input(run: Path, contract: Contract, evidence: Evidence) -> dict[str, dict[str, dict[str, str]]]:
    """Rule (``decision`` for the only one) to golden id to who decided (``reference``, a target) to what, inputs run one by one."""
    stages = {stage.name: stage for stage in evidence.stages}
    decided = stored_decisions(run, evidence, stages.get(DECIDE_STAGE))
    who = {"reference": "reference"} | {t.plan.name: f"run.{t.plan.name}" for t in evidence.targets}
    found: dict[str, dict[str, dict[str, str]]] = {}
    for spec in specs_of(contract, evidence):
        rows = found.setdefault(spec.name or "decision", {g.id: {} for g in evidence.golden.inputs})
        for name, stage in who.items():
            answers = open_answers(stages.get(stage), run / evidence.folders.get(stage, f"stages/{stage}"), decided)
            if answers is not None and answers.has(ALONE):
                for golden, decision in zip(evidence.golden.inputs, answers.decisions(spec, ALONE), strict=True):
                    rows[golden.id][name] = decision.value
    return found

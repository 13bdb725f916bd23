"""Which setting removes a target's difference, by its answers with each one changed. Pure, over saved outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kpipe.evidence import Ending
from kpipe.judging.answers import open_answers
from kpipe.judging.cells import Question, judge_cells
from kpipe.record import KnobRecord
from kpipe_stages.catalog import RUNTIMES

if TYPE_CHECKING:
    from kpipe.evidence import StageEvidence, TargetPlan
    from kpipe.judging.scene import Scene


def judge_knobs(scene: Scene, plan: TargetPlan, question: Question) -> tuple[KnobRecord, ...]:
    """Every knob that was turned: whether the target then agrees with the reference in all that it owes."""
    found = []
    for position, knob in enumerate(RUNTIMES[plan.runtime].knobs):
        name = f"knob.{plan.name}.{position}"
        stage = scene.stages.get(name)
        if stage is not None:
            removes, why = _removes(scene, stage, name, question)
            found.append(KnobRecord(knob.title, {knob.key: knob.value}, removes, why))
    return tuple(found)


def _removes(scene: Scene, stage: StageEvidence, name: str, question: Question) -> tuple[bool | None, str]:
    if stage.ending is not Ending.OK:
        return None, stage.detail or str(stage.ending)
    answers = open_answers(stage, scene.run / scene.evidence.folders.get(name, f"stages/{name}"))
    if answers is None:
        return None, "it left no answers"
    counts = judge_cells(replace(question, answers=answers)).counts()
    return counts.failed == counts.unchecked == 0 and counts.passed > 0, ""

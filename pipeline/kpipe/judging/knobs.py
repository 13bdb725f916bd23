"""Which setting removes a target's difference, by its answers with each one changed. Pure, over saved outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.evidence import Ending
from kpipe.judging.answers import ALONE, Answers, open_answers
from kpipe.judging.compare import compare
from kpipe.judging.ties import breaks_tie
from kpipe.record import KnobRecord
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.decisions import outputs_of, same

if TYPE_CHECKING:
    from kpipe.evidence import StageEvidence, TargetPlan
    from kpipe.judging.cells import Question
    from kpipe.judging.target import Scene


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
    try:
        return all(_agrees(question, answers, mode) for mode in question.modes), ""
    except (OSError, ValueError, LookupError) as error:
        return None, str(error)


def _agrees(question: Question, answers: Answers, mode: str) -> bool:
    """Numbers and decisions in one mode; a mode that was not run agrees with nothing."""
    reference = question.reference
    if not answers.has(mode):
        return False
    for output in reference.answers.outputs:
        if output not in answers.outputs:
            return False
        rows = reference.answers.rows(ALONE, output)
        if not answers.batched(mode, output):
            continue
        drifts = compare(
            rows, answers.rows(mode, output), question.tolerances[output], _dtypes(question, output, rows.dtype), question.widths(output)
        )
        if any(d.problem for d in drifts):
            return False
    return all(_decides_alike(question, answers, mode, position) for position in range(len(reference.rules)))


def _dtypes(question: Question, output: str, own: str) -> frozenset[str]:
    return frozenset({own, question.dtypes.get(output, own)})


def _decides_alike(question: Question, answers: Answers, mode: str, position: int) -> bool:
    ruled = question.reference.rules[position]
    spec = ruled.spec
    if mode != ALONE and not all(answers.batched(mode, output) for output in outputs_of(spec)):
        return True
    ours = question.reference.answers.decidable(spec, ALONE)
    for i, (left, right, kept, found) in enumerate(
        zip(ours, answers.decidable(spec, mode), ruled.decisions, answers.decisions(spec, mode), strict=True)
    ):
        if not same(spec, kept, found) and not breaks_tie(spec, left, right, band=question.reference.band(spec, i)):
            return False
    return True

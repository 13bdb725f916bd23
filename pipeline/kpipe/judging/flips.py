"""Flips of one target: its decisions in every mode against the reference's, by every rule. Pure, over saved outputs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe.golden import approved_by
from kpipe.judging.answers import ALONE
from kpipe.judging.grade import finding
from kpipe.judging.ruled import Ruled, named
from kpipe.judging.ties import breaks_tie
from kpipe.record import Flip
from kpipe_stages.decisions import DecisionError, NoDecisionError, approves, outputs_of, same

if TYPE_CHECKING:
    from kpipe.findings import Finding
    from kpipe.judging.cells import Cells, Question
    from kpipe_stages.decisions import Decision
    from kpipe_stages.protocol import DecisionSpec

Array = np.ndarray[Any, np.dtype[Any]]

SCORES_SHOWN = 32
"""Scores kept of a flip."""


def target_finding(question: Question, code: str, cause: str, place: str, **evidence: Any) -> Finding:
    """A finding about the target that is judged."""
    return finding(code, cause, target=question.target, place=place, required=question.required, **evidence)


def all_flips(question: Question, cells: Cells) -> dict[tuple[str, str], frozenset[int]]:
    """Every flip of every mode into ``cells``; returned are the ones whose cells fail: not ties, and more inputs than the contract allows."""
    failed: dict[tuple[str, str], set[int]] = {}
    for ruled in question.reference.rules:
        outputs = outputs_of(ruled.spec)
        if not set(outputs) <= set(question.answers.outputs):
            continue  # a missing output fails its cells by itself
        for mode in question.modes:
            if question.answers.has(mode) and (mode == ALONE or all(question.answers.batched(mode, output) for output in outputs)):
                flips = _flips(question, cells, ruled, mode)
                cells.flips += [flip for _, flip in flips]
                for output in outputs:
                    failed.setdefault((mode, output), set()).update(i for i, flip in flips if not flip.tie)
    real = {flip.input for flip in cells.flips if not flip.tie}
    _flip_findings(question, cells)
    return {key: frozenset(inputs) for key, inputs in failed.items()} if len(real) > question.max_flips else {}


def _flips(question: Question, cells: Cells, ruled: Ruled, mode: str) -> list[tuple[int, Flip]]:
    spec = ruled.spec
    try:
        pairs = list(zip(ruled.decisions, question.answers.decisions(spec, mode), strict=True))
    except NoDecisionError as error:  # the code's fault, or the machine's: its cells are unchecked
        cause = f"{named(spec)}no decisions in mode '{mode}': {error}"
        cells.findings.append(target_finding(question, "KP419", cause[0].upper() + cause[1:], mode))
        cells.undecided.update((mode, output) for output in outputs_of(spec))
        return []
    except DecisionError as error:  # a shape the rule can't decide on fails its cells as KP403 too; this says why
        cells.findings.append(target_finding(question, "KP608", f"{named(spec)}no decision in mode '{mode}': {error}", spec.output))
        return []
    except (OSError, ValueError, LookupError):
        return []  # the numbers can't be read back either: `_judge_output` leaves their cells unchecked and says so
    cells.decided.update((mode, output) for output in outputs_of(spec))
    return [(i, _flip(question, spec, mode, i, ours, theirs)) for i, (ours, theirs) in enumerate(pairs) if not same(spec, ours, theirs)]


def _flip(question: Question, spec: DecisionSpec, mode: str, index: int, ours: Decision, theirs: Decision) -> Flip:
    golden = question.inputs[index]
    expected, label = approved_by(golden.expected, spec.name), approved_by(golden.label, spec.name)
    left = question.reference.answers.rows(ALONE, spec.output)[index].astype(np.float64)
    right = question.answers.rows(mode, spec.output)[index].astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinity on both sides
        drift = float(np.max(np.abs(left - right))) if left.shape == right.shape else math.nan
    shown = _decisive(left, right)
    return Flip(
        target=question.target,
        mode=mode,
        input=golden.id,
        slice=golden.slice,
        reference=ours.value,
        got=theirs.value,
        expected=expected,
        label=label,
        margin=ours.margin,
        drift=drift,
        reference_scores=_shown(left, shown),
        target_scores=_shown(right, shown),
        score_indices=shown,
        tie=not question.count_ties
        and breaks_tie(spec, *_given(question, spec, mode, index, left, right), band=question.reference.band(spec, index)),
        required=question.required,
        rule=spec.name,
        right=_right(spec, expected if expected is not None else label, ours, theirs),
    )


def _given(question: Question, spec: DecisionSpec, mode: str, index: int, left: Array, right: Array) -> tuple[Any, Any]:
    """What the rule read of both sides: the one output's scores, or its outputs by name."""
    names = outputs_of(spec)
    if names == (spec.output,):
        return left, right
    sides = (question.reference.answers, ALONE), (question.answers, mode)
    ours, theirs = ({name: answers.rows(way, name)[index] for name in names} for answers, way in sides)
    return ours, theirs


def _right(spec: DecisionSpec, truth: str | None, ours: Decision, theirs: Decision) -> str:
    """Whose decision the text ``truth`` approves."""
    if truth is None:
        return ""
    return {(True, True): "both", (True, False): "reference", (False, True): "target", (False, False): "neither"}[
        approves(spec, truth, ours), approves(spec, truth, theirs)
    ]


def _decisive(left: Array, right: Array) -> tuple[int, ...]:
    """Flat indices of the `SCORES_SHOWN` largest scores of either side, in order."""
    best = np.maximum(left.ravel(), right.ravel()) if left.shape == right.shape else left.ravel()
    return tuple(sorted(int(i) for i in np.argsort(-np.nan_to_num(best), kind="stable")[:SCORES_SHOWN]))


def _shown(scores: Array, indices: tuple[int, ...]) -> tuple[float, ...]:
    flat = scores.ravel()
    return tuple(float(flat[i]) for i in indices if i < flat.size)


def _flip_findings(question: Question, cells: Cells) -> None:
    """One finding for all real flips, one for all ties."""
    real = [f for f in cells.flips if not f.tie]
    ties = [f for f in cells.flips if f.tie]
    inputs = sorted({f.input for f in real})
    total = len(question.inputs)
    if real:
        first = max((f for f in real if f.rule == real[0].rule), key=lambda f: f.margin)  # margins of two rules have two units
        by = f" by rule '{first.rule}'" if first.rule else ""
        cause = f"Decisions differ from the reference on {len(inputs)} of {total} inputs ({', '.join(inputs[:5])}{_by_rule(real)}); the widest margin lost is {first.margin:.3g} on '{first.input}' ('{first.reference}' became '{first.got}'{by} in mode '{first.mode}')."
        allowed = len(inputs) <= question.max_flips
        cells.findings.append(
            target_finding(
                question,
                "KP415" if allowed else "KP404",
                cause,
                first.input,
                inputs=inputs[:50],
                allowed=question.max_flips,
                modes=sorted({f.mode for f in real}),
            )
        )
    if ties:
        names = sorted({f.input for f in ties})
        cause = f"The reference's scores are tied on {', '.join(names[:5])}{_by_rule(ties)} and the target decides otherwise there."
        cells.findings.append(target_finding(question, "KP405", cause, names[0], inputs=names[:50]))


def _by_rule(flips: list[Flip]) -> str:
    """How many inputs each rule decides otherwise, where rules have names."""
    inputs: dict[str, set[str]] = {}
    for flip in flips:
        inputs.setdefault(flip.rule, set()).add(flip.input)
    return "".join(f"; {len(names)} by rule '{rule}'" for rule, names in inputs.items() if rule)

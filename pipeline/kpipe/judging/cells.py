"""Cells of one target: numbers and decisions in every mode, against the reference and against the target alone. Pure, over saved outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe.findings import Finding
from kpipe.golden import GoldenInput, approved_by
from kpipe.judging.answers import ALONE, Answers
from kpipe.judging.compare import Problem, RowDrift, compare
from kpipe.judging.grade import finding
from kpipe.judging.reference import Reference
from kpipe.judging.ruled import Ruled, named
from kpipe.judging.ties import breaks_tie
from kpipe.record import CellCounts, Drift, Flip, Tolerance
from kpipe_stages.decisions import DecisionError, approves, outputs_of, same

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kpipe_stages.decisions import Decision
    from kpipe_stages.protocol import DecisionSpec

_PROBLEM_CODES = {Problem.DRIFT: "KP401", Problem.NONFINITE: "KP402", Problem.SHAPE: "KP403", Problem.DTYPE: "KP406"}


Array = np.ndarray[Any, np.dtype[Any]]

SCORES_SHOWN = 32
"""Scores kept of a flip."""

OWN = " vs alone"
"""Ends the mode of a drift that is measured against the target's own answers."""


@dataclass(frozen=True)
class Disagreement:
    """The rows of one output that disagree in the same manner in one mode."""

    mode: str
    rows: list[RowDrift]
    total: int


@dataclass
class Cells:
    """What came of a target's cells."""

    passed: int = 0
    failed: int = 0
    unchecked: int = 0
    drift: list[Drift] = field(default_factory=list)
    flips: list[Flip] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    disagreements: dict[tuple[str, str, bool], list[Disagreement]] = field(default_factory=dict)
    """Output, code and whether against the target itself, to the modes in which it shows."""

    def counts(self) -> CellCounts:
        """As the record wants them."""
        return CellCounts(self.passed, self.failed, self.unchecked)


@dataclass(frozen=True)
class Question:
    """One target to be judged."""

    target: str
    required: bool
    answers: Answers
    reference: Reference
    inputs: tuple[GoldenInput, ...]
    modes: tuple[str, ...]
    """The ways of running that the target owes."""
    tolerances: dict[str, Tolerance]
    dtypes: dict[str, str]
    """Output dtypes of the model as reloaded on TensorFlow."""
    max_flips: int


def judge_cells(question: Question) -> Cells:
    """Judge every cell that the target owes; one without an answer is unchecked or failed, never left out."""
    cells = Cells()
    names = question.reference.answers.outputs
    flips = _all_flips(question, cells)
    got = set(question.answers.outputs)
    for mode in question.modes:
        if message := question.answers.result.failed.get(mode):
            cells.failed += len(names) * len(question.inputs)
            cells.findings.append(_finding(question, "KP311", f"The runtime refused mode '{mode}': {message}", mode))
        elif not question.answers.has(mode):
            cells.unchecked += len(names) * len(question.inputs)
        else:
            for output in names:
                if output in got:
                    _judge_output(question, cells, mode, output, flips.get((mode, output), frozenset()))
                else:
                    cells.failed += len(question.inputs)
                    cells.findings.append(
                        _finding(question, "KP407", f"Output '{output}' is missing; the target gives {', '.join(sorted(got))}.", output)
                    )
    if extra := sorted(got - set(names)):
        cells.findings.append(_finding(question, "KP407", f"The target gives outputs that the model doesn't have: {', '.join(extra)}.", extra[0]))
    cells.findings += [_drift_finding(question, output, code, own, modes) for (output, code, own), modes in cells.disagreements.items()]
    return cells


def _finding(question: Question, code: str, cause: str, place: str, **evidence: Any) -> Finding:
    return finding(code, cause, target=question.target, place=place, required=question.required, **evidence)


def _judge_output(question: Question, cells: Cells, mode: str, output: str, flipped: frozenset[int]) -> None:
    """One output in one mode: a cell an input."""
    if _empty(question, output):
        cells.unchecked += len(question.inputs)
        cells.findings.append(_finding(question, "KP611", f"Output '{output}' has no value on any golden input.", output))
        return
    try:
        drifts = _against_reference(question, mode, output)
        own = _against_alone(question, mode, output)
        if len(drifts) != len(question.inputs):
            raise ValueError(f"it has {len(drifts)} rows for {len(question.inputs)} golden inputs")
    except (OSError, ValueError, LookupError) as error:  # outputs that can't be read back or lack rows: nothing was checked
        cells.unchecked += len(question.inputs)
        cells.findings.append(_finding(question, "KP314", f"Output '{output}' in mode '{mode}' can't be read back: {error}", output))
        return
    failed = len({d.index for d in drifts if d.problem} | {d.index for d in own if d.problem} | flipped)
    cells.failed += failed
    cells.passed += len(question.inputs) - failed
    _record(question, cells, mode, output, drifts)
    if own:
        _record(question, cells, f"{mode}{OWN}", output, own)


def _empty(question: Question, output: str) -> bool:
    """Whether the reference's output holds nothing at all, on any input."""
    try:
        rows = question.reference.answers.rows(ALONE, output)
        return all(math.prod(rows.shape(i)) == 0 for i in range(len(rows)))
    except (OSError, ValueError, LookupError):
        return False  # the comparison says what is wrong with them


def _against_reference(question: Question, mode: str, output: str) -> list[RowDrift]:
    """Against the reference alone; an output without a batch axis is compared in the same mode, where it means the same."""
    reference = question.reference.answers
    same = not question.answers.batched(mode, output)
    known = reference.rows(mode if same and reference.has(mode) else ALONE, output)
    accepted = frozenset({known.dtype, question.dtypes.get(output, known.dtype)})
    return compare(known, question.answers.rows(mode, output), question.tolerances[output], accepted)


def _against_alone(question: Question, mode: str, output: str) -> list[RowDrift]:
    answers = question.answers
    if mode == ALONE or not answers.has(ALONE) or not (answers.batched(mode, output) and answers.batched(ALONE, output)):
        return []
    alone = answers.rows(ALONE, output)
    return compare(alone, answers.rows(mode, output), question.tolerances[output], frozenset({alone.dtype}))


def _all_flips(question: Question, cells: Cells) -> dict[tuple[str, str], frozenset[int]]:
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
    except DecisionError as error:  # a shape the rule can't decide on fails its cells as KP403 too; this says why
        cells.findings.append(_finding(question, "KP608", f"{named(spec)}no decision in mode '{mode}': {error}", spec.output))
        return []
    except (OSError, ValueError, LookupError):
        return []  # the numbers can't be read back either: `_judge_output` leaves their cells unchecked and says so
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
        tie=breaks_tie(spec, *_given(question, spec, mode, index, left, right)),
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


def _record(question: Question, cells: Cells, mode: str, output: str, drifts: Sequence[RowDrift]) -> None:
    bad = [d for d in drifts if d.problem]
    worst = max(drifts, key=lambda d: (d.factor, 0.0 if math.isnan(d.max_abs) else d.max_abs))
    tolerance = question.tolerances[output]
    cells.drift.append(
        Drift(
            output=output,
            mode=mode,
            cells=CellCounts(len(drifts) - len(bad), len(bad), 0),
            tolerance=tolerance,
            max_abs=_worst(d.max_abs for d in drifts),
            max_rel=_worst(d.max_rel for d in drifts),
            rms=_worst(d.rms for d in drifts),
            cosine=min((d.cosine for d in drifts if not math.isnan(d.cosine)), default=math.nan),
            max_ulp=_worst(d.max_ulp for d in drifts),
            worst_input=question.inputs[worst.index].id,
            worst_element=worst.element,
            worst_pair=worst.pair,
            smallest_factor=worst.factor,
        )
    )
    for problem, code in _PROBLEM_CODES.items():
        if of_kind := [d for d in bad if d.problem is problem]:
            cells.disagreements.setdefault((output, code, mode.endswith(OWN)), []).append(Disagreement(mode.removesuffix(OWN), of_kind, len(drifts)))


def _worst(values: Iterable[float]) -> float:
    """The largest value; NaN only where there is nothing else."""
    known = [v for v in values if not math.isnan(v)]
    return max(known, default=math.nan)


def _drift_finding(question: Question, output: str, code: str, own: bool, modes: list[Disagreement]) -> Finding:
    """One finding for all ways of running in which an output disagrees in the same manner."""
    at = max(modes, key=lambda m: max(d.factor for d in m.rows))
    worst = max(at.rows, key=lambda d: d.factor)
    golden = question.inputs[worst.index].id
    against = "the target's own answers alone" if own else "the reference"
    cause = f"Output '{output}' differs from {against} on {_counts(modes)}; worst on '{golden}' in '{at.mode}'{_how(question, code, output, at.mode, worst)}."
    tolerance = question.tolerances[output]
    passing = {"rtol": tolerance.rtol * worst.factor, "atol": tolerance.atol * worst.factor} if math.isfinite(worst.factor) else None
    return _finding(
        question,
        "KP408" if own else code,
        cause,
        output,
        modes={m.mode: len(m.rows) for m in modes},
        worst_input=golden,
        max_abs=worst.max_abs,
        factor=worst.factor,
        smallest_passing=passing,
    )


def _counts(modes: list[Disagreement]) -> str:
    """``2 of 3 inputs (alone, batch_3)``, said once where all ways of running say the same."""
    by_count: dict[str, list[str]] = {}
    for m in modes:
        by_count.setdefault(f"{len(m.rows)} of {m.total} inputs", []).append(m.mode)
    return " and ".join(f"{count} ({', '.join(names)})" for count, names in by_count.items())


def _how(question: Question, code: str, output: str, mode: str, worst: RowDrift) -> str:
    if code in {"KP403", "KP406"}:
        rows, known = question.answers.rows(mode, output), question.reference.answers.rows(ALONE, output)
        return f": {rows.dtype} {list(rows.shape(worst.index))}, where {known.dtype} {list(known.shape(worst.index))} was expected"
    pair = f"element {list(worst.element)}: {worst.pair[1]:.6g} against {worst.pair[0]:.6g}"
    if code == "KP401" and math.isfinite(worst.factor):
        return f", by up to {worst.max_abs:.3g} ({pair}, {worst.factor:.3g} times what is allowed)"
    return f" ({pair})"


def _flip_findings(question: Question, cells: Cells) -> None:
    """One finding for all real flips, one for all ties."""
    real = [f for f in cells.flips if not f.tie]
    ties = [f for f in cells.flips if f.tie]
    inputs = sorted({f.input for f in real})
    total = len(question.inputs)
    if real:
        first = max(real, key=lambda f: f.margin)
        by = f" by rule '{first.rule}'" if first.rule else ""
        cause = f"Decisions differ from the reference on {len(inputs)} of {total} inputs ({', '.join(inputs[:5])}{_by_rule(real)}); the widest margin lost is {first.margin:.3g} on '{first.input}' ('{first.reference}' became '{first.got}'{by} in mode '{first.mode}')."
        allowed = len(inputs) <= question.max_flips
        cells.findings.append(_finding(question, "KP415" if allowed else "KP404", cause, first.input, inputs=inputs[:50], allowed=question.max_flips))
    if ties:
        names = sorted({f.input for f in ties})
        cause = f"The reference's scores are tied on {', '.join(names[:5])}{_by_rule(ties)} and the target decides otherwise there."
        cells.findings.append(_finding(question, "KP405", cause, names[0], inputs=names[:50]))


def _by_rule(flips: list[Flip]) -> str:
    """How many inputs each rule decides otherwise, where rules have names."""
    inputs: dict[str, set[str]] = {}
    for flip in flips:
        inputs.setdefault(flip.rule, set()).add(flip.input)
    return "".join(f"; {len(names)} by rule '{rule}'" for rule, names in inputs.items() if rule)

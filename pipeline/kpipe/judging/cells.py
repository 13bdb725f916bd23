"""Cells of one target: numbers and decisions in every mode, against the reference and against the target alone. Pure, over saved outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kpipe.findings import Finding
from kpipe.golden import GoldenInput
from kpipe.judging.answers import ALONE, Answers
from kpipe.judging.company import moved, moved_sentence, only_padded, position_sentence
from kpipe.judging.compare import Problem, RowDrift, compare, kind_of
from kpipe.judging.flips import all_flips, target_finding
from kpipe.judging.reference import Reference
from kpipe.record import CellCounts, Drift, Flip, Tolerance
from kpipe_stages.decisions import outputs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np


_PROBLEM_CODES = {Problem.DRIFT: "KP401", Problem.NONFINITE: "KP402", Problem.SHAPE: "KP403", Problem.DTYPE: "KP406"}

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
    per_input: dict[str, list[float]] = field(default_factory=dict)
    """Output to the largest difference from the reference on each input, over the modes; infinite where it has no number."""
    disagreements: dict[tuple[str, str, bool], list[Disagreement]] = field(default_factory=dict)
    """Output, code and whether against the target itself, to the modes in which it shows."""

    undecided: set[tuple[str, str]] = field(default_factory=set)
    """Mode and output of decisions that are not known: what agrees there in numbers is not checked all the same."""

    decided: set[tuple[str, str]] = field(default_factory=set)
    """Mode and output on which decisions were taken and compared."""

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
    count_ties: bool = False
    """A tie that is broken otherwise is a flip like any other."""
    precision: str = "float32"
    """The coarsest class that the target's numbers may rightly have."""
    own_decisions: bool = False
    """Its decisions in company are also held against its own alone (the sign-off profile, and variants that decisions judge)."""
    by_decisions: bool = False
    """A precision variant that promises no numbers: where no decision was compared, nothing was checked."""

    def widths(self, output: str) -> np.ndarray[Any, np.dtype[Any]] | None:
        """What a tolerance in floors multiplies, per input."""
        return self.reference.widths(output, self.precision)


def judge_cells(question: Question) -> Cells:
    """Judge every cell that the target owes; one without an answer is unchecked or failed, never left out."""
    cells = Cells(undecided={(mode, output) for spec in question.reference.unknown for mode in question.modes for output in outputs_of(spec)})
    names = question.reference.answers.outputs
    flips = all_flips(question, cells)
    moves = _moved(question, cells) if question.own_decisions else {}
    if question.by_decisions:
        _leave_undecided(question, cells)
    got = set(question.answers.outputs)
    for mode in question.modes:
        if message := question.answers.result.failed.get(mode):
            cells.failed += len(names) * len(question.inputs)
            cells.findings.append(target_finding(question, "KP311", f"The runtime refused mode '{mode}': {message}", mode))
        elif not question.answers.has(mode):
            cells.unchecked += len(names) * len(question.inputs)
        else:
            for output in names:
                if output in got:
                    decided = flips.get((mode, output), frozenset()) | moves.get((mode, output), frozenset())
                    _judge_output(question, cells, mode, output, decided)
                else:
                    cells.failed += len(question.inputs)
                    cells.findings.append(
                        target_finding(question, "KP407", f"Output '{output}' is missing; the target gives {', '.join(sorted(got))}.", output)
                    )
    if extra := sorted(got - set(names)):
        cells.findings.append(
            target_finding(question, "KP407", f"The target gives outputs that the model doesn't have: {', '.join(extra)}.", extra[0])
        )
    cells.findings += [_drift_finding(question, output, code, own, modes) for (output, code, own), modes in cells.disagreements.items()]
    return cells


def _leave_undecided(question: Question, cells: Cells) -> None:
    """Floating-point outputs of a variant that no decision covers: numbers were promised by nobody, so nothing there has passed."""
    reference = question.reference.answers
    for output in reference.outputs:
        if output not in question.answers.outputs or kind_of(reference.rows(ALONE, output).dtype) != "float":
            continue  # whole numbers and texts are compared exactly
        left = [mode for mode in question.modes if question.answers.has(mode) and (mode, output) not in cells.decided | cells.undecided]
        cells.undecided.update((mode, output) for mode in left)
        if left:
            cause = f"Output '{output}' is judged by decisions in this precision, and no decision rule covers it in {', '.join(left[:5])}."
            cells.findings.append(target_finding(question, "KP430", cause, output, modes=left))


def _moved(question: Question, cells: Cells) -> dict[tuple[str, str], frozenset[int]]:
    """Inputs that the target decides otherwise in company than alone, by mode and output; their cells fail, whatever flips are allowed."""
    failed: dict[tuple[str, str], set[int]] = {}
    rules = {ruled.spec.name: ruled for ruled in question.reference.rules}  # where the user's code left nothing, the flips have said it
    found = moved(question.answers, rules.values(), question.modes, question.reference, {}, count_ties=question.count_ties)
    for (rule, output), by_mode in found.items():
        for mode, indices in by_mode.items():
            failed.setdefault((mode, output), set()).update(indices)
        cause = moved_sentence(rules[rule], by_mode, question.inputs, _ran(question))
        cells.findings.append(target_finding(question, "KP408", cause, output, modes={mode: len(indices) for mode, indices in by_mode.items()}))
    return {key: frozenset(indices) for key, indices in failed.items()}


def _ran(question: Question) -> list[str]:
    """The owed ways of running that have answers."""
    return [mode for mode in question.modes if question.answers.has(mode)]


def _judge_output(question: Question, cells: Cells, mode: str, output: str, flipped: frozenset[int]) -> None:
    """One output in one mode: a cell an input."""
    if _empty(question, output):
        cells.unchecked += len(question.inputs)
        cells.findings.append(target_finding(question, "KP611", f"Output '{output}' has no value on any golden input.", output))
        return
    try:
        drifts = _against_reference(question, mode, output)
        own = _against_alone(question, mode, output)
        if len(drifts) != len(question.inputs):
            raise ValueError(f"it has {len(drifts)} rows for {len(question.inputs)} golden inputs")
    except (OSError, ValueError, LookupError) as error:  # outputs that can't be read back or lack rows: nothing was checked
        cells.unchecked += len(question.inputs)
        cells.findings.append(target_finding(question, "KP314", f"Output '{output}' in mode '{mode}' can't be read back: {error}", output))
        return
    failed = len({d.index for d in drifts if d.problem} | {d.index for d in own if d.problem} | flipped)
    cells.failed += failed
    if (mode, output) in cells.undecided:
        cells.unchecked += len(question.inputs) - failed
    else:
        cells.passed += len(question.inputs) - failed
    _record(question, cells, mode, output, drifts)
    known = cells.per_input.setdefault(output, [0.0] * len(drifts))
    cells.per_input[output] = [max(before, math.inf if math.isnan(d.max_abs) else d.max_abs) for before, d in zip(known, drifts, strict=True)]
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
    return compare(known, question.answers.rows(mode, output), question.tolerances[output], accepted, question.widths(output))


def _against_alone(question: Question, mode: str, output: str) -> list[RowDrift]:
    answers = question.answers
    if mode == ALONE or not answers.has(ALONE) or not (answers.batched(mode, output) and answers.batched(ALONE, output)):
        return []
    alone = answers.rows(ALONE, output)
    return compare(alone, answers.rows(mode, output), question.tolerances[output], frozenset({alone.dtype}), question.widths(output))


def _record(question: Question, cells: Cells, mode: str, output: str, drifts: Sequence[RowDrift]) -> None:
    bad = [d for d in drifts if d.problem]
    good = len(drifts) - len(bad)
    unchecked = good if question.by_decisions and (mode.removesuffix(OWN), output) in cells.undecided else 0
    worst = max(drifts, key=lambda d: (d.factor, 0.0 if math.isnan(d.max_abs) else d.max_abs))
    tolerance = question.tolerances[output]
    cells.drift.append(
        Drift(
            output=output,
            mode=mode,
            cells=CellCounts(good - unchecked, len(bad), unchecked),
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
    if own:
        cause += position_sentence([m.mode for m in modes], _ran(question))
    tolerance = question.tolerances[output]
    passing = {"rtol": tolerance.rtol * worst.factor, "atol": tolerance.atol * worst.factor} if math.isfinite(worst.factor) else None
    by_padding = own and all(only_padded(question.answers, m.mode, m.rows) for m in modes)
    if by_padding:
        cause += " Each of these inputs was padded there, to the longest of its batch, and those that were not padded agree."
    return target_finding(
        question,
        ("KP420" if by_padding else "KP408") if own else code,
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

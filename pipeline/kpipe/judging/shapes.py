"""Shapes that were tried, case by case against the reference: a row each, and findings where one is owed and fails. Pure, over saved outputs.

What is fed is golden inputs cut or tiled to the size. It says whether a target takes a shape and gives the reference's numbers there; nothing
of decisions, so none are taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe.axes import BATCH, shape_cases, unpromised
from kpipe.contract import Contract
from kpipe.judging.compare import Problem, compare
from kpipe.judging.grade import finding
from kpipe.record import ShapeRecord, ShapeStatus, Tolerance
from kpipe_stages.codec import decode
from kpipe_stages.digest import digest
from kpipe_stages.protocol import ShapeCase, ShapeOutcome, ShapesResult, Signature
from kpipe_stages.rows import bfloat16_to_float32

if TYPE_CHECKING:
    from kpipe.evidence import StageEvidence
    from kpipe.findings import Finding

Array = np.ndarray[Any, np.dtype[Any]]

RECOMPILE_FACTOR = 3.0
RECOMPILE_S = 0.005
"""A first call so many times, and so much, longer than the next made something anew. Both, or a microsecond's jitter would count."""
FAILED = frozenset({ShapeStatus.REFUSED, ShapeStatus.DIFFERS})
VERBS = {ShapeStatus.REFUSED: "refuses", ShapeStatus.DIFFERS: "answers wrongly at", ShapeStatus.NOT_OFFERED: "does not offer"}


@dataclass(frozen=True)
class Tried:
    """What one worker's shapes came to."""

    folder: Path
    """Its stage folder."""
    done: Mapping[ShapeCase, tuple[int, ShapeOutcome]]
    """Case to its position and outcome."""
    trying: str
    lost: str
    due: bool

    def why_not(self, case: ShapeCase) -> str:
        """Why a case has no outcome."""
        if not self.due:
            return "the run did not try it"
        if self.trying == case.name:
            return f"the worker was lost while it tried this: {self.lost}"
        if self.trying:
            return f"it was not tried; the worker was lost at '{self.trying}': {self.lost}"
        return self.lost or "the run was made without this size"


def read_tried(stage: StageEvidence | None, folder: Path) -> Tried | None:
    """The shapes of one worker; None where it left no answer at all."""
    if stage is None or stage.result is None:
        return None
    result = decode(ShapesResult, stage.shapes.data) if stage.shapes and stage.shapes.data else ShapesResult((), "")
    done = {outcome.case: (position, outcome) for position, outcome in enumerate(result.done)}
    return Tried(folder, done, result.trying, stage.shapes_lost, stage.shapes_due)


@dataclass(frozen=True)
class ShapeQuestion:
    """One target's shapes."""

    target: str
    required: bool
    contract: Contract
    signature: Signature
    """The model's own."""
    outputs: tuple[str, ...]
    """In the order in which the target's worker writes them."""
    reference_outputs: tuple[str, ...]
    tried: Tried
    reference: Tried | None
    tolerances: Mapping[str, Tolerance]
    """By output: none in floors, which are known for the golden inputs only."""
    dtypes: Mapping[str, str]

    def finding(self, code: str, cause: str, place: str, **evidence: Any) -> Finding:
        """A finding on this target."""
        return finding(code, cause, target=self.target, place=place, required=self.required, **evidence)


def judge_shapes(question: ShapeQuestion) -> tuple[tuple[ShapeRecord, ...], list[Finding]]:
    """Every case that the contract and the model promise, and what else was tried."""
    cases = shape_cases(question.contract, question.signature, "")
    if not question.tried.due and not question.contract.axes:
        return (), []  # a run from before shapes were tried; nobody has promised any
    records = tuple(_judge(question, case) for case in cases)
    return records, _findings(question, records)


def _judge(question: ShapeQuestion, case: ShapeCase) -> ShapeRecord:
    if case not in question.tried.done:
        return _row(case, ShapeStatus.UNCHECKED, question.tried.why_not(case))
    position, outcome = question.tried.done[case]
    if not outcome.offered:
        return _row(case, ShapeStatus.NOT_OFFERED, "it takes another batch size only")
    if outcome.refused:
        return _row(case, ShapeStatus.REFUSED, outcome.refused, outcome)
    try:
        problem, gap = _compare(question, position, outcome, *_known(question.reference, outcome))
    except (OSError, ValueError, LookupError) as error:
        return _row(case, ShapeStatus.UNCHECKED, f"there is nothing to compare with: {error}", outcome)
    if problem:
        return _row(case, ShapeStatus.DIFFERS, problem, outcome, gap)
    return _row(case, ShapeStatus.RECOMPILES if _recompiled(outcome) else ShapeStatus.WORKS, "", outcome, gap)


def _known(reference: Tried | None, outcome: ShapeOutcome) -> tuple[int, ShapeOutcome]:
    """The reference's outcome of the same case and its position.

    Raises:
        ValueError: it has none that this one can be compared with.
    """
    if reference is None or outcome.case not in reference.done:
        raise ValueError(f"the reference has no answer: {reference.why_not(outcome.case) if reference else 'it was not run'}")
    position, known = reference.done[outcome.case]
    if known.refused or not known.offered:
        raise ValueError(f"the reference has no answer: {known.refused or 'it takes another batch size'}")
    if outcome.inputs_sha256 != known.inputs_sha256:
        raise ValueError("it was fed other inputs than the reference")
    return position, known


def _recompiled(outcome: ShapeOutcome) -> bool:
    cost = outcome.first_s - outcome.again_s
    return not outcome.known and cost >= RECOMPILE_S and outcome.first_s >= RECOMPILE_FACTOR * outcome.again_s


def _row(case: ShapeCase, status: ShapeStatus, detail: str, outcome: ShapeOutcome | None = None, gap: float | None = None) -> ShapeRecord:
    timed = outcome is not None and outcome.offered and not outcome.refused
    return ShapeRecord(
        name=case.name,
        batch=case.batch,
        axes=case.axes,
        owed=case.owed,
        status=status,
        detail=detail.rstrip("."),
        source=outcome.source if outcome else "",
        first_s=outcome.first_s if outcome and timed and not outcome.known else None,
        again_s=outcome.again_s if outcome and timed else None,
        max_abs=gap,
    )


# ---------------------------------------------------------------- numbers


@dataclass(frozen=True)
class _Whole:
    """An output of one call, as rows: one for each input, or the whole as one where it has no batch axis."""

    array: Array
    dtype: str

    def __len__(self) -> int:
        return len(self.array)

    def shape(self, index: int) -> tuple[int, ...]:
        return tuple(int(n) for n in self.array[index].shape)

    def __getitem__(self, index: int) -> Array:
        return np.asarray(self.array[index])


def _load(tried: Tried, position: int, outcome: ShapeOutcome, output: int) -> tuple[Array, str]:
    folder = tried.folder / "shapes" / str(position)
    if (found := digest(folder)) != outcome.digest:
        raise ValueError(f"{folder} was altered: SHA-256 {outcome.digest}, now {found}")
    dtype = (folder / f"{output}.dtype").read_text(encoding="utf-8")
    array: Array = np.load(folder / f"{output}.npy", allow_pickle=False)
    return (bfloat16_to_float32(array) if dtype == "bfloat16" else array), dtype


def _compare(question: ShapeQuestion, position: int, outcome: ShapeOutcome, at: int, known: ShapeOutcome) -> tuple[str, float | None]:
    """What is wrong, empty for nothing; and the largest difference."""
    largest = 0.0
    for name in question.reference_outputs:
        if name not in question.outputs:
            return f"output '{name}' is missing", None
        mine, dtype = _load(question.tried, position, outcome, question.outputs.index(name))
        assert question.reference is not None
        theirs, wanted = _load(question.reference, at, known, question.reference_outputs.index(name))
        if mine.shape != theirs.shape:
            return f"output '{name}' has shape {mine.shape}; the reference's is {theirs.shape}", None
        if mine.size == 0:
            continue
        rows = theirs.ndim > 0 and theirs.shape[0] == outcome.case.batch
        left, right = (_Whole(array if rows else array[None], kind) for array, kind in ((theirs, wanted), (mine, dtype)))
        accepted = frozenset({wanted, question.dtypes.get(name, wanted)})
        drifts = compare(left, right, question.tolerances[name], accepted)
        largest = max(largest, *(d.max_abs for d in drifts))
        worst = max(drifts, key=lambda d: d.factor)
        if worst.problem is Problem.DTYPE:
            return f"output '{name}' is {dtype}; the reference's is {wanted}", None
        if worst.problem:
            return f"output '{name}' differs from the reference by up to {worst.max_abs:.3g}, {worst.factor:.3g} times what is allowed", largest
    return "", largest


# ---------------------------------------------------------------- findings


def _findings(question: ShapeQuestion, records: tuple[ShapeRecord, ...]) -> list[Finding]:
    found = []
    promised = BATCH in question.contract.axes
    for row in records:
        failed = row.status in FAILED or (row.status is ShapeStatus.NOT_OFFERED and promised)
        if row.owed and failed:
            cause = f"'{question.target}' {VERBS[row.status]} '{row.name}'{sizes_of(row)}: {row.detail}."
            found.append(question.finding("KP241", cause, row.name, status=str(row.status)))
        elif row.owed and row.status is ShapeStatus.UNCHECKED and not _models_own(question, row):
            found.append(question.finding("KP242", f"'{row.name}'{sizes_of(row)} was not checked on '{question.target}': {row.detail}.", row.name))
        elif not row.owed and row.batch == 0 and _worth_a_note(question, row):
            found.append(question.finding("KP244", f"'{question.target}' does not take an empty batch: {row.detail}.", row.name))
    costly = [row for row in records if row.status is ShapeStatus.RECOMPILES]
    if costly and question.contract.axes:
        worst = max(costly, key=lambda row: row.first_s or 0.0)
        cause = f"A new shape costs '{question.target}' up to {1e3 * ((worst.first_s or 0.0) - (worst.again_s or 0.0)):,.3g} ms once ('{worst.name}'); then a call takes {1e3 * (worst.again_s or 0.0):,.3g} ms."
        found.append(question.finding("KP243", cause, worst.name))
    return found


def _worth_a_note(question: ShapeQuestion, row: ShapeRecord) -> bool:
    """Whether an empty batch that nobody promised is: where shapes are spoken of at all, or where it ends the process."""
    died = row.status is ShapeStatus.UNCHECKED and bool(question.tried.trying)
    return died or (row.status in FAILED and bool(question.contract.axes))


def _models_own(question: ShapeQuestion, row: ShapeRecord) -> bool:
    """Whether the reference itself refuses the shape: that is said of it, once."""
    known = next((outcome for case, (_, outcome) in question.reference.done.items() if case.name == row.name), None) if question.reference else None
    return known is not None and bool(known.refused)


def sizes_of(row: ShapeRecord) -> str:
    """`` (seq[1] = 4096)``; empty where no axis is set."""
    told = ", ".join(f"{one.input}[{one.axis}] = {one.size}" for one in row.axes)
    return f" ({told}, batch {row.batch})" if told else ""


def reference_findings(contract: Contract, signature: Signature | None, tried: Tried | None) -> list[Finding]:
    """What the model itself does not do, on the backend that trained it; and the free axes that nobody has promised anything for."""
    if signature is None:
        return []
    found = [
        finding(
            "KP245",
            f"Axis {', '.join(map(str, axes))} of input '{name}' is free and the contract names no range for it: only the golden inputs' sizes were run.",
            place=name,
        )
        for name, axes in unpromised(contract, signature).items()
    ]
    for case, (_, outcome) in tried.done.items() if tried else ():
        if outcome.refused and case.owed:
            row = _row(case, ShapeStatus.REFUSED, outcome.refused)
            found.append(
                finding("KP241", f"The model itself refuses '{case.name}'{sizes_of(row)}: {outcome.refused}.", target="reference", place=case.name)
            )
    return found

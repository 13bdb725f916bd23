"""A target's own preprocessing against the reference's, tensor for tensor, in front of the network. Pure, over saved tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe.evidence import Evidence, StageEvidence, TargetPlan
from kpipe.judging.compare import Problem, RowDrift, compare
from kpipe.judging.grade import finding
from kpipe.judging.tolerance import DEFAULTS
from kpipe.preparation import tensors_of
from kpipe.record import Tolerance
from kpipe_stages.codec import decode
from kpipe_stages.protocol import Fingerprint, FingerprintResult

if TYPE_CHECKING:
    from kpipe.findings import Finding
    from kpipe_stages.rows import Rows

RTOL, ATOL = DEFAULTS["float32"]
EXACT = Tolerance(RTOL, ATOL, "float32")
"""Rounding in another order, and no more: what the contract allows is about outputs."""


@dataclass(frozen=True)
class _Border:
    """Where to look, and for whom."""

    run: Path
    evidence: Evidence
    stages: Mapping[str, StageEvidence]
    plan: TargetPlan

    def finding(self, code: str, cause: str, place: str, remedy: str = "", **evidence: Any) -> Finding:
        return finding(code, cause, target=self.plan.name, place=place, remedy=remedy, required=self.plan.required, **evidence)


def judge_preprocessing(run: Path, evidence: Evidence, stages: Mapping[str, StageEvidence], plan: TargetPlan) -> list[Finding]:
    """KP106 for every input whose tensors differ, with the suspect that the search named; KP314 where tensors can't be compared.

    Args:
        run: the run folder.
        evidence: what the run left behind.
        stages: its stages by name.
        plan: the target's.
    """
    if not plan.inputs or evidence.golden.kind != "raw":
        return []  # tensors that came as tensors are nobody's preprocessing: KP602 says that it was not checked
    border = _Border(run, evidence, stages, plan)
    try:
        ours = tensors_of(run, evidence, stages, "prepare")
        theirs = tensors_of(run, evidence, stages, f"prepare.{plan.name}")
    except (OSError, ValueError) as error:
        return [border.finding("KP314", f"Prepared inputs can't be read back: {error}", "prepare")]
    names = dict.fromkeys((*ours, *(spec.name for spec in plan.inputs)))
    return [found for name in names for found in _input(border, name, ours.get(name), theirs.get(name))]


def input_code(evidence: Evidence, plan: TargetPlan) -> dict[str, str]:
    """The files that a target's inputs were made by, with their digests: its own, else the ones that all share."""
    if evidence.golden.kind != "raw":
        return {}
    files = {path: sha256 for spec in plan.inputs or evidence.reference.inputs for path, sha256 in spec.files.items()}
    return below(files, evidence.contract_folder)


def below(files: Mapping[str, str], contract_folder: str) -> dict[str, str]:
    """Paths with their digests, relative to the contract's folder where they lie below it."""
    folder = Path(contract_folder)
    return {str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path: sha256 for path, sha256 in files.items()}


def _input(border: _Border, name: str, ours: Rows | None, theirs: Rows | None) -> list[Finding]:
    if ours is None or theirs is None or len(theirs) != len(ours) or ours.absent or theirs.absent:
        return [border.finding("KP314", f"Input '{name}' was not prepared for this target.", name)]
    drifts = compare(ours, theirs, EXACT, frozenset({ours.dtype}))
    bad = [drift for drift in drifts if drift.problem]
    return [_difference(border, name, ours, theirs, bad)] if bad else []


def _difference(border: _Border, name: str, ours: Rows, theirs: Rows, bad: list[RowDrift]) -> Finding:
    worst = max(bad, key=lambda drift: drift.factor)
    golden = border.evidence.golden.inputs[worst.index].id
    named, why = _search(border, name)
    cause = (
        f"The target's own preprocessing of '{name}' differs from the reference's on {len(bad)} of {len(ours)} inputs, "
        f"worst on '{golden}': {_size(ours, theirs, worst)}. {why}"
    )
    facts: dict[str, Any] = {"inputs": len(bad), "worst_input": golden, "max_abs": worst.max_abs, "rms": worst.rms}
    if named is not None:
        facts |= {"suspect": named.suspect if named.matched else "", "closest": "" if named.matched else named.suspect}
        facts |= {"residual": named.residual, "explained": named.explained, "used": named.used, "tried": named.tried, "complete": named.complete}
        facts |= {"steps": named.steps, "also": list(named.also)}
    return border.finding("KP106", cause, name, _remedy(border, name, named), **facts)


def _size(ours: Rows, theirs: Rows, worst: RowDrift) -> str:
    left, right = ours.shape(worst.index), theirs.shape(worst.index)
    if worst.problem is Problem.DTYPE:
        return f"{theirs.dtype} instead of {ours.dtype}"
    if left != right:
        return f"shape {right} instead of {left}"
    if math.isinf(worst.max_abs):
        return f"shape {left}, NaN or infinities on one side"
    return f"shape {left}, by up to {worst.max_abs:.3g} (RMS {worst.rms:.3g})"


# ---------------------------------------------------------------- what the search said


def _search(border: _Border, name: str) -> tuple[Fingerprint | None, str]:
    """The search's answer for an input, and its sentence. A search that went wrong says so, and takes nothing away."""
    stage = border.stages.get(f"fingerprint.{border.plan.name}")
    if stage is None:
        return None, "What it does otherwise was not searched for."
    if stage.result is None or not stage.result.data:
        return None, f"What it does otherwise is not known: the search {stage.ending}: {stage.detail}"
    answer = decode(FingerprintResult, stage.result.data)
    named = next((one for one in answer.found if one.input == name), None)
    return named, _sentence(named) if named is not None else "The search saw no difference in it."


def _sentence(named: Fingerprint) -> str:
    scope = f"{named.used} of the {named.differing} inputs that differ" if named.used < named.differing else f"all {named.used} inputs that differ"
    rest = "" if named.complete else ", and not all of them before time ran out"
    note = f" ({named.note})" if named.note else ""
    if named.matched:
        also = f"; these inputs can't tell it from: {', '.join(named.also[:3])}" if named.also else ""
        return f"This is {named.suspect}, where the reference has {named.instead}: equal on {scope}{also}.{note}"
    if named.suspect:
        return (
            f"No suspect matches; closest: {named.suspect}, explains {named.explained} of {named.used} inputs, residual {named.residual:.3g} "
            f"(without it {named.before:.3g}). {named.tried} were tried{rest}.{note}"
        )
    return f"No suspect matches: {named.tried} were tried on {scope}{rest}.{note}"


def _remedy(border: _Border, name: str, named: Fingerprint | None) -> str:
    if named is None or not named.matched:
        return ""
    if not named.steps:
        return (
            f"Make production do what training does: {named.instead} instead of {named.suspect}. No step of a contract does the same; to train so, "
            f'let [inputs.{name}] run that code (decode = "module:function").'
        )
    return (
        f"Make production do what training does: {named.instead}. Or train with what production does: [inputs.{name}] with {named.steps} "
        f"would make the two equal. Target: {border.plan.name}."
    )

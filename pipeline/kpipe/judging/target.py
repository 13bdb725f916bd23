"""One target, from its evidence to its row in the record. Pure, over saved outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from kpipe.findings import Finding
from kpipe.judging.answers import Answers, open_answers
from kpipe.judging.bindings import judge_binding, narrower
from kpipe.judging.cells import Cells, Question, judge_cells
from kpipe.judging.grade import from_observation
from kpipe.judging.knobs import judge_knobs
from kpipe.judging.ops import check_ops, told
from kpipe.judging.precision import judge_machine_default, judge_precision
from kpipe.judging.preprocessing import input_code, judge_preprocessing
from kpipe.judging.promises import class_of, decides, own_tolerances, promised, shape_tolerance
from kpipe.judging.reference import Reference, repeats_owed
from kpipe.judging.repeats import allowances, repeats_itself
from kpipe.judging.scene import Bench, Scene
from kpipe.judging.shapes import ShapeQuestion, judge_shapes, read_tried
from kpipe.judging.speed import judge_times
from kpipe.judging.stages import stage_findings, timing_findings
from kpipe.judging.timed import confined
from kpipe.judging.variants import handed_in
from kpipe.judging.verdict import failing, unchecking
from kpipe.preparation import prepared
from kpipe.profiles import owed_profile
from kpipe.record import ArtifactRecord, CellCounts, CellStatus, Flip, ShapeStatus, TargetRecord
from kpipe_stages.catalog import RUNTIMES

if TYPE_CHECKING:
    from kpipe.evidence import StageEvidence, TargetEvidence


@dataclass(frozen=True)
class Judged:
    """One target's record, and what goes into the record's common lists."""

    record: TargetRecord
    findings: tuple[Finding, ...]
    flips: tuple[Flip, ...]
    answers: Answers | None = None
    """Its saved outputs; None where it has none."""
    per_input: Mapping[str, list[float]] = field(default_factory=dict)
    """Output to the largest difference from the reference on each input."""


def judge_target(scene: Scene, target: TargetEvidence, known: list[Finding]) -> Judged:
    """Judge one target; whatever is missing leaves its cells unchecked and a finding that says why.

    Args:
        scene: what all targets share.
        target: the target's plan and artifact.
        known: findings of steps before the run that concern this target, such as its export.
    """
    bench = Bench(scene, target, list(known))
    _absence(bench)
    _one_batch(bench)
    name = f"run.{target.plan.name}"
    stage = scene.stages.get(name)
    if stage is not None:
        held = target.plan.memory_mib
        bench.findings += stage_findings(stage, target=target.plan.name, required=target.plan.required, memory_mib=held)
    answers = open_answers(stage, scene.run / scene.evidence.folders.get(name, f"stages/{name}"), scene.decided)
    _ops(bench, answers)
    cells = _cells(bench, answers)
    if stage is not None:
        _version(bench, stage)
    own = prepared(scene.stages.get(f"prepare.{target.plan.name}"))
    if answers is not None and scene.reference is not None:
        _binding(bench, answers, cells, scene.reference)
        _shapes(bench, answers, stage, scene.reference, cells)
    if answers is not None or (own is not None and not own.bad_rows):  # tensors that no runtime takes are compared all the same
        bench.findings += judge_preprocessing(scene.run, scene.evidence, scene.stages, target.plan)
    bench.findings += handed_in(bench.target, bench.scene.stages)
    if answers is not None:
        _tensors_here(bench, answers)
        judge_precision(bench, answers)
        judge_machine_default(bench, answers)
    return _row(bench, cells, answers, stage)


def _absence(bench: Bench) -> None:
    """Why the target could not be run, or what the orchestrator saw of its artifact."""
    plan = bench.plan
    if plan.absent is not None:
        bench.findings.append(from_observation(plan.absent, target=plan.name, required=plan.required))
    bench.findings += [from_observation(o, target=plan.name, required=plan.required) for o in bench.target.problems]


def _one_batch(bench: Bench) -> None:
    """A runtime that has one batch size where the artifact's is free."""
    artifact, row = bench.target.artifact, RUNTIMES[bench.plan.runtime]
    if artifact is not None and artifact.batch is None and row.batch is not None:
        bench.add("KP212", f"{row.title} takes batches of {row.batch} only; the artifact's batch axis is free.", place=row.name)


def _version(bench: Bench, stage: StageEvidence) -> None:
    """The version that the contract names, against the one that the worker says it ran."""
    if not bench.table.version or bench.plan.absent is not None:
        return
    distribution = RUNTIMES[bench.plan.runtime].distributions[0]
    identity = stage.result.identity if stage.result else None
    found = identity.versions.get(distribution, "") if identity else ""
    if not found or not SpecifierSet(bench.table.version).contains(found, prereleases=True):
        cause = f"Target '{bench.plan.name}' asks for {distribution} {bench.table.version}; its worker had {found or 'an unknown version'}."
        bench.add("KP302", cause, place=bench.plan.name, wanted=bench.table.version, found=found)


def _ops(bench: Bench, answers: Answers | None) -> None:
    """The ops of its artifact, against the profile that the contract names."""
    profile, artifact = bench.table.op_profile, bench.target.artifact
    if profile is None:
        return
    if artifact is None:
        bench.add("KP236", f"Profile '{profile}' wasn't checked: there is no artifact to look into.", place=profile)
        return
    checked = check_ops(profile, bench.scene.contract.op_profiles, artifact, answers.result.facts if answers else None)
    if checked.unknown:
        bench.add("KP236", f"Profile '{profile}' wasn't checked: {checked.unknown}.", place=profile)
    for violation in checked.violations:
        cause = f"Outside the profile '{profile}': {told(violation)}."
        place = violation.layers[0] if violation.layers else violation.op
        bench.add("KP230", cause, place=place, ops=[violation.op], layers=list(violation.layers), profile=profile)


def _cells(bench: Bench, answers: Answers | None) -> Cells:
    reference, contract = bench.scene.reference, bench.scene.contract
    profile = owed_profile(contract, bench.scene.evidence)
    modes = profile.modes(contract)
    if answers is None or reference is None:
        outputs = len(reference.answers.outputs) if reference else len(bench.scene.signature.outputs) if bench.scene.signature else 1
        return Cells(unchecked=len(modes) * max(1, outputs) * len(bench.scene.evidence.golden.inputs))
    if problem := repeats_owed(answers.result, profile, "target"):
        bench.add("KP314", problem, place="repeat")
    fixed = fixed_batch(bench.target, answers)
    if fixed and answers.result.fixed_batch == fixed:
        modes = profile.modes(contract, fixed)
    precision = class_of(bench, answers)
    own, coarser = own_tolerances(bench, precision, reference)
    strict = profile.exact and answers.result.repeats_equal is False
    if strict or not repeats_itself(answers.result, allowances(reference.answers, own, reference.floors, coarser=coarser)):
        bench.add("KP416", f"The target gave two answers to the same input; they differ by up to {answers.result.repeat_difference:.3g}.")
    bench.question = Question(
        target=bench.plan.name,
        required=bench.plan.required,
        answers=answers,
        reference=reference,
        inputs=bench.scene.evidence.golden.inputs,
        modes=modes,
        tolerances=promised(bench, precision, reference),
        precision=precision,
        dtypes={spec.name: spec.dtype for spec in bench.scene.signature.outputs} if bench.scene.signature else {},
        max_flips=contract.agreement.max_flips,
        count_ties=contract.agreement.ties == "count",
        own_decisions=profile.arrangements or decides(bench),
        by_decisions=decides(bench),
    )
    cells = judge_cells(bench.question)
    bench.findings += cells.findings
    return cells


def _binding(bench: Bench, answers: Answers, cells: Cells, reference: Reference) -> None:
    """Whether each input and output is the one that it is bound to. Where numbers are off anyway, that nothing is proved goes without saying."""
    bench.proof, found = judge_binding(bench.plan.name, bench.plan.required, answers, reference.answers)
    bench.findings += [f for f in found if f.code != "KP233" or not cells.failed]
    bench.findings += narrower(answers.result, bench.plan.name, required=bench.plan.required)


def _shapes(bench: Bench, answers: Answers, stage: StageEvidence | None, reference: Reference, cells: Cells) -> None:
    """The shapes that were tried, by tolerances that don't know these inputs' noise floors.

    Where golden inputs differ already and no range is promised, that they differ in another batch too is in the table, and no finding.
    """
    scene, precision = bench.scene, class_of(bench, answers)
    tried = read_tried(stage, answers.folder)
    if tried is None or scene.signature is None:
        return
    outputs = reference.answers.outputs
    question = ShapeQuestion(
        target=bench.plan.name,
        required=bench.plan.required,
        contract=scene.contract,
        signature=scene.signature,
        outputs=answers.outputs,
        reference_outputs=outputs,
        tried=tried,
        reference=read_tried(scene.stages.get("reference"), reference.answers.folder),
        tolerances={output: shape_tolerance(bench, output, precision) for output in outputs},
        dtypes={spec.name: spec.dtype for spec in scene.signature.outputs},
    )
    bench.shapes, found = judge_shapes(question)
    known = bool(cells.failed) and not scene.contract.axes
    bench.findings += [f for f in found if not (known and f.code == "KP241" and f.evidence.get("status") == ShapeStatus.DIFFERS)]


def fixed_batch(target: TargetEvidence, answers: Answers) -> int | None:
    """The only batch size that the target can have: its artifact's, or the one that the model's own signature fixes; None where it is free."""
    if target.artifact is not None:
        return RUNTIMES[target.plan.runtime].only_batch(target.artifact.batch)
    sizes = {spec.shape[0] for spec in answers.result.signature.inputs if spec.shape}
    return next((size for size in sizes if size is not None), None)


def _tensors_here(bench: Bench, answers: Answers) -> None:
    """A process that makes other tensors of the raw files would ship other answers than the ones compared."""
    if served := [spec.name for spec in bench.plan.inputs if spec.decode == "tensors"]:
        cause = f"'{bench.plan.name}' ran tensors that its serving system made of '{', '.join(served)}': what its code makes of raw files was not run here, and nothing was timed from them."
        bench.add("KP111", cause, place=bench.plan.name, remedy='Name the code (decode = "module:function") to have it run and timed.')
    if answers.result.decoded_here is False:
        bench.add("KP111", f"The interpreter of '{bench.plan.name}' can't decode raw files; it ran the prepared tensors.", place=bench.plan.name)
    if mismatches := answers.result.tensor_mismatches:
        names = ", ".join(mismatches[:5])
        bench.add(
            "KP109",
            f"In this target's process {len(mismatches)} raw inputs become another tensor than the prepared one ({names}).",
            place=names,
        )


def _row(bench: Bench, cells: Cells, answers: Answers | None, stage: StageEvidence | None) -> Judged:
    plan, result = bench.plan, answers.result if answers else None
    bench.findings += timing_findings(stage, target=plan.name, required=plan.required)
    measured = judge_times(bench, answers, stage)
    counts = cells.counts()
    status = _status(bench.findings, counts)
    record = TargetRecord(
        name=plan.name,
        runtime=plan.runtime,
        title=RUNTIMES[plan.runtime].title + (f", {plan.quantize}" if plan.quantize else ""),
        required=plan.required,
        status=status,
        reason=_reason(bench, status),
        cells=counts,
        artifact=_artifact(bench),
        variant=plan.quantize,
        settings=dict(plan.settings),
        chosen_settings=dict(plan.chosen),
        effective_precision=result.effective_precision if result else "",
        devices=result.devices if result else (),
        facts=dict(result.facts) if result else {},
        identity=stage.result.identity if stage and stage.result else None,
        modes=result.modes if result else (),
        modes_not_offered=result.not_offered if result else (),
        drift=tuple(cells.drift),
        flips=len({f.input for f in cells.flips if not f.tie}),
        ties=len({f.input for f in cells.flips if f.tie}),
        confined=confined(plan),
        **measured,
        knobs=judge_knobs(bench.scene, plan, bench.question) if bench.question is not None else (),
        preprocessing=input_code(bench.scene.evidence, plan),
        shapes=bench.shapes,
        inputs=dict(bench.target.artifact.binding.inputs) if bench.target.artifact else {},
        outputs=dict(bench.target.artifact.binding.outputs) if bench.target.artifact else {},
        binding=bench.proof,
    )
    return Judged(record, tuple(bench.findings), tuple(cells.flips), answers, cells.per_input)


def _status(findings: list[Finding], cells: CellCounts) -> CellStatus:
    errors = [f for f in _as_required(findings) if f in failing(_as_required(findings))]
    if cells.failed or errors:
        return CellStatus.FAIL
    if cells.unchecked or unchecking(_as_required(findings)) or not cells.passed:
        return CellStatus.UNCHECKED
    return CellStatus.PASS


def _as_required(findings: list[Finding]) -> list[Finding]:
    """The same findings as if the target counted: a target's own status doesn't depend on whether it is required."""
    return [replace(f, required=True) for f in findings]


def _reason(bench: Bench, status: CellStatus) -> str:
    ranked = _as_required(bench.findings)
    pool = failing(ranked) if status is CellStatus.FAIL else unchecking(ranked) if status is CellStatus.UNCHECKED else []
    if pool:
        return f"{pool[0].code}: {pool[0].cause}"
    if status is not CellStatus.PASS:
        return _why_unchecked(bench) if status is CellStatus.UNCHECKED else "see the findings"
    remarks = [f"{f.code}: {f.cause}" for f in bench.findings if f.code in {"KP209", "KP212"}]
    return remarks[0] if remarks else "agrees"


def _why_unchecked(bench: Bench) -> str:
    ran = f"run.{bench.plan.name}" in bench.scene.stages
    if ran and bench.scene.reference is None:
        return "it ran, but there is no reference to compare with"
    return "not run: the run was refused or stopped before" if not ran else "not all cells could be checked"


def _artifact(bench: Bench) -> ArtifactRecord | None:
    artifact = bench.target.artifact
    if artifact is None:
        return None
    return ArtifactRecord(
        format=artifact.format,
        path=_below(bench.scene.evidence.folder or bench.scene.run, artifact.path),
        sha256=artifact.sha256,
        size=artifact.size,
        provided=bool(bench.plan.provided),
        repairs=artifact.repairs,
        versions=dict(artifact.versions),
        signature=artifact.signature,
        ops=dict(artifact.ops),
        inventory=artifact.inventory,
        opset=artifact.opset,
        reused=artifact.reused,
        fixed_batch=artifact.batch,
        variant=artifact.variant or bench.plan.quantize,
        companions=tuple(_below(bench.scene.evidence.folder or bench.scene.run, path) for path in artifact.companions),
    )


def _below(run: str | Path, path: str) -> str:
    """A path relative to the run folder where it lies below it."""
    return str(Path(path).relative_to(run)) if Path(path).is_relative_to(run) else path

"""One target, from its evidence to its row in the record. Pure, over saved outputs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet

from kpipe.contract import Contract, TargetTable
from kpipe.evidence import Evidence, StageEvidence, TargetEvidence
from kpipe.findings import Finding
from kpipe.judging.answers import ALONE, MACHINE_DEFAULT, Answers, open_answers
from kpipe.judging.bindings import judge_binding, narrower
from kpipe.judging.cells import Cells, Question, judge_cells
from kpipe.judging.decided import Decided
from kpipe.judging.floor import EPSILON, K
from kpipe.judging.grade import finding, from_observation
from kpipe.judging.knobs import judge_knobs
from kpipe.judging.ops import check_ops, told
from kpipe.judging.preprocessing import input_code, judge_preprocessing
from kpipe.judging.reference import Reference, repeats_owed
from kpipe.judging.repeats import allowances, relative_allowance, repeats_itself
from kpipe.judging.shapes import ShapeQuestion, judge_shapes, read_tried
from kpipe.judging.stages import stage_findings, timing_findings
from kpipe.judging.ties import breaks_tie
from kpipe.judging.times import check_limits, summarise
from kpipe.judging.tolerance import COARSER, derived_tolerance, own_tolerance, precision_class, tolerance_for
from kpipe.judging.variants import handed_in, variant_of
from kpipe.judging.verdict import failing, unchecking
from kpipe.preparation import prepared
from kpipe.profiles import owed_profile
from kpipe.record import ArtifactRecord, CellCounts, CellStatus, Flip, LoadRecord, ShapeRecord, ShapeStatus, TargetRecord, Tolerance
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import decode
from kpipe_stages.decisions import same
from kpipe_stages.protocol import RunResult, Signature, TimingResult

if TYPE_CHECKING:
    from kpipe.evidence import TargetPlan
    from kpipe.judging.ruled import Ruled
    from kpipe.record import LimitCheck

WHOLE = re.compile(r"u?int\d+|bool|string|none")
"""Dtypes that no precision is about."""

ASKED = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
"""Precision names of settings to dtype names."""


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


@dataclass(frozen=True)
class Scene:
    """What judging every target needs."""

    run: Path
    contract: Contract
    evidence: Evidence
    stages: Mapping[str, StageEvidence]
    model_dtypes: set[str]
    """Dtypes that the model's layers compute in."""
    signature: Signature | None
    """The model's own, as reloaded on TensorFlow."""
    reference: Reference | None
    decided: Decided | None = None
    """What the user's own code decided."""


@dataclass
class _Bench:
    """One target on the bench."""

    scene: Scene
    target: TargetEvidence
    findings: list[Finding]
    question: Question | None = None
    """What its cells were asked; None where there was nothing to compare."""
    shapes: tuple[ShapeRecord, ...] = ()
    proof: str = ""
    """How far its binding is proved."""

    @property
    def plan(self) -> TargetPlan:
        return self.target.plan

    @property
    def table(self) -> TargetTable:
        return self.scene.contract.targets.get(self.plan.name, TargetTable())

    def add(self, code: str, cause: str, *, place: str = "", remedy: str = "", **evidence: Any) -> None:
        self.findings.append(finding(code, cause, target=self.plan.name, place=place, remedy=remedy, required=self.plan.required, **evidence))


def judge_target(scene: Scene, target: TargetEvidence, known: list[Finding]) -> Judged:
    """Judge one target; whatever is missing leaves its cells unchecked and a finding that says why.

    Args:
        scene: what all targets share.
        target: the target's plan and artifact.
        known: findings of steps before the run that concern this target, such as its export.
    """
    bench = _Bench(scene, target, list(known))
    _absence(bench)
    _one_batch(bench)
    name = f"run.{target.plan.name}"
    stage = scene.stages.get(name)
    if stage is not None:
        bench.findings += stage_findings(stage, target=target.plan.name, required=target.plan.required)
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
        _precision(bench, answers)
        _machine_default(bench, answers)
    return _row(bench, cells, answers, stage)


def _absence(bench: _Bench) -> None:
    """Why the target could not be run, or what the orchestrator saw of its artifact."""
    plan = bench.plan
    if plan.absent is not None:
        bench.findings.append(from_observation(plan.absent, target=plan.name, required=plan.required))
    bench.findings += [from_observation(o, target=plan.name, required=plan.required) for o in bench.target.problems]


def _one_batch(bench: _Bench) -> None:
    """A runtime that has one batch size where the artifact's is free."""
    artifact, row = bench.target.artifact, RUNTIMES[bench.plan.runtime]
    if artifact is not None and artifact.batch is None and row.batch is not None:
        bench.add("KP212", f"{row.title} takes batches of {row.batch} only; the artifact's batch axis is free.", place=row.name)


def _version(bench: _Bench, stage: StageEvidence) -> None:
    """The version that the contract names, against the one that the worker says it ran."""
    if not bench.table.version or bench.plan.absent is not None:
        return
    distribution = RUNTIMES[bench.plan.runtime].distributions[0]
    identity = stage.result.identity if stage.result else None
    found = identity.versions.get(distribution, "") if identity else ""
    if not found or not SpecifierSet(bench.table.version).contains(found, prereleases=True):
        cause = f"Target '{bench.plan.name}' asks for {distribution} {bench.table.version}; its worker had {found or 'an unknown version'}."
        bench.add("KP302", cause, place=bench.plan.name, wanted=bench.table.version, found=found)


def _ops(bench: _Bench, answers: Answers | None) -> None:
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


def _cells(bench: _Bench, answers: Answers | None) -> Cells:
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
    precision = _precision_class(bench, answers)
    own, coarser = _own_tolerances(bench, precision, reference)
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
        tolerances=_promised(bench, precision, reference),
        precision=precision,
        dtypes={spec.name: spec.dtype for spec in bench.scene.signature.outputs} if bench.scene.signature else {},
        max_flips=contract.agreement.max_flips,
        count_ties=contract.agreement.ties == "count",
        own_decisions=profile.arrangements or _decides(bench),
        by_decisions=_decides(bench),
    )
    cells = judge_cells(bench.question)
    bench.findings += cells.findings
    return cells


def _binding(bench: _Bench, answers: Answers, cells: Cells, reference: Reference) -> None:
    """Whether each input and output is the one that it is bound to. Where numbers are off anyway, that nothing is proved goes without saying."""
    bench.proof, found = judge_binding(bench.plan.name, bench.plan.required, answers, reference.answers)
    bench.findings += [f for f in found if f.code != "KP233" or not cells.failed]
    bench.findings += narrower(answers.result, bench.plan.name, required=bench.plan.required)


def _shapes(bench: _Bench, answers: Answers, stage: StageEvidence | None, reference: Reference, cells: Cells) -> None:
    """The shapes that were tried, by tolerances that don't know these inputs' noise floors.

    Where golden inputs differ already and no range is promised, that they differ in another batch too is in the table, and no finding.
    """
    scene, precision = bench.scene, _precision_class(bench, answers)
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
        tolerances={output: _shape_tolerance(bench, output, precision) for output in outputs},
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


def _asked_precision(plan: TargetPlan, table: TargetTable) -> str:
    """The dtype that the contract asks for: ``precision`` where it is written, else the settings'; empty where the runtime may choose."""
    if table.precision == "f32" and "precision" in table.model_fields_set:
        return "float32"
    settings = {**plan.chosen, **plan.settings}
    for key, _ in RUNTIMES[plan.runtime].float32_settings:
        if key in settings:
            return ASKED.get(str(settings[key]).lower(), str(settings[key]))
    return "" if plan.precision == "default" else "float32"


def _precision_class(bench: _Bench, answers: Answers) -> str:
    asked = _asked_precision(bench.plan, bench.table)
    return precision_class(
        bench.scene.model_dtypes | _variants_class(bench) | ({asked} if asked else set()),
        answers.result.effective_precision,
        "f32" if asked else "default",
    )


def _tolerances(bench: _Bench, precision: str, reference: Reference) -> dict[str, Tolerance]:
    model = _models_class(bench)
    agreement, floors = bench.scene.contract.agreement, reference.floors
    return {o: tolerance_for(o, precision, agreement, bench.table, derived_tolerance(o, precision, model, floors)) for o in reference.answers.outputs}


def _promised(bench: _Bench, precision: str, reference: Reference) -> dict[str, Tolerance]:
    """What a target is held to against the reference; a variant that promises no numbers, to its own declared drift at most."""
    if not _decides(bench):
        return _tolerances(bench, precision, reference)
    return {o: own_tolerance(o, bench.plan.quantize, bench.table) for o in reference.answers.outputs}


def _shape_tolerance(bench: _Bench, output: str, precision: str) -> Tolerance:
    """What holds at shapes that golden inputs don't have: noise floors aren't known there."""
    if _decides(bench):
        return own_tolerance(output, bench.plan.quantize, bench.table)
    coarse = COARSER.index(precision) > COARSER.index("float32")
    spacings = Tolerance(rtol=0.0, atol=K * EPSILON[precision], source=f"auto: {K:g} spacings of {precision}") if coarse else None
    return tolerance_for(output, precision, bench.scene.contract.agreement, bench.table, spacings)


def _decides(bench: _Bench) -> bool:
    """Whether the target is a precision variant that decisions judge."""
    variant = variant_of(bench.plan)
    return variant is not None and not variant.precision


def _variants_class(bench: _Bench) -> set[str]:
    """The precision class that a variant's own name states, if any."""
    variant = variant_of(bench.plan)
    return {variant.precision} if variant is not None and variant.precision else set()


def _own_tolerances(bench: _Bench, precision: str, reference: Reference) -> tuple[dict[str, Tolerance], bool]:
    """What a target is held to against itself: tolerances of the model's class, and whether its own class ``precision`` is coarser than that."""
    model = _models_class(bench)
    return _tolerances(bench, model, reference), COARSER.index(precision) > max(COARSER.index(model), COARSER.index("float32"))


def _models_class(bench: _Bench) -> str:
    return precision_class(bench.scene.model_dtypes, "", "f32")


def _tensors_here(bench: _Bench, answers: Answers) -> None:
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


def _precision(bench: _Bench, answers: Answers) -> None:
    """Nothing may be coarser than what was asked for, unless the model's own layers are."""
    asked = _asked_precision(bench.plan, bench.table)
    effective = answers.result.effective_precision
    if asked and not fine_enough(effective, bench.scene.model_dtypes | _variants_class(bench) | {asked}):
        cause = f"The contract asks for {asked}; the runtime says that it computes in {effective or 'an unknown precision'}."
        bench.add("KP307", cause, asked=asked, effective=effective)


def fine_enough(effective: str, allowed: set[str]) -> bool:
    """Whether no dtype of ``effective`` (``float16, float32 (declared)``) is coarser than the coarsest allowed one."""
    dtypes = effective.removesuffix("(declared)").replace(",", " ").split()
    floats = [dtype for dtype in dtypes if dtype in COARSER]
    whole = [dtype for dtype in dtypes if WHOLE.fullmatch(dtype)]
    limit = max((COARSER.index(dtype) for dtype in allowed if dtype in COARSER), default=-1)
    return bool(dtypes) and len(floats) + len(whole) == len(dtypes) and all(COARSER.index(dtype) <= limit for dtype in floats)


def _machine_default(bench: _Bench, answers: Answers) -> None:
    """What this machine would have done without the settings that kpipe chose."""
    plan, reference = bench.plan, bench.scene.reference
    if not plan.chosen:
        return
    chosen = ", ".join(f"{key} = {value}" for key, value in plan.chosen.items())
    bench.add(
        "KP308",
        f"The contract states no precision for '{plan.name}', so kpipe set {chosen}; production has to set it too.",
        place=plan.name,
        settings=dict(plan.chosen),
    )
    if reference is None or not reference.rules:
        return
    if not answers.has(MACHINE_DEFAULT):
        why = answers.result.failed.get(MACHINE_DEFAULT, "it was not run")
        bench.add("KP315", f"What this machine does without {chosen} is not known: {why}.", place=plan.name)
        return
    inputs = bench.scene.evidence.golden.inputs
    try:
        indices = sorted({i for ruled in reference.rules for i in _flipped_by_default(reference, answers, ruled)})
    except (OSError, ValueError, LookupError) as error:  # DecisionError among them
        bench.add("KP315", f"What this machine does without {chosen} is not known: {error}", place=plan.name)
        return
    if flipped := [inputs[i].id for i in indices]:
        cause = f"Without {chosen} this machine's default decides otherwise on {len(flipped)} of {len(inputs)} inputs ({', '.join(flipped[:5])})."
        bench.add("KP309", cause, place=plan.name, inputs=flipped[:50])


def _flipped_by_default(reference: Reference, answers: Answers, ruled: Ruled) -> list[int]:
    """The golden inputs that only the machine's default decides otherwise than the reference, and that aren't ties."""
    spec = ruled.spec
    own, default = answers.decisions(spec, ALONE), answers.decisions(spec, MACHINE_DEFAULT)
    scores = zip(reference.answers.decidable(spec, ALONE), answers.decidable(spec, MACHINE_DEFAULT), strict=True)
    ties = [breaks_tie(spec, ours, theirs, band=reference.band(spec, i)) for i, (ours, theirs) in enumerate(scores)]
    return [
        i
        for i, (ours, kept, found, tie) in enumerate(zip(ruled.decisions, own, default, ties, strict=True))
        if same(spec, ours, kept) and not same(spec, ours, found) and not tie
    ]


def _row(bench: _Bench, cells: Cells, answers: Answers | None, stage: StageEvidence | None) -> Judged:
    plan, result = bench.plan, answers.result if answers else None
    timing = decode(TimingResult, stage.timing.data) if stage and stage.timing and stage.timing.data else None
    bench.findings += timing_findings(stage, target=plan.name, required=plan.required)
    if timing is not None and answers is not None and bench.scene.reference is not None:
        _timed_outputs(bench, timing, answers)
    load = _load(bench, result, stage)
    model_only, end_to_end = (summarise(timing.model_only), summarise(timing.end_to_end)) if timing else (None, None)
    peak = max((r.peak_rss_bytes for r in (stage.result, stage.timing) if r is not None), default=None) if stage else None
    size = bench.target.artifact.size if bench.target.artifact else None
    if RUNTIMES[plan.runtime].artifact == "keras" and not plan.quantize:
        size = bench.scene.evidence.candidate_size
    whole = None if result is None or result.load.lean else peak
    limits = check_limits(bench.table.limits, load=load, model_only=model_only, end_to_end=end_to_end, peak_bytes=whole, size_bytes=size)
    _limit_findings(bench, limits)
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
        load=load,
        latency=model_only,
        end_to_end=end_to_end,
        peak_rss_bytes=peak,
        limits=limits,
        knobs=judge_knobs(bench.scene, plan, bench.question) if bench.question is not None else (),
        preprocessing=input_code(bench.scene.evidence, plan),
        shapes=bench.shapes,
        inputs=dict(bench.target.artifact.binding.inputs) if bench.target.artifact else {},
        outputs=dict(bench.target.artifact.binding.outputs) if bench.target.artifact else {},
        binding=bench.proof,
    )
    return Judged(record, tuple(bench.findings), tuple(cells.flips), answers, cells.per_input)


def _timed_outputs(bench: _Bench, timing: TimingResult, answers: Answers) -> None:
    """A runtime that is fast because it is wrong fails."""
    reference = bench.scene.reference
    assert reference is not None
    own, coarser = _own_tolerances(bench, _precision_class(bench, answers), reference)
    allowed = relative_allowance(own, reference.floors, coarser=coarser)
    for kind, latency in (("model only", timing.model_only), ("end to end", timing.end_to_end)):
        if latency is None:
            continue
        if latency.compared != len(latency.seconds):
            bench.add(
                "KP412",
                f"Of {len(latency.seconds)} timed calls ({kind}) only {latency.compared} outputs were compared; the times are void.",
                place=kind,
            )
        if latency.decision_changes:
            bench.add("KP412", f"{latency.decision_changes} timed calls ({kind}) decided otherwise than the same input before.", place=kind)
        if not latency.worst_relative <= allowed:
            bench.add(
                "KP412",
                f"A timed call ({kind}) differs from the same input's earlier answer by {latency.worst_difference:.3g} ({latency.worst_relative:.3g} of its scale).",
                place=kind,
                difference=latency.worst_difference,
            )


def _load(bench: _Bench, result: RunResult | None, stage: StageEvidence | None) -> LoadRecord | None:
    """The quiet load where one was measured, else the one of the agreement run, marked shared if it was."""
    quiet = bench.scene.stages.get(f"load.{bench.plan.name}")
    if quiet is not None and quiet.result is not None and quiet.result.data:
        load = decode(RunResult, quiet.result.data).load
        return LoadRecord(load.import_s, load.load_s, load.first_s, shared=quiet.shared, lean=load.lean)
    if result is None or stage is None:
        return None
    load = result.load
    return LoadRecord(load.import_s, load.load_s, load.first_s, shared=True, lean=load.lean)


def _limit_findings(bench: _Bench, limits: tuple[LimitCheck, ...]) -> None:
    codes = {"load_s": "KP501", "peak_mib": "KP503", "size_mib": "KP504"}
    for check in limits:
        if check.value is None:
            bench.add(
                "KP505",
                f"Limit {check.name} = {check.limit:g} {check.unit} could not be checked: it was not measured, or too few calls support it.",
                place=check.name,
            )
        elif not check.ok:
            bench.add(
                codes.get(check.name, "KP502"),
                f"{check.name} is {check.value:.4g} {check.unit}; the contract allows {check.limit:g}.",
                place=check.name,
                value=check.value,
                limit=check.limit,
            )


def _status(findings: list[Finding], cells: CellCounts) -> CellStatus:
    errors = [f for f in _as_required(findings) if f in failing(_as_required(findings))]
    if cells.failed or errors:
        return CellStatus.FAIL
    if cells.unchecked or unchecking(_as_required(findings)) or not cells.passed:
        return CellStatus.UNCHECKED
    return CellStatus.PASS


def _as_required(findings: list[Finding]) -> list[Finding]:
    """The same findings as if the target counted: a target's own status doesn't depend on whether it is required."""
    from dataclasses import replace

    return [replace(f, required=True) for f in findings]


def _reason(bench: _Bench, status: CellStatus) -> str:
    ranked = _as_required(bench.findings)
    pool = failing(ranked) if status is CellStatus.FAIL else unchecking(ranked) if status is CellStatus.UNCHECKED else []
    if pool:
        return f"{pool[0].code}: {pool[0].cause}"
    if status is not CellStatus.PASS:
        return _why_unchecked(bench) if status is CellStatus.UNCHECKED else "see the findings"
    remarks = [f"{f.code}: {f.cause}" for f in bench.findings if f.code in {"KP209", "KP212"}]
    return remarks[0] if remarks else "agrees"


def _why_unchecked(bench: _Bench) -> str:
    ran = f"run.{bench.plan.name}" in bench.scene.stages
    if ran and bench.scene.reference is None:
        return "it ran, but there is no reference to compare with"
    return "not run: the run was refused or stopped before" if not ran else "not all cells could be checked"


def _artifact(bench: _Bench) -> ArtifactRecord | None:
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

"""From what a run left behind to its record: findings, cells, verdict. Reads saved answers, runs nothing, writes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kpipe.evidence import Ending
from kpipe.findings import Severity
from kpipe.golden import approved_by, rule_problems
from kpipe.infer import decision_record, decision_specs
from kpipe.judging.answers import open_answers
from kpipe.judging.bindings import alike, narrower
from kpipe.judging.claims import excludes, needed_inputs, sampled_ids
from kpipe.judging.decided import DECIDE_STAGE, Decided, stored_decisions
from kpipe.judging.edges import Station, attributed, run_edge
from kpipe.judging.floor import Floor
from kpipe.judging.golden_rows import golden_summary
from kpipe.judging.grade import finding, from_observation
from kpipe.judging.outlook import with_drift, with_outlook
from kpipe.judging.preprocessing import below, input_code
from kpipe.judging.reference import Reference, judge_reference
from kpipe.judging.ruled import Ruled, named
from kpipe.judging.scene import Scene
from kpipe.judging.shapes import read_tried
from kpipe.judging.shapes import reference_findings as shape_findings
from kpipe.judging.stages import stage_findings
from kpipe.judging.steadiness import ONE_THREAD_STAGE, judge_threads, with_own_differences
from kpipe.judging.target import Judged, judge_target
from kpipe.judging.tolerance import derived_tolerance, precision_class, tolerance_for
from kpipe.judging.truth import TRUTH_STAGE, judge_truth
from kpipe.judging.variants import making_findings, variant_table
from kpipe.judging.verdict import failing, reach
from kpipe.judging.waived import hold_waivers, waived_target
from kpipe.profiles import owed_profile
from kpipe.record import (
    SCHEMA_VERSION,
    Candidate,
    CellCounts,
    CellStatus,
    ContractRef,
    RunRecord,
    StageRecord,
    TargetRecord,
)
from kpipe.waivers import NO_WAIVERS, WaiverSet
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import decode
from kpipe_stages.decisions import runs_code
from kpipe_stages.protocol import ExportResult, InspectResult, RunResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kpipe.contract import Contract, LoadedContract
    from kpipe.evidence import Evidence, StageEvidence
    from kpipe.findings import Finding
    from kpipe.golden import GoldenSet
    from kpipe_stages.protocol import DecisionSpec, Signature

REFERENCE_STAGE = "reference"
MOST_PROBLEMS = 10


def judge(run: Path, loaded: LoadedContract, evidence: Evidence, waivers: WaiverSet = NO_WAIVERS) -> RunRecord:
    """Judge a run by a contract.

    Args:
        run: the run folder, with the stages' answers below ``stages/``.
        loaded: the contract to judge by; another one than the run was made with may be stricter or laxer, not ask for other work.
        evidence: what the run left behind.
        waivers: findings that somebody answers for, and the day to hold them against.
    """
    contract = loaded.contract
    stages = {stage.name: stage for stage in evidence.stages}
    inspected = inspection(stages.get("inspect"))
    signature = model_signature(stages) or (inspected.signature if inspected else None)
    specs, inferred = decision_specs(contract, signature, inspected)
    dtypes = compute_dtypes(inspected)
    shared = _before(evidence, stages)
    names = {target.plan.name for target in evidence.targets}
    findings = [f for f in shared if f.target not in names]
    decided = stored_decisions(run, evidence, stages.get(DECIDE_STAGE)) if any(runs_code(spec.rule) for spec in specs) else None
    reference, reference_findings = _reference(run, contract, evidence, stages, specs, dtypes, decided)
    if reference is not None:
        stage = stages.get(REFERENCE_STAGE)
        reference_findings += [
            *alike(reference.answers),
            *narrower(reference.answers.result, "reference"),
            *shape_findings(contract, signature, read_tried(stage, reference.answers.folder)),
        ]
    findings += reference_findings
    scene = Scene(run, contract, evidence, stages, dtypes, signature, reference, decided)
    judged = [judge_target(scene, target, [f for f in shared if f.target == target.plan.name]) for target in evidence.targets]
    edges = attributed(
        {j.record.name: Station(t.plan, j.record, j.answers, j.findings) for j, t in zip(judged, evidence.targets, strict=True)}, reference
    )
    judged = [replace(j, record=replace(j.record, edge=edges[j.record.name][0], edge_drifts=edges[j.record.name][1])) for j in judged]
    judged = with_outlook(judged, evidence.golden, reference.rules if reference else (), contract.agreement.confidence)
    findings += [f for j in judged for f in j.findings]
    findings += [*_evidence_findings(contract, evidence, reference, specs, inferred=inferred), *_claim(contract, evidence, judged)]
    flips = tuple(flip for j in judged for flip in j.flips)
    held = hold_waivers(waivers, _ranked(findings), tuple(j.record for j in judged), flips, evidence.candidate_sha256)
    findings, targets = _ranked([*held.findings]), held.targets
    verdict, headline = reach(findings, targets, synthetic=evidence.golden.kind in {"synthetic", "none"}, incomplete=evidence.incomplete)
    reference_record = _reference_record(evidence, stages, reference, reference_findings)
    code = {name: below(files, evidence.contract_folder) for name, files in evidence.decision_code.items()}
    decisions = tuple(decision_record(spec, inferred=inferred, files=code.get(spec.name) if runs_code(spec.rule) else None) for spec in specs)
    return RunRecord(
        schema_version=SCHEMA_VERSION,
        run_id=evidence.run_id,
        started=evidence.started,
        wall_s=evidence.wall_s,
        verdict=verdict,
        headline=headline,
        caveats=_caveats(evidence, specs, targets),
        candidate=_candidate(evidence, inspected, signature),
        contract=ContractRef(loaded.source, loaded.sha256),
        golden=with_drift(golden_summary(evidence.golden, reference, contract.agreement.confidence), judged, specs[0].output if specs else ""),
        decision=decisions[0] if decisions else None,
        reference=waived_target(reference_record, findings) if reference_record else None,
        targets=targets,
        truth=reference.truth if reference else None,
        edge=run_edge(findings),
        findings=tuple(findings),
        flips=flips,
        stages=tuple(_stage_record(stage, evidence) for stage in evidence.stages),
        environment=evidence.environment,
        decisions=decisions,
        variants=variant_table(judged, evidence, reference),
        calibration=evidence.calibration,
        profile=owed_profile(contract, evidence).name,
        waivers=held.waivers,
        waivers_sha256=waivers.sha256,
        judged_on=waivers.today.isoformat() if waivers.today else "",
    )


def inspection(stage: StageEvidence | None) -> InspectResult | None:
    """What the inspection found, None where it refused the file."""
    return decode(InspectResult, stage.result.data) if stage and stage.result and stage.result.data else None


def model_signature(stages: Mapping[str, StageEvidence]) -> Signature | None:
    """The model's signature as reloaded on TensorFlow, else as the reference states it."""
    export = stages.get("export")
    if export and export.result and export.result.data:
        return decode(ExportResult, export.result.data).signature
    reference = stages.get(REFERENCE_STAGE)
    if reference and reference.result and reference.result.data:
        return decode(RunResult, reference.result.data).signature
    return None


def compute_dtypes(inspected: InspectResult | None) -> set[str]:
    """The dtypes that the model's layers compute in, by their declared policies."""
    policies = {row.dtype for row in inspected.layers if row.dtype} if inspected else set()
    return {policy.removeprefix("mixed_") for policy in policies} or {"float32"}


OWN_LOADS = (".filling", ".cached")
"""Loads with a setting that is kpipe's own: one that fails says nothing of the target."""


def _before(evidence: Evidence, stages: Mapping[str, StageEvidence]) -> list[Finding]:
    """Findings about the candidate, the golden set and the steps that targets share."""
    findings = [from_observation(o) for o in (*evidence.refusals, *evidence.notes)]
    for name, failed_as in (("inspect", "KP001"), ("prepare", "KP103")):
        if name in stages:
            findings += stage_findings(stages[name], failed_as=failed_as)
    if "inspect" in stages and stages["inspect"].ending in {Ending.CRASHED, Ending.TIMED_OUT}:
        cause = f"Reading the archive made the worker fail ({stages['inspect'].ending}: {stages['inspect'].detail}): a file that does that is damaged or hostile."
        findings.append(finding("KP001", cause, place="inspect"))
    if "export" in stages:
        findings += _export_findings(evidence, stages["export"])
    for name, stage in stages.items():
        owner = ".".join(name.split(".")[:2])  # a target's name has no full stop; repeated loads are load.NAME.2, load.NAME.cached
        target = next((t for t in evidence.targets if owner in {f"prepare.{t.plan.name}", f"open.{t.plan.name}", f"load.{t.plan.name}"}), None)
        if target is not None and not name.endswith(OWN_LOADS):
            held = target.plan.memory_mib
            findings += stage_findings(stage, target=target.plan.name, required=target.plan.required, memory_mib=held)
    if any(name.startswith("run.") for name in stages):  # targets wait for these, so their evidence can only have been lost
        lost = [name for name in ("inspect", "prepare", "export") if name not in stages]
        findings += [finding("KP314", f"Step '{name}' has left no trace in this run.", place=name) for name in lost]
    if DECIDE_STAGE in stages:
        findings += stage_findings(stages[DECIDE_STAGE], failed_as="KP419")
    if "export_openvino" in stages:
        findings += _openvino_findings(evidence, stages["export_openvino"])
    findings += making_findings(evidence, stages)
    return findings


TOLD_AGAIN = frozenset({"KP209", "KP212"})
"""What a precision variant says of itself when it is made: it isn't always made from the float artifact."""


def _export_findings(evidence: Evidence, stage: StageEvidence) -> list[Finding]:
    """What the export says of one format concerns the targets that run it, each by name; the rest concerns the candidate."""
    findings = []
    for item in stage_findings(stage, failed_as="KP012"):
        users = [t for t in evidence.targets if not t.plan.provided and item.evidence.get("format") in formats_behind(t.plan.runtime)]
        users = [t for t in users if not (t.plan.quantize and item.code in TOLD_AGAIN)]
        findings += [replace(item, target=t.plan.name, required=t.plan.required) for t in users] if "format" in item.evidence else [item]
    return findings


def formats_behind(runtime: str) -> tuple[str, ...]:
    """The formats that a runtime's artifact is made from: the IR comes from the SavedModel."""
    kind = RUNTIMES[runtime].artifact
    return ("saved_model", "openvino_ir") if kind == "openvino_ir" else (kind,)


def _openvino_findings(evidence: Evidence, stage: StageEvidence) -> list[Finding]:
    """The IR conversion concerns the targets that run the IR, each by name."""
    users = [t for t in evidence.targets if RUNTIMES[t.plan.runtime].artifact == "openvino_ir" and not t.plan.provided]
    return [f for t in users for f in stage_findings(stage, target=t.plan.name, required=t.plan.required, failed_as="KP201")]


def _reference(
    run: Path,
    contract: Contract,
    evidence: Evidence,
    stages: Mapping[str, StageEvidence],
    specs: tuple[DecisionSpec, ...],
    dtypes: set[str],
    decided: Decided | None,
) -> tuple[Reference | None, list[Finding]]:
    stage = stages.get(REFERENCE_STAGE)
    findings = [from_observation(evidence.reference.absent, target="reference")] if evidence.reference.absent else []
    if stage is None:
        return None, findings
    findings += stage_findings(stage, target="reference")
    if stage.ending is Ending.FAILED:
        cause = f"The model does not run on {evidence.reference.runtime}, the backend that the contract names as its own: {stage.detail}"
        findings.append(finding("KP313", cause, target="reference"))
    answers = open_answers(stage, run / evidence.folders.get(REFERENCE_STAGE, f"stages/{REFERENCE_STAGE}"), decided)
    if answers is None:
        return None, findings
    precision = precision_class(dtypes, "", "f32")
    floors, truth = dict[str, Floor](), None
    if contract.agreement.tolerance == "auto":
        floors, truth, more = judge_truth(run, evidence, stages.get(TRUTH_STAGE), answers, precision)
        findings += more
    tolerances = {
        output: tolerance_for(output, precision, contract.agreement, None, derived_tolerance(output, precision, precision, floors))
        for output in answers.outputs
    }
    profile = owed_profile(contract, evidence)
    owed = profile.modes(contract, answers.result.fixed_batch) if profile.arrangements else ()
    try:
        reference = replace(judge_reference(answers, specs, evidence.golden.inputs, tolerances, floors, profile, owed), truth=truth)
        reference = replace(reference, truth=with_own_differences(reference))
    except (OSError, ValueError, LookupError) as error:  # outputs that went away, were cut short or lack rows: there is nothing to compare with
        cause = f"The reference's outputs can't be read back: {error}"
        return None, [*findings, finding("KP314", cause, target="reference", place=REFERENCE_STAGE)]
    findings += reference.findings
    if profile.asks_one_thread(contract):
        reference, more = judge_threads(run, evidence, stages.get(ONE_THREAD_STAGE), reference, tolerances)
        findings += more
    return reference, findings


def _evidence_findings(
    contract: Contract, evidence: Evidence, reference: Reference | None, specs: tuple[DecisionSpec, ...], *, inferred: bool
) -> list[Finding]:
    """KP6xx: what the inputs can and can't prove."""
    golden = evidence.golden
    findings = []
    if evidence.contract_source == "inferred":
        findings.append(
            finding("KP606", "There is no contract: inputs and targets were inferred from the model and from what is installed.", place="contract")
        )
    if golden.kind == "synthetic":
        findings.append(finding("KP601", f"No golden set: {len(golden.inputs)} seeded random inputs were used.", place="golden"))
    if golden.kind == "arrays":
        findings.append(
            finding(
                "KP602", f"{golden.path} holds arrays that were already preprocessed: decoding and preprocessing were not checked.", place="golden"
            )
        )
    if not specs and (promise := _promised(contract, golden)):
        findings.append(finding("KP610", f"{promise}, and no rule is known by which decisions are taken.", place="decision"))
    elif specs:
        left = [name for name in contract.rule_tables if name not in {spec.name for spec in specs}]
        findings += [finding("KP610", f"The contract's decision rule '{name}' names no output of the model.", place=name) for name in left]
    findings += [finding("KP608", problem, place="golden") for problem in rule_problems(golden, tuple(contract.rule_tables) or ("",))[:MOST_PROBLEMS]]
    if not specs:
        findings.append(finding("KP605", "No decision rule is known, so numbers were compared and decisions were not.", place="decision"))
    elif inferred:
        findings.append(
            finding("KP606", f"The decision rule '{specs[0].rule}' on output '{specs[0].output}' was inferred from its activation.", place="decision")
        )
    for spec in specs:
        if golden.kind == "raw" and not any(approved_by(g.expected, spec.name) is not None for g in golden.inputs):
            by = f" by rule '{spec.name}'" if spec.name else ""
            findings.append(finding("KP607", f"None of the {len(golden.inputs)} golden inputs has an expected decision{by}.", place="golden"))
    return findings + [f for ruled in (reference.rules if reference else ()) for f in (*_coverage(ruled), *_one_sided(ruled))]


def _promised(contract: Contract, golden: GoldenSet) -> str:
    """What speaks of decisions; empty where nothing does."""
    expected = sum(g.expected is not None for g in golden.inputs)
    if expected:
        return f"{expected} golden inputs have an expected decision"
    if tables := contract.rule_tables:
        name, table = next(iter(tables.items()))
        return f"The contract's decision rule '{name or table.rule}' names no output of the model"
    if contract.agreement.prove_flip_rate is not None or contract.agreement.max_flips:
        return "The contract speaks of flips"
    return ""


def _coverage(ruled: Ruled) -> list[Finding]:
    """Labels of a rule that names one class, or bin, an input, and that no input got."""
    spec = ruled.spec
    unseen = [label for label in spec.labels if label not in {d.value for d in ruled.decisions}]
    if spec.rule not in {"argmax", "bins"} or not unseen:
        return []
    cause = f"{named(spec)}no golden input is decided as {', '.join(repr(label) for label in unseen[:10])}."
    return [finding("KP603", cause[0].upper() + cause[1:], place="golden", labels=unseen[:100])]


def _one_sided(ruled: Ruled) -> list[Finding]:
    """Thresholds that no input lies above, or none below: a target that moved them wouldn't be noticed."""
    spec = ruled.spec
    flat = [d for d in ruled.decisions if d.index != -1]
    if spec.rule not in {"threshold", "multilabel"} or not flat:
        return []
    above = [set(d.index) if isinstance(d.index, tuple) else {0} if d.index else set() for d in flat]
    classes = max(len(d.scores) for d in flat)
    names = [spec.labels[c] if len(spec.labels) == classes else str(c) for c in range(classes)]
    told = [f"{names[c]} (all {'at or above' if c in above[0] else 'below'})" for c in range(classes) if len({c in one for one in above}) == 1]
    if not told:
        return []
    cause = f"{named(spec)}every golden input lies on one side of the threshold of '{spec.output}': {', '.join(told[:10])}."
    return [finding("KP613", cause[0].upper() + cause[1:], place="golden", classes=told[:100])]


def _claim(contract: Contract, evidence: Evidence, judged: Sequence[Judged]) -> list[Finding]:
    """Whether the sampled inputs, with the flips that were seen on them, suffice for the flip rate that the contract asks to prove."""
    asked, confidence = contract.agreement.prove_flip_rate, contract.agreement.confidence
    if asked is None:
        return []
    sampled = sampled_ids(evidence.golden)
    flips = max((len({f.input for f in j.flips} & set(sampled)) for j in judged if j.record.required), default=0)
    if excludes(asked, confidence, len(sampled), flips):
        return []
    needed = needed_inputs(asked, confidence, flips)
    seen = f"with the {flips} flip{'s' if flips > 1 else ''} seen" if flips else "without a flip"
    cause = f"The contract wants flips above {asked:.3g} excluded at {confidence:.0%}; that takes {needed} different sampled inputs {seen}, and there are {len(sampled)}."
    return [finding("KP604", cause, place="golden", needed=needed, sampled=len(sampled), flips=flips)]


def _ranked(findings: list[Finding]) -> list[Finding]:
    """What decides the verdict first: failing errors, other errors, warnings, notes; the order of discovery within each; none twice."""
    unique = list({(f.code, f.target, f.place, f.cause): f for f in findings}.values())
    decisive = {id(f) for f in failing(unique)}
    order = {Severity.ERROR: 1, Severity.WARNING: 2, Severity.NOTE: 3}
    return sorted(unique, key=lambda f: (0 if id(f) in decisive else order[f.severity], not f.required))


def _caveats(evidence: Evidence, specs: tuple[DecisionSpec, ...], targets: tuple[TargetRecord, ...]) -> tuple[str, ...]:
    """What the verdict does not prove."""
    caveats = []
    if evidence.golden.kind == "synthetic":
        caveats.append("Synthetic inputs: numbers were compared, nothing is known of decisions on real data.")
    if evidence.golden.kind == "arrays":
        caveats.append("Preprocessing was not checked: the golden inputs are arrays that were already preprocessed.")
    if not specs:
        caveats.append("Decisions were not checked: no decision rule is known.")
    timed = any(t.end_to_end for t in targets)
    if timed and (code := [spec.rule for spec in specs if runs_code(spec.rule)]):
        caveats.append(f"End-to-end times leave out the decision code: {', '.join(code)}.")
    if left := [t.name for t in targets if not t.required]:
        caveats.append(f"Shown, but not part of the verdict: {', '.join(left)}.")
    return tuple(caveats)


def _candidate(evidence: Evidence, inspected: InspectResult | None, signature: Signature | None) -> Candidate:
    return Candidate(
        path=evidence.candidate_path,
        sha256=evidence.candidate_sha256,
        size=evidence.candidate_size,
        keras_version=inspected.keras_version if inspected else "",
        model_class=inspected.model_class if inspected else "",
        model_name=inspected.model_name if inspected else "",
        parameters=inspected.parameters if inspected else 0,
        layers=len(inspected.layers) if inspected else 0,
        signature=signature,
    )


def _reference_record(
    evidence: Evidence, stages: Mapping[str, StageEvidence], reference: Reference | None, findings: list[Finding]
) -> TargetRecord | None:
    plan, stage = evidence.reference, stages.get(REFERENCE_STAGE)
    result = reference.answers.result if reference else None
    errors = failing(findings)
    status = CellStatus.FAIL if errors else CellStatus.PASS if reference else CellStatus.UNCHECKED
    return TargetRecord(
        name="reference",
        runtime=plan.runtime,
        title=RUNTIMES[plan.runtime].title,
        required=True,
        status=status,
        reason=f"{errors[0].code}: {errors[0].cause}" if errors else ("the trained model itself" if reference else "not run"),
        cells=CellCounts(),
        effective_precision=result.effective_precision if result else "",
        devices=result.devices if result else (),
        facts=dict(result.facts) if result else {},
        identity=stage.result.identity if stage and stage.result else None,
        modes=result.modes if result else (),
        peak_rss_bytes=stage.result.peak_rss_bytes if stage and stage.result else None,
        preprocessing=input_code(evidence, plan),
    )


def _stage_record(stage: StageEvidence, evidence: Evidence) -> StageRecord:
    seconds = stage.result.data.get("seconds", {}) if stage.result else {}
    steps = {str(k): float(v) for k, v in seconds.items()} if isinstance(seconds, dict) else {}
    if stage.result and isinstance(load := stage.result.data.get("load"), dict):
        steps |= {"import": load["import_s"], "load": load["load_s"], "first": load["first_s"]}
    folder = evidence.folders.get(stage.name, f"stages/{stage.name}")
    return StageRecord(
        name=stage.name,
        outcome="reused" if stage.reused else str(stage.ending),
        begin_s=stage.begin_s,
        end_s=stage.end_s,
        peak_rss_bytes=stage.result.peak_rss_bytes if stage.result else 0,
        log=f"{folder}/stage.log",
        steps=steps,
    )

"""Precision variants: what is said of how they were made, and what each saving costs beside the float row. Pure, over saved outputs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from kpipe.codes import UNCHECKED_CODES
from kpipe.evidence import CALIBRATE_STAGE
from kpipe.findings import Severity
from kpipe.judging.answers import ALONE
from kpipe.judging.grade import finding
from kpipe.judging.stages import stage_findings
from kpipe.record import VariantCosts, VariantRecord
from kpipe_stages.catalog import LEAST_VARIANT_BYTES, RUNTIMES, VARIANT_SHARE, VARIANTS, Variant
from kpipe_stages.codec import decode
from kpipe_stages.decisions import DecisionError, NoDecisionError, same
from kpipe_stages.protocol import ExportResult, InspectResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kpipe.evidence import Evidence, StageEvidence, TargetEvidence, TargetPlan
    from kpipe.findings import Finding
    from kpipe.judging.reference import Reference
    from kpipe.judging.target import Judged


def variant_of(plan: TargetPlan) -> Variant | None:
    """The precision variant that a target runs; None for the artifact as exported."""
    return VARIANTS.get(RUNTIMES[plan.runtime].artifact, {}).get(plan.quantize)


def making_findings(evidence: Evidence, stages: Mapping[str, StageEvidence]) -> list[Finding]:
    """What making a variant, or preparing its calibration set, says: of every target that runs it, by name."""
    found = []
    for target in evidence.targets:
        plan, variant = target.plan, variant_of(target.plan)
        if variant is None or plan.provided or plan.absent is not None:
            continue
        if variant.calibrates and (stage := stages.get(CALIBRATE_STAGE)) is not None:
            found += [_about_calibration(f) for f in stage_findings(stage, target=plan.name, required=plan.required)]
        if (stage := stages.get(f"quantize.{RUNTIMES[plan.runtime].artifact}.{variant.name}")) is not None:
            found += [_with_way_out(f, stage, stages) for f in stage_findings(stage, target=plan.name, required=plan.required, failed_as="KP220")]
    return found


def _with_way_out(one: Finding, stage: StageEvidence, stages: Mapping[str, StageEvidence]) -> Finding:
    """LiteRT's calibration crashes on a file that holds a loop (measured, TensorFlow 2.21): what kills the worker is then known."""
    export = stages.get("export")
    if one.code != "KP304" or not stage.name.startswith("quantize.litert.") or export is None or export.result is None or not export.result.data:
        return one
    found = next((artifact for artifact in decode(ExportResult, export.result.data).artifacts if artifact.format == "litert"), None)
    if found is None or "WHILE" not in found.ops or found.unrolled is not None:
        return one
    layers = found.op_layers.get("WHILE", ())
    where = f", of layer {', '.join(layers)}" if layers else ""
    remedy = (
        f"The file holds a loop (WHILE{where}), on which LiteRT's calibration crashes: fix the number of steps in the model's input, so that "
        "recurrent layers can be written out (unroll=True, or kpipe's repair), or choose dynamic_int8 or float16."
    )
    return replace(one, remedy=remedy, place=layers[0] if layers else one.place)


def _about_calibration(one: Finding) -> Finding:
    """An error of a calibration input isn't one of a golden input."""
    if one.severity is not Severity.ERROR or one.code in UNCHECKED_CODES:
        return one
    cause = f"{one.cause.removesuffix('.')} ({one.code} of a calibration input)."
    return finding("KP223", cause[0].upper() + cause[1:], target=one.target, place=one.place, remedy=one.remedy, required=one.required)


def handed_in(target: TargetEvidence, stages: Mapping[str, StageEvidence]) -> list[Finding]:
    """KP221 for a file that is declared to be a variant and is as large as the candidate: judged by decisions alone it would pass for one."""
    plan, artifact, stage = target.plan, target.artifact, stages.get("inspect")
    if not plan.quantize or not plan.provided or artifact is None or stage is None or stage.result is None or not stage.result.data:
        return []
    weights = decode(InspectResult, stage.result.data).weight_bytes
    if weights < LEAST_VARIANT_BYTES or artifact.parameters_bytes <= VARIANT_SHARE * weights:
        return []
    cause = f"The file that '{plan.name}' hands in as {plan.quantize} holds {artifact.parameters_bytes:,} bytes of constants, and the candidate {weights:,}: it is no smaller."
    return [finding("KP221", cause, target=plan.name, place=plan.quantize, required=plan.required)]


# ---------------------------------------------------------------- what a saving costs


def variant_table(judged: Sequence[Judged], evidence: Evidence, reference: Reference | None) -> tuple[VariantRecord, ...]:
    """Every variant beside its float row: the target on the same runtime that runs the artifact as exported, with the same settings if there is one."""
    pairs = list(zip(judged, evidence.targets, strict=True))
    ids = tuple(one.id for one in evidence.golden.inputs)
    rows = []
    for one, target in pairs:
        variant = variant_of(target.plan)
        if variant is None:
            continue
        beside = _float_row(target.plan, [(j, t.plan) for j, t in pairs])
        whole = evidence.candidate_size if RUNTIMES[target.plan.runtime].artifact == "keras" else None
        rows.append(
            VariantRecord(
                target=one.record.name,
                variant=variant.name,
                title=variant.title,
                status=one.record.status,
                costs=_costs(one, reference, ids),
                beside=beside.record.name if beside else "",
                float_costs=_costs(beside, reference, ids, whole) if beside else None,
            )
        )
    return tuple(rows)


def _float_row(plan: TargetPlan, others: Sequence[tuple[Judged, TargetPlan]]) -> Judged | None:
    plain = [(j, p) for j, p in others if p.runtime == plan.runtime and not p.quantize and not p.provided]
    return min(plain, key=lambda pair: (pair[1].settings != plan.settings, pair[1].chosen != plan.chosen), default=(None, None))[0]


def _costs(one: Judged, reference: Reference | None, ids: Sequence[str], candidate: int | None = None) -> VariantCosts:
    record = one.record
    left, at = _margin_left(one, reference, ids)
    load = record.load
    return VariantCosts(
        size=record.artifact.size if record.artifact else candidate,
        p50_s=next((q.seconds for q in record.latency.percentiles if q.p == 50), None) if record.latency else None,  # noqa: PLR2004 - the median
        load_s=load.import_s + load.load_s + load.first_s if load else None,
        max_abs=max((d.max_abs for d in record.drift if not math.isnan(d.max_abs)), default=None),
        flips=record.flips if one.answers is not None and reference is not None and reference.rules else None,
        ties=record.ties,
        widest_margin_lost=max((flip.margin for flip in one.flips if not flip.tie), default=0.0),
        least_margin_left=left,
        least_margin_input=at,
    )


def _margin_left(one: Judged, reference: Reference | None, ids: Sequence[str]) -> tuple[float | None, str]:
    """The smallest share of the reference's margin that is left on any input, run alone, and that input; negative where the decision went over.

    A margin is how far a decision is from flipping; inputs without one, or with an infinite one, are left out.
    """
    found: tuple[float | None, str] = (None, "")
    for ruled in reference.rules if reference is not None and one.answers is not None else ():
        assert one.answers is not None
        try:
            theirs = one.answers.decisions(ruled.spec, ALONE)
            pairs = list(zip(ruled.decisions, theirs, ids, strict=True))
        except (DecisionError, NoDecisionError, OSError, ValueError, LookupError):
            continue  # the target's findings say what is wrong with its answers
        for ours, got, name in pairs:
            if not (math.isfinite(ours.margin) and math.isfinite(got.margin) and ours.margin > 0):
                continue
            left = (got.margin if same(ruled.spec, ours, got) else -got.margin) / ours.margin
            if found[0] is None or left < found[0]:
                found = left, name
    return found

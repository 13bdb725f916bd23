"""The jobs of a validation, as plain values. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kpipe.contract import Contract
from kpipe.golden import GoldenSet
from kpipe.opsets import named_profile
from kpipe.percentiles import calls_needed, percentile_limits
from kpipe.profiles import DEFAULT, Profile
from kpipe_stages.catalog import RUNTIMES, VARIANTS
from kpipe_stages.decisions import runs_code
from kpipe_stages.protocol import (
    Artifact,
    BatchPadding,
    DecisionSpec,
    ExportJob,
    FingerprintJob,
    GoldenItem,
    InputSpec,
    PrepareJob,
    PrepareResult,
    RunJob,
    ShapeCase,
    Signature,
    TimingPlan,
    Trust,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe.contract import LimitsTable
    from kpipe.evidence import TargetPlan


def golden_items(golden: GoldenSet) -> tuple[GoldenItem, ...]:
    """The golden set as workers read it."""
    return tuple(GoldenItem(g.id, dict(g.files), dict(g.sha256)) for g in golden.inputs)


def prepare_job(golden: GoldenSet, specs: tuple[InputSpec, ...]) -> PrepareJob:
    """Decode and preprocess by ``specs``; arrays are taken as they are."""
    if golden.kind != "raw":
        specs = tuple(InputSpec(name=name, decode="array") for name in golden.inputs[0].files)
    return PrepareJob(items=golden_items(golden), inputs=specs)


def calibration_job(calibration: GoldenSet, specs: tuple[InputSpec, ...]) -> PrepareJob:
    """As `prepare_job`, of the calibration set."""
    return replace(prepare_job(calibration, specs), what="calibration input")


def made_by_code(spec: InputSpec) -> bool:
    """Whether an input is made by a function of the user's."""
    return ":" in spec.decode


def fingerprint_job(common: Common, reference: PrepareResult, own: PrepareResult, ours: str, theirs: str) -> FingerprintJob:
    """Search for what a target's own preprocessing does otherwise, from the reference's steps on."""
    return FingerprintJob(
        items=golden_items(common.golden),
        inputs=common.specs,
        reference=ours,
        reference_names=reference.names,
        target=theirs,
        target_names=own.names,
    )


def variants_of(plans: Sequence[TargetPlan]) -> list[TargetPlan]:
    """The targets whose precision variant has to be made."""
    return [plan for plan in plans if plan.absent is None and plan.quantize and not plan.provided]


def calibrates_litert(plans: Sequence[TargetPlan]) -> bool:
    """Whether any of the LiteRT variants is made with a calibration set."""
    return any(RUNTIMES[plan.runtime].artifact == "litert" and VARIANTS["litert"][plan.quantize].calibrates for plan in variants_of(plans))


def needed_formats(plans: Sequence[TargetPlan]) -> tuple[str, ...]:
    """What has to be exported for the targets that can run; the IR is converted from the SavedModel, and so are LiteRT's variants."""
    wanted = {RUNTIMES[plan.runtime].artifact for plan in plans if plan.absent is None and not plan.provided}
    if "openvino_ir" in wanted or any(RUNTIMES[plan.runtime].artifact == "litert" for plan in variants_of(plans)):
        wanted.add("saved_model")
    return tuple(name for name in ("saved_model", "litert", "onnx") if name in wanted)


def export_job(model: str, sha256: str, trust: Trust, formats: tuple[str, ...], out: str, contract: Contract) -> ExportJob:
    """Reload on TensorFlow and export; with no format it is the proof that the model reloads."""
    return ExportJob(
        model=model,
        trust=trust,
        formats=formats,
        out=out,
        allow_select_tf=contract.export.allow_select_tf,
        repairs=contract.export.repairs,
        sha256=sha256,
    )


def timing_plan(contract: Contract, limits: LimitsTable, *, raw: bool) -> TimingPlan:
    """How many calls to time: what the contract says, and at least what its percentile limits need."""
    model, whole = calls_needed(limits)
    table = contract.timing
    return TimingPlan(
        calls=max(table.calls, model),
        end_to_end_calls=max(table.end_to_end_calls, whole) if raw else 0,
        max_seconds=table.max_seconds,
        limits_s=percentile_limits(limits, ""),
        end_to_end_limits_s=percentile_limits(limits, "end_to_end_"),
        server_rate=table.server_rate or 0.0,
        server_seconds=table.server_seconds,
        offline=table.offline_batches,
    )


TRUTH_RUNTIME = "tensorflow"
"""Only there is float64 what it says: elsewhere Keras computes in float32 where dtypes meet."""


@dataclass(frozen=True)
class Common:
    """What the run jobs of all targets share."""

    model: str
    sha256: str
    trust: Trust
    contract: Contract
    golden: GoldenSet
    specs: tuple[InputSpec, ...]
    decisions: tuple[DecisionSpec, ...]
    cache: str
    profile: Profile = DEFAULT
    shapes: tuple[ShapeCase, ...] = ()
    """To try on every target and on the reference."""
    probe: bool = False
    """Prove the binding of inputs and outputs that could be exchanged."""


def _job(common: Common, runtime: str, prepared: PrepareResult, tensors: str) -> RunJob:
    """The candidate itself on a Keras backend; what every other run job is made from."""
    return RunJob(
        runtime=runtime,
        artifact=common.model,
        trust=common.trust,
        signature=None,
        binding=None,
        tensors=tensors,
        names=prepared.names,
        rows=prepared.rows,
        batches=common.profile.sizes(common.contract),
        repeat=common.profile.repeats,
        arranged=common.contract.golden.batches if common.profile.arrangements else (),
        cache=common.cache,
        sha256=common.sha256,
        padding={
            name: BatchPadding(table.pad_batches.at, table.pad_batches.value) for name, table in common.contract.inputs.items() if table.pad_batches
        },
        shapes=common.shapes,
        probe_binding=common.probe,
    )


def reference_job(common: Common, plan: TargetPlan, prepared: PrepareResult, tensors: str, *, forced: bool) -> RunJob:
    """The candidate on its own backend, and with ``training`` unset where a layer is forced into training mode."""
    job = _job(common, plan.runtime, prepared, tensors)
    return replace(job, probe_training_unset=forced, exchange=common.probe, timing=TimingPlan(calls=0, end_to_end_calls=0))


def one_thread_job(common: Common, plan: TargetPlan, prepared: PrepareResult, tensors: str) -> RunJob:
    """The reference one by one, once, on one thread; what was compiled for several is of no use to it."""
    job = _job(common, plan.runtime, prepared, tensors)
    quiet = TimingPlan(calls=0, end_to_end_calls=0)
    return replace(_plain(job), threads=1, cache=f"{common.cache}/one_thread", timing=quiet)


def truth_job(common: Common, prepared: PrepareResult, tensors: str) -> RunJob:
    """The candidate in float64 on TensorFlow, one by one, once."""
    job = _job(common, TRUTH_RUNTIME, prepared, tensors)
    return replace(_plain(job), timing=TimingPlan(calls=0, end_to_end_calls=0))


def _plain(job: RunJob) -> RunJob:
    """Every input alone, once, and nothing else."""
    return replace(golden_only(job), batches=(), repeat=0, arranged=())


def golden_only(job: RunJob) -> RunJob:
    """The same on the golden inputs alone: no shapes to try, no binding to prove."""
    return replace(job, shapes=(), probe_binding=False, exchange=False, common="", common_names=())


def run_job(
    common: Common,
    plan: TargetPlan,
    limits: LimitsTable,
    prepared: PrepareResult,
    tensors: str,
    artifact: Artifact | None,
    signature: Signature | None,
    shared: tuple[str, tuple[str, ...]] = ("", ()),
) -> RunJob:
    """One target's work; ``artifact`` is None where it runs the ``.keras`` file itself; ``shared`` is the reference's tensors and their names."""
    inputs = plan.inputs or common.specs
    raw = common.golden.kind == "raw" and all(spec.decode != "tensors" for spec in inputs)  # those were made elsewhere, of the raw files
    job = replace(
        _job(common, plan.runtime, prepared, tensors),
        settings=dict(plan.settings),
        chosen=dict(plan.chosen),
        probe_default=bool(plan.chosen),
        threads=plan.threads,
        affinity=plan.affinity,
        memory_mib=plan.memory_mib,
        items=golden_items(common.golden) if raw else (),
        inputs=inputs if raw else (),
        decisions=tuple(spec for spec in common.decisions if not runs_code(spec.rule)),
        timing=timing_plan(common.contract, limits, raw=raw),
        common=shared[0],
        common_names=shared[1],
    )
    if artifact is None:
        return job
    if artifact.format == "keras":  # its worker states signature and names itself
        return replace(job, artifact=artifact.path, sha256=artifact.sha256)
    return replace(
        job,
        artifact=artifact.path,
        signature=signature,
        binding=artifact.binding,
        fixed_batch=RUNTIMES[plan.runtime].only_batch(artifact.batch),
        sha256=artifact.sha256,
        companions=artifact.companions,
        op_layers=artifact.op_layers,
        query_device=_query_device(common.contract, plan),
    )


def _query_device(contract: Contract, plan: TargetPlan) -> str:
    """The device of an ``openvino-DEVICE`` profile; empty for none."""
    table = contract.targets.get(plan.name)
    named = named_profile(table.op_profile) if table is not None and table.op_profile else None
    return named.device if named is not None else ""

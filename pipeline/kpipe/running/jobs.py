"""The jobs of a validation, as plain values. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kpipe.contract import Contract
from kpipe.golden import GoldenSet
from kpipe.opsets import named_profile
from kpipe.percentiles import calls_needed
from kpipe.profiles import DEFAULT, Profile
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.decisions import runs_code
from kpipe_stages.protocol import (
    Artifact,
    DecisionSpec,
    ExportJob,
    FingerprintJob,
    GoldenItem,
    InputSpec,
    PrepareJob,
    PrepareResult,
    RunJob,
    Signature,
    TimingPlan,
    Trust,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def needed_formats(plans: Iterable[TargetPlan]) -> tuple[str, ...]:
    """What has to be exported for the targets that can run; the IR is converted from the SavedModel."""
    wanted = {RUNTIMES[plan.runtime].artifact for plan in plans if plan.absent is None and not plan.provided}
    if "openvino_ir" in wanted:
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
    return TimingPlan(calls=max(table.calls, model), end_to_end_calls=max(table.end_to_end_calls, whole) if raw else 0, max_seconds=table.max_seconds)


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
    )


def reference_job(common: Common, plan: TargetPlan, prepared: PrepareResult, tensors: str, *, forced: bool) -> RunJob:
    """The candidate on its own backend, and with ``training`` unset where a layer is forced into training mode."""
    job = _job(common, plan.runtime, prepared, tensors)
    return replace(job, probe_training_unset=forced, timing=TimingPlan(calls=0, end_to_end_calls=0))


def one_thread_job(common: Common, plan: TargetPlan, prepared: PrepareResult, tensors: str) -> RunJob:
    """The reference one by one, once, on one thread; what was compiled for several is of no use to it."""
    job = _job(common, plan.runtime, prepared, tensors)
    quiet = TimingPlan(calls=0, end_to_end_calls=0)
    return replace(job, batches=(), repeat=0, arranged=(), threads=1, cache=f"{common.cache}/one_thread", timing=quiet)


def truth_job(common: Common, prepared: PrepareResult, tensors: str) -> RunJob:
    """The candidate in float64 on TensorFlow, one by one, once."""
    job = _job(common, TRUTH_RUNTIME, prepared, tensors)
    return replace(job, batches=(), repeat=0, arranged=(), timing=TimingPlan(calls=0, end_to_end_calls=0))


def run_job(
    common: Common,
    plan: TargetPlan,
    limits: LimitsTable,
    prepared: PrepareResult,
    tensors: str,
    artifact: Artifact | None,
    signature: Signature | None,
) -> RunJob:
    """One target's work; ``artifact`` is None where it runs the ``.keras`` file itself."""
    inputs = plan.inputs or common.specs
    raw = common.golden.kind == "raw" and all(spec.decode != "tensors" for spec in inputs)  # those were made elsewhere, of the raw files
    job = replace(
        _job(common, plan.runtime, prepared, tensors),
        settings=dict(plan.settings),
        chosen=dict(plan.chosen),
        probe_default=bool(plan.chosen),
        threads=plan.threads,
        items=golden_items(common.golden) if raw else (),
        inputs=inputs if raw else (),
        decisions=tuple(spec for spec in common.decisions if not runs_code(spec.rule)),
        timing=timing_plan(common.contract, limits, raw=raw),
    )
    if artifact is None:
        return job
    return replace(
        job,
        artifact=artifact.path,
        signature=signature,
        binding=artifact.binding,
        fixed_batch=artifact.batch,
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

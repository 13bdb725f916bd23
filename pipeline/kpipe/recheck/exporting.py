"""The sealed ``.keras`` file exported anew in another environment: what an old model becomes under new converters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kpipe.evidence import Ending
from kpipe.running import jobs
from kpipe.signoff.contents import MODEL, REFERENCE
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import decode
from kpipe_stages.protocol import ArtifactResult, ExportOpenvinoJob, ExportResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kpipe.evidence import StageEvidence, TargetEvidence, TargetPlan
    from kpipe.recheck.environments import Environment
    from kpipe.running.workshop import Workshop
    from kpipe.signoff.bundle import Bundle
    from kpipe_stages.protocol import Artifact, RunJob, Trust

EXPORTERS = ("tensorflow", "keras", "h5py", "onnx", "tf2onnx", "ai-edge-litert")
"""What the export imports, besides what runs the artifacts."""


def exportable(bundle: Bundle, names: Iterable[str]) -> tuple[str, ...]:
    """Of these targets, the ones whose artifact kpipe exported: the others run the ``.keras`` file, or a file that was handed in."""
    known = {t.plan.name: t.plan for t in bundle.evidence.targets}
    return tuple(n for n in names if n != REFERENCE and RUNTIMES[known[n].runtime].artifact != "keras" and not known[n].provided)


async def export(bundle: Bundle, environment: Environment, trust: Trust, shop: Workshop, names: Iterable[str]) -> dict[str, Artifact]:
    """Export for these targets, in the environment: format to artifact. What fails is missing, and its stage says why.

    Args:
        bundle: whose sealed ``.keras`` file is exported.
        environment: where.
        trust: the sealed files that register custom objects, where they lie now.
        shop: where workers are started.
        names: targets, all `exportable`.
    """
    plans = [plan for plan in (t.plan for t in bundle.evidence.targets) if plan.name in set(names)]
    formats = jobs.needed_formats(plans)
    job = jobs.export_job(
        str(bundle.path / MODEL), bundle.contents.candidate_sha256, trust, formats, str(shop.folder.artifacts), bundle.contract.contract
    )
    stage = await _abroad(shop, bundle, environment, "export", job)
    result = decode(ExportResult, stage.result.data) if stage.ending is Ending.OK and stage.result and stage.result.data else None
    if result is None:
        return {}
    made = {artifact.format: artifact for artifact in result.artifacts}
    if "saved_model" in made and any(RUNTIMES[plan.runtime].artifact == "openvino_ir" for plan in plans):
        source = made["saved_model"]
        order = ExportOpenvinoJob(
            source.path, result.signature, source.binding, str(shop.folder.artifacts), repairs=source.repairs, op_layers=source.op_layers
        )
        converted = await _abroad(shop, bundle, environment, "export_openvino", order)
        if converted.ending is Ending.OK and converted.result and converted.result.data:
            made["openvino_ir"] = decode(ArtifactResult, converted.result.data).artifact
    return made


async def _abroad(shop: Workshop, bundle: Bundle, environment: Environment, stage: str, job: object) -> StageEvidence:
    """A stage in the environment's interpreter."""
    plan: TargetPlan = replace(bundle.evidence.reference, python=environment.python, runtime="tensorflow", threads=0)
    return await shop.once(shop.order(stage, stage, job, plan=plan, own_process=True))


def on(job: RunJob, artifact: Artifact) -> RunJob:
    """A sealed order, for another file."""
    return replace(
        job,
        artifact=artifact.path,
        binding=artifact.binding,
        fixed_batch=artifact.batch,
        sha256=artifact.sha256,
        companions=artifact.companions,
        op_layers=artifact.op_layers,
    )


def with_artifact(target: TargetEvidence, made: Mapping[str, Artifact]) -> TargetEvidence:
    """A target's evidence, with the file that was exported anew; None where it wasn't."""
    return replace(target, artifact=made.get(RUNTIMES[target.plan.runtime].artifact), problems=())

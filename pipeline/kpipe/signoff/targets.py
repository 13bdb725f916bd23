"""The targets of a run as a bundle keeps them: with the orders that their workers were given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.errors import SignoffError
from kpipe.signoff.contents import REFERENCE, SealedEnvironment, SealedTarget
from kpipe.signoff.relocation import move_prepare, move_run
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import CodecError, decode, read_json
from kpipe_stages.protocol import Job, PrepareJob, RunJob

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kpipe.evidence import Evidence, TargetPlan
    from kpipe.record import RunRecord
    from kpipe_stages.protocol import Artifact


def _job(run: Path, evidence: Evidence, stage: str) -> Job:
    path = run / evidence.folders.get(stage, f"stages/{stage}") / "job.json"
    try:
        return read_json(Job, path)
    except (OSError, CodecError) as error:
        raise SignoffError(str(run), [f"what stage '{stage}' was told can't be read ({path}: {error}). Run 'kpipe validate' again."]) from error


def run_job(run: Path, evidence: Evidence, stage: str) -> RunJob:
    """What a worker that ran the model was told.

    Raises:
        SignoffError: it can't be read.
    """
    try:
        return decode(RunJob, _job(run, evidence, stage).params)
    except CodecError as error:
        raise SignoffError(
            str(run), [f"what stage '{stage}' was told is not readable by this kpipe: {error}. Use the kpipe that made the run."]
        ) from error


def prepares_of(run: Path, evidence: Evidence, move: Callable[[str], str]) -> dict[str, PrepareJob]:
    """Every stage that made tensors, to what it was told, paths moved."""
    names = [s.name for s in evidence.stages if s.name == "prepare" or s.name.startswith("prepare.")]
    return {name: move_prepare(decode(PrepareJob, _job(run, evidence, name).params), move) for name in names}


def sealed_targets(
    run: Path, evidence: Evidence, record: RunRecord, environment: SealedEnvironment, move: Callable[[str], str]
) -> tuple[SealedTarget, tuple[SealedTarget, ...], tuple[str, ...]]:
    """The reference, every target that ran, and the names of those that did not.

    Raises:
        SignoffError: what a worker was told can't be read.
    """
    stages = {stage.name for stage in evidence.stages}
    status = {t.name: str(t.status) for t in record.targets}
    interpreters = {path: name for name, path in environment.paths.items()}

    def sealed(plan: TargetPlan, artifact: Artifact | None, stage: str, own: str) -> SealedTarget:
        job = run_job(run, evidence, stage)
        moved = move_run(job, move)
        return SealedTarget(
            name=plan.name,
            runtime=plan.runtime,
            required=plan.required,
            status=status.get(plan.name, "reference"),
            format=RUNTIMES[plan.runtime].artifact,
            artifact=moved.artifact,
            companions=moved.companions,
            sha256=artifact.sha256 if artifact else evidence.candidate_sha256,
            stage=stage,
            prepare=own if own in stages else "prepare",
            interpreter=interpreters[plan.python],
            versions=dict(environment.identities[plan.name].versions) if plan.name in environment.identities else {},
            job=moved,
        )

    ran = [t for t in evidence.targets if f"run.{t.plan.name}" in stages]
    targets = tuple(sealed(t.plan, t.artifact, f"run.{t.plan.name}", f"prepare.{t.plan.name}") for t in ran)
    left_out = tuple(t.plan.name for t in evidence.targets if t not in ran)
    return sealed(evidence.reference, None, REFERENCE, "prepare"), targets, left_out

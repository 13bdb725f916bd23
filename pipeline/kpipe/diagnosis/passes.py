"""The stages of a diagnosis: cut, export, run, in processes of their own. Decides nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe.diagnosis.subject import Choice, Subject
from kpipe.evidence import Ending
from kpipe.judging.answers import Answers, open_answers
from kpipe.running.jobs import TRUTH_RUNTIME, export_job, golden_only
from kpipe.running.workshop import Workshop
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import decode
from kpipe_stages.cutting.orders import CutJob, CutResult, IsolateJob, IsolateResult
from kpipe_stages.protocol import Artifact, ArtifactResult, ExportOpenvinoJob, ExportResult, RunJob, Signature, TimingPlan

if TYPE_CHECKING:
    from kpipe.evidence import StageEvidence


class CantError(Exception):
    """A pass that gave nothing; its text says why, for the user."""


@dataclass
class Passes:
    """Everything that a diagnosis runs, by tag: ``whole``, ``cut``, ``trial_3``, ``layer``."""

    subject: Subject
    choice: Choice
    shop: Workshop
    tensors: Path
    """The chosen rows'."""

    @property
    def format(self) -> str:
        """What the target's runtime loads: ``keras`` or a format."""
        return RUNTIMES[self.subject.plan.runtime].artifact

    # ------------------------------------------------------------ models

    async def cut(self, tag: str, expose: tuple[str, ...] | None) -> tuple[CutResult, Path]:
        """The model with these points as outputs.

        Raises:
            CantError: it can't be cut open.
        """
        given, path = self.subject.reference, self._folder(tag) / "cut.keras"
        result = await self._stage(f"cut.{tag}", "cut", CutJob(given.artifact, given.trust, given.sha256, str(path), expose))
        return decode(CutResult, result), path

    async def isolate(self, point: str, path: Path) -> IsolateResult:
        """The layer that makes a point, alone.

        Raises:
            CantError: it can't stand alone.
        """
        given = self.subject.reference
        return decode(IsolateResult, await self._stage("isolate", "isolate", IsolateJob(given.artifact, given.trust, given.sha256, point, str(path))))

    async def export(self, tag: str, model: Path, sha256: str) -> tuple[Artifact, Signature]:
        """The target's artifact, made of a model the way that a validation makes it.

        Raises:
            CantError: it can't be exported.
        """
        kind, out = self.format, self._folder(tag)
        contract = self.subject.loaded.contract
        job = export_job(str(model), sha256, self.subject.reference.trust, ("saved_model",) if kind == "openvino_ir" else (kind,), str(out), contract)
        stage = await self.shop.in_turn(self.shop.order(f"export.{tag}", "export", job))
        if stage.result is None or not stage.result.data:
            raise CantError(_why(stage))
        result = decode(ExportResult, stage.result.data)
        if not result.artifacts:
            raise CantError(_why(stage))
        made = result.artifacts[0]
        if kind == "openvino_ir":
            order = ExportOpenvinoJob(made.path, result.signature, made.binding, str(out), 0, made.repairs, made.op_layers)
            made = decode(ArtifactResult, await self._stage(f"export_openvino.{tag}", "export_openvino", order)).artifact
        return made, result.signature

    # ------------------------------------------------------------ runs

    async def reference(self, tag: str, model: Path | None = None, cut: CutResult | None = None) -> Answers:
        """The candidate, or the cut model, on the reference's backend."""
        job = self._job(self.subject.reference, model, cut)
        runtime = self.subject.evidence.reference.runtime
        return await self._run(f"reference.{tag}", f"run_{runtime}", replace(job, batches=()), plan=self.subject.evidence.reference)

    async def truth(self, tag: str, model: Path, cut: CutResult) -> Answers:
        """The cut model in float64 on TensorFlow."""
        job = replace(self._job(self.subject.reference, model, cut), runtime=TRUTH_RUNTIME, batches=(), settings={}, chosen={})
        return await self._run(f"truth.{tag}", "truth", job)

    async def whole(self) -> Answers:
        """The target as the run had it: its own artifact."""
        return await self._run("target.whole", f"run_{self.subject.plan.runtime}", self._job(self.subject.job), plan=self.subject.plan)

    async def target(self, tag: str, model: Path, sha256: str, cut: CutResult | None = None) -> Answers:
        """A model exported for the target and run with its settings.

        Raises:
            CantError: it can't be exported or run.
        """
        job = self._job(self.subject.job)
        names = tuple(cut.inputs[name] for name in self.subject.reference.names) if cut else self.subject.reference.names
        if self.format == "keras":
            job = replace(job, artifact=str(model), sha256=sha256, names=names)
        else:
            artifact, signature = await self.export(tag, model, sha256)
            job = replace(
                job, artifact=artifact.path, sha256=artifact.sha256, companions=artifact.companions, names=names, signature=signature,
                binding=artifact.binding, fixed_batch=RUNTIMES[self.subject.plan.runtime].only_batch(artifact.batch), op_layers=artifact.op_layers,
            )  # fmt: skip
        return await self._run(f"target.{tag}", f"run_{self.subject.plan.runtime}", job, plan=self.subject.plan)

    def _job(self, known: RunJob, model: Path | None = None, cut: CutResult | None = None) -> RunJob:
        """A job on the chosen rows: nothing repeated, probed or timed, no raw files."""
        job = replace(
            golden_only(known), tensors=str(self.tensors), names=self.subject.reference.names, rows=len(self.choice.rows), batches=self.choice.batches, repeat=0,
            probe_default=False, probe_training_unset=False, items=(), inputs=(), decisions=(), timing=TimingPlan(0, 0), lean_import=True,
        )  # fmt: skip
        if model is None or cut is None:
            return job
        names = tuple(cut.inputs[name] for name in self.subject.reference.names)
        return replace(job, artifact=str(model), sha256=cut.sha256, companions=(), names=names)

    async def _run(self, name: str, stage: str, job: RunJob, plan: Any = None) -> Answers:
        evidence = await self.shop.in_turn(self.shop.order(name, stage, job, plan=plan))
        answers = open_answers(evidence, self.shop.folder.stages / name)
        if answers is None:
            raise CantError(_why(evidence))
        return answers

    async def _stage(self, name: str, stage: str, job: Any) -> dict[str, Any]:
        evidence = await self.shop.in_turn(self.shop.order(name, stage, job))
        if evidence.ending is not Ending.OK or evidence.result is None or not evidence.result.data:
            raise CantError(_why(evidence))
        return evidence.result.data

    def _folder(self, tag: str) -> Path:
        folder = self.shop.folder.artifacts / tag
        folder.mkdir(parents=True, exist_ok=True)
        return folder


async def all_of(*work: Any) -> list[Any]:
    """Run passes side by side; each gives what it gives, or its `CantError`."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, CantError):
            raise result
    return results


def _why(stage: StageEvidence) -> str:
    """A stage's own words, or how it ended."""
    if stage.result is not None and stage.result.observations:
        return stage.result.observations[-1].cause
    if stage.result is not None and stage.result.failure is not None:
        return f"{stage.result.failure.type}: {stage.result.failure.message}"
    return f"stage {stage.name} {stage.ending}{f': {stage.detail}' if stage.detail else ''}"

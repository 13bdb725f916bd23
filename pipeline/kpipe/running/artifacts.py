"""The artifacts of one run: exported, converted, or handed in; each awaited by the targets that run it, and looked at again at the end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe.evidence import Ending, StageEvidence
from kpipe.running import jobs
from kpipe.running.launch import Order, finished
from kpipe.running.request import Resolved
from kpipe.running.reuse import Places, Shelf
from kpipe.running.reuse_key import key_or_none
from kpipe.running.workshop import Workshop
from kpipe_stages.catalog import RUNTIMES, VARIANTS
from kpipe_stages.codec import decode
from kpipe_stages.digest import digest
from kpipe_stages.protocol import (
    Artifact,
    ArtifactResult,
    Binding,
    ExportOpenvinoJob,
    ExportResult,
    Observation,
    OpenArtifactJob,
    QuantizeJob,
    Result,
    Signature,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from kpipe.evidence import TargetPlan
    from kpipe_stages.protocol import PrepareResult


@dataclass
class Artifacts:
    """Who waits for which file."""

    shop: Workshop
    resolved: Resolved
    parameters: int
    """Numbers in the candidate, by its archive."""
    weight_bytes: int = 0
    """Bytes that they take there."""
    futures: dict[str, asyncio.Future[Any]] = field(default_factory=dict)
    """Format to its artifact, or None where there will be none; ``signature`` to the model's own, as reloaded on TensorFlow."""
    variants: dict[tuple[str, str], asyncio.Task[Artifact | None]] = field(default_factory=dict)
    """Format and variant to what makes it."""
    used: dict[str, Artifact] = field(default_factory=dict)
    """Target name to the artifact it was run on."""
    shelf: Shelf | None = None
    """Artifacts of earlier runs; None where none is to be used."""
    to_keep: list[tuple[str, Result, Places]] = field(default_factory=list)
    """Key, answer and places of what this run made."""
    problems: dict[str, list[Observation]] = field(default_factory=dict)
    """Target name to what was found about its artifact."""

    def expect(self, names: tuple[str, ...]) -> None:
        """Let targets wait for these formats."""
        loop = asyncio.get_running_loop()
        self.futures |= {name: loop.create_future() for name in names}

    async def signature(self) -> Signature | None:
        """The model's own signature, as soon as it is reloaded; None where it can't be."""
        found: Signature | None = await self.futures["signature"]
        return found

    async def export(self, formats: tuple[str, ...], *, calibrates: bool) -> None:
        """Reload on TensorFlow and write the formats; what never came is settled as None, so that nobody waits for ever.

        Args:
            formats: what to write.
            calibrates: a LiteRT variant is going to be calibrated.
        """
        candidate = self.resolved
        job = jobs.export_job(
            str(candidate.request.model), candidate.sha256, candidate.trust, formats, str(self.shop.folder.artifacts), self.shop.contract
        )
        job = replace(job, calibrates=calibrates)
        try:
            stage = await self._made(self.shop.order("export", "export", job))
            if stage.result is not None and stage.result.data:
                result = decode(ExportResult, stage.result.data)
                self._settle("signature", result.signature)
                for artifact in result.artifacts:
                    self._settle(artifact.format, artifact)
        finally:
            for future in self.futures.values():
                if not future.done() and future is not self.futures.get("openvino_ir"):
                    future.set_result(None)

    def _settle(self, name: str, value: Any) -> None:
        future = self.futures.get(name)
        if future is not None and not future.done():
            future.set_result(value)

    def hear(self, stage: str, event: dict[str, Any]) -> None:
        """An artifact or the signature is there before the export has ended: what waits for it starts at once."""
        if stage == "export" and event["event"] == "artifact":
            artifact = decode(Artifact, event["artifact"])
            self._settle(artifact.format, artifact)
        elif stage == "export" and event["event"] == "signature":
            self._settle("signature", decode(Signature, event["signature"]))

    async def convert_openvino(self) -> None:
        """Convert the SavedModel to OpenVINO IR as soon as it is there."""
        future = self.futures["openvino_ir"]
        try:
            saved_model, signature = await self.futures["saved_model"], await self.signature()
            if saved_model is not None and signature is not None:
                job = ExportOpenvinoJob(
                    saved_model.path,
                    signature,
                    saved_model.binding,
                    str(self.shop.folder.artifacts),
                    parameters=self.parameters,
                    repairs=saved_model.repairs,
                    op_layers=saved_model.op_layers,
                )
                stage = await self._made(self.shop.order("export_openvino", "export_openvino", job), (saved_model,))
                if stage.result is not None and stage.result.data:
                    future.set_result(decode(ArtifactResult, stage.result.data).artifact)
        finally:
            if not future.done():
                future.set_result(None)

    async def _made(self, order: Order, sources: tuple[Artifact, ...] = ()) -> StageEvidence:
        """What a stage makes: an earlier run's, where nothing that it depends on has changed; else made now, and kept for a later run."""
        launcher, shelf = self.shop.launcher, self.shelf
        if isinstance(order.params, QuantizeJob):  # calibration tensors are hashed, which takes time
            key = await asyncio.to_thread(key_or_none, order, sources) if shelf is not None else None
        else:  # at once: most targets wait for the export, so it has to be the first in line for a slot
            key = key_or_none(order, sources) if shelf is not None else None
        if shelf is None or key is None or (launcher.resume and finished(launcher.folder / order.name, order)):
            return await self.shop.in_turn(order)
        places = Places(self.shop.folder.artifacts, launcher.folder / order.name)
        begin = launcher.now()
        found = await asyncio.to_thread(shelf.take, key, order, places) if shelf.holds(key) else None
        if found is not None:
            evidence = StageEvidence(order.name, Ending.OK, "", begin, launcher.now(), found, reused=True)
            self.shop.stages[order.name] = evidence
            return evidence
        evidence = await self.shop.in_turn(order)
        if evidence.ending is Ending.OK and evidence.result is not None:
            self.to_keep.append((key, evidence.result, places))
        return evidence

    async def keep(self) -> None:
        """Keep what this run made for later ones. Called when its timed phases are over: copying files would disturb them."""
        if self.shelf is not None:
            for key, result, places in self.to_keep:
                await asyncio.to_thread(self.shelf.keep, key, result, places)

    async def quantize(self, plans: Sequence[TargetPlan], calibration: Awaitable[PrepareResult | None], tensors: Path) -> Artifact | None:
        """Make a precision variant as soon as its float artifact is there; None where there will be none, which findings say.

        Args:
            plans: the targets that run the variant.
            calibration: the prepared calibration set, None where it can't be used.
            tensors: where its tensors lie.
        """
        kind, variant = RUNTIMES[plans[0].runtime].artifact, plans[0].quantize
        signature = await self.signature()
        source = await self.futures[kind] if kind != "keras" else self._candidate(signature) if signature else None
        if source is None or signature is None:
            return None
        saved_model = await self.futures["saved_model"] if kind == "litert" else None
        if kind == "litert" and saved_model is None:
            for plan in plans:
                self.problem(plan.name, Observation("KP220", f"There is no SavedModel to make '{plan.name}' from.", "", plan.name))
            return None
        ready = await calibration if VARIANTS[kind][variant].calibrates else None
        if VARIANTS[kind][variant].calibrates and ready is None:
            return None
        job = QuantizeJob(
            variant=variant,
            source=source,
            saved_model=saved_model,
            signature=signature,
            out=str(self.shop.folder.artifacts),
            trust=self.resolved.trust,
            tensors=str(tensors) if ready is not None else "",
            names=ready.names if ready is not None else (),
            rows=ready.rows if ready is not None else 0,
            parameters=self.parameters,
            repairs=self.shop.contract.export.repairs,
        )
        stage = await self._made(self.shop.order(f"quantize.{kind}.{variant}", f"quantize_{kind}", job))
        return decode(ArtifactResult, stage.result.data).artifact if stage.result is not None and stage.result.data else None

    def _candidate(self, signature: Signature) -> Artifact:
        """The candidate, as what Keras' own variants are made from."""
        names = Binding({spec.name: spec.name for spec in signature.inputs}, {spec.name: spec.name for spec in signature.outputs})
        path, candidate = str(self.resolved.request.model), self.resolved
        return Artifact("keras", path, candidate.sha256, candidate.size, signature, names, {}, (), self.weight_bytes)

    async def of(self, plan: TargetPlan) -> Artifact | None:
        """The file that the target runs: handed in, or exported."""
        kind = RUNTIMES[plan.runtime].artifact
        if plan.quantize and not plan.provided:
            return await self.variants[kind, plan.quantize]
        if not plan.provided:
            made: Artifact | None = await self.futures[kind]
            return made
        if not await asyncio.to_thread(Path(plan.provided).exists):
            self.problem(plan.name, Observation("KP210", f"The artifact {plan.provided} of target '{plan.name}' is not there.", "", plan.name))
            return None
        signature = await self.signature()
        if signature is None:
            return None
        stage = await self.shop.in_turn(
            self.shop.order(f"open.{plan.name}", f"open_{kind}", OpenArtifactJob(kind, plan.provided, signature, self.parameters))
        )
        return decode(ArtifactResult, stage.result.data).artifact if stage.result is not None and stage.result.data else None

    def problem(self, target: str, observation: Observation) -> None:
        """Note what was found about a target's artifact."""
        self.problems.setdefault(target, []).append(observation)

    def verify(self) -> None:
        """What was judged must still be what lies there."""
        known: dict[str, str] = {}
        for name, artifact in self.used.items():
            try:
                found = known.setdefault(artifact.path, digest(artifact.path, artifact.companions))
            except (OSError, ValueError) as error:
                self.problem(
                    name,
                    Observation("KP210", f"The artifact {self._shown(artifact)} of target '{name}' went away during the run: {error}.", "", name),
                )
                continue
            if found != artifact.sha256:
                self.problem(
                    name,
                    Observation(
                        "KP211",
                        f"The artifact {self._shown(artifact)} of target '{name}' was altered during the run: SHA-256 {artifact.sha256}, now {found}.",
                        "",
                        name,
                    ),
                )

    def _shown(self, artifact: Artifact) -> str:
        path = Path(artifact.path)
        return str(path.relative_to(self.shop.folder.path) if path.is_relative_to(self.shop.folder.path) else path)

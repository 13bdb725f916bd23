"""The artifacts of one run: exported, converted, or handed in; each awaited by the targets that run it, and looked at again at the end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe.running import jobs
from kpipe.running.request import Resolved
from kpipe.running.workshop import Workshop
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import decode
from kpipe_stages.digest import digest
from kpipe_stages.protocol import Artifact, ArtifactResult, ExportOpenvinoJob, ExportResult, Observation, OpenArtifactJob, Signature

if TYPE_CHECKING:
    from kpipe.evidence import TargetPlan


@dataclass
class Artifacts:
    """Who waits for which file."""

    shop: Workshop
    resolved: Resolved
    parameters: int
    """Numbers in the candidate, by its archive."""
    futures: dict[str, asyncio.Future[Any]] = field(default_factory=dict)
    """Format to its artifact, or None where there will be none; ``signature`` to the model's own, as reloaded on TensorFlow."""
    used: dict[str, Artifact] = field(default_factory=dict)
    """Target name to the artifact it was run on."""
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

    async def export(self, formats: tuple[str, ...]) -> None:
        """Reload on TensorFlow and write the formats; what never came is settled as None, so that nobody waits for ever."""
        candidate = self.resolved
        job = jobs.export_job(
            str(candidate.request.model), candidate.sha256, candidate.trust, formats, str(self.shop.folder.artifacts), self.shop.contract
        )
        try:
            stage = await self.shop.in_turn(self.shop.order("export", "export", job))
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
                stage = await self.shop.in_turn(self.shop.order("export_openvino", "export_openvino", job))
                if stage.result is not None and stage.result.data:
                    future.set_result(decode(ArtifactResult, stage.result.data).artifact)
        finally:
            if not future.done():
                future.set_result(None)

    async def of(self, plan: TargetPlan) -> Artifact | None:
        """The file that the target runs: handed in, or exported."""
        kind = RUNTIMES[plan.runtime].artifact
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

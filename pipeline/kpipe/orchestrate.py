"""A validation from its request to its evidence: which worker waits for which. Decides nothing about the model.

Look before loading, then decode; then, two at a time, the export, the reference and every target as soon as its artifact is there; then,
one after another on a quiet machine, the timed phases.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe import orders, system
from kpipe.checks import check_prepared, nonfinite
from kpipe.contract import Contract, TargetTable, check_names
from kpipe.errors import KpipeError
from kpipe.evidence import EVIDENCE_VERSION, Ending, Evidence, StageEvidence, TargetEvidence, TargetPlan
from kpipe.golden import GoldenSet, array_golden_set, sha256_of
from kpipe.infer import decision_spec
from kpipe.launch import Launcher, Order, WorkerProcess, make_home, wants_timing, worker_environment
from kpipe.plan import input_specs, plan_reference, plan_targets
from kpipe.preparation import prepared
from kpipe.request import Resolved
from kpipe.store import RunFolder
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import decode
from kpipe_stages.digest import digest
from kpipe_stages.protocol import (
    Artifact,
    ArtifactResult,
    ExportOpenvinoJob,
    ExportResult,
    InspectJob,
    InspectResult,
    Observation,
    OpenArtifactJob,
    PrepareResult,
    RunJob,
    Signature,
)

if TYPE_CHECKING:
    from collections.abc import Callable


SYNTHETIC = "synthetic.npz"

INSPECT_LIMIT_S = 120.0
INSPECT_BYTES_PER_S = 20 * 2**20
"""An archive gets a fixed time and more by its size: a file that keeps the reader busy for longer is refused."""


class Stopped(Exception):  # noqa: N818 - not an error: the run goes no further, and its evidence says why
    """Nothing more can be run."""


@dataclass
class Validation:
    """One run under way."""

    resolved: Resolved
    folder: RunFolder
    launcher: Launcher
    jobs: int
    plans: tuple[TargetPlan, ...]
    reference: TargetPlan
    golden: GoldenSet | None
    refusals: list[Observation]
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    notes: list[Observation] = field(default_factory=list)
    stages: dict[str, StageEvidence] = field(default_factory=dict)
    artifacts: dict[str, asyncio.Future[Artifact | None]] = field(default_factory=dict)
    used: dict[str, Artifact] = field(default_factory=dict)
    """Target name to the artifact it was run on."""
    problems: dict[str, list[Observation]] = field(default_factory=dict)
    parked: dict[str, WorkerProcess] = field(default_factory=dict)
    """Target name to the worker that waits to be timed."""
    jobs_of: dict[str, RunJob] = field(default_factory=dict)
    """Target name to what it was told to run."""
    parameters: int = 0
    """Numbers in the candidate, by its archive."""
    incomplete: str = ""

    @property
    def contract(self) -> Contract:
        """The contract in force."""
        return self.resolved.loaded.contract

    # ------------------------------------------------------------ workers

    def order(self, name: str, stage: str, params: Any, *, plan: TargetPlan | None = None) -> Order:
        """A worker's order: environment by catalog row, time by what is left of the run's."""
        row = RUNTIMES[plan.runtime] if plan else None
        here = system.this_interpreter().path
        python = plan.python if plan else here
        backend = row.keras_backend if row else "tensorflow"
        left = self.contract.run.total_s - self.launcher.now()
        return Order(
            name=name,
            stage=stage,
            params=params,
            python=python,
            environment=worker_environment(self.folder.stages / "home", backend=backend, threads=plan.threads if plan else 0, cache=self.cache),
            time_limit_s=max(0.0, min(self.contract.run.stage_s, left)),
            search_path="" if python == here else str(self._copy_of_stages()),
        )

    @property
    def cache(self) -> Path:
        """Where compile caches live."""
        return system.cache_folder(self.resolved.request.cache, self.folder.stages / "cache")

    def _copy_of_stages(self) -> Path:
        """A foreign interpreter gets a copy of the workers, so that nothing has to be installed there."""
        import kpipe_stages

        target = self.folder.stages / "workers"
        if not target.exists():
            shutil.copytree(Path(kpipe_stages.__file__).parent, target / "kpipe_stages", ignore=shutil.ignore_patterns("__pycache__"))
        return target

    async def perform(self, order: Order) -> tuple[StageEvidence, WorkerProcess | None]:
        """Run a stage to its answer and keep the evidence. It gets what is left of the run's time now, however long it waited for its turn."""
        order = replace(order, time_limit_s=min(order.time_limit_s, self._left()))
        if order.time_limit_s <= 0:
            limit = self.contract.run.total_s
            self.incomplete = f"The run's time limit of {limit:g} s was reached; what was left is unchecked."
            evidence = StageEvidence(
                order.name, Ending.NOT_STARTED, f"the run's {limit:g} s were used up", self.launcher.now(), self.launcher.now(), None
            )
            self.stages[order.name] = evidence
            return evidence, None
        process = await self.launcher.start(order)
        evidence = await process.result()
        self.stages[order.name] = evidence
        return evidence, process

    async def once(self, order: Order) -> StageEvidence:
        """Run a stage that has nothing to time."""
        evidence, process = await self.perform(order)
        if process is not None:
            await process.end()
        return evidence

    # ------------------------------------------------------------ the trip

    async def drive(self) -> None:
        """The whole trip; `Stopped` inside means that the evidence so far is all there will be."""
        slots = asyncio.Semaphore(self.jobs)
        if self.refusals:
            raise Stopped
        inspected, early = await self._look()
        async with asyncio.TaskGroup() as group:
            await self._run(group, slots, inspected, early)
        await self._time()
        self._verify_artifacts()

    async def _look(self) -> tuple[InspectResult, PrepareResult | None]:
        """Inspect the archive while golden files are decoded; refuse before a framework sees either."""
        look = self.order("inspect", "inspect", InspectJob(str(self.resolved.request.model), self.resolved.trust))
        patience = INSPECT_LIMIT_S + self.resolved.size / INSPECT_BYTES_PER_S
        inspect = self.once(replace(look, time_limit_s=min(look.time_limit_s, patience)))
        if self.golden is None:
            stage, ready = await inspect, None
        else:
            stage, ready = await asyncio.gather(inspect, self._prepare("prepare", input_specs(self.contract.inputs)))
        if stage.ending is not Ending.OK or stage.result is None or _refuses(stage.result.observations):
            raise Stopped
        inspected = decode(InspectResult, stage.result.data)
        self.parameters = inspected.parameters
        if inspected.sha256 != self.resolved.sha256:
            self.refusals.append(
                Observation(
                    "KP011", f"{self.resolved.request.model} changed while it was read: SHA-256 {self.resolved.sha256}, then {inspected.sha256}.", ""
                )
            )
            raise Stopped
        if inspected.signature is not None:
            self._agree(inspected.signature, ready)
        return inspected, ready

    async def _prepare(self, name: str, specs: Any) -> PrepareResult | None:
        assert self.golden is not None
        stage = await self.once(self.order(name, "prepare", orders.prepare_job(self.golden, specs)))
        return prepared(stage)

    def _agree(self, signature: Signature, ready: PrepareResult | None) -> None:
        """Names of the contract and tensors of the golden set against the model's signature."""
        check_names(self.contract, signature, self.resolved.loaded.source)
        if self.golden is None:
            return
        if ready is None or ready.bad_rows:
            raise Stopped  # each bad row is an observation of the stage
        problems = check_prepared(ready, signature)
        self.notes += nonfinite(ready, [g.id for g in self.golden.inputs])
        if problems:
            self.refusals += problems
            raise Stopped

    async def _run(self, group: asyncio.TaskGroup, slots: asyncio.Semaphore, inspected: InspectResult, early: PrepareResult | None) -> None:
        """Start the export, settle the signature and the inputs, then the reference and every target."""
        runnable = [plan for plan in self.plans if plan.absent is None]
        formats = orders.needed_formats(runnable)
        loop = asyncio.get_running_loop()
        self.artifacts = {name: loop.create_future() for name in (*formats, "signature")}
        group.create_task(self._export(slots, formats))
        signature = inspected.signature
        if signature is None or not signature.outputs:
            signature = await self._reloaded_signature()
            if signature is None:
                return
            if inspected.signature is None and self.golden is not None:
                self._agree_or_stop(signature, early)
        if self.golden is None:
            early = await self._synthesise(signature, inspected)
        if early is None or early.bad_rows or self.refusals:
            return
        common = self._common(signature, inspected)
        tensors = self.launcher.folder / "prepare" / "tensors"
        if self.reference.absent is None:
            forced = any(row.forced_training for row in inspected.layers)
            job = orders.reference_job(common, self.reference, early, str(tensors), forced=forced)
            group.create_task(self._simple(slots, self.order("reference", f"run_{self.reference.runtime}", job, plan=self.reference)))
        if any(RUNTIMES[plan.runtime].artifact == "openvino_ir" and not plan.provided for plan in runnable):
            self.artifacts["openvino_ir"] = loop.create_future()
            group.create_task(self._convert_openvino(slots))
        for plan in sorted(runnable, key=lambda plan: RUNTIMES[plan.runtime].artifact != "keras"):
            group.create_task(self._target(slots, plan, common, early))

    def _agree_or_stop(self, signature: Signature, ready: PrepareResult | None) -> None:
        """As `_agree`, for a signature that only the reload could tell; the export that is under way ends by itself."""
        try:
            self._agree(signature, ready)
        except Stopped:
            if ready is not None and not self.refusals:
                self.incomplete = "Golden inputs could not be prepared."

    async def _reloaded_signature(self) -> Signature | None:
        return await self.artifacts["signature"]  # type: ignore[return-value]

    async def _synthesise(self, signature: Signature, inspected: InspectResult) -> PrepareResult | None:
        from kpipe.synthetic import write_synthetic

        path = self.folder.path / SYNTHETIC
        header = write_synthetic(path, signature, inspected.integer_ranges)
        self.golden = array_golden_set(path, header, sha256_of(path), kind="synthetic")
        return await self._prepare("prepare", ())

    def _common(self, signature: Signature, inspected: InspectResult) -> orders.Common:
        assert self.golden is not None
        spec, _ = decision_spec(self.contract, signature, inspected)
        return orders.Common(
            model=str(self.resolved.request.model),
            sha256=self.resolved.sha256,
            trust=self.resolved.trust,
            contract=self.contract,
            golden=self.golden,
            specs=input_specs(self.contract.inputs),
            decision=spec,
            cache=str(self.cache),
        )

    async def _simple(self, slots: asyncio.Semaphore, order: Order) -> StageEvidence:
        async with slots:
            return await self.once(order)

    # ------------------------------------------------------------ artifacts

    async def _export(self, slots: asyncio.Semaphore, formats: tuple[str, ...]) -> None:
        candidate = self.resolved
        job = orders.export_job(str(candidate.request.model), candidate.sha256, candidate.trust, formats, str(self.folder.artifacts), self.contract)
        try:
            async with slots:
                stage = await self.once(self.order("export", "export", job))
            if stage.result is not None and stage.result.data:
                result = decode(ExportResult, stage.result.data)
                self._settle("signature", result.signature)
                for artifact in result.artifacts:
                    self._settle(artifact.format, artifact)
        finally:
            for future in self.artifacts.values():
                if not future.done() and future is not self.artifacts.get("openvino_ir"):
                    future.set_result(None)

    def _settle(self, name: str, value: Any) -> None:
        future = self.artifacts.get(name)
        if future is not None and not future.done():
            future.set_result(value)

    def on_event(self, stage: str, event: dict[str, Any]) -> None:
        """An artifact or the signature is there before the export has ended: what waits for it starts at once."""
        if stage == "export" and event["event"] == "artifact":
            artifact = decode(Artifact, event["artifact"])
            self._settle(artifact.format, artifact)
        elif stage == "export" and event["event"] == "signature":
            self._settle("signature", decode(Signature, event["signature"]))

    async def _convert_openvino(self, slots: asyncio.Semaphore) -> None:
        future = self.artifacts["openvino_ir"]
        try:
            saved_model, signature = await self.artifacts["saved_model"], await self._reloaded_signature()
            if saved_model is not None and signature is not None:
                job = ExportOpenvinoJob(
                    saved_model.path,
                    signature,
                    saved_model.binding,
                    str(self.folder.artifacts),
                    parameters=self.parameters,
                    repairs=saved_model.repairs,
                )
                stage = await self._simple(slots, self.order("export_openvino", "export_openvino", job))
                if stage.result is not None and stage.result.data:
                    future.set_result(decode(ArtifactResult, stage.result.data).artifact)
        finally:
            if not future.done():
                future.set_result(None)

    async def _artifact(self, slots: asyncio.Semaphore, plan: TargetPlan) -> Artifact | None:
        """The file that the target runs: handed in, or exported."""
        kind = RUNTIMES[plan.runtime].artifact
        if not plan.provided:
            return await self.artifacts[kind]
        if not await asyncio.to_thread(Path(plan.provided).exists):
            self._problem(plan, Observation("KP210", f"The artifact {plan.provided} of target '{plan.name}' is not there.", "", plan.name))
            return None
        signature = await self._reloaded_signature()
        if signature is None:
            return None
        stage = await self._simple(
            slots, self.order(f"open.{plan.name}", f"open_{kind}", OpenArtifactJob(kind, plan.provided, signature, self.parameters))
        )
        return decode(ArtifactResult, stage.result.data).artifact if stage.result is not None and stage.result.data else None

    def _problem(self, plan: TargetPlan, observation: Observation) -> None:
        self.problems.setdefault(plan.name, []).append(observation)

    # ------------------------------------------------------------ targets

    async def _target(self, slots: asyncio.Semaphore, plan: TargetPlan, common: orders.Common, ready: PrepareResult) -> None:
        artifact, signature = None, None
        if RUNTIMES[plan.runtime].artifact != "keras":
            artifact, signature = await self._artifact(slots, plan), await self._reloaded_signature()
            if artifact is None or signature is None:
                return
            self.used[plan.name] = artifact
        folder = "prepare"
        if plan.inputs and common.golden.kind == "raw":
            folder = f"prepare.{plan.name}"
            own = prepared(await self._simple(slots, self.order(folder, "prepare", orders.prepare_job(common.golden, plan.inputs))))
            if own is None or own.bad_rows:
                return
            ready = own
        job = orders.run_job(common, plan, self._limits(plan), ready, str(self.launcher.folder / folder / "tensors"), artifact, signature)
        order = self.order(f"run.{plan.name}", f"run_{plan.runtime}", job, plan=plan)
        async with slots:
            evidence, process = await self.perform(replace(order, time_limit_s=self._left()))
        if evidence.ending is Ending.OK:
            self.jobs_of[plan.name] = job
        if process is None:
            return
        if evidence.ending is Ending.OK and not evidence.reused and wants_timing(order):
            self.parked[plan.name] = process
        else:
            await process.end()

    def _left(self) -> float:
        return max(0.0, min(self.contract.run.stage_s, self.contract.run.total_s - self.launcher.now()))

    def _limits(self, plan: TargetPlan) -> Any:
        return self.contract.targets.get(plan.name, TargetTable()).limits

    async def _time(self) -> None:
        """The timed phases: one process at a time, nothing else running."""
        for plan in self.plans:
            if plan.quiet_load and plan.name in self.jobs_of:
                job = replace(self.jobs_of[plan.name], load_only=True)
                await self.once(self.order(f"load.{plan.name}", f"run_{plan.runtime}", job, plan=plan))
            if process := self.parked.get(plan.name):
                process.order = replace(process.order, time_limit_s=self._left())
                self.stages[f"run.{plan.name}"] = await process.measure()
                await process.end()

    def _verify_artifacts(self) -> None:
        """What was judged must still be what lies there."""
        known: dict[str, str] = {}
        plans = {plan.name: plan for plan in self.plans}
        for name, artifact in self.used.items():
            try:
                found = known.setdefault(artifact.path, artifact_digest(artifact))
            except (OSError, ValueError) as error:
                self._problem(
                    plans[name],
                    Observation("KP210", f"The artifact {self._shown(artifact)} of target '{name}' went away during the run: {error}.", "", name),
                )
                continue
            if found != artifact.sha256:
                self._problem(
                    plans[name],
                    Observation(
                        "KP211",
                        f"The artifact {self._shown(artifact)} of target '{name}' was altered during the run: SHA-256 {artifact.sha256}, now {found}.",
                        "",
                        name,
                    ),
                )

    def _shown(self, artifact: Artifact) -> str:
        path = Path(artifact.path)
        return str(path.relative_to(self.folder.path) if path.is_relative_to(self.folder.path) else path)

    # ------------------------------------------------------------ evidence

    def evidence(self, environment: Any) -> Evidence:
        """All that is known now."""
        golden = self.golden or array_golden_set(Path(SYNTHETIC), {"none": ((1,), "float32")}, "", kind="synthetic")
        return Evidence(
            version=EVIDENCE_VERSION,
            run_id=self.folder.path.name,
            started=self.started,
            wall_s=self.launcher.now(),
            candidate_path=str(self.resolved.given),
            candidate_sha256=self.resolved.sha256,
            candidate_size=self.resolved.size,
            contract_source=self.resolved.loaded.source,
            contract_sha256=self.resolved.loaded.sha256,
            contract_folder=str(self.resolved.loaded.folder),
            golden=golden,
            refusals=tuple(self.refusals),
            reference=self.reference,
            targets=tuple(TargetEvidence(plan, self.used.get(plan.name), tuple(self.problems.get(plan.name, ()))) for plan in self.plans),
            stages=tuple(sorted(self.stages.values(), key=lambda stage: stage.begin_s)),
            environment=environment,
            notes=tuple(self.notes),
            incomplete=self.incomplete,
            folders={name: f"stages/{name}" for name in self.stages},
            folder=str(self.folder.path),
        )


def artifact_digest(artifact: Artifact) -> str:
    """The digest that `Artifact.sha256` is compared with."""
    return digest(artifact.path, artifact.companions)


def _refuses(observations: tuple[Observation, ...]) -> bool:
    """Whether an archive's observations hold one that stops the run."""
    from kpipe.codes import CODES
    from kpipe.findings import Severity

    return any(o.code not in CODES or CODES[o.code].severity is Severity.ERROR for o in observations)


async def collect(resolved: Resolved, folder: RunFolder, on_event: Callable[[str, dict[str, Any]], None]) -> Evidence:
    """Run everything that the request asks for and return the evidence.

    Raises:
        ContractError: the contract names inputs or outputs that the model doesn't have.
        UsageError: ``--target`` names none of the contract's.
    """
    request, began = resolved.request, time.monotonic()
    environment = system.environment()
    here = system.this_interpreter()
    written = {t.python for t in resolved.loaded.contract.targets.values() if t.python}
    others = {path: system.foreign_interpreter(resolved.loaded.folder / path) for path in sorted(written)}  # unresolved: a venv's python is a link
    make_home(folder.stages / "home")
    validation = Validation(
        resolved=resolved,
        folder=folder,
        launcher=Launcher(folder.stages, began, lambda *_: None, resume=request.resume),
        jobs=request.jobs or system.cores(),
        plans=plan_targets(resolved.loaded, here, others, request.targets),
        reference=plan_reference(resolved.loaded.contract, here),
        golden=resolved.golden,
        refusals=list(resolved.refusals),
    )

    def hear(stage: str, event: dict[str, Any]) -> None:
        validation.on_event(stage, event)
        on_event(stage, event)

    validation.launcher.on_event = hear
    try:
        await validation.drive()
    except Stopped:
        pass  # the evidence says why
    except BaseExceptionGroup as group:
        raise _first_of(group) from group
    finally:
        await validation.launcher.close()
        shutil.rmtree(folder.stages / "home", ignore_errors=True)
    return validation.evidence(environment)


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The exception of a task group that a user should see: one of kpipe's own before any other."""
    leaves = [leaf for error in group.exceptions for leaf in ([error] if not isinstance(error, BaseExceptionGroup) else [_first_of(error)])]
    return next((leaf for leaf in leaves if isinstance(leaf, KpipeError)), leaves[0])

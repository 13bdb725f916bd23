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

from kpipe.axes import placed_axes, shape_cases
from kpipe.contract import Contract, TargetTable, check_names
from kpipe.errors import KpipeError
from kpipe.evidence import CALIBRATE_STAGE, EVIDENCE_VERSION, Ending, Evidence, Installed, TargetEvidence, TargetPlan
from kpipe.golden import NO_GOLDEN_SET, GoldenSet, array_golden_set, sha256_of
from kpipe.infer import decision_specs
from kpipe.preparation import prepared
from kpipe.profiles import SIGNOFF
from kpipe.running import jobs, system
from kpipe.running.artifacts import Artifacts
from kpipe.running.calibration import check_calibration
from kpipe.running.checks import check_prepared, nonfinite
from kpipe.running.deciding import decide_job
from kpipe.running.launch import Launcher, Order, WorkerProcess, make_home, wants_timing, worker_settings
from kpipe.running.own_inputs import fingerprint, prepare_own
from kpipe.running.plan import input_specs, plan_reference, plan_targets
from kpipe.running.quiet import quiet_loads
from kpipe.running.request import Resolved, calibration_record
from kpipe.running.reuse import Shelf
from kpipe.running.reuse_key import prepare as prepare_keys
from kpipe.running.workshop import Workshop
from kpipe_stages.catalog import RUNTIMES, VARIANTS
from kpipe_stages.codec import decode
from kpipe_stages.protocol import (
    InspectJob,
    InspectResult,
    Observation,
    PrepareResult,
    RunJob,
    Signature,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kpipe.store import RunFolder


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
    shop: Workshop
    artifacts: Artifacts
    plans: tuple[TargetPlan, ...]
    reference: TargetPlan
    golden: GoldenSet | None
    refusals: list[Observation]
    code: dict[str, str]
    """File of custom objects, of preprocessing or decision code or of a serving system's tensors to its SHA-256 when the run began."""
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    notes: list[Observation] = field(default_factory=list)
    parked: dict[str, WorkerProcess] = field(default_factory=dict)
    """Target name to the worker that waits to be timed."""
    jobs_of: dict[str, RunJob] = field(default_factory=dict)
    """Target name to what it was told to run."""

    @property
    def contract(self) -> Contract:
        """The contract in force."""
        return self.resolved.loaded.contract

    # ------------------------------------------------------------ the trip

    async def drive(self) -> None:
        """The whole trip; `Stopped` inside means that the evidence so far is all there will be."""
        if self.refusals:
            raise Stopped
        self.shop.warm()
        keys = asyncio.create_task(asyncio.to_thread(prepare_keys))
        inspected, early = await self._look()
        await keys
        async with asyncio.TaskGroup() as group:
            await self._run(group, inspected, early)
        await self._decide(inspected)
        await self._time()
        self.artifacts.verify()
        self._verify_code()
        if not self.refusals and not self.artifacts.problems:
            await self.artifacts.keep()

    async def _look(self) -> tuple[InspectResult, PrepareResult | None]:
        """Inspect the archive while golden files are decoded; refuse before a framework sees either."""
        look = self.shop.order("inspect", "inspect", InspectJob(str(self.resolved.request.model), self.resolved.trust))
        patience = INSPECT_LIMIT_S + self.resolved.size / INSPECT_BYTES_PER_S
        inspect = self.shop.once(replace(look, time_limit_s=min(look.time_limit_s, patience)))
        if self.golden is None:
            stage, ready = await inspect, None
        else:
            stage, ready = await asyncio.gather(inspect, self._prepare("prepare", self.reference.inputs))
        if stage.ending is not Ending.OK or stage.result is None or _refuses(stage.result.observations):
            raise Stopped
        inspected = decode(InspectResult, stage.result.data)
        self.artifacts.parameters = inspected.parameters
        self.artifacts.weight_bytes = inspected.weight_bytes
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
        stage = await self.shop.once(self.shop.order(name, "prepare", jobs.prepare_job(self.golden, specs)))
        return prepared(stage)

    def _agree(self, signature: Signature, ready: PrepareResult | None) -> None:
        """Names of the contract and tensors of the golden set against the model's signature."""
        check_names(self.contract, signature, self.resolved.loaded.source)
        placed_axes(self.contract, signature, self.resolved.loaded.source)
        if self.golden is None:
            return
        if ready is None or ready.bad_rows:
            raise Stopped  # each bad row is an observation of the stage
        problems = check_prepared(ready, signature)
        self.notes += nonfinite(ready, [g.id for g in self.golden.inputs])
        if problems:
            self.refusals += problems
            raise Stopped

    async def _run(self, group: asyncio.TaskGroup, inspected: InspectResult, early: PrepareResult | None) -> None:
        """Start the export, settle the signature and the inputs, then the reference and every target."""
        runnable = [plan for plan in self.plans if plan.absent is None]
        formats = jobs.needed_formats(runnable)
        self.artifacts.expect((*formats, "signature"))
        group.create_task(self.artifacts.export(formats, calibrates=jobs.calibrates_litert(runnable)))
        signature = inspected.signature
        if signature is None or not signature.outputs:
            signature = await self.artifacts.signature()
            if signature is None:
                return
            if inspected.signature is None and self.golden is not None:
                self._agree_or_stop(signature, early)
        if self.golden is None:
            early = await self._synthesise(signature, inspected)
        if early is None or early.bad_rows or self.refusals:
            return
        common = self._common(signature, inspected)
        for order in self._references(common, early, forced=any(row.forced_training for row in inspected.layers)):
            group.create_task(self.shop.in_turn(order))
        if any(RUNTIMES[plan.runtime].artifact == "openvino_ir" and not plan.provided for plan in runnable):
            self.artifacts.expect(("openvino_ir",))
            group.create_task(self.artifacts.convert_openvino())
        self._quantize(group, runnable, signature, early)
        for plan in sorted(runnable, key=lambda plan: RUNTIMES[plan.runtime].artifact != "keras"):
            group.create_task(self._target(group, plan, common, early))

    def _quantize(self, group: asyncio.TaskGroup, runnable: list[TargetPlan], signature: Signature, ready: PrepareResult) -> None:
        """Start what makes each precision variant, once however many targets run it, and the calibration set that some need."""
        wanted = jobs.variants_of(runnable)
        needing = [plan for plan in wanted if VARIANTS[RUNTIMES[plan.runtime].artifact][plan.quantize].calibrates]
        calibration = group.create_task(self._calibrate(needing, signature, ready))
        users: dict[tuple[str, str], list[TargetPlan]] = {}
        for plan in wanted:
            users.setdefault((RUNTIMES[plan.runtime].artifact, plan.quantize), []).append(plan)
        for key, plans in users.items():
            made = self.artifacts.quantize(plans, calibration, self.shop.launcher.folder / CALIBRATE_STAGE / "tensors")
            self.artifacts.variants[key] = group.create_task(made)

    async def _calibrate(self, needing: list[TargetPlan], signature: Signature, ready: PrepareResult) -> PrepareResult | None:
        """Prepare the calibration set and hold it against the golden one; None where it can't be used, which the targets' findings say."""
        calibration, golden = self.resolved.calibration, self.golden
        if not needing or calibration is None or golden is None:
            return None
        stage = await self.shop.in_turn(self.shop.order(CALIBRATE_STAGE, "prepare", jobs.calibration_job(calibration, self.reference.inputs)))
        own = prepared(stage)
        if own is None or own.bad_rows:
            return None
        folder = self.shop.launcher.folder
        try:
            problems = await asyncio.to_thread(
                check_calibration, calibration, own, folder / CALIBRATE_STAGE / "tensors", golden, ready, folder / "prepare" / "tensors", signature
            )
        except (OSError, ValueError, LookupError) as error:
            problems = [Observation("KP314", f"The calibration set's tensors can't be read back: {error}", "", CALIBRATE_STAGE)]
        for plan in needing:
            for problem in problems:
                self.artifacts.problem(plan.name, problem)
        return None if problems else own

    def _references(self, common: jobs.Common, ready: PrepareResult, *, forced: bool) -> Iterator[Order]:
        """The reference, the same on one thread, and the candidate in float64: each where it can run and is asked for."""
        tensors = str(self.shop.launcher.folder / "prepare" / "tensors")
        if self.reference.absent is None:
            stage = f"run_{self.reference.runtime}"
            yield self.shop.order("reference", stage, jobs.reference_job(common, self.reference, ready, tensors, forced=forced), plan=self.reference)
            if self.resolved.profile.asks_one_thread(self.contract):
                job = jobs.one_thread_job(common, self.reference, ready, tensors)
                yield self.shop.order("reference.one_thread", stage, job, plan=self.reference, one_thread=True)
        if self.contract.agreement.tolerance == "auto":
            yield self.shop.order("truth", "truth", jobs.truth_job(common, ready, tensors))

    def _agree_or_stop(self, signature: Signature, ready: PrepareResult | None) -> None:
        """As `_agree`, for a signature that only the reload could tell; the export that is under way ends by itself."""
        try:
            self._agree(signature, ready)
        except Stopped:
            if ready is not None and not self.refusals:
                self.shop.incomplete = "Golden inputs could not be prepared."

    async def _synthesise(self, signature: Signature, inspected: InspectResult) -> PrepareResult | None:
        from kpipe.running.synthetic import write_synthetic

        path = self.shop.folder.path / SYNTHETIC
        header = write_synthetic(path, signature, inspected.integer_ranges)
        self.golden = array_golden_set(path, header, sha256_of(path), kind="synthetic")
        return await self._prepare("prepare", ())

    def _common(self, signature: Signature, inspected: InspectResult) -> jobs.Common:
        assert self.golden is not None
        specs, _ = decision_specs(self.contract, signature, inspected)
        return jobs.Common(
            model=str(self.resolved.request.model),
            sha256=self.resolved.sha256,
            trust=self.resolved.trust,
            contract=self.contract,
            golden=self.golden,
            specs=self.reference.inputs,
            decisions=specs,
            cache=str(self.shop.cache),
            profile=self.resolved.profile,
            shapes=shape_cases(self.contract, signature, self.resolved.loaded.source),
            probe=True,
        )

    # ------------------------------------------------------------ targets

    async def _target(self, group: asyncio.TaskGroup, plan: TargetPlan, common: jobs.Common, ready: PrepareResult) -> None:
        artifact, signature = None, None
        if RUNTIMES[plan.runtime].artifact != "keras" or plan.quantize:
            artifact, signature = await self.artifacts.of(plan), await self.artifacts.signature()
            if artifact is None or signature is None:
                return
            self.artifacts.used[plan.name] = artifact
        folder, shared = "prepare", (str(self.shop.launcher.folder / "prepare" / "tensors"), ready.names)
        if plan.inputs and common.golden.kind == "raw":
            folder = f"prepare.{plan.name}"
            own = await prepare_own(self.shop, plan, common)
            if own is None or own.bad_rows:
                return
            group.create_task(fingerprint(self.shop, plan, common, ready, own))
            ready = own
        tensors = self.shop.launcher.folder / folder / "tensors"
        job = jobs.run_job(common, plan, self._limits(plan), ready, str(tensors), artifact, signature, shared)
        cold = self._limits(plan).peak_mib is not None or plan.python != self.reference.python or bool(plan.affinity or plan.memory_mib)
        job = replace(job, lean_import=not cold)
        order = self.shop.order(f"run.{plan.name}", f"run_{plan.runtime}", job, plan=plan, own_process=cold)
        async with self.shop.turn(order):
            evidence, process = await self.shop.perform(replace(order, time_limit_s=self.shop.left()))
            timed = evidence.ending is Ending.OK and not evidence.reused and wants_timing(order)
            if process is not None and evidence.ending is Ending.OK and not timed:
                await self.shop.shape(process)
        if evidence.ending is Ending.OK:
            self.jobs_of[plan.name] = job
        if process is not None and timed:
            self.parked[plan.name] = process
        elif process is not None:
            await process.end()

    async def _decide(self, inspected: InspectResult) -> None:
        """Decisions by the user's own code, on all answers that there are."""
        if self.golden is None or not self.resolved.decision_code:
            return
        signature = inspected.signature if inspected.signature and inspected.signature.outputs else await self.artifacts.signature()
        specs, _ = decision_specs(self.contract, signature, inspected)
        job = decide_job(specs, self.resolved.decision_code, self.golden, self.shop.stages, self.shop.launcher.folder)
        if job is not None:
            await self.shop.once(self.shop.order("decide", "decide", job))

    def _limits(self, plan: TargetPlan) -> Any:
        return self.contract.targets.get(plan.name, TargetTable()).limits

    async def _time(self) -> None:
        """The timed phases: one process at a time, nothing else running."""
        for plan in self.plans:
            if plan.quiet_load and plan.name in self.jobs_of:
                limit = self._limits(plan).absolute.get("load_s")
                await quiet_loads(self.shop, plan, self.jobs_of[plan.name], limit, thorough=self.resolved.profile is SIGNOFF)
            if process := self.parked.get(plan.name):
                process.order = replace(process.order, time_limit_s=self.shop.left())
                self.shop.stages[f"run.{plan.name}"] = await process.measure()
                await self.shop.shape(process)
                await process.end()

    def _verify_code(self) -> None:
        """Every worker has read the user's files for itself: they must still be the ones that the first has read."""
        for path, known in self.code.items():
            found = sha256_of(Path(path)) if Path(path).is_file() else "none: it is gone"
            kind = self._kind_of(path)
            if found != known:
                self.refusals.append(
                    Observation("KP011", f"The {kind} file {path} changed during the run: SHA-256 {known}, now {found}.", "", Path(path).name)
                )

    def _kind_of(self, path: str) -> str:
        if path in self.resolved.trust.custom_objects:
            return "custom-object"
        return "preprocessing" if path in self.resolved.input_files else "decision"

    # ------------------------------------------------------------ evidence

    def evidence(self, environment: Any) -> Evidence:
        """All that is known now."""
        signed = self.resolved.profile is SIGNOFF
        return Evidence(
            version=EVIDENCE_VERSION,
            run_id=self.shop.folder.path.name,
            started=self.started,
            wall_s=self.shop.launcher.now(),
            candidate_path=str(self.resolved.given),
            candidate_sha256=self.resolved.sha256,
            candidate_size=self.resolved.size,
            contract_source=self.resolved.loaded.source,
            contract_sha256=self.resolved.loaded.sha256,
            contract_folder=str(self.resolved.loaded.folder),
            golden=self.golden or NO_GOLDEN_SET,
            refusals=tuple(self.refusals),
            reference=self.reference,
            targets=tuple(
                TargetEvidence(plan, self.artifacts.used.get(plan.name), tuple(self.artifacts.problems.get(plan.name, ()))) for plan in self.plans
            ),
            stages=tuple(sorted(self.shop.stages.values(), key=lambda stage: stage.begin_s)),
            environment=environment,
            notes=tuple(self.notes),
            incomplete=self.shop.incomplete,
            folders={name: f"stages/{name}" for name in self.shop.stages},
            folder=str(self.shop.folder.path),
            decision_code=dict(self.resolved.decision_code),
            profile=self.resolved.profile.name,
            installed=self._installed() if signed else {},
            custom_objects={path: self.code[path] for path in self.resolved.trust.custom_objects},
            worker_settings=worker_settings() if signed else {},
            calibration=calibration_record(self.resolved.calibration),
        )

    def _installed(self) -> dict[str, Installed]:
        """What every interpreter that worked holds: a bundle has to say what it takes to run it again."""
        return {python: system.installed_in(python) for python in sorted({plan.python for plan in (self.reference, *self.plans)})}


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

    def hear(stage: str, event: dict[str, Any]) -> None:
        artifacts.hear(stage, event)
        on_event(stage, event)

    launcher = Launcher(folder.stages, began, hear, resume=request.resume)
    contract = resolved.loaded.contract
    shop = Workshop(contract, folder, launcher, asyncio.Semaphore(request.jobs or system.cores()), request.cache)
    artifacts = Artifacts(shop, resolved, parameters=0, shelf=Shelf(shop.cache / "exports") if resolved.reuses else None)
    validation = Validation(
        resolved=resolved,
        shop=shop,
        artifacts=artifacts,
        plans=tuple(
            replace(plan, quiet_load=plan.quiet_load or resolved.profile is SIGNOFF)
            for plan in plan_targets(resolved.loaded, here, others, request.targets, resolved.input_files)
        ),
        reference=plan_reference(contract, here, input_specs(contract.inputs, resolved.loaded, resolved.input_files)),
        golden=resolved.golden,
        refusals=list(resolved.refusals),
        code={path: sha256_of(Path(path)) for path in resolved.trust.custom_objects}
        | {path: known for files in resolved.decision_code.values() for path, known in files.items()}
        | resolved.input_files,
    )
    try:
        await validation.drive()
    except Stopped:
        pass  # the evidence says why
    except BaseExceptionGroup as group:
        raise _first_of(group) from group
    finally:
        await launcher.close()
        shutil.rmtree(folder.stages / "home", ignore_errors=True)
    return validation.evidence(environment)


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The exception of a task group that a user should see: one of kpipe's own before any other."""
    leaves = [leaf for error in group.exceptions for leaf in ([error] if not isinstance(error, BaseExceptionGroup) else [_first_of(error)])]
    return next((leaf for leaf in leaves if isinstance(leaf, KpipeError)), leaves[0])

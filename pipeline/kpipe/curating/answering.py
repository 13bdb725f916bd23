"""What the reference, and targets where they are asked for, make of many raw files: workers as in a validation, each file alone, nothing timed.

The model is inspected before anything loads it and exported once; then the files go through in chunks, of which only decisions, margins and
drifts are kept, so that neither memory nor disk grows with their number.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe import signals
from kpipe.contract import check_names
from kpipe.curating.decoding import as_set, chunks, read_prepared, told
from kpipe.curating.drifts import FileAnswer, read_answers
from kpipe.errors import GoldenError, UsageError
from kpipe.evidence import Ending, StageEvidence, TargetPlan
from kpipe.infer import decision_specs
from kpipe.judging.answers import Answers, open_answers
from kpipe.judging.stages import stage_findings
from kpipe.judging.verdict import failing
from kpipe.running import jobs, system
from kpipe.running.artifacts import Artifacts
from kpipe.running.checks import check_prepared
from kpipe.running.launch import Launcher, make_home
from kpipe.running.orchestrate import INSPECT_BYTES_PER_S, INSPECT_LIMIT_S
from kpipe.running.plan import input_specs, plan_reference, plan_targets
from kpipe.running.request import Resolved
from kpipe.running.workshop import Workshop
from kpipe.store import RunFolder
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import decode
from kpipe_stages.protocol import Artifact, InspectJob, InspectResult, PrepareResult, RunJob, Signature, TimingPlan
from kpipe_stages.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe.curating.decoding import OnEvent
    from kpipe.golden import GoldenInput
    from kpipe_stages.protocol import InputSpec

REFERENCE = ""
"""The reference's own key where others are targets' names."""


@dataclass
class Answered:
    """What was made of the files."""

    answers: dict[str, FileAnswer] = field(default_factory=dict)
    """By id."""
    rejected: dict[str, str] = field(default_factory=dict)
    """Id to why the model could not be given the file."""
    rule: str = ""
    """The decision rule in force; empty where there is none."""
    labels: tuple[str, ...] = ()
    """What it can answer, as far as the contract says."""


def ask(resolved: Resolved, inputs: Sequence[GoldenInput], targets: tuple[str, ...], on_event: OnEvent) -> Answered:
    """Run files through the reference and these targets.

    Args:
        resolved: model and contract.
        inputs: raw files; ids must be unique.
        targets: of the contract, or of the installed runtimes where it names none; empty for the reference alone.
        on_event: hears of progress.

    Raises:
        UsageError: the model is refused, a target isn't there or gives no answers.
        ContractError: the contract names what the model doesn't have.
        GoldenError: the files could not be decoded, or their tensors aren't what the model takes.
    """
    with tempfile.TemporaryDirectory(prefix="kpipe-") as scratch:
        return signals.run(_ask(RunFolder(Path(scratch)), resolved, inputs, targets, on_event))


async def _ask(folder: RunFolder, resolved: Resolved, inputs: Sequence[GoldenInput], targets: tuple[str, ...], on_event: OnEvent) -> Answered:
    folder.stages.mkdir()
    folder.artifacts.mkdir()
    make_home(folder.stages / "home")

    def hear(stage: str, event: dict[str, Any]) -> None:
        artifacts.hear(stage, event)
        on_event(stage, event)

    launcher = Launcher(folder.stages, time.monotonic(), hear)
    shop = Workshop(resolved.loaded.contract, folder, launcher, asyncio.Semaphore(system.cores()))
    artifacts = Artifacts(shop, resolved, parameters=0)
    asking = _Asking(resolved, shop, artifacts, plan_reference(resolved.loaded.contract, system.this_interpreter()), _plans(resolved, targets))
    try:
        return await asking.drive(inputs)
    finally:
        await launcher.close()


def _plans(resolved: Resolved, targets: tuple[str, ...]) -> tuple[TargetPlan, ...]:
    """The targets asked for, each of which can run here."""
    if not targets:
        return ()
    loaded = resolved.loaded
    written = {table.python for table in loaded.contract.targets.values() if table.python}
    others = {path: system.foreign_interpreter(loaded.folder / path) for path in sorted(written)}
    plans = [plan for plan in plan_targets(loaded, system.this_interpreter(), others, targets) if plan.name in targets]
    for plan in plans:
        if plan.absent is not None:
            raise UsageError(f"--target {plan.name}: {plan.absent.cause} {plan.absent.remedy}")
    return tuple(plans)


@dataclass
class _Asking:
    """One pass under way."""

    resolved: Resolved
    shop: Workshop
    artifacts: Artifacts
    reference: TargetPlan
    plans: tuple[TargetPlan, ...]
    answered: Answered = field(default_factory=Answered)
    made: dict[str, tuple[Artifact | None, Signature | None]] = field(default_factory=dict)
    """Target name to what it runs."""

    async def drive(self, inputs: Sequence[GoldenInput]) -> Answered:
        """Inspect, export, and chunk by chunk decode and run."""
        if self.reference.absent is not None:
            raise UsageError(f"the reference can't run here: {self.reference.absent.cause} {self.reference.absent.remedy}")
        inspected = await self._look()
        await self._make(inspected)
        for number, chunk in enumerate(chunks(inputs)):
            await self._chunk(number, chunk, inspected)
        return self.answered

    async def _look(self) -> InspectResult:
        model = self.resolved.request.model
        order = self.shop.order("inspect", "inspect", InspectJob(str(model), self.resolved.trust))
        patience = INSPECT_LIMIT_S + self.resolved.size / INSPECT_BYTES_PER_S
        stage = await self.shop.once(replace(order, time_limit_s=min(order.time_limit_s, patience)))
        findings = stage_findings(stage, failed_as="KP001")
        if failing(findings) or stage.ending is not Ending.OK or stage.result is None:
            raise UsageError(f"{model} is refused, so it was not asked: {told(findings) or stage.detail}")
        return decode(InspectResult, stage.result.data)

    async def _make(self, inspected: InspectResult) -> None:
        """The artifact of every target."""
        exported = [plan for plan in self.plans if RUNTIMES[plan.runtime].artifact != "keras"]
        self.made = {plan.name: (None, None) for plan in self.plans}
        if not exported:
            return
        if variants := [plan.name for plan in exported if plan.quantize and not plan.provided]:
            raise UsageError(
                f"--target {variants[0]}: it is a precision variant, and mining makes none. Name the file that kpipe validate made of it (artifact = ...), or another target."
            )
        self.shop.warm()
        self.artifacts.parameters = inspected.parameters
        formats = jobs.needed_formats(exported)
        self.artifacts.expect((*formats, "signature"))
        async with asyncio.TaskGroup() as group:
            group.create_task(self.artifacts.export(formats, calibrates=jobs.calibrates_litert(exported)))
            if any(RUNTIMES[plan.runtime].artifact == "openvino_ir" and not plan.provided for plan in exported):
                self.artifacts.expect(("openvino_ir",))
                group.create_task(self.artifacts.convert_openvino())
        for plan in exported:
            artifact, signature = await self.artifacts.of(plan), await self.artifacts.signature()
            if artifact is None or signature is None:
                causes = [told(stage_findings(stage, failed_as="KP314")) for stage in self.shop.stages.values()]
                causes += [o.cause for o in self.artifacts.problems.get(plan.name, [])]
                raise UsageError(f"--target {plan.name}: there is no artifact to run: {'; '.join(c for c in causes if c) or 'no reason is known'}")
            self.made[plan.name] = (artifact, signature)

    async def _chunk(self, number: int, inputs: Sequence[GoldenInput], inspected: InspectResult) -> None:
        specs = {REFERENCE: input_specs(self.resolved.loaded.contract.inputs)} | {plan.name: plan.inputs for plan in self.plans if plan.inputs}
        good, ready = await self._prepared(number, inputs, specs, inspected.signature)
        if good:
            common = jobs.Common(
                model=str(self.resolved.request.model),
                sha256=self.resolved.sha256,
                trust=self.resolved.trust,
                contract=self.resolved.loaded.contract,
                golden=as_set(good),
                specs=specs[REFERENCE],
                decisions=(),
                cache=str(self.shop.cache),
            )
            own = {name: ready.get(name, ready[REFERENCE]) for name in (REFERENCE, *(plan.name for plan in self.plans))}
            names = {REFERENCE: f"reference.{number}"} | {plan.name: f"run.{plan.name}.{number}" for plan in self.plans}
            orders = [self._order(names[REFERENCE], self.reference, jobs.reference_job(common, self.reference, *own[REFERENCE], forced=False))]
            for plan in self.plans:
                limits = self.resolved.loaded.contract.targets[plan.name].limits if plan.name in self.resolved.loaded.contract.targets else None
                job = jobs.run_job(common, plan, limits or _no_limits(), *own[plan.name], *self.made[plan.name])
                orders.append(self._order(names[plan.name], plan, job))
            stages = await asyncio.gather(*(self.shop.in_turn(order) for order in orders))
            self._read(good, dict(zip(names, stages, strict=True)), inspected)
        for name in list(self.shop.stages):
            if name.rpartition(".")[2] == str(number):
                shutil.rmtree(self.shop.folder.stages / name, ignore_errors=True)

    def _order(self, name: str, plan: TargetPlan, job: RunJob) -> Any:
        """Every file alone, once; nothing is timed, repeated or probed."""
        quiet = TimingPlan(calls=0, end_to_end_calls=0)
        job = replace(job, batches=(), repeat=0, arranged=(), probe_default=False, timing=quiet, items=(), inputs=())
        return self.shop.order(name, f"run_{plan.runtime}", job, plan=plan, own_process=plan.python != self.reference.python)

    async def _prepared(
        self, number: int, inputs: Sequence[GoldenInput], specs: dict[str, tuple[InputSpec, ...]], signature: Signature | None
    ) -> tuple[Sequence[GoldenInput], dict[str, tuple[PrepareResult, str]]]:
        """The files that have a tensor by every preprocessing, and those tensors; the others are noted and left out."""
        for attempt in range(len(inputs) + 1):
            ready: dict[str, tuple[PrepareResult, str]] = {}
            bad: dict[str, str] = {}
            for key, chosen in specs.items():
                name = f"prepare.{key or 'all'}.{attempt}.{number}"
                stage = await self.shop.once(self.shop.order(name, "prepare", jobs.prepare_job(as_set(inputs), chosen)))
                result, reasons = read_prepared(stage, [item.id for item in inputs])
                bad |= reasons
                if result is not None:
                    tensors = self.shop.folder.stages / name / "tensors"
                    ready[key] = (result, str(tensors))
                    bad |= _unfit([item.id for item in inputs], result, tensors, signature)
            self.answered.rejected |= bad
            inputs = [item for item in inputs if item.id not in bad]
            if not bad or not inputs:
                break
        if inputs and signature is not None and (problems := check_prepared(ready[REFERENCE][0], signature)):
            raise GoldenError("; ".join(f"{o.code}: {o.cause} {o.remedy}" for o in problems))
        return inputs, ready

    def _read(self, inputs: Sequence[GoldenInput], stages: dict[str, StageEvidence], inspected: InspectResult) -> None:
        """Decisions, margins and drifts of one chunk."""
        found: dict[str, Answers] = {}
        for key, stage in stages.items():
            answers = open_answers(stage, self.shop.folder.stages / stage.name)
            if answers is None:
                who = f"--target {key}" if key else "the reference"
                raise UsageError(f"{who} gave no answers, so nothing is known of these files: {told(stage_findings(stage)) or stage.detail}")
            found[key] = answers
        reference = found.pop(REFERENCE)
        check_names(self.resolved.loaded.contract, reference.result.signature, self.resolved.loaded.source)
        specs, _ = decision_specs(self.resolved.loaded.contract, reference.result.signature, inspected)
        spec = specs[0] if specs else None  # files are ranked by one margin: the first rule's
        self.answered.rule, self.answered.labels = (spec.rule, spec.labels) if spec else ("", ())
        rows = read_answers(reference, found, spec)
        self.answered.answers |= {item.id: row for item, row in zip(inputs, rows, strict=True)}


def _no_limits() -> Any:
    from kpipe.contract import LimitsTable

    return LimitsTable()


def _unfit(ids: Sequence[str], result: PrepareResult, tensors: Path, signature: Signature | None) -> dict[str, str]:
    """Id to why its tensor is of a size that the model doesn't take."""
    wanted = {spec.name: spec.shape[1:] for spec in signature.inputs if spec.shape is not None} if signature else {}
    bad = {}
    for position, name in enumerate(result.names):
        rows, sizes = Rows(tensors / str(position)), wanted.get(name, ())
        shapes = {row: rows.shape(row) for row in range(len(ids)) if row not in rows.absent}
        for row, shape in shapes.items():
            # another rank is another preprocessing, of all files alike: `check_prepared` says so
            if len(shape) == len(sizes) and any(n not in {None, m} for n, m in zip(sizes, shape, strict=True)):
                takes = [n if n is not None else "any" for n in sizes]
                bad[ids[row]] = f"KP104: it becomes {list(shape)} for input '{name}'; the model takes {takes}. Correct the preprocessing steps."
    return bad

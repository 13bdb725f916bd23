"""One bundle in one environment: its sealed workers' orders, given again to another interpreter, and judged as the sealed run was."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe.contract import LimitsTable, LoadedContract, TargetTable
from kpipe.evidence import Ending, Evidence, StageEvidence
from kpipe.judging.decided import DECIDE_STAGE
from kpipe.judging.judge import judge
from kpipe.loads import load_of
from kpipe.recheck.environments import Environment
from kpipe.recheck.exporting import export, on, with_artifact
from kpipe.record import RunRecord
from kpipe.running import system
from kpipe.running.deciding import decide_job
from kpipe.running.launch import Launcher, make_home, wants_shapes, wants_timing
from kpipe.running.quiet import quiet_loads
from kpipe.running.workshop import Workshop
from kpipe.signoff.bundle import Bundle
from kpipe.signoff.contents import REFERENCE
from kpipe.store import RunFolder
from kpipe_stages.protocol import TimingPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kpipe.evidence import TargetPlan
    from kpipe.signoff.contents import SealedTarget
    from kpipe.waivers import WaiverSet
    from kpipe_stages.protocol import Artifact

AGAIN = "reference.again"
"""The stage of the reference where it is run again: the sealed one keeps its name, and what targets are held against."""
PREPARE = "prepare"
UNTIMED = frozenset({"size_mib", "peak_mib"})
"""Limits that ask for no timed call: an artifact has its size, a worker its peak."""
NO_TIMES = TimingPlan(calls=0, end_to_end_calls=0)


@dataclass(frozen=True)
class Trial:
    """What is run."""

    bundle: Bundle
    environment: Environment
    targets: tuple[str, ...]
    """Names, ``reference`` among them where it is run again."""
    folder: Path
    """Where the workers write; new."""
    goldens: Path | None
    """The golden files, for a bundle with hashes only."""
    times: bool
    anew: bool = False
    """Export the sealed ``.keras`` file in the environment, and run what comes of it instead of the sealed artifacts."""


@dataclass(frozen=True)
class Tried:
    """What came of it."""

    record: RunRecord
    evidence: Evidence
    run: Path
    """The sealed run's folder; the new workers' folders are absolute in `Evidence.folders`."""
    new: dict[str, StageEvidence]
    """Stage to what its worker answered now."""
    folder: Path
    """Where they lie, a folder each."""


async def perform(trial: Trial, waivers: WaiverSet, say: Callable[[str], None]) -> Tried:
    """Run the targets one after another on a machine that does nothing else, then judge them against the sealed reference.

    Args:
        trial: what is run.
        waivers: the sealed ones, held against today.
        say: hears what is going on.
    """
    shop = _workshop(trial)
    plans = {REFERENCE: trial.bundle.evidence.reference} | {t.plan.name: t.plan for t in trial.bundle.evidence.targets}
    try:
        tensors = await _tensors(trial, shop)
        made = await _exported(trial, shop, say) if trial.anew else {}
        for name in trial.targets:
            say(name)
            await _run(trial, shop, plans[name], trial.bundle.target(name), tensors, made)
        evidence = _evidence(trial, shop, made)
        if trial.bundle.decision_code:
            await _decide(trial, shop, evidence)
            evidence = _evidence(trial, shop, made)
    finally:
        await shop.launcher.close()
    return Tried(
        judge(trial.bundle.run, unpinned(trial.bundle.contract, times=trial.times), evidence, waivers),
        evidence,
        trial.bundle.run,
        dict(shop.stages),
        shop.folder.stages,
    )


def unpinned(loaded: LoadedContract, *, times: bool) -> LoadedContract:
    """The contract without the versions that it asks of runtimes, as to see other ones is the point; and without limits on times where nothing is timed.

    Limits that are relative to a baseline are left out, too: they are about two artifacts, and the baseline's isn't run here.
    """
    targets = {
        name: table.model_copy(
            update={"version": None, "limits": LimitsTable(**{key: limit for key, limit in table.limits.absolute.items() if times or key in UNTIMED})}
        )
        for name, table in loaded.contract.targets.items()
    }
    return LoadedContract(loaded.contract.model_copy(update={"targets": targets}), loaded.source, loaded.text, loaded.folder)


def stage_of(target: SealedTarget) -> str:
    """The stage that runs a target, or the reference, again."""
    return AGAIN if target.name == REFERENCE else target.stage


def _workshop(trial: Trial) -> Workshop:
    folder = RunFolder(trial.folder.resolve())
    folder.stages.mkdir(parents=True, exist_ok=True)
    make_home(folder.stages / "home")
    launcher = Launcher(folder.stages, time.monotonic(), lambda *_: None)
    return Workshop(trial.bundle.contract.contract, folder, launcher, asyncio.Semaphore(1))


async def _tensors(trial: Trial, shop: Workshop) -> dict[str, Path]:
    """Stage to the tensors that a bundle with hashes only doesn't hold: made anew of the golden files, by the sealed steps."""
    if trial.bundle.full:
        return {}
    stages = dict.fromkeys([PREPARE, *(trial.bundle.target(name).prepare for name in trial.targets)])
    for stage in stages:
        await shop.once(shop.order(stage, PREPARE, trial.bundle.prepare_job(stage, trial.goldens)))
    return {stage: shop.folder.stages / stage / "tensors" for stage in stages}


async def _exported(trial: Trial, shop: Workshop, say: Callable[[str], None]) -> dict[str, Artifact]:
    """Format to the file that was exported now."""
    say("export")
    trust = trial.bundle.job(REFERENCE, trial.goldens, shop.folder.path).trust
    return await export(trial.bundle, trial.environment, trust, shop, trial.targets)


async def _run(
    trial: Trial, shop: Workshop, plan: TargetPlan, target: SealedTarget, tensors: Mapping[str, Path], made: Mapping[str, Artifact]
) -> None:
    """One worker, cold, in a process of its own; then, where asked, its timed calls, and its shapes. What wasn't exported anew is not run."""
    job = trial.bundle.job(target.name, trial.goldens, tensors.get(target.prepare))
    if tensors and job.common:
        job = replace(job, common=str(tensors[PREPARE]))
    if trial.anew:
        if target.format not in made:
            return
        job = on(job, made[target.format])
    timed = trial.times and target.name != REFERENCE
    job = replace(job, cache=str(shop.cache), lean_import=False, timing=job.timing if timed else NO_TIMES)
    plan = replace(plan, python=trial.environment.python)
    stage = stage_of(target)
    order = shop.order(stage, f"run_{target.runtime}", job, plan=plan, own_process=True)
    evidence, process = await shop.perform(order)
    if process is None:
        return
    if evidence.ending is Ending.OK and timed and wants_timing(order):
        process.order = replace(process.order, time_limit_s=shop.left())
        shop.stages[stage] = await process.measure()
    if evidence.ending is Ending.OK and wants_shapes(order):
        shop.stages[stage] = await shop.shape(process)
    await process.end()
    limit = trial.bundle.contract.contract.targets.get(target.name, TargetTable()).limits.absolute.get("load_s")
    if timed and limit is not None and (first := load_of(evidence)) is not None:
        await quiet_loads(shop, plan, job, limit, thorough=False, first=first)


async def _decide(trial: Trial, shop: Workshop, evidence: Evidence) -> None:
    """Decisions by the user's own sealed code, on the new answers and the sealed reference's."""
    stages = {s.name: s for s in evidence.stages if s.name == REFERENCE} | shop.stages
    job = decide_job(trial.bundle.rules, trial.bundle.decision_code, trial.bundle.evidence.golden, stages, shop.folder.stages)
    if job is None:
        return
    sealed = str(trial.bundle.run / "stages" / REFERENCE)
    answers = tuple(replace(a, folder=sealed) if a.stage == REFERENCE else a for a in job.answers)
    await shop.once(shop.order(DECIDE_STAGE, "decide", replace(job, answers=answers)))


RUN = "run."
REPLACED = (RUN, "load.", "race.")


def _ran(name: str, stage: StageEvidence) -> bool:
    """Whether a worker told its load: it was cold and alone, as a load that is held to a limit has to be."""
    return name.startswith(RUN) and stage.ending is Ending.OK and stage.result is not None


def _evidence(trial: Trial, shop: Workshop, made: Mapping[str, Artifact]) -> Evidence:
    """The sealed evidence with the new workers' answers for the sealed ones; of a target that wasn't run again, nothing is known.

    The reference stays the sealed one: what was approved is what is held against.
    """
    sealed = trial.bundle.evidence
    new = {name: stage for name, stage in shop.stages.items() if name != AGAIN}
    new |= {
        f"load.{name.removeprefix(RUN)}": replace(stage, name=f"load.{name.removeprefix(RUN)}") for name, stage in new.items() if _ran(name, stage)
    }
    kept = [s for s in sealed.stages if s.name not in new and not s.name.startswith(REPLACED) and s.name != DECIDE_STAGE]
    folders = {name: f"stages/{name}" for name in (s.name for s in kept)} | {name: str(shop.folder.stages / name) for name in new}
    wanted = [with_artifact(t, made) if trial.anew else t for t in sealed.targets if t.plan.name in trial.targets]
    targets = tuple(replace(t, plan=replace(t.plan, python=trial.environment.python, absent=None)) for t in wanted)
    stages: Sequence[StageEvidence] = (*kept, *new.values())
    changes: dict[str, Any] = {"incomplete": shop.incomplete, "opponents": {}, "environment": system.environment()}
    return replace(sealed, targets=targets, stages=tuple(stages), folders=folders, **changes)

"""A target whose numbers differ is run again with one setting changed at a time: which one removes the difference? Decides nothing."""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kpipe.running import system
from kpipe.running.jobs import golden_only
from kpipe.running.launch import Launcher, make_home
from kpipe.running.workshop import Workshop
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import CodecError, decode, read_json
from kpipe_stages.protocol import Job, RunJob, TimingPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kpipe.evidence import Evidence, TargetPlan
    from kpipe.running.request import Resolved
    from kpipe.store import RunFolder
    from kpipe_stages.catalog import Knob

MOST_TARGETS = 6
"""Targets that are tried with other settings; a run in which more of them fail has one cause, and it is no setting."""


def knob_stage(target: str, position: int) -> str:
    """The stage in which a target runs with the n-th knob of its runtime turned."""
    return f"knob.{target}.{position}"


async def turn_knobs(
    resolved: Resolved, folder: RunFolder, evidence: Evidence, names: Sequence[str], on_event: Callable[[str, dict[str, Any]], None]
) -> Evidence:
    """Run the named targets once per knob of their runtime, and return the evidence with what came of it.

    Each knob is a stage of its own; one that fails says nothing about the target, and one that time is too short for isn't started.
    """
    wanted = [target.plan for target in evidence.targets if target.plan.name in names][:MOST_TARGETS]
    orders = [(plan, position, knob, job) for plan in wanted if (job := _job(folder, plan)) for position, knob in _knobs(plan)]
    if not orders:
        return evidence
    contract = resolved.loaded.contract
    make_home(folder.stages / "home")
    launcher = Launcher(folder.stages, time.monotonic() - evidence.wall_s, on_event, resume=resolved.request.resume)
    shop = Workshop(contract, folder, launcher, asyncio.Semaphore(resolved.request.jobs or system.cores()), resolved.request.cache)

    async def turn(plan: TargetPlan, position: int, knob: Knob, job: RunJob) -> None:
        job = replace(job, settings={**job.settings, knob.key: knob.value}, repeat=0, probe_default=False, timing=TimingPlan(0, 0), lean_import=True)
        await shop.in_turn(shop.order(knob_stage(plan.name, position), f"run_{plan.runtime}", job, plan=plan))

    try:
        async with asyncio.TaskGroup() as group:
            for order in orders:
                group.create_task(turn(*order))
    finally:
        await launcher.close()
        shutil.rmtree(folder.stages / "home", ignore_errors=True)
    folders = {**evidence.folders, **{name: f"stages/{name}" for name in shop.stages}}
    return replace(evidence, stages=(*evidence.stages, *shop.stages.values()), folders=folders, wall_s=launcher.now())


def _knobs(plan: TargetPlan) -> list[tuple[int, Knob]]:
    """The ones that would change something."""
    settings = {**plan.chosen, **plan.settings}
    return [(position, knob) for position, knob in enumerate(RUNTIMES[plan.runtime].knobs) if settings.get(knob.key) != knob.value]


def _job(folder: RunFolder, plan: TargetPlan) -> RunJob | None:
    """What the target was told; None where that can't be read, which leaves its knobs untried."""
    try:
        return golden_only(decode(RunJob, read_json(Job, folder.stages / f"run.{plan.name}" / "job.json").params))
    except (OSError, CodecError):
        return None

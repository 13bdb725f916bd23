"""The timed phase against a baseline: each target's artifact and the baseline's in one worker, alone on the machine. Decides nothing."""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kpipe.evidence import race_stage
from kpipe.percentiles import NEEDED
from kpipe.running.launch import Launcher, make_home
from kpipe.running.workshop import Workshop
from kpipe_stages.protocol import RaceJob, RunJob
from kpipe_stages.racing import PERCENTILES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kpipe.contract import BaselineTable, Contract, LimitsTable
    from kpipe.evidence import Evidence, StageEvidence, TargetPlan
    from kpipe.store import RunFolder


def race_job(before: RunJob, now: RunJob, rows: Sequence[tuple[int, int]], table: BaselineTable, limits: LimitsTable) -> RaceJob:
    """What a worker is told, from what both workers were told. Tensors that a bundle doesn't hold are the candidate's."""
    timed = {name: factor for name, factor in limits.relative.items() if name in {*PERCENTILES, "load_s"}}
    calls = max([NEEDED[50.0], *(NEEDED[PERCENTILES[name]] for name in timed if name in PERCENTILES)])
    return RaceJob(
        before=plain(before), now=plain(now), rows=tuple(rows), max_seconds=table.max_seconds, smallest=table.smallest, limits=timed, calls=calls
    )


def plain(job: RunJob) -> RunJob:
    """What it takes to open the artifact and to call it."""
    return replace(job, shapes=(), probe_binding=False, exchange=False, common="", common_names=(), query_device="", lean_import=False)


async def run_races(
    orders: Mapping[str, tuple[TargetPlan, RaceJob]],
    contract: Contract,
    folder: RunFolder,
    evidence: Evidence,
    on_event: Callable[[str, dict[str, Any]], None],
    *,
    cache: str | None = None,
    resume: bool = False,
) -> tuple[tuple[StageEvidence, ...], str]:
    """Time the targets one after another on a machine that does nothing else.

    Returns:
        What each worker left behind, and why not all were started; empty where all were.
    """
    if not orders:
        return (), ""
    make_home(folder.stages / "home")
    launcher = Launcher(folder.stages, time.monotonic() - evidence.wall_s, on_event, resume=resume)
    shop = Workshop(contract, folder, launcher, asyncio.Semaphore(1), cache)
    try:
        for name, (plan, told) in orders.items():
            kept = str(shop.cache) if told.now.cache else ""
            job = replace(told, before=replace(told.before, cache=kept), now=replace(told.now, cache=kept))
            await shop.once(shop.order(race_stage(name), "race", job, plan=plan, own_process=True))
    finally:
        await launcher.close()
        shutil.rmtree(folder.stages / "home", ignore_errors=True)
    return tuple(shop.stages.values()), shop.incomplete

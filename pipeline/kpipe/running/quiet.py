"""A target loaded in fresh processes while nothing else of the run works, as often as it takes (`kpipe.loads.enough`)."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from kpipe.loads import enough, load_of, total
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.protocol import LoadTimes

if TYPE_CHECKING:
    from typing import Any

    from kpipe.evidence import StageEvidence, TargetPlan
    from kpipe.running.workshop import Workshop
    from kpipe_stages.protocol import RunJob


async def quiet_loads(shop: Workshop, plan: TargetPlan, job: RunJob, limit: float | None, *, thorough: bool, first: LoadTimes | None = None) -> None:
    """Load until the stopping rule is met; ``thorough``: also with the artifact dropped from the file cache, and from the runtime's compile cache.

    The evidence is the workshop's stages ``load.TARGET``, ``load.TARGET.2``, ...; the first that fails is the last. ``first``: a load that was
    cold and alone already, and counts.
    """
    job = replace(job, load_only=True, lean_import=False)
    began, loads = time.monotonic() - (total(first) if first else 0.0), [first] if first else list[LoadTimes]()
    while not (loads and _done(shop, loads, limit, began, thorough=thorough)):
        name = f"load.{plan.name}" if not loads else f"load.{plan.name}.{len(loads) + 1}"
        found = load_of(await _load(shop, plan, job, name))
        if found is None:
            return
        loads.append(found)
    if thorough:
        await _load(shop, plan, replace(job, drop_pages=True), f"load.{plan.name}.cold_file")
        await _with_compile_cache(shop, plan, job)


def _done(shop: Workshop, loads: list[LoadTimes], limit: float | None, began: float, *, thorough: bool) -> bool:
    budget = min(shop.contract.timing.load_seconds, shop.left())
    return enough(loads, limit, spent_s=time.monotonic() - began, budget_s=budget, thorough=thorough)


async def _with_compile_cache(shop: Workshop, plan: TargetPlan, job: RunJob) -> None:
    """One load fills the runtime's own compile cache, the next one finds it; neither where it has none, or the contract sets it."""
    key = RUNTIMES[plan.runtime].compile_cache
    if not key or key in {**job.chosen, **job.settings}:
        return
    folder = shop.folder.stages / "compile_cache" / plan.name
    settings: dict[str, Any] = {**job.settings, key: str(folder)}
    if load_of(await _load(shop, plan, replace(job, settings=settings), f"load.{plan.name}.filling")) is not None:
        await _load(shop, plan, replace(job, settings=settings), f"load.{plan.name}.cached")
    shutil.rmtree(folder, ignore_errors=True)


async def _load(shop: Workshop, plan: TargetPlan, job: RunJob, name: str) -> StageEvidence:
    return await shop.once(shop.order(name, f"run_{plan.runtime}", job, plan=plan, own_process=True))

"""A target's own preprocessing: a stage of its own, and, where its tensors aren't the reference's, a search for what it does otherwise."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from kpipe.preparation import prepared
from kpipe.running import jobs
from kpipe_stages.digest import digest

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe.evidence import TargetPlan
    from kpipe.running.workshop import Workshop
    from kpipe_stages.protocol import PrepareResult

SEARCH_S = 180.0
"""Most that the search may take as a process; it ends its own work at `kpipe_stages.protocol.FingerprintJob.max_seconds`."""


async def prepare_own(shop: Workshop, plan: TargetPlan, common: jobs.Common) -> PrepareResult | None:
    """Prepare by the target's own inputs. Code of the user's runs in the target's interpreter: that is the one which has its packages."""
    code = any(jobs.made_by_code(spec) for spec in plan.inputs)
    order = shop.order(f"prepare.{plan.name}", "prepare", jobs.prepare_job(common.golden, plan.inputs), plan=plan if code else None)
    return prepared(await shop.in_turn(order))


async def fingerprint(shop: Workshop, plan: TargetPlan, common: jobs.Common, reference: PrepareResult, own: PrepareResult) -> None:
    """Look for what the target does otherwise, if anything; the judge reads what the stage ``fingerprint.<target>`` says."""
    stages = shop.launcher.folder
    ours, theirs = stages / "prepare" / "tensors", stages / f"prepare.{plan.name}" / "tensors"
    digests = await asyncio.to_thread(_digests, ours, theirs)
    if reference.names == own.names and digests[0] == digests[1] != "":
        return
    job = replace(jobs.fingerprint_job(common, reference, own, str(ours), str(theirs)), reference_sha256=digests[0], target_sha256=digests[1])
    order = shop.order(f"fingerprint.{plan.name}", "fingerprint", job)
    await shop.in_turn(replace(order, time_limit_s=min(order.time_limit_s, SEARCH_S)))


def _digests(ours: Path, theirs: Path) -> tuple[str, str]:
    """Of two folders of tensors; empty where one can't be read, which the search then says."""
    try:
        return digest(ours), digest(theirs)
    except (OSError, ValueError):
        return "", ""

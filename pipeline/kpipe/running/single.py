"""One stage on its own: for the commands that need no more than that."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe import signals
from kpipe.running import system
from kpipe.running.launch import Launcher, Order, make_home, worker_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe.evidence import StageEvidence


def run_stage(
    stage: str,
    params: Any,
    *,
    backend: str | None,
    time_limit_s: float,
    on_event: Callable[[str, dict[str, Any]], None] | None = None,
    folder: Path | None = None,
) -> StageEvidence:
    """Run a stage in a folder of its own that goes afterwards, or in ``folder``, which stays; what it was told to write elsewhere stays too."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        return signals.run(_run(folder, stage, params, backend, time_limit_s, on_event or (lambda *_: None)))
    with tempfile.TemporaryDirectory(prefix="kpipe-") as scratch:
        return signals.run(_run(Path(scratch), stage, params, backend, time_limit_s, on_event or (lambda *_: None)))


async def _run(
    scratch: Path, stage: str, params: Any, backend: str | None, time_limit_s: float, on_event: Callable[[str, dict[str, Any]], None]
) -> StageEvidence:
    home = make_home(scratch / "home")
    cache = system.cache_folder(None, scratch / "cache")
    launcher = Launcher(scratch / "stages", time.monotonic(), on_event)
    environment = worker_environment(home, backend=backend, threads=0, cache=cache)
    process = await launcher.start(Order(stage, stage, params, system.this_interpreter().path, environment, time_limit_s))
    try:
        evidence = await process.result()
        await process.end()
    finally:
        await launcher.close()
    return evidence

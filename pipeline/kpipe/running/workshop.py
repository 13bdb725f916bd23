"""Worker processes for one run: orders are filled in, performed within the run's time, and their evidence kept."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe.contract import Contract
from kpipe.evidence import Ending, StageEvidence, TargetPlan
from kpipe.running import system
from kpipe.running.fork_server import ForkServer
from kpipe.running.launch import ONE_THREAD, Launcher, Order, WorkerProcess, wants_shapes, worker_environment
from kpipe.store import RunFolder
from kpipe_stages.catalog import FORK_IMPORTS, RUNTIMES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass
class Workshop:
    """Where workers are started, so many at a time, and what each left behind."""

    contract: Contract
    folder: RunFolder
    launcher: Launcher
    slots: asyncio.Semaphore
    """Workers that may work at a time; those that wait to be timed don't count."""
    wanted_cache: str | None = None
    stages: dict[str, StageEvidence] = field(default_factory=dict)
    incomplete: str = ""
    """Why the run stopped early."""

    def order(
        self, name: str, stage: str, params: Any, *, plan: TargetPlan | None = None, own_process: bool = False, one_thread: bool = False
    ) -> Order:
        """A worker's order: environment by catalog row, time by what is left of the run's."""
        row = RUNTIMES[plan.runtime] if plan else None
        here = system.this_interpreter().path
        python = plan.python if plan else here
        backend = (row.keras_backend if row else None) or "tensorflow"
        environment = worker_environment(self.folder.stages / "home", backend=backend, threads=plan.threads if plan else 0, cache=self.cache)
        return Order(
            name=name,
            stage=stage,
            params=params,
            python=python,
            environment=environment | ONE_THREAD if one_thread else environment,
            time_limit_s=self.left(),
            search_path="" if python == here else str(self._copy_of_stages()),
            own_process=own_process,
        )

    @property
    def cache(self) -> Path:
        """Where compile caches live."""
        return system.cache_folder(self.wanted_cache, self.folder.stages / "cache")

    def _copy_of_stages(self) -> Path:
        """A foreign interpreter gets a copy of the workers, so that nothing has to be installed there."""
        import kpipe_stages

        target = self.folder.stages / "workers"
        if not target.exists():
            shutil.copytree(Path(kpipe_stages.__file__).parent, target / "kpipe_stages", ignore=shutil.ignore_patterns("__pycache__"))
        return target

    def left(self) -> float:
        """Seconds that a worker may take now."""
        return max(0.0, min(self.contract.run.stage_s, self.contract.run.total_s - self.launcher.now()))

    async def perform(self, order: Order) -> tuple[StageEvidence, WorkerProcess | None]:
        """Run a stage to its answer and keep the evidence. It gets what is left of the run's time now, however long it waited for its turn."""
        order = replace(order, time_limit_s=min(order.time_limit_s, self.left()))
        if order.time_limit_s <= 0:
            limit = self.contract.run.total_s
            self.incomplete = f"The run's time limit of {limit:g} s was reached; what was left is unchecked."
            return self._not_started(order, f"the run's {limit:g} s were used up"), None
        try:
            process = await self.launcher.start(order)
        except OSError as error:  # the interpreter went away, or the system has no process or disk left to give
            return self._not_started(order, f"{order.python}: {error}"), None
        evidence = await process.result()
        self.stages[order.name] = evidence
        return evidence, process

    def _not_started(self, order: Order, why: str) -> StageEvidence:
        now = self.launcher.now()
        self.stages[order.name] = StageEvidence(order.name, Ending.NOT_STARTED, why, now, now, None)
        return self.stages[order.name]

    async def once(self, order: Order) -> StageEvidence:
        """Run a stage that has nothing to time; shapes that it is to try are tried at once."""
        evidence, process = await self.perform(order)
        if process is not None:
            if evidence.ending is Ending.OK and wants_shapes(order):
                evidence = await self.shape(process)
            await process.end()
        return evidence

    async def shape(self, process: WorkerProcess) -> StageEvidence:
        """Have a worker that has answered try its shapes, in what is left of the run's time."""
        process.order = replace(process.order, time_limit_s=self.left())
        self.stages[process.order.name] = await process.try_shapes()
        return self.stages[process.order.name]

    async def in_turn(self, order: Order) -> StageEvidence:
        """Run a stage that has nothing to time, when a slot is free."""
        async with self.turn(order):
            return await self.once(order)

    @contextlib.asynccontextmanager
    async def turn(self, order: Order) -> AsyncIterator[None]:
        """A slot; one that waits for the fork server's imports doesn't take another's place meanwhile."""
        server = self.launcher.server_for(order)
        if server is not None:
            await server.ready(self.left())
        async with self.slots:
            yield

    def warm(self) -> None:
        """Begin with what takes longest: TensorFlow's import, once for every stage that needs it."""
        if self.launcher.resume or not ForkServer.possible():
            return
        environment = worker_environment(self.folder.stages / "home", backend="tensorflow", threads=0, cache=self.cache)
        self.launcher.fork_server = ForkServer(system.this_interpreter().path, environment, FORK_IMPORTS)
        self.launcher.fork_server.begin(self.folder.stages / "fork_server", self.slots, self.left())

"""Take cases through the workers: a few processes at a time, many cases each. A process that dies is begun again behind the case that killed it."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.evidence import Ending
from kpipe.running import system
from kpipe.running.launch import Launcher, Order, make_home, worker_environment
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.zoo.orders import EXPORT, OPENVINO_IR, ZooJob, folder_of

if TYPE_CHECKING:
    from collections.abc import Sequence

CHUNK = 60
"""Cases that one process takes: TensorFlow is imported once for so many, and what it keeps of them stays below a GiB."""
LIMIT_S = 180.0
"""For one step of one case."""


@dataclass(frozen=True)
class Wave:
    """Steps that one process takes for every case of a chunk."""

    name: str
    backend: str | None
    steps: tuple[str, ...]


def waves(runtimes: Sequence[str]) -> tuple[Wave, tuple[Wave, ...]]:
    """The wave that builds and exports, and those that can only follow it: each has the libraries of one runtime and no other's."""
    first = Wave("tensorflow", "tensorflow", (EXPORT, *(f"run.{name}" for name in runtimes if "tensorflow" in RUNTIMES[name].distributions)))
    plain = [name for name in runtimes if RUNTIMES[name].module == "run_openvino"]
    rest = [Wave(name, RUNTIMES[name].keras_backend, (f"run.{name}",)) for name in runtimes if f"run.{name}" not in first.steps and name not in plain]
    if plain:
        ir = (OPENVINO_IR,) if any(RUNTIMES[name].artifact == "openvino_ir" for name in plain) else ()
        rest.append(Wave("openvino", None, (*ir, *(f"run.{name}" for name in plain))))
    return first, tuple(rest)


@dataclass
class Zoo:
    """One run over the cases."""

    root: Path
    say: Callable[[str], None]
    jobs: int
    failures: list[str] = field(default_factory=list)
    """Workers that ended without taking a single step further."""
    _done: int = 0

    async def run(self, cases: Sequence[str], runtimes: Sequence[str]) -> None:
        """Every case through every wave."""
        first, rest = waves(runtimes)
        slots = asyncio.Semaphore(self.jobs)
        launcher = Launcher(self.root / "stages", time.monotonic(), self._heard)
        home, cache = make_home(self.root / "home"), system.cache_folder(None, self.root / "cache")
        size = max(1, min(CHUNK, -(-len(cases) // self.jobs)))
        chunks = [tuple(cases[start : start + size]) for start in range(0, len(cases), size)]

        async def wave(number: int, chunk: tuple[str, ...], one: Wave) -> None:
            async with slots:
                await self._wave(launcher, f"{one.name}.{number}", chunk, one, worker_environment(home, backend=one.backend, threads=0, cache=cache))

        async def follow(number: int, chunk: tuple[str, ...]) -> None:
            await wave(number, chunk, first)
            await asyncio.gather(*(wave(number, chunk, one) for one in rest))
            self._done += len(chunk)
            self.say(f"{self._done} of {len(cases)} models")

        try:
            await asyncio.gather(*(follow(number, chunk) for number, chunk in enumerate(chunks)))
        finally:
            await launcher.close()

    def _heard(self, name: str, event: dict[str, object]) -> None:
        if event.get("event") == "step":
            self._at[name] = (str(event["case"]), str(event["step"]))

    _at: dict[str, tuple[str, str]] = field(default_factory=dict)

    async def _wave(self, launcher: Launcher, name: str, chunk: tuple[str, ...], wave: Wave, environment: dict[str, str]) -> None:
        """Until every step has an outcome; each process that dies has one more begun than the one before."""
        attempt = 0
        while left := [(case, step) for case in chunk for step in wave.steps if not (self.root / folder_of(case) / f"{step}.json").exists()]:
            label = f"{name}.{attempt}"
            params = ZooJob(str(self.root), chunk, wave.steps, LIMIT_S)
            limit = LIMIT_S * len(left) + 120
            process = await launcher.start(Order(label, "zoo", params, system.this_interpreter().path, environment, limit))
            evidence = await process.result()
            await process.end()
            if evidence.ending is not Ending.OK:
                begun = self._at.get(label)
                if begun is None or begun not in left:
                    self.failures.append(f"{label}: {evidence.detail}")
                    return
                lost = self.root / folder_of(begun[0]) / f"{begun[1]}.lost"
                lost.parent.mkdir(exist_ok=True)  # the worker may have ended before it made it
                lost.write_text(evidence.detail, encoding="utf-8")
            attempt += 1


def children_seconds() -> float:
    """Processor time of all ended children, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

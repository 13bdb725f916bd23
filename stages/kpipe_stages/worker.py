"""What every stage gets besides its job: a channel to the orchestrator, observations, clocks, and who it is.

The channel is the process's original stdout: JSON lines. Everything that frameworks print goes to ``stage.log`` by file descriptor
(C++ writes past ``sys.stdout``). Commands come on stdin, a word a line; when stdin ends, the orchestrator is gone and so is the worker.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import queue
import resource
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe_stages.codec import encode
from kpipe_stages.protocol import Identity, Observation

if TYPE_CHECKING:
    from collections.abc import Callable

NUMERIC_CPU_FEATURES = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8", "amx_fp16")


@dataclass(frozen=True)
class Inheritance:
    """What a forked worker got from the process that it was forked from."""

    imports: Mapping[str, float] = field(default_factory=dict)
    """Module to the seconds that its import took there."""
    file_bytes: int = 0
    """Resident pages of mapped files (libraries) there: the system counts them for a process only where it touches them itself."""


NOTHING = Inheritance()


class Worker:
    """The stage's side of the conversation."""

    def __init__(self, stage: str, folder: Path, channel: int, inherited: Inheritance = NOTHING) -> None:
        self.stage = stage
        self.folder = folder
        self.inherited = inherited
        self.phase = "start"
        self.observations: list[Observation] = []
        self.distributions: list[str] = []
        self.kept: Any = None
        """What a stage's ``run`` leaves for its ``measure``, in the same process."""
        self.threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
        self._channel = channel
        self._lock = threading.Lock()
        self._commands: queue.Queue[str] = queue.Queue()

    def listen(self) -> None:
        """Read commands in the background; leave when the orchestrator has gone."""
        threading.Thread(target=self._read_commands, daemon=True, name="kpipe-commands").start()

    def _read_commands(self) -> None:
        for line in sys.stdin:
            self._commands.put(line.strip())
        os._exit(3)

    def wait_for(self, *commands: str) -> str:
        """Block until one of ``commands`` comes, and return it, or until ``stop`` does: empty then."""
        self.emit("waiting", command=" or ".join(commands))
        while True:
            word = self._commands.get()
            if word in commands:
                return word
            if word == "stop":
                return ""

    def emit(self, event: str, **facts: Any) -> None:
        """Send one event."""
        line = json.dumps({"event": event, "stage": self.stage, **encode(facts)}, allow_nan=False) + "\n"
        with self._lock:
            os.write(self._channel, line.encode())

    def progress(self, what: str, done: int = 0, total: int = 0) -> None:
        """Say how far the stage is; ``total`` 0 where it isn't known."""
        self.emit("progress", what=what, done=done, total=total)

    def enter(self, phase: str) -> None:
        """Name the phase that a later exception belongs to."""
        self.phase = phase
        self.emit("phase", phase=phase)

    def observe(self, code: str, cause: str, remedy: str, place: str = "", **evidence: Any) -> None:
        """Add an observation to the result."""
        self.observations.append(Observation(code=code, cause=cause, remedy=remedy, place=place, evidence=evidence))

    def timed(self, phase: str, work: Callable[[], Any]) -> tuple[Any, float]:
        """Run ``work`` as ``phase``; return its value and the seconds it took."""
        self.enter(phase)
        start = time.perf_counter()
        value = work()
        return value, time.perf_counter() - start

    def identity(self) -> Identity:
        """Who this process is, read from the process."""
        keras = sys.modules.get("keras")
        return Identity(
            stage=self.stage,
            pid=os.getpid(),
            python=platform.python_version(),
            versions={name: version for name in self.distributions if (version := distribution_version(name))},
            backend=keras.backend.backend() if keras is not None else None,
            threads=self.threads,
            cpu=cpu_model(),
            cpu_features=cpu_features(),
            inherited=dict(self.inherited.imports),
        )

    def peak_rss_bytes(self) -> int:
        """Peak resident memory in bytes. A forked worker's is an upper bound: inherited pages that it touched itself count twice.

        On Linux the peak of this program's own memory: `getrusage` has that of the process that started it, from before the program began
        (`man 2 getrusage`: maxrss outlives execve), so that every small worker would be as large as the orchestrator.
        """
        own = _status_bytes("VmHWM:")
        if not own:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            own = peak if sys.platform == "darwin" else peak * 1024
        return own + self.inherited.file_bytes


def distribution_version(name: str) -> str | None:
    """Installed version of a distribution, None where it isn't installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpuinfo(key: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.split("\t")[0].strip() == key), "")


def cpu_model() -> str:
    """The processor's name as the system gives it."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def cpu_features() -> tuple[str, ...]:
    """The features of this CPU that change what a runtime computes in."""
    flags = set(_cpuinfo("flags").split())
    return tuple(name for name in NUMERIC_CPU_FEATURES if name in flags)


def resident_file_bytes() -> int:
    """Resident memory of this process that files are mapped to; 0 where the system doesn't say."""
    return _status_bytes("RssFile:")


def _status_bytes(key: str) -> int:
    """A size from ``/proc/self/status``; 0 where the system doesn't say."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), 0)

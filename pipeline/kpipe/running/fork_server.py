"""The orchestrator's side of `kpipe_stages.fork_server`: TensorFlow is imported once, while the archive is looked at, and forked per worker.

`multiprocessing`'s own fork server would start with this process's environment and needs its pickles; workers get a private environment and
read files. Where the server isn't there (another system, a module missing, ended early) workers are started as usual: nothing depends on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

READ = 2**16
LOST = 255
"""Exit code of a worker that ended after the server."""


class Input(Protocol):
    """A process's stdin."""

    def write(self, data: bytes, /) -> None:
        """Send bytes without waiting."""


class Process(Protocol):
    """What a worker's keeper needs of its process: one of asyncio's has it too."""

    @property
    def pid(self) -> int:
        """The process and its group."""

    @property
    def stdin(self) -> Input | None:
        """Commands go in here."""

    @property
    def stdout(self) -> asyncio.StreamReader | None:
        """Events come out here."""

    async def wait(self) -> int:
        """Its exit code; negative: the signal that ended it."""


class Forked:
    """A worker that the server has forked."""

    def __init__(
        self, pid: int, code: asyncio.Future[int], stdin: asyncio.WriteTransport, stdout: asyncio.StreamReader, reading: asyncio.ReadTransport
    ) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self._reading = reading
        self._code = code

    async def wait(self) -> int:
        """The exit code, from the server; once that has gone, `LOST` as soon as the process has ended."""
        return await asyncio.shield(self._code)

    def close(self) -> None:
        """Let go of its pipes: nobody listens any more."""
        self.stdin.close()
        self._reading.close()


@dataclass(frozen=True)
class _Asked:
    """A fork that was asked for."""

    pid: asyncio.Future[int]
    code: asyncio.Future[int]


class ForkServer:
    """One server, for one interpreter and one environment."""

    def __init__(self, python: str, environment: Mapping[str, str], modules: tuple[str, ...]) -> None:
        self.python = python
        self.environment = dict(environment)
        self._modules = modules
        self._process: asyncio.subprocess.Process | None = None
        self._channel: socket.socket | None = None
        self._starting: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asked: dict[str, _Asked] = {}

    @staticmethod
    def possible() -> bool:
        """Whether this system forks soundly and can hand over descriptors and watch processes by one."""
        return sys.platform == "linux" and hasattr(os, "pidfd_open") and hasattr(socket, "send_fds")

    def begin(self, folder: Path, slots: asyncio.Semaphore, limit: float) -> None:
        """Import in the background, in one of the slots, ``limit`` seconds at most; what the server prints goes to ``stage.log`` in ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        self._starting = asyncio.create_task(self._begin(folder, slots, limit))

    async def _begin(self, folder: Path, slots: asyncio.Semaphore, limit: float) -> None:
        async with slots:
            try:
                await self._start(folder)
            except OSError:  # the interpreter or a socket can't be had
                self._settle(there=False)
            await self.ready(limit)

    async def _start(self, folder: Path) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)  # noqa: FBT003 - the socket's own signature
        self._channel = ours
        with theirs, (folder / "stage.log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                self.python,
                "-P",
                "-m",
                "kpipe_stages.fork_server",
                *self._modules,
                stdin=theirs.fileno(),
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )
        self._reader = asyncio.create_task(self._read())

    def _settle(self, *, there: bool) -> None:
        if not self._ready.done():
            self._ready.set_result(there)
        elif self._ready.result() and not there:
            self._ready = asyncio.get_running_loop().create_future()
            self._ready.set_result(False)

    async def ready(self, limit: float) -> bool:
        """Wait for the imports, ``limit`` seconds at most; False where there will be no server: one that is late is given up."""
        done, _ = await asyncio.wait([self._ready], timeout=limit)
        if not done:
            self._settle(there=False)
            self._kill()
        return self._ready.result()

    def serves(self, python: str, environment: Mapping[str, str]) -> bool:
        """Whether a worker of this server is what a process of its own would be."""
        return python == self.python and dict(environment) == self.environment

    async def fork(self, stage: str, job: Path, log: int) -> Forked:
        """A new worker.

        Args:
            stage: the stage's name.
            job: its job file.
            log: descriptor that its stderr goes to.

        Raises:
            OSError: the server isn't there, or the system refuses.
        """
        if self._channel is None or not self._ready.done() or not self._ready.result():
            raise OSError("the fork server is not there")
        loop = asyncio.get_running_loop()
        name, asked = uuid.uuid4().hex, _Asked(loop.create_future(), loop.create_future())
        commands, give = os.pipe()
        take, events = os.pipe()
        stdout = asyncio.StreamReader(limit=2**26)
        reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(take, "rb", 0))
        stdin, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(give, "wb", 0))
        try:
            self._asked[name] = asked
            socket.send_fds(self._channel, [json.dumps({"id": name, "stage": stage, "job": str(job)}).encode()], [commands, events, log])
            return Forked(await asked.pid, asked.code, stdin, stdout, reading)
        except BaseException:  # a worker that the server forked all the same ends with its stdin
            stdin.close()
            reading.close()
            raise
        finally:
            os.close(commands)
            os.close(events)

    async def _read(self) -> None:
        """Answers, until the server ends."""
        assert self._channel is not None
        rest = b""
        with contextlib.suppress(OSError):
            while data := await asyncio.get_running_loop().sock_recv(self._channel, READ):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._hear(json.loads(line))
        await self._lost()

    def _hear(self, facts: dict[str, Any]) -> None:
        if "ready" in facts:
            self._settle(there=True)
        elif "pid" in facts:
            self._asked[facts["id"]].pid.set_result(facts["pid"])
        else:
            self._asked.pop(facts["id"]).code.set_result(facts["code"])

    async def _lost(self) -> None:
        """The server has gone: nobody may wait for it. Workers that are alive work on; their exit codes are lost."""
        self._settle(there=False)
        for asked in self._asked.values():
            if not asked.pid.done():
                asked.pid.set_exception(OSError("the fork server ended"))
        for asked in self._asked.values():
            if asked.pid.exception() is None:
                await _ended(asked.pid.result())
                asked.code.set_result(LOST)

    async def close(self) -> None:
        """End the server; its workers are their keepers' business."""
        for task in (self._starting, self._reader):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._kill()
        if self._process is not None:
            await self._process.wait()
        if self._channel is not None:
            self._channel.close()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


async def _ended(pid: int) -> None:
    """Wait for the end of a process that is nobody's child here."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(watch, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(watch)
        os.close(watch)

"""Worker processes: started in an environment built for them, told by file, watched, ended.

Nothing here knows what a stage does. Crash, hang, out of memory and kill each become an `Ending`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kpipe.evidence import Ending, StageEvidence
from kpipe.running.fork_server import Forked, ForkServer, Process
from kpipe.text import first_line
from kpipe_stages.catalog import FORKED
from kpipe_stages.codec import CodecError, encode, read_json, write_json
from kpipe_stages.protocol import MEMORY_SIGNS, PROTOCOL, Job, Result, Status

INHERITED = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "SYSTEMROOT",
    "PYTHONDONTWRITEBYTECODE",
    "COVERAGE_PROCESS_START",
    "COVERAGE_PROCESS_CONFIG",
)
"""All that a worker keeps of the caller's environment: a stray KERAS_BACKEND or PYTHONPATH never reaches one."""

GRACE_S = 5.0
"""Between asking a worker to stop and killing it."""

ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "NPROC": "1",
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
}
"""What holds JAX and TensorFlow to one thread. XLA's flag alone leaves matrix products on several; NPROC is what sizes its thread pool."""


def worker_environment(home: Path, *, backend: str | None, threads: int, cache: Path) -> dict[str, str]:
    """The whole environment of a worker. ``home`` is private: it opts out of telemetry and holds no ``keras.json``."""
    environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
    environment |= {
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "KERAS_HOME": str(home / "keras"),
        "XDG_CACHE_HOME": str(cache),
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
        "CUDA_VISIBLE_DEVICES": "-1",
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TF_USE_LEGACY_KERAS": "0",
        "GLOG_minloglevel": "2",
        "NO_COLOR": "1",
    }
    if backend:
        environment["KERAS_BACKEND"] = backend
    if threads:
        environment |= {name: str(threads) for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")}
    return environment


def worker_settings() -> dict[str, str]:
    """What every worker is told by its environment, without the paths of one run and what is the caller's own."""
    told = worker_environment(Path(), backend=None, threads=0, cache=Path())
    return {name: value for name, value in told.items() if name not in {*INHERITED, "HOME", "TMPDIR", "KERAS_HOME", "XDG_CACHE_HOME"}}


def make_home(folder: Path) -> Path:
    """A private HOME: OpenVINO's telemetry is off, Keras finds no configuration, and what frameworks leave in TMPDIR lies in it."""
    for name in ("keras", "intel", "tmp"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "intel" / "openvino_telemetry").write_text("0", encoding="utf-8")
    return folder


@dataclass(frozen=True)
class Order:
    """One stage to run."""

    name: str
    """Folder below ``stages/``."""
    stage: str
    """A name of `kpipe_stages.catalog.STAGES`."""
    params: Any
    """The stage's job dataclass."""
    python: str
    environment: Mapping[str, str]
    time_limit_s: float
    search_path: str = ""
    """Where a foreign interpreter finds `kpipe_stages`."""
    own_process: bool = False
    """Never fork it from a process that has done its imports: what a cold start or the memory of this very target is, is the question."""


@dataclass
class Launcher:
    """Starts workers for one run and keeps their evidence."""

    folder: Path
    """The run's ``stages`` folder."""
    began: float
    """`time.monotonic` when the run began."""
    on_event: Callable[[str, dict[str, Any]], None]
    resume: bool = False
    fork_server: ForkServer | None = None
    alive: dict[str, WorkerProcess] = field(default_factory=dict)
    working: set[str] = field(default_factory=set)

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.began

    async def start(self, order: Order) -> WorkerProcess:
        """Start a worker, or take a finished one's answer when the run is resumed and the order is the same."""
        folder = self.folder / order.name
        process = WorkerProcess(order, folder, self)
        if self.resume and (known := finished(folder, order)):
            process.evidence = replace(known, name=order.name)
            return process
        set_aside(folder)
        try:
            await process.spawn()
        except OSError as error:  # the interpreter went away, or the system has no process left to give
            process.evidence = StageEvidence(
                order.name, Ending.NOT_STARTED, f"{order.python} can't be started: {error.strerror}", self.now(), self.now(), None
            )
        return process

    def server_for(self, order: Order) -> ForkServer | None:
        """The fork server, where it can run the order just as a process of its own would."""
        server = self.fork_server
        if server is None or order.stage not in FORKED or order.own_process or order.search_path:
            return None
        return server if server.serves(order.python, order.environment) else None

    async def close(self) -> None:
        """End every worker that is left."""
        await asyncio.gather(*(process.end() for process in list(self.alive.values())))
        if self.fork_server is not None:
            await self.fork_server.close()


def set_aside(folder: Path) -> None:
    """Move an earlier attempt's folder away, so that nothing of it can be read as this one's."""
    if folder.exists():
        number = 1
        while (aside := folder.with_name(f"{folder.name}.attempt-{number}")).exists():
            number += 1
        folder.rename(aside)
    folder.mkdir(parents=True)


def same_order(folder: Path, order: Order) -> Job | None:
    """The job in ``folder`` if it is this very order."""
    try:
        job = read_json(Job, folder / "job.json")
    except (OSError, CodecError):
        return None
    return job if job.stage == order.stage and job.params == encode(order.params) else None


def finished(folder: Path, order: Order) -> StageEvidence | None:
    """A finished stage's evidence, if ``folder`` holds one for this very order and it succeeded."""
    job = same_order(folder, order)
    result = read_answer(folder / "result.json", job.attempt) if job else None
    if result is None or result.status is not Status.OK:
        return None
    timing = read_answer(folder / "timing.json", job.attempt) if job else None
    shapes = read_answer(folder / "shapes.json", job.attempt) if job else None
    if (timing is None and wants_timing(order)) or (wants_shapes(order) and (shapes is None or shapes.data.get("trying"))):
        return None  # the process that could be timed, or go on, is gone
    return StageEvidence(
        order.name,
        Ending.OK,
        "",
        0.0,
        0.0,
        result,
        timing,
        reused=True,
        timing_due=wants_timing(order),
        shapes=shapes,
        shapes_due=wants_shapes(order),
    )


def wants_timing(order: Order) -> bool:
    """Whether the stage is to be timed after its answer."""
    plan = getattr(order.params, "timing", None)
    return plan is not None and bool(plan.calls or plan.end_to_end_calls) and not order.params.load_only


def wants_shapes(order: Order) -> bool:
    """Whether shapes are to be tried on the stage after its answer."""
    return bool(getattr(order.params, "shapes", ())) and not order.params.load_only


def read_answer(path: Path, attempt: str) -> Result | None:
    """A stage's answer, None where there is none of this attempt."""
    try:
        result = read_json(Result, path)
    except (OSError, CodecError):
        return None
    return result if result.attempt == attempt and result.protocol == PROTOCOL else None


def _event(line: bytes) -> dict[str, Any] | None:
    """One line of the channel; None for what is none: that loses progress, never a result, which is a file."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


class WorkerProcess:
    """One worker, from start to end."""

    def __init__(self, order: Order, folder: Path, launcher: Launcher) -> None:
        self.order = order
        self.folder = folder
        self.evidence: StageEvidence | None = None
        self.parked = False
        self._launcher = launcher
        self._attempt = uuid.uuid4().hex
        self._process: Process | None = None
        self._events: asyncio.Queue[str] = asyncio.Queue()
        self._reader: asyncio.Task[None] | None = None
        self._begin = launcher.now()
        self.shared = False

    async def spawn(self) -> None:
        """Write the job and start the process."""
        order = self.order
        write_json(self.folder / "job.json", Job(PROTOCOL, order.stage, self._attempt, str(self.folder), encode(order.params)))
        with (self.folder / "stage.log").open("wb") as log:
            self._process = await self._forked(log.fileno()) or await self._started(log.fileno())
        self._launcher.alive[order.name] = self
        self._working(active=True)
        self._reader = asyncio.create_task(self._read())

    async def _forked(self, log: int) -> Process | None:
        """Fork it from the server; None where there is none for it."""
        server = self._launcher.server_for(self.order)
        if server is None:
            return None
        with contextlib.suppress(OSError):  # whatever ails the server, a process of its own does the same work
            return await server.fork(self.order.stage, self.folder / "job.json", log)
        return None

    async def _started(self, log: int) -> Process:
        order = self.order
        environment = dict(order.environment)
        if order.search_path:
            environment["PYTHONPATH"] = order.search_path
        return await asyncio.create_subprocess_exec(
            order.python,
            "-P",
            "-m",
            "kpipe_stages",
            order.stage,
            str(self.folder / "job.json"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=environment,
            start_new_session=True,
            limit=2**26,
        )

    def _working(self, *, active: bool) -> None:
        working = self._launcher.working
        (working.add if active else working.discard)(self.order.name)
        if len(working) > 1:
            for name in working:
                self._launcher.alive[name].shared = True

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async for line in self._process.stdout:
                if (event := _event(line)) is not None:
                    self._events.put_nowait(event["event"])  # before anyone who listens can raise
                    with contextlib.suppress(CodecError):  # what an early word says comes again in the answer
                        self._launcher.on_event(self.order.name, event)
        finally:
            self._events.put_nowait("ended")

    async def _until(self, wanted: str, limit: float) -> bool:
        """Wait for an event (True), or for the end of the process or of the time (False)."""
        try:
            async with asyncio.timeout(limit):
                while (event := await self._events.get()) != "ended":
                    if event == wanted:
                        return True
                assert self._reader is not None
                self._events.put_nowait("ended")  # for whoever waits for the next phase
                await self._reader  # what a listener raised is raised here: with nobody reading, the worker would never be done
        except TimeoutError:
            await self._kill()
            raise
        return False

    async def result(self) -> StageEvidence:
        """Wait for the stage's answer."""
        if self.evidence is not None:
            return self.evidence
        try:
            answered = await self._until("result", self.order.time_limit_s)
        except TimeoutError:
            self.evidence = self._outcome(Ending.TIMED_OUT, f"no answer within {self.order.time_limit_s:g} s")
            return self.evidence
        finally:
            self._working(active=False)
        result = read_answer(self.folder / "result.json", self._attempt) if answered else None
        if result is None:
            self.evidence = await self._death()
        else:
            self.evidence = self._answered(result)
        self.parked = self.evidence.ending is Ending.OK
        return self.evidence

    def _answered(self, result: Result) -> StageEvidence:
        if result.status is Status.OK:
            return self._outcome(Ending.OK, "", result)
        failure = result.failure
        memory = failure is not None and any(sign in f"{failure.type}: {failure.message}" for sign in MEMORY_SIGNS)
        detail = f"{failure.type}: {first_line(failure.message)}" if failure else first_line(result.observations[-1].cause)
        return self._outcome(Ending.OUT_OF_MEMORY if memory else Ending.FAILED, detail, result)

    async def measure(self) -> StageEvidence:
        """Let the worker run its timed phase; the evidence gets its answer, or why there is none."""
        assert self.evidence is not None
        if self.evidence.reused or not self.parked:
            return self.evidence
        lost = await self._phase("time", "timed")
        timing = None if lost else read_answer(self.folder / "timing.json", self._attempt)
        if timing is None and not lost:
            lost = "its answer can't be read"
        self.evidence = replace(self.evidence, timing=timing, timing_lost=lost, end_s=self._launcher.now())
        return self.evidence

    async def try_shapes(self) -> StageEvidence:
        """Let the worker try its shapes; the evidence gets what it found, and why it didn't get to the end where it didn't."""
        assert self.evidence is not None
        if self.evidence.reused or not self.parked:
            return self.evidence
        lost = await self._phase("shapes", "shaped")
        shapes = read_answer(self.folder / "shapes.json", self._attempt)
        failed = read_answer(self.folder / "shapes_failed.json", self._attempt)
        if failed is not None and not lost:
            lost = f"{failed.failure.type}: {first_line(failed.failure.message)}" if failed.failure else first_line(failed.observations[-1].cause)
        if shapes is None and not lost:
            lost = "its answer can't be read"
        self.evidence = replace(self.evidence, shapes=shapes, shapes_lost=lost, end_s=self._launcher.now())
        return self.evidence

    async def _phase(self, command: str, wanted: str) -> str:
        """Have the worker do what comes after its answer; why it didn't, empty where it did."""
        self.command(command)
        self._working(active=True)
        try:
            return "" if await self._until(wanted, self.order.time_limit_s) else f"the worker ended: {self._last_words()}"
        except TimeoutError:
            return f"no answer within {self.order.time_limit_s:g} s"
        finally:
            self._working(active=False)

    def command(self, word: str) -> None:
        """Send the worker a word; one that is gone is noticed where its answer is missed."""
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._process.stdin.write(f"{word}\n".encode())

    async def end(self) -> None:
        """Ask the worker to leave; kill it if it does not."""
        if self._process is None:
            return
        self.command("stop")
        try:
            async with asyncio.timeout(GRACE_S if self.parked else 0.2):
                await self._process.wait()
        except TimeoutError:
            await self._kill()
        await self._gone()

    async def _gone(self) -> None:
        if self._reader is not None:  # a listener's exception has been raised where the stage was waited for
            await self._let_go(self._reader)
        if isinstance(self._process, Forked):
            self._process.close()
        self._working(active=False)
        self._launcher.alive.pop(self.order.name, None)

    async def _let_go(self, reader: asyncio.Task[None]) -> None:
        """Wait for the channel to close; a child that the worker left behind holds it, and is in the worker's group."""
        _, held = await asyncio.wait([reader], timeout=GRACE_S)
        if held:
            self._kill_group()
            await asyncio.wait([reader], timeout=GRACE_S)
            reader.cancel()

    def _kill_group(self) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _kill(self) -> None:
        assert self._process is not None
        self._kill_group()
        await self._process.wait()

    async def _death(self) -> StageEvidence:
        assert self._process is not None
        try:
            async with asyncio.timeout(GRACE_S):
                code = await self._process.wait()
        except TimeoutError:
            await self._kill()
            return self._outcome(Ending.CRASHED, f"it closed its channel without an answer and did not end: {self._last_words()}")
        words = self._last_words()
        if code == -signal.SIGKILL or any(sign in words for sign in MEMORY_SIGNS):
            return self._outcome(Ending.OUT_OF_MEMORY, f"killed by the system, most likely for memory: {words}")
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return self._outcome(Ending.CRASHED, f"{how}: {words}")

    def _last_words(self) -> str:
        """The last lines of the log, on one line."""
        try:
            with (self.folder / "stage.log").open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 4000))
                lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
        except OSError:
            lines = []
        return " | ".join(lines[-3:])[-500:] or "nothing in the log"

    def _outcome(self, ending: Ending, detail: str, result: Result | None = None) -> StageEvidence:
        return StageEvidence(
            self.order.name,
            ending,
            detail,
            self._begin,
            self._launcher.now(),
            result,
            shared=self.shared,
            timing_due=wants_timing(self.order),
            shapes_due=wants_shapes(self.order),
        )

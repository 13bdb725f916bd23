"""Worker processes, for real: what they may inherit, every way in which they can end, and that none is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kpipe.evidence import Ending, StageEvidence
from kpipe.running import launch
from kpipe.running.launch import INHERITED, Launcher, Order, WorkerProcess, finished, make_home, read_answer, worker_environment
from kpipe.running.single import run_stage
from kpipe_stages.codec import CodecError, decode, encode, read_json, write_json
from kpipe_stages.protocol import GoldenItem, InputSpec, Job, PrepareJob, PrepareResult, Result, RunJob, TimingPlan, Trust

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

FAST = 20.0
"""Seconds that a good worker has on a busy machine."""

PREAMBLE = """\
#!{python} -P
import json, os, pathlib, signal, sys, time
from kpipe_stages.codec import encode, read_json, write_json
from kpipe_stages.protocol import PROTOCOL, Failure, Job, Result, Status
from kpipe_stages.worker import Worker
job = read_json(Job, sys.argv[5])
folder = pathlib.Path(job.folder)
good = Result(PROTOCOL, job.stage, job.attempt, Status.OK, None, (), None, {{}}, 0.1, 1)
def say(event):
    print(json.dumps({{"event": event, "stage": job.stage}}), flush=True)
"""


@pytest.fixture
def job(tmp_path: Path) -> PrepareJob:
    path = tmp_path / "row.npy"
    np.save(path, np.ones(3, np.float32))
    from kpipe.golden import sha256_of

    return PrepareJob((GoldenItem("one", {"x": str(path)}, {"x": sha256_of(path)}),), (InputSpec("x", "npy"),))


def order(job: Any, folder: Path, *, python: str = sys.executable, limit: float = FAST, name: str = "prepare", stage: str = "prepare") -> Order:
    environment = worker_environment(make_home(folder / "home"), backend=None, threads=0, cache=folder / "cache")
    return Order(name, stage, job, python, environment, limit)


def script(folder: Path, body: str) -> str:
    """An interpreter that does not do what one does."""
    path = folder / f"python-{len(list(folder.iterdir()))}"
    path.write_text(PREAMBLE.format(python=sys.executable) + textwrap.dedent(body))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def run(folder: Path, work: Callable[[Launcher], Awaitable[Any]], **changes: Any) -> Any:
    """``work`` with a launcher that is closed in any case."""

    async def whole() -> Any:
        launcher = Launcher(folder / "stages", time.monotonic(), changes.pop("on_event", lambda *_: None), **changes)
        try:
            return await asyncio.wait_for(work(launcher), 60)
        finally:
            await launcher.close()
            assert launcher.alive == {}

    return asyncio.run(whole())


def outcome(folder: Path, what: Order, **changes: Any) -> StageEvidence:
    """Start, wait for the answer, end."""

    async def work(launcher: Launcher) -> StageEvidence:
        process = await launcher.start(what)
        evidence = await process.result()
        await process.end()
        return evidence

    evidence: StageEvidence = run(folder, work, **changes)
    return evidence


def gone(pid: int, within: float = 15.0) -> bool:
    """Whether a process has ended, or ends in time."""
    deadline = time.monotonic() + within
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if _is_zombie(pid):
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)


def _is_zombie(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return state.strip().startswith("Z") or not state.strip()


# ---------------------------------------------------------------- good ones


def test_a_stage_answers_and_leaves(tmp_path: Path, job: PrepareJob) -> None:
    events: list[str] = []
    evidence = outcome(tmp_path, order(job, tmp_path), on_event=lambda _, event: events.append(event["event"]))
    assert (evidence.ending, evidence.detail, evidence.reused, evidence.shared) == (Ending.OK, "", False, False)
    assert evidence.result is not None
    assert decode(PrepareResult, evidence.result.data).rows == 1
    assert events[0] == "started"
    assert "result" in events
    assert evidence.result.identity is not None
    assert gone(evidence.result.identity.pid, 5)
    written = read_json(Job, tmp_path / "stages" / "prepare" / "job.json")
    assert written.attempt == evidence.result.attempt


def test_a_stage_on_its_own_leaves_nothing(job: PrepareJob) -> None:
    evidence = run_stage("prepare", job, backend=None, time_limit_s=FAST)
    assert evidence.ending is Ending.OK
    assert evidence.result is not None
    assert evidence.result.data["rows"] == 1


def test_a_stage_that_can_not_says_why(tmp_path: Path, job: PrepareJob) -> None:
    evidence = outcome(tmp_path, order(replace(job, items=()), tmp_path))
    assert evidence.ending is Ending.FAILED
    assert "0 golden inputs" in evidence.detail
    broken = outcome(tmp_path, order({"nonsense": 1}, tmp_path, name="broken"))
    assert broken.ending is Ending.FAILED
    assert "nonsense" in broken.detail


# ---------------------------------------------------------------- the environment


def test_nothing_of_the_callers_reaches_a_worker_but_what_is_listed(tmp_path: Path, job: PrepareJob, monkeypatch: pytest.MonkeyPatch) -> None:
    strays = ("KERAS_BACKEND", "KERAS_HOME", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "JAX_ENABLE_X64", "TF_ENABLE_ONEDNN_OPTS", "LD_PRELOAD")
    for name in (*strays, "OMP_NUM_THREADS", "XLA_FLAGS", "HOME", "XDG_CACHE_HOME", "PYTHONHASHSEED", "KPIPE_CACHE_DIR", "SOMETHING"):
        if name != "LD_PRELOAD":
            monkeypatch.setenv(name, "/stray")
    environment = worker_environment(make_home(tmp_path / "home"), backend="jax", threads=0, cache=tmp_path / "cache")
    assert "/stray" not in environment.values()
    assert environment["KERAS_BACKEND"] == "jax"
    assert environment["KERAS_HOME"] == str(tmp_path / "home" / "keras")
    assert list((tmp_path / "home" / "keras").iterdir()) == []
    assert (tmp_path / "home" / "intel" / "openvino_telemetry").read_text() == "0"
    python = script(tmp_path, "write_json(folder / 'env.json', dict(os.environ)); write_json(folder / 'result.json', good); say('result')")
    what = replace(order(job, tmp_path, python=python), environment=environment)
    assert outcome(tmp_path, what).ending is Ending.OK
    seen = read_json(dict[str, str], tmp_path / "stages" / "prepare" / "env.json")
    added = {"LC_CTYPE", "PWD", "SHLVL", "_"}
    assert set(seen) - added <= set(environment) | set(INHERITED)
    assert {name: value for name, value in seen.items() if name in environment} == environment
    assert not set(strays) - {"KERAS_BACKEND", "KERAS_HOME"} & set(seen)


def test_backend_and_threads_are_told_only_where_they_are_set(tmp_path: Path) -> None:
    bare = worker_environment(tmp_path, backend=None, threads=0, cache=tmp_path)
    assert "KERAS_BACKEND" not in bare
    assert "OMP_NUM_THREADS" not in bare
    told = worker_environment(tmp_path, backend="tensorflow", threads=3, cache=tmp_path)
    assert (told["KERAS_BACKEND"], told["OMP_NUM_THREADS"], told["TF_NUM_INTRAOP_THREADS"]) == ("tensorflow", "3", "3")


def test_a_foreign_interpreter_finds_the_workers_where_it_is_told(tmp_path: Path, job: PrepareJob) -> None:
    python = script(tmp_path, "assert os.environ['PYTHONPATH'] == '/copy'; write_json(folder / 'result.json', good); say('result')")
    assert outcome(tmp_path, replace(order(job, tmp_path, python=python), search_path="/copy")).ending is Ending.OK


# ---------------------------------------------------------------- bad endings

NO_MEMORY = """
import dataclasses
failure = Failure("run", "MemoryError", "Unable to allocate", "")
write_json(folder / "result.json", dataclasses.replace(good, status=Status.FAILED, failure=failure))
say("result")
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("body", "ending", "detail"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", Ending.CRASHED, "signal SIGSEGV"),
        ("print('it went wrong', file=sys.stderr); sys.exit(7)", Ending.CRASHED, "exit code 7: it went wrong"),
        ("sys.exit(0)", Ending.CRASHED, "exit code 0: nothing in the log"),
        ("say('result')", Ending.CRASHED, "exit code 0"),
        ("say('done')", Ending.CRASHED, "exit code 0"),
        ("os.kill(os.getpid(), signal.SIGKILL)", Ending.OUT_OF_MEMORY, "killed by the system"),
        ("os.write(2, b'terminate called: std::bad_alloc'); os.kill(os.getpid(), signal.SIGABRT)", Ending.OUT_OF_MEMORY, "std::bad_alloc"),
        ("(folder / 'result.json').write_text('{'); say('result')", Ending.CRASHED, "exit code 0"),
        ("(folder / 'result.json').write_bytes(bytes([255])); say('result')", Ending.CRASHED, "exit code 0"),
        ("import dataclasses as d; write_json(folder / 'result.json', d.replace(good, attempt='an earlier one')); say('result')", Ending.CRASHED, ""),
        ("import dataclasses as d; write_json(folder / 'result.json', d.replace(good, protocol=99)); say('result')", Ending.CRASHED, ""),
        ("write_json(folder / 'result.json', {**encode(good), 'status': 'fine'}); say('result')", Ending.CRASHED, ""),
        (
            NO_MEMORY,
            Ending.OUT_OF_MEMORY,
            "MemoryError: Unable to allocate",
        ),
    ],
)
def test_a_worker_without_a_good_answer_of_this_attempt_has_not_succeeded(
    tmp_path: Path, job: PrepareJob, body: str, ending: Ending, detail: str
) -> None:
    evidence = outcome(tmp_path, order(job, tmp_path, python=script(tmp_path, body)))
    assert evidence.ending is ending
    assert detail in evidence.detail
    assert evidence.result is None or evidence.result.failure is not None


def test_another_protocol_of_the_job_is_refused_by_the_worker(tmp_path: Path, job: PrepareJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "PROTOCOL", 99)
    evidence = outcome(tmp_path, order(job, tmp_path))
    assert evidence.ending is Ending.CRASHED
    assert "protocol 99" in evidence.detail
    assert "speaks 1" in evidence.detail


def test_a_hang_ends_at_its_limit_with_everything_it_started(tmp_path: Path, job: PrepareJob) -> None:
    body = """
    import subprocess
    child = subprocess.Popen(["sleep", "300"])
    (folder / "pids").write_text(f"{os.getpid()} {child.pid}")
    time.sleep(300)
    """
    evidence = outcome(tmp_path, order(job, tmp_path, python=script(tmp_path, body), limit=3.0))
    assert evidence.ending is Ending.TIMED_OUT
    assert "3 s" in evidence.detail
    assert all(gone(int(pid)) for pid in (tmp_path / "stages" / "prepare" / "pids").read_text().split())


def test_a_worker_that_closes_its_channel_and_stays_is_ended(tmp_path: Path, job: PrepareJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "GRACE_S", 0.3)
    body = "(folder / 'pid').write_text(str(os.getpid())); os.close(1); time.sleep(300)"
    evidence = outcome(tmp_path, order(job, tmp_path, python=script(tmp_path, body)))
    assert evidence.ending is Ending.CRASHED
    assert "closed its channel" in evidence.detail
    assert gone(int((tmp_path / "stages" / "prepare" / "pid").read_text()))


def test_an_interpreter_that_is_not_there_is_not_started(tmp_path: Path, job: PrepareJob) -> None:
    evidence = outcome(tmp_path, order(job, tmp_path, python=str(tmp_path / "absent")))
    assert evidence.ending is Ending.NOT_STARTED
    assert "absent can't be started: No such file" in evidence.detail
    (tmp_path / "plain").write_text("")
    assert outcome(tmp_path, order(job, tmp_path, python=str(tmp_path / "plain"))).ending is Ending.NOT_STARTED


@pytest.mark.parametrize("listener", ["broken", "fine"])
def test_chatter_on_the_channel_loses_no_result(tmp_path: Path, job: PrepareJob, listener: str) -> None:
    junk = ["hello", "3", "null", "[1]", '{"no": "event"}', '{"event": 5}', "{" * 5000, "[" * 50_000, "\xff", ""]
    body = f"sys.stdout.write(chr(10).join({junk!r}) + chr(10)); write_json(folder / 'result.json', good); say('progress'); say('result')"
    heard: list[Any] = []

    def on_event(_: str, event: Any) -> None:
        heard.append(event["event"])
        if listener == "broken":
            raise CodecError("an artifact of another form")

    evidence = outcome(tmp_path, order(job, tmp_path, python=script(tmp_path, body)), on_event=on_event)
    assert evidence.ending is Ending.OK
    assert heard == ["progress", "result"]


# ---------------------------------------------------------------- the timed phase

PARKED = "write_json(folder / 'result.json', good); say('result'); word = sys.stdin.readline().strip(); assert word == 'time', word\n"


def timed(folder: Path, body: str, job: PrepareJob, limit: float = FAST) -> StageEvidence:
    async def work(launcher: Launcher) -> StageEvidence:
        process = await launcher.start(order(job, folder, python=script(folder, PARKED + body), limit=limit))
        assert (await process.result()).ending is Ending.OK
        evidence = await process.measure()
        await process.end()
        return evidence

    evidence: StageEvidence = run(folder, work)
    return evidence


def test_a_parked_worker_times_when_it_is_told(tmp_path: Path, job: PrepareJob) -> None:
    evidence = timed(tmp_path, "write_json(folder / 'timing.json', good); say('timed')", job)
    assert evidence.ending is Ending.OK
    assert evidence.timing is not None
    assert evidence.timing_lost == ""


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("os.write(2, b'boom'); os.kill(os.getpid(), signal.SIGSEGV)", "the worker ended: boom"),
        ("say('timed')", "can't be read"),
        ("import dataclasses as d; write_json(folder / 'timing.json', d.replace(good, attempt='old')); say('timed')", "can't be read"),
    ],
)
def test_a_timed_phase_without_an_answer_is_lost_and_said(tmp_path: Path, job: PrepareJob, body: str, why: str) -> None:
    evidence = timed(tmp_path, body, job)
    assert (evidence.ending, evidence.timing) == (Ending.OK, None)
    assert why in evidence.timing_lost


def test_a_timed_phase_that_hangs_is_lost_and_ended(tmp_path: Path, job: PrepareJob) -> None:
    evidence = timed(tmp_path, "(folder / 'pid').write_text(str(os.getpid())); time.sleep(300)", job, limit=3.0)
    assert "no answer within 3 s" in evidence.timing_lost
    assert gone(int((tmp_path / "stages" / "prepare" / "pid").read_text()))


# ---------------------------------------------------------------- attempts


def test_an_earlier_attempt_is_set_aside_and_never_read(tmp_path: Path, job: PrepareJob) -> None:
    first = outcome(tmp_path, order(job, tmp_path))
    second = outcome(tmp_path, order(job, tmp_path, python=script(tmp_path, "say('result')")))
    assert (first.ending, second.ending) == (Ending.OK, Ending.CRASHED)
    assert (tmp_path / "stages" / "prepare.attempt-1" / "result.json").exists()
    assert not (tmp_path / "stages" / "prepare" / "result.json").exists()
    outcome(tmp_path, order(job, tmp_path))
    assert (tmp_path / "stages" / "prepare.attempt-2").exists()


def test_a_resumed_run_takes_what_was_finished_and_nothing_else(tmp_path: Path, job: PrepareJob) -> None:
    what = order(job, tmp_path)
    outcome(tmp_path, what)
    never = replace(what, python=script(tmp_path, "sys.exit(9)"))
    assert outcome(tmp_path, never, resume=True).reused
    folder = tmp_path / "stages" / "prepare"
    assert finished(folder, what) is not None
    assert finished(folder, replace(what, params=replace(job, max_pixels=1))) is None
    assert finished(folder, replace(what, stage="inspect")) is None
    assert finished(tmp_path / "nowhere", what) is None
    answer = read_json(Result, folder / "result.json")
    for wrong in ({"attempt": "other"}, {"status": "failed"}, {"protocol": 2}, {"status": "odd"}, {"later": 1}):
        write_json(folder / "result.json", encode(answer) | wrong)
        assert finished(folder, what) is None
    (folder / "result.json").write_bytes(b"\xff")
    assert finished(folder, what) is None
    assert read_answer(folder / "absent.json", answer.attempt) is None


def test_a_target_that_was_to_be_timed_is_finished_only_with_its_times(tmp_path: Path) -> None:
    job = RunJob("litert", "m.tflite", Trust(), None, None, "", (), 1, (3, 8))
    what = order(job, tmp_path, name="run.litert", stage="run_litert", python=script(tmp_path, PARKED + "sys.exit(0)"))
    outcome(tmp_path, what)
    folder = tmp_path / "stages" / "run.litert"
    assert finished(folder, what) is None
    untimed = replace(what, params=replace(job, timing=TimingPlan(calls=0, end_to_end_calls=0)))
    outcome(tmp_path, untimed)
    assert finished(folder, untimed) is not None


# ---------------------------------------------------------------- company


def test_workers_that_run_at_the_same_time_know_it(tmp_path: Path, job: PrepareJob) -> None:
    slow = script(tmp_path, "time.sleep(1); write_json(folder / 'result.json', good); say('result'); sys.stdin.readline()")

    async def work(launcher: Launcher) -> list[bool]:
        both = [await launcher.start(order(job, tmp_path, python=slow, name=name)) for name in ("a", "b")]
        shared = [(await process.result()).shared for process in both]
        alone = await launcher.start(order(job, tmp_path, python=slow, name="c"))  # the parked ones don't count
        return [*shared, (await alone.result()).shared]

    assert run(tmp_path, work) == [True, True, False]


def test_closing_ends_whatever_is_left(tmp_path: Path, job: PrepareJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "GRACE_S", 0.3)
    deaf = script(tmp_path, "write_json(folder / 'result.json', good); say('result'); time.sleep(300)")

    async def work(launcher: Launcher) -> int:
        parked: WorkerProcess = await launcher.start(order(job, tmp_path, python=deaf))
        await parked.result()
        assert parked._process is not None
        return parked._process.pid

    assert gone(run(tmp_path, work), 5)


def test_a_worker_does_not_outlive_its_orchestrator(tmp_path: Path) -> None:
    worker = script(tmp_path, "Worker(job.stage, folder, 1).listen(); (folder / 'pid').write_text(str(os.getpid())); time.sleep(300)")
    code = """
    import asyncio, sys, time
    from pathlib import Path
    from kpipe.running.launch import Launcher, Order
    async def main():
        launcher = Launcher(Path(sys.argv[1]), time.monotonic(), lambda *_: None)
        process = await launcher.start(Order("prepare", "prepare", {}, sys.argv[2], {}, 300.0))
        await process.result()
    asyncio.run(main())
    """
    orchestrator = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "stages"), worker])
    pid = tmp_path / "stages" / "prepare" / "pid"
    deadline = time.monotonic() + 30
    while not (pid.exists() and pid.read_text()):
        assert time.monotonic() < deadline
        assert orchestrator.poll() is None
        time.sleep(0.05)
    assert not gone(int(pid.read_text()), 0)
    orchestrator.send_signal(signal.SIGKILL)
    orchestrator.wait()
    assert gone(int(pid.read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a program's own peak was")
def test_a_workers_peak_memory_is_its_own_and_not_that_of_who_started_it(tmp_path: Path) -> None:
    ballast = bytearray(300 * 2**20)
    ballast[::4096] = b"x" * len(ballast[::4096])
    program = "from pathlib import Path; from kpipe_stages.worker import Worker; print(Worker('inspect', Path(), 1).peak_rss_bytes())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert 2**22 < int(done.stdout) < 100 * 2**20 < len(ballast)

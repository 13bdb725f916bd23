"""Workers that are forked from a process that has done their imports: the same answers, every ending seen, and no dependence on the server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kpipe.evidence import Ending
from kpipe.golden import sha256_of
from kpipe.running import launch
from kpipe.running.fork_server import LOST, ForkServer
from kpipe.running.launch import Launcher, Order, make_home, worker_environment
from kpipe_stages.codec import decode, encode
from kpipe_stages.lean import EXTRAS, without_extras
from kpipe_stages.protocol import GoldenItem, InputSpec, PrepareJob, PrepareResult

from .test_launch import gone

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

MODULES = ("wave",)
"""Quick to import, and nothing that a worker imports."""


@pytest.fixture
def order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Order:
    monkeypatch.setattr(launch, "FORKED", frozenset({"prepare"}))
    np.save(tmp_path / "row.npy", np.ones(3, np.float32))
    items = (GoldenItem("one", {"x": str(tmp_path / "row.npy")}, {"x": sha256_of(tmp_path / "row.npy")}),)
    environment = worker_environment(make_home(tmp_path / "home"), backend=None, threads=0, cache=tmp_path / "cache")
    return Order("prepare", "prepare", PrepareJob(items, (InputSpec("x", "npy"),)), sys.executable, environment, 20.0)


def served(
    folder: Path, order: Order, work: Callable[[Launcher, ForkServer], Awaitable[Any]], modules: tuple[str, ...] = MODULES, limit: float = 20.0
) -> Any:
    """``work`` with a launcher that has a fork server for the order's environment; both are closed in any case."""

    async def whole() -> Any:
        launcher = Launcher(folder / "stages", time.monotonic(), lambda *_: None)
        launcher.fork_server = ForkServer(order.python, order.environment, modules)
        launcher.fork_server.begin(folder / "stages" / "fork_server", asyncio.Semaphore(1), limit)
        try:
            there = await launcher.fork_server.ready(limit)
            assert there is (modules == MODULES)
            return await asyncio.wait_for(work(launcher, launcher.fork_server), 60)
        finally:
            await launcher.close()

    return asyncio.run(whole())


def server_pid(server: ForkServer) -> int:
    assert server._process is not None
    return server._process.pid


def test_a_forked_worker_answers_as_one_of_its_own_does_and_says_what_it_inherited(tmp_path: Path, order: Order) -> None:
    async def work(launcher: Launcher, _: ForkServer) -> tuple[Any, Any]:
        forked, own = await launcher.start(order), await launcher.start(replace(order, name="own", own_process=True))
        answers = await forked.result(), await own.result()
        await asyncio.gather(forked.end(), own.end())
        return answers

    forked, own = served(tmp_path, order, work)
    assert (forked.ending, own.ending) == (Ending.OK, Ending.OK)
    assert decode(PrepareResult, forked.result.data) == decode(PrepareResult, own.result.data)
    assert list(forked.result.identity.inherited) == ["wave"]
    assert own.result.identity.inherited == {}
    assert forked.result.identity.pid != own.result.identity.pid
    assert forked.result.peak_rss_bytes > 2**20
    assert (tmp_path / "stages" / "prepare" / "stage.log").is_file()
    assert gone(forked.result.identity.pid)


def test_only_an_order_that_a_process_of_its_own_would_run_alike_is_forked(tmp_path: Path, order: Order) -> None:
    async def work(launcher: Launcher, _: ForkServer) -> list[bool]:
        orders = [
            order,
            replace(order, own_process=True),
            replace(order, stage="inspect"),
            replace(order, python="/usr/bin/python3"),
            replace(order, search_path="/elsewhere"),
            replace(order, environment={**order.environment, "OMP_NUM_THREADS": "1"}),
            replace(order, environment={k: v for k, v in order.environment.items() if k != "HOME"}),
        ]
        return [launcher.server_for(o) is not None for o in orders]

    assert served(tmp_path, order, work) == [True, False, False, False, False, False, False]


@pytest.mark.parametrize(
    ("how", "ending", "word"), [(signal.SIGKILL, Ending.OUT_OF_MEMORY, "killed by the system"), (signal.SIGSEGV, Ending.CRASHED, "SIGSEGV")]
)
def test_how_a_forked_worker_ended_is_known(tmp_path: Path, order: Order, how: signal.Signals, ending: Ending, word: str) -> None:
    async def work(launcher: Launcher, _: ForkServer) -> Any:
        process = await launcher.start(slow(order))
        assert process._process is not None
        os.kill(process._process.pid, how)
        return await process.result()

    evidence = served(tmp_path, order, work)
    assert evidence.ending is ending
    assert word in evidence.detail


def test_a_forked_worker_that_takes_too_long_is_ended(tmp_path: Path, order: Order) -> None:
    async def work(launcher: Launcher, _: ForkServer) -> tuple[Any, int]:
        process = await launcher.start(replace(slow(order), time_limit_s=0.5))
        assert process._process is not None
        return await process.result(), process._process.pid

    evidence, pid = served(tmp_path, order, work)
    assert evidence.ending is Ending.TIMED_OUT
    assert gone(pid)


def slow(order: Order) -> Order:
    """The order with more rows than any machine reads before it is killed."""
    item = order.params.items[0]
    return replace(order, params=replace(order.params, items=tuple(replace(item, id=str(number)) for number in range(30_000))))


@pytest.mark.parametrize(("module", "limit"), [("no_such_module", 20.0), ("hangs", 0.5)])
def test_a_server_that_can_not_import_or_takes_too_long_is_done_without(tmp_path: Path, order: Order, module: str, limit: float) -> None:
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(60)\n")
    order = replace(order, environment={**order.environment, "PYTHONPATH": str(tmp_path)})

    async def work(launcher: Launcher, server: ForkServer) -> Any:
        process = await launcher.start(order)
        evidence = await process.result()
        await process.end()
        return evidence, server_pid(server)

    began = time.monotonic()
    evidence, pid = served(tmp_path, order, work, modules=(module,), limit=limit)
    assert evidence.ending is Ending.OK
    assert evidence.result.identity.inherited == {}
    assert gone(pid)
    assert time.monotonic() - began < 30
    if module == "no_such_module":
        assert "No module named 'no_such_module'" in (tmp_path / "stages" / "fork_server" / "stage.log").read_text()


def test_a_server_that_is_killed_takes_no_worker_along_and_later_ones_start_without_it(tmp_path: Path, order: Order) -> None:
    async def work(launcher: Launcher, server: ForkServer) -> tuple[Any, Any, Any]:
        first = await launcher.start(order)
        answer = await first.result()
        assert server._reader is not None
        os.killpg(server_pid(server), signal.SIGKILL)
        await asyncio.wait([server._reader], timeout=0.2)
        second = await launcher.start(replace(order, name="second"))
        later = await second.result()
        await asyncio.gather(first.end(), second.end())
        assert first._process is not None
        return answer, later, await first._process.wait()

    answer, later, code = served(tmp_path, order, work)
    assert list(answer.result.identity.inherited) == ["wave"]
    assert (later.ending, later.result.identity.inherited) == (Ending.OK, {})
    assert code in {0, LOST}


def test_a_server_whose_orchestrator_is_gone_ends_and_so_do_its_workers(tmp_path: Path, order: Order) -> None:
    script = """
import asyncio, json, os, sys, time
from kpipe.running import launch
from kpipe.running.fork_server import ForkServer
from kpipe.running.launch import Launcher, Order
launch.FORKED = frozenset({"prepare"})
folder, environment, params = json.load(open(sys.argv[1]))
async def main():
    from pathlib import Path
    launcher = Launcher(Path(folder), time.monotonic(), lambda *_: None)
    launcher.fork_server = ForkServer(sys.executable, environment, ("wave",))
    launcher.fork_server.begin(Path(folder) / "fork_server", asyncio.Semaphore(1), 20.0)
    assert await launcher.fork_server.ready(20.0)
    process = await launcher.start(Order("prepare", "prepare", params, sys.executable, environment, 60.0))
    print(launcher.fork_server._process.pid, process._process.pid, flush=True)
    await process.result()
asyncio.run(main())
"""
    given = json.dumps([str(tmp_path / "stages"), dict(order.environment), encode(slow(order).params)])
    (tmp_path / "given.json").write_text(given)
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "given.json")], stdout=subprocess.PIPE, text=True) as orchestrator:
        assert orchestrator.stdout is not None
        server, worker = map(int, orchestrator.stdout.readline().split())
        orchestrator.kill()
    assert gone(server)
    assert gone(worker)


@pytest.mark.parametrize("backend", ["", "jax"])
def test_extras_are_hidden_from_an_import_and_can_be_imported_afterwards(backend: str) -> None:
    script = f"""
import sys
from kpipe_stages.lean import without_extras
found = []
with without_extras("{backend}"):
    for name in {EXTRAS}:
        try:
            __import__(name)
        except ModuleNotFoundError:
            continue
        found.append(name)
assert found == {[backend] if backend else []}, found
assert set({EXTRAS}) & set(sys.modules) == set(found)
import sklearn, matplotlib, jax
with without_extras("{backend}"):
    import sklearn.base
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.runtimes
@pytest.mark.parametrize("backend", ["tensorflow", "openvino", "jax"])
def test_keras_as_the_workers_import_it_brings_none_of_the_extras(backend: str, tmp_path: Path) -> None:
    script = f"""
import sys
from kpipe_stages.lean import without_extras
with without_extras("{backend}"):
    import keras
assert keras.backend.backend() == "{backend}"
assert not ({set(EXTRAS)} - {{"{backend}"}}) & set(sys.modules)
import sklearn, matplotlib, jax
"""
    environment = {**os.environ, "KERAS_BACKEND": backend, "KERAS_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_extras_stay_where_all_that_is_installed_counts() -> None:
    with without_extras(None, lean=False):
        import sklearn  # noqa: F401 - that it can be imported is the point


def test_hidden_extras_come_back_after_an_import_that_failed() -> None:
    with pytest.raises(ZeroDivisionError), without_extras("jax"):
        raise ZeroDivisionError
    assert all(sys.modules.get(name, "not imported") is not None for name in EXTRAS)

"""The claims of ``--baseline``, measured: no false "slower" between a file and itself, and a 10 % slowdown found, on a machine that is busy.

``python bench/interleaved.py RUN``: RUN is a finished run whose artifacts are raced against themselves, over real runtimes, by the very code of
the worker. Two programs burn beside, one without pause and one in bursts. Prints a table and writes ``build/interleaved.json``.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import decode, read_json
from kpipe_stages.protocol import Job, RaceJob, RunJob
from kpipe_stages.race import race
from kpipe_stages.racing import P50, measured
from kpipe_stages.ratio import Told
from kpipe_stages.worker import Worker

TARGETS = ("litert", "onnxruntime", "openvino", "openvino_ir")
PLANTED = "planted"
SMALLEST = 0.02
A_PROCESS = 8
"""Comparisons in one process; then a fresh one."""

BURN = "while True: sum(range(1000))"
BURSTS = """
import random, time
while True:
    end = time.monotonic() + random.expovariate(4)
    while time.monotonic() < end: sum(range(1000))
    time.sleep(random.expovariate(4))
"""


class Slowed:
    """A session each of whose calls waits busily for so many nanoseconds more."""

    def __init__(self, session, extra, bare):
        self._session = session
        self.signature = session.signature
        self.takes, self.narrows, self.computes_as = session.takes, session.narrows, session.computes_as
        self._extra = extra
        self._bare = bare

    def infer(self, feeds):
        start = time.perf_counter_ns()
        answer = self._session.infer(feeds)
        now = time.perf_counter_ns()
        self._bare.append(now - start)
        end = now + self._extra
        while time.perf_counter_ns() < end:
            pass
        return answer

    def describe(self):
        return self._session.describe()


class Planting:
    """An engine whose sessions of the candidate's side are `Slowed`, by a share of the median of all their calls so far, the wait left out."""

    def __init__(self, engine, share):
        self._engine = engine
        self._share = share
        self._bare = collections.deque(maxlen=4096)

    def open(self, order, settings):
        from kpipe_stages.feeds import Golden

        session = self._engine.open(order, settings)
        if order.cache != PLANTED:
            return session
        if not self._bare:
            golden = Golden(order, session)
            feeds = golden.batch([golden.present[0]] * (order.fixed_batch or 1))
            warm = Slowed(session, 0, self._bare)
            for _ in range(100):
                warm.infer(feeds)
        return Slowed(session, int(self._share * statistics.median(self._bare)), self._bare)


def child(options) -> None:
    """Some comparisons in this process; a JSON line each."""
    path = Path(options.run) / "stages" / f"run.{options.target}" / "job.json"
    job = decode(RunJob, read_json(Job, path).params)
    engine = importlib.import_module(f"kpipe_stages.{RUNTIMES[job.runtime].module}").engine(job.runtime)
    engine.bring(job)
    worker = Worker("race", Path(options.run), os.open(os.devnull, os.O_WRONLY))
    engine = Planting(engine, options.share) if options.share else engine
    now = replace(job, cache=PLANTED) if options.share else job
    for number in range(options.count):
        order = RaceJob(job, now, tuple((row, row) for row in range(job.rows)), options.seconds, SMALLEST, seed=options.seed + number)
        found = race(order, engine, worker)
        ratio = measured(P50, found.rounds, found.looks)
        told = ratio.told(SMALLEST) if ratio else Told.UNKNOWN
        calls = sum(len(one.now_ns) for one in found.rounds)
        interval = [ratio.value, ratio.low, ratio.high] if ratio else None
        facts = {"rounds": len(found.rounds), "calls": calls, "seconds": found.seconds, "load": os.getloadavg()[0]}
        print(json.dumps({"target": options.target, "told": told, "ratio": interval, **facts}), flush=True)


def trials(run: str, total: int, seconds: float, share: float) -> list[dict]:
    """So many comparisons, spread over the targets and over processes."""
    found = []
    each = -(-total // len(TARGETS))
    for target in TARGETS:
        for start in range(0, each, A_PROCESS):
            count = min(A_PROCESS, each - start)
            words = ["--child", "--target", target, "--count", count, "--seed", start, "--seconds", seconds, "--share", share]
            done = subprocess.run([sys.executable, __file__, run, *map(str, words)], capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr[-3000:])
            found += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        told = collections.Counter(one["told"] for one in found if one["target"] == target)
        print(f"{target}, {share:.0%} slower: {dict(told)}; load {os.getloadavg()[0]:.1f}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--alike", type=int, default=200)
    parser.add_argument("--slower", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "build" / "interleaved.json")
    parser.add_argument("--alike-seconds", type=float, default=3.0)
    parser.add_argument("--slower-seconds", type=float, default=20.0)
    for name, kind in (("target", str), ("count", int), ("seed", int), ("seconds", float), ("share", float)):
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--child", action="store_true")
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    burners = [subprocess.Popen([sys.executable, "-c", text]) for text in (BURN, BURSTS)]
    try:
        results = {
            "alike": trials(options.run, options.alike, options.alike_seconds, 0.0),
            "slower": trials(options.run, options.slower, options.slower_seconds, 0.10),
        }
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"load": os.getloadavg(), **results}, indent=1) + "\n", encoding="utf-8")
    for name, found in results.items():
        told = collections.Counter(one["told"] for one in found)
        times = sorted(one["seconds"] for one in found)
        print(f"{name}: {len(found)} comparisons: {dict(told)}; {statistics.median(times):.1f} s in the middle, {times[-1]:.1f} s at most")
    false = sum(one["told"] == Told.SLOWER for one in results["alike"])
    power = sum(one["told"] == Told.SLOWER for one in results["slower"]) / max(1, len(results["slower"]))
    print(f"false 'slower': {false} of {len(results['alike'])}; power for a 10 % slowdown: {power:.1%}")
    raise SystemExit(0 if not false and power >= 0.95 else 1)


if __name__ == "__main__":
    main()

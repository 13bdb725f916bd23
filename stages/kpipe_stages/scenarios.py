"""Scenarios besides the single stream, off unless the contract asks: a server at a given rate, and batches of growing size.

Server: an open loop. Requests are meant for moments drawn beforehand (Poisson: exponential gaps, seeded), whether or not the one before is done,
and a request's latency counts from that moment: a stall delays all that queue behind it, as users would see, and hides nothing (no coordinated
omission). One session answers one request at a time. Offline: batches as large as they come, one after another; their throughput.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from kpipe_stages.disturbance import Watch
from kpipe_stages.protocol import LEAST_COMPARED, BatchTimes, Served
from kpipe_stages.session import nbytes, raise_if_out_of_memory, telling_line
from kpipe_stages.timed_calls import Model, once
from kpipe_stages.timing import HELD_BYTES, Loop, furthest

if TYPE_CHECKING:
    from kpipe_stages.measure import Kept
    from kpipe_stages.protocol import TimingPlan
    from kpipe_stages.session import Answer
    from kpipe_stages.worker import Worker

SPIN_S = 0.001
"""Before a moment the process doesn't sleep: waking up takes longer than that."""
LATE = 4.0
"""Times the planned seconds: a server that is so far behind holds nothing."""
SWEEP_CALLS = 21
SWEEP_SHARE = 0.25
WARM = 3


class Reservoir:
    """A uniform sample of the answers offered so far, as many as `HELD_BYTES` hold and `LEAST_COMPARED` at least: Vitter's algorithm R, seeded.

    Where it grows too large it gives up one at random and holds one less from then on, which leaves it uniform.
    """

    def __init__(self, most_bytes: int = HELD_BYTES) -> None:
        self.held: list[tuple[int, Answer]] = []
        self._most_bytes = most_bytes
        self._room: int | None = None
        """Answers that it may hold; None while it may grow."""
        self._bytes = 0
        self._offered = 0
        self._draw = random.Random(0)  # noqa: S311 - reproducible, not secret

    def offer(self, row: int, answer: Answer) -> None:
        """Hold an answer to a golden input, or not."""
        self._offered += 1
        if self._room is None:
            self._take(len(self.held), row, answer)
        elif (place := self._draw.randrange(self._offered)) < self._room:
            self._take(place, row, answer)
        while self._bytes > self._most_bytes and len(self.held) > LEAST_COMPARED:
            self._bytes -= nbytes(self.held.pop(self._draw.randrange(len(self.held)))[1])
            self._room = len(self.held)

    def _take(self, place: int, row: int, answer: Answer) -> None:
        for _, old in self.held[place : place + 1]:
            self._bytes -= nbytes(old)
        self.held[place : place + 1] = [(row, answer)]
        self._bytes += nbytes(answer)


def arrivals(rate: float, seconds: float) -> list[float]:
    """Moments from 0 to ``seconds`` at which requests are meant to come: the same for the same arguments; at least one."""
    draw, moments = random.Random(0), list[float]()  # noqa: S311 - reproducible, not secret
    now = draw.expovariate(rate)
    while now < seconds or not moments:
        moments.append(now)
        now += draw.expovariate(rate)
    return moments


def serve(kept: Kept, worker: Worker, plan: TimingPlan) -> Served:
    """Answer requests at their moments. To be called with the collector off."""
    work = Model(kept)
    loop, watch = Loop(work, kept), Watch()
    moments = arrivals(plan.server_rate, plan.server_seconds)
    worker.progress(f"{kept.order.runtime} server", 0, len(moments))
    latencies: list[float] = []
    service: list[float] = []
    kept_answers = Reservoir()  # comparing takes time: it's done at the end, on what memory holds
    begin = time.perf_counter()
    for number, moment in enumerate(moments):
        if time.perf_counter() - begin > LATE * plan.server_seconds:
            break
        row = loop.row(number)
        _wait_until(begin + moment)
        seconds, outputs, _ = once(work, row)
        latencies.append(time.perf_counter() - begin - moment)
        service.append(seconds)
        kept_answers.offer(row, outputs)
    watch.add(len(latencies))
    for row, outputs in kept_answers.held:
        loop.compare(row, outputs)
    return Served(plan.server_rate, tuple(latencies), tuple(service), loop.worst_relative, watch.finish(), loop.compared)


def _wait_until(moment: float) -> None:
    if (left := moment - time.perf_counter()) > SPIN_S:
        time.sleep(left - SPIN_S)
    while time.perf_counter() < moment:
        pass


def sweep(kept: Kept, worker: Worker, plan: TimingPlan) -> tuple[BatchTimes, ...]:
    """Time batches of each size; a size that the artifact doesn't take, or the runtime refuses, says why."""
    found = list[BatchTimes]()
    share = SWEEP_SHARE * plan.max_seconds / len(plan.offline)
    for size in plan.offline:
        worker.progress(f"{kept.order.runtime} batches of {size}", len(found), len(plan.offline))
        found.append(_batches(kept, size, share))
    return tuple(found)


def _batches(kept: Kept, size: int, max_seconds: float) -> BatchTimes:
    if kept.fixed is not None and size != kept.fixed:
        return BatchTimes(size, (), f"the artifact takes batches of {kept.fixed} only")
    feeds = kept.golden.batch(kept.golden.plan(size)[0])
    deadline, seconds = time.perf_counter() + max_seconds, list[float]()
    try:
        timed = untimed = kept.session.infer(feeds)
        for _ in range(WARM - 1):
            kept.session.infer(feeds)
        while len(seconds) < SWEEP_CALLS and (not seconds or time.perf_counter() < deadline):
            start = time.perf_counter_ns()
            timed = kept.session.infer(feeds)
            seconds.append((time.perf_counter_ns() - start) * 1e-9)
    except Exception as error:  # noqa: BLE001 - what the runtime says against this size is its answer
        raise_if_out_of_memory(error)
        refused = f"{type(error).__name__}: {telling_line(error)}"
        kept.open_again()
        return BatchTimes(size, (), refused)
    return BatchTimes(size, tuple(seconds), compared=1, worst_relative=furthest(timed, untimed)[1])

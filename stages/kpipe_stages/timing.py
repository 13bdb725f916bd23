"""The timed phase: how long one inference takes, and how long it is from the raw file to the decision.

Single stream: one call after the other, each finished (outputs are arrays of the caller's own) before the clock stops. Every call's time is
kept; none is clipped. Python's garbage collector is off while calls are timed and runs between stretches of calls, outside the clock: a
collection is the harness's cost here, not the model's. Outputs and decisions are compared outside the clock with what the same inputs gave
when nothing was timed; memory and what else happened on the machine are read there too.

Warm-up rule: calls go on until the medians of the last two windows of 10 calls differ by at most 5 % of the larger, or a bound is reached
(then the sample is marked unstable). Stopping rule: the calls that the plan asks for; then as many again, as often as a limit is still open
(`kpipe_stages.deciding_limits`) or memory seems to grow (`kpipe_stages.growth`, confirmed over four times the calls), until the time is up.
"""

from __future__ import annotations

import contextlib
import gc
import math
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.answers import difference
from kpipe_stages.deciding_limits import undecided
from kpipe_stages.decisions import decide, same
from kpipe_stages.disturbance import OwnWaits, Watch, resident_bytes, waited_ns
from kpipe_stages.feeds import split_answer
from kpipe_stages.growth import growth
from kpipe_stages.protocol import Latency, TimingResult
from kpipe_stages.rows import Rows
from kpipe_stages.session import nbytes
from kpipe_stages.timed_calls import EndToEnd, Model, once, readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kpipe_stages.measure import Kept
    from kpipe_stages.protocol import Job
    from kpipe_stages.session import Answer, Array
    from kpipe_stages.timed_calls import Decisions
    from kpipe_stages.worker import Worker

WINDOW = 10
STABLE = 0.05
WARMUP_SHARE = 0.25
BLOCK = 50
BLOCKS = 32
"""At least so many stretches, where there are as many calls: memory is read between them."""
HELD_BYTES = 64 * 2**20
MOST_CALLS = 200_000
"""However short they are and whatever is still open: the record holds every one."""
CONFIRMED = 4
"""Growth of memory is confirmed over so many times the calls that were asked for."""
MOST_GROWTH = 2**29
"""Bytes: a process that has grown by so much needs no further proof."""


def is_stable(seconds: Sequence[float]) -> bool:
    """Whether the medians of the last two windows of `WINDOW` calls differ by at most `STABLE` of the larger one."""
    if len(seconds) < 2 * WINDOW:
        return False
    before, now = statistics.median(seconds[-2 * WINDOW : -WINDOW]), statistics.median(seconds[-WINDOW:])
    return abs(before - now) <= STABLE * max(before, now)


def time_target(job: Job, worker: Worker) -> TimingResult:
    """Time the session that `kpipe_stages.measure.run_target` left in the worker.

    Raises:
        ValueError: ``run`` left none.
    """
    from kpipe_stages.freshness import compare_fresh
    from kpipe_stages.scenarios import serve, sweep

    kept: Kept | None = worker.kept
    if kept is None:
        raise ValueError(f"stage {job.stage} has nothing to time: its run left no session")
    plan = kept.order.timing
    whole = plan.end_to_end_calls if kept.raw_usable else 0
    share = plan.max_seconds / (2 if plan.calls and whole else 1)
    with collector_off():
        return TimingResult(
            model_only=sample(Model(kept), kept, worker, plan.calls, share) if plan.calls else None,
            end_to_end=sample(EndToEnd(kept), kept, worker, whole, share) if whole else None,
            freshness=compare_fresh(kept, plan.fresh_pairs, plan.max_seconds) if plan.calls and plan.fresh_pairs else None,
            server=serve(kept, worker, plan) if plan.server_rate else None,
            offline=sweep(kept, worker, plan) if plan.offline else (),
        )


# ---------------------------------------------------------------- the loop


def sample(work: Model | EndToEnd, kept: Kept, worker: Worker, calls: int, max_seconds: float) -> Latency:
    """Warm up, then time ``calls`` calls over the golden inputs in turn, and more where something is still open.

    At least one call, then no more than ``max_seconds`` allow.

    To be called with the `collector_off`.
    """
    plan, deadline = kept.order.timing, time.perf_counter() + max_seconds
    calls = min(calls, MOST_CALLS)
    limits = plan.limits_s if isinstance(work, Model) else plan.end_to_end_limits_s
    loop = Loop(work, kept, min(BLOCK, max(1, calls // BLOCKS)), watched=bool(limits))
    warm = loop.warm_up(plan.max_warmup, time.perf_counter() + WARMUP_SHARE * max_seconds)
    stable = is_stable(warm)
    loop.begin()
    look, wanted = 1, calls
    while True:
        while loop.count < wanted and (not loop.count or time.perf_counter() < deadline):
            loop.block(wanted - loop.count, deadline)
            worker.progress(f"{kept.order.runtime} {work.name}", loop.count, wanted)
        found = Latency(
            seconds=tuple(loop.seconds.tolist()),
            warmup_calls=len(warm),
            stable=stable,
            worst_difference=loop.worst,
            worst_relative=loop.worst_relative,
            decision_changes=loop.decision_changes,
            compared=loop.compared,
            looks=look,
            windows=loop.watch.finish(),
            steps_s={name: total * 1e-9 for name, total in work.steps.items()},
            waits=tuple(loop.waits.tolist()),
            memory=tuple(loop.memory),
        )
        done = time.perf_counter() >= deadline or loop.count >= MOST_CALLS
        if done or not (undecided(found, limits, look) or _unproved(found, calls)):
            return found
        look, wanted = look + 1, min(MOST_CALLS, 2 * wanted)
        loop.forget_memory()


def _unproved(latency: Latency, calls: int) -> bool:
    """Whether memory seems to grow, and more calls have to prove it."""
    found = growth(latency.memory)
    rise = latency.memory[-1][1] - latency.memory[0][1] if latency.memory else 0
    return found is not None and found.grows and len(latency.seconds) < CONFIRMED * calls and rise < MOST_GROWTH


class Loop:
    """Timed calls in stretches; between them outputs are compared, and memory and the machine are looked at."""

    def __init__(self, work: Any, kept: Kept, block: int = BLOCK, *, watched: bool = False) -> None:
        """``watched``: note how long each call waited for a processor."""
        self._work = work
        self._kept = kept
        self._block = block
        names = [spec.name for spec in kept.session.signature.outputs]
        self._alone = {name: Rows(f"{kept.folder}/outputs/alone/{position}") for position, name in enumerate(names)}
        self._times = np.full(MOST_CALLS, np.nan)  # all at once: a list that grows would look like a leak of what is timed
        self.count = 0
        """Calls timed so far."""
        self._own = OwnWaits() if watched else None
        self._waits = np.zeros(MOST_CALLS if self._own else 0)
        self.memory: list[tuple[int, int]] = []
        self.watch = Watch()
        self.worst = 0.0
        self.worst_relative = 0.0
        self.decision_changes = 0
        self.compared = 0

    def warm_up(self, most: int, deadline: float) -> list[float]:
        """Untimed in the sample: call until stable, ``most`` calls, or the deadline."""
        warm: list[float] = []
        while len(warm) < most and not is_stable(warm) and (not warm or time.perf_counter() < deadline):
            warm.append(once(self._work, self.row(len(warm)))[0])
        return warm

    def begin(self) -> None:
        """What was counted while warming up doesn't count."""
        self.watch = Watch()
        for name in self._work.steps:
            self._work.steps[name] = 0
        self._note_memory()

    def block(self, calls: int, deadline: float) -> None:
        """Time some calls, at most ``calls``, then compare what they gave."""
        held: list[tuple[int, Answer, Decisions | None]] = []
        size, waiting = 0, self._elsewhere()
        for _ in range(min(calls, self._block)):
            row = self.row(self.count)
            before = self._own.ns() if self._own else 0
            seconds, outputs, decisions = once(self._work, row)
            if self._own:
                self._waits[self.count] = (self._own.ns() - before) * 1e-9
            self._times[self.count] = seconds
            self.count += 1
            held.append((row, outputs, decisions))
            size += nbytes(outputs)
            if size > HELD_BYTES or time.perf_counter() > deadline:
                break
        now = self._elsewhere()
        for row, outputs, decisions in held:
            self.compare(row, outputs)
            self._compare_decisions(row, decisions)
        self.watch.add(len(held), None if now is None or waiting is None else max(0, now - waiting))
        held.clear()
        gc.collect()
        self._note_memory()

    def _elsewhere(self) -> int | None:
        """Nanoseconds that threads waited, but for this one where its waits are noted call by call."""
        found = waited_ns()
        return found if found is None or self._own is None else found - self._own.ns()

    @property
    def waits(self) -> Array:
        """Of every call so far, how long its thread waited for a processor, seconds; empty where that isn't known."""
        return self._waits[: self.count] if self._own is not None and self._own.known else self._waits[:0]

    @property
    def seconds(self) -> Array:
        """Of every call so far, in order."""
        return self._times[: self.count]

    def row(self, call: int) -> int:
        """The golden input of a call."""
        present = self._kept.golden.present
        return present[call % len(present)]

    def forget_memory(self) -> None:
        """Begin anew: looking at the calls so far takes memory of its own."""
        self.memory.clear()
        self._note_memory()

    def _note_memory(self) -> None:
        if (size := resident_bytes()) is not None:
            self.memory.append((self.count, size))

    def compare(self, row: int, outputs: Answer) -> None:
        """Compare a timed answer with the one that the same input got alone. A name that is missing is as far off as can be."""
        answer = split_answer(outputs, self._kept.batch, self._kept.unbatched)[0][0]
        gap, share = furthest(answer, {name: rows[row] for name, rows in self._alone.items()})
        self.worst, self.worst_relative = max(self.worst, gap), max(self.worst_relative, share)
        self.compared += 1

    def _compare_decisions(self, row: int, decisions: Decisions | None) -> None:
        """Compare timed decisions with the ones that the same input's alone answer gives; None where the call decides nothing."""
        if decisions is None:
            return
        pairs = zip(self._kept.order.decisions, decisions, strict=True)
        if not all(same(rule, decide(rule, readable(rule, lambda name: self._alone[name][row])), decision) for rule, decision in pairs):
            self.decision_changes += 1


def furthest(answer: Answer, earlier: Answer) -> tuple[float, float]:
    """The largest absolute difference of any output from an earlier answer, and the largest `relative` one; infinite where the names differ."""
    if set(answer) != set(earlier):
        return math.inf, math.inf
    gaps = {name: difference(answer[name], earlier[name]) for name in earlier}
    return max(gaps.values(), default=0.0), max((relative(gap, earlier[name]) for name, gap in gaps.items()), default=0.0)


def relative(gap: float, answer: Array) -> float:
    """``gap`` over the largest finite magnitude of ``answer``; infinite for any gap where there is none or the answer isn't floating point."""
    if gap == 0:
        return 0.0
    if answer.dtype.kind != "f":
        return math.inf
    scale = float(np.abs(answer[np.isfinite(answer)]).max(initial=0.0))
    return gap / scale if scale else math.inf


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Garbage collection off, with everything alive now set aside; on again afterwards, whatever happens."""
    was: Callable[[], None] = gc.enable if gc.isenabled() else gc.disable
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        was()

"""The timed phase: how long one inference takes, and how long it is from the raw file to the decision.

Single stream: one call after the other, each finished (outputs are arrays of the caller's own) before the clock stops. Every call's time is
kept; none is clipped. Python's garbage collector is off while calls are timed and runs between blocks of calls, outside the clock: a
collection is the harness's cost here, not the model's. Outputs and decisions are compared outside the clock with what the same inputs gave
when nothing was timed.

Warm-up rule: calls go on until the medians of the last two windows of 10 calls differ by at most 5 % of the larger, or a bound is reached
(then the sample is marked unstable).
"""

from __future__ import annotations

import contextlib
import gc
import math
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.answers import difference, widened
from kpipe_stages.decisions import Decision, decide, outputs_of, same
from kpipe_stages.feeds import split_answer, stack
from kpipe_stages.protocol import Latency, TimingResult
from kpipe_stages.rows import Rows
from kpipe_stages.session import nbytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kpipe_stages.measure import Kept
    from kpipe_stages.protocol import DecisionSpec, Job
    from kpipe_stages.session import Answer, Array
    from kpipe_stages.worker import Worker

    Decisions = tuple[Decision, ...]

WINDOW = 10
STABLE = 0.05
WARMUP_SHARE = 0.25
BLOCK = 50
HELD_BYTES = 64 * 2**20


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
        )


# ---------------------------------------------------------------- what is timed


def readable(rule: DecisionSpec, get: Callable[[str], Array]) -> Any:
    """What a rule reads of one input: its output's array, or arrays by output name where it reads several."""
    names = outputs_of(rule)
    return get(rule.output) if names == (rule.output,) else {name: get(name) for name in names}


class Model:
    """Prepared tensors in, outputs out."""

    name = "model only"

    def __init__(self, kept: Kept) -> None:
        self.kept = kept

    def before(self, row: int) -> Any:
        """Untimed: the batch."""
        return self.kept.golden.batch([row] * self.kept.batch)

    def call(self, feeds: Any) -> tuple[Answer, Decisions | None]:
        """Timed; nothing is decided."""
        return self.kept.session.infer(feeds), None


class EndToEnd:
    """A raw file in, a decision out."""

    name = "end to end"

    def __init__(self, kept: Kept) -> None:
        from kpipe_stages.preprocess import Preprocessor

        self._kept = kept
        self._inputs = {spec.name: Preprocessor(spec) for spec in kept.order.inputs}

    def before(self, row: int) -> int:
        """Untimed: nothing is prepared."""
        return row

    def call(self, row: int) -> tuple[Answer, Decisions | None]:
        """Timed: read, decode, preprocess, infer, decide by every rule."""
        kept = self._kept
        files = kept.order.items[row].files
        tensors = {name: preprocessor.from_path(files[name]) for name, preprocessor in self._inputs.items()}
        outputs = kept.session.infer(stack([tensors] * kept.batch))
        return outputs, tuple(decide(rule, readable(rule, lambda name: self._first(outputs, name))) for rule in kept.order.decisions)

    def _first(self, outputs: Answer, name: str) -> Array:
        value = outputs[name] if name in self._kept.unbatched else outputs[name][0]
        return widened(value) if value.dtype.kind == "V" else value  # numpy takes bfloat16 for raw bytes


# ---------------------------------------------------------------- the loop


def sample(work: Model | EndToEnd, kept: Kept, worker: Worker, calls: int, max_seconds: float) -> Latency:
    """Warm up, then time up to ``calls`` calls over the golden inputs in turn; at least one, then no more than ``max_seconds`` allow.

    To be called with the `collector_off`.
    """
    started = time.perf_counter()
    loop = _Loop(work, kept)
    warm = loop.warm_up(kept.order.timing.max_warmup, started + WARMUP_SHARE * max_seconds)
    stable = is_stable(warm)
    while len(loop.seconds) < calls and (not loop.seconds or time.perf_counter() - started < max_seconds):
        loop.block(min(BLOCK, calls - len(loop.seconds)), started + max_seconds)
        worker.progress(f"{kept.order.runtime} {work.name}", len(loop.seconds), calls)
    return Latency(
        seconds=tuple(loop.seconds),
        warmup_calls=len(warm),
        stable=stable,
        worst_difference=loop.worst,
        worst_relative=loop.worst_relative,
        decision_changes=loop.decision_changes,
        compared=loop.compared,
    )


class _Loop:
    """Timed calls in blocks, and the comparison of their outputs between blocks."""

    def __init__(self, work: Any, kept: Kept) -> None:
        self._work = work
        self._kept = kept
        names = [spec.name for spec in kept.session.signature.outputs]
        self._alone = {name: Rows(f"{kept.folder}/outputs/alone/{position}") for position, name in enumerate(names)}
        self.seconds: list[float] = []
        self.worst = 0.0
        self.worst_relative = 0.0
        self.decision_changes = 0
        self.compared = 0

    def warm_up(self, most: int, deadline: float) -> list[float]:
        """Untimed in the sample: call until stable, ``most`` calls, or the deadline."""
        warm: list[float] = []
        while len(warm) < most and not is_stable(warm) and (not warm or time.perf_counter() < deadline):
            warm.append(self._once(self._row(len(warm)))[0])
        return warm

    def block(self, calls: int, deadline: float) -> None:
        """Time some calls, then compare what they gave."""
        held: list[tuple[int, Answer, Decisions | None]] = []
        size = 0
        for _ in range(calls):
            row = self._row(len(self.seconds))
            seconds, outputs, decisions = self._once(row)
            self.seconds.append(seconds)
            held.append((row, outputs, decisions))
            size += nbytes(outputs)
            if size > HELD_BYTES or time.perf_counter() > deadline:
                break
        for row, outputs, decisions in held:
            self._compare(row, outputs)
            self._compare_decisions(row, decisions)
        gc.collect()

    def _row(self, call: int) -> int:
        present = self._kept.golden.present
        return present[call % len(present)]

    def _once(self, row: int) -> tuple[float, Answer, Decisions | None]:
        given = self._work.before(row)
        start = time.perf_counter_ns()
        outputs, decisions = self._work.call(given)
        return (time.perf_counter_ns() - start) * 1e-9, outputs, decisions

    def _compare(self, row: int, outputs: Answer) -> None:
        """Compare a timed answer with the one that the same input got alone. A name that is missing is as far off as can be."""
        answer = split_answer(outputs, self._kept.batch, self._kept.unbatched)[0][0]
        if set(answer) != set(self._alone):
            self.worst = self.worst_relative = math.inf
        for name in set(answer) & set(self._alone):
            alone = self._alone[name][row]
            gap = difference(answer[name], alone)
            self.worst = max(self.worst, gap)
            self.worst_relative = max(self.worst_relative, relative(gap, alone))
        self.compared += 1

    def _compare_decisions(self, row: int, decisions: Decisions | None) -> None:
        """Compare timed decisions with the ones that the same input's alone answer gives; None where the call decides nothing."""
        if decisions is None:
            return
        pairs = zip(self._kept.order.decisions, decisions, strict=True)
        if not all(same(rule, decide(rule, readable(rule, lambda name: self._alone[name][row])), decision) for rule, decision in pairs):
            self.decision_changes += 1


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

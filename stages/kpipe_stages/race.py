"""Two artifacts of one runtime timed in turns, in one process, with the same threads and settings, on the same golden inputs.

Round by round: a session of each is opened (which first is drawn, so that neither has the better place in memory for good), both are warmed up,
then calls come in fours, ``before now now before`` or the other way round, by lot. In a four both take the same input, and each side has as many
calls after its own as after the other's: drift and what a call leaves in the caches weigh on both alike. Sessions are closed and opened anew,
because two sessions of the very same file differ by more than the calls of one. Rounds go on until the answer is known (`kpipe_stages.ratio`), or
the time is up.

Outputs are compared outside the clock with what the first session gave for the same input when nothing was timed.
"""

from __future__ import annotations

import gc
import importlib
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from kpipe_stages.answers import difference, same_bits
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import decode
from kpipe_stages.cold import confine
from kpipe_stages.disturbance import Watch
from kpipe_stages.feeds import Golden
from kpipe_stages.measure import fixed_size
from kpipe_stages.protocol import RaceJob, RaceResult, RaceRound
from kpipe_stages.racing import claims_of, known
from kpipe_stages.ratio import FEWEST, LOOKS
from kpipe_stages.session import Session, check_artifact, fault, nbytes
from kpipe_stages.timing import collector_off, relative

if TYPE_CHECKING:
    from kpipe_stages.protocol import Job, RunJob
    from kpipe_stages.session import Answer, Engine, Feeds
    from kpipe_stages.worker import Worker

MOST_ROWS = 64
MOST_BYTES = 64 * 2**20
"""Of inputs, and of outputs that wait to be compared."""
SHORTEST_ROUND_S = 0.02
ROUND_PER_LOAD = 2.0
"""A round's calls take this many times what opening its sessions took: neither is where all the time goes."""
LONGEST_SHARE = 1 / 8
"""Of the time that there is, for a round's calls."""
MOST_FOURS = 512
WARM_FOURS = 5
MOST_ROUNDS = LOOKS[-1]


def run(job: Job, worker: Worker) -> RaceResult:
    """Time both.

    Raises:
        StageError: KP210, KP211 (an artifact is gone or altered), KP303 (the runtime can't load one), KP104 (the inputs fit one only), KP521
            (they can't be compared).
    """
    order = decode(RaceJob, job.params)
    runtime = order.now.runtime
    engine: Engine = importlib.import_module(f"kpipe_stages.{RUNTIMES[runtime].module}").engine(runtime)
    worker.distributions = list(engine.distributions)
    confine(replace(order.now, memory_mib=0), worker)  # the memory is one session's, and here are two
    for side in (order.before, order.now):
        check_artifact(side.artifact, side.sha256, side.companions)
    worker.timed("import", lambda: engine.bring(order.now))
    worker.enter("time")
    return race(order, engine, worker)


def race(order: RaceJob, engine: Engine, worker: Worker) -> RaceResult:
    """Rounds until every claim is known, or the time is up."""
    started = time.perf_counter()
    sides = (Side(order.before, engine, order, before=True), Side(order.now, engine, order, before=False))
    if sides[0].batch != sides[1].batch:
        raise fault(
            "KP521",
            f"A call of the baseline's artifact takes {sides[0].batch} rows, one of the candidate's {sides[1].batch}: their times can't be compared.",
            "Compare artifacts of one batch size.",
        )
    most = min(side.most for side in sides)
    for side in sides:
        side.take(most)
    if all(_same_inputs(a, b) for a, b in zip(sides[0].feeds, sides[1].feeds, strict=True)):
        sides[1].feeds = sides[0].feeds  # the very arrays: where they lie in memory is worth half a per cent of a short call
    for side in sides:
        side.answer()
    lots = random.Random(order.seed)  # noqa: S311 - the order of calls, no secret
    claims, rounds, looks, done = claims_of(order), list[RaceRound](), 0, False
    with collector_off():
        while not done and len(rounds) < MOST_ROUNDS:
            rounds.append(_round(sides, order, lots))
            worker.progress(f"{order.now.runtime} in turns with the baseline", int(time.perf_counter() - started), int(order.max_seconds))
            late = time.perf_counter() - started >= order.max_seconds or len(rounds) == MOST_ROUNDS
            if len(rounds) >= FEWEST and (late or len(rounds) in LOOKS):
                looks += 1
                enough = sum(len(one.now_ns) for one in rounds) >= order.calls
                done = late or (enough and all(known(claim, rounds, looks, order.calls) for claim in claims))
            done = done or late
    return RaceResult(
        rounds=tuple(rounds),
        looks=looks,
        rows=len(sides[0].feeds),
        batch=sides[0].batch,
        called=sides[0].called + sides[1].called,
        compared=sides[0].compared + sides[1].compared,
        worst_before=sides[0].worst,
        worst_now=sides[1].worst,
        resolution_s=time.get_clock_info("perf_counter").resolution,
        seconds=time.perf_counter() - started,
    )


def _same_inputs(before: Feeds, now: Feeds) -> bool:
    return before.keys() == now.keys() and all(same_bits(before[name], now[name]) for name in before)


class Side:
    """One of the two: its inputs as its artifact takes them, and what it answers when nothing is timed."""

    def __init__(self, own: RunJob, engine: Engine, order: RaceJob, *, before: bool) -> None:
        self.own = replace(own, threads=order.now.threads, settings=order.now.settings, chosen=order.now.chosen)
        self._engine = engine
        self._session = self.open()
        self._golden = Golden(self.own, self._session)
        self.batch = fixed_size(self.own, self._session) or 1
        self._rows = [pair[0 if before else 1] for pair in order.rows]
        if missing := [row for row in self._rows if row not in self._golden.present]:
            raise fault("KP521", f"{len(missing)} of {len(self._rows)} golden inputs have no tensor on one side.", "Mend the golden set.")
        size = nbytes(self._golden.batch([self._rows[0]] * self.batch))
        self.most = max(1, min(MOST_ROWS, len(self._rows), MOST_BYTES // max(1, size)))
        self.feeds: list[Feeds] = []
        self._expected: list[Answer] = []
        self.called = 0
        self.compared = 0
        self.worst = 0.0

    def open(self) -> Session:
        """A session of its own."""
        return self._engine.open(self.own, {**self.own.chosen, **self.own.settings})

    def take(self, most: int) -> None:
        """So many inputs, evenly spread."""
        rows = [self._rows[position * len(self._rows) // most] for position in range(most)]
        self.feeds = [self._golden.batch([row] * self.batch) for row in rows]

    def answer(self) -> None:
        """Answer each input while nothing is timed."""
        self._expected = [self._session.infer(feeds) for feeds in self.feeds]
        del self._session

    def compare(self, at: int, outputs: Answer) -> None:
        """Hold a timed answer against the first one; a name that is missing is as far off as can be."""
        expected = self._expected[at]
        names = {*expected, *outputs}
        gaps = [relative(difference(outputs[n], expected[n]), expected[n]) if n in outputs and n in expected else float("inf") for n in names]
        self.worst = max(self.worst, *gaps)
        self.compared += 1


def _round(sides: tuple[Side, Side], order: RaceJob, lots: random.Random) -> RaceRound:
    """Open both, warm up, call in turns, close both."""
    first, watch = lots.randrange(2), Watch()
    sessions, loads = dict[int, Session](), dict[int, int]()
    for at in (first, 1 - first):
        start = time.perf_counter_ns()
        sessions[at] = sides[at].open()
        sessions[at].infer(sides[at].feeds[0])
        loads[at] = time.perf_counter_ns() - start
    length = min(max(SHORTEST_ROUND_S, ROUND_PER_LOAD * sum(loads.values()) * 1e-9), LONGEST_SHARE * order.max_seconds)
    turns = _Turns(sides, sessions, lots, watch)
    turns.fours(WARM_FOURS, 0.2 * length)
    turns.seconds = ([], [])
    turns.fours(MOST_FOURS, length)
    windows = watch.finish()
    turns.compare()
    sessions.clear()
    turns.sessions.clear()
    gc.collect()
    return RaceRound(first == 0, loads[0], loads[1], tuple(turns.seconds[0]), tuple(turns.seconds[1]), windows)


class _Turns:
    """Calls in fours."""

    def __init__(self, sides: tuple[Side, Side], sessions: dict[int, Session], lots: random.Random, watch: Watch) -> None:
        self._sides = sides
        self.sessions = sessions
        self._lots = lots
        self._watch = watch
        self._rows = len(sides[0].feeds)
        self._held: list[tuple[int, int, Answer]] = []
        self._size = 0
        self._row = lots.randrange(self._rows)
        self.seconds: tuple[list[int], list[int]] = ([], [])
        """Nanoseconds of each side's calls."""

    def fours(self, most: int, seconds: float) -> None:
        """Fours, one at least, until there are so many or the time is up."""
        end = time.perf_counter() + seconds
        for _ in range(most):
            first = self._lots.randrange(2)
            for at in (first, 1 - first, 1 - first, first):
                self._call(at)
            self._watch.add(4)
            self._row = (self._row + 1) % self._rows
            if self._size > MOST_BYTES:
                self.compare()
            if time.perf_counter() >= end:
                break

    def _call(self, at: int) -> None:
        feeds, infer = self._sides[at].feeds[self._row], self.sessions[at].infer
        start = time.perf_counter_ns()
        outputs = infer(feeds)
        self.seconds[at].append(max(1, time.perf_counter_ns() - start))
        self._sides[at].called += 1
        self._held.append((at, self._row, outputs))
        self._size += nbytes(outputs)

    def compare(self) -> None:
        """Compare what was held, outside the clock."""
        for at, row, outputs in self._held:
            self._sides[at].compare(row, outputs)
        self._held.clear()
        self._size = 0

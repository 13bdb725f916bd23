"""Fresh inputs, arrival moments, what a process is held to, and what the loop itself costs."""

from __future__ import annotations

import math
import os
import random
import statistics
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kpipe.judging.timed import timed_outputs
from kpipe.judging.times import sum_up_freshness, sum_up_loads, sum_up_offline, sum_up_server
from kpipe.running import system
from kpipe_stages.cold import drop_pages
from kpipe_stages.feeds import stack
from kpipe_stages.freshness import compare_fresh, fresh
from kpipe_stages.protocol import LEAST_COMPARED, BatchTimes, Freshness, LoadTimes, Served, TimingResult
from kpipe_stages.scenarios import Reservoir, _batches, arrivals
from kpipe_stages.timed_calls import Model, once
from kpipe_stages.timing import collector_off

if TYPE_CHECKING:
    from pathlib import Path

ORDER = random.Random(4)  # noqa: S311 - which order, not a secret


# ---------------------------------------------------------------- fresh inputs


@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=5), elements=st.floats(-1e6, 1e6, width=32)))
def test_fresh_numbers_are_new_each_time_and_nearly_the_same(tensor: np.ndarray[Any, Any]) -> None:
    made = [fresh(tensor, tensor, number, ORDER) for number in range(1, 60)]
    assume(not 0 < np.abs(tensor).max() < 1e-30)
    assert len({one.tobytes() for one in (tensor, *made)}) == 60
    scale = float(np.abs(tensor).max()) or 1.0
    for one in made:
        assert (one.shape, one.dtype) == (tensor.shape, tensor.dtype)
        assert (one != tensor).sum() == 1
        assert np.abs(one - tensor).max() <= 1e-3 * scale


def test_fresh_numbers_of_every_precision() -> None:
    for dtype in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16):
        tensor = np.linspace(-1, 1, 12).astype(dtype).reshape(3, 4)
        assert fresh(tensor, tensor, 1, ORDER).tobytes() != tensor.tobytes(), dtype
        assert fresh(tensor, tensor, 1, ORDER).dtype == tensor.dtype
        odd = np.array([np.nan, np.inf, 2.0]).astype(dtype)
        assert np.isfinite(fresh(odd, odd, 3, ORDER).astype(float)[2])


@given(st.integers(1, 6), st.integers(0, 2**31))
def test_whole_numbers_are_only_ever_what_their_place_has(size: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    one, other = (np.stack([generator.integers(0, 10, size), generator.integers(1000, 1010, size)], axis=1) for _ in range(2))
    made = fresh(one, other, 1, ORDER)
    assert made.dtype == one.dtype
    assert ((made == one) | (made == other)).all()
    texts = fresh(np.array(["a", "bb"]), np.array(["ccc", "d"]), 1, ORDER)
    assert texts[0] in {"a", "ccc"}
    assert texts[1] in {"bb", "d"}


def kept(rows: list[dict[str, Any]], session: Any) -> Any:
    golden = SimpleNamespace(
        present=tuple(range(len(rows))),
        row=lambda index: dict(rows[index]),
        kinds={index: tuple(array.shape for array in row.values()) for index, row in enumerate(rows)},
        batch=lambda indices: stack([rows[index] for index in indices]),
    )
    return SimpleNamespace(golden=golden, batch=1, session=session, open_again=lambda: None)


class Recording:
    """Keeps every input that it is given; refuses those that are too large."""

    def __init__(self, most: float = 1e9) -> None:
        self.given: list[bytes] = []
        self._most = most

    def infer(self, feeds: Any) -> Any:
        if any((array > self._most).any() for array in feeds.values()):
            raise RuntimeError("out of range")
        self.given.append(b"".join(array.tobytes() for array in feeds.values()))
        return feeds


def test_half_of_the_timed_inputs_are_golden_and_the_others_never_seen() -> None:
    generator = np.random.default_rng(1)
    rows = [{"ids": generator.integers(0, 50, 12), "x": generator.standard_normal(3)} for _ in range(5)]
    session = Recording()
    found = compare_fresh(kept(rows, session), 20, 1e3)
    golden = {b"".join(array.tobytes() for array in row.values()) for row in rows}
    new = [one for one in session.given if one not in golden]
    assert len(found.fresh) == len(found.repeated) == 20 == len(new) == len(set(new))


@pytest.mark.parametrize("rows", [[{"id": np.array([n])} for n in range(4)], [{"ids": np.array([7, 7])}] * 3, [{"t": np.array(["one"])}]])
def test_where_nothing_new_can_be_made_that_is_said(rows: list[dict[str, Any]]) -> None:
    found = compare_fresh(kept(rows, Recording() if rows[0].keys() != {"t"} else NullSession()), 10, 1e3)
    assert found.fresh == ()
    assert found.why_not.startswith("no other input")


def test_a_new_input_that_the_runtime_refuses_is_no_fault_of_the_target() -> None:
    found = compare_fresh(kept([{"x": np.array([1.0])}], Recording(most=1.0)), 10, 1e3)
    assert found.fresh == ()
    assert "refused a new input: RuntimeError: out of range" in found.why_not


def test_a_cache_shows_and_noise_does_not() -> None:
    generator = np.random.default_rng(2)
    slow, quick = (tuple(float(x) for x in generator.exponential(1e-3, 48) + base) for base in (5e-3, 1e-3))
    cached = sum_up_freshness(Freshness(slow, quick))
    assert cached is not None
    assert cached.low is not None
    assert cached.low > 0.3
    assert sum_up_freshness(Freshness((), (), "why")) is not None
    assert sum_up_freshness(None) is None
    few = sum_up_freshness(Freshness(slow[:5], quick[:5]))
    assert few is not None
    assert few.low is None


def test_no_false_alarm_of_a_cache_in_a_thousand_noisy_comparisons() -> None:
    generator, alarms = np.random.default_rng(9), 0
    for _ in range(1000):
        both = generator.lognormal(0, 1.5, (2, 48))
        found = sum_up_freshness(Freshness(tuple(both[0]), tuple(both[1])))
        assert found is not None
        alarms += found.low is not None and found.low > 0.1
    assert alarms <= 2


# ---------------------------------------------------------------- server and batches


@given(st.floats(1, 2000), st.floats(0.01, 3))
def test_requests_come_in_order_within_the_time_and_always_alike(rate: float, seconds: float) -> None:
    moments = arrivals(rate, seconds)
    assert moments == sorted(moments) == arrivals(rate, seconds)
    assert len(moments) == 1 or moments[-1] < seconds


def test_requests_are_poisson() -> None:
    moments = arrivals(1000, 50)
    gaps = np.diff(moments)
    assert len(moments) == pytest.approx(50_000, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)
    assert np.mean(gaps > 1e-3 * math.log(2)) == pytest.approx(0.5, abs=0.02)


def queue(rate: float, each: float) -> Served:
    """What a server that takes ``each`` seconds a request would have seen."""
    free, latencies = 0.0, []
    moments = arrivals(rate, 5)
    for moment in moments:
        free = max(free, moment) + each
        latencies.append(free - moment)
    return Served(rate, tuple(latencies), (each,) * len(moments), 0.0)


@pytest.mark.parametrize(("load", "held"), [(0.1, True), (0.5, True), (0.8, True), (1.05, False), (2.0, False)])
def test_a_rate_that_the_calls_have_no_time_for_is_not_held(load: float, held: bool) -> None:
    found = sum_up_server(queue(200, load / 200))
    assert found is not None
    assert found.held is held
    assert found.capacity == pytest.approx(200 / load)


def test_the_knee_is_the_smallest_batch_near_the_best() -> None:
    sweep = [BatchTimes(size, (size * 1e-3 / min(size, 8) ** 0.8,) * 21) for size in (1, 2, 4, 8, 16, 32)]
    found = sum_up_offline([*sweep, BatchTimes(64, (), "no memory")])
    assert found is not None
    assert found.knee == 8
    assert found.rows[-1].throughput is None
    assert found.rows[-1].refused == "no memory"
    assert sum_up_offline([]) is None
    nothing = sum_up_offline([BatchTimes(2, (), "refused")])
    assert nothing is not None
    assert nothing.knee is None


def test_the_answers_that_are_compared_are_drawn_from_all() -> None:
    answer, total = {"y": np.zeros(256, np.float32)}, 2000
    for room, held in ((100 * 1024, 100), (1024, LEAST_COMPARED), (10_000 * 1024, total)):
        reservoir = Reservoir(room)
        for row in range(total):
            reservoir.offer(row, answer)
        rows = sorted(row for row, _ in reservoir.held)
        assert len(rows) == len(set(rows)) == held
        assert abs(np.mean(rows) - (total - 1) / 2) <= 3 * total / math.sqrt(12 * held)


def test_large_answers_that_come_late_are_held_no_less_often() -> None:
    """Half of the answers are ten times as large: each is held as often as any other."""
    reservoir = Reservoir(200 * 400)
    for row in range(4000):
        reservoir.offer(row, {"y": np.zeros(1000 if row >= 2000 else 100, np.float32)})
    assert LEAST_COMPARED <= len(reservoir.held) <= 200
    assert sum(array.nbytes for _, answer in reservoir.held for array in answer.values()) <= 200 * 400
    assert any(row >= 2000 for row, _ in reservoir.held)


class Drifting:
    """Answers each time by ``step`` more than before."""

    def __init__(self, step: float) -> None:
        self._step, self._calls = step, 0

    def infer(self, feeds: Any) -> Any:
        self._calls += 1
        return {"y": feeds["x"] + self._step * self._calls}


def found_in(timing: TimingResult) -> list[str]:
    found: list[str] = []
    timed_outputs(timing, 1e-3, lambda code, _cause, *, place, **_: found.append(f"{code} {place}"))
    return found


@pytest.mark.parametrize(("step", "found"), [(0.0, []), (0.5, ["KP412 batches of 4"])])
def test_batches_that_answer_otherwise_when_timed_are_told(step: float, found: list[str]) -> None:
    given = kept([{"x": np.ones(3, np.float32)}] * 4, Drifting(step))
    given.fixed, given.golden.plan = None, lambda size: [tuple(range(size))]
    batch = _batches(given, 4, 1e3)
    assert (len(batch.seconds), batch.compared) == (21, 1)
    assert found_in(TimingResult(None, None, offline=(batch,))) == found


def test_times_whose_answers_nobody_compared_are_void() -> None:
    assert found_in(TimingResult(None, None, offline=(BatchTimes(2, (1e-3,)), BatchTimes(4, (), "refused")))) == ["KP412 batches of 2"]
    for requests, compared, void in ((100, 15, True), (100, LEAST_COMPARED, False), (5, 4, True), (5, 5, False)):
        served = Served(10.0, (1e-3,) * requests, (1e-3,) * requests, 0.0, (), compared)
        assert found_in(TimingResult(None, None, server=served)) == (["KP412 server"] if void else [])


def test_several_loads_are_summed_up_by_their_medians() -> None:
    loads = [LoadTimes(0.1 * n, 1.0, 0.5, lean=False, second_s=0.01 * n, new_shape_s=None) for n in (3, 1, 2)]
    found = sum_up_loads(loads, {"cold file": loads[0]}, shared=False)
    assert found is not None
    assert (found.loads, found.import_s, found.second_s, found.new_shape_s) == (3, pytest.approx(0.2), pytest.approx(0.02), None)
    assert (found.low_s, found.total_s, found.high_s) == (pytest.approx(1.6), pytest.approx(1.7), pytest.approx(1.8))
    assert found.confidence == 0.75
    assert [v.kind for v in found.variants] == ["cold file"]
    assert sum_up_loads([], {}, shared=False) is None


# ---------------------------------------------------------------- the process and the loop

CONFINE = """
import os, sys
from types import SimpleNamespace
from kpipe_stages.cold import confine
from kpipe_stages.protocol import StageError
worker = SimpleNamespace(threads=0)
try:
    confine(SimpleNamespace(affinity={affinity}, memory_mib={memory}), worker)
    print(sorted(os.sched_getaffinity(0)), worker.threads)
    bytearray({size} * 2**20)
    print("fits")
except StageError as error:
    print(error.observation.code, error.observation.cause)
except MemoryError:
    print("MemoryError")
"""


def confined(affinity: tuple[int, ...] = (), memory: int = 0, size: int = 1) -> str:
    text = CONFINE.format(affinity=affinity, memory=memory, size=size)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="enforced on Linux only")
def test_processors_and_memory_are_held_to() -> None:
    one = min(os.sched_getaffinity(0))
    assert confined((one,)) == f"[{one}] 1\nfits\n"
    assert "KP511 The target's affinity = [9999] can't be enforced here" in confined((9999,))
    assert confined(memory=400, size=100).endswith("fits\n")
    assert confined(memory=400, size=500).endswith("MemoryError\n")


def test_pages_of_a_folder_can_be_dropped_and_nothing_is_lost(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"x" * 100_000)
    assert drop_pages([str(tmp_path)]) == hasattr(os, "posix_fadvise")
    assert (tmp_path / "a" / "file").read_bytes() == b"x" * 100_000


def test_limits_of_a_control_group_are_read_from_both_versions(tmp_path: Path) -> None:
    assert system.processor_limit(tmp_path) is None
    assert system.memory_limit(tmp_path) is None
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text("268435456\n")
    assert system.processor_limit(tmp_path) == 1.5
    assert system.memory_limit(tmp_path) == 2**28
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert system.processor_limit(tmp_path) is None
    assert system.memory_limit(tmp_path) is None
    old = tmp_path / "old"
    (old / "cpu").mkdir(parents=True)
    (old / "memory").mkdir()
    (old / "cpu" / "cpu.cfs_quota_us").write_text("50000")
    (old / "cpu" / "cpu.cfs_period_us").write_text("100000")
    (old / "memory" / "memory.limit_in_bytes").write_text("134217728")
    assert system.processor_limit(old) == 0.5
    assert system.memory_limit(old) == 2**27


class NullSession:
    """Answers without doing anything."""

    def infer(self, feeds: Any) -> Any:
        return feeds


def test_the_loop_adds_less_than_two_microseconds_to_a_call() -> None:
    kept: Any = SimpleNamespace(session=NullSession(), golden=SimpleNamespace(batch=lambda _: {}), batch=1)
    work = Model(kept)
    with collector_off():
        seconds = [once(work, 0)[0] for _ in range(5000)]
    assert statistics.median(seconds) < 2e-6

"""Limits are met or missed for sure, or it can't be told; a busy machine alone fails nothing, and excuses nothing that it can't explain."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.contract import LimitsTable
from kpipe.judging.limits import Measured, Sample, check_limits, limit_findings, told
from kpipe.loads import CHEAP_LEAST, LEAST, MOST, decide, enough, sum_up
from kpipe_stages.deciding_limits import SLOWER, undecided
from kpipe_stages.deciding_limits import decide as decide_calls
from kpipe_stages.disturbance import OTHERS, OwnWaits, Waits, Watch, is_disturbed, share, waited_ns
from kpipe_stages.intervals import Held
from kpipe_stages.protocol import Latency, LoadTimes, Window

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = sorted(LimitsTable.model_fields)
MIB = 2**20


def window(calls: int, *, others: float | None = 0.0, waited: float | None = 0.0, stolen: float | None = 0.0, seconds: float = 0.2) -> Window:
    return Window(calls, seconds, waited, others, stolen, 0)


def load(seconds: float, at: Window | None = None, **changes: Any) -> LoadTimes:
    facts: dict[str, Any] = {"import_s": 0.0, "load_s": seconds, "first_s": 0.0, "lean": False, "window": at or window(1)}
    return LoadTimes(**(facts | changes))


def sample(*seconds: float, windows: Sequence[Window] = (), looks: int = 1) -> Sample:
    return Sample(seconds, windows, looks)


def spread(low: float, high: float) -> Sample:
    return sample(*np.random.default_rng(1).permutation(np.linspace(low, high, 1000)))


FULL = Measured(
    loads=[load(s) for s in (1.0, 1.75, 2.0)],
    model_only=spread(1e-3, 2e-3),
    end_to_end=spread(3e-3, 4e-3),
    server=spread(5e-3, 6e-3),
    peak_bytes=64 * MIB,
    size_bytes=2 * MIB,
)


def only(limits: LimitsTable, measured: Measured) -> Any:
    (check,) = check_limits(limits, measured)
    return check


@pytest.mark.parametrize("name", NAMES)
def test_every_limit_is_checked_and_one_without_a_measurement_is_not_ok(name: str) -> None:
    check = only(LimitsTable(**{name: 1e9}), Measured())
    assert (check.name, check.value, check.ok, check.undecided) == (name, None, False, "")
    assert codes(check) == ["KP505"]


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_far_away_is_met_and_one_near_zero_is_missed(name: str) -> None:
    met, missed = (only(LimitsTable(**{name: limit}), FULL) for limit in (1e9, 1e-9))
    assert met.value == missed.value is not None
    assert (met.ok, missed.ok, met.undecided, missed.undecided) == (True, False, "", "")
    assert codes(met) == []
    assert codes(missed) == ["KP501" if name == "load_s" else "KP503" if name == "peak_mib" else "KP504" if name == "size_mib" else "KP502"]


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(("_s", "_ms"))])
def test_a_limit_at_the_measured_value_itself_cant_be_told(name: str) -> None:
    value = only(LimitsTable(**{name: 1e9}), FULL).value
    check = only(LimitsTable(**{name: value}), FULL)
    assert not check.ok
    assert check.undecided
    assert check.low <= value <= check.high
    assert codes(check) == ["KP506"]


def codes(check: Any) -> list[str]:
    found: list[str] = []
    limit_findings([check], lambda code, _cause, **_: found.append(code))
    return found


def test_values_are_in_the_limits_own_units() -> None:
    assert only(LimitsTable(load_s=9.0), FULL).value == 1.75
    assert only(LimitsTable(p50_ms=9.0), FULL).value == pytest.approx(1.5, abs=0.002)
    assert only(LimitsTable(end_to_end_p50_ms=9.0), FULL).value == pytest.approx(3.5, abs=0.002)
    assert only(LimitsTable(server_p50_ms=9.0), FULL).value == pytest.approx(5.5, abs=0.002)
    assert only(LimitsTable(peak_mib=99.0), FULL).value == 64.0
    assert only(LimitsTable(size_mib=9.0), FULL).value == 2.0


def test_model_only_never_stands_for_end_to_end_or_for_the_server() -> None:
    alone = Measured(model_only=FULL.model_only)
    assert only(LimitsTable(end_to_end_p50_ms=9.0), alone).value is None
    assert only(LimitsTable(server_p99_ms=9.0), alone).value is None


def test_nan_is_not_within_a_limit() -> None:
    check = only(LimitsTable(p50_ms=9.0), Measured(model_only=sample(*[math.nan] * 200)))
    assert not check.ok
    assert codes(check) == ["KP506"]


def test_an_interval_says_that_an_end_is_open() -> None:
    burst = [9e-3] * 60 + [1e-3] * 640
    check = only(LimitsTable(p99_ms=10.0), Measured(model_only=sample(*burst)))
    assert check.high is None
    assert not check.ok
    assert told(check).endswith("to open)")


# ---------------------------------------------------------------- a busy machine

BUSY = window(100, others=0.9)
SLOW = [2e-3] * 200


def test_a_limit_that_is_met_on_a_busy_machine_is_met() -> None:
    assert decide_calls([1e-3] * 200, [BUSY, BUSY], 50, 2e-3, 1).held is Held.MET


def test_a_limit_missed_on_a_busy_machine_alone_cant_be_told() -> None:
    decided = decide_calls(SLOW, [BUSY, BUSY], 50, 1e-3, 1)
    assert (decided.held, decided.disturbed) == (Held.OPEN, True)
    assert decide_calls(SLOW, [window(100), window(100)], 50, 1e-3, 1).held is Held.MISSED
    assert decide_calls(SLOW, [], 50, 1e-3, 1).held is Held.MISSED  # nobody looked: nothing excuses it


def test_the_quiet_calls_alone_may_convict() -> None:
    assert decide_calls(SLOW, [BUSY, window(100)], 50, 1e-3, 1).held is Held.MISSED
    assert decide_calls([*SLOW[:100], *[0.5e-3] * 60, *SLOW[:40]], [BUSY, window(100)], 50, 1e-3, 1).held is Held.OPEN


def test_quiet_calls_never_acquit() -> None:
    """Half of the calls, made on a busy machine, miss it: the others do not make it met."""
    decided = decide_calls([*[0.5e-3] * 90, *[5e-3] * 110], [window(90), window(110, others=0.9)], 50, 1e-3, 1)
    assert decided.held is Held.OPEN


def test_what_waiting_cannot_explain_is_missed_for_sure() -> None:
    sleepy = [6e-3] * 200
    assert decide_calls(sleepy, [window(200, others=0.9, waited=0.1)], 50, 1e-3, 1).held is Held.MISSED
    assert decide_calls(sleepy, [window(200, others=0.9, waited=0.5)], 50, 1e-3, 1).held is Held.OPEN
    assert decide_calls(sleepy, [window(200, others=0.9)], 50, 6e-3 / SLOWER, 1).held is Held.OPEN


def test_what_each_calls_own_thread_waited_is_let_off_that_call_alone() -> None:
    """Calls of 5 ms and some waiting: that the slow ones waited long doesn't make the others fast."""
    waits = [8e-3 if call % 2 else 0.0 for call in range(200)]
    sleepy = [5.1e-3 + wait for wait in waits]
    unknown = [window(200, others=0.9, waited=sum(waits) + 0.01)]
    assert decide_calls(sleepy, unknown, 50, 1e-3, 1).held is Held.OPEN
    busy = [replace(unknown[0], in_calls_s=0.01)]
    assert decide_calls(sleepy, busy, 50, 1e-3, 1, waits).held is Held.MISSED
    short = [0.5e-3 + wait for wait in waits]
    assert decide_calls(short, busy, 90, 1e-3, 1, waits).held is Held.OPEN


@given(st.lists(st.floats(1e-6, 1e-2), min_size=12, max_size=300), st.floats(1e-6, 1e-2), st.floats(0, 1), st.floats(0, 10))
def test_a_disturbance_only_ever_turns_missed_into_open(calls: list[float], limit: float, others: float, waited: float) -> None:
    plain = decide_calls(calls, [window(len(calls))], 50, limit, 1).held
    other = decide_calls(calls, [window(len(calls), others=others, waited=waited)], 50, limit, 1).held
    assert other is plain or (plain, other) == (Held.MISSED, Held.OPEN)


def test_the_worker_goes_on_while_a_limit_is_open() -> None:
    latency = Latency((1e-3,) * 100 + (2e-3,) * 100, 20, True, 0.0, 0.0, 0, 200)  # noqa: FBT003
    assert undecided(latency, {"50": 1.5e-3}, 1)
    assert not undecided(latency, {"50": 9e-3}, 1)
    assert not undecided(latency, {}, 1)


@pytest.mark.parametrize("memory", [0.0, 0.5])
def test_a_limit_at_the_true_percentile_is_hardly_ever_decided_however_often_one_looks(memory: float) -> None:
    """Whatever is decided then is wrong; calls are taken as the worker takes them, each as much like the one before as ``memory`` says."""
    generator, decided = np.random.default_rng(21), 0
    for _ in range(200):
        steps = generator.standard_normal(3200)
        for at in range(1, len(steps)):
            steps[at] = memory * steps[at - 1] + math.sqrt(1 - memory**2) * steps[at]
        calls = np.exp(steps)
        for look, count in enumerate((200, 400, 800, 1600, 3200), start=1):
            if decide_calls(calls[:count], [], 90, math.exp(1.2815516), look).held is not Held.OPEN:
                decided += 1
                break
    assert decided / 200 <= 0.03


def test_a_limit_ten_per_cent_away_is_decided() -> None:
    generator = np.random.default_rng(22)
    for away, answer in ((1.1, Held.MET), (0.9, Held.MISSED)):
        for _ in range(50):
            calls = 1e-3 * np.exp(0.1 * generator.standard_normal(800))
            assert decide_calls(calls, [], 50, 1e-3 * away, 3).held is answer


def test_disturbed_is_told_from_unknown() -> None:
    assert is_disturbed(()) is None
    assert is_disturbed((window(1, others=None, waited=None, stolen=None),)) is None
    assert is_disturbed((window(1),)) is False
    assert is_disturbed((window(1, others=OTHERS + 0.01),)) is True
    assert is_disturbed((window(1, others=None, waited=0.1),)) is True
    assert is_disturbed((window(1, others=0.1, waited=0.1),)) is True
    assert is_disturbed((window(1, others=0.02, waited=0.1),)) is False  # its own threads wait for one another
    assert is_disturbed((window(1, others=None, waited=None, stolen=0.5),)) is True
    assert share((window(1, others=None), window(1, others=0.5)), "others") == 0.5


def test_a_watch_counts_every_call_and_sees_its_own_process_as_its_own() -> None:
    watch = Watch()
    for _ in range(30):
        sum(range(200_000))
        watch.add(10)
    windows = watch.finish()
    assert sum(w.calls for w in windows) == 300
    assert watch.finish() == windows
    known = [w.others for w in windows if w.others is not None]
    assert all(0 <= other <= 1 for other in known)


def test_waits_and_work_of_ones_own_are_counted() -> None:
    own, waits = OwnWaits(), Waits()
    before = own.ns()
    assert waits.during(lambda: sum(range(2_000_000))) == 1_999_999_000_000
    assert own.ns() >= before
    assert waits.worked > 0
    assert (waits.seconds is None) == (waited_ns() is None)
    assert waits.seconds is None or waits.seconds >= 0
    assert own.known == (waited_ns() is not None)


# ---------------------------------------------------------------- loads


def test_one_load_settles_only_what_is_clear() -> None:
    assert decide([load(1.0)], 2.0) is Held.MET
    assert decide([load(1.0)], 1.5) is Held.OPEN
    assert decide([load(1.0)], 0.001) is Held.OPEN
    assert decide([], 9.0) is Held.OPEN


def test_more_loads_settle_more() -> None:
    assert decide([load(1.0), load(1.1)], 1.5) is Held.OPEN
    assert decide([load(1.0), load(1.1), load(1.2)], 1.6) is Held.MET
    assert decide([load(1.0), load(1.1), load(1.2)], 1.5) is Held.OPEN
    assert decide([load(1.0 + 0.01 * n) for n in range(7)], 1.1) is Held.OPEN
    assert decide([load(1.0 + 0.01 * n) for n in range(8)], 1.1) is Held.MET
    assert decide([load(1.0 + 0.01 * n) for n in range(7)], 0.9) is Held.OPEN
    assert decide([load(1.0 + 0.01 * n) for n in range(8)], 0.9) is Held.MISSED
    assert decide([load(1.0), load(1.1)], 0.5) is Held.OPEN
    assert decide([load(1.0), load(1.1), load(1.2)], 0.5) is Held.MISSED
    assert decide([load(1.0), load(1.1), load(1.2)], 1.05) is Held.OPEN


@pytest.mark.parametrize("spread", [0.01, 0.1, 0.2])
@pytest.mark.parametrize(("limit", "wrong"), [(0.999, Held.MET), (1.001, Held.MISSED)])
def test_a_limit_at_the_median_of_all_loads_is_hardly_ever_decided(spread: float, limit: float, wrong: Held) -> None:
    """Loads as the run takes them, with its stopping rule; the median is 1, and what is decided against a limit beside it is wrong."""
    generator, false, runs = np.random.default_rng(31), 0, 3000
    for _ in range(runs):
        loads: list[LoadTimes] = []
        while not loads or not enough(loads, limit, spent_s=float(len(loads)), budget_s=1e3, thorough=False):
            loads.append(load(float(generator.lognormal(0.0, spread))))
        false += decide(loads, limit) is wrong
    assert false / runs <= 0.01 + 3 * (0.01 * 0.99 / runs) ** 0.5


def test_loads_on_a_busy_machine_fail_nothing_that_they_may_explain() -> None:
    busy = window(1, others=0.9, waited=0.2)
    assert decide([load(1.0, busy)] * 3, 0.5) is Held.OPEN
    assert decide([load(1.0, busy), *[load(1.0)] * 3], 0.5) is Held.MISSED
    assert decide([load(1.0, busy)] * 3, 0.1) is Held.MISSED
    stuck = window(1, others=0.9, waited=1.0)
    assert decide([load(1.0, stuck)] * 3, 0.1) is Held.OPEN
    assert decide([load(1.0, stuck, worked_s=0.4)] * 3, 0.1) is Held.MISSED
    assert decide([load(1.0, stuck, worked_s=0.2)] * 3, 0.1) is Held.OPEN
    assert decide([load(1.0, stuck)] * 2 + [load(1.0, busy)] * 3, 0.1) is Held.MISSED
    assert decide([load(1.0, stuck)] * 3 + [load(1.0, busy)] * 3, 0.1) is Held.OPEN


def test_the_stopping_rule() -> None:
    def stop(*seconds: float, limit: float | None = None, thorough: bool = False, spent: float = 1.0, budget: float = 100.0) -> bool:
        return enough([load(s) for s in seconds], limit, spent_s=spent, budget_s=budget, thorough=thorough)

    assert stop(1.0)
    assert stop(1.0, limit=5.0)
    assert not stop(1.0, limit=1.5)
    assert not stop(1.0, limit=0.5)
    assert stop(1.0, 1.0, 1.0, limit=0.5)
    assert stop(1.0, limit=0.5, spent=60.0)
    assert not stop(3.0, 3.0, thorough=True)
    assert stop(3.0, 3.1, 3.05, thorough=True)
    assert not stop(3.0, 4.0, 3.05, thorough=True)
    assert not stop(*[0.1] * (CHEAP_LEAST - 1), thorough=True)
    assert stop(*[0.1] * CHEAP_LEAST, thorough=True)
    assert stop(*[1.0, 2.0] * (MOST // 2), limit=1.5, thorough=True)


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=25))
def test_the_median_of_loads_lies_in_its_interval(totals: list[float]) -> None:
    found = sum_up(totals)
    assert found.median in totals
    if len(totals) > 1:
        assert found.low is not None
        assert found.high is not None
        assert found.low <= found.median <= found.high
    assert found.confidence == (0.0 if len(totals) == 1 else pytest.approx(1 - 2.0 ** (1 - len(totals))) if len(totals) < CHEAP_LEAST else 0.99)


def test_the_range_of_few_loads_covers_as_often_as_it_says() -> None:
    generator = np.random.default_rng(11)
    for count in (LEAST, 5):
        draws = generator.exponential(size=(4000, count))
        covered = ((draws.min(axis=1) <= math.log(2)) & (draws.max(axis=1) >= math.log(2))).mean()
        assert covered == pytest.approx(sum_up(list(draws[0])).confidence, abs=0.03)

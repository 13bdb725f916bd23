"""Judging what timing in turns left behind: limits hold, break or stay unchecked; a slowdown is a warning; void times say nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kpipe.contract import BaselineTable
from kpipe.evidence import Ending, Opponent, StageEvidence
from kpipe.judging.raced import Own, Raced, judge_race
from kpipe_stages.codec import encode
from kpipe_stages.protocol import RaceResult, RaceRound, Window
from kpipe_stages.ratio import LOOKS

from . import sample_run

OWN = Own("litert", required=True, size=1000, peak_bytes=2000, allowed=1e-4)
OPPONENT = Opponent(sha256="ab", size=1000, peak_bytes=2000)
QUIET = (Window(128, 0.2, 0.0, 0.0, 0.0, 0),)
BUSY = (Window(128, 0.2, 0.05, 0.5, 0.0, 9),)
TABLE = BaselineTable()


def rounds(ratio: float, count: int = 9, *, spread: float = 0.01, calls: int = 64, load: float = 1.0) -> tuple[RaceRound, ...]:
    rng = np.random.default_rng(7)

    def times(factor: float) -> tuple[int, ...]:
        return tuple(int(n) for n in 1e6 * factor * np.exp(rng.normal(0, spread, calls)))

    return tuple(RaceRound(n % 2 == 0, 10**7, int(10**7 * load * rng.uniform(0.99, 1.01)), times(1.0), times(ratio), QUIET) for n in range(count))


def result(ratio: float = 1.0, **changes: Any) -> RaceResult:
    made = rounds(ratio)
    calls = sum(len(one.before_ns) + len(one.now_ns) for one in made)
    found = RaceResult(made, LOOKS.index(9) + 1, 8, 1, calls + 40, calls + 40, 0.0, 0.0, 1e-9, 3.0)
    return replace(found, **changes)


def stage(found: RaceResult | None, ending: Ending = Ending.OK) -> StageEvidence:
    return sample_run.stage("race.litert", sample_run.result("race", encode(found)) if found else None, ending)


def judged(found: RaceResult | None, limits: dict[str, float] | None = None, opponent: Opponent | None = OPPONENT, **own: Any) -> Raced:
    return judge_race(replace(OWN, **own), limits or {}, TABLE, opponent, stage(found) if found else None)


def told(raced: Raced) -> dict[str, str]:
    return {f.code: f.cause for f in raced.findings}


def test_equals_are_the_same_and_raise_nothing() -> None:
    raced = judged(result(), {"p50_ms": 1.05, "p90_ms": 1.1, "load_s": 1.2, "size_mib": 1.0, "peak_mib": 1.0})
    assert not raced.findings
    assert raced.record is not None
    assert raced.record.told == "same"
    assert {c.name for c in raced.limits if c.ok} == {"p50_ms", "p90_ms", "load_s", "size_mib", "peak_mib"}
    assert {r.name for r in raced.record.ratios} == {"p50_ms", "p90_ms", "p95_ms", "load_s"}, "so many calls support no p99"


def test_a_slowdown_is_a_warning_where_nothing_is_promised() -> None:
    raced = judged(result(1.1))
    (only,) = raced.findings
    assert (only.code, str(only.severity)) == ("KP520", "warning")
    assert "a call takes 1.1" in only.cause
    assert only.evidence["low"] > 1.02


@pytest.mark.parametrize(("limit", "code"), [("p50_ms", "KP502"), ("p90_ms", "KP502"), ("p95_ms", "KP502")])
def test_a_slowdown_breaks_a_limit_below_it_and_keeps_one_above(limit: str, code: str) -> None:
    assert set(told(judged(result(1.1), {limit: 1.05}))) == {code}
    assert not judged(result(1.1), {limit: 1.2}).findings, "a limit that is kept says that it is not too slow"


def test_a_limit_within_the_interval_is_unchecked() -> None:
    raced = judged(result(1.1), {"p50_ms": 1.1})
    assert set(told(raced)) == {"KP506"}
    assert "can't be told yet" in told(raced)["KP506"]
    (check,) = raced.limits
    assert not check.ok
    assert check.undecided
    assert check.low is not None
    assert check.high is not None
    assert check.low < 1.1 < check.high


def test_a_percentile_that_the_calls_do_not_support_is_unchecked() -> None:
    assert "too few calls" in told(judged(result(), {"p99_ms": 5.0}))["KP505"]


def test_size_memory_and_load_have_codes_of_their_own() -> None:
    slow = result(rounds=rounds(1.0, load=2.0))
    raced = judged(slow, {"load_s": 1.1, "size_mib": 1.1, "peak_mib": 1.1}, size=1200, peak_bytes=2300)
    assert set(told(raced)) == {"KP501", "KP503", "KP504"}
    assert told(raced)["KP504"] == "size_mib is 1.2 x baseline; the contract allows 1.1."


def test_memory_that_is_not_the_whole_of_it_is_unchecked() -> None:
    assert set(told(judged(result(), {"peak_mib": 9.0}, peak_bytes=None))) == {"KP505"}
    assert set(told(judged(result(), {"peak_mib": 9.0}, replace(OPPONENT, peak_bytes=None)))) == {"KP505"}
    assert set(told(judged(result(), {"size_mib": 9.0}, replace(OPPONENT, size=None)))) == {"KP505"}


def test_without_a_baseline_every_relative_limit_is_unchecked() -> None:
    limits = {"p50_ms": 9.0, "load_s": 9.0, "size_mib": 9.0, "peak_mib": 9.0}
    raced = judged(None, limits, None)
    assert [f.code for f in raced.findings] == ["KP505"] * len(limits)
    assert all("--baseline" in f.cause for f in raced.findings)
    assert not any(c.ok for c in raced.limits)
    assert judged(None, {}, None).findings == ()


def test_what_could_not_be_timed_is_said_and_its_limits_are_unchecked() -> None:
    gone = replace(OPPONENT, problem="the baseline's artifact x is not there any more")
    raced = judged(None, {"p50_ms": 9.0}, gone)
    assert set(told(raced)) == {"KP505", "KP521"}
    assert "not there any more" in told(raced)["KP521"]
    assert set(told(judged(None, {"p50_ms": 9.0}, replace(gone, shared=False)))) == {"KP505"}
    assert set(told(judged(None, {"p50_ms": 9.0}))) == {"KP505", "KP521"}, "a stage that is missing"


@pytest.mark.parametrize("ending", [Ending.CRASHED, Ending.TIMED_OUT, Ending.OUT_OF_MEMORY, Ending.FAILED, Ending.NOT_STARTED])
def test_a_worker_that_failed_leaves_the_limits_unchecked(ending: Ending) -> None:
    raced = judge_race(OWN, {"p90_ms": 9.0}, TABLE, OPPONENT, stage(None, ending))
    assert set(told(raced)) == {"KP505", "KP521"}
    assert raced.record is None


def test_times_of_other_answers_are_void() -> None:
    raced = judged(result(1.5, worst_now=0.1), {"p50_ms": 9.0})
    assert set(told(raced)) == {"KP412", "KP505", "KP521"}
    assert raced.record is None
    assert set(told(judged(result(worst_before=0.1), {"p50_ms": 9.0}))) == {"KP505", "KP521"}, "the baseline's fault isn't the candidate's"
    assert set(told(judged(result(worst_now=float("nan")), {"p50_ms": 9.0}))) == {"KP412", "KP505", "KP521"}
    assert " 3 outputs were compared" in told(judged(result(compared=3), {}))["KP521"]


def test_too_few_rounds_say_nothing() -> None:
    raced = judged(result(2.0, rounds=rounds(2.0, 2), looks=0), {"p50_ms": 9.0})
    assert set(told(raced)) == {"KP505"}
    assert raced.record is not None
    assert raced.record.told == "can't tell yet"


def test_targets_that_are_not_required_fail_nothing() -> None:
    assert not any(f.required for f in judged(result(1.5), {"p50_ms": 1.1}, required=False).findings)


@pytest.mark.parametrize("windows", [BUSY, ()])
def test_a_limit_is_not_kept_by_what_others_took(windows: tuple[Window, ...]) -> None:
    made = [replace(one, windows=windows) for one in rounds(1.0)]
    raced = judged(result(rounds=tuple(made)), {"p50_ms": 1.5, "p90_ms": 1.5, "load_s": 1.5})
    assert [f.code for f in raced.findings] == ["KP506"] * 3
    assert all("hides a slowdown" in f.cause for f in raced.findings)


def test_quiet_rounds_alone_may_keep_a_limit_and_disturbed_ones_may_break_it() -> None:
    some = tuple(replace(one, windows=BUSY) if n in {2, 5} else one for n, one in enumerate(rounds(1.0)))
    assert not judged(result(rounds=some), {"p50_ms": 1.5, "p90_ms": 1.5}).findings
    assert set(told(judged(result(rounds=tuple(replace(one, windows=BUSY) for one in some[:-2]) + some[-2:]), {"p90_ms": 1.5}))) == {"KP506"}
    broken = tuple(replace(one, windows=BUSY) for one in rounds(2.0))
    assert set(told(judged(result(rounds=broken), {"p90_ms": 1.5}))) == {"KP502"}

"""What timing in turns with the baseline says of a target, and of the limits that are relative to it. Pure."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe.evidence import Ending, race_stage
from kpipe.findings import Finding
from kpipe.judging.grade import finding
from kpipe.judging.limits import CODES, STRADDLES, told
from kpipe.judging.promises import class_of, own_tolerances
from kpipe.judging.repeats import relative_allowance
from kpipe.percentiles import NEEDED
from kpipe.record import LimitCheck, RaceRatio, RaceRecord
from kpipe_stages.codec import decode
from kpipe_stages.protocol import RaceResult
from kpipe_stages.racing import LOAD, P50, PERCENTILES, measured, within
from kpipe_stages.ratio import ERROR, Told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe.contract import BaselineTable
    from kpipe.evidence import Opponent, StageEvidence
    from kpipe.judging.answers import Answers
    from kpipe.judging.scene import Bench
    from kpipe_stages.ratio import Ratio

DISTURBED = "others used the machine in some rounds (or nothing says whether they did), which hides a slowdown; the quiet rounds alone don't show it"
UNIT = "x baseline"
NEXT = "Give it more time ([baseline] max_seconds), on a quieter machine, or move the limit away from what is measured."
NO_BASELINE = "there is no baseline. Name one: kpipe validate --baseline RUN_OR_BUNDLE"


@dataclass(frozen=True)
class Own:
    """The candidate's side of one target."""

    name: str
    required: bool
    size: int | None
    peak_bytes: int | None
    """None where it isn't the whole of it."""
    allowed: float
    """How far a timed output may be from the same session's first one, over its scale."""


@dataclass(frozen=True)
class Raced:
    """What comes of it."""

    record: RaceRecord | None
    limits: tuple[LimitCheck, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class _Checked:
    check: LimitCheck
    why: str = ""
    """There is no value."""


def race_of(bench: Bench, answers: Answers | None, size: int | None, peak_bytes: int | None) -> Raced:
    """Judge the target on the bench against its opponent; findings go to the bench.

    Args:
        bench: the target.
        answers: its saved outputs; None where it has none.
        size: bytes of its artifact.
        peak_bytes: its peak memory; None where that isn't the whole of it.
    """
    plan, reference, evidence = bench.plan, bench.scene.reference, bench.scene.evidence
    allowed = 0.0
    if answers is not None and reference is not None:
        tolerances, coarser = own_tolerances(bench, class_of(bench, answers), reference)
        allowed = relative_allowance(tolerances, reference.floors, coarser=coarser)
    opponent, stage = evidence.opponents.get(plan.name), bench.scene.stages.get(race_stage(plan.name))
    if opponent is not None and plan.absent is not None:  # this contract asks for other work than was done
        opponent, stage = replace(opponent, problem=f"it was not run as this contract has it: {plan.absent.cause}", shared=False), None
    own = Own(plan.name, plan.required, size, peak_bytes, allowed)
    raced = judge_race(own, bench.table.limits.relative, bench.scene.contract.baseline, opponent, stage)
    bench.findings += raced.findings
    return raced


def judge_race(own: Own, limits: Mapping[str, float], table: BaselineTable, opponent: Opponent | None, stage: StageEvidence | None) -> Raced:
    """Judge one target against its opponent.

    Args:
        own: the target.
        limits: key of each relative limit to its factor.
        table: ``[baseline]``.
        opponent: the baseline's side; None without a baseline.
        stage: ``race.<target>``; None where there is none.
    """
    result, problem = _result(opponent, stage)
    findings = list[Finding]()
    if result is not None and (void := _void(result, own)):
        findings += [finding("KP412", void, target=own.name, place="race", required=own.required)] if not result.worst_now <= own.allowed else []
        result, problem = None, void
    ratios = _ratios(result) if result else {}
    checked = [_check(name, factor, own, opponent, ratios, problem, result) for name, factor in limits.items()]
    findings += [_limit_finding(own, one) for one in checked if not one.check.ok]
    record = _record(result, ratios, table, opponent) if result and opponent else None
    if record is not None and record.told == Told.SLOWER and not any(name in PERCENTILES for name in limits):
        cause = f"Timed in turns with the baseline, a call takes {_told(ratios[P50])} as long ({record.rounds} sessions and {record.calls} calls of each)."
        evidence: dict[str, Any] = {"ratio": ratios[P50].value, "low": ratios[P50].low, "high": ratios[P50].high}
        findings.append(finding("KP520", cause, target=own.name, place=P50, required=own.required, **evidence))
    if problem and opponent is not None and opponent.shared:
        findings.append(finding("KP521", f"Not timed in turns with the baseline: {problem}.", target=own.name, place="race", required=own.required))
    return Raced(record, tuple(one.check for one in checked), tuple(findings))


def _result(opponent: Opponent | None, stage: StageEvidence | None) -> tuple[RaceResult | None, str]:
    """What was measured, or why nothing was."""
    if opponent is None:
        return None, NO_BASELINE
    if opponent.problem:
        return None, opponent.problem
    if stage is None:
        return None, "no worker was started for it"
    if stage.ending is not Ending.OK or stage.result is None:
        return None, f"its worker {stage.ending}: {stage.detail}".rstrip(". ")
    return decode(RaceResult, stage.result.data), ""


def _void(result: RaceResult, own: Own) -> str:
    """Why the times are worth nothing; empty where they are."""
    calls = sum(len(one.before_ns) + len(one.now_ns) for one in result.rounds)
    if result.compared != result.called or result.called < calls:
        return f"of {max(calls, result.called)} calls {result.compared} outputs were compared"
    for whose, worst in (("the baseline's artifact", result.worst_before), ("the candidate's artifact", result.worst_now)):
        if not worst <= own.allowed:
            return f"a timed call of {whose} differs from its first answer to the same input by {worst:.3g} of its scale"
    return ""


def _ratios(result: RaceResult) -> dict[str, Ratio]:
    """Every ratio that so many calls support."""
    calls = min(sum(len(one.before_ns) for one in result.rounds), sum(len(one.now_ns) for one in result.rounds))
    names = [name for name, p in PERCENTILES.items() if calls >= NEEDED[p]] + [LOAD]
    found = {name: measured(name, result.rounds, max(1, result.looks), result.resolution_s) for name in names}
    return {name: ratio for name, ratio in found.items() if ratio is not None}


def _check(
    name: str, factor: float, own: Own, opponent: Opponent | None, ratios: Mapping[str, Ratio], problem: str, result: RaceResult | None
) -> _Checked:
    """One relative limit: holds, broken, or not known."""
    if name in {"peak_mib", "size_mib"}:
        if opponent is None:
            return _unknown(name, factor, NO_BASELINE)
        before, now = (opponent.peak_bytes, own.peak_bytes) if name == "peak_mib" else (opponent.size, own.size)
        if not before or not now:
            return _unknown(name, factor, "it is not known of both sides, or not the whole of it")
        return _Checked(LimitCheck(name, factor, now / before, UNIT, ok=now <= factor * before))
    ratio = ratios.get(name)
    if ratio is None or result is None:
        return _unknown(name, factor, problem or "too few calls were timed in turns")
    holds = within(
        name, factor, ratio, result.rounds, max(1, result.looks), NEEDED[PERCENTILES[name]] if name in PERCENTILES else 0, result.resolution_s
    )
    why = "" if holds is not None else DISTURBED if ratio.within(factor) else STRADDLES
    return _Checked(LimitCheck(name, factor, ratio.value, UNIT, holds is True, ratio.low, ratio.high, why))


def _unknown(name: str, factor: float, why: str) -> _Checked:
    return _Checked(LimitCheck(name, factor, None, UNIT, ok=False), why)


def _limit_finding(own: Own, one: _Checked) -> Finding:
    check = one.check
    add = functools.partial(finding, target=own.name, place=check.name, required=own.required)
    numbers: dict[str, Any] = {"value": check.value, "low": check.low, "high": check.high, "limit": check.limit}
    if check.value is None:
        return add("KP505", f"Limit {check.name} = {check.limit:g}{UNIT} could not be checked: {one.why}.")
    if check.undecided:
        cause = f"{check.name} is {told(check)}; whether the contract's {check.limit:g} is kept can't be told yet: {check.undecided}."
        return add("KP506", cause, remedy=NEXT, **numbers)
    return add(CODES.get(check.name, "KP502"), f"{check.name} is {told(check)}; the contract allows {check.limit:g}.", **numbers)


def _told(ratio: Ratio) -> str:
    return f"{ratio.value:.3f} times ({ratio.low:.3f} to {ratio.high:.3f})"


def _record(result: RaceResult, ratios: Mapping[str, Ratio], table: BaselineTable, opponent: Opponent) -> RaceRecord:
    before = np.concatenate([np.array(one.before_ns) for one in result.rounds])
    now = np.concatenate([np.array(one.now_ns) for one in result.rounds])
    lines = tuple(RaceRatio(name, r.value, r.low, r.high, r.told(table.smallest)) for name, r in ratios.items())
    return RaceRecord(
        baseline_sha256=opponent.sha256,
        told=next((line.told for line in lines if line.name == P50), Told.UNKNOWN),
        ratios=lines,
        before_p50_s=float(np.median(before)) * 1e-9,
        now_p50_s=float(np.median(now)) * 1e-9,
        rounds=len(result.rounds),
        calls=min(len(before), len(now)),
        seconds=result.seconds,
        smallest=table.smallest,
        error=ERROR,
    )

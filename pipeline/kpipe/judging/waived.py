"""Waivers held against the findings of a run. Pure.

A finding is waived where everything that it says is covered: each flipped input of a KP404, the largest difference of a KP401. A target that
fails is waived where every finding that fails it is: each of its failed cells is behind one of them (`kpipe.judging.cells`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kpipe.findings import Finding
from kpipe.judging.grade import finding
from kpipe.judging.verdict import failing
from kpipe.record import CellStatus, TargetRecord, WaiverRecord, WaiverState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe.record import Flip
    from kpipe.waivers import Waiver, WaiverSet

OWN = " vs alone"
"""Ends the mode of a drift that is measured against the target's own answers (`kpipe.judging.cells`)."""


@dataclass(frozen=True)
class Held:
    """What waivers make of a run."""

    findings: tuple[Finding, ...]
    targets: tuple[TargetRecord, ...]
    waivers: tuple[WaiverRecord, ...]


@dataclass(frozen=True)
class Claim:
    """One thing that a finding says, as a number."""

    where: str
    value: float


def hold_waivers(
    waivers: WaiverSet, findings: Sequence[Finding], targets: tuple[TargetRecord, ...], flips: Sequence[Flip], candidate_sha256: str
) -> Held:
    """Mark what is waived, and say what every waiver did.

    Args:
        waivers: with the day to hold them against.
        findings: of the run.
        targets: its targets.
        flips: of all targets.
        candidate_sha256: the artifact of targets that run the ``.keras`` file, and of the reference.
    """
    if not waivers.waivers:
        return Held(tuple(findings), targets, ())
    by_name = {target.name: target for target in targets}
    claims = [(f, claims_of(f, by_name.get(f.target), flips)) for f in findings if _may_be_waived(f)]
    artifacts = {name: t.artifact.sha256 if t.artifact else candidate_sha256 for name, t in by_name.items()} | {"reference": candidate_sha256}
    records = [_record(waiver, waivers, claims, artifacts) for waiver in waivers.waivers]
    used = {(r.code, r.target, r.where): r for r in records if r.state is WaiverState.USED}
    marked = {id(f): told for f, said in claims if (told := _waived(f, said, used))}
    after = [replace(f, waived=marked.get(id(f), "")) for f in findings]
    return Held((*after, *_said(records)), tuple(waived_target(t, after) for t in targets), tuple(records))


def claims_of(one: Finding, target: TargetRecord | None, flips: Sequence[Flip]) -> tuple[Claim, ...]:
    """What a finding says in numbers; nothing where it can't be bounded by them.

    KP404: the largest drift on each flipped input, over all ways of running. KP401 and KP408: the largest absolute difference of the output
    from the reference, or from the target alone. KP106, KP418: the largest absolute difference. KP501 to KP504: the measured value.
    """
    if one.code == "KP404":
        return _flip_claims(one.target, flips)
    if one.code in {"KP401", "KP408"}:
        own = one.code == "KP408"
        drifts = [d.max_abs for d in target.drift if d.output == one.place and d.mode.endswith(OWN) == own] if target else []
        return (Claim(one.place, _largest(drifts)),) if drifts and "max_abs" in one.evidence else ()
    value = one.evidence.get("value" if one.code.startswith("KP5") else "max_abs")
    return (Claim(one.place, float(value)),) if isinstance(value, int | float) else ()


def _flip_claims(target: str, flips: Sequence[Flip]) -> tuple[Claim, ...]:
    worst: dict[str, list[float]] = {}
    for flip in flips:
        if flip.target == target and not flip.tie:
            worst.setdefault(flip.input, []).append(flip.drift)
    return tuple(Claim(name, _largest(drifts)) for name, drifts in worst.items())


def _largest(values: Sequence[float]) -> float:
    """NaN where any is: a difference that has no size is covered by no range."""
    return math.nan if any(math.isnan(v) for v in values) else max(values, default=math.nan)


def _may_be_waived(one: Finding) -> bool:
    return bool(failing([replace(one, required=True)]))


def _record(waiver: Waiver, waivers: WaiverSet, claims: Sequence[tuple[Finding, tuple[Claim, ...]]], artifacts: dict[str, str]) -> WaiverRecord:
    values = [c.value for f, said in claims if (f.code, f.target) == (waiver.code, waiver.target) for c in said if c.where == waiver.where]
    found = _largest(values) if values else None
    assert waivers.today is not None, "waivers are held against a day"
    if waivers.today > waiver.expires:
        state = WaiverState.EXPIRED
    elif found is None:
        state = WaiverState.UNUSED
    else:
        same = artifacts.get(waiver.target) == waiver.artifact
        state = WaiverState.USED if same and waiver.covers(found) else WaiverState.REFUSED
    return WaiverRecord(
        code=waiver.code,
        target=waiver.target,
        where=waiver.where,
        artifact=waiver.artifact,
        observed=waiver.observed,
        allowed=waiver.allowed,
        owner=waiver.owner,
        reason=waiver.reason,
        expires=waiver.expires.isoformat(),
        state=state,
        found=found,
    )


def _waived(one: Finding, said: tuple[Claim, ...], used: dict[tuple[str, str, str], WaiverRecord]) -> str:
    """Who answers for all that a finding says; empty where a part of it is not covered."""
    covering = [used.get((one.code, one.target, claim.where)) for claim in said]
    known = [record for record in covering if record is not None]
    if not known or len(known) != len(covering):
        return ""
    return "; ".join(dict.fromkeys(f"{r.owner} until {r.expires}: {r.reason}" for r in known))


def waived_target(target: TargetRecord, findings: Sequence[Finding]) -> TargetRecord:
    """A target that fails, and whether every finding that fails it is waived."""
    errors = [replace(f, required=True) for f in findings if f.target == target.name]
    covered = any(f.waived for f in errors) and not failing(errors)
    return replace(target, waived=target.status is CellStatus.FAIL and covered)


def _said(records: Sequence[WaiverRecord]) -> list[Finding]:
    """A finding for every waiver that covers nothing."""
    found = []
    for r in records:
        place, now = f"{r.code} {r.target} {r.where}", "none" if r.found is None else f"{r.found:.6g}"
        about = f"The waiver of {r.code} on target '{r.target}' at '{r.where}' by {r.owner}"
        facts: dict[str, Any] = {
            "observed": r.observed,
            "allowed": list(r.allowed),
            "found": r.found if r.found is not None and math.isfinite(r.found) else now,
        }
        if r.state is WaiverState.EXPIRED:
            found.append(finding("KP701", f"{about} expired after {r.expires}; the value is now {now}.", place=place, **facts))
        elif r.state is WaiverState.UNUSED:
            found.append(finding("KP702", f"{about} covers nothing: the run has no such finding.", place=place, **facts))
        elif r.state is WaiverState.REFUSED:
            inside = r.found is not None and math.isfinite(r.found) and r.allowed[0] <= r.found <= r.allowed[1]
            why = (
                f"it is for the artifact {r.artifact[:12]}, and this run has another one"
                if inside
                else f"it allows {r.allowed[0]:g} to {r.allowed[1]:g}"
            )
            found.append(finding("KP703", f"{about} does not cover the finding: the value is now {now}, and {why}.", place=place, **facts))
    return found

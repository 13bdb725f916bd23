"""What all reports say alike: a row a target, findings in order, and where a record contradicts itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpipe.codes import UNCHECKED_CODES
from kpipe.findings import Finding, Severity
from kpipe.record import CellStatus, DecisionRecord, Drift, LatencyRecord, LoadRecord, MachineRecord, RunRecord, TargetRecord, Verdict, WaiverState
from kpipe.report import text

if TYPE_CHECKING:
    from collections.abc import Iterable

WORDS = {CellStatus.PASS: "PASS", CellStatus.FAIL: "FAIL", CellStatus.UNCHECKED: "UNCHECKED"}

_SEVERITY_ORDER = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


@dataclass(frozen=True)
class TargetRow:
    """One target as a table shows it; every field is text, `text.ABSENT` where nothing was measured."""

    name: str
    title: str
    status: CellStatus
    word: str
    required: bool
    drift: str
    """Largest absolute difference of the worst output."""
    used: str
    """Share of the tolerance that it used up."""
    flips: str
    ties: int
    load: str
    p50: str
    p90: str
    size: str
    reason: str
    cells: str


def status_of(target: TargetRecord) -> CellStatus:
    """The target's status, except that a pass without one passed cell is unchecked: zero cells are not a pass."""
    if target.status is CellStatus.PASS and target.cells.passed == 0:
        return CellStatus.UNCHECKED
    return target.status


def worst_drift(target: TargetRecord) -> Drift | None:
    """The output and mode that used up most of its tolerance; one that isn't judged by numbers counts last."""
    return max(target.drift, key=lambda d: (d.tolerance.numeric, text.badness(d.smallest_factor), text.badness(d.max_abs)), default=None)


def percentile(latency: LatencyRecord | None, p: float) -> float | None:
    """Seconds at percentile ``p`` where the sample supports it."""
    return next((q.seconds for q in latency.percentiles if q.p == p), None) if latency else None


DISTURBED = "~"
"""Beside a time that was taken while others took the machine."""

DISTURBED_LEGEND = "~ measured while others took the machine: longer than on a quiet one"


def marked(told: str, machine: MachineRecord | None) -> str:
    """A time as a table shows it, with its mark."""
    return f"{DISTURBED}{told}" if machine is not None and machine.disturbed and told != text.ABSENT else told


def load_total(load: LoadRecord | None) -> float | None:
    """Seconds of import, load and first inference: the median of all loads, where there were several."""
    if load is None:
        return None
    return load.total_s if load.total_s is not None else load.import_s + load.load_s + load.first_s


def disturbed(record: RunRecord) -> bool:
    """Whether any time in the record carries the mark."""
    return any(DISTURBED in (row.load[:1], row.p50[:1], row.p90[:1]) for row in rows(record))


def target_row(target: TargetRecord, *, decided: bool = True) -> TargetRow:
    """Turn one target into its row.

    Args:
        target: the target or the reference.
        decided: a decision rule is in force. Without one nobody looked for flips, and 0 would claim that decisions agree.
    """
    status = status_of(target)
    worst = worst_drift(target)
    cells = target.cells
    compared = bool(target.flips or (decided and (target.drift or cells.passed)))
    return TargetRow(
        name=text.clean(target.name),
        title=text.clean(target.title),
        status=status,
        word="WAIVED" if target.waived else WORDS[status],
        required=target.required,
        drift=text.number(worst.max_abs) if worst else text.ABSENT,
        used=(text.share(worst.smallest_factor) if worst.tolerance.numeric else "not judged") if worst else text.ABSENT,
        flips=str(target.flips) if compared else text.ABSENT,
        ties=target.ties,
        load=marked(text.seconds(load_total(target.load)), target.load.machine if target.load else None),
        p50=marked(text.seconds(percentile(target.latency, 50)), target.latency.machine if target.latency else None),
        p90=marked(text.seconds(percentile(target.latency, 90)), target.latency.machine if target.latency else None),
        size=text.size(target.artifact.size if target.artifact else None),
        reason=_reason(target) or ("no cell was checked" if status is CellStatus.UNCHECKED else ""),
        cells=f"{cells.passed:,} pass, {cells.failed:,} fail, {cells.unchecked:,} unchecked",
    )


def _reason(target: TargetRecord) -> str:
    """Why, and at which border."""
    told = f"first broken edge: {target.edge.name}. {target.edge.sentence}" if target.edge and target.edge.sentence not in target.reason else ""
    reason = text.clean(target.reason)
    return f"{reason}{'' if reason.endswith('.') or not reason else '.'} {text.clean(told[:1].upper() + told[1:])}".strip() if told else reason


def rows(record: RunRecord) -> list[TargetRow]:
    """One row a target, in the record's order."""
    return [target_row(target, decided=bool(rules(record))) for target in record.targets]


def rules(record: RunRecord) -> tuple[DecisionRecord, ...]:
    """Every decision rule in force; records from before there could be several have one at most."""
    return record.decisions or ((record.decision,) if record.decision else ())


def rules_in_brief(record: RunRecord) -> str:
    """``argmax of digit, quality: threshold of score``: every rule, with its name where it has one."""
    told = (
        (f"{text.shorten(rule.name, 40)}: " if rule.name else "") + f"{text.shorten(rule.rule, 40)} of {text.shorten(rule.output, 40)}"
        for rule in rules(record)
    )
    return text.listing(told) or "no decision rule"


def steadiness(record: RunRecord) -> str:
    """One sentence on how far the reference moves by itself; empty where nothing is known of it."""
    kinds = (("asked again", "repeat"), ("in batches", "batch"), ("on one thread", "threads"))
    told = []
    for floor in record.truth.floors if record.truth else ():
        known = [(words, found) for words, name in kinds if (found := getattr(floor, name)) is not None]
        parts = [
            f"{words} {text.number(found.max_abs)}{f' ({text.number(found.floors)} floors)' if found.floors is not None else ''}"
            for words, found in known
        ]
        told += [f"{text.listing(parts)} in {text.shorten(floor.output, 40)}"] if parts else []
    return f"The reference is this far from itself: {'; '.join(told)}." if told else ""


def profile_in_brief(record: RunRecord) -> str:
    """``; signoff profile``; empty for the default one."""
    return "" if record.profile == "default" else f"; {text.shorten(record.profile, 20)} profile"


def status_counts(record: RunRecord) -> dict[CellStatus, int]:
    """Required targets by status."""
    counts = Counter(status_of(t) for t in record.targets if t.required)
    return {status: counts[status] for status in CellStatus}


def by_severity(findings: Iterable[Finding]) -> dict[Severity, list[Finding]]:
    """Errors, warnings, notes; in each the ones about required targets first, waived ones after the others, then by code and target."""
    ordered = sorted(findings, key=lambda f: (not f.required, bool(f.waived), f.code, f.target, f.place))
    return {severity: [f for f in ordered if f.severity is severity] for severity in _SEVERITY_ORDER}


def waiver_lines(record: RunRecord) -> tuple[str, ...]:
    """A line for every waiver: what it is about, what became of it, who answers for it."""
    lines = []
    for one in record.waivers:
        place = f"{text.clean(one.code)} on {text.clean(one.target)} at {text.shorten(one.where, 60)}"
        value = f"{text.number(one.found)} now, " if one.found is not None else ""
        allowed = f"{text.number(one.allowed[0])} to {text.number(one.allowed[1])} allowed"
        said = {
            WaiverState.USED: "Waived",
            WaiverState.EXPIRED: "Waiver expired",
            WaiverState.UNUSED: "Waiver unused",
            WaiverState.REFUSED: "Waiver does not cover",
        }[one.state]
        lines.append(
            f"{said}: {place} ({value}{allowed}), by {text.shorten(one.owner, 60)} until {text.clean(one.expires)}: {text.shorten(one.reason, 200)}"
        )
    return tuple(lines)


def drift_passes(drift: Drift) -> bool:
    """Every cell of this comparison was checked and passed, there was at least one, and the factor says the same (NaN does not)."""
    numbers_agree = drift.smallest_factor <= 1 or not drift.tolerance.numeric
    return drift.cells.passed > 0 and drift.cells.failed == 0 and drift.cells.unchecked == 0 and numbers_agree


def contradictions(record: RunRecord) -> tuple[str, ...]:
    """Where a record that says PASS holds something that is none. A report must not be greener than its cells.

    The verdict is not this module's to give; but a fault in the code that gave it must not pass through a report unseen.
    """
    if record.verdict is not Verdict.PASS:
        return ()
    required = [t for t in record.targets if t.required]
    problems = [] if required else ["the verdict is PASS and there is no required target"]
    problems += [problem for target in required for problem in _unfit(target)]
    problems += _unfounded(record)
    optional = {t.name for t in record.targets if not t.required}
    for finding in record.findings:
        about_required = finding.required and finding.target not in optional
        failing = finding.severity is Severity.ERROR and not finding.waived
        if about_required and (failing or finding.code in UNCHECKED_CODES):
            problems.append(f"the verdict is PASS and there is {text.clean(finding.code)} on {text.clean(finding.target) or 'the run'}")
    return tuple(dict.fromkeys(problems))


def _unfounded(record: RunRecord) -> list[str]:
    """What is marked as waived and isn't by any waiver of the record."""
    used = {(w.code, w.target) for w in record.waivers if w.state is WaiverState.USED}
    waived = {(f.code, f.target) for f in record.findings if f.waived}
    problems = [
        f"{text.clean(code)} on {text.clean(target) or 'the run'} is marked waived and no waiver covers it" for code, target in sorted(waived - used)
    ]
    named = {target for _, target in waived}
    return problems + [
        f"{text.clean(t.name)} is marked waived and no finding about it is" for t in record.targets if t.waived and t.name not in named
    ]


def _unfit(target: TargetRecord) -> list[str]:
    """Why this target can't be part of a PASS."""
    name = text.clean(target.name)
    if target.waived:
        return [f"the verdict is PASS and {target.cells.unchecked} cells of {name} are unchecked"] if target.cells.unchecked else []
    if target.status is not CellStatus.PASS:
        return [f"the verdict is PASS and the required target {name} is {target.status}"]
    problems = []
    if target.cells.passed == 0 or target.cells.failed or target.cells.unchecked:
        problems.append(f"{name} is marked pass and its cells are: {target_row(target).cells}")
    problems += [
        f"{name} is marked pass and output {text.clean(d.output)} in mode {text.clean(d.mode)} is not" for d in target.drift if not drift_passes(d)
    ]
    problems += [f"{name} is marked pass and the limit {text.clean(limit.name)} is not kept" for limit in target.limits if not limit.ok]
    return problems


def warnings_first(record: RunRecord) -> tuple[str, ...]:
    """What a reader must see beside the verdict: contradictions, then waivers, then caveats."""
    wrong = tuple(f"This record contradicts itself: {p}. Don't trust the verdict; report it." for p in contradictions(record))
    return (*wrong, *waiver_lines(record), *record.caveats)


def place_of(finding: Finding) -> str:
    """The finding's place, unless it only repeats the target."""
    return "" if finding.place == finding.target else finding.place


def trusted(record: RunRecord) -> bool:
    """The record says PASS and nothing in it speaks against that."""
    return record.verdict is Verdict.PASS and not contradictions(record)

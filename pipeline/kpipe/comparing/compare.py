"""Two subjects to one comparison: decisions, numbers, surroundings, policy, findings. Pure, over saved answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kpipe.codes import UNCHECKED_CODES
from kpipe.comparing.decisions import both_sides, tallies
from kpipe.comparing.numbers import moved, raced_with, targets
from kpipe.comparing.pairing import Paired, pair
from kpipe.comparing.policy import check_policy
from kpipe.comparing.surroundings import differences
from kpipe.comparison import COMPARISON_VERSION, Answer, Changed, Comparison, Moved, Outcome, Tally
from kpipe.errors import KpipeError
from kpipe.findings import Severity
from kpipe.judging.grade import finding
from kpipe.record import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kpipe.comparing.subject import Subject
    from kpipe.comparison import Check, Difference, TargetPair
    from kpipe.contract import CompareTable
    from kpipe.findings import Finding

NAMED = 5


def compare(before: Subject, now: Subject, policy: CompareTable | None, confidence: float, ancestor: Subject | None = None) -> Comparison:
    """Hold a model against an earlier one.

    Args:
        before: the baseline.
        now: the candidate.
        policy: ``[compare]`` of the contract; None where nothing is promised.
        confidence: at which a model is called worse.
        ancestor: the first approved model of the line, where that is known and isn't ``before``.

    Raises:
        KpipeError: saved answers are gone or were altered.
    """
    paired = pair(before.evidence.golden, now.evidence.golden)
    lines, counted, unchecked, missing = _decisions(before, now, paired)
    try:
        steps, left = moved("baseline", before, now, paired.rows, len({line.input for line in lines}))
        steps += _since_first(ancestor, now)
    except (OSError, ValueError, LookupError) as error:
        raise KpipeError(f"saved answers can't be read back: {error}. A run whose outputs were altered can't be compared.") from error
    alone = len(paired.inputs.only_before) + len(paired.inputs.only_now)
    checks = check_policy(policy, lines, counted, alone, paired.slices_alone, missing)
    rows = targets(before.record.targets, now.record.targets)
    unlike = differences(before, now)
    unchecked = [*unchecked, *left, *_not_shared(paired), *_not_on_both(rows), *now.untimed]
    findings = [
        *_policy_findings(checks, paired),
        *_worse(counted, confidence),
        *_unlike(unlike),
        *(finding("KP724", sentence, place="comparison") for sentence in unchecked),
        *_baseline(before),
    ]
    outcome, headline = _outcome(findings, checks, paired, lines)
    return Comparison(
        version=COMPARISON_VERSION,
        before=before.side,
        now=now.side,
        outcome=outcome,
        headline=headline,
        inputs=paired.inputs,
        tallies=tuple(counted),
        changed=tuple(lines),
        moved=tuple(steps),
        targets=rows,
        differences=unlike,
        checks=checks,
        unchecked=tuple(unchecked),
        findings=tuple(findings),
        interleaved=any(raced_with(new, old) for new in now.record.targets for old in before.record.targets if new.name == old.name),
    )


def _decisions(before: Subject, now: Subject, paired: Paired) -> tuple[list[Changed], list[Tally], list[str], int]:
    """Changed decisions, tallies, sentences on rules that could not be compared, and how many those are."""
    lines, counted, unchecked = list[Changed](), list[Tally](), list[str]()
    names = dict.fromkeys([*now.rules, *now.undecided, *before.rules, *before.undecided])
    for name in names:
        if name in before.rules and name in now.rules:
            pairs = both_sides(before.rules[name], now.rules[name], paired.rows, now.inputs)
            lines += [line for line, differs in pairs if differs]
            counted += tallies(name, pairs)
            continue
        why = [f"{side.side.path}: {side.undecided.get(name, 'it has no such rule')}" for side in (before, now) if name not in side.rules]
        unchecked.append(f"Decisions{f' by rule {name!r}' if name else ''} were not compared ({'; '.join(why)}).")
    if not names:
        unchecked.append("Decisions were not compared: no decision rule is known on either side.")
    return lines, counted, unchecked, len(names) - len({t.rule for t in counted}) if names else 1


def _since_first(ancestor: Subject | None, now: Subject) -> list[Moved]:
    """The whole way from the first approved model: many small steps may be a large one."""
    if ancestor is None:
        return []
    paired = pair(ancestor.evidence.golden, now.evidence.golden)
    lines, _, _, _ = _decisions(ancestor, now, paired)
    return moved("first approved", ancestor, now, paired.rows, len({line.input for line in lines}))[0]


def _not_shared(paired: Paired) -> Iterator[str]:
    for names, which in ((paired.inputs.only_before, "the baseline"), (paired.inputs.only_now, "the candidate")):
        if names:
            shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
            yield f"{len(names)} golden input{'s' if len(names) > 1 else ''} that only {which} was asked: {shown}."


def _not_on_both(rows: Sequence[TargetPair]) -> Iterator[str]:
    for row in rows:
        if not row.before or not row.now:
            yield f"Target '{row.target}' was {'not part of the baseline' if not row.before else 'part of the baseline and is not of the candidate'}."


def _policy_findings(checks: Sequence[Check], paired: Paired) -> Iterator[Finding]:
    for one in checks:
        said = f"[compare] {one.rule} = {one.allowed:g}: {one.why}."
        facts: dict[str, Any] = {"allowed": one.allowed, "changed": one.changed, "inputs": one.inputs, "unchecked": one.unchecked}
        if one.answer is Answer.BROKEN:
            yield finding("KP720", said, place=one.rule, **facts)
        elif one.answer is Answer.UNCHECKED:
            yield finding("KP721", said, place=one.rule, **facts)
    if not checks and not paired.rows:
        yield finding("KP721", "The two have no golden input in common.", place="golden")


def _worse(counted: Sequence[Tally], confidence: float) -> Iterator[Finding]:
    """A slice in which the baseline is right more often than chance explains."""
    for t in counted:
        if t.p_value is not None and t.only_before > t.only_now and t.p_value <= 1.0 - confidence:
            where = f" on slice '{t.slice}'" if t.slice else ""
            cause = f"The candidate is right on {t.right_now} of {t.known} inputs{where}, the baseline on {t.right_before}: {t.only_before} lost, {t.only_now} won (McNemar's exact test, p = {t.p_value:.2g})."
            yield finding("KP722", cause, place=t.slice or "all", lost=t.only_before, won=t.only_now, p_value=t.p_value)


def _unlike(unlike: Sequence[Difference]) -> Iterator[Finding]:
    if unlike:
        shown = "; ".join(f"{d.where}: {d.what}" for d in unlike[:NAMED]) + (f" and {len(unlike) - NAMED} more" if len(unlike) > NAMED else "")
        yield finding("KP723", f"{len(unlike)} differences from the baseline besides the model: {shown}.", place="environment", count=len(unlike))


def _baseline(before: Subject) -> Iterator[Finding]:
    if before.record.verdict is not Verdict.PASS:
        yield finding("KP725", f"The baseline's own verdict is {before.record.verdict}: {before.record.headline}", place=before.side.path)


def _outcome(findings: Sequence[Finding], checks: Sequence[Check], paired: Paired, lines: Sequence[Changed]) -> tuple[Outcome, str]:
    changed = len({line.input for line in lines})
    told = f"{changed} of {paired.inputs.shared} shared golden inputs {'is' if changed == 1 else 'are'} decided otherwise than by the baseline"
    if broken := [f for f in findings if f.severity is Severity.ERROR and f.code not in UNCHECKED_CODES]:
        return Outcome.FAIL, f"{told}: {broken[0].cause}"
    if open_ones := [f for f in findings if f.code in UNCHECKED_CODES]:
        return Outcome.INCOMPLETE, f"{told}: {open_ones[0].cause}"
    return Outcome.PASS, f"{told}; " + ("the policy holds." if checks else "the contract has no [compare], so nothing was promised.")

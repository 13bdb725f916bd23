"""The reference held to itself: repeatable, the same alone and in company, finite, and what was approved. Pure, over saved outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe.findings import Finding
from kpipe.judging.answers import ALONE, Answers
from kpipe.judging.company import moved, moved_sentence, only_padded
from kpipe.judging.compare import Problem, compare, kind_of
from kpipe.judging.floor import Floor, band_of
from kpipe.judging.grade import finding
from kpipe.judging.repeats import allowances, repeats_itself
from kpipe.judging.ruled import Ruled, rule_the_reference
from kpipe.profiles import DEFAULT, Profile
from kpipe.record import TruthRecord
from kpipe_stages.decisions import runs_code
from kpipe_stages.protocol import DecisionSpec

if TYPE_CHECKING:
    from kpipe.golden import GoldenInput
    from kpipe.record import Tolerance
    from kpipe_stages.protocol import RunResult


Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Reference:
    """The reference's answers and decisions."""

    answers: Answers
    rules: tuple[Ruled, ...] = ()
    findings: tuple[Finding, ...] = field(default=())
    floors: Mapping[str, Floor] = field(default_factory=dict)
    """Output to its noise floor; empty where there was no float64 run."""

    unknown: tuple[DecisionSpec, ...] = ()
    """Rules of the user's own code by which no decisions of the reference are known."""
    truth: TruthRecord | None = None
    """What the float64 run came to."""

    def widths(self, output: str, precision: str = "float32") -> Array | None:
        """The noise floor of each input, or the spacing of ``precision`` where that is wider, in units of the output; None where it isn't known."""
        floor = self.floors.get(output)
        return floor.allowed(precision) if floor is not None else None

    def band(self, spec: DecisionSpec, index: int) -> float:
        """The noise floor of a decision's scores on one input, in their units; 0 where it isn't known."""
        return band_of(self.floors, spec, index)


def judge_reference(
    answers: Answers,
    specs: tuple[DecisionSpec, ...],
    inputs: tuple[GoldenInput, ...],
    tolerances: dict[str, Tolerance],
    floors: Mapping[str, Floor],
    profile: Profile = DEFAULT,
    owed: tuple[str, ...] = (),
) -> Reference:
    """Check the reference against itself and against what was approved; ``owed`` are the ways of running that the profile asks of it."""
    findings = [
        *_repeatable(answers, tolerances, floors, profile),
        *_not_run(answers, owed),
        *_batch_invariant(answers, inputs, tolerances, floors),
        *_numbers(answers, inputs),
        *_company(answers, inputs),
    ]
    rules, found = rule_the_reference(answers, specs, inputs, floors)
    known = {ruled.spec.name for ruled in rules}
    unknown = tuple(spec for spec in specs if runs_code(spec.rule) and spec.name not in known)
    reference = Reference(answers, rules, (*findings, *found), floors, unknown)
    return replace(reference, findings=(*reference.findings, *_moved(reference, owed, inputs)))


def _not_run(answers: Answers, owed: tuple[str, ...]) -> list[Finding]:
    """What the reference owes and was neither run nor refused: nothing is known of it."""
    missing = [mode for mode in owed if not answers.has(mode) and mode not in answers.result.failed]
    if not missing:
        return []
    cause = f"The reference was not run in {', '.join(missing[:5])}{f' and {len(missing) - 5} more' if len(missing) > 5 else ''}, which the profile asks for."  # noqa: PLR2004 - as many as are named
    return [finding("KP314", cause, target="reference", place="profile", modes=missing)]


def _moved(reference: Reference, owed: tuple[str, ...], inputs: tuple[GoldenInput, ...]) -> list[Finding]:
    """The reference's own decisions in company against those alone."""
    rules = {ruled.spec.name: ruled for ruled in reference.rules}
    unknown: dict[str, str] = {}
    found = moved(reference.answers, rules.values(), owed, reference, unknown)
    lost = [
        finding("KP419", f"No decisions of the reference in mode '{mode}': {why}", target="reference", place=mode) for mode, why in unknown.items()
    ]
    return lost + [
        finding(
            "KP413",
            f"Of the reference: {moved_sentence(rules[rule], by_mode, inputs, reference.answers.result.modes)}",
            target="reference",
            place=output,
            modes=list(by_mode),
        )
        for (rule, output), by_mode in found.items()
    ]


def repeats_owed(result: RunResult, profile: Profile, whose: str) -> str:
    """Why it isn't known whether a worker repeats itself; empty where it is."""
    if result.repeats_equal is None:
        return f"The {whose} was not run twice, so whether it repeats itself is not known."
    if result.repeats_equal and result.repeats < profile.repeats:
        return f"The {whose} was run {result.repeats} more time{'s' if result.repeats > 1 else ''}; the profile '{profile.name}' asks for {profile.repeats}."
    return ""


def _repeatable(answers: Answers, tolerances: dict[str, Tolerance], floors: Mapping[str, Floor], profile: Profile) -> list[Finding]:
    result = answers.result
    findings = []
    if problem := repeats_owed(result, profile, "reference"):
        findings.append(finding("KP314", problem, target="reference", place="repeat"))
    strict = profile.exact and result.repeats_equal is False
    if strict or not repeats_itself(result, allowances(answers, tolerances, floors)):
        cause = f"The reference gave two answers to the same input; they differ by up to {result.repeat_difference:.3g}."
        findings.append(finding("KP409", cause, target="reference", difference=result.repeat_difference))
    if result.training_unset_repeats is False:
        cause = "Called without a training argument, as other exporters and callers do, the model gives another answer each time: a layer is forced into training mode."
        findings.append(finding("KP409", cause, target="reference", remedy="Remove training=True from the layer's call."))
    return findings


def _batch_invariant(
    answers: Answers, inputs: tuple[GoldenInput, ...], tolerances: dict[str, Tolerance], floors: Mapping[str, Floor]
) -> list[Finding]:
    findings = [
        finding("KP313", f"The reference can't run in mode '{mode}': {message}", target="reference", place=mode)
        for mode, message in answers.result.failed.items()
    ]
    for mode in answers.result.modes:
        for output in answers.outputs:
            if mode == ALONE or not (answers.batched(mode, output) and answers.batched(ALONE, output)):
                continue
            alone = answers.rows(ALONE, output)
            drifts = compare(
                alone, answers.rows(mode, output), tolerances[output], frozenset({alone.dtype}), floors[output].widths if output in floors else None
            )
            if bad := [d for d in drifts if d.problem is not Problem.NONE]:
                worst = max(bad, key=lambda d: d.factor)
                cause = f"The reference answers {len(bad)} of {len(drifts)} inputs otherwise in {mode} than alone, by up to {worst.max_abs:.3g} in '{output}' (input {inputs[worst.index].id})."
                padded = only_padded(answers, mode, bad)
                cause += " Each of them was padded there, to the longest of its batch." if padded else ""
                findings.append(finding("KP420" if padded else "KP413", cause, target="reference", place=output, mode=mode, inputs=len(bad)))
    return findings


def _numbers(answers: Answers, inputs: tuple[GoldenInput, ...]) -> list[Finding]:
    """Outputs that are NaN: a target that agrees with that agrees on nothing. Infinities can be meant, as masked scores are."""
    findings = []
    for output in answers.outputs:
        rows = answers.rows(ALONE, output)
        if kind_of(rows.dtype) != "float":
            continue
        bad = [inputs[i].id for i in range(len(rows)) if bool(np.isnan(rows[i]).any())]
        if bad:
            cause = f"The reference's output '{output}' is NaN on {len(bad)} golden input{'s' if len(bad) > 1 else ''} ({', '.join(bad[:5])}): there is nothing to agree with."
            findings.append(finding("KP411", cause, target="reference", place=output, inputs=bad[:50]))
    return findings


def _company(answers: Answers, inputs: tuple[GoldenInput, ...]) -> list[Finding]:
    """Inputs whose batches held nothing but copies of themselves; batches are made the same way for every target."""
    lonely = {mode: rows for mode, rows in answers.result.lonely_rows.items() if rows}
    if not lonely:
        return []
    counts = ", ".join(f"{len(rows)} in {mode}" for mode, rows in lonely.items())
    names = list(dict.fromkeys(inputs[i].id for rows in lonely.values() for i in rows))
    cause = f"Golden inputs had copies of themselves for company ({counts}; {', '.join(names[:5])}): rows that get mixed up could not show there."
    return [finding("KP612", cause, place="golden", inputs=names[:50])]

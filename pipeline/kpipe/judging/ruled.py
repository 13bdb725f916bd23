"""The decision rules on the reference: what it decides by each, whether that was approved, and where its scores are tied. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpipe.golden import approved_by
from kpipe.judging.answers import ALONE
from kpipe.judging.floor import Floor, band_of
from kpipe.judging.grade import finding
from kpipe.judging.ties import TIE_ULPS
from kpipe_stages.decisions import UNDECIDED, Decision, DecisionError, NoDecisionError, approves, outputs_of
from kpipe_stages.protocol import DecisionSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe.findings import Finding
    from kpipe.golden import GoldenInput
    from kpipe.judging.answers import Answers


@dataclass(frozen=True)
class Ruled:
    """One rule, and what the reference decides by it, a decision a golden input."""

    spec: DecisionSpec
    decisions: tuple[Decision, ...]
    bands: tuple[float, ...] = ()
    """The noise floor of the scores on each input, in their units; empty where it isn't known."""

    def tied(self, index: int) -> bool:
        """Whether the reference's own scores leave the decision open, to float32 resolution or to the noise floor."""
        decision = self.decisions[index]
        scale = max((abs(s) for s in decision.scores if math.isfinite(s)), default=0.0)
        return decision.tied or decision.margin <= max(TIE_ULPS * 2.0**-23 * scale, self.bands[index] if self.bands else 0.0)


def rule_the_reference(
    answers: Answers, specs: tuple[DecisionSpec, ...], inputs: tuple[GoldenInput, ...], floors: Mapping[str, Floor]
) -> tuple[tuple[Ruled, ...], list[Finding]]:
    """Decide by every rule; one that can't be used is an error, and the others are judged all the same."""
    ruled, findings = [], []
    for spec in specs:
        try:
            decisions = tuple(_decisions(answers, spec))
            one = Ruled(spec, decisions, tuple(band_of(floors, spec, i) for i in range(len(decisions))))
        except NoDecisionError as error:  # the code's fault, or the machine's: nothing is known, and nothing has failed
            cause = f"{named(spec)}no decisions of the reference: {error}"
            findings.append(finding("KP419", cause[0].upper() + cause[1:], target="reference", place=spec.rule))
            continue
        except DecisionError as error:
            findings.append(finding("KP608", f"{named(spec)}{error}", target="reference", place=spec.output))
            continue
        ruled.append(one)
        findings += [*_approved(one, inputs), *_ties(one, inputs)]
    return tuple(ruled), findings


def named(spec: DecisionSpec) -> str:
    """What a message about a rule begins with where rules have names."""
    return f"Rule '{spec.name}': " if spec.name else ""


def _decisions(answers: Answers, spec: DecisionSpec) -> list[Decision]:
    if missing := [name for name in outputs_of(spec) if name not in answers.outputs]:
        raise DecisionError(f"The decision is taken on output '{missing[0]}'; the model's outputs are {', '.join(answers.outputs)}.")
    return answers.decisions(spec, ALONE)


def _approved(ruled: Ruled, inputs: tuple[GoldenInput, ...]) -> list[Finding]:
    findings = []
    for golden, decision in zip(inputs, ruled.decisions, strict=True):
        expected, label = approved_by(golden.expected, ruled.spec.name), approved_by(golden.label, ruled.spec.name)
        if expected is not None and not approves(ruled.spec, expected, decision):
            truth = f"; the label says '{label}'" if label is not None else ""
            cause = f"{named(ruled.spec)}the reference decides '{decision.value}' on golden input '{golden.id}'; '{expected}' was approved{truth}. Its margin is {decision.margin:.3g}."
            findings.append(
                finding(
                    "KP410",
                    cause[0].upper() + cause[1:],
                    target="reference",
                    place=golden.id,
                    decided=decision.value,
                    expected=expected,
                    margin=decision.margin,
                )
            )
    return findings


def _ties(ruled: Ruled, inputs: tuple[GoldenInput, ...]) -> list[Finding]:
    tied = [inputs[i].id for i, d in enumerate(ruled.decisions) if d.value != UNDECIDED and ruled.tied(i)]
    if not tied:
        return []
    cause = f"{named(ruled.spec)}the reference's scores are tied on {len(tied)} golden input{'s' if len(tied) > 1 else ''} ({', '.join(tied[:5])}): what is decided depends on the runtime."
    return [finding("KP414", cause[0].upper() + cause[1:], target="reference", place=ruled.spec.output, inputs=tied[:50])]

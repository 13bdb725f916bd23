"""Answers that depend on where an input stands in a batch, or on who stands beside it: what the sign-off profile asks. Pure, over saved outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.judging.answers import ALONE, Answers
from kpipe.judging.ruled import Ruled, named
from kpipe.judging.ties import breaks_tie
from kpipe_stages.arrangement import place_of
from kpipe_stages.decisions import DecisionError, NoDecisionError, outputs_of, same

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kpipe.golden import GoldenInput
    from kpipe.judging.compare import RowDrift
    from kpipe.judging.reference import Reference


def decided_otherwise(answers: Answers, ruled: Ruled, mode: str, reference: Reference | None, *, count_ties: bool = False) -> list[int]:
    """The inputs that a worker itself decides otherwise in ``mode`` than alone, ties aside.

    Args:
        answers: its saved outputs, which have both modes.
        ruled: the rule.
        mode: the way of running.
        reference: whose noise floors say what a tie is; None for float32 resolution alone.
        count_ties: leave no tie aside.

    Raises:
        DecisionError: the rule can't decide on these outputs.
        OSError: saved answers are gone.
        ValueError: they aren't the ones that the worker wrote, or rows are missing.
    """
    spec = ruled.spec
    alone, here = answers.decisions(spec, ALONE), answers.decisions(spec, mode)
    scores = zip(answers.decidable(spec, ALONE), answers.decidable(spec, mode), strict=True)
    found = []
    for i, (kept, got, (left, right)) in enumerate(zip(alone, here, scores, strict=True)):
        band = reference.band(spec, i) if reference is not None else 0.0
        if not same(spec, kept, got) and (count_ties or not breaks_tie(spec, left, right, band=band)):
            found.append(i)
    return found


def only_padded(answers: Answers, mode: str, bad: Iterable[RowDrift]) -> bool:
    """Whether every row that differs in a mode was padded there: then padding is what changes answers."""
    padded = set(answers.result.padded_rows.get(mode, ()))
    return bool(padded) and {drift.index for drift in bad} <= padded


def moved(
    answers: Answers,
    rules: Iterable[Ruled],
    modes: Iterable[str],
    reference: Reference | None,
    unknown: dict[str, str],
    *,
    count_ties: bool = False,
) -> dict[tuple[str, str], dict[str, list[int]]]:
    """Rule name and output to the modes in which inputs are decided otherwise than alone.

    Args:
        answers: a worker's saved outputs.
        rules: the rules.
        modes: the ways of running to look at.
        reference: as for `decided_otherwise`.
        unknown: filled with the modes in which the user's own code left no decisions, and why. What else can't be decided, numbers say.
        count_ties: as for `decided_otherwise`.
    """
    found: dict[tuple[str, str], dict[str, list[int]]] = {}
    ran = [mode for mode in modes if mode != ALONE and answers.has(mode) and answers.has(ALONE)]
    for ruled in rules:
        outputs = outputs_of(ruled.spec)
        for mode in ran:
            if not set(outputs) <= set(answers.outputs) or not all(answers.batched(m, o) for m in (mode, ALONE) for o in outputs):
                continue
            try:
                indices = decided_otherwise(answers, ruled, mode, reference, count_ties=count_ties)
            except NoDecisionError as error:
                unknown.setdefault(mode, str(error))
                continue
            except (DecisionError, OSError, ValueError, LookupError):
                continue  # the flips and the numbers of the mode say what is wrong with it
            for output in outputs if indices else ():
                found.setdefault((ruled.spec.name, output), {})[mode] = indices
    return found


def moved_sentence(rule: Ruled, by_mode: Mapping[str, list[int]], inputs: Sequence[GoldenInput], ran: Iterable[str]) -> str:
    """What is decided otherwise, on how many inputs, in which ways of running, and at which positions."""
    names = list(dict.fromkeys(inputs[i].id for indices in by_mode.values() for i in indices))
    told = f"{named(rule.spec)}{len(names)} of {len(inputs)} inputs are decided otherwise in company than alone ({', '.join(names[:5])}; in {', '.join(by_mode)})"
    return f"{told[0].upper()}{told[1:]}.{position_sentence(by_mode, ran)}"


def position_sentence(failing: Iterable[str], ran: Iterable[str]) -> str:
    """At which positions of a batch an answer is another one, with a space in front; empty where no position was tried, or all agree.

    Args:
        failing: modes in which answers differ from the ones alone.
        ran: all modes that were run.
    """
    wrong = [place for mode in failing if (place := place_of(mode)) is not None]
    right = [place for mode in ran if (place := place_of(mode)) is not None and place not in wrong]
    if not wrong:
        return ""
    size = wrong[0][1]
    at = f"at position{'s' if len(wrong) > 1 else ''} {', '.join(str(place[0]) for place in wrong)} of a batch of {size}"
    others = f", and the right ones at {', '.join(str(place[0]) for place in right)}" if right else ", which are all that were tried"
    return f" The answers depend on the position: there are other ones {at}{others}."

"""What a suspect is, and the few edits of steps that many of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from kpipe_stages.preprocessing.steps import KINDS
from kpipe_stages.suspects.variation import Special, Step, Variation, name_of

Edit = Callable[[Variation], Variation | None]
"""From a variation to one with one thing changed; None where there is nothing to change."""


@dataclass(frozen=True)
class Suspect:
    """One thing that production may do otherwise."""

    group: str
    """Two of one group exclude each other."""
    does: str
    """What production does, in words."""
    instead: str
    """What the reference does there."""
    edit: Edit


def exchanged(old: Step, *new: Step) -> Edit:
    """Put other steps in the place of the first that equals ``old``."""

    def edit(variation: Variation) -> Variation | None:
        if old not in variation.steps:
            return None
        place = variation.steps.index(old)
        return replace(variation, steps=(*variation.steps[:place], *new, *variation.steps[place + 1 :]))

    return edit


def inserted(step: Step, before: Callable[[Step], bool]) -> Edit:
    """Put a step before the first that is so, or at the end."""

    def edit(variation: Variation) -> Variation:
        place = next((i for i, known in enumerate(variation.steps) if before(known)), len(variation.steps))
        return replace(variation, steps=(*variation.steps[:place], step, *variation.steps[place:]))

    return edit


def finished_by(special: Special) -> Edit:
    """Do something to the finished tensor."""
    return lambda variation: replace(variation, after=(*variation.after, special))


def moved(step: Step, place: int) -> Edit:
    """Put a step at another place."""

    def edit(variation: Variation) -> Variation | None:
        if step not in variation.steps:
            return None
        rest = [known for known in variation.steps if known is not step and known != step]
        return replace(variation, steps=(*rest[:place], step, *rest[place:]))

    return edit


def changes_scale(step: Step) -> bool:
    """Whether levels from 0 to 255 end at this step, or an image does."""
    return isinstance(step, dict) and (KINDS[name_of(step)].changes_scale or name_of(step) in ("layout", "flatten"))


def named(steps: Iterable[Step], *names: str) -> list[dict[str, Any]]:
    """The steps of some names."""
    return [step for step in steps if isinstance(step, dict) and name_of(step) in names]

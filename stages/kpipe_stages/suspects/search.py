"""Which suspect makes the reference's preprocessing the target's. Pure.

Suspects are tried one at a time, then with a fitted scale, then in pairs, then with a third beside the nearest pairs.
A match is equal on every differing input that is used and changes none of the inputs that are equal already. Everything else is at most
the closest one, and said to be no match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from typing import Any

import numpy as np

from kpipe_stages.suspects.colours import colours
from kpipe_stages.suspects.gap import Gap, gap
from kpipe_stages.suspects.geometry import geometry
from kpipe_stages.suspects.suspect import Suspect, finished_by
from kpipe_stages.suspects.values import values
from kpipe_stages.suspects.variation import Special, Variation

Array = np.ndarray[Any, np.dtype[Any]]

PROBES = 4
"""Inputs on which every suspect is tried; only those that hold there see the others."""
FINALISTS = 6
"""Suspects that are tried on all inputs for being the closest."""
NEAR = 0.5
"""A closest suspect is named if it explains an input, or leaves at most this part of the root mean square difference."""
UNFITTED = ("scale", "statistics", "invert", "omission")
"""Groups that a fitted scale would stand in for."""


@dataclass(frozen=True)
class Question:
    """What has to be explained."""

    base: Variation
    """The reference's own way."""
    make: Callable[[Variation, int], Array]
    """The tensor of a variation for a case; whatever it raises means that the variation doesn't apply there."""
    target: Callable[[int], Array]
    differing: Sequence[int]
    """Cases on which the two differ; not empty."""
    equal: Sequence[int]
    """Cases on which they agree, which a suspect must not change."""
    rtol: float
    atol: float
    in_time: Callable[[], bool]
    """False once the search has to end."""

    def gaps(self, variation: Variation, cases: Sequence[int]) -> list[Gap]:
        """One gap a case."""
        return [self._gap(variation, case) for case in cases]

    def _gap(self, variation: Variation, case: int) -> Gap:
        try:
            candidate = self.make(variation, case)
        except Exception:  # noqa: BLE001 - variations leave what is checked; one that can't run on this input explains nothing
            return Gap(equal=False, residual=np.inf, rms=np.inf)
        return gap(candidate, self.target(case), rtol=self.rtol, atol=self.atol)

    def probes(self) -> list[int]:
        """Up to `PROBES` of the differing cases, spread."""
        count = min(PROBES, len(self.differing))
        return [self.differing[round(i * (len(self.differing) - 1) / max(1, count - 1))] for i in range(count)]


@dataclass(frozen=True)
class Tried:
    """Suspects that were applied together, and how near they came on some cases."""

    suspects: tuple[Suspect, ...]
    variation: Variation
    gaps: tuple[Gap, ...]

    @property
    def explained(self) -> int:
        """Cases that are equal."""
        return sum(one.equal for one in self.gaps)

    @property
    def rms(self) -> float:
        """Over all cases; infinite where one has another shape."""
        return float(np.sqrt(np.mean([one.rms**2 for one in self.gaps])))

    @property
    def residual(self) -> float:
        """The largest of any case."""
        return max(one.residual for one in self.gaps)

    @property
    def does(self) -> str:
        """In words."""
        return " and ".join(suspect.does for suspect in self.suspects)

    @property
    def instead(self) -> str:
        """What the reference does there, in words."""
        return " and ".join(suspect.instead for suspect in self.suspects)


def nearness(tried: Tried) -> tuple[float, int, float]:
    """Sorts the nearest first: by inputs explained, then, where there are some, by the fewest suspects, then by what is left."""
    return -tried.explained / len(tried.gaps), len(tried.suspects) if tried.explained else 0, tried.rms


@dataclass(frozen=True)
class Found:
    """How the search ended."""

    best: Tried | None
    """On all cases that differ; None where nothing comes near."""
    matched: bool
    also: tuple[Tried, ...]
    """Others that match as well."""
    tried: int
    complete: bool


@dataclass
class _Search:
    question: Question
    tried: int = 0
    complete: bool = True
    near: list[Tried] = field(default_factory=list)
    """The best so far, by the probes."""

    def one(self, suspects: tuple[Suspect, ...], variation: Variation, probes: Sequence[int]) -> Tried:
        """Try on the probes, and keep it if it is among the nearest."""
        self.tried += 1
        tried = Tried(suspects, variation, tuple(self.question.gaps(variation, probes)))
        self.near = sorted([*self.near, tried], key=nearness)[:FINALISTS]
        return tried

    def whole(self, tried: Tried) -> Tried:
        """The same on every differing case."""
        return replace(tried, gaps=tuple(self.question.gaps(tried.variation, self.question.differing)))

    def matches(self, tried: Tried) -> bool:
        """Whether it explains everything and spoils nothing."""
        question = self.question
        return (
            all(one.equal for one in tried.gaps)
            and all(one.equal for one in question.gaps(tried.variation, question.differing))
            and all(one.equal for one in question.gaps(tried.variation, question.equal))
        )


def suspects_for(base: Variation) -> list[Suspect]:
    """All suspects, those that a contract can write before the others of their kind."""
    return [*geometry(base), *colours(base), *values(base)]


def search(question: Question) -> Found:
    """Name what the target does otherwise.

    Args:
        question: both sides' tensors, and how to make others.
    """
    state = _Search(question)
    probes = question.probes()
    singles: list[Tried] = []
    for suspect in suspects_for(question.base):
        if not question.in_time():
            state.complete = False
            break
        variation = suspect.edit(question.base)
        if variation is not None and variation != question.base:
            singles.append(state.one((suspect,), variation, probes))
    if found := [tried for tried in singles if state.matches(tried)]:
        return Found(state.whole(found[0]), matched=True, also=tuple(found[1:]), tried=state.tried, complete=state.complete)
    singles.sort(key=nearness)
    for fit in _fits(state, singles, probes):
        if state.matches(fit):  # numbers that have a name are called by it
            known = [tried for tried in singles if tried.suspects[0] in fit.suspects or tried.suspects[0].group in UNFITTED]
            named = next((pair for pair in _pairs(state, known, probes) if state.matches(pair)), fit)
            return Found(state.whole(named), matched=True, also=(), tried=state.tried, complete=state.complete)
    for several in chain(_pairs(state, singles, probes), _longer(state, singles, probes)):
        if state.matches(several):
            return Found(state.whole(several), matched=True, also=(), tried=state.tried, complete=state.complete)
    return Found(_closest(state), matched=False, also=(), tried=state.tried, complete=state.complete)


def _closest(state: _Search) -> Tried | None:
    """What comes nearest on all cases, if it comes near at all."""
    finalists = sorted((state.whole(tried) for tried in state.near), key=nearness)
    before = Tried((), state.question.base, tuple(state.question.gaps(state.question.base, state.question.differing)))
    if finalists and (finalists[0].explained or finalists[0].rms <= NEAR * before.rms < np.inf):
        return finalists[0]
    return None


# ---------------------------------------------------------------- pairs and fits


def _pairs(state: _Search, singles: Sequence[Tried], probes: Sequence[int]) -> Iterator[Tried]:
    """Two suspects of different groups, the nearest ones first; what fails on the first probe isn't tried on the others."""
    order = sorted(combinations(range(len(singles)), 2), key=sum)
    for left, right in order:
        if not state.question.in_time():
            state.complete = False
            return
        one, two = singles[left], singles[right]
        (first,), (second,) = one.suspects, two.suspects
        if first.group == second.group:
            continue
        variation = second.edit(one.variation) or first.edit(two.variation)
        if variation is None or variation in (one.variation, two.variation):
            continue
        tried = state.one((first, second), variation, probes[:1])
        if tried.explained:
            yield state.one((first, second), variation, probes)


def _longer(state: _Search, singles: Sequence[Tried], probes: Sequence[int]) -> Iterator[Tried]:
    """A third beside the nearest pairs."""
    for pair in [tried for tried in state.near if len(tried.suspects) > 1]:
        for single in singles:
            if not state.question.in_time():
                state.complete = False
                return
            (third,) = single.suspects
            variation = third.edit(pair.variation) if third.group not in {suspect.group for suspect in pair.suspects} else None
            if variation is not None and variation != pair.variation:
                yield state.one((*pair.suspects, third), variation, probes)


def _fits(state: _Search, singles: Sequence[Tried], probes: Sequence[int]) -> Iterator[Tried]:
    """``values * a + b``, one for all or one a channel, fitted on the first probe, alone and beside each single suspect."""
    base = Tried((), state.question.base, ())
    for start in (base, *(tried for tried in singles if tried.suspects[0].group not in UNFITTED)):
        if not state.question.in_time():
            state.complete = False
            return
        for suspect in _fitted(state.question, start.variation, probes[0]):
            variation = suspect.edit(start.variation)
            if variation is not None:
                yield state.one((*start.suspects, suspect), variation, probes)


def _fitted(question: Question, variation: Variation, probe: int) -> Iterator[Suspect]:
    try:
        made, target = question.make(variation, probe), question.target(probe)
    except Exception:  # noqa: BLE001 - as in `Question`
        return
    if made.shape != target.shape or made.dtype.kind not in "buif" or target.dtype.kind not in "buif" or made.size == 0:
        return
    if (line := line_through(made, target)) is not None and line != (1.0, 0.0):
        factor, shift = line
        steps = tuple(step for step in ({"scale": factor}, {"offset": shift}) if step not in ({"scale": 1.0}, {"offset": 0.0}))
        words = f"values times {factor:g} plus {shift:g}"
        yield Suspect("fit", words, "the values as they are", lambda v: replace(v, steps=(*v.steps, *steps)))
    axis = next((axis for axis in (made.ndim - 1, 0) if made.ndim > 1 and made.shape[axis] == 3), None)  # noqa: PLR2004 - three colours
    if axis is not None:
        lines = [line_through(np.take(made, i, axis), np.take(target, i, axis)) for i in range(3)]
        if all(line is not None for line in lines) and set(lines) != {(1.0, 0.0)}:
            yield _by_channel([line for line in lines if line is not None], axis)


def _by_channel(lines: list[tuple[float, float]], axis: int) -> Suspect:
    factors, shifts = ([line[i] for line in lines] for i in (0, 1))
    words = f"values times [{', '.join(f'{n:g}' for n in factors)}] plus [{', '.join(f'{n:g}' for n in shifts)}], a channel each"

    def apply(tensor: Array) -> Array:
        form = [1] * tensor.ndim
        form[axis] = -1
        return np.asarray(tensor.astype(np.float64) * np.reshape(factors, form) + np.reshape(shifts, form))

    return Suspect("fit", words, "the values as they are", finished_by(Special(words, apply)))


def line_through(made: Array, target: Array) -> tuple[float, float] | None:
    """Factor and shift of the least-squares line from one to the other, seven digits of each; None where there is none."""
    x, y = made.astype(np.float64).ravel(), target.astype(np.float64).ravel()
    if not (np.isfinite(x).all() and np.isfinite(y).all()) or np.ptp(x) == 0:
        return None
    spread = x - x.mean()
    factor = float(spread @ (y - y.mean()) / (spread @ spread))
    shift = float(y.mean() - factor * x.mean())
    if abs(shift) < 1e-6 * float(np.abs(y).max()):  # noise of the fit, not a shift
        shift = 0.0
    return float(f"{factor:.7g}"), float(f"{shift:.7g}")

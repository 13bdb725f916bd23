"""Which raw files of a pool join a golden set, by what a model made of them. Pure, and the same for the same pool and seed.

- ``margin``: the smallest decision margins of the reference: where a small drift flips a decision.
- ``disagreement``: decisions that a target flipped, then the largest drift of a target, relative to the output's scale.
- ``coverage``: the class that the set and the choice so far hold fewest of, within it the slice; among equals drawn by the seed.

Inputs whose scores are tied, or that are undecided, prove nothing in a golden set and are never chosen.
"""

from __future__ import annotations

import enum
import hashlib
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


class By(enum.StrEnum):
    """A reason to choose an input."""

    MARGIN = "margin"
    DISAGREEMENT = "disagreement"
    COVERAGE = "coverage"


@dataclass(frozen=True)
class Candidate:
    """One raw file of the pool and what was made of it."""

    name: str
    """Its path, relative to the pool."""
    sha256: str
    slice: str
    decision: str | None
    """The reference's; None where there is no rule."""
    margin: float | None
    """In output units."""
    usable: bool = True
    """False where the reference is undecided or its scores are tied."""
    flipped: tuple[str, ...] = ()
    """Targets that decide otherwise."""
    drift: float = 0.0
    """The largest difference of any target over the scale of the reference's output; infinite where they can't be compared."""
    drift_on: str = ""
    """The target that it is on."""


@dataclass(frozen=True)
class Pick:
    """A candidate that was chosen, and why."""

    candidate: Candidate
    by: By
    why: str
    """With values, for the manifest."""


def shares(count: int, strategies: Sequence[By], *, mixed: bool) -> dict[By, int]:
    """How many inputs each strategy chooses; they sum to ``count``.

    Args:
        count: inputs to choose.
        strategies: in the order they choose in.
        mixed: the default mix, rounded up in this order: half by margin, a quarter by disagreement where that is among them, the rest by
            coverage; else equal shares, the first ones larger.
    """
    if not mixed:
        each, more = divmod(count, len(strategies))
        return {by: each + (place < more) for place, by in enumerate(strategies)}
    part = {By.MARGIN: math.ceil(count / 2), By.DISAGREEMENT: math.ceil(count / 4), By.COVERAGE: count}
    given: dict[By, int] = {}
    for by in strategies:
        given[by] = min(part[by], count - sum(given.values()))
    return given


def select(
    candidates: Sequence[Candidate], wanted: Mapping[By, int], *, seed: int, pool: str, classes: Counter[str], slices: Counter[str]
) -> list[Pick]:
    """Choose inputs; fewer than wanted only where there are no more to choose from.

    What one strategy can't fill (no target disagrees any more) goes to the next ones, and around. No input is chosen twice.

    Args:
        candidates: of the pool, none of which is in the set.
        wanted: strategy to its share, in the order in which they choose.
        seed: orders what is equal.
        pool: how the reasons name the pool.
        classes: decided class to how many the set holds.
        slices: slice to how many the set holds.
    """
    usable = [c for c in candidates if c.usable]
    chosen: dict[str, Pick] = {}
    of = f"of {len(candidates)} in {pool}"
    seen_classes, seen_slices = Counter(classes), Counter(slices)

    def take(pick: Pick) -> None:
        chosen[pick.candidate.sha256] = pick
        seen_classes[pick.candidate.decision or ""] += 1
        seen_slices[pick.candidate.slice] += 1

    ways: dict[By, Callable[[], Iterator[Pick]]] = {
        By.MARGIN: lambda: _by_margin(usable, seed, of),
        By.DISAGREEMENT: lambda: _by_disagreement(usable, seed, of),
        By.COVERAGE: lambda: _by_coverage(usable, seed, of, seen_classes, seen_slices),
    }
    goal = sum(wanted.values())
    for quota in (wanted, dict.fromkeys(wanted, goal)):
        for by in wanted:
            left = min(quota[by], goal - len(chosen))
            for pick in ways[by]():
                if left <= 0:
                    break
                if pick.candidate.sha256 not in chosen:
                    take(pick)
                    left -= 1
    return list(chosen.values())


def _draw(seed: int, candidate: Candidate) -> str:
    """A number for each content that has nothing to do with its place in the pool."""
    return hashlib.sha256(f"{seed} {candidate.sha256}".encode()).hexdigest()


def _by_margin(usable: Sequence[Candidate], seed: int, of: str) -> Iterator[Pick]:
    known = [(c.margin, _draw(seed, c), c) for c in usable if c.margin is not None and not math.isnan(c.margin)]
    for place, (margin, _, candidate) in enumerate(sorted(known, key=lambda row: row[:2]), start=1):
        what = f"smallest margin {margin:.4g}" if place == 1 else f"margin {margin:.4g}, number {place} from the smallest"
        yield Pick(candidate, By.MARGIN, f"{what} {of}")


def _by_disagreement(usable: Sequence[Candidate], seed: int, of: str) -> Iterator[Pick]:
    disagree = [c for c in usable if c.flipped or c.drift > 0]
    for candidate in sorted(disagree, key=lambda c: (-len(c.flipped), -c.drift, _draw(seed, c))):
        if candidate.flipped:
            why = f"decided otherwise by {', '.join(candidate.flipped)}; drift {candidate.drift:.3g} of the output's scale"
        else:
            why = f"drift {candidate.drift:.3g} of the output's scale on {candidate.drift_on}, among the largest"
        yield Pick(candidate, By.DISAGREEMENT, f"{why} {of}")


def _by_coverage(usable: Sequence[Candidate], seed: int, of: str, classes: Counter[str], slices: Counter[str]) -> Iterator[Pick]:
    """From the bucket (class, slice) that is represented least now; the counts go on changing while this is read."""
    buckets: dict[tuple[str, str], list[Candidate]] = {}
    for candidate in sorted(usable, key=lambda c: _draw(seed, c), reverse=True):
        buckets.setdefault((candidate.decision or "", candidate.slice), []).append(candidate)
    while buckets:
        key = min(buckets, key=lambda bucket: (classes[bucket[0]], slices[bucket[1]], bucket))
        candidate = buckets[key].pop()
        if not buckets[key]:
            del buckets[key]
        about = [f"class '{key[0]}' {_times(classes[key[0]])}"] if candidate.decision is not None else []
        about += [f"slice '{key[1]}' {_times(slices[key[1]])}"] if key[1] else []
        before = f"{' and '.join(about)} in the set before; " if about else ""
        yield Pick(candidate, By.COVERAGE, f"{before}drawn by seed {seed} {of}")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"

"""The smallest set of exposed outputs that still makes a fault vanish. Pure but for the question that is handed in."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

HALVES = 2
"""Parts to begin with; each is what is left without the other."""


async def smallest_hiding(
    items: Sequence[str], hides: Callable[[tuple[str, ...]], Awaitable[bool | None]], may_go_on: Callable[[], bool]
) -> tuple[tuple[str, ...], bool]:
    """Delta debugging (Zeller and Hildebrandt, 2002): halves, then smaller parts and what is left without them.

    Args:
        items: all exposed outputs; exposing them all hides the fault.
        hides: whether exposing just these hides it; None where that can't be told, which counts as no.
        may_go_on: asked before each question.

    Returns:
        The smallest set found, in the order of ``items``, and whether the search came to its end: then no single one can be left out.
    """
    kept, parts = tuple(items), HALVES
    while len(kept) > 1:
        chunks = _split(kept, min(parts, len(kept)))
        candidates = chunks if len(chunks) == HALVES else [*chunks, *(tuple(i for i in kept if i not in chunk) for chunk in chunks)]
        for candidate in candidates:
            if not may_go_on():
                return kept, False
            if await hides(candidate):
                parts = HALVES if candidate in chunks else max(HALVES, len(chunks) - 1)
                kept = candidate
                break
        else:
            if len(chunks) == len(kept):
                return kept, True
            parts = 2 * len(chunks)
    return kept, True


def _split(items: tuple[str, ...], parts: int) -> list[tuple[str, ...]]:
    """``parts`` runs of nearly equal length."""
    bounds = [round(i * len(items) / parts) for i in range(parts + 1)]
    return [items[a:b] for a, b in pairwise(bounds)]

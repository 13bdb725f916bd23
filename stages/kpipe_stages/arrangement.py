"""Where an input stands in a batch, and beside whom: ways of running that ask whether an answer depends on it. Pure.

``position_2_of_3`` is every golden input in the second row of a batch of its own of three, filled with the inputs that follow it. ``shuffled_8``
is every golden input in batches of eight, put together in another order than the golden set's.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

ALL_POSITIONS = 8
"""In batches of up to so many rows every position is tried; in larger ones the first, the middle and the last."""


@dataclass(frozen=True)
class Arrangement:
    """One way of putting rows into batches."""

    mode: str
    size: int
    """Rows in a batch, 2 or more."""
    position: int | None
    """Row of the batch, from 0, that the asked input stands in; None where batches are shuffled."""


def arrangements(sizes: Iterable[int], fixed: int | None) -> tuple[Arrangement, ...]:
    """The arrangements that a target owes.

    Args:
        sizes: the batch sizes that are run: positions are tried in the smallest, and rows shuffled in the smallest and the largest.
        fixed: the only batch size that the artifact takes, None where it is free; an artifact for one row has no positions.

    Returns:
        Positions in order, then the shuffled ones. None where no batch has two rows.
    """
    possible = sorted({size for size in ([fixed] if fixed is not None else sizes) if size > 1})
    if not possible:
        return ()
    smallest = possible[0]
    places = [Arrangement(f"position_{at + 1}_of_{smallest}", smallest, at) for at in positions(smallest)]
    return (*places, *(Arrangement(f"shuffled_{size}", size, None) for size in dict.fromkeys((smallest, possible[-1]))))


def positions(size: int) -> tuple[int, ...]:
    """The rows of a batch that are tried, from 0, rising."""
    return tuple(range(size)) if size <= ALL_POSITIONS else (0, size // 2, size - 1)


def batches_of(arrangement: Arrangement, kinds: Mapping[int, Hashable]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The batches of an arrangement, and which of their rows count.

    Args:
        arrangement: the way.
        kinds: row number to what its batch mates must share.

    Returns:
        Pairs of row numbers, ``size`` of them, and the positions in the batch whose answers count. Every row counts exactly once.
    """
    groups: dict[Hashable, list[int]] = {}
    for row, kind in kinds.items():
        groups.setdefault(kind, []).append(row)
    if arrangement.position is not None:
        return [_at(group, index, arrangement.size, arrangement.position) for group in groups.values() for index in range(len(group))]
    return [batch for group in groups.values() for batch in _in_turn(shuffled(group), arrangement.size)]


def _at(group: Sequence[int], index: int, size: int, position: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """One row at ``position``, those that follow it in the group behind it and around to the rows in front."""
    return tuple(group[(index + offset - position) % len(group)] for offset in range(size)), (position,)


def _in_turn(group: Sequence[int], size: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Full batches; the last one is filled up from the start, and the fill doesn't count."""
    return [
        (tuple(group[(start + offset) % len(group)] for offset in range(size)), tuple(range(min(size, len(group) - start))))
        for start in range(0, len(group), size)
    ]


def shuffled(rows: Sequence[int]) -> list[int]:
    """The same rows in another order, the same one each time; two rows or more never stay as they were."""
    order = list(rows)
    random.Random(0).shuffle(order)  # noqa: S311 - an order, not a secret
    return order if order != list(rows) or len(order) < 2 else order[1:] + order[:1]  # noqa: PLR2004 - one row has one order


def lonely(batches: Iterable[tuple[tuple[int, ...], tuple[int, ...]]], contents: Mapping[int, Hashable]) -> tuple[int, ...]:
    """The rows whose answer that counts came from a batch of nothing but copies of themselves.

    Args:
        batches: as `batches_of` gives them.
        contents: row number to what two rows share exactly when their tensors are the same.
    """
    return tuple(sorted(batch[at] for batch, counted in batches for at in counted if len({contents[mate] for mate in batch}) == 1))


def place_of(mode: str) -> tuple[int, int] | None:
    """Position from 1 and batch size that a mode's name says; None for one that is about no position."""
    found = re.fullmatch(r"position_(\d+)_of_(\d+)", mode)
    return (int(found[1]), int(found[2])) if found else None

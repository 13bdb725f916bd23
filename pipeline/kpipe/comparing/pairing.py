"""Golden inputs of two sets, paired by the bytes of their files. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpipe.comparison import Inputs

if TYPE_CHECKING:
    from kpipe.golden import GoldenInput, GoldenSet

Key = tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Row:
    """One file that both sets have: its rows in either."""

    before: int
    now: int
    slices: tuple[str, ...]
    """Every slice that an entry of either set puts it in."""


@dataclass(frozen=True)
class Paired:
    """Both sets."""

    rows: tuple[Row, ...]
    """Each file once, however many entries it has."""
    inputs: Inputs
    slices_alone: dict[str, int]
    """Slice to the number of its entries that only one of the sets has."""


def key_of(golden: GoldenInput, kind: str) -> Key | None:
    """What an input is known by: the SHA-256 of each of its files, with the row in a file of arrays; None for made-up inputs, which are nobody's."""
    if kind not in {"raw", "arrays"} or not golden.sha256 or not all(golden.sha256.values()):
        return None
    rows = {name: "#".join(path.split("#")[-2:]) if kind == "arrays" else "" for name, path in golden.files.items()}
    return tuple(sorted((name, sha256, rows.get(name, "")) for name, sha256 in golden.sha256.items()))


def pair(before: GoldenSet, now: GoldenSet) -> Paired:
    """Pair two sets. An entry of a file that the other set doesn't have is counted as alone, never dropped."""
    old, new = _by_key(before), _by_key(now)
    rows, alone = [], dict[str, int]()
    repeated = 0
    for key in new:
        if key is not None and key in old:
            entries = [before.inputs[i] for i in old[key]] + [now.inputs[i] for i in new[key]]
            slices = tuple(dict.fromkeys(entry.slice for entry in entries if entry.slice))
            rows.append(Row(old[key][0], new[key][0], slices))
            repeated += len(new[key]) - 1
    only_before = [before.inputs[i] for key, found in old.items() if key is None or key not in new for i in found]
    only_now = [now.inputs[i] for key, found in new.items() if key is None or key not in old for i in found]
    for entry in (*only_before, *only_now):
        alone[entry.slice] = alone.get(entry.slice, 0) + 1
    inputs = Inputs(len(rows), repeated, tuple(entry.id for entry in only_before), tuple(entry.id for entry in only_now))
    return Paired(tuple(rows), inputs, alone)


def _by_key(golden: GoldenSet) -> dict[Key | None, list[int]]:
    found: dict[Key | None, list[int]] = {}
    for i, entry in enumerate(golden.inputs):
        found.setdefault(key_of(entry, golden.kind), []).append(i)
    return found

"""The permutation probe: could two inputs, or two outputs, be exchanged without anybody's noticing?

Binding by name proves nothing of what a name stands for. Where inputs have one shape and dtype, every worker answers a few seeded rows in
which each of them has values that the others don't have; the reference answers them also with two inputs exchanged, pair by pair. A target
that agrees with the straight answers, where the exchanged ones are others, has each input where it belongs. Outputs need no rows of their
own kind: their names are proved where the reference's values under two names differ. What is compared with what is the judge's.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.answers import ModeWriter
from kpipe_stages.digest import digest
from kpipe_stages.feeds import Golden, split_answer, stack
from kpipe_stages.protocol import ProbeResult, RunJob, StageError
from kpipe_stages.session import Session, raise_if_out_of_memory, telling_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe_stages.session import Answer, Array, Feeds

    Row = dict[str, Array]

MODE = "probe"
ROWS = 3
MOST_PAIRS = 66
"""Of all pairs of twelve inputs; more are counted, and not tried."""
SEED = 20260801
TRIES = 8


def exchanged_mode(first: int, second: int) -> str:
    """The mode in which the inputs at two positions of the model's signature are exchanged."""
    return f"exchanged_{first}_{second}"


@dataclass(frozen=True)
class Probe:
    """The rows, and what could be exchanged in them."""

    rows: tuple[Row, ...]
    groups: tuple[tuple[str, ...], ...]
    same: tuple[tuple[str, str], ...]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every pair of inputs that could be exchanged."""
        return [pair for group in self.groups for pair in combinations(group, 2)]

    def sha256(self) -> str:
        """Of all that is fed."""
        total = hashlib.sha256()
        for row in self.rows:
            for name in sorted(row):
                total.update(f"{name} {row[name].dtype.name} {row[name].shape} ".encode() + row[name].tobytes())
        return total.hexdigest()


def common_golden(order: RunJob, session: Session) -> Golden:
    """The rows that all workers share: the reference's tensors.

    Raises:
        StageError: they don't fit the session.
    """
    return Golden(replace(order, tensors=order.common, names=order.common_names) if order.common else order, session)


def make_probe(golden: Golden, order: tuple[str, ...]) -> Probe:
    """Rows of the golden inputs' commonest shapes, in which inputs of one shape and dtype differ from each other.

    Input by input a row is a golden one, shifted by the input's place in its group; where that gives two inputs the same values, one is drawn
    anew from the values that it has in the golden set (a float that has only one value: around it).

    Args:
        golden: the rows that all workers share.
        order: input names in the model's order.
    """
    kind = Counter(golden.kinds.values()).most_common(1)[0][0]
    members = [row for row, own in golden.kinds.items() if own == kind]
    first = golden.row(members[0])
    groups: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for name in order:
        groups.setdefault((first[name].dtype.name, first[name].shape), []).append(name)
    place = {name: position for names in groups.values() for position, name in enumerate(names)}
    rows = [{name: golden.row(members[(k + place[name]) % len(members)])[name] for name in order} for k in range(ROWS)]
    several = tuple(tuple(names) for names in groups.values() if len(names) > 1)
    pools = {name: np.concatenate([golden.row(row)[name].ravel() for row in members[:64]]) for group in several for name in group}
    for number, row in enumerate(rows):
        for group in several:
            _tell_apart(row, group, pools, np.random.default_rng((SEED, number)))
    same = [pair for group in several for pair in combinations(group, 2) if all(_equal(row[pair[0]], row[pair[1]]) for row in rows)]
    return Probe(tuple(rows), several, tuple(same))


def _tell_apart(row: Row, group: tuple[str, ...], pools: Mapping[str, Array], random: np.random.Generator) -> None:
    """Draw values anew, of one and of the other in turn, where two inputs have the same."""
    for number in range(TRIES):
        alike = [pair for pair in combinations(group, 2) if _equal(row[pair[0]], row[pair[1]])]
        for pair in alike:
            name = pair[(number + 1) % 2]
            row[name] = _drawn(pools[name], row[name].shape, random)
        if not alike:
            break


def _equal(left: Array, right: Array) -> bool:
    return left.tobytes() == right.tobytes()


def _drawn(pool: Array, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    drawn = pool[random.integers(0, len(pool), shape)] if len(pool) else np.zeros(shape, pool.dtype)
    if pool.dtype.kind == "f" and len(pool) and _equal(pool, np.full_like(pool, pool[0])):
        drawn = drawn + random.standard_normal(shape).astype(pool.dtype)
    return np.ascontiguousarray(np.asarray(drawn, dtype=pool.dtype)).reshape(shape)


@dataclass
class Prober:
    """Answers the probe on one session."""

    order: RunJob
    folder: Path
    fixed: int | None
    unbatched: frozenset[str]
    open_again: Callable[[], Session]

    def run(self, session: Session) -> tuple[ProbeResult | None, Session]:
        """The probe's result, None where nothing can be exchanged; and the session to go on with."""
        names = tuple(spec.name for spec in session.signature.inputs)
        try:
            probe = make_probe(common_golden(self.order, session), names)
        except StageError as error:
            return ProbeResult(0, "", (), (), 0, {}, {MODE: error.observation.cause}), session
        if not probe.groups and not _alike_outputs(session):
            return None, session
        digests: dict[str, str] = {}
        failed: dict[str, str] = {}
        session = self._try(MODE, session, list(probe.rows), digests, failed)
        pairs = probe.pairs
        for one, other in pairs[:MOST_PAIRS] if self.order.exchange else ():
            rows = [{**row, one: row[other], other: row[one]} for row in probe.rows]
            session = self._try(exchanged_mode(names.index(one), names.index(other)), session, rows, digests, failed)
        left = max(0, len(pairs) - MOST_PAIRS)
        return ProbeResult(len(probe.rows), probe.sha256(), probe.groups, probe.same, left, digests, failed), session

    def _try(self, mode: str, session: Session, rows: list[Row], digests: dict[str, str], failed: dict[str, str]) -> Session:
        names = [spec.name for spec in session.signature.outputs]
        size = self.fixed or 1
        try:
            with ModeWriter(self.folder / "outputs" / mode, names, len(rows), range(len(rows))) as writer:
                for index, row in enumerate(rows):
                    writer.add(index, self._alone(session, stack([row] * size), size))
                writer.finish()
        except Exception as error:  # noqa: BLE001 - what the runtime says against it is its answer; the judge takes nothing for proved then
            raise_if_out_of_memory(error)
            failed[mode] = f"{type(error).__name__}: {telling_line(error)}"
            return self.open_again()
        digests[mode] = digest(self.folder / "outputs" / mode)
        return session

    def _alone(self, session: Session, feeds: Feeds, size: int) -> Answer:
        return split_answer(session.infer(feeds), size, self.unbatched)[0][0]


def _alike_outputs(session: Session) -> bool:
    """Whether two outputs are declared alike, or may be."""
    kinds: list[Any] = [(spec.dtype, spec.shape) for spec in session.signature.outputs]
    return len(set(kinds)) < len(kinds) or any(shape is None or None in shape[1:] for _, shape in kinds if len(kinds) > 1)

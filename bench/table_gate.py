"""The digits through the whole gate: against the plain script, against its own critical path, and once more with nothing changed."""

from __future__ import annotations

import shutil
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from critical_path import critical_path, work_in_agreement
from profiles import timeline
from rows import BENCH, CONTRACT, GOLDEN, MODEL, Bench, Row, Taken, at_most, taken

from kpipe.store import load_evidence


@dataclass(frozen=True)
class Round:
    """One of each, side by side."""

    plain: Taken
    first: Taken
    again: Taken
    anew: Taken
    """With what JAX has compiled for the first, and exports made anew: a new training of the same architecture."""


def gate(bench: Bench) -> tuple[list[Row], Path]:
    """The first validation finds no cache at all; the second one is of the same file, with what the first has kept.

    Returns:
        The rows, and the run folder of the last first validation.
    """
    rounds = [_round(bench, number) for number in range(bench.rounds)]
    last = bench.scratch / f"first-{bench.rounds - 1}"
    shown = timeline(load_evidence(last))
    chain = critical_path(load_evidence(last))
    longest = [critical_path(load_evidence(bench.scratch / f"first-{number}")).seconds for number in range(bench.rounds)]
    cores = work_in_agreement(load_evidence(last)) / 2
    again = bench.scratch / f"again-{bench.rounds - 1}"
    return [
        at_most(
            "digits: kpipe validate / plain script",
            statistics.median(r.first.wall_s / r.plain.wall_s for r in rounds),
            0.4,
            "ratio",
            _sides([r.first for r in rounds], [r.plain for r in rounds]),
            shown,
        ),
        at_most(
            "digits: kpipe validate, JAX's compile cache warm, exports made anew / plain script",
            statistics.median(r.anew.wall_s / r.plain.wall_s for r in rounds),
            0.4,
            "ratio",
            _sides([r.anew for r in rounds], [r.plain for r in rounds]),
            timeline(load_evidence(bench.scratch / f"anew-{bench.rounds - 1}")),
        ),
        at_most(
            "digits: kpipe validate / critical path",
            statistics.median(r.first.wall_s / seconds for r, seconds in zip(rounds, longest, strict=True)),
            1.25,
            "ratio",
            f"of the last round, {chain.seconds:.1f} s: {chain.told()}. All work before the timed phases, on two cores: at least {cores:.1f} s",
            shown,
        ),
        at_most(
            "digits: kpipe validate again / the first",
            statistics.median(r.again.wall_s / r.first.wall_s for r in rounds),
            0.5,
            "ratio",
            f"{_sides([r.again for r in rounds], [r.first for r in rounds])}; reused: {', '.join(_reused(again))}",
            timeline(load_evidence(again)),
        ),
    ], last


def _round(bench: Bench, number: int) -> Round:
    def plain() -> Taken:
        return taken(
            [sys.executable, str(BENCH / "plain_gate.py"), str(MODEL), str(GOLDEN), str(bench.scratch / f"gate-{number}")], bench.environment()
        )

    def ours(name: str, *more: str) -> Taken:
        return bench.validate(MODEL, CONTRACT, bench.scratch / f"{name}-{number}", bench.scratch / f"cache-{number}", *more)

    if number % 2 == 0:
        first, again, anew = ours("first"), ours("again"), ours("anew", "--no-reuse")
        found = Round(plain(), first, again, anew)
    else:
        theirs = plain()
        found = Round(theirs, ours("first"), ours("again"), ours("anew", "--no-reuse"))
    shutil.rmtree(bench.scratch / f"cache-{number}")
    return found


def _sides(ours: list[Taken], theirs: list[Taken]) -> str:
    walls = f"{statistics.median(t.wall_s for t in ours):.1f} s against {statistics.median(t.wall_s for t in theirs):.1f} s"
    cpus = f"{statistics.median(t.cpu_s for t in ours):.1f} s against {statistics.median(t.cpu_s for t in theirs):.1f} s"
    return f"median {walls}, processor time {cpus}, {len(ours)} rounds"


def _reused(run: Path) -> list[str]:
    return [stage.name for stage in load_evidence(run).stages if stage.reused]

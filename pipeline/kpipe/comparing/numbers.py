"""Numbers then and now: how far the model's own outputs moved, and each target's drift, size, load and latency. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from kpipe.comparison import Moved, Pair, TargetPair
from kpipe.judging.answers import ALONE
from kpipe.judging.compare import kind_of
from kpipe_stages.racing import LOAD, P50
from kpipe_stages.ratio import Told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe.comparing.pairing import Row
    from kpipe.comparing.subject import Subject
    from kpipe.record import LatencyRecord, RaceRecord, TargetRecord
    from kpipe_stages.rows import Rows

MEANINGLESS = 4.0
"""An interval whose ends are so many times apart isn't shown: too few rounds."""

NOT_INTERLEAVED = "not interleaved: can't tell below the machine's noise"
"""Two sessions on a machine differ by more than most changes do; a baseline measured in turns with the candidate is another matter (`raced_with`)."""


def moved(since: str, before: Subject, now: Subject, rows: Sequence[Row], changed: int) -> tuple[list[Moved], list[str]]:
    """How far every output moved, and what could not be held against one another.

    Raises:
        OSError: saved answers are gone.
        ValueError: they aren't the ones that were written.
    """
    ours, theirs = before.answers, now.answers
    if ours is None or theirs is None:
        which = " and ".join(side.side.path for side, answers in ((before, ours), (now, theirs)) if answers is None)
        return [], [f"The outputs of the model itself: {which} never ran it."]
    left = [f"Output '{name}' is only {'before' if name in ours.outputs else 'now'}." for name in sorted({*ours.outputs} ^ {*theirs.outputs})]
    found = []
    for output in (name for name in theirs.outputs if name in ours.outputs):
        steps = [_step(ours.rows(ALONE, output), theirs.rows(ALONE, output), row) for row in rows]
        if steps:
            at = max(range(len(rows)), key=lambda i: steps[i][1])
            largest, relative = max(step[0] for step in steps), steps[at][1]
            found.append(Moved(since, before.side.id, output, largest, relative, now.inputs[rows[at].now].id, changed, len(rows)))
    return found, left


def _step(before: Rows, now: Rows, row: Row) -> tuple[float, float]:
    """The largest difference of one input's output, absolute and over its largest magnitude before."""
    left, right = before[row.before], now[row.now]
    if left.shape != right.shape or kind_of(before.dtype) != kind_of(now.dtype):
        return math.inf, math.inf
    if kind_of(before.dtype) != "float":
        differs = float((left != right).sum())
        return (differs, differs / max(1, left.size))
    a, b = left.astype(np.float64), right.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not (np.isfinite(a) & np.isfinite(b) | same).all():
        return math.inf, math.inf
    with np.errstate(invalid="ignore"):
        gap = float(np.where(same, 0.0, np.abs(a - b)).max(initial=0.0))
    scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    return gap, gap / scale if scale else (math.inf if gap else 0.0)


def targets(before: Sequence[TargetRecord], now: Sequence[TargetRecord]) -> tuple[TargetPair, ...]:
    """Every target of either side, the new side's order first."""
    old, new = {t.name: t for t in before}, {t.name: t for t in now}
    return tuple(_target(name, old.get(name), new.get(name)) for name in dict.fromkeys([*new, *old]))


def _target(name: str, before: TargetRecord | None, now: TargetRecord | None) -> TargetPair:
    rows = [("flips", "", _flips), ("worst drift", "units", _drift), ("of the tolerance", "x", _factor), ("size", "bytes", _size)]
    numbers = [_exact(title, unit, measure(before) if before else None, measure(now) if now else None) for title, unit, measure in rows]
    race = raced_with(now, before) if now and before else None
    for title, key, measure in _TIMES:
        values = (measure(before) if before else None, measure(now) if now else None)
        numbers.append(Pair(title, "s", *((race.before_p50_s, race.now_p50_s) if race and key == P50 else values), _told(race, key)))
    numbers = [pair for pair in numbers if pair.before is not None or pair.now is not None]
    return TargetPair(name, str(before.status) if before else "", str(now.status) if now else "", tuple(numbers))


def raced_with(now: TargetRecord, before: TargetRecord) -> RaceRecord | None:
    """What timing the two in turns gave; None where this very artifact of the baseline wasn't timed in turns with the candidate's."""
    known = now.race.baseline_sha256 if now.race else ""
    return now.race if known and (before.artifact is None or before.artifact.sha256 == known) else None


def _told(race: RaceRecord | None, key: str) -> str:
    """What the ratio says in words: ``slower by 9.8 % (8.9 % to 10.7 %)``."""
    found = next((ratio for ratio in race.ratios if ratio.name == key), None) if race else None
    if race is None or found is None:
        return NOT_INTERLEAVED
    span = f"{found.ratio - 1:+.1%}, {found.low - 1:+.1%} to {found.high - 1:+.1%}"
    if found.high > MEANINGLESS * found.low:
        return str(found.told)
    if found.told == Told.SAME:
        return f"same within {race.smallest:.2g} ({span})"
    return f"{found.told} ({span})"


def _exact(name: str, unit: str, before: float | None, now: float | None) -> Pair:
    if before is None or now is None:
        return Pair(name, unit, before, now, "not known on both sides")
    if math.isnan(before) or math.isnan(now):
        return Pair(name, unit, before, now, "not a number")
    return Pair(name, unit, before, now, "same" if before == now else "more" if now > before else "less")


def _flips(target: TargetRecord) -> float | None:
    return float(target.flips) if target.modes else None


def _drift(target: TargetRecord) -> float | None:
    return max((d.max_abs for d in target.drift), default=None)


def _factor(target: TargetRecord) -> float | None:
    return max((d.smallest_factor for d in target.drift if d.tolerance.numeric), default=None)


def _size(target: TargetRecord) -> float | None:
    return float(target.artifact.size) if target.artifact else None


def _load(target: TargetRecord) -> float | None:
    return target.load.import_s + target.load.load_s + target.load.first_s if target.load else None


def _percentile(latency: LatencyRecord | None, p: float) -> float | None:
    return next((found.seconds for found in latency.percentiles if found.p == p), None) if latency else None


_TIMES = (
    ("load", LOAD, _load),
    ("p50", P50, lambda target: _percentile(target.latency, 50.0)),
    ("p90", "p90_ms", lambda target: _percentile(target.latency, 90.0)),
    ("end to end p50", "", lambda target: _percentile(target.end_to_end, 50.0)),
)

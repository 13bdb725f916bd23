"""How far a fault's answers are from the healthy reference's, and whether anything is wrong with them at all. Pure, over saved outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe.judging.answers import ALONE, Answers, open_answers
from kpipe.judging.floor import Floor, noise_floors
from kpipe.store import load_evidence

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kpipe.record import RunRecord
    from kpipe_stages.rows import Rows

Array = np.ndarray[Any, np.dtype[Any]]

RTOL = ATOL = 1e-5
"""What a script asks ``numpy.allclose`` for."""


@dataclass(frozen=True)
class Distance:
    """The largest difference of the shipped answers from the healthy reference's, over all inputs run alone."""

    floors: float
    """In noise floors."""
    margin: float
    """Of the smallest margin; 0 where there is none."""


def answers_of(run: Path, stage: str) -> Answers | None:
    """Saved answers of a run's stage, None where there are none."""
    evidence = load_evidence(run)
    found = {s.name: s for s in evidence.stages}.get(stage)
    return open_answers(found, run / evidence.folders.get(stage, f"stages/{stage}"))


def healthy_floors(run: Path) -> dict[str, Floor]:
    """The noise floors of a healthy run; empty where it has no float64 run.

    Raises:
        OSError, ValueError: saved outputs are gone or damaged.
    """
    reference, truth = answers_of(run, "reference"), answers_of(run, "truth")
    return noise_floors(reference, truth, "float32") if reference and truth else {}


def gaps(left: Answers, right: Answers, output: str) -> Array | None:
    """The largest difference of one output on each input, shape (inputs,); infinite where shapes or NaN differ; None where rows can't be paired."""
    if output not in right.outputs or not right.has(ALONE):
        return None
    return rows_gap(left.rows(ALONE, output), right.rows(ALONE, output))


def rows_gap(left: Rows, right: Rows) -> Array | None:
    """`row_gap` of each pair; None where they aren't as many."""
    return np.array([row_gap(x, y) for x, y in zip(left, right, strict=True)]) if len(left) == len(right) else None


def row_gap(left: Array, right: Array) -> float:
    """The largest absolute difference; infinite where shapes differ, or one side isn't finite where the other is."""
    if left.shape != right.shape:
        return float("inf")
    x, y = left.astype(np.float64), right.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    if not bool(np.all(finite | ((np.isnan(x) & np.isnan(y)) | (x == y)))):
        return float("inf")
    return float(np.abs(x[finite] - y[finite]).max(initial=0.0))


def distance(healthy: Path, fault: Answers | None, smallest_margin: float) -> Distance | None:
    """From the healthy reference to a fault's answers; None where there are none, or not to the same inputs."""
    reference, floors = answers_of(healthy, "reference"), healthy_floors(healthy)
    if reference is None or fault is None:
        return None
    worst, absolute = 0.0, 0.0
    for output, floor in floors.items():
        gap = gaps(reference, fault, output)
        if gap is None:
            return None
        worst = max(worst, float((gap / floor.widths).max(initial=0.0)))
        absolute = max(absolute, float(gap.max(initial=0.0)))
    return Distance(worst, absolute / smallest_margin if smallest_margin > 0 else 0.0)


def in_floors(floors: Mapping[str, Floor], healthy: Mapping[str, Rows], fault: Mapping[str, Rows]) -> float:
    """The largest difference of two float64 readings over the noise floor, on any output and input; infinite where they can't be compared whole.

    Args:
        floors: of every output that the healthy reference has; without one nothing is known.
        healthy: output name to rows.
        fault: the same, read in the same way.
    """
    if not floors or set(floors) != set(healthy):
        return float("inf")
    largest = 0.0
    for output, floor in floors.items():
        gap = rows_gap(healthy[output], fault[output]) if output in fault else None
        if gap is None or len(gap) != len(floor.widths):
            return float("inf")
        largest = max(largest, float((gap / floor.widths).max(initial=0.0)))
    return largest


def decides_alike(healthy: RunRecord, fault: RunRecord) -> bool:
    """Whether every decision that the fault's run shows, reference's and targets', is the healthy one, and all of them were seen."""
    return decisions_of(healthy) == decisions_of(fault) and all(
        t.cells.passed and not (t.cells.failed or t.cells.unchecked or t.flips or t.ties) for t in fault.targets
    )


def decisions_of(record: RunRecord) -> list[tuple[str, tuple[tuple[str, str | None], ...]]]:
    """Every input's id with what is decided and what is approved, rule by rule.

    A decision that is a number is left out: numbers are decided alike within an allowance, which the targets' flips are about.
    """
    numbers = {decision.name for decision in record.decisions if decision.rule == "tolerance"}
    found = []
    for row in record.golden.rows:
        rules = [(r.rule, r.decision, r.expected) for r in row.rules] or [("", row.decision, row.expected)]
        found.append((row.id, tuple(("" if rule in numbers else decision, expected) for rule, decision, expected in rules)))
    return found


def smallest_margin(record: RunRecord) -> float:
    """Of all golden inputs and rules; 0 where nothing is decided."""
    margins = [r.margin for row in record.golden.rows for r in (row.rules or (row,))]
    return min((m for m in margins if np.isfinite(m) and m > 0), default=0.0)


def allclose(left: Answers | None, right: Answers | None, rows: range) -> bool:
    """What a script says of these rows, run alone: ``numpy.allclose(target, reference, rtol=1e-5, atol=1e-5)`` for every output.

    False where the target gave no answer: the script would have stopped there.
    """
    if left is None or right is None or not right.has(ALONE):
        return False
    for output in left.outputs:
        if output not in right.outputs:
            return False
        a, b = left.rows(ALONE, output), right.rows(ALONE, output)
        if not all(i < len(b) and a[i].shape == b[i].shape and np.allclose(b[i], a[i], rtol=RTOL, atol=ATOL) for i in rows):
            return False
    return True

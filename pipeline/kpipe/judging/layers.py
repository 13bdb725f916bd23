"""Where a target leaves the reference inside a model, by the outputs of its layers. Pure, over saved outputs.

Each layer's output is held against its own noise floor (`kpipe.judging.floor`), from the same model in float64. A layer *leaves* where its output
is `K` floors or more from the reference's and nothing that it reads is: the difference begins there. What isn't floating point has to be equal.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe.judging.answers import ALONE, Answers
from kpipe.judging.compare import kind_of
from kpipe.judging.floor import EPSILON, SUSPECT, K, widths
from kpipe.judging.tolerance import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kpipe_stages.cutting.orders import Point
    from kpipe_stages.rows import Rows

Array = np.ndarray[Any, np.dtype[Any]]


class Standing(enum.StrEnum):
    """What a layer's output says."""

    AGREES = "agrees"
    LEAVES = "leaves"
    """Off, and nothing that it reads is."""
    DOWNSTREAM = "downstream"
    """Off, and so is something that it reads."""
    UNKNOWN = "unknown"
    """It couldn't be compared."""


@dataclass(frozen=True)
class Drift:
    """One output of the target against the reference's."""

    floors: float
    """The largest difference over the floor of its input; infinite where values that have to be equal, shapes or NaNs differ."""
    row: int
    """The input with it."""
    element: tuple[int, ...]
    reference: float
    target: float
    floor: float
    """Of that input, in output units; 0 where there is none."""
    problem: str = ""
    """``shape``, ``nonfinite``, ``unequal``, or empty."""
    reference_off: float = 0.0
    """The reference's own distance from float64 over the most that rounding explains: above 1 it is the reference that is off."""
    detail: str = ""
    """Where it has no one element: both shapes."""


@dataclass(frozen=True)
class LayerDrift:
    """One row of the table."""

    point: str
    layer: str
    class_name: str
    config: dict[str, Any]
    shape: tuple[int | None, ...] | None
    dtype: str
    before: float
    """The largest drift of what it reads, in floors; 0 for the model's inputs, which are the same bits on both sides."""
    drift: Drift | None
    """None where it couldn't be compared."""
    standing: Standing
    why: str = ""
    """Why it couldn't."""


@dataclass(frozen=True)
class Output:
    """One output of one set of answers."""

    answers: Answers
    name: str
    mode: str = ALONE

    @property
    def there(self) -> bool:
        """Whether it was answered in that mode."""
        return self.answers.has(self.mode) and self.name in self.answers.outputs

    @property
    def batched(self) -> bool:
        """Whether it has a row for each input."""
        return self.answers.batched(self.mode, self.name)

    def rows(self) -> Rows:
        """Its rows; errors as `kpipe.judging.answers.Answers.rows`."""
        return self.answers.rows(self.mode, self.name)


@dataclass(frozen=True)
class Sides:
    """The cut model's answers."""

    reference: Answers
    truth: Answers | None
    """In float64; None where it couldn't be had: then the default tolerance counts as `K` floors."""
    target: Answers
    mode: str
    """The way of running in which the target is asked."""


def judge_layers(points: Sequence[Point], inputs: Collection[str], sides: Sides) -> tuple[LayerDrift, ...]:
    """A row for every point that the cut model gives, in the order of computation.

    Args:
        points: all of the model's.
        inputs: names of the model's inputs, which are the same bits on both sides.
        sides: the answers.
    """
    precision = coarsest([point.dtype for point in points])
    reach = dict.fromkeys(inputs, 0.0)
    rows = []
    for point in points:
        before = max((reach.get(name, math.inf) for name in point.inputs), default=0.0)  # text is no point: it may be off by anything
        if not Output(sides.reference, point.name).there:
            reach[point.name] = before  # as far off as what it is made of
            continue
        rows.append(_judge(point, before, sides, precision))
        drift = rows[-1].drift
        reach[point.name] = math.inf if drift is None else drift.floors
    return tuple(rows)


def _judge(point: Point, before: float, sides: Sides, precision: str) -> LayerDrift:
    truth = Output(sides.truth, point.name) if sides.truth is not None else None
    try:
        drift = drift_of(Output(sides.reference, point.name), Output(sides.target, point.name, sides.mode), truth, precision)
    except (OSError, ValueError, LookupError) as error:
        return _row(point, before, None, Standing.UNKNOWN, str(error))
    standing = Standing.AGREES if drift.floors < K else Standing.DOWNSTREAM if before >= K else Standing.LEAVES
    return _row(point, before, drift, standing)


def reference_leaves(rows: Sequence[LayerDrift]) -> LayerDrift | None:
    """The first layer at which the reference itself is further from float64 than rounding explains; None where there is none."""
    return next((row for row in rows if row.drift is not None and row.drift.reference_off > 1), None)


def first_to_leave(rows: Sequence[LayerDrift]) -> LayerDrift | None:
    """The first layer in the order of computation that leaves the reference; None where none does."""
    return next((row for row in rows if row.standing is Standing.LEAVES), None)


def coarsest(dtypes: Sequence[str]) -> str:
    """The precision class of a model with outputs of these dtypes."""
    floats = [dtype for dtype in dtypes if dtype in EPSILON]
    return max(floats, key=lambda dtype: EPSILON[dtype], default="float32")


def drift_of(reference: Output, target: Output, truth: Output | None, precision: str) -> Drift:
    """One output's largest drift over all inputs.

    Args:
        reference: the reference's.
        target: the target's.
        truth: in float64.
        precision: class of the model's own layers, a key of `EPSILON`.

    Raises:
        OSError: saved answers are gone.
        ValueError: they aren't the ones that a worker wrote, or differ in number.
        LookupError: a row or an output isn't there.
    """
    if not target.there:
        raise LookupError(f"the target gives no '{target.name}' in mode '{target.mode}'")
    ours, theirs = list(reference.rows()), list(target.rows())
    exact = kind_of(reference.rows().dtype) != "float"
    if len(ours) != len(theirs) or not ours:
        raise ValueError(f"{len(theirs)} answers of the target against {len(ours)} of the reference")
    if target.batched != reference.batched:
        raise ValueError("the output has a batch axis on one side only")
    real = None if truth is None else list(truth.rows())
    if real is not None and len(real) != len(ours):
        raise ValueError(f"{len(real)} answers in float64 against {len(ours)} of the reference")
    floors, beyond = _exact(ours, theirs, real) if exact else _floors(ours, real, precision)
    return max((_worst(i, a, b, floors[i], beyond, exact=exact) for i, (a, b) in enumerate(zip(ours, theirs, strict=True))), key=_size)


def _exact(ours: Sequence[Array], theirs: Sequence[Array], real: Sequence[Array] | None) -> tuple[Sequence[float], float]:
    """No floor; the reference is off where float64 gives another answer, and the target's answer is that one."""
    wrong = real is not None and any(not np.array_equal(a, c) and np.array_equal(b, c) for a, b, c in zip(ours, theirs, real, strict=True))
    return [0.0] * len(ours), math.inf if wrong else 0.0


def _floors(ours: Sequence[Array], real: Sequence[Array] | None, precision: str) -> tuple[Sequence[float], float]:
    """The floor of each input, and the reference's distance from float64 over what rounding explains (the typical input's)."""
    scales = np.array([_largest(row) for row in ours])
    if real is None:
        rtol, atol = DEFAULTS[precision]
        return ((rtol + atol) * scales / K).tolist(), 0.0
    errors = np.array([_distance(a, b) for a, b in zip(ours, real, strict=True)])
    explained = SUSPECT[precision] * scales
    known = scales > 0
    beyond = float(np.median(errors[known] / explained[known])) if known.any() else 0.0
    return widths(errors, scales, precision).tolist(), beyond


def _distance(a: Array, b: Array) -> float:
    if a.shape != b.shape:
        raise ValueError(f"shape {b.shape} in float64 against {a.shape}")
    both = np.isfinite(a) & np.isfinite(b)
    return float(np.abs(a[both].astype(np.float64) - b[both]).max(initial=0.0))


def _worst(row: int, ours: Array, theirs: Array, floor: float, beyond: float, *, exact: bool) -> Drift:
    if ours.shape != theirs.shape:
        return Drift(math.inf, row, (), math.nan, math.nan, floor, "shape", beyond, f"shape {list(theirs.shape)} instead of {list(ours.shape)}")
    if ours.size == 0:
        return Drift(0.0, row, (), 0.0, 0.0, floor, "", beyond)
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    difference = np.where(finite, np.abs(np.where(finite, a, 0.0) - np.where(finite, b, 0.0)), np.where(same, 0.0, math.inf))
    place = np.unravel_index(int(np.argmax(difference)), difference.shape)
    largest = float(difference[place])
    ratio = 0.0 if largest == 0 else math.inf if exact or floor == 0 else largest / floor
    problem = "" if not math.isinf(ratio) else "nonfinite" if math.isinf(largest) else "unequal"
    return Drift(ratio, row, tuple(int(n) for n in place), float(a[place]), float(b[place]), floor, problem, beyond)


def _largest(row: Array) -> float:
    return float(np.abs(row[np.isfinite(row)].astype(np.float64)).max(initial=0.0))


def _size(drift: Drift) -> tuple[float, float]:
    difference = abs(drift.reference - drift.target)
    return drift.floors, 0.0 if math.isnan(difference) else difference


def _row(point: Point, before: float, drift: Drift | None, standing: Standing, why: str = "") -> LayerDrift:
    return LayerDrift(point.name, point.layer, point.class_name, point.config, point.shape, point.dtype, before, drift, standing, why)


def relative_rows(reference: Answers, target: Answers, mode: str) -> list[float]:
    """Per input, the largest difference over the scale of the reference's output; infinite where shapes, NaNs or whole numbers differ.

    Raises:
        OSError: saved answers are gone.
        ValueError: they aren't the ones that a worker wrote.
        LookupError: a row or an output isn't there.
    """
    result: dict[int, float] = {}
    for name in reference.outputs:
        ours, theirs = reference.rows(ALONE, name), target.rows(mode, name)
        if ours.dtype == "string" or not target.batched(mode, name):
            continue
        for i in range(min(len(ours), len(theirs))):
            if i not in ours.absent and i not in theirs.absent:
                found = _worst(i, ours[i], theirs[i], _largest(ours[i]), 0.0, exact=kind_of(ours.dtype) != "float")
                result[i] = max(result.get(i, 0.0), found.floors)
    return [result.get(i, 0.0) for i in range(max(result, default=-1) + 1)]

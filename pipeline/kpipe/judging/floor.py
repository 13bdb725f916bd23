"""The noise floor: how far the reference itself is from the candidate in float64, on each golden input. Pure, over saved outputs.

With ``e(i) = max |reference - truth|`` on input ``i`` (elements of one output) and ``s(i)`` the output's largest magnitude there, the floor is

    floor(i) = max( min(max(e(i), c(i)), SUSPECT * s(i)), median_j(e(j) / s(j)) * s(i), median_j e(j), eps * max(s(i), median_j s(j)) )

in output units. One draw of rounding errors says little: ``e(i)`` may be zero by luck, so what rounding can do on that very input, ``c(i)``
(`kpipe_stages.nudging`), and the set's typical error, relative and absolute, stand in, and never less than one spacing of the model's own dtype,
of the output here or of the typical one: a sigmoid close to 0 is computed no finer than one close to 1. The absolute one is what an output that
crosses zero needs: its error comes from the numbers that cancel, not from what is left. Medians, so that one noisy input decides for itself
alone; and what is no rounding any more excuses nobody.

``tolerance = "auto"`` allows ``K * max(floor(i), eps_target * s(i))``: a target that computes coarser has its own spacing. `K` is measured: see
``docs/decisions/013-derived-tolerances.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe.judging.answers import ALONE, Answers
from kpipe.judging.compare import chunks, kind_of
from kpipe_stages.decisions import outputs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe_stages.protocol import DecisionSpec
    from kpipe_stages.rows import Rows

Array = np.ndarray[Any, np.dtype[Any]]

K = 16.0
"""Multiple of the floor, or of its own spacing, that a target may drift."""

EPSILON = {"float64": 2.0**-23, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Spacing at 1 of each precision class. A float64 model runs in float32 nearly everywhere, so its class is float32's."""

SUSPECT = {"float64": 2.0**-10, "float32": 2.0**-10, "float16": 2.0**-6, "bfloat16": 2.0**-4}
"""An error of this share of the output, by the model's class, is no rounding: the reference or the float64 run is wrong there."""


@dataclass(frozen=True)
class Floor:
    """One output's noise floor."""

    errors: Array
    """``e(i)``, shape (inputs,), output units; NaN where an answer isn't finite."""
    scales: Array
    """``s(i)``, shape (inputs,), output units."""
    widths: Array
    """``floor(i)``, shape (inputs,), output units."""

    def allowed(self, precision: str) -> Array:
        """What `K` multiplies for a target of this class, a key of `EPSILON`: shape (inputs,), output units."""
        found: Array = np.maximum(self.widths, EPSILON[precision] * self.scales)
        return found

    @property
    def typical(self) -> float:
        """The median of ``e(i)``, output units."""
        return _median(self.errors)

    @property
    def largest(self) -> float:
        """The largest ``e(i)``, output units."""
        return float(np.nanmax(self.errors, initial=0.0))


def noise_floors(reference: Answers, truth: Answers, precision: str) -> dict[str, Floor]:
    """The floor of every floating-point output that both answer alone, row for row.

    Args:
        reference: the candidate's answers.
        truth: its answers in float64.
        precision: class of the model's own layers, a key of `EPSILON`.

    Raises:
        OSError: saved answers are gone.
        ValueError: they aren't the ones that a worker wrote, or the two differ in rows or shapes.
    """
    floors = {}
    for output in reference.outputs:
        if output not in truth.outputs:
            raise ValueError(f"the float64 run has no output '{output}'; it has {', '.join(truth.outputs)}")
        rows = reference.rows(ALONE, output)
        if kind_of(rows.dtype) == "float":
            floors[output] = _floor(rows, truth.rows(ALONE, output), precision, _sensitivity(truth, output, len(rows)))
    return floors


def _sensitivity(truth: Answers, output: str, count: int) -> Array:
    """``c(i)``, shape (inputs,); zeros where it isn't known, which the run's findings say.

    Raises:
        ValueError: it is of another number of inputs, or no distance.
    """
    told = truth.result.facts.get("sensitivity", {}).get(output)
    found = np.zeros(count) if told is None else np.asarray(told, dtype=np.float64)
    if found.shape != (count,) or not (np.isfinite(found) & (found >= 0)).all():
        raise ValueError(f"its sensitivity of output '{output}' is no distance for each of {count} inputs")
    return found


def _floor(rows: Rows, truth: Rows, precision: str, sensitivity: Array) -> Floor:
    if len(rows) != len(truth):
        raise ValueError(f"{len(truth)} rows in float64 against {len(rows)} of the reference")
    errors, scales = np.zeros(len(rows)), np.zeros(len(rows))
    for start, stop in chunks(rows):
        whole = (shape := rows.common_shape(start, stop)) is not None and shape == truth.common_shape(start, stop)
        for first, last in [(start, stop)] if whole else [(i, i + 1) for i in range(start, stop)]:
            if rows.shape(first) != truth.shape(first):
                raise ValueError(f"row {first} has the shape {truth.shape(first)} in float64 and {rows.shape(first)} in the reference")
            left, right = rows.block(first, last).astype(np.float64), truth.block(first, last).astype(np.float64)
            finite = np.isfinite(left)
            both = finite & np.isfinite(right)
            scales[first:last] = np.abs(np.where(finite, left, 0.0)).max(axis=1, initial=0.0)
            errors[first:last] = np.abs(np.where(both, left, 0.0) - np.where(both, right, 0.0)).max(axis=1, initial=0.0)
    return Floor(errors, scales, widths(errors, scales, precision, sensitivity))


def widths(errors: Array, scales: Array, precision: str, sensitivity: Array | None = None) -> Array:
    """``floor(i)`` of the module's text.

    Args:
        errors: ``e(i)``, shape (inputs,).
        scales: ``s(i)``, shape (inputs,).
        precision: class of the model's own layers, a key of `EPSILON`.
        sensitivity: ``c(i)``, shape (inputs,); None for unknown.

    Returns:
        Shape (inputs,), output units; none below one spacing of its scale.
    """
    relative = _median(errors[scales > 0] / scales[scales > 0])
    drawn = errors if sensitivity is None else np.maximum(errors, sensitivity)
    own = np.minimum(drawn, SUSPECT[precision] * scales)
    found: Array = np.maximum.reduce(
        [own, relative * scales, np.full_like(errors, _median(errors)), EPSILON[precision] * np.maximum(scales, _median(scales))]
    )
    return found


def band_of(floors: Mapping[str, Floor], spec: DecisionSpec, index: int) -> float:
    """The widest floor of a decision's outputs on one input, in output units; 0 where none is known."""
    return max((float(floors[output].widths[index]) for output in outputs_of(spec) if output in floors), default=0.0)


def _median(values: Array) -> float:
    return float(np.median(values)) if values.size and not math.isnan(float(np.median(values))) else 0.0

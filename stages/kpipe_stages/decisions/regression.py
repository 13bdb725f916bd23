"""The rule for numbers that the product shows as they are: ``tolerance``.

The decision is the whole output ``r``. A target with ``y`` decides otherwise where ``|y_i - r_i| > a_i`` on any element, with the allowance
``a_i = atol + rtol * |r_i|`` in output units. The margin is the smallest allowance, ``m = min a_i``: while every element moves by less than
``m`` the decision is the same, and moving the element of the smallest allowance by a little more than ``m`` makes another one. An infinity is
the same only as itself, and counts for no margin.

Being the same is judged from the reference: it is its magnitude that ``rtol`` refers to.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.decisions.common import SEPARATOR, Array, Decision, digest, some_numbers, undecided

if TYPE_CHECKING:
    from kpipe_stages.protocol import DecisionSpec

WRITTEN_OUT = 8
"""More numbers are named by a digest."""


def tolerance(spec: DecisionSpec, row: Any) -> Decision:
    """The number, or all of them."""
    values = some_numbers(spec.output, row)
    if np.isnan(values).any():
        return undecided()
    finite = values[np.isfinite(values)]
    margin = float(allowance(spec, finite).min(initial=math.inf))
    shown = tuple(float(v) for v in values.ravel()[:WRITTEN_OUT])
    text = SEPARATOR.join(f"{v:.7g}" for v in shown) if values.size <= WRITTEN_OUT else f"values {digest(values, '<f8')}"
    return Decision(text, -1, margin, shown, tied=False, basis=values)


def allowance(spec: DecisionSpec, values: Array) -> Array:
    """How far each element may be from ``values``, in output units."""
    return spec.atol + spec.rtol * np.abs(values)


def close(spec: DecisionSpec, ours: Array, theirs: Array) -> bool:
    """Whether every element of ``theirs`` is within the allowance of ``ours``; arrays of another shape aren't."""
    if ours.shape != theirs.shape:
        return False
    with np.errstate(invalid="ignore"):  # infinity less infinity
        return bool(((np.abs(theirs - ours) <= allowance(spec, ours)) & np.isfinite(ours) | (theirs == ours)).all())


def approved(spec: DecisionSpec, expected: str, values: Array) -> bool:
    """Whether ``values`` are the approved numbers, written one after another as in ``"0.5, 2"``."""
    try:
        numbers = np.array([float(part) for part in expected.split(",")])
    except ValueError:
        return False
    return not np.isnan(numbers).any() and close(spec, numbers, values.ravel())

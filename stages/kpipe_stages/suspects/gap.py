"""How far a suspect's tensor is from the target's. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Gap:
    """Two tensors of one input."""

    equal: bool
    residual: float
    """Largest absolute difference; infinite for other shapes."""
    rms: float


def gap(candidate: Array, target: Array, *, rtol: float, atol: float) -> Gap:
    """Compare: equal where ``|candidate - target| <= atol * scale + rtol * |target|`` everywhere, ``scale`` the target's largest magnitude.

    NaN has to meet NaN and an infinity the same one. Texts and shapes have to be the same. Dtypes may differ.
    """
    if candidate.shape != target.shape or (candidate.dtype.kind in "SU") != (target.dtype.kind in "SU"):
        return Gap(equal=False, residual=np.inf, rms=np.inf)
    if target.dtype.kind in "SU":
        same = bool(np.array_equal(candidate, target))
        return Gap(same, 0.0 if same else np.inf, 0.0 if same else np.inf)
    a, b = candidate.astype(np.float64), target.astype(np.float64)
    special = ~(np.isfinite(a) & np.isfinite(b))
    if not np.array_equal(a[special], b[special], equal_nan=True):
        return Gap(equal=False, residual=np.inf, rms=np.inf)
    difference = np.abs(np.where(special, 0.0, a) - np.where(special, 0.0, b))
    magnitude = np.abs(np.where(np.isfinite(b), b, 0.0))
    fits = bool((difference <= atol * magnitude.max(initial=0.0) + rtol * magnitude).all())
    return Gap(fits, float(difference.max(initial=0.0)), float(np.sqrt(np.mean(difference**2))) if difference.size else 0.0)

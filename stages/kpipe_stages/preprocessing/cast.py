"""Casts that say when they changed a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kpipe_stages.preprocessing.errors import PreprocessError

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "string",
)


@dataclass(frozen=True)
class CastNote:
    """A cast after which some values are no longer what they were."""

    source: str
    """Dtype before."""
    target: str
    """Dtype after."""
    changed: int
    """How many values changed."""
    count: int
    """Of how many."""
    before: float | int
    """The first changed value."""
    after: float | int
    """What became of it."""

    def sentence(self) -> str:
        """What happened, with values."""
        return f"the cast from {self.source} to {self.target} changed {self.changed} of {self.count} values, the first from {self.before} to {self.after}"


def cast(array: Array, dtype: str, notes: list[CastNote] | None = None) -> Array:
    """Cast to ``dtype``; a value-changing cast is added to ``notes``.

    A narrower float that is the nearest one to the value is no change; one that became infinite, or lost more than half a unit in
    the last place because it fell below the smallest normal number, is. NaN stays NaN.

    Raises:
        PreprocessError: between numbers and strings, or an unknown dtype.
    """
    if dtype not in DTYPES:
        raise PreprocessError("cast", f"dtype {dtype!r}", f"one of {', '.join(DTYPES)}", "Name a dtype that the model declares.", "KP104")
    textual = array.dtype.kind in "SU"
    if textual or dtype == "string":
        if textual and dtype == "string":
            return array
        raise PreprocessError(
            "cast", f"{array.dtype.name} values for a {dtype} input", "numbers for numbers and strings for strings", "Mend dtype.", "KP104"
        )
    target = np.dtype(dtype)
    if array.dtype == target:
        return array
    with np.errstate(all="ignore"):  # out-of-range values are looked for below
        result = array.astype(target)
        changed = _changed(array, result)
    if notes is not None and changed is not None and (count := int(np.count_nonzero(changed))):
        first = int(np.flatnonzero(changed)[0])
        note = CastNote(array.dtype.name, dtype, count, array.size, array.ravel()[first].item(), result.ravel()[first].item())
        notes.append(note)
    return result


def _changed(before: Array, after: Array) -> Array | None:
    """Mask of the values that ``after`` doesn't hold any more; None where none can change."""
    wide_integer_to_float = before.dtype.name in ("int64", "uint64") and after.dtype.kind == "f"  # numpy calls it safe
    if np.can_cast(before.dtype, after.dtype, "safe") and not wide_integer_to_float:
        return None
    if before.dtype.kind == "f" and after.dtype.kind == "f":
        return _float_changed(before, after)
    if before.dtype.kind == "f" or after.dtype.kind == "f":
        return _mixed_changed(before, after)
    if after.dtype.kind == "b":
        return np.asarray((before != 0) & (before != 1))
    # integers: the round trip tells, but for a sign that wraps there and back
    return np.asarray((after.astype(before.dtype) != before) | ((after < 0) != (before < 0)))


def _float_changed(before: Array, after: Array) -> Array:
    wide = after.astype(before.dtype)
    allowed = np.abs(before) * (np.finfo(after.dtype).eps / 2)
    return np.asarray(np.isfinite(before) & ~(np.abs(wide - before) <= allowed))


def _mixed_changed(before: Array, after: Array) -> Array:
    from_float = before.dtype.kind == "f"
    floats, integers = (before, after) if from_float else (after, before)
    if integers.dtype.kind == "b":
        return (floats != 0) & (floats != 1) if from_float else np.zeros(before.shape, bool)
    floats = floats.astype(np.float64)  # numpy would round the bounds below to a narrower float, a float16's to infinity
    info = np.iinfo(integers.dtype)
    # both bounds are powers of two (or zero), so exact as floats: -2**63 <= x < 2**63; x may be a rounded-up 2**63 here
    inside = (floats >= float(info.min)) & (floats < float(info.max + 1))
    same = np.zeros(before.shape, bool)
    same[inside] = floats[inside].astype(integers.dtype) == integers[inside]
    if from_float:
        same &= np.trunc(floats) == floats
    return ~same

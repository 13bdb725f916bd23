"""The steps between a decoded file and the tensor: those on plain numbers, and the table of all.

A step is a table with one key that names it and its options beside it: ``{ resize = [16, 16], method = "bilinear" }``. Arithmetic is
float32, each operation rounded once; float64 where the decoded values are float64 or integers of more than 16 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.preprocessing.checks import RGB, WHITE, number, one_of_dtypes, shape, statistics, true
from kpipe_stages.preprocessing.errors import PreprocessError
from kpipe_stages.preprocessing.image_steps import IMAGE_KINDS, image_of, luma, wanted_size
from kpipe_stages.preprocessing.kinds import Context, Kind
from kpipe_stages.preprocessing.lengths import LENGTH_KINDS
from kpipe_stages.preprocessing.spectral import SPECTRAL_KINDS
from kpipe_stages.preprocessing.text_steps import TEXT_KINDS

if TYPE_CHECKING:
    from kpipe_stages.preprocessing.kinds import Options

__all__ = ["KINDS", "RGB", "Context", "Kind", "image_of", "luma", "real", "wanted_size"]

Array = np.ndarray[Any, np.dtype[Any]]


def real(array: Array) -> Array:
    """The array in the dtype that arithmetic is done in."""
    if array.dtype.kind not in "biuf":
        raise PreprocessError("steps", f"arithmetic on {array.dtype.name} values", "numbers", "Leave the step out.", "KP104")
    wide = array.dtype == np.float64 or (array.dtype.name in ("int32", "int64", "uint32", "uint64"))
    return array.astype(np.float64 if wide else np.float32, copy=False)


def _scale(array: Array, value: Any, _: Options) -> Array:
    values = real(array)
    return np.asarray(values * values.dtype.type(value))


def _offset(array: Array, value: Any, _: Options) -> Array:
    values = real(array)
    return np.asarray(values + values.dtype.type(value))


def _normalize(array: Array, value: Any, options: Options) -> Array:
    values = real(array)
    axis = options["channel_axis"]
    mean, std = (np.asarray(value[key], dtype=values.dtype).reshape(-1) for key in ("mean", "std"))
    if len(mean) > 1:
        if axis is None or values.ndim == 0 or values.shape[axis] != len(mean):
            raise PreprocessError("normalize", f"{len(mean)} means for values of shape {values.shape}", "one, or one a channel", "Mend mean and std.")
        form = [1] * values.ndim
        form[axis] = -1
        mean, std = mean.reshape(form), std.reshape(form)
    return np.asarray((values - mean) / std)


def _invert(array: Array, _: Any, __: Options) -> Array:
    return (np.uint8(WHITE) - array) if array.dtype == np.uint8 else np.float32(WHITE) - real(array)


def _flatten(array: Array, _: Any, __: Options) -> Array:
    return np.ascontiguousarray(array).reshape(-1)


def _reshape(array: Array, value: Any, _: Options) -> Array:
    try:
        return array.reshape(tuple(value))
    except ValueError as error:
        raise PreprocessError("reshape", f"{array.size} values of shape {array.shape}", f"as many as {list(value)} has", "Mend the shape.") from error


KINDS: dict[str, Kind] = {
    **IMAGE_KINDS,
    "invert": Kind(true, _invert, needs_levels=True),
    "scale": Kind(number, _scale, changes_scale=True),
    "offset": Kind(number, _offset, changes_scale=True),
    "normalize": Kind(statistics, _normalize, changes_scale=True),
    "flatten": Kind(true, _flatten, any_values=True),
    "reshape": Kind(shape, _reshape, any_values=True),
    **LENGTH_KINDS,
    **SPECTRAL_KINDS,
    **TEXT_KINDS,
    "cast": Kind(one_of_dtypes, None, changes_scale=True),
}
"""All steps by name."""

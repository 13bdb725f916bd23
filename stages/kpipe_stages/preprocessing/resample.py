"""Resize by Pillow's own resampling, so that a product that resizes with Pillow gets the same numbers.

uint8 images go through Pillow as they are (it rounds to 8 bits, and weighs colours by alpha where there is one); anything else goes
channel by channel in 32-bit float, so nothing is rounded. Pillow widens its filter by the reduction factor, which is what other
libraries call antialiasing; ``reducing_gap`` is not used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

METHODS = ("nearest", "bilinear", "bicubic", "area", "lanczos")
PLAIN_METHODS = ("nearest", "bilinear")
"""Methods that exist without antialiasing."""
_PILLOW_CHANNELS = 4


def resize(array: Array, height: int, width: int, method: str, antialias: bool) -> Array:
    """Resize ``(h, w, c)`` to ``(height, width, c)``.

    Without ``antialias`` bilinear is the two-point interpolation at half-pixel centres, ``x = (i + 0.5) * w / width - 0.5`` clamped to
    the image, computed in float64 and returned as float32. ``nearest`` takes pixel ``floor((i + 0.5) * w / width)``.
    """
    if array.shape[:2] == (height, width):
        return array
    if not antialias and method == "bilinear":
        return _plain_bilinear(array, height, width)
    if array.dtype == np.uint8 and array.shape[2] <= _PILLOW_CHANNELS:
        return _by_pillow(array, height, width, method)
    channels = [_by_pillow(array[:, :, i : i + 1].astype(np.float32), height, width, method) for i in range(array.shape[2])]
    return np.concatenate(channels, axis=2)


def _by_pillow(array: Array, height: int, width: int, method: str) -> Array:
    from PIL import Image

    filters = {
        "nearest": Image.Resampling.NEAREST,
        "bilinear": Image.Resampling.BILINEAR,
        "bicubic": Image.Resampling.BICUBIC,
        "area": Image.Resampling.BOX,
        "lanczos": Image.Resampling.LANCZOS,
    }
    flat = np.ascontiguousarray(array[:, :, 0] if array.shape[2] == 1 else array)
    return np.atleast_3d(np.array(Image.fromarray(flat).resize((width, height), filters[method])))


def _plain_bilinear(array: Array, height: int, width: int) -> Array:
    wide = array.astype(np.float64)
    for axis, size in ((0, height), (1, width)):
        low, high, weight = _two_points(wide.shape[axis], size)
        weight = weight.reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        wide = np.take(wide, low, axis) * (1 - weight) + np.take(wide, high, axis) * weight
    return wide.astype(np.float32)


def _two_points(size: int, wanted: int) -> tuple[Array, Array, Array]:
    position = np.clip((np.arange(wanted) + 0.5) * size / wanted - 0.5, 0, size - 1)
    low = np.floor(position).astype(np.int64)
    return low, np.minimum(low + 1, size - 1), position - low

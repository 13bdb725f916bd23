"""Resizing as other libraries do it, in NumPy: separable filters as a few taps an output pixel.

Sources of the formulas: OpenCV's documentation of ``resize`` and ``InterpolationFlags`` (half-pixel centres, no antialiasing, cubic with
a = -0.75, fixed-point 8-bit bilinear with 11-bit weights); TensorFlow's documentation of ``tf.image.resize`` (half-pixel centres,
Keys' cubic with a = -0.5, Lanczos of radius 3); R. Keys, "Cubic convolution interpolation for digital image processing", IEEE Transactions
on Acoustics, Speech and Signal Processing 29 (1981). ``tests/test_suspects.py`` holds TensorFlow's against TensorFlow; OpenCV's were
compared with OpenCV 5.0 when they were written: equal but for a rounding of one level in 1 % of the values where 8-bit images grow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Taps = tuple[Array, Array]
"""Indices and weights, each ``(taps, wanted)``."""

FIXED = 2048
"""OpenCV's unit of 8-bit bilinear weights."""
TABLE = 1024
"""Steps of TensorFlow's table of cubic weights."""


def _centres(size: int, wanted: int) -> Array:
    """Half-pixel centres: ``(i + 0.5) * size / wanted - 0.5``."""
    return np.asarray((np.arange(wanted) + 0.5) * size / wanted - 0.5)


def _filtered(size: int, positions: Array, radius: int, weight: Callable[[Array], Array], *, edges: str) -> Taps:
    """Taps of a filter of some radius; ``edges``: ``repeat`` the border pixel, or ``drop`` what lies outside and divide by what is left."""
    first = np.floor(positions).astype(np.int64) - radius + 1
    indices = first + np.arange(2 * radius)[:, np.newaxis]
    weights = weight(positions - indices)
    if edges == "drop":
        weights = np.where((indices < 0) | (indices >= size), 0.0, weights)
        weights = weights / weights.sum(axis=0)
    return np.clip(indices, 0, size - 1), weights


def linear(size: int, positions: Array) -> Taps:
    """Two points."""
    return _filtered(size, np.clip(positions, 0, size - 1), 1, lambda d: np.maximum(0.0, 1 - np.abs(d)), edges="repeat")


def _cubic(a: float) -> Callable[[Array], Array]:
    def weight(d: Array) -> Array:
        d = np.abs(d)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))  # noqa: PLR2004 - the cubic's radius

    return weight


def _lanczos(radius: int) -> Callable[[Array], Array]:
    return lambda d: np.where(np.abs(d) < radius, np.sinc(d) * np.sinc(d / radius), 0.0)


def opencv_cubic(size: int, wanted: int) -> Taps:
    """Cubic convolution with a = -0.75, borders repeated."""
    return _filtered(size, _centres(size, wanted), 2, _cubic(-0.75), edges="repeat")


def keys_cubic(size: int, wanted: int) -> Taps:
    """Cubic convolution with a = -0.5, what lies outside dropped, positions in 1,024ths of a pixel: TensorFlow looks its weights up in a table."""
    return _filtered(size, np.rint(_centres(size, wanted) * TABLE) / TABLE, 2, _cubic(-0.5), edges="drop")


def plain_lanczos(size: int, wanted: int) -> Taps:
    """Lanczos of radius 3 that doesn't widen."""
    return _filtered(size, _centres(size, wanted), 3, _lanczos(3), edges="drop")


def half_pixel(size: int, wanted: int) -> Taps:
    """Two points at half-pixel centres."""
    return linear(size, _centres(size, wanted))


def from_corner(size: int, wanted: int) -> Taps:
    """Two points at ``i * size / wanted``: TensorFlow 1's default."""
    return linear(size, np.arange(wanted) * size / wanted)


def corners_aligned(size: int, wanted: int) -> Taps:
    """Two points at ``i * (size - 1) / (wanted - 1)``."""
    return linear(size, np.arange(wanted) * (size - 1) / max(1, wanted - 1))


def corner_nearest(size: int, wanted: int) -> Taps:
    """Pixel ``floor(i * size / wanted)``: OpenCV's nearest."""
    first: Array = np.floor(np.arange(wanted) * (size / wanted)).astype(np.int64).clip(0, size - 1)
    return first[np.newaxis], np.ones((1, wanted))


def exact_area(size: int, wanted: int) -> Taps:
    """The mean over ``[i * size / wanted, (i + 1) * size / wanted)``, border pixels by the part that lies inside."""
    low, high = np.arange(wanted) * size / wanted, (np.arange(wanted) + 1) * size / wanted
    indices = np.floor(low).astype(np.int64) + np.arange(int(np.ceil(size / wanted)) + 1)[:, np.newaxis]
    inside = np.clip(np.minimum(indices + 1, high) - np.maximum(indices, low), 0.0, None)
    return np.clip(indices, 0, size - 1), inside / inside.sum(axis=0)


def apply_taps(image: Array, rows: Taps, columns: Taps) -> Array:
    """Resize ``(h, w, c)`` by taps, columns first; float64."""
    across = _gather(image, columns, 1)
    return _gather(across, rows, 0)


def _gather(image: Array, taps: Taps, axis: int) -> Array:
    total: Any = 0.0
    for indices, weights in zip(*taps, strict=True):
        total = total + np.take(image, indices, axis) * weights.reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
    return np.asarray(total, dtype=np.float64)


def opencv_bilinear_8bit(image: Array, height: int, width: int) -> Array:
    """OpenCV's bilinear on 8-bit levels: 11-bit weights, whole numbers, rounded once.

    With S the rows that were mixed across and b the weights down: ``((b0 * (S0 >> 4) >> 16) + (b1 * (S1 >> 4) >> 16) + 2) >> 2``.
    """
    levels = image.astype(np.int64)
    (left, right), (one, two) = _fixed(image.shape[1], width)
    across = levels[:, left] * one[:, np.newaxis] + levels[:, right] * two[:, np.newaxis]
    (top, bottom), (one, two) = _fixed(image.shape[0], height)
    down = (across[top] >> 4) * one[:, np.newaxis, np.newaxis] >> 16
    down = down + ((across[bottom] >> 4) * two[:, np.newaxis, np.newaxis] >> 16)
    return np.asarray(np.clip((down + 2) >> 2, 0, 255), dtype=np.uint8)


def _fixed(size: int, wanted: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    position = _centres(size, wanted).astype(np.float32)
    low = np.floor(position)
    share = np.where((low < 0) | (low >= size - 1), np.float32(0), position - low)
    first = low.astype(np.int64).clip(0, size - 1)
    weights = [np.rint(part * np.float32(FIXED)).astype(np.int64) for part in (np.float32(1) - share, share)]
    return (first, np.minimum(first + 1, size - 1)), (weights[0], weights[1])


@dataclass(frozen=True)
class Kernel:
    """A way to resize that no contract step has."""

    words: str
    taps: Callable[[int, int], Taps]


KERNELS = (
    Kernel("bilinear without antialias", half_pixel),
    Kernel("bicubic without antialias, as OpenCV (a = -0.75)", opencv_cubic),
    Kernel("bicubic without antialias, as TensorFlow (a = -0.5)", keys_cubic),
    Kernel("lanczos without antialias", plain_lanczos),
    Kernel("the mean over exact areas, as OpenCV and TensorFlow have it", exact_area),
    Kernel("nearest from the corner, as OpenCV has it", corner_nearest),
    Kernel("bilinear from the corner without half-pixel centres, as TensorFlow 1", from_corner),
    Kernel("bilinear with aligned corners", corners_aligned),
)

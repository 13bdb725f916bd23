"""NaN and infinities in stored weights, found block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import h5py

    from kpipe_stages.archive.hdf5_safety import Stored

BLOCK_BYTES = 16 * 2**20
_BFLOAT16_EXPONENT, _BFLOAT16_FRACTION = 0x7F80, 0x007F


@dataclass(frozen=True)
class NonFinite:
    """Where a weight isn't a finite number."""

    nan: int
    inf: int
    first: tuple[int, ...]
    """Index of the first one found: the first in C order, except in a chunked dataset."""


def scan(dataset: h5py.Dataset, stored: Stored) -> NonFinite | None:
    """Count what isn't finite; None where everything is, or where the dtype has no such values."""
    if not stored.count or (stored.dtype != "bfloat16" and np.dtype(dataset.dtype).kind not in "fc"):
        return None
    nan, inf, first = 0, 0, None
    # a chunk is unpacked whole for any part of it, so each is visited once
    for where in dataset.iter_chunks() if dataset.chunks else blocks(stored.shape, stored.nbytes // stored.count):
        is_nan, is_inf = _classes(dataset[where], stored.dtype)
        bad = is_nan | is_inf
        if first is None and bad.any():
            local = np.unravel_index(int(np.argmax(bad)), bad.shape)
            offsets = [part.start for part in where] + [0] * (bad.ndim - len(where))
            first = tuple(int(a) + int(b) for a, b in zip(local, offsets, strict=True))
        nan, inf = nan + int(is_nan.sum()), inf + int(is_inf.sum())
    return None if first is None else NonFinite(nan, inf, first)


def blocks(shape: tuple[int, ...], itemsize: int, limit: int = BLOCK_BYTES) -> Iterator[tuple[slice, ...]]:
    """Slices that cover an array once, in C order, each of at most ``limit`` bytes (or one element)."""
    if 0 in shape:
        return
    inner = itemsize
    axis = len(shape)
    while axis and inner * shape[axis - 1] <= limit:
        axis -= 1
        inner *= shape[axis]
    if not axis:
        yield tuple(slice(0, n) for n in shape)
        return
    step = max(1, limit // inner)
    for outer in np.ndindex(*shape[: axis - 1]):
        for start in range(0, shape[axis - 1], step):
            stop = min(start + step, shape[axis - 1])
            yield (*(slice(i, i + 1) for i in outer), slice(start, stop), *(slice(0, n) for n in shape[axis:]))


def _classes(values: Any, dtype: str) -> tuple[Any, Any]:
    if dtype != "bfloat16":
        return np.isnan(values), np.isinf(values)
    bits = np.ascontiguousarray(values).view("<u2").reshape(np.shape(values))
    special = (bits & _BFLOAT16_EXPONENT) == _BFLOAT16_EXPONENT
    fraction = (bits & _BFLOAT16_FRACTION) != 0
    return special & fraction, special & ~fraction

"""Seeded synthetic inputs where there is no golden set: they show that numbers agree, and nothing about decisions on real data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe.errors import GoldenError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kpipe_stages.protocol import Signature, TensorSpec

SEED = 20260731
ROWS = 16
FREE_AXIS = 12
"""Length of a free axis; even, and neither the number of rows nor a batch size, so that a mix-up of axes shows."""

Array = np.ndarray[Any, np.dtype[Any]]


def synthetic_arrays(signature: Signature, integer_ranges: Mapping[str, int]) -> dict[str, Array]:
    """Arrays by input name, `ROWS` rows each.

    Floats are standard normal, integers within the range of the Embedding that reads them (else 0 to 9), uint8 the whole byte, booleans fair.

    Raises:
        GoldenError: an input that no number stands for (strings), or of unknown rank.
    """
    random = np.random.default_rng(SEED)
    return {spec.name: _array(spec, random, integer_ranges.get(spec.name)) for spec in signature.inputs}


def _array(spec: TensorSpec, random: np.random.Generator, ids: int | None) -> Array:
    if spec.shape is None:
        raise GoldenError(f"input '{spec.name}' has no known rank, so no synthetic input can be made for it. Give --golden.")
    if spec.dtype == "string":
        raise GoldenError(f"input '{spec.name}' takes text; random text proves nothing. Give --golden with real inputs.")
    shape = (ROWS, *(FREE_AXIS if n is None else n for n in spec.shape[1:]))
    if spec.dtype == "bool":
        return random.integers(0, 2, shape).astype(np.bool_)
    if "int" in spec.dtype:
        top = 256 if spec.dtype == "uint8" and ids is None else ids or 10
        return random.integers(0, top, shape).astype(spec.dtype)
    values: Array = random.standard_normal(shape)
    if ids is not None:  # ids that travel as floats
        values = random.integers(0, ids, shape)
    return values.astype(np.float32 if spec.dtype == "bfloat16" else spec.dtype)


def write_synthetic(path: Path, signature: Signature, integer_ranges: Mapping[str, int]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Write the arrays as an ``.npz``; return name to shape and dtype."""
    arrays = synthetic_arrays(signature, integer_ranges)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return {name: (array.shape, array.dtype.name) for name, array in arrays.items()}

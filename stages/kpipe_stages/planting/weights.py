"""Faults in a loaded model's weights. Each changes the model in place; seeds are fixed, so that a table can be made again."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.planting import ImpossibleError

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, np.dtype[Any]]

SEED = 20_260_901
MATRIX = 2
"""Axes that a kernel has at least."""


def _values(weight: Any) -> Array:
    import keras

    return np.array(keras.ops.convert_to_numpy(weight))


def _floats(model: Any) -> list[Any]:
    """The float weights that matter at inference, largest first."""
    found = [w for w in model.weights if "float" in str(w.dtype) and "seed" not in w.path]
    return sorted(found, key=lambda w: -int(np.prod(w.shape)))


def _kernels(model: Any) -> list[Any]:
    found = [w for w in _floats(model) if len(w.shape) >= MATRIX]
    if not found:
        raise ImpossibleError("no weight has two axes")
    return found


def one_weight(model: Any, *, factor: float = 1.0, add: float = 0.0) -> None:
    """The largest number of the last kernel becomes ``factor * w + add``: the last one, because every input goes through it."""
    kernel = next(w for w in reversed(model.weights) if len(w.shape) >= MATRIX and w.path in {k.path for k in _kernels(model)})
    values = _values(kernel)
    place = np.unravel_index(int(np.abs(values).argmax()), values.shape)
    values[place] = values[place] * factor + add
    kernel.assign(values)


def stale(model: Any, *, amount: float) -> None:
    """Every weight moves by ``amount`` of its own spread towards noise, as an earlier epoch's would be elsewhere."""
    rng = np.random.default_rng(SEED)
    for weight in _floats(model):
        values = _values(weight)
        moved = values + amount * float(values.std() or 1.0) * rng.standard_normal(values.shape)
        weight.assign(np.abs(moved) if weight.path.endswith("variance") else moved)


def reset_statistics(model: Any) -> None:
    """Moving means to 0, moving variances to 1."""
    found = [w for w in model.weights if w.path.endswith(("moving_mean", "moving_variance"))]
    if not found:
        raise ImpossibleError("no layer keeps moving statistics")
    for weight in found:
        weight.assign(np.full(weight.shape, 1.0 if weight.path.endswith("variance") else 0.0))


def swap_alike(model: Any) -> None:
    """Two different weights of equal shape change places: matrices where there are two, else vectors."""
    by_shape: dict[tuple[int, ...], list[Any]] = {}
    for weight in _floats(model):
        by_shape.setdefault(tuple(weight.shape), []).append(weight)
    for group in sorted(by_shape.values(), key=lambda g: -len(g[0].shape)):
        for left, right in itertools.pairwise(group):
            a, b = _values(left), _values(right)
            if not np.array_equal(a, b):
                left.assign(b)
                right.assign(a)
                return
    raise ImpossibleError("no two weights have the same shape and other values")


def swap_columns(model: Any) -> None:
    """The first two output columns of the last kernel change places."""
    kernel = [w for w in model.weights if len(w.shape) >= MATRIX][-1]
    values = _values(kernel)
    if values.shape[-1] < MATRIX:
        raise ImpossibleError("the last kernel has one column")
    values[..., [0, 1]] = values[..., [1, 0]]
    kernel.assign(values)


def swap_rows(model: Any) -> None:
    """The first two input rows of the last kernel change places."""
    kernel = [w for w in model.weights if len(w.shape) >= MATRIX][-1]
    values = _values(kernel)
    flat = values.reshape(-1, values.shape[-1])
    flat[[0, 1]] = flat[[1, 0]]
    kernel.assign(flat.reshape(values.shape))


def nan(model: Any) -> None:
    """One number of the largest kernel is NaN."""
    kernel = _kernels(model)[0]
    values = _values(kernel)
    values.flat[0] = np.nan
    kernel.assign(values)


def flush_small(model: Any, *, below: float) -> None:
    """Numbers of the kernels below ``below`` of the largest become 0, as a sparsifier leaves them."""
    for kernel in _kernels(model):
        values = _values(kernel)
        values[np.abs(values) < below * float(np.abs(values).max())] = 0.0
        kernel.assign(values)


def denormal(model: Any) -> None:
    """The zeros that a kernel could hold become denormals: the smallest hundredth of the largest kernel is 1e-40."""
    kernel = _kernels(model)[0]
    values = _values(kernel)
    count = max(1, values.size // 100)
    values.flat[np.abs(values).argsort(axis=None)[:count]] = 1e-40
    kernel.assign(values)


def rounded(model: Any, *, to: str) -> None:
    """Every weight as ``float16``, ``bfloat16`` or ``int8`` would hold it (int8: symmetric, one scale a weight)."""
    for weight in _floats(model):
        weight.assign(_ROUNDINGS[to](_values(weight).astype(np.float32)))


def _bfloat16(values: Array) -> Array:
    bits = values.astype(np.float32).view(np.uint32)
    even: Array = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32)
    return even.view(np.float32)


def _int8(values: Array) -> Array:
    scale = float(np.abs(values).max()) / 127 or 1.0
    rounded_: Array = np.round(values / scale) * scale
    return rounded_


_ROUNDINGS: dict[str, Callable[[Array], Array]] = {"float16": lambda v: v.astype(np.float16).astype(np.float32), "bfloat16": _bfloat16, "int8": _int8}


def zero_bias(model: Any) -> None:
    """The last bias that isn't all zero is lost."""
    for weight in reversed(model.weights):
        if weight.path.endswith("bias") and np.any(_values(weight)):
            weight.assign(np.zeros(weight.shape))
            return
    raise ImpossibleError("no bias is other than zero")


def zero_channel(model: Any) -> None:
    """The strongest output channel of the first kernel is lost."""
    kernel = next(w for w in model.weights if len(w.shape) >= MATRIX)
    values = _values(kernel)
    strongest = int(np.abs(values).reshape(-1, values.shape[-1]).sum(axis=0).argmax())
    values[..., strongest] = 0.0
    kernel.assign(values)


def transpose(model: Any) -> None:
    """A kernel with two equal axes is read in the other order."""
    for kernel in _kernels(model):
        if kernel.shape[0] == kernel.shape[1]:
            kernel.assign(np.swapaxes(_values(kernel), 0, 1))
            return
    raise ImpossibleError("no kernel has two equal leading axes")


def scale_all(model: Any, *, factor: float) -> None:
    """The last kernel and its bias are multiplied: the order of classes stays, their distance doesn't."""
    layer = next(layer for layer in reversed(model.layers) if layer.weights)
    for weight in layer.weights:
        weight.assign(_values(weight) * factor)


EDITS: dict[str, Callable[..., None]] = {
    "one_weight": one_weight,
    "stale": stale,
    "reset_statistics": reset_statistics,
    "swap_alike": swap_alike,
    "swap_columns": swap_columns,
    "swap_rows": swap_rows,
    "nan": nan,
    "flush_small": flush_small,
    "denormal": denormal,
    "rounded": rounded,
    "zero_bias": zero_bias,
    "zero_channel": zero_channel,
    "transpose": transpose,
    "scale_all": scale_all,
}

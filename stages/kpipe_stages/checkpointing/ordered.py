"""Training data in an order that depends on the seed and the epoch alone, so that it can be entered anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, np.dtype[Any]]

KINDS = "biuf"
"""Kinds of numpy dtypes whose bytes are the data."""


class NotArraysError(Exception):
    """The data is nothing whose order and bytes can be known: a generator, a dataset, objects."""


def as_arrays(data: Any, floatx: str) -> Any:
    """``data`` with every leaf a numpy array; floats in ``floatx``, as `Model.fit` takes them. None stays: targets may be missing.

    Args:
        data: an array, or lists, tuples and dicts of arrays.
        floatx: Keras' default float dtype.

    Raises:
        NotArraysError: a leaf is no array of numbers.
    """
    if data is None:
        return None
    if isinstance(data, dict):
        return {name: as_arrays(part, floatx) for name, part in data.items()}
    if isinstance(data, list | tuple) and not (data and all(isinstance(value, int | float | bool) for value in data)):
        return type(data)([as_arrays(part, floatx) for part in data])
    if not hasattr(data, "__array__") and not isinstance(data, list | tuple):
        raise NotArraysError(f"a {type(data).__module__}.{type(data).__qualname__}, whose order isn't known")
    array = np.asarray(data)
    if array.dtype.kind not in KINDS or array.ndim == 0:
        raise NotArraysError(f"an array of dtype {array.dtype} and {array.ndim} axes")
    return array.astype(floatx) if array.dtype.kind == "f" and array.dtype.name != floatx else array


def leaves(data: Any, name: str) -> dict[str, Array]:
    """Every array of ``data`` by a name that says where it is: ``x``, ``x[image]``, ``y[0]``."""
    if isinstance(data, dict):
        return {key: array for part, value in data.items() for key, array in leaves(value, f"{name}[{part}]").items()}
    if isinstance(data, list | tuple):
        return {key: array for part, value in enumerate(data) for key, array in leaves(value, f"{name}[{part}]").items()}
    return {} if data is None else {name: data}


def _mapped(data: Any, function: Callable[[Array], Array]) -> Any:
    if data is None:
        return None
    if isinstance(data, dict):
        return {name: _mapped(part, function) for name, part in data.items()}
    if isinstance(data, list | tuple):
        return type(data)([_mapped(part, function) for part in data])
    return function(data)


def epoch_order(seed: int, epoch: int, rows: int) -> Array:
    """The order of an epoch's rows: int64 ``(rows,)``."""
    return np.random.default_rng((seed, epoch)).permutation(rows)


def ordered(x: Any, y: Any, *, rows: int, batch_size: int, seed: int) -> Any:
    """A `keras.utils.PyDataset` of the batches of an epoch, in `epoch_order`.

    ``enter(epoch, batch, batches)`` says which epoch, from which batch on and how many.
    """
    import keras

    class Ordered(keras.utils.PyDataset):  # type: ignore[misc]  # Keras ships no types
        def __init__(self) -> None:
            super().__init__(workers=0, use_multiprocessing=False)
            self.all = -(-rows // batch_size)
            self.enter(0, 0)

        def enter(self, epoch: int, batch: int, batches: int | None = None) -> None:
            self._order = epoch_order(seed, epoch, rows)
            self._first = batch
            self._batches = self.all - batch if batches is None else batches

        def __len__(self) -> int:
            return self._batches

        def __getitem__(self, index: int) -> tuple[Any, ...]:
            start = (self._first + index) * batch_size
            chosen = self._order[start : start + batch_size]
            inputs, targets = (_mapped(part, lambda array: array[chosen]) for part in (x, y))
            return (inputs,) if targets is None else (inputs, targets)

    return Ordered()

"""The whole state of a training in memory: every variable, every random generator. Keras, whatever its backend."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.checkpointing.record import StoredArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = np.ndarray[Any, np.dtype[Any]]


class StateError(Exception):
    """A state doesn't fit the model."""


@dataclass(frozen=True)
class State:
    """A copy, apart from the model."""

    rows: tuple[StoredArray, ...]
    arrays: tuple[Array, ...]
    random: dict[str, Any]
    """Plain JSON values."""

    def sha256(self) -> str:
        """Of everything in it."""
        total = hashlib.sha256(repr([(row.group, row.shape, row.dtype) for row in self.rows]).encode())
        for array in self.arrays:
            total.update(array.tobytes())
        total.update(repr(self.random).encode())
        return total.hexdigest()


def variables(model: Any) -> list[tuple[str, Any]]:
    """Every variable that a training changes, with its group: weights and seed generators, optimizers, metrics."""
    import keras

    found = [("model", v) for v in model.variables]
    found += [("optimizer", v) for v in model.optimizer.variables]
    others = {name: value for name, value in vars(model).items() if isinstance(value, keras.optimizers.Optimizer) and value is not model.optimizer}
    found += [(f"optimizer.{name}", v) for name, value in sorted(others.items()) if name != "_optimizer" for v in value.variables]
    found += [("metrics", v) for v in model.metrics_variables]
    found += [("seeds", v) for v in _global_seed()]
    unique: dict[int, tuple[str, Any]] = {}
    for group, variable in found:
        unique.setdefault(id(variable), (group, variable))
    return list(unique.values())


def _global_seed() -> list[Any]:
    """The state of the generator that Keras uses where a layer has none of its own; nothing before its first use."""
    from keras.src.backend.common.global_state import get_global_attribute

    generator = get_global_attribute("global_seed_generator")
    return [] if generator is None else [generator.state]


def capture(model: Any) -> State:
    """Copy the state. On JAX the model's variables must have been synced (`keras.callbacks.Callback.model` does)."""
    rows, arrays = [], []
    for group, variable in variables(model):
        array = np.array(variable.numpy() if hasattr(variable, "numpy") else variable, copy=True)
        rows.append(StoredArray(group, variable.path, tuple(array.shape), array.dtype.name))
        arrays.append(array)
    return State(tuple(rows), tuple(arrays), random_state())


def restore(model: Any, state: State) -> None:
    """Put a state back.

    Raises:
        StateError: the model has other variables; nothing was changed.
    """
    live = variables(model)
    if problem := mismatch([(group, v.path, tuple(v.shape)) for group, v in live], state.rows):
        raise StateError(problem)
    for (_, variable), array in zip(live, state.arrays, strict=True):
        variable.assign(array)
    restore_random(state.random)


def mismatch(live: Sequence[tuple[str, str, tuple[int, ...]]], rows: Sequence[StoredArray]) -> str:
    """Where a model's variables differ from stored ones by group, path or shape; empty where they don't."""
    for (group, path, shape), row in zip(live, rows, strict=False):  # the lengths are compared below
        if (group, path, shape) != (row.group, row.name, row.shape):
            return f"the model has {path} {shape} ({group}) where the checkpoint has {row.name} {row.shape} ({row.group})"
    return "" if len(live) == len(rows) else f"the model has {len(live)} variables, the checkpoint {len(rows)}"


def random_state() -> dict[str, Any]:
    """Python's and numpy's global generators, as JSON values."""
    version, internal, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002 - it is this legacy generator that recipes and Keras use
    return {
        "python": [version, list(internal), gauss],
        "numpy": [str(kind), [int(key) for key in keys], int(position), int(has_gauss), float(cached)],
    }


def restore_random(state: dict[str, Any]) -> None:
    """Put both generators back."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.array(keys, np.uint32), position, has_gauss, cached))  # noqa: NPY002 - as above


def difference(first: State, second: State) -> str:
    """The first thing in which two states differ, with by how much; empty where they are the same bits."""
    if len(first.rows) != len(second.rows):
        return f"{len(first.rows)} variables became {len(second.rows)}"
    for row, one, other in zip(first.rows, first.arrays, second.arrays, strict=True):
        if one.tobytes() != other.tobytes():
            gap = np.max(np.abs(one.astype(np.float64) - other.astype(np.float64))) if one.size and one.dtype.kind != "S" else float("nan")
            return f"{row.name} by up to {gap:.3g}"
    return "" if first.random == second.random else "Python's or numpy's random generator"

"""What every case is made of: a model, its golden arrays and, where there is a right answer, the outputs and decisions that a gate must find."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Case:
    """One model with golden arrays."""

    model: Any
    inputs: dict[str, Array]
    """By model input name, a row a golden input; written in this order."""
    rule: str = ""
    """``argmax`` or ``threshold`` on the first output; empty where nothing is decided."""
    known: bool = True
    """Whether the model's own answer under ``training=False`` is the right one."""


Builder = Callable[[np.random.Generator], Case]


def seeded(name: str) -> np.random.Generator:
    """Seed Keras and numpy by the case's name, so that a case doesn't depend on which others are built."""
    import keras

    seed = zlib.crc32(name.encode())
    keras.utils.set_random_seed(seed)
    return np.random.default_rng(seed)


def shake(model: Any, rng: np.random.Generator, spread: float) -> None:
    """Give every float weight a value that shows: fresh layers have zero biases and unit statistics, which hide faults."""
    for weight in model.weights:
        if "float" in str(weight.dtype) and "seed" not in weight.path:
            values = rng.normal(scale=spread, size=weight.shape)
            weight.assign(np.abs(values) + 0.5 if weight.path.endswith("variance") else values)


def centre(model: Any, feed: Any) -> None:
    """Move the last layer's bias so that logits average zero over the golden inputs: several classes are then decided."""
    import keras

    head = model.layers[-1]
    features = keras.Model(model.inputs, head.input)(feed if isinstance(feed, list) else [feed], training=False)
    logits = np.asarray(features, dtype=np.float32) @ np.asarray(head.kernel, dtype=np.float32)
    head.bias.assign(-logits.reshape(-1, logits.shape[-1]).mean(axis=0))


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    """Golden values."""
    return rng.normal(scale=scale, size=shape).astype(np.float32)


def decide(scores: Array, rule: str) -> Array:
    """The decisions that the rule makes of the first output."""
    return scores.argmax(axis=-1) if rule == "argmax" else (scores.ravel() >= 0.5).astype(np.int64)


def answers(case: Case) -> list[Array]:
    """The model's own answer, called as its author would call it."""
    import keras

    feed: Any = case.inputs if isinstance(case.model.input, dict) else list(case.inputs.values())
    feed = feed[0] if isinstance(feed, list) and len(feed) == 1 else feed
    flat = keras.tree.flatten(case.model(feed, training=False))
    return [np.asarray(keras.ops.convert_to_numpy(value)) for value in flat]


def write(case: Case, folder: Path) -> None:
    """Write ``model.keras``, ``inputs.npz`` and, where the right answer is known, ``expected.npz``."""
    folder.mkdir(parents=True)
    case.model.save(folder / "model.keras")
    np.savez(folder / "inputs.npz", **case.inputs)
    if case.known:
        outputs = answers(case)
        decision = {"decision": decide(outputs[0], case.rule)} if case.rule else {}
        np.savez(folder / "expected.npz", **{f"out{i}": value for i, value in enumerate(outputs)}, **decision)

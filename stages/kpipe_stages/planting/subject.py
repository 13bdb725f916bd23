"""A model of the selftest's own, with its golden inputs: weights are drawn and then centred, so that all decisions occur."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

ROWS = 24
"""Golden inputs of each model."""


@dataclass(frozen=True)
class Subject:
    """A model and its golden inputs, raw."""

    model: Any
    raw: dict[str, list[Array]]
    """Input name to rows as the product receives them: uint8 images, or arrays."""
    tensors: dict[str, Array]
    """What the contract's preprocessing makes of them, roughly: what the head is centred on."""
    suffix: str


def shake(model: Any, rng: np.random.Generator) -> None:
    """Weights by fan-in, and biases and statistics that show: fresh ones are zeros and ones, which hide faults."""
    for weight in model.weights:
        if "float" not in str(weight.dtype) or "seed" in weight.path:
            continue
        fan = int(np.prod(weight.shape[:-1])) if len(weight.shape) > 1 else 1
        values = rng.normal(scale=1.6 / np.sqrt(fan) if fan > 1 else 0.2, size=weight.shape)
        weight.assign(np.abs(values) + 0.6 if weight.path.endswith(("variance", "gamma")) else values)


def centre(model: Any, feed: dict[str, Array], layer: str) -> None:
    """Move and widen a head so that its numbers have mean 0 and spread 2 over the golden inputs."""
    import keras

    head = model.get_layer(layer)
    before = np.asarray(keras.Model(model.inputs, head.input)(list(feed.values()) if len(feed) > 1 else next(iter(feed.values())), training=False))
    values = before @ np.asarray(head.kernel)
    gain = 2.0 / float(values.std(axis=0).mean())
    head.kernel.assign(np.asarray(head.kernel) * gain)
    head.bias.assign(-values.mean(axis=0) * gain)

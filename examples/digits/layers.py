"""The digits model's own layer: the contract names this file, and nothing else of ours is needed to load the model."""

from __future__ import annotations

from typing import Any

import keras


@keras.saving.register_keras_serializable(package="kpipe_digits")
class RMSNorm(keras.layers.Layer):
    """Root-mean-square normalisation over the last axis: ``y = x / sqrt(mean(x**2) + epsilon) * scale``.

    Written in ``keras.ops``, so that every backend runs the same definition (Zhang and Sennrich 2019, eq. 4).
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Make the scale, one a channel."""
        self.scale = self.add_weight(name="scale", shape=(input_shape[-1],), initializer="ones")

    def call(self, inputs: Any) -> Any:
        """Normalise ``(..., channels)``."""
        power = keras.ops.mean(keras.ops.square(inputs), axis=-1, keepdims=True)
        return inputs * keras.ops.rsqrt(power + self.epsilon) * self.scale

    def get_config(self) -> dict[str, Any]:
        """What makes the layer anew."""
        return {**super().get_config(), "epsilon": self.epsilon}

"""A small digit reader, trained on files: every training digit is rendered as a product would receive it and goes through the contract's preprocessing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from layers import RMSNorm
from render import KINDS, SIZES, Rendering, render
from sklearn.datasets import load_digits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe_stages.preprocess import Preprocessor

Array = np.ndarray[Any, np.dtype[Any]]

EPOCHS = 12
BATCH_SIZE = 64

HELD_OUT_EVERY = 5
RENDERINGS_PER_DIGIT = 3
RENDERING_SEED = 20_260_801
"""Which digit is stored in which way is fixed: the training seed changes weights and order, never the data."""


def is_held_out(index: int) -> bool:
    """Whether a digit of scikit-learn's set is kept from training: every fifth, by position."""
    return index % HELD_OUT_EVERY == HELD_OUT_EVERY - 1


def build_model() -> keras.Model:
    """Two convolutions, a dense layer, ten classes; exact (not approximate) GELU."""
    image = keras.Input((16, 16, 1), name="image")
    x = keras.layers.Conv2D(16, 3, padding="same", use_bias=False, name="conv_1")(image)
    x = keras.layers.BatchNormalization(name="norm_1")(x)
    x = keras.layers.Activation("gelu", name="gelu_1")(x)
    x = keras.layers.MaxPooling2D(2, name="pool_1")(x)
    x = keras.layers.Conv2D(32, 3, padding="same", name="conv_2")(x)
    x = RMSNorm(name="norm_2")(x)
    x = keras.layers.Activation("gelu", name="gelu_2")(x)
    x = keras.layers.MaxPooling2D(2, name="pool_2")(x)
    x = keras.layers.Flatten(name="flat")(x)
    x = keras.layers.Dropout(0.3, name="drop")(x)
    x = keras.layers.Dense(64, activation="gelu", name="dense")(x)
    model = keras.Model(image, keras.layers.Dense(10, activation="softmax", name="digit")(x), name="digits")
    schedule = keras.optimizers.schedules.CosineDecay(3e-3, EPOCHS * steps_per_epoch())
    model.compile(keras.optimizers.Adam(schedule), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def steps_per_epoch() -> int:
    """Batches an epoch."""
    digits = sum(not is_held_out(i) for i in range(len(load_digits().target)))
    return -(-digits * RENDERINGS_PER_DIGIT // BATCH_SIZE)


def load_data(preprocess: Mapping[str, Preprocessor]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Training and held-out digits, rendered to files in memory and read back by the contract's steps.

    Returns:
        ``((x, y), (x_val, y_val))``: x float32 ``(n, 16, 16, 1)`` from 0 (paper) to 1 (ink), y int64 ``(n,)``.
    """
    digits = load_digits()
    held_out = np.array([is_held_out(i) for i in range(len(digits.target))])
    rng = np.random.default_rng(RENDERING_SEED)
    parts = []
    for chosen, times in ((~held_out, RENDERINGS_PER_DIGIT), (held_out, 1)):
        indices = np.repeat(np.flatnonzero(chosen), times)
        files = [render(digits.images[i], Rendering(str(rng.choice(KINDS)), int(rng.choice(SIZES)))) for i in indices]
        parts.append((np.stack([preprocess["image"].from_bytes(file) for file in files]), digits.target[indices].astype(np.int64)))
    return parts[0], parts[1]

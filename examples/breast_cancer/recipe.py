"""Benign or malignant: a small network on the 30 measurements of scikit-learn's breast cancer data, each row read by the contract's own columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from sklearn.datasets import load_breast_cancer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe_stages.preprocess import Preprocessor

Array = np.ndarray[Any, np.dtype[Any]]

EPOCHS = 30
BATCH_SIZE = 32
HELD_OUT_EVERY = 4
SMOOTHING = 0.05
"""Keeps scores away from 0 and 1, where nobody is that sure."""
MALIGNANT = 0
"""The class's number in scikit-learn's set."""


def is_held_out(index: int) -> bool:
    """Whether a row of scikit-learn's set is kept from training: every fourth, by position."""
    return index % HELD_OUT_EVERY == HELD_OUT_EVERY - 1


def build_model() -> keras.Model:
    """Two dense layers; one score, the probability that the tumour is malignant."""
    features = keras.Input((30,), name="features")
    x = keras.layers.Dense(16, activation="relu", name="hidden_1")(features)
    x = keras.layers.Dense(8, activation="relu", name="hidden_2")(x)
    model = keras.Model(features, keras.layers.Dense(1, activation="sigmoid", name="malignant")(x), name="breast_cancer")
    model.compile(keras.optimizers.Adam(3e-3), keras.losses.BinaryCrossentropy(label_smoothing=SMOOTHING), metrics=["accuracy"])
    return model


def rows() -> list[dict[str, float]]:
    """Every row of scikit-learn's set, by column name."""
    data = load_breast_cancer()
    return [dict(zip(map(str, data.feature_names), map(float, values), strict=True)) for values in data.data]


def load_data(preprocess: Mapping[str, Preprocessor]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Training and held-out rows, standardised by the contract's columns.

    Returns:
        ``((x, y), (x_val, y_val))``: x float32 ``(n, 30)``, y float32 ``(n, 1)``, 1 for malignant.
    """
    x = np.stack([preprocess["features"].from_row(row) for row in rows()])
    y = (load_breast_cancer().target == MALIGNANT).astype(np.float32)[:, np.newaxis]
    held_out = np.array([is_held_out(i) for i in range(len(x))])
    return (x[~held_out], y[~held_out]), (x[held_out], y[held_out])

"""Untrained models of the usual sizes, seeded by whoever calls: what `bench/applications.py` takes through the gate."""

from __future__ import annotations

from typing import Any

import keras


def mobilenet_v2() -> Any:
    return keras.applications.MobileNetV2(weights=None)


def efficientnet_b0() -> Any:
    return keras.applications.EfficientNetB0(weights=None)


def resnet50() -> Any:
    return keras.applications.ResNet50(weights=None)


def transformer() -> Any:
    """Two blocks of attention over token ids, 32 long."""
    ids = keras.Input((32,), dtype="int32", name="ids")
    x = keras.layers.Embedding(1000, 64)(ids)
    for _ in range(2):
        y = keras.layers.LayerNormalization()(x)
        x = keras.layers.Add()([x, keras.layers.MultiHeadAttention(4, 16)(y, y)])
        y = keras.layers.LayerNormalization()(x)
        x = keras.layers.Add()([x, keras.layers.Dense(64)(keras.layers.Dense(128, activation="gelu")(y))])
    return keras.Model(ids, keras.layers.Dense(5, activation="softmax")(keras.layers.GlobalAveragePooling1D()(x)))


def bidirectional_lstm() -> Any:
    """Two LSTM layers, both ways, over 40 steps."""
    steps = keras.Input((40, 16), name="steps")
    x = keras.layers.Bidirectional(keras.layers.LSTM(32, return_sequences=True))(steps)
    x = keras.layers.Bidirectional(keras.layers.LSTM(32))(x)
    return keras.Model(steps, keras.layers.Dense(5, activation="softmax")(x))

"""Models that the selftest only validates, healthy: other layers, other decision rules. All take one array a golden input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.planting.subject import ROWS, Subject, shake

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe_stages.planting.subject import Array


def waves(rng: np.random.Generator) -> Subject:
    """Two channels over time to any of three labels: causal, dilated convolutions."""
    import keras
    from keras import layers

    series = keras.Input((48, 2), name="series")
    x = layers.Conv1D(12, 3, padding="causal", activation="relu", name="conv")(series)
    x = layers.Conv1D(12, 3, padding="causal", dilation_rate=2, activation="elu", name="conv_2")(layers.BatchNormalization(name="norm")(x))
    x = layers.Dropout(0.3, name="drop")(layers.GlobalMaxPooling1D(name="peak")(x))
    return _subject(
        keras.Model(series, layers.Dense(3, activation="sigmoid", name="labels")(x), name="waves"), "series", rng.normal(size=(ROWS, 48, 2)), rng
    )


def gait(rng: np.random.Generator) -> Subject:
    """A sequence read in both directions to yes or no: bidirectional LSTM."""
    import keras
    from keras import layers

    steps = keras.Input((15, 4), name="steps")
    x = layers.Bidirectional(layers.LSTM(12, name="lstm"), name="both")(steps)
    return _subject(
        keras.Model(steps, layers.Dense(1, activation="sigmoid", name="fall")(x), name="gait"), "steps", rng.normal(size=(ROWS, 15, 4)), rng
    )


def gates(rng: np.random.Generator) -> Subject:
    """Two GRUs, one on the other, to one of four classes."""
    import keras
    from keras import layers

    steps = keras.Input((12, 6), name="steps")
    x = layers.GRU(16, return_sequences=True, name="gru")(steps)
    x = layers.GRU(12, name="gru_2")(x)
    return _subject(
        keras.Model(steps, layers.Dense(4, activation="softmax", name="phase")(x), name="gates"), "steps", rng.normal(size=(ROWS, 12, 6)), rng
    )


def ladder(rng: np.random.Generator) -> Subject:
    """Twelve residual layers to the three best of seven: rounding has a long way to grow."""
    import keras
    from keras import layers

    x = vector = keras.Input((32,), name="vector")
    for rung in range(12):
        x = layers.Add(name=f"add_{rung}")([x, layers.Dense(32, activation="tanh", name=f"rung_{rung}")(x)])
    model = keras.Model(vector, layers.Dense(7, activation="softmax", name="best")(x), name="ladder")
    return _subject(model, "vector", rng.normal(size=(ROWS, 32)), rng)


def ledger(rng: np.random.Generator) -> Subject:
    """Columns of very different sizes to an amount: standardised inside the model."""
    import keras
    from keras import layers

    sizes = 10.0 ** rng.uniform(-3, 4, 20)
    columns = keras.Input((20,), name="columns")
    x = layers.Normalization(mean=3 * sizes, variance=sizes**2, name="standard")(columns)
    skipped = layers.Dense(8, name="skipped")(x)
    x = layers.Dense(8, activation="selu", name="dense_2")(layers.Dense(24, activation="selu", name="dense")(x))
    amount = layers.Dense(1, name="amount")(layers.Concatenate(name="all")([x, skipped]))
    model = keras.Model(columns, amount, name="ledger")
    return _subject(model, "columns", sizes * rng.normal(3.0, 1.0, (ROWS, 20)), rng)


def patches(rng: np.random.Generator) -> Subject:
    """Two-channel patches to the order of six items: depthwise and separable convolutions, group normalisation."""
    import keras
    from keras import layers

    patch = keras.Input((16, 16, 2), name="patch")
    x = layers.Conv2D(8, 3, strides=2, padding="same", activation="elu", name="conv")(patch)
    x = layers.GroupNormalization(2, name="norm")(x)
    x = layers.DepthwiseConv2D(3, padding="same", activation="relu6", name="depth")(x)
    x = layers.SeparableConv2D(12, 3, activation="mish", name="separable")(x)
    x = layers.Flatten(name="flat")(layers.AveragePooling2D(2, name="pool")(x))
    model = keras.Model(patch, layers.Dense(6, name="items")(x), name="patches")
    return _subject(model, "patch", rng.normal(size=(ROWS, 16, 16, 2)), rng)


def outline(rng: np.random.Generator) -> Subject:
    """A picture made small and large again, to a grade: strided, transposed and upsampled."""
    import keras
    from keras import layers

    plane = keras.Input((16, 16, 1), name="plane")
    x = layers.Conv2D(6, 3, strides=2, padding="same", activation="swish", name="down")(plane)
    x = layers.Conv2DTranspose(6, 3, strides=2, padding="same", activation="relu", name="up")(x)
    x = layers.UpSampling2D(2, interpolation="nearest", name="larger")(layers.MaxPooling2D(2, name="pool")(x))
    x = layers.Multiply(name="gated")([x, layers.Conv2D(6, 1, activation="sigmoid", name="gate")(plane)])
    x = layers.GlobalAveragePooling2D(name="mean")(x)
    model = keras.Model(plane, layers.Dense(1, activation="sigmoid", name="grade")(x), name="outline")
    return _subject(model, "plane", rng.uniform(size=(ROWS, 16, 16, 1)), rng)


def _subject(model: Any, name: str, values: Array, rng: np.random.Generator) -> Subject:
    """The model with weights that show, and its golden inputs as float32 arrays, shape (`ROWS`, ...)."""
    shake(model, rng)
    rows = values.astype(np.float32)
    return Subject(model, {name: list(rows)}, {name: rows}, "npy")


BUILDERS: dict[str, Callable[[np.random.Generator], Subject]] = {
    builder.__name__: builder for builder in (waves, gait, gates, ladder, ledger, patches, outline)
}
HEADS = {
    "waves": ("labels",),
    "gait": ("fall",),
    "gates": ("phase",),
    "ladder": ("best",),
    "ledger": ("amount",),
    "patches": ("items",),
    "outline": ("grade",),
}

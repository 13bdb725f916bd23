"""Cases whose question is the numbers: gates, masks, resampling, precision, NaN, ties, noise."""

from __future__ import annotations

import numpy as np

from .kit import Builder, Case, centre, normal, shake


def control_cnn(rng: np.random.Generator) -> Case:
    """An ordinary image classifier: passes everywhere."""
    from keras import Input, Model, layers

    image = Input((16, 16, 3), name="image")
    x = layers.Conv2D(8, 3, padding="same", activation="relu")(image)
    x = layers.MaxPooling2D()(layers.BatchNormalization()(x))
    model = Model(image, layers.Dense(4, activation="softmax", name="probs")(layers.Flatten()(x)))
    shake(model, rng, 0.2)
    golden = normal(rng, 5, 16, 16, 3)
    centre(model, golden)
    return Case(model, {"image": golden}, "argmax")


def gru_reset_before(rng: np.random.Generator) -> Case:
    """Both conventions of the GRU's reset gate, one of them backwards."""
    from keras import Input, Model, layers

    steps = Input((7, 3), name="steps")
    x = layers.GRU(6, reset_after=False, return_sequences=True)(steps)
    x = layers.GRU(5, reset_after=True, go_backwards=True)(x)
    model = Model(steps, layers.Dense(3, activation="softmax")(x))
    shake(model, rng, 0.8)
    return Case(model, {"steps": normal(rng, 5, 7, 3, scale=2.0)}, "argmax")


def lstm_mask_zero(rng: np.random.Generator) -> Case:
    """Tokens padded on the right, on the left and altogether: a converter that drops the mask changes every padded row."""
    from keras import Input, Model, layers

    tokens = Input((8,), dtype="int32", name="tokens")
    x = layers.LSTM(7)(layers.Embedding(20, 6, mask_zero=True)(tokens))
    model = Model(tokens, layers.Dense(3, activation="softmax")(x))
    shake(model, rng, 0.8)
    golden = rng.integers(1, 20, (6, 8)).astype(np.int32)
    for row, padding in enumerate((slice(8, 8), slice(3, 8), slice(6, 8), slice(1, 8), slice(0, 4), slice(0, 8))):
        golden[row, padding] = 0
    return Case(model, {"tokens": golden}, "argmax")


def upsample_bilinear(rng: np.random.Generator) -> Case:
    """Resampling up and down, by two methods: where half a pixel goes is a convention."""
    from keras import Input, Model, layers

    image = Input((5, 7, 2), name="image")
    larger = layers.Resizing(9, 11, interpolation="bilinear", name="larger")(layers.UpSampling2D(2, interpolation="bilinear")(image))
    tripled = layers.UpSampling2D(3, interpolation="nearest", name="tripled")(image)
    smaller = layers.Resizing(4, 3, interpolation="nearest", name="smaller")(image)
    return Case(Model(image, [larger, tripled, smaller]), {"image": normal(rng, 3, 5, 7, 2)})


def mixed_float16(rng: np.random.Generator) -> Case:
    """Half precision inside, float32 at the end."""
    import keras
    from keras import Input, Model, layers

    keras.config.set_dtype_policy("mixed_float16")
    image = Input((16, 16, 3), name="image")
    x = layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same", activation="relu")(image))
    x = layers.Flatten()(layers.MaxPooling2D()(x))
    model = Model(image, layers.Dense(4, activation="softmax", dtype="float32")(x))
    shake(model, rng, 0.1)
    golden = normal(rng, 6, 16, 16, 3)
    centre(model, golden)
    return Case(model, {"image": golden}, "argmax")


def nan_pooling_relu(rng: np.random.Generator) -> Case:
    """NaN and infinities through layers that every runtime treats in its own way."""
    from keras import Input, Model, layers, ops

    image = Input((4, 4, 1), name="image")
    pooled = [layers.AveragePooling2D(2)(image), layers.MaxPooling2D(2)(image)]
    clipped = [layers.ReLU()(image), layers.ReLU(6.0)(image), ops.clip(image, -1, 1), ops.nan_to_num(image)]
    golden = normal(rng, 3, 4, 4, 1)
    golden[0, 0, 0, 0] = golden[2, 0, 3, 0] = np.nan
    golden[1, 2, 2, 0], golden[2, 3, 1, 0] = np.inf, -np.inf
    return Case(Model(image, [*pooled, *clipped, layers.Softmax(axis=1)(image)]), {"image": golden}, known=False)


def openvino_bf16_default(rng: np.random.Generator) -> Case:
    """Golden inputs just beside the threshold, wider than any float32 runtime's drift and narrower than bfloat16's."""
    from keras import Input, Model, layers

    features = x = Input((512,), name="features")
    for _ in range(3):
        x = layers.Dense(512, activation="relu")(x)
    model = Model(features, layers.Dense(1, activation="sigmoid", name="score")(x))
    shake(model, rng, 0.05)
    pool = normal(rng, 6000, 512)
    centre(model, pool)
    distance = np.abs(np.asarray(model(pool, training=False))[:, 0] - 0.5)
    usable = np.flatnonzero(distance > 2e-5)
    nearest = usable[np.argsort(distance[usable])[:48]]
    return Case(model, {"features": pool[nearest]}, "threshold")


def augmentation_layers(rng: np.random.Generator) -> Case:
    """Layers that only training has."""
    from keras import Input, Model, layers

    image = x = Input((16, 16, 3), name="image")
    augment = (layers.RandomFlip("horizontal"), layers.RandomRotation(0.2), layers.RandomZoom(0.2), layers.RandomContrast(0.2))
    for layer in (*augment, layers.GaussianNoise(0.5), layers.Conv2D(4, 3, activation="relu"), layers.Dropout(0.5), layers.Flatten()):
        x = layer(x)
    model = Model(image, layers.Dense(3, activation="softmax")(x))
    shake(model, rng, 0.1)
    golden = normal(rng, 4, 16, 16, 3)
    centre(model, golden)
    return Case(model, {"image": golden}, "argmax")


def ties(rng: np.random.Generator) -> Case:
    """Equal scores, equal up to the last bit, and zeros of both signs: which index wins is the runtime's choice."""
    from keras import Input, Model, layers, ops

    del rng
    x = Input((6,), name="x")
    indices = [ops.argmax(x, axis=-1), ops.top_k(x, 3)[1], ops.argmin(x, axis=-1), ops.argsort(x, axis=-1)]
    golden = np.array([[1, 3, 3, 3, 0, 0], [2] * 6, [0, -0.0, 0, 5, 5, 1], [7, np.nextafter(np.float32(7), np.float32(8)), 7, 1, 1, 1]], np.float32)
    return Case(Model(x, [layers.Activation("softmax", name="probs")(x), *indices]), {"x": golden}, "argmax")


def mc_dropout(rng: np.random.Generator) -> Case:
    """A dropout that is never off: asked twice, the model answers twice."""
    from keras import Input, Model, layers

    x = Input((10,), name="x")
    hidden = layers.Dropout(0.5, name="always_on")(layers.Dense(64, activation="relu")(x), training=True)
    model = Model(x, layers.Dense(1, activation="sigmoid")(hidden))
    shake(model, rng, 0.3)
    return Case(model, {"x": normal(rng, 12, 10)}, "threshold", known=False)


NUMERICS: dict[str, Builder] = {
    "00_control_cnn": control_cnn,
    "01_gru_reset_before": gru_reset_before,
    "02_lstm_mask_zero": lstm_mask_zero,
    "05_upsample_bilinear": upsample_bilinear,
    "10_mixed_float16": mixed_float16,
    "16_nan_pooling_relu": nan_pooling_relu,
    "24_openvino_bf16_default": openvino_bf16_default,
    "27_augmentation_layers": augmentation_layers,
    "36_ties": ties,
    "40_mc_dropout": mc_dropout,
}

"""Cases whose question is names, order, dtypes, axes and ops."""

from __future__ import annotations

import numpy as np

from .kit import Builder, Case, centre, normal, shake


def text_vectorization(rng: np.random.Generator) -> Case:
    """Strings are split and looked up inside the model."""
    import tensorflow as tf
    from keras import Input, Model, layers

    lookup = layers.TextVectorization(max_tokens=20, output_sequence_length=5, name="tv")
    lookup.adapt(["good film", "bad film", "very good", "very bad indeed"])
    text = Input((1,), dtype="string", name="text")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(20, 4)(lookup(text)))
    model = Model(text, layers.Dense(1, activation="sigmoid")(x))
    shake(model, rng, 0.9)
    golden = np.array([["good film"], ["Very BAD!"], ["unknown words here"], [""], ["caf\u00e9 good"]])
    model(tf.constant(golden), training=False)
    return Case(model, {"text": golden}, "threshold", known=False)


def multi_input_order(rng: np.random.Generator) -> Case:
    """Five equal-shaped inputs and outputs whose names are not in alphabetical order."""
    from keras import Input, Model, layers

    inputs = [Input((3,), name=name) for name in ("k", "b", "m", "c", "x")]
    model = Model(inputs, [layers.Dense(2, name=f"out_{tensor.name}")(tensor) for tensor in inputs])
    shake(model, rng, 1.0)
    return Case(model, {tensor.name: normal(rng, 3, 3) for tensor in inputs})


def many_outputs_order(rng: np.random.Generator) -> Case:
    """Twelve outputs of one shape."""
    from keras import Input, Model, layers

    x = Input((4,), name="x")
    names = ("out_c", "out_a", "out_b", "z1", "y2", "x3", "w4", "v5", "u6", "t7", "s8", "r9")
    model = Model(x, [layers.Dense(3, name=name)(x) for name in names])
    shake(model, rng, 1.0)
    return Case(model, {"x": normal(rng, 3, 4)})


def uint8_input(rng: np.random.Generator) -> Case:
    """Pixels as bytes; the model scales them."""
    from keras import Input, Model, layers

    image = Input((8, 8, 3), dtype="uint8", name="image")
    x = layers.Conv2D(4, 3, activation="relu")(layers.Rescaling(1 / 127.5, offset=-1.0)(image))
    model = Model(image, layers.Dense(3, activation="softmax")(layers.GlobalAveragePooling2D()(x)))
    shake(model, rng, 0.6)
    golden = rng.integers(0, 256, (5, 8, 8, 3)).astype(np.uint8)
    centre(model, golden)
    return Case(model, {"image": golden}, "argmax")


def flex_ops(rng: np.random.Generator) -> Case:
    """Operations that most runtimes lack."""
    from keras import Input, Model, layers, ops

    x = Input((8,), name="x")
    parts = [ops.sort(x, axis=-1), ops.erfinv(ops.clip(x, -0.9, 0.9)), ops.cumsum(x, axis=1)]
    model = Model(x, layers.Dense(3, activation="softmax")(layers.Concatenate()(parts)))
    shake(model, rng, 0.8)
    return Case(model, {"x": normal(rng, 4, 8)}, "argmax")


def dynamic_hw(rng: np.random.Generator) -> Case:
    """Height and width are free, and a bilinear upsampling wants to know them."""
    from keras import Input, Model, layers

    image = Input((None, None, 3), name="image")
    half = layers.Conv2D(6, 3, strides=2, padding="same", activation="relu")(image)
    quarter = layers.Conv2D(6, 3, strides=2, padding="same", activation="relu")(half)
    x = layers.UpSampling2D(2)(layers.Add()([half, layers.UpSampling2D(2, interpolation="bilinear", name="blend")(quarter)]))
    model = Model(image, layers.Conv2D(2, 1, activation="softmax")(x))
    shake(model, rng, 0.5)
    return Case(model, {"image": normal(rng, 2, 12, 20, 3)})


def empty_batch(rng: np.random.Generator) -> Case:
    """A golden set without a row."""
    from keras import Input, Model, layers

    image = Input((6, 6, 2), name="image")
    model = Model(image, layers.Dense(3, activation="softmax")(layers.GlobalAveragePooling2D()(layers.Conv2D(3, 3)(image))))
    shake(model, rng, 0.5)
    return Case(model, {"image": np.zeros((0, 6, 6, 2), np.float32)}, known=False)


def odd_names(rng: np.random.Generator) -> Case:
    """Spaces, a colon, parentheses, a currency sign: in inputs, a layer and the model."""
    from keras import Input, Model, layers

    age, price = Input((3,), name="age (years)"), Input((3,), name="prix:0-\u20ac")
    head = layers.Dense(2, activation="softmax", name="out.put 1")(layers.Subtract()([age, price]))
    model = Model([age, price], head, name="my model")
    shake(model, rng, 1.0)
    return Case(model, {"age (years)": normal(rng, 3, 3), "prix:0-\u20ac": normal(rng, 3, 3)}, "argmax")


def passthrough_outputs(rng: np.random.Generator) -> Case:
    """An output that is the input, and one tensor given twice."""
    from keras import Input, Model, layers

    x = Input((4,), name="x")
    hidden = layers.Dense(4, name="h")(x)
    model = Model(x, [hidden, x, hidden])
    shake(model, rng, 0.8)
    return Case(model, {"x": normal(rng, 3, 4)})


def timedistributed_dynamic_time(rng: np.random.Generator) -> Case:
    """A free time axis below TimeDistributed: exported graphs take the batch size for the number of steps."""
    from keras import Input, Model, layers

    steps = Input((None, 3), name="steps")
    x = layers.GlobalMaxPooling1D()(layers.TimeDistributed(layers.Dense(4, activation="relu"), name="each")(steps))
    model = Model(steps, layers.Dense(3, activation="softmax")(x))
    shake(model, rng, 0.9)
    golden = normal(rng, 4, 7, 3)
    centre(model, golden)
    return Case(model, {"steps": golden}, "argmax")


def gelu_default(rng: np.random.Generator) -> Case:
    """The plain gelu, which TensorFlow lowers to an op that ONNX doesn't have."""
    from keras import Input, Model, layers

    x = Input((8,), name="x")
    model = Model(x, layers.Dense(3, activation="softmax")(layers.Dense(16, activation="gelu", name="bell")(x)))
    shake(model, rng, 0.7)
    golden = normal(rng, 6, 8)
    centre(model, golden)
    return Case(model, {"x": golden}, "argmax")


def normalization_layer(rng: np.random.Generator) -> Case:
    """Statistics kept as constants outside the weights: an export may turn them into inputs."""
    from keras import Input, Model, layers

    data = rng.normal(50, 20, (200, 4)).astype(np.float32)
    statistics = layers.Normalization()
    statistics.adapt(data)
    row = Input((4,), name="row")
    hidden = layers.Dense(8, activation="tanh")
    head = layers.Dense(1, activation="sigmoid")
    model = Model(row, head(hidden(statistics(row))))
    for layer in (hidden, head):
        layer.set_weights([rng.normal(scale=0.7, size=weight.shape) for weight in layer.get_weights()])
    return Case(model, {"row": data[:12]}, "threshold")


def two_lstm(rng: np.random.Generator) -> Case:
    """Two stacked LSTMs meet in a Concatenate: OpenVINO reads their ONNX file wrongly for batches."""
    from keras import Input, Model, initializers, layers

    tokens = Input((40,), name="tokens")
    words = layers.Embedding(465, 100, embeddings_initializer="normal")(tokens)
    first = layers.LSTM(128, return_sequences=True)(words)
    second = layers.LSTM(128, return_sequences=True)(first)
    pooled = layers.GlobalAveragePooling1D()(layers.Concatenate()([words, first, second]))
    model = Model(tokens, layers.Dense(5, activation="softmax", kernel_initializer=initializers.RandomNormal(stddev=8.0, seed=1))(pooled))
    golden = rng.integers(1, 465, (6, 40)).astype(np.float32)
    centre(model, golden)
    return Case(model, {"tokens": golden}, "argmax")


SHAPE: dict[str, Builder] = {
    "13_text_vectorization": text_vectorization,
    "18_multi_input_order": multi_input_order,
    "20_many_outputs_order": many_outputs_order,
    "23_uint8_input": uint8_input,
    "26_flex_ops": flex_ops,
    "28_dynamic_hw": dynamic_hw,
    "29_empty_batch": empty_batch,
    "37_odd_names": odd_names,
    "43_passthrough_outputs": passthrough_outputs,
    "49_timedistributed_dynamic_time": timedistributed_dynamic_time,
    "57_gelu_default": gelu_default,
    "61_normalization_layer": normalization_layer,
    "63_two_lstm_openvino_onnx": two_lstm,
}

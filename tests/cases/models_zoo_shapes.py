"""A zoo of kinds, continued: structures, dtypes, policies, control flow, and ways of building a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from .kit import Builder, Case, normal, shake


def nested_structures(rng: np.random.Generator) -> Case:
    """Inputs as a dict of lists and dicts, outputs likewise; equal shapes throughout."""
    from keras import Input, Model, layers

    left, right, far = Input((3,), name="left"), Input((3,), name="right"), Input((3,), name="far")
    near = layers.Dense(3, name="near")(layers.Subtract()([left, right]))
    wide = layers.Dense(3, name="wide")(far)
    model = Model({"pair": [left, right], "deep": {"far": far}}, {"z": [near, wide], "a": {"sum": layers.Add()([near, wide]), "first": left}})
    shake(model, rng, 0.7)
    return Case(model, {"left": normal(rng, 3, 3), "right": normal(rng, 3, 3), "far": normal(rng, 3, 3)}, known=False)


def tuples(rng: np.random.Generator) -> Case:
    """Tuples in and out, one layer used twice."""
    from keras import Input, Model, layers

    a, b = Input((4,), name="a"), Input((4,), name="b")
    shared = layers.Dense(3, activation="tanh", name="shared")
    model = Model((a, b), (shared(a), shared(b)))
    shake(model, rng, 0.7)
    return Case(model, {"a": normal(rng, 3, 4), "b": normal(rng, 3, 4)})


def nested_models(rng: np.random.Generator) -> Case:
    """Models in models, whose layers have the same names."""
    from keras import Input, Model, Sequential, layers

    def block(name: str) -> Any:
        return Sequential([Input((4,)), layers.Dense(4, activation="relu", name="dense"), layers.Dense(4, name="out")], name=name)

    x = Input((4,), name="x")
    inner = Model(z := Input((4,)), block("deep")(z), name="inner")
    model = Model(x, [block("one")(x), inner(x), inner(block("two")(x))])
    shake(model, rng, 0.7)
    return Case(model, {"x": normal(rng, 3, 4)})


def scalars(rng: np.random.Generator) -> Case:
    """A number an input, a number an output, and one number for the whole batch."""
    from keras import Input, Model, ops

    x, y = Input((), name="x"), Input((), name="y")
    model = Model([x, y], [ops.add(x, ops.multiply(2.0, y)), ops.sin(x), ops.mean(y)])
    return Case(model, {"x": normal(rng, 4), "y": normal(rng, 4)}, known=False)


def fixed_batch(rng: np.random.Generator) -> Case:
    """The model itself fixes its batch."""
    from keras import Input, Model, layers

    x = Input(batch_shape=(4, 3), name="x")
    model = Model(x, layers.Dense(2, activation="softmax", name="label")(x))
    shake(model, rng, 0.7)
    return Case(model, {"x": normal(rng, 6, 3)}, known=False)


def no_batch(rng: np.random.Generator) -> Case:
    """A table that is no input, and an output that is the same for every batch."""
    from keras import Input, Model, layers, ops

    x = Input((3,), name="x")
    y = layers.Dense(2, name="label")(x)
    model = Model(x, [y, ops.multiply(ops.ones((5,)), ops.max(y))])
    shake(model, rng, 0.7)
    return Case(model, {"x": normal(rng, 4, 3)}, known=False)


def dtypes_in(rng: np.random.Generator) -> Case:
    """Whole numbers of every width, a bool and half precision as inputs."""
    from keras import Input, Model, layers, ops

    wide, narrow, byte = Input((2,), dtype="int64", name="wide"), Input((2,), dtype="int16", name="narrow"), Input((2,), dtype="uint8", name="byte")
    flag, half = Input((2,), dtype="bool", name="flag"), Input((2,), dtype="float16", name="half")
    parts = [ops.cast(x, "float32") for x in (wide, narrow, byte, flag, half)]
    model = Model([wide, narrow, byte, flag, half], layers.Dense(3, activation="softmax", name="label")(layers.Concatenate()(parts)))
    shake(model, rng, 0.1)
    golden = {
        "wide": rng.integers(-50, 50, (4, 2)),
        "narrow": rng.integers(-50, 50, (4, 2)).astype(np.int16),
        "byte": rng.integers(0, 50, (4, 2)).astype(np.uint8),
        "flag": rng.integers(0, 2, (4, 2)).astype(bool),
        "half": normal(rng, 4, 2).astype(np.float16),
    }
    return Case(model, golden, "argmax")


def dtypes_out(rng: np.random.Generator) -> Case:
    """Outputs of every dtype."""
    from keras import Input, Model, layers, ops

    x = Input((4,), name="x")
    y = layers.Dense(4, name="scores")(x)
    model = Model(
        x, {d: ops.cast(ops.multiply(y, 10.0), d) for d in ("int32", "int64", "uint8", "float16", "bool", "int8", "float64")} | {"scores": y}
    )
    shake(model, rng, 0.7)
    return Case(model, {"x": np.abs(normal(rng, 4, 4))}, known=False)


def float64_policy(rng: np.random.Generator) -> Case:
    """Everything in double precision."""
    import keras
    from keras import Input, Model, layers

    keras.config.set_dtype_policy("float64")
    x = Input((4,), name="x", dtype="float64")
    model = Model(x, layers.Dense(3, activation="softmax", name="label")(layers.Dense(5, activation="tanh", name="hidden")(x)))
    shake(model, rng, 0.7)
    return Case(model, {"x": rng.normal(size=(4, 4))}, known=False)


def float16_policy(rng: np.random.Generator) -> Case:
    """Everything in half precision."""
    import keras
    from keras import Input, Model, layers

    keras.config.set_dtype_policy("float16")
    x = Input((4,), name="x", dtype="float16")
    model = Model(x, layers.Dense(3, activation="softmax", name="label")(layers.Dense(5, activation="tanh", name="hidden")(x)))
    shake(model, rng, 0.7)
    return Case(model, {"x": rng.normal(size=(4, 4)).astype(np.float16)}, known=False)


def _quantised(rng: np.random.Generator, mode: str) -> Case:
    from keras import Input, Model, layers

    tokens, x = Input((5,), dtype="int32", name="tokens"), Input((8,), name="x")
    words = layers.GlobalAveragePooling1D()(layers.Embedding(20, 8, name="words")(tokens))
    hidden = layers.Dense(16, activation="relu", name="hidden")(layers.Concatenate()([words, x]))
    mixed = layers.EinsumDense("ab,bc->ac", output_shape=12, name="einsum")(hidden)
    model = Model([tokens, x], layers.Dense(3, activation="softmax", name="label")(mixed))
    shake(model, rng, 0.4)
    model.quantize(mode)
    return Case(model, {"tokens": rng.integers(0, 20, (4, 5)).astype(np.int32), "x": normal(rng, 4, 8)}, "argmax", known=False)


def keras_int8(rng: np.random.Generator) -> Case:
    """Quantised by Keras to eight bits."""
    return _quantised(rng, "int8")


def keras_int4(rng: np.random.Generator) -> Case:
    """Quantised by Keras to four bits."""
    return _quantised(rng, "int4")


def keras_float8(rng: np.random.Generator) -> Case:
    """Quantised by Keras to eight-bit floats."""
    from keras import Input, Model, layers

    x = Input((8,), name="x")
    model = Model(x, layers.Dense(3, activation="softmax", name="label")(layers.Dense(16, activation="relu", name="hidden")(x)))
    shake(model, rng, 0.4)
    model.quantize("float8")
    return Case(model, {"x": normal(rng, 4, 8)}, "argmax", known=False)


def lora(rng: np.random.Generator) -> Case:
    """Layers with low-rank adapters on."""
    from keras import Input, Model, layers

    tokens = Input((5,), dtype="int32", name="tokens")
    words = layers.Embedding(20, 8, name="words")
    hidden = layers.Dense(16, activation="relu", name="hidden")
    model = Model(tokens, layers.Dense(3, activation="softmax", name="label")(hidden(layers.GlobalAveragePooling1D()(words(tokens)))))
    words.enable_lora(2)
    hidden.enable_lora(2)
    shake(model, rng, 0.5)
    return Case(model, {"tokens": rng.integers(0, 20, (4, 5)).astype(np.int32)}, "argmax", known=False)


def loops(rng: np.random.Generator) -> Case:
    """Control flow: a loop whose length depends on values, and a branch."""
    from keras import Input, Model, layers, ops

    module = _module(LOOP_SOURCE, "loops")
    x = Input((4,), name="x")
    model = Model(x, layers.Dense(2, name="label")(module.Branch(name="branch")(module.Loop(name="loop")(ops.tanh(x)))))
    shake(model, rng, 0.7)
    return Case(model, {"x": normal(rng, 4, 4)}, known=False)


LOOP_SOURCE = '''\
"""Control flow in layers."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="zoo")
class Loop(keras.layers.Layer):
    """Halves until all are small."""

    def call(self, x):
        def more(v):
            return ops.max(ops.abs(v)) > 0.1

        def half(v):
            return (v * 0.5,)

        return x + ops.while_loop(more, half, (x,))[0]


@keras.saving.register_keras_serializable(package="zoo")
class Branch(keras.layers.Layer):
    """One of two ways, by the sum of all."""

    def call(self, x):
        return ops.cond(ops.sum(x) > 0, lambda: x * 2.0, lambda: x - 1.0)
'''

PACKAGE = {
    "base.py": '''\
"""What the other files build on."""

SLOPE = 0.3


def bend(x):
    import keras

    return keras.ops.where(x > 0, x, x * SLOPE)
''',
    "bent.py": '''\
"""A layer made of a function in the file beside it."""

import keras

from base import bend


@keras.saving.register_keras_serializable(package="house")
class Bent(keras.layers.Layer):
    def call(self, x):
        return bend(x)
''',
}

SUBCLASSED_SOURCE = '''\
"""Subclassed models."""

import keras
from keras import layers


@keras.saving.register_keras_serializable(package="zoo")
class Built(keras.Model):
    """Two inputs in a dict, a nested structure out."""

    def __init__(self, **options):
        super().__init__(**options)
        self.left, self.right = layers.Dense(3, name="left"), layers.Dense(3, name="right")

    def call(self, inputs, training=False):
        a, b = self.left(inputs["a"]), self.right(inputs["b"])
        return {"both": [a, b], "sum": a + b}

    def build(self, shapes):
        self.left.build(shapes["a"])
        self.right.build(shapes["b"])
        self.built = True


@keras.saving.register_keras_serializable(package="zoo")
class Unbuilt(keras.Model):
    """Never called before it was saved."""

    def __init__(self, **options):
        super().__init__(**options)
        self.head = layers.Dense(3)

    def call(self, inputs):
        return self.head(inputs)


@keras.saving.register_keras_serializable(package="zoo")
class Two(keras.Model):
    """Two arguments."""

    def __init__(self, **options):
        super().__init__(**options)
        self.head = layers.Dense(3)

    def call(self, first, second=None, training=False):
        return self.head(first - second), self.head(second)


@keras.saving.register_keras_serializable(package="zoo")
class Noisy(keras.layers.Layer):
    """Draws numbers, in inference too."""

    def __init__(self, **options):
        super().__init__(**options)
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x), seed=self.seeds)
'''


def _module(source: str, name: str) -> Any:
    import types

    module = types.ModuleType(name)
    exec(compile(source, f"{name}.py", "exec"), vars(module))  # noqa: S102 - our own text above
    return module


def bent(rng: np.random.Generator) -> Case:
    """A custom layer over two files."""
    import sys

    from keras import Input, Model, layers

    sys.modules["base"] = _module(PACKAGE["base.py"], "base")
    house = _module(PACKAGE["bent.py"], "bent")
    x = Input((4,), name="x")
    model = Model(x, layers.Dense(2, name="label")(house.Bent(name="bent")(layers.Dense(3, name="hidden")(x))))
    shake(model, rng, 0.7)
    return Case(model, {"x": normal(rng, 4, 4)}, known=False)


def subclassed(rng: np.random.Generator) -> Case:
    """A subclassed model with dict inputs and nested outputs."""
    model = _module(SUBCLASSED_SOURCE, "subclassed").Built(name="built")
    golden = {"a": normal(rng, 3, 4), "b": normal(rng, 3, 4)}
    model(golden)
    shake(model, rng, 0.7)
    return Case(model, golden, known=False)


def subclassed_two(rng: np.random.Generator) -> Case:
    """A subclassed model that takes two arguments."""
    model = _module(SUBCLASSED_SOURCE, "subclassed").Two(name="two")
    golden = {"first": normal(rng, 3, 4), "second": normal(rng, 3, 4)}
    model(golden["first"], golden["second"])
    shake(model, rng, 0.7)
    return Case(model, golden, known=False)


def subclassed_unbuilt(rng: np.random.Generator) -> Case:
    """A subclassed model that nobody called."""
    model = _module(SUBCLASSED_SOURCE, "subclassed").Unbuilt(name="unbuilt")
    return Case(model, {"inputs": normal(rng, 3, 4)}, known=False)


def noisy(rng: np.random.Generator) -> Case:
    """Random numbers in inference."""
    from keras import Input, Model

    x = Input((4,), name="x")
    return Case(Model(x, _module(SUBCLASSED_SOURCE, "subclassed").Noisy(name="noisy")(x)), {"x": normal(rng, 4, 4)}, known=False)


def sequential_called(rng: np.random.Generator) -> Case:
    """A Sequential without an Input, built by its first call."""
    from keras import Sequential, layers

    model = Sequential([layers.Dense(4, activation="relu"), layers.Dense(3, activation="softmax")])
    golden = normal(rng, 4, 5)
    model(golden)
    shake(model, rng, 0.7)
    return Case(model, {model.inputs[0].name: golden}, "argmax", known=False)


def sequential_unbuilt(rng: np.random.Generator) -> Case:
    """A Sequential that nobody called."""
    from keras import Sequential, layers

    return Case(Sequential([layers.Dense(4), layers.Dense(3)]), {"inputs": normal(rng, 4, 5)}, known=False)


def optional_input(rng: np.random.Generator) -> Case:
    """An input that may be left out."""
    from keras import Input, Model, layers

    x, y = Input((4,), name="x"), Input((4,), name="y", optional=True)
    model = Model([x, y], layers.Dense(2, name="label")(layers.Add()([x, y])))
    shake(model, rng, 0.7)
    return Case(model, {"x": normal(rng, 3, 4), "y": normal(rng, 3, 4)}, known=False)


def sparse_input(rng: np.random.Generator) -> Case:
    """An input that is declared sparse."""
    from keras import Input, Model, layers

    x = Input((4,), name="x", sparse=True)
    model = Model(x, layers.Dense(2, name="label")(x))
    shake(model, rng, 0.7)
    return Case(model, {"x": normal(rng, 3, 4)}, known=False)


def weightless(rng: np.random.Generator) -> Case:
    """No weights, no layers but the inputs: the outputs are the inputs, exchanged."""
    from keras import Input, Model

    a, b = Input((3,), name="a"), Input((3,), name="b")
    return Case(Model([a, b], [b, a]), {"a": normal(rng, 3, 3), "b": normal(rng, 3, 3)}, known=False)


def unused_input(rng: np.random.Generator) -> Case:
    """An input that no output depends on (but for its shape)."""
    from keras import Input, Model, layers, ops

    a, b = Input((3,), name="a"), Input((3,), name="b")
    model = Model([a, b], layers.Dense(2, name="label")(a + ops.multiply(0.0, b)))
    shake(model, rng, 0.7)
    return Case(model, {"a": normal(rng, 3, 3), "b": normal(rng, 3, 3)})


def symmetric(rng: np.random.Generator) -> Case:
    """Two inputs that may be exchanged, two outputs that are equal."""
    from keras import Input, Model, layers

    a, b = Input((3,), name="a"), Input((3,), name="b")
    both = layers.Add()([a, b])
    head = layers.Dense(2, name="head")
    model = Model([a, b], [head(both), layers.Dense(2, name="other")(both), head(layers.Maximum()([a, b]))])
    shake(model, rng, 0.7)
    return Case(model, {"a": normal(rng, 3, 3), "b": normal(rng, 3, 3)})


def twins(rng: np.random.Generator) -> Case:
    """Two inputs that hold the same values in every golden input, and are not the same to the model; two outputs of one shape."""
    from keras import Input, Model, layers

    left, right = Input((4,), name="left"), Input((4,), name="right")
    merged = layers.Subtract()([layers.Dense(5, activation="tanh", name="own")(left), layers.Dense(5, activation="tanh", name="other")(right)])
    model = Model([left, right], [layers.Dense(2, name="near")(merged), layers.Dense(2, name="far")(merged)])
    shake(model, rng, 0.7)
    golden = normal(rng, 4, 4)
    return Case(model, {"left": golden, "right": golden.copy()})


def free_time(rng: np.random.Generator) -> Case:
    """A free time axis, in an LSTM and in a convolution."""
    from keras import Input, Model, layers

    steps = Input((None, 3), name="steps")
    heard = layers.GlobalMaxPooling1D()(layers.Conv1D(4, 3, padding="same", activation="relu", name="conv")(steps))
    model = Model(steps, layers.Dense(3, activation="softmax", name="label")(layers.Concatenate()([layers.LSTM(4, name="lstm")(steps), heard])))
    shake(model, rng, 0.6)
    return Case(model, {"steps": normal(rng, 4, 7, 3)}, "argmax")


def spectrogram(rng: np.random.Generator) -> Case:
    """Sound to pictures inside the model."""
    from keras import Input, Model, layers

    wave = Input((400,), name="wave")
    x = layers.MelSpectrogram(fft_length=64, sequence_stride=32, sampling_rate=8000, num_mel_bins=8, name="mel")(wave)
    model = Model(wave, layers.Dense(2, name="label")(layers.Flatten()(x)))
    shake(model, rng, 0.3)
    return Case(model, {"wave": normal(rng, 3, 400)})


ZOO_SHAPES: dict[str, Builder] = {
    "nested_structures": nested_structures,
    "tuples": tuples,
    "nested_models": nested_models,
    "scalars": scalars,
    "fixed_batch": fixed_batch,
    "no_batch": no_batch,
    "dtypes_in": dtypes_in,
    "dtypes_out": dtypes_out,
    "float64_policy": float64_policy,
    "float16_policy": float16_policy,
    "keras_int8": keras_int8,
    "keras_int4": keras_int4,
    "keras_float8": keras_float8,
    "lora": lora,
    "loops": loops,
    "bent": bent,
    "subclassed": subclassed,
    "subclassed_two": subclassed_two,
    "subclassed_unbuilt": subclassed_unbuilt,
    "noisy": noisy,
    "sequential_called": sequential_called,
    "sequential_unbuilt": sequential_unbuilt,
    "optional_input": optional_input,
    "sparse_input": sparse_input,
    "weightless": weightless,
    "unused_input": unused_input,
    "symmetric": symmetric,
    "twins": twins,
    "free_time": free_time,
    "spectrogram": spectrogram,
}

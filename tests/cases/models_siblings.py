"""Siblings: the same kinds of fault by other means. Kinds that pass share a model, one branch each, because a run costs more than a branch."""

from __future__ import annotations

import numpy as np

from .kit import Builder, Case, centre, normal, shake


def recurrent(rng: np.random.Generator) -> Case:
    """Siblings of 01 and 02: a masked GRU, a bidirectional LSTM behind Masking, in one model."""
    from keras import Input, Model, layers

    tokens, steps = Input((6,), dtype="int32", name="tokens"), Input((5, 3), name="steps")
    words = layers.GRU(4, name="words")(layers.Embedding(9, 3, mask_zero=True)(tokens))
    waves = layers.Bidirectional(layers.LSTM(3), name="waves")(layers.Masking(0.0)(steps))
    model = Model([tokens, steps], layers.Dense(3, activation="softmax", name="label")(layers.Concatenate()([words, waves])))
    shake(model, rng, 0.9)
    golden = {"tokens": rng.integers(1, 9, (5, 6)).astype(np.int32), "steps": normal(rng, 5, 5, 3)}
    golden["tokens"][1, 2:], golden["tokens"][2, :3], golden["steps"][3, 3:], golden["steps"][4] = 0, 0, 0, 0
    return Case(model, golden, "argmax")


def plain(rng: np.random.Generator) -> Case:
    """Siblings of 18, 20, 23, 27, 43, 57 and 61.

    Inputs as a dict, of int8, bool and float; ten numbered outputs and an echo of an input; gelu in an Activation layer; Normalization
    of images; brightness and translation, which only training has.
    """
    from keras import Input, Model, layers, ops

    zeta, alpha = Input((4,), name="zeta"), Input((4,), name="alpha")
    photo, flag = Input((6, 6, 2), dtype="int8", name="photo"), Input((1,), dtype="bool", name="flag")
    pixels = layers.Rescaling(1 / 64)(photo)
    statistics = layers.Normalization(axis=-1, mean=[0.1, -0.2], variance=[0.5, 2.0])
    x = statistics(layers.RandomTranslation(0.2, 0.2)(layers.RandomBrightness(0.3, value_range=(-2, 2))(pixels)))
    features = layers.GaussianDropout(0.4)(layers.Flatten()(layers.Conv2D(3, 3)(x)))
    bell = layers.Activation("gelu", name="bell")(layers.Dense(8)(layers.Concatenate()([features, alpha])))
    chosen = ops.where(flag, zeta, alpha)
    outputs = [layers.Dense(2, name=f"out_{i}")(bell if i % 2 else chosen) for i in range(1, 11)]
    model = Model({"zeta": zeta, "alpha": alpha, "photo": photo, "flag": flag}, [*outputs, layers.Identity(name="echo")(zeta)])
    shake(model, rng, 0.6)
    golden = {"alpha": normal(rng, 3, 4), "flag": np.array([[True], [False], [True]]), "photo": rng.integers(-128, 128, (3, 6, 6, 2)).astype(np.int8)}
    return Case(model, {**golden, "zeta": normal(rng, 3, 4)})


def free_size(rng: np.random.Generator) -> Case:
    """Sibling of 28 and 49: free height and width that every runtime can keep, and TimeDistributed with a fixed time axis."""
    from keras import Input, Model, layers

    image, steps = Input((None, None, 3), name="image"), Input((5, 3), name="steps")
    seen = layers.GlobalMaxPooling2D()(layers.UpSampling2D(2)(layers.Conv2D(4, 3, strides=2, padding="same", activation="relu")(image)))
    heard = layers.GlobalMaxPooling1D()(layers.TimeDistributed(layers.Dense(4, activation="relu"))(steps))
    model = Model([image, steps], layers.Dense(3, activation="softmax")(layers.Concatenate()([seen, heard])))
    shake(model, rng, 0.6)
    golden = {"image": normal(rng, 3, 10, 14, 3), "steps": normal(rng, 3, 5, 3)}
    centre(model, list(golden.values()))
    return Case(model, golden, "argmax")


def stranger_names(rng: np.random.Generator) -> Case:
    """Sibling of 36 and 37: a keyword, a leading digit, accents and signs in names; and one input decided at exactly one half."""
    from keras import Input, Model, layers

    first, second = Input((3,), name="class"), Input((3,), name="2nd #1 (m\u00b2)")
    hidden = layers.Dense(4, name="cach\u00e9 [a]", use_bias=False)(layers.Concatenate(name="+")([first, second]))
    model = Model([first, second], layers.Dense(1, activation="sigmoid", name="answer?", use_bias=False)(hidden), name="1 model, v2.0")
    shake(model, rng, 1.0)
    golden = {"class": normal(rng, 3, 3), "2nd #1 (m\u00b2)": normal(rng, 3, 3)}
    for values in golden.values():
        values[1] = 0
    return Case(model, golden, "threshold")


def resize_nearest(rng: np.random.Generator) -> Case:
    """Sibling of 05: a nearest neighbour only one pixel away, which Keras' OpenVINO backend finds by another rule."""
    from keras import Input, Model, layers

    image = Input((12, 10, 2), name="image")
    return Case(Model(image, layers.Resizing(11, 9, interpolation="nearest", name="trimmed")(image)), {"image": normal(rng, 3, 12, 10, 2)})


def mixed_bfloat16(rng: np.random.Generator) -> Case:
    """Sibling of 10: bfloat16 inside."""
    import keras
    from keras import Input, Model, layers

    keras.config.set_dtype_policy("mixed_bfloat16")
    x = Input((12,), name="x")
    model = Model(x, layers.Dense(3, activation="softmax", dtype="float32")(layers.Dense(16, activation="relu", name="coarse")(x)))
    shake(model, rng, 0.5)
    golden = normal(rng, 4, 12)
    centre(model, golden)
    return Case(model, {"x": golden}, "argmax")


def integer_lookup(rng: np.random.Generator) -> Case:
    """Sibling of 13: a hash table on whole numbers."""
    from keras import Input, Model, layers

    code = Input((2,), dtype="int64", name="code")
    x = layers.Flatten()(layers.Embedding(6, 3)(layers.IntegerLookup(vocabulary=[10, 20, 30, 40], name="table")(code)))
    model = Model(code, layers.Dense(1, activation="sigmoid")(x))
    shake(model, rng, 0.9)
    return Case(model, {"code": np.array([[10, 40], [20, 99], [30, 30]], np.int64)}, "threshold", known=False)


def nan_inside(rng: np.random.Generator) -> Case:
    """Sibling of 16: finite inputs, and scores that are NaN on one of them."""
    from keras import Input, Model, layers, ops

    x = Input((4,), name="x")
    model = Model(x, layers.Dense(3, activation="softmax")(ops.sqrt(x)))
    shake(model, rng, 1.0)
    golden = np.abs(normal(rng, 3, 4))
    golden[1, 2] = -1.0
    return Case(model, {"x": golden}, known=False)


def antialiased(rng: np.random.Generator) -> Case:
    """Sibling of 26: resampling with antialiasing, which is an op of TensorFlow's own."""
    from keras import Input, Model, layers

    image = Input((8, 8, 1), name="image")
    return Case(Model(image, layers.Resizing(4, 4, antialias=True, name="thumb")(image)), {"image": normal(rng, 3, 8, 8, 1)})


def forced_noise(rng: np.random.Generator) -> Case:
    """Sibling of 40: noise that is never off, inside a nested model."""
    from keras import Input, Model, layers

    inside = Input((6,))
    nested = Model(inside, layers.GaussianNoise(0.3, name="always_noisy")(layers.Dense(6)(inside), training=True), name="nested")
    x = Input((6,), name="x")
    model = Model(x, layers.Dense(1, activation="sigmoid")(nested(x)))
    shake(model, rng, 0.5)
    return Case(model, {"x": normal(rng, 8, 6)}, "threshold", known=False)


def timedistributed_conv(rng: np.random.Generator) -> Case:
    """Sibling of 49: a convolution at every step of a free time axis."""
    from keras import Input, Model, layers

    clip = Input((None, 6, 2), name="clip")
    x = layers.GlobalMaxPooling2D()(layers.TimeDistributed(layers.Conv1D(3, 3), name="each")(clip))
    model = Model(clip, layers.Dense(3, activation="softmax")(x))
    shake(model, rng, 0.9)
    golden = normal(rng, 4, 5, 6, 2)
    centre(model, golden)
    return Case(model, {"clip": golden}, "argmax")


def near_a_threshold(rng: np.random.Generator) -> Case:
    """Sibling of 24: many terms that nearly cancel, decided at one half: coarse arithmetic loses what is left."""
    from keras import Input, Model, layers

    x = Input((256,), name="x")
    model = Model(x, layers.Dense(1, activation="sigmoid", name="score")(layers.Dense(64, name="mixed")(x)))
    shake(model, rng, 1.0)
    golden = normal(rng, 40, 256)
    first, offset, second, bias = (np.asarray(value, np.float64) for value in model.get_weights())
    pull, wanted = (first @ second)[:, 0], np.where(np.arange(40) % 2, 0.05, -0.05)
    logits = golden @ pull + (offset @ second)[0] + bias[0]
    golden -= (np.outer(logits - wanted, pull) / (pull @ pull)).astype(np.float32)
    return Case(model, {"x": golden}, "threshold")


SIBLINGS: dict[str, Builder] = {
    "recurrent": recurrent,
    "plain": plain,
    "free_size": free_size,
    "stranger_names": stranger_names,
    "resize_nearest": resize_nearest,
    "mixed_bfloat16": mixed_bfloat16,
    "integer_lookup": integer_lookup,
    "nan_inside": nan_inside,
    "antialiased": antialiased,
    "forced_noise": forced_noise,
    "timedistributed_conv": timedistributed_conv,
    "near_a_threshold": near_a_threshold,
}

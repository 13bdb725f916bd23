"""A zoo of kinds: one small seeded model for each kind of layer, dtype policy or way of building that Keras can save."""

from __future__ import annotations

from typing import Any

import numpy as np

from .kit import Builder, Case, normal, shake


def return_state(rng: np.random.Generator) -> Case:
    """Recurrent layers that give their states too, and a state that is passed on."""
    from keras import Input, Model, layers

    steps = Input((5, 3), name="steps")
    every, hidden, cell = layers.LSTM(4, return_sequences=True, return_state=True, name="encoder")(steps)
    after = layers.LSTM(4, name="decoder")(every, initial_state=[hidden, cell])
    _, state = layers.GRU(3, return_state=True, name="gru")(steps)
    model = Model(steps, [layers.Dense(2, name="label")(after), hidden, cell, state])
    shake(model, rng, 0.6)
    return Case(model, {"steps": normal(rng, 4, 5, 3)})


def bidirectional(rng: np.random.Generator) -> Case:
    """Both directions, several ways of meeting, both conventions of the GRU."""
    from keras import Input, Model, layers

    steps = Input((6, 3), name="steps")
    parts = [
        layers.Bidirectional(layers.GRU(3, reset_after=False), merge_mode="sum")(steps),
        layers.Bidirectional(layers.GRU(3), merge_mode="mul")(steps),
        layers.Bidirectional(layers.LSTM(3), merge_mode="concat")(steps),
        layers.SimpleRNN(3)(steps),
        layers.RNN(layers.StackedRNNCells([layers.LSTMCell(3), layers.GRUCell(2)]))(steps),
    ]
    model = Model(steps, layers.Dense(3, activation="softmax", name="label")(layers.Concatenate()(parts)))
    shake(model, rng, 0.6)
    return Case(model, {"steps": normal(rng, 4, 6, 3)}, "argmax")


def stateful(rng: np.random.Generator) -> Case:
    """A recurrent layer that remembers the last call."""
    from keras import Input, Model, layers

    steps = Input(batch_shape=(2, 5, 3), name="steps")
    model = Model(steps, layers.Dense(2, name="label")(layers.LSTM(4, stateful=True, name="remembers")(steps)))
    shake(model, rng, 0.6)
    return Case(model, {"steps": normal(rng, 4, 5, 3)}, known=False)


def conv_lstm(rng: np.random.Generator) -> Case:
    """Convolutions in time."""
    from keras import Input, Model, layers

    video = Input((4, 6, 6, 2), name="video")
    seen = layers.ConvLSTM2D(3, 3, padding="same", name="film")(video)
    model = Model(video, layers.Dense(2, name="label")(layers.GlobalAveragePooling2D()(seen)))
    shake(model, rng, 0.4)
    return Case(model, {"video": normal(rng, 3, 4, 6, 6, 2)})


def convolutions(rng: np.random.Generator) -> Case:
    """One, two and three dimensions: dilated, depthwise, separable, causal."""
    from keras import Input, Model, layers

    wave, image, solid = Input((12, 2), name="wave"), Input((8, 8, 2), name="image"), Input((5, 5, 5, 2), name="solid")
    one = layers.SeparableConv1D(3, 3)(layers.Conv1D(4, 3, dilation_rate=2, padding="causal")(wave))
    two = layers.SeparableConv2D(3, 3)(layers.DepthwiseConv2D(3, depth_multiplier=2)(layers.Conv2D(4, 3, dilation_rate=2, padding="same")(image)))
    three = layers.Conv3D(3, 2, strides=2)(solid)
    parts = [layers.GlobalMaxPooling1D()(one), layers.GlobalMaxPooling2D()(two), layers.GlobalMaxPooling3D()(three)]
    model = Model([wave, image, solid], layers.Dense(3, activation="softmax", name="label")(layers.Concatenate()(parts)))
    shake(model, rng, 0.4)
    golden = {"wave": normal(rng, 4, 12, 2), "image": normal(rng, 4, 8, 8, 2), "solid": normal(rng, 4, 5, 5, 5, 2)}
    return Case(model, golden, "argmax")


def grouped(rng: np.random.Generator) -> Case:
    """Grouped convolutions."""
    from keras import Input, Model, layers

    image = Input((8, 8, 4), name="image")
    seen = layers.GlobalAveragePooling2D()(layers.Conv2D(6, 3, groups=2, name="in_groups")(image))
    model = Model(image, layers.Dense(2, name="label")(seen))
    shake(model, rng, 0.4)
    return Case(model, {"image": normal(rng, 3, 8, 8, 4)})


def transposed(rng: np.random.Generator) -> Case:
    """Transposed convolutions."""
    from keras import Input, Model, layers

    wave, image, solid = Input((6, 2), name="wave"), Input((4, 4, 2), name="image"), Input((3, 3, 3, 1), name="solid")
    parts = [
        layers.Conv1DTranspose(2, 3, strides=2, name="up_1")(wave),
        layers.Conv2DTranspose(2, 3, strides=2, padding="same", output_padding=1, name="up_2")(image),
        layers.Conv3DTranspose(2, 2, strides=2, name="up_3")(solid),
    ]
    model = Model([wave, image, solid], parts)
    shake(model, rng, 0.5)
    return Case(model, {"wave": normal(rng, 3, 6, 2), "image": normal(rng, 3, 4, 4, 2), "solid": normal(rng, 3, 3, 3, 3, 1)})


def channels_first(rng: np.random.Generator) -> Case:
    """Channels before pixels."""
    from keras import Input, Model, layers

    image = Input((3, 8, 8), name="image")
    x = layers.MaxPooling2D(data_format="channels_first")(layers.Conv2D(4, 3, data_format="channels_first", name="first")(image))
    x = layers.BatchNormalization(axis=1)(x)
    model = Model(image, layers.Dense(3, activation="softmax", name="label")(layers.GlobalAveragePooling2D(data_format="channels_first")(x)))
    shake(model, rng, 0.4)
    return Case(model, {"image": normal(rng, 3, 3, 8, 8)}, "argmax")


def attention(rng: np.random.Generator) -> Case:
    """Causal, masked, grouped queries, einsum."""
    from keras import Input, Model, layers

    tokens, query = Input((6,), dtype="int32", name="tokens"), Input((4, 8), name="query")
    words = layers.Embedding(11, 8, mask_zero=True)(tokens)
    x = layers.MultiHeadAttention(2, 4, name="causal")(words, words, use_causal_mask=True)
    x = layers.LayerNormalization()(x)
    y = layers.MultiHeadAttention(2, 4, name="cross")(query, x)
    z = layers.GroupQueryAttention(4, 4, 2, name="groups")(y, y)
    a = layers.Attention(use_scale=True, name="plain")([z, y])
    b = layers.AdditiveAttention(name="additive")([z, y])
    e = layers.EinsumDense("abc,cd->abd", output_shape=(None, 3), name="einsum")(layers.Add()([a, b]))
    model = Model([tokens, query], layers.Dense(3, activation="softmax", name="label")(layers.GlobalAveragePooling1D()(e)))
    shake(model, rng, 0.5)
    golden = {"tokens": rng.integers(1, 11, (4, 6)).astype(np.int32), "query": normal(rng, 4, 4, 8)}
    golden["tokens"][1, 3:] = 0
    return Case(model, golden, "argmax")


def normalisations(rng: np.random.Generator) -> Case:
    """Every normalisation."""
    from keras import Input, Model, layers

    image = Input((6, 6, 4), name="image")
    x = layers.BatchNormalization()(image)
    x = layers.GroupNormalization(2)(x)
    x = layers.SpectralNormalization(layers.Conv2D(4, 3), name="spectral")(x)
    x = layers.LayerNormalization()(x)
    x = layers.RMSNormalization()(x)
    x = layers.UnitNormalization()(layers.GlobalAveragePooling2D()(x))
    model = Model(image, layers.Dense(3, activation="softmax", name="label")(x))
    shake(model, rng, 0.5)
    return Case(model, {"image": normal(rng, 3, 6, 6, 4)}, "argmax")


def poolings(rng: np.random.Generator) -> Case:
    """Every pooling, and padding and cropping."""
    from keras import Input, Model, layers

    wave, image, solid = Input((12, 2), name="wave"), Input((8, 8, 2), name="image"), Input((4, 4, 4, 2), name="solid")
    one = layers.Cropping1D(1)(layers.ZeroPadding1D(2)(layers.AveragePooling1D(2)(wave)))
    two = layers.ZeroPadding2D(1)(layers.Cropping2D(1)(layers.AveragePooling2D(3, strides=1, padding="same")(image)))
    three = layers.AveragePooling3D(2, name="average_3")(solid)
    most = layers.MaxPooling3D(2, name="most_3")(solid)
    model = Model([wave, image, solid], [one, two, three, most])
    shake(model, rng, 0.5)
    return Case(model, {"wave": normal(rng, 3, 12, 2), "image": normal(rng, 3, 8, 8, 2), "solid": normal(rng, 3, 4, 4, 4, 2)})


def augmentations(rng: np.random.Generator) -> Case:
    """Every layer that only training has."""
    from keras import Input, Model, layers

    x = image = Input((8, 8, 3), name="image")
    for name, options in AUGMENTATIONS.items():
        x = getattr(layers, name)(**options)(x)
    model = Model(image, layers.Dense(2, name="label")(layers.GlobalAveragePooling2D()(x)))
    shake(model, rng, 0.5)
    return Case(model, {"image": rng.uniform(0, 1, (3, 8, 8, 3)).astype(np.float32)})


AUGMENTATIONS: dict[str, dict[str, Any]] = {
    "RandomBrightness": {"factor": 0.2, "value_range": (0, 1)},
    "RandomContrast": {"factor": 0.2, "value_range": (0, 1)},
    "RandomColorJitter": {"value_range": (0, 1), "brightness_factor": 0.1},
    "RandomFlip": {},
    "RandomRotation": {"factor": 0.1},
    "RandomZoom": {"height_factor": 0.1},
    "RandomTranslation": {"height_factor": 0.1, "width_factor": 0.1},
    "RandomPerspective": {},
    "RandomErasing": {"value_range": (0, 1)},
    "RandomGaussianBlur": {"value_range": (0, 1)},
    "RandomGrayscale": {},
    "RandomHue": {"factor": 0.1, "value_range": (0, 1)},
    "RandomSaturation": {"factor": 0.5, "value_range": (0, 1)},
    "RandomSharpness": {"factor": 0.5, "value_range": (0, 1)},
    "RandomPosterization": {"factor": 4, "value_range": (0, 1)},
    "RandomInvert": {"value_range": (0, 1)},
    "AugMix": {"value_range": (0, 1)},
    "RandAugment": {"value_range": (0, 1)},
    "CutMix": {},
    "MixUp": {},
    "GaussianNoise": {"stddev": 0.1},
    "SpatialDropout2D": {"rate": 0.2},
    "AlphaDropout": {"rate": 0.2},
}


def shear(rng: np.random.Generator) -> Case:
    """A layer whose own configuration Keras 3.15 refuses to load again."""
    from keras import Input, Model, layers

    image = Input((6, 6, 3), name="image")
    model = Model(image, layers.Dense(2, name="label")(layers.GlobalAveragePooling2D()(layers.RandomShear(x_factor=0.1, name="shear")(image))))
    shake(model, rng, 0.5)
    return Case(model, {"image": rng.uniform(0, 1, (3, 6, 6, 3)).astype(np.float32)})


def random_crop(rng: np.random.Generator) -> Case:
    """A random crop, which in inference is one in the middle; and the resizings."""
    from keras import Input, Model, layers

    image = Input((10, 12, 3), name="image")
    parts = [
        layers.RandomCrop(6, 6, name="crop")(image),
        layers.CenterCrop(6, 6, name="centre")(image),
        layers.Resizing(6, 6, crop_to_aspect_ratio=True, name="cropped")(image),
        layers.Resizing(6, 6, pad_to_aspect_ratio=True, name="padded")(image),
        layers.UpSampling2D(2, name="up")(image),
    ]
    model = Model(image, parts)
    return Case(model, {"image": rng.uniform(0, 1, (3, 10, 12, 3)).astype(np.float32)})


def categories(rng: np.random.Generator) -> Case:
    """Tables in the model: buckets, one-hot codes, hashed integers, statistics."""
    from keras import Input, Model, layers

    age, colour, income = Input((1,), name="age"), Input((2,), dtype="int32", name="colour"), Input((3,), name="income")
    statistics = layers.Normalization(mean=[1.0, 2.0, 3.0], variance=[1.0, 4.0, 9.0])
    parts = [
        layers.CategoryEncoding(4, output_mode="one_hot", name="one_hot")(layers.Discretization(bin_boundaries=[0.0, 10.0, 20.0], name="bins")(age)),
        layers.CategoryEncoding(5, output_mode="multi_hot", name="multi")(colour),
        statistics(income),
    ]
    model = Model([age, colour, income], layers.Dense(3, activation="softmax", name="label")(layers.Concatenate()(parts)))
    shake(model, rng, 0.5)
    golden = {
        "age": rng.uniform(-5, 30, (6, 1)).astype(np.float32),
        "colour": rng.integers(0, 5, (6, 2)).astype(np.int32),
        "income": normal(rng, 6, 3),
    }
    return Case(model, golden, "argmax")


def hashed(rng: np.random.Generator) -> Case:
    """Hashing of whole numbers, and of pairs of them."""
    from keras import Input, Model, layers

    ident = Input((2,), dtype="int64", name="ident")
    model = Model(ident, layers.Dense(2, name="label")(layers.Flatten()(layers.Embedding(16, 3)(layers.Hashing(16, name="hashed")(ident)))))
    shake(model, rng, 0.5)
    return Case(model, {"ident": rng.integers(0, 10**6, (5, 2))})


def string_lookup(rng: np.random.Generator) -> Case:
    """Words in, numbers out."""
    from keras import Input, Model, layers

    word = Input((2,), dtype="string", name="word")
    ids = layers.StringLookup(vocabulary=["cat", "dog", "owl"], name="lookup")(word)
    model = Model(word, layers.Dense(2, name="label")(layers.Flatten()(layers.Embedding(5, 3)(ids))))
    shake(model, rng, 0.5)
    return Case(model, {"word": np.array([["cat", "dog"], ["owl", "emu"], ["dog", ""]])}, known=False)


def words_out(rng: np.random.Generator) -> Case:
    """Numbers in, words out."""
    from keras import Input, Model, layers, ops

    row = Input((4,), name="row")
    scores = layers.Dense(3, name="scores")(row)
    word = layers.StringLookup(vocabulary=["cat", "dog", "owl"], num_oov_indices=0, invert=True, name="word")(ops.argmax(scores, axis=-1))
    model = Model(row, [scores, word])
    shake(model, rng, 0.8)
    return Case(model, {"row": normal(rng, 4, 4)}, known=False)


ZOO_LAYERS: dict[str, Builder] = {
    "return_state": return_state,
    "bidirectional": bidirectional,
    "stateful": stateful,
    "conv_lstm": conv_lstm,
    "convolutions": convolutions,
    "grouped": grouped,
    "transposed": transposed,
    "channels_first": channels_first,
    "attention": attention,
    "normalisations": normalisations,
    "poolings": poolings,
    "augmentations": augmentations,
    "shear": shear,
    "random_crop": random_crop,
    "categories": categories,
    "hashed": hashed,
    "string_lookup": string_lookup,
    "words_out": words_out,
}

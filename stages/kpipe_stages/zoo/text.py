"""Preprocessing of text, categories and numbers inside the model."""

from __future__ import annotations

from kpipe_stages.zoo.case import FREE_IDS, MATRIX, NATURAL, SENTENCE, VECTOR, WORDS, Given, Unit, config, layer

COLOURS = ["red", "green", "blue"]
FEW = Given((4,), "int32", "ids:6")

UNITS: tuple[Unit, ...] = (
    layer(
        "TextVectorization",
        config("int", lambda k, x: k.layers.TextVectorization(vocabulary=COLOURS, output_sequence_length=4)(x), SENTENCE),
        config("multi hot", lambda k, x: k.layers.TextVectorization(vocabulary=COLOURS, output_mode="multi_hot")(x), SENTENCE),
        config("count", lambda k, x: k.layers.TextVectorization(vocabulary=COLOURS, output_mode="count")(x), SENTENCE),
        policies=(),
    ),
    layer(
        "StringLookup",
        config("int", lambda k, x: k.layers.StringLookup(vocabulary=COLOURS)(x), WORDS),
        config("one hot", lambda k, x: k.layers.StringLookup(vocabulary=COLOURS, output_mode="multi_hot")(x), WORDS),
        config("inverse", lambda k, x: k.layers.StringLookup(vocabulary=COLOURS, invert=True)(x), Given((4,), "int64", "ids:4")),
        policies=(),
    ),
    layer(
        "IntegerLookup",
        config("int", lambda k, x: k.layers.IntegerLookup(vocabulary=[2, 4, 6])(x), Given((4,), "int64", "ids:8")),
        config("multi hot", lambda k, x: k.layers.IntegerLookup(vocabulary=[2, 4, 6], output_mode="multi_hot")(x), Given((4,), "int64", "ids:8")),
        policies=(),
    ),
    layer(
        "Hashing",
        config("strings", lambda k, x: k.layers.Hashing(num_bins=5)(x), WORDS),
        config("integers", lambda k, x: k.layers.Hashing(num_bins=5)(x), Given((4,), "int64", "ids:100")),
        policies=(),
    ),
    layer(
        "HashedCrossing",
        config(
            "strings", lambda k, a, b: k.layers.HashedCrossing(num_bins=5)((a, b)), Given((1,), "string", "words"), Given((1,), "string", "words")
        ),
        policies=(),
    ),
    layer(
        "Discretization",
        config("int", lambda k, x: k.layers.Discretization(bin_boundaries=[-1.0, 0.0, 1.0])(x), VECTOR),
        config("one hot", lambda k, x: k.layers.Discretization(bin_boundaries=[-1.0, 0.0, 1.0], output_mode="one_hot")(x), Given((1,))),
    ),
    layer(
        "Normalization",
        config(
            "given statistics", lambda k, x: k.layers.Normalization(mean=[0.0, 1.0, 2.0, 3.0, 4.0], variance=[1.0, 2.0, 3.0, 4.0, 5.0])(x), MATRIX
        ),
        config("inverse", lambda k, x: k.layers.Normalization(mean=1.0, variance=4.0, axis=None, invert=True)(x), MATRIX),
    ),
    layer(
        "CategoryEncoding",
        config("multi hot", lambda k, x: k.layers.CategoryEncoding(num_tokens=6)(x), FEW),
        config("one hot", lambda k, x: k.layers.CategoryEncoding(num_tokens=6, output_mode="one_hot")(x), Given((1,), "int32", "ids:6")),
        config("count", lambda k, x: k.layers.CategoryEncoding(num_tokens=6, output_mode="count")(x), FEW),
        config("count, free length", lambda k, x: k.layers.CategoryEncoding(num_tokens=10, output_mode="count")(x), FREE_IDS),
        config("multi hot, int64", lambda k, x: k.layers.CategoryEncoding(num_tokens=10)(x), NATURAL.of("int64")),
    ),
)

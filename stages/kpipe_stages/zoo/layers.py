"""Core, merging, normalising and regularising layers, and attention."""

from __future__ import annotations

from typing import Any

from kpipe_stages.zoo.case import IDS, IMAGE, MATRIX, STEPS, VECTOR, VOLUME, Case, Given, Unit, config, layer, made

QUERY, VALUE = Given((5, 8)), Given((6, 8))
MASK = Given((5, 6), "bool", "bool")


def _quantised(mode: str) -> Any:
    def finish(_: Any, model: Any) -> None:
        model.quantize(mode)

    return finish


def _lora(_: Any, model: Any) -> None:
    for one in model.layers:
        if hasattr(one, "enable_lora"):
            one.enable_lora(2)


def _dense(keras: Any, x: Any) -> Any:
    return keras.layers.Dense(4)(keras.layers.Dense(8, activation="relu")(x))


def _there_and_back(keras: Any, x: Any) -> Any:
    table = keras.layers.ReversibleEmbedding(10, 4)
    return table(table(x), reverse=True)


def _extended(unit: Unit, *cases: Case) -> Unit:
    return Unit(unit.name, unit.group, unit.names, (*unit.cases, *cases))


DENSE = _extended(
    made("Dense", VECTOR, plain={"units": 4}, relu={"units": 4, "activation": "relu"}, no_bias={"units": 4, "use_bias": False}),
    Case("Dense", "rank 3", (STEPS,), lambda k, x: k.layers.Dense(4)(x)),
    Case("Dense", "float64", (VECTOR.of("float64"),), lambda k, x: k.layers.Dense(4)(x), policy="float64"),
    Case("Dense", "bfloat16", (VECTOR.of("bfloat16"),), lambda k, x: k.layers.Dense(4)(x), policy="bfloat16"),
    Case("Dense", "int8 by Keras", (VECTOR,), _dense, finish=_quantised("int8")),
    Case("Dense", "int4 by Keras", (VECTOR,), _dense, finish=_quantised("int4")),
    Case("Dense", "LoRA", (VECTOR,), _dense, finish=_lora),
)

MERGED = (MATRIX, MATRIX)


def _merge(name: str, function: str, **arguments: Any) -> Unit:
    return layer(
        name,
        config("two", lambda k, a, b: getattr(k.layers, name)(**arguments)([a, b]), *MERGED),
        config("broadcast", lambda k, a, b: getattr(k.layers, name)(**arguments)([a, b]), MATRIX, Given((1, 5)))
        if name not in {"Concatenate", "Dot"}
        else config("last axis", lambda k, a, b: getattr(k.layers, name)(**{**arguments, "axes" if name == "Dot" else "axis": -1})([a, b]), *MERGED),
        config(f"{function}()", lambda k, a, b: getattr(k.layers, function)([a, b], **arguments), *MERGED),
        also=(function,),
    )


def _attend(name: str, **variants: dict[str, Any]) -> Unit:
    lines = [
        config(title.replace("_", " "), lambda k, q, v, a=arguments: getattr(k.layers, name)(**a)([q, v]), QUERY, VALUE)
        for title, arguments in variants.items()
    ]
    causal = config("causal", lambda k, x: getattr(k.layers, name)(**variants["plain"])([x, x], use_causal_mask=True), QUERY)
    return layer(name, *lines, causal)


UNITS: tuple[Unit, ...] = (
    DENSE,
    layer(
        "EinsumDense",
        config("ab,bc->ac", lambda k, x: k.layers.EinsumDense("ab,bc->ac", 4, bias_axes="c")(x), VECTOR),
        config("abc,cd->abd", lambda k, x: k.layers.EinsumDense("abc,cd->abd", (None, 5), bias_axes="d")(x), STEPS),
        config("abc,cde->abde", lambda k, x: k.layers.EinsumDense("abc,cde->abde", (None, 2, 3))(x), STEPS),
    ),
    layer(
        "Embedding",
        config("int32", lambda k, x: k.layers.Embedding(10, 4)(x), IDS),
        config("mask_zero into LSTM", lambda k, x: k.layers.LSTM(3)(k.layers.Embedding(10, 4, mask_zero=True)(x)), IDS),
        config("int64", lambda k, x: k.layers.Embedding(10, 4)(x), IDS.of("int64")),
        config("uint8", lambda k, x: k.layers.Embedding(10, 4)(x), IDS.of("uint8")),
        config("free length", lambda k, x: k.layers.Embedding(10, 4)(x), Given((None,), "int32", "ids:10")),
    ),
    layer(
        "ReversibleEmbedding",
        config("forth", lambda k, x: k.layers.ReversibleEmbedding(10, 4)(x), IDS),
        config("forth and back", _there_and_back, IDS),
    ),
    layer(
        "Activation",
        config("relu", lambda k, x: k.layers.Activation("relu")(x), VECTOR),
        config("gelu", lambda k, x: k.layers.Activation("gelu")(x), VECTOR),
    ),
    made("ActivityRegularization", VECTOR, plain={"l2": 0.1}),
    made("Identity", VECTOR, plain={}),
    made("Flatten", IMAGE, plain={}, channels_first={"data_format": "channels_first"}),
    made("Reshape", VECTOR, plain={"target_shape": (2, 4)}, inferred={"target_shape": (-1, 2)}),
    made("Permute", STEPS, plain={"dims": (2, 1)}),
    made("RepeatVector", VECTOR, plain={"n": 3}),
    made("Rescaling", IMAGE, plain={"scale": 0.5, "offset": 1.0}, by_channel={"scale": [0.5, 1.0, 2.0], "offset": [0.0, 1.0, -1.0]}),
    *(
        _merge(*pair)
        for pair in (
            ("Add", "add"),
            ("Average", "average"),
            ("Concatenate", "concatenate"),
            ("Maximum", "maximum"),
            ("Minimum", "minimum"),
            ("Multiply", "multiply"),
            ("Subtract", "subtract"),
        )
    ),
    _merge("Dot", "dot", axes=2),
    made("BatchNormalization", IMAGE, plain={}, no_scale={"scale": False, "center": False}, axis_1={"axis": 1}),
    made("LayerNormalization", STEPS, plain={}, two_axes={"axis": [1, 2]}),
    made("RMSNormalization", STEPS, plain={}),
    made("GroupNormalization", Given((8, 8, 4)), plain={"groups": 2}, instance={"groups": -1}),
    made("UnitNormalization", STEPS, plain={}, axis_1={"axis": 1}),
    layer(
        "SpectralNormalization",
        config("Dense", lambda k, x: k.layers.SpectralNormalization(k.layers.Dense(4))(x), VECTOR),
        config("Conv2D", lambda k, x: k.layers.SpectralNormalization(k.layers.Conv2D(2, 3))(x), IMAGE),
    ),
    made("ReLU", VECTOR, plain={}, capped={"max_value": 1.0, "negative_slope": 0.1, "threshold": 0.2}),
    made("LeakyReLU", VECTOR, plain={}),
    made("PReLU", IMAGE, plain={}, shared_axes={"shared_axes": [1, 2]}),
    made("ELU", VECTOR, plain={}),
    made("Softmax", STEPS, plain={}, axis_1={"axis": 1}),
    *(made(name, VECTOR, plain={"rate": 0.3}) for name in ("Dropout", "AlphaDropout", "GaussianDropout")),
    made("GaussianNoise", VECTOR, plain={"stddev": 0.3}),
    made("SpatialDropout1D", STEPS, plain={"rate": 0.3}),
    made("SpatialDropout2D", IMAGE, plain={"rate": 0.3}),
    made("SpatialDropout3D", VOLUME, plain={"rate": 0.3}),
    _attend("Attention", plain={}, scaled={"use_scale": True}, concat={"score_mode": "concat"}),
    _attend("AdditiveAttention", plain={}),
    layer(
        "MultiHeadAttention",
        config("self", lambda k, x: k.layers.MultiHeadAttention(2, 4)(x, x), QUERY),
        config("cross", lambda k, q, v: k.layers.MultiHeadAttention(2, 4)(q, v), QUERY, VALUE),
        config("causal", lambda k, x: k.layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True), QUERY),
        config("mask", lambda k, q, v, m: k.layers.MultiHeadAttention(2, 4)(q, v, attention_mask=m), QUERY, VALUE, MASK),
        config("free length", lambda k, x: k.layers.MultiHeadAttention(2, 4)(x, x), Given((None, 8))),
    ),
    layer(
        "GroupQueryAttention",
        config("self", lambda k, x: k.layers.GroupQueryAttention(4, 4, 2)(x, x), QUERY),
        config("causal", lambda k, x: k.layers.GroupQueryAttention(4, 4, 2)(x, x, use_causal_mask=True), QUERY),
    ),
    layer(
        "Pipeline",
        config("two layers", lambda k, x: k.layers.Pipeline([k.layers.Rescaling(0.5), k.layers.CenterCrop(4, 4)])(x), IMAGE),
    ),
)

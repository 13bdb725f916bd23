"""Convolutions, pooling, padding, cropping and upsampling in one, two and three dimensions."""

from __future__ import annotations

from typing import Any

from kpipe_stages.zoo.case import FREE_IMAGE, FREE_STEPS, IMAGE, STEPS, VOLUME, Case, Given, Unit, layer, made

GIVEN = {1: STEPS, 2: IMAGE, 3: VOLUME}
FREE = {1: FREE_STEPS, 2: FREE_IMAGE, 3: Given((None, None, None, 2))}
FIRST = {1: Given((4, 6)), 2: Given((3, 8, 8)), 3: Given((2, 4, 4, 4))}
SINGLE = {1: Given((6, 1)), 2: Given((8, 8, 1)), 3: Given((4, 4, 4, 1))}
FOUR = {1: Given((6, 4)), 2: Given((8, 8, 4)), 3: Given((4, 4, 4, 4))}


def _with(unit: Unit, *cases: Case) -> Unit:
    """More cases; they come before the ones under other policies."""
    return Unit(unit.name, unit.group, unit.names, (*unit.cases, *cases))


def _case(name: str, title: str, given: Given, **arguments: Any) -> Case:
    return Case(name, title, (given,), lambda k, x: getattr(k.layers, name)(**arguments)(x))


def _conv(rank: int) -> Unit:
    name = f"Conv{rank}D"
    return _with(
        made(
            name,
            GIVEN[rank],
            needed={"filters": 4, "kernel_size": 3},
            valid={},
            strides_2={"strides": 2, "padding": "same"},
            dilated={"dilation_rate": 2, "padding": "same"},
            **({"causal": {"padding": "causal"}} if rank == 1 else {}),
        ),
        _case(name, "groups 2", FOUR[rank], filters=4, kernel_size=3, groups=2),
        _case(name, "channels first", FIRST[rank], filters=4, kernel_size=3, data_format="channels_first"),
        _case(name, "free size", FREE[rank], filters=4, kernel_size=3, padding="same"),
    )


def _transposed(rank: int) -> Unit:
    name = f"Conv{rank}DTranspose"
    return _with(
        made(
            name,
            GIVEN[rank],
            needed={"filters": 4, "kernel_size": 3},
            valid={},
            strides_2_same={"strides": 2, "padding": "same"},
            output_padding={"strides": 2, "padding": "valid", "output_padding": 1},
        ),
        _case(name, "free size", FREE[rank], filters=4, kernel_size=3, strides=2, padding="same"),
        _case(name, "free size, output padding", FREE[rank], filters=4, kernel_size=3, strides=2, padding="valid", output_padding=1),
    )


def _depthwise(rank: int, name: str, **needed: Any) -> Unit:
    return _with(
        made(
            name,
            GIVEN[rank],
            needed={"kernel_size": 3, **needed},
            valid={},
            strides_2={"strides": 2, "padding": "same"},
            multiplier_2={"depth_multiplier": 2},
            dilated={"dilation_rate": 2, "padding": "same"},
        ),
        _case(name, "free size", FREE[rank], kernel_size=3, padding="same", **needed),
    )


def _pool(kind: str, rank: int) -> Unit:
    name = f"{kind}Pooling{rank}D"
    return _with(
        made(
            name,
            GIVEN[rank],
            plain={"pool_size": 2},
            same={"padding": "same", "pool_size": 3, "strides": 2},
            overlapping={"pool_size": 3, "strides": 1},
        ),
        _case(name, "channels first", FIRST[rank], pool_size=2, data_format="channels_first"),
        _case(name, "free size", FREE[rank], pool_size=2),
    )


def _global(kind: str, rank: int) -> Unit:
    name = f"Global{kind}Pooling{rank}D"
    return _with(made(name, GIVEN[rank], plain={}, kept={"keepdims": True}), _case(name, "free size", FREE[rank]))


def _adaptive(kind: str, rank: int) -> Unit:
    name = f"Adaptive{kind}Pooling{rank}D"
    return made(name, GIVEN[rank], even={"output_size": 2}, uneven={"output_size": 3})


def _resized(name: str, rank: int, argument: str, uneven: Any) -> Unit:
    return _with(
        made(name, GIVEN[rank], plain={argument: 1 if argument != "size" else 2}, uneven={argument: uneven}),
        _case(name, "free size", FREE[rank], **{argument: 2}),
    )


UNITS: tuple[Unit, ...] = (
    *(_conv(rank) for rank in (1, 2, 3)),
    *(_transposed(rank) for rank in (1, 2, 3)),
    _depthwise(1, "DepthwiseConv1D"),
    _depthwise(2, "DepthwiseConv2D"),
    _depthwise(1, "SeparableConv1D", filters=4),
    _depthwise(2, "SeparableConv2D", filters=4),
    *(_pool(kind, rank) for kind in ("Average", "Max") for rank in (1, 2, 3)),
    *(_global(kind, rank) for kind in ("Average", "Max") for rank in (1, 2, 3)),
    *(_adaptive(kind, rank) for kind in ("Average", "Max") for rank in (1, 2, 3)),
    _resized("ZeroPadding1D", 1, "padding", (1, 2)),
    _resized("ZeroPadding2D", 2, "padding", ((1, 2), (0, 1))),
    _resized("ZeroPadding3D", 3, "padding", ((1, 2), (0, 1), (1, 0))),
    _resized("Cropping1D", 1, "cropping", (1, 2)),
    _resized("Cropping2D", 2, "cropping", ((1, 2), (0, 1))),
    _resized("Cropping3D", 3, "cropping", ((1, 2), (0, 1), (1, 0))),
    _resized("UpSampling1D", 1, "size", 3),
    _with(
        _resized("UpSampling2D", 2, "size", (2, 3)),
        *(_case("UpSampling2D", kind, IMAGE, size=2, interpolation=kind) for kind in ("bilinear", "bicubic", "lanczos3")),
        _case("UpSampling2D", "bilinear, free size", FREE_IMAGE, size=2, interpolation="bilinear"),
    ),
    _resized("UpSampling3D", 3, "size", (1, 2, 3)),
    layer(
        "Masking",
        ("into LSTM", lambda k, x: k.layers.LSTM(3)(k.layers.Masking(0.0)(x)), (STEPS,)),
        ("alone", lambda k, x: k.layers.Masking(0.0)(x), (STEPS,)),
    ),
)

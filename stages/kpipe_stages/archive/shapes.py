"""The weights that a layer of Keras' own must have, from its config and the shape it was built with. Exact, or nothing is said.

Each rule restates the layer's ``build`` in keras 3.15; the order is the one of ``save_own_variables``: trainable weights, then the others.
A dimension that the config doesn't give is None and fits everything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe_stages.archive.layers import Layer

Shape = tuple[int | None, ...]
Config = dict[str, Any]

_VARIABLE_DTYPES = {name: name for name in ("float16", "float32", "float64", "bfloat16")} | {"mixed_float16": "float32", "mixed_bfloat16": "float32"}

_NO_WEIGHTS = """
Activation ActivityRegularization Add AlphaDropout Average AveragePooling1D AveragePooling2D AveragePooling3D CategoryEncoding CenterCrop
Concatenate Cropping1D Cropping2D Cropping3D Dot Dropout ELU Flatten GaussianDropout GaussianNoise GlobalAveragePooling1D
GlobalAveragePooling2D GlobalAveragePooling3D GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D Identity InputLayer LeakyReLU Masking
MaxPooling1D MaxPooling2D MaxPooling3D Maximum Minimum Multiply Permute ReLU RepeatVector Rescaling Reshape Resizing Softmax
SpatialDropout1D SpatialDropout2D SpatialDropout3D Subtract UnitNormalization UpSampling1D UpSampling2D UpSampling3D ZeroPadding1D
ZeroPadding2D ZeroPadding3D Bidirectional TimeDistributed RNN
"""
WEIGHTLESS = frozenset(_NO_WEIGHTS.split())
"""Layers without weights of their own (what they wrap may have some)."""

SIZES = ("units", "filters", "input_dim", "output_dim", "num_heads", "num_query_heads", "key_dim", "value_dim", "head_dim", "depth_multiplier")
"""Config fields of Keras' layers that a weight is at least as large as."""
_PRODUCTS = (("input_dim", "output_dim"), ("num_heads", "key_dim"), ("num_query_heads", "head_dim"))


@dataclass(frozen=True)
class Expected:
    """One weight."""

    path: str
    shape: Shape


class _UndeclaredError(Exception):
    """The config doesn't say."""


def expected_weights(layer: Layer) -> tuple[Expected, ...] | None:
    """Every weight of the layer itself (not of its `children`); None where no rule gives them exactly."""
    config = layer.config
    if not layer.is_keras or not layer.prefix or config.get("lora_rank") or config.get("quantization_config"):
        return None
    if layer.class_name in WEIGHTLESS or layer.is_model:
        return ()
    rule = _RULES.get(layer.class_name)
    if rule is None or (layer.dtype not in _VARIABLE_DTYPES):
        return None
    try:
        groups = rule(config, layer.build_shape)
    except _UndeclaredError:
        return None
    parts = ((group, shapes) for group, shapes in groups.items())
    return tuple(Expected(f"{layer.prefix}{group}/vars/{i}", shape) for group, shapes in parts for i, shape in enumerate(shapes))


def variable_dtype(policy: str) -> str | None:
    """Dtype of a float layer's weights under a policy; None for a policy that leaves it to the layer."""
    return _VARIABLE_DTYPES.get(policy)


def largest_declared(class_name: str, config: Config) -> tuple[str, int]:
    """The largest number of values that a Keras layer's config promises for one of its weights, and the fields that promise it."""
    found: list[tuple[tuple[str, ...], list[Any]]] = [((name,), [config.get(name)]) for name in SIZES]
    found += [((a, b), [config.get(a), config.get(b)]) for a, b in _PRODUCTS]
    kernel = config.get("kernel_size")
    if "filters" in config and isinstance(kernel, list):
        found.append((("kernel_size", "filters"), [*kernel, config["filters"]]))
    if class_name == "EinsumDense":
        shape = config.get("output_shape")
        found += [(("output_shape",), [size]) for size in (shape if isinstance(shape, list) else [shape])]
    promised = [(" x ".join(names), math.prod(int(size) for size in sizes)) for names, sizes in found if all(_is_size(size) for size in sizes)]
    return max(promised, key=lambda item: item[1], default=("", 0))


def _is_size(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _whole(config: Config, name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _UndeclaredError
    return value


def _flag(config: Config, name: str) -> bool:
    value = config.get(name)
    if not isinstance(value, bool):
        raise _UndeclaredError
    return value


def _sizes(config: Config, name: str, rank: int) -> Shape:
    value = config.get(name)
    values = [value] * rank if isinstance(value, int) else value
    if not isinstance(values, list) or len(values) != rank or not all(isinstance(n, int) for n in values):
        raise _UndeclaredError
    return tuple(values)


def _dims(shape: Any) -> Shape | None:
    """A built shape; None where it isn't one shape."""
    if not isinstance(shape, list) or not all(n is None or (isinstance(n, int) and not isinstance(n, bool)) for n in shape):
        return None
    return tuple(shape)


def _at(shape: Any, axis: Any) -> int | None:
    dims = _dims(shape)
    if dims is None:
        return None
    if not isinstance(axis, int) or not -len(dims) <= axis < len(dims):
        raise _UndeclaredError
    return dims[axis]


def _times(a: int | None, b: int) -> int | None:
    return None if a is None else a * b


def _bias(config: Config, shape: Shape) -> list[Shape]:
    return [shape] if _flag(config, "use_bias") else []


def _dense(config: Config, built: Any) -> dict[str, list[Shape]]:
    units = _whole(config, "units")
    return {"": [(_at(built, -1), units), *_bias(config, (units,))]}


def _channels(config: Config, built: Any) -> int | None:
    axis = {"channels_last": -1, "channels_first": 1}.get(str(config.get("data_format")))
    if axis is None:
        raise _UndeclaredError
    return _at(built, axis)


def _conv(rank: int) -> Callable[[Config, Any], dict[str, list[Shape]]]:
    def rule(config: Config, built: Any) -> dict[str, list[Shape]]:
        filters, channels, groups = _whole(config, "filters"), _channels(config, built), _whole(config, "groups")
        deep = None if channels is None else channels // groups
        return {"": [(*_sizes(config, "kernel_size", rank), deep, filters), *_bias(config, (filters,))]}

    return rule


def _conv_transpose(rank: int) -> Callable[[Config, Any], dict[str, list[Shape]]]:
    def rule(config: Config, built: Any) -> dict[str, list[Shape]]:
        filters = _whole(config, "filters")
        return {"": [(*_sizes(config, "kernel_size", rank), filters, _channels(config, built)), *_bias(config, (filters,))]}

    return rule


def _depthwise_conv(rank: int) -> Callable[[Config, Any], dict[str, list[Shape]]]:
    def rule(config: Config, built: Any) -> dict[str, list[Shape]]:
        channels, multiplier = _channels(config, built), _whole(config, "depth_multiplier")
        return {"": [(*_sizes(config, "kernel_size", rank), channels, multiplier), *_bias(config, (_times(channels, multiplier),))]}

    return rule


def _separable_conv(rank: int) -> Callable[[Config, Any], dict[str, list[Shape]]]:
    def rule(config: Config, built: Any) -> dict[str, list[Shape]]:
        channels, multiplier, filters = _channels(config, built), _whole(config, "depth_multiplier"), _whole(config, "filters")
        depthwise: Shape = (*_sizes(config, "kernel_size", rank), channels, multiplier)
        pointwise: Shape = (*(1,) * rank, _times(channels, multiplier), filters)
        return {"": [depthwise, pointwise, *_bias(config, (filters,))]}

    return rule


def _embedding(config: Config, _: Any) -> dict[str, list[Shape]]:
    return {"": [(_whole(config, "input_dim"), _whole(config, "output_dim"))]}


def _batch_norm(config: Config, built: Any) -> dict[str, list[Shape]]:
    if config.get("renorm"):
        raise _UndeclaredError
    return {"": [(_at(built, config.get("axis")),)] * (2 + _flag(config, "scale") + _flag(config, "center"))}


def _axes(config: Config, built: Any) -> Shape:
    axis = config.get("axis")
    axes = sorted(axis) if isinstance(axis, list) and all(isinstance(n, int) for n in axis) else [axis]
    return tuple(_at(built, n) for n in axes)


def _layer_norm(config: Config, built: Any) -> dict[str, list[Shape]]:
    rms = bool(config.get("rms_scaling"))
    return {"": [_axes(config, built)] * ((_flag(config, "scale") or rms) + (_flag(config, "center") and not rms))}


def _group_norm(config: Config, built: Any) -> dict[str, list[Shape]]:
    return {"": [(_at(built, config.get("axis")),)] * (_flag(config, "scale") + _flag(config, "center"))}


def _rms_norm(config: Config, built: Any) -> dict[str, list[Shape]]:
    return {"": [_axes(config, built)]}


def _prelu(config: Config, built: Any) -> dict[str, list[Shape]]:
    dims, shared = _dims(built), config.get("shared_axes") or []
    if dims is None or not isinstance(shared, list):
        raise _UndeclaredError
    return {"": [tuple(1 if i + 1 in shared else n for i, n in enumerate(dims[1:]))]}


def _recurrent(gates: int, group: str, *, resets: bool = False) -> Callable[[Config, Any], dict[str, list[Shape]]]:
    def rule(config: Config, built: Any) -> dict[str, list[Shape]]:
        units = _whole(config, "units")
        bias: Shape = (2, gates * units) if resets and _flag(config, "reset_after") else (gates * units,)
        return {group: [(_at(built, -1), gates * units), (units, gates * units), *_bias(config, bias)]}

    return rule


def _attention(config: Config, built: Any) -> dict[str, list[Shape]]:
    heads, key = _whole(config, "num_heads"), _whole(config, "key_dim")
    value = key if config.get("value_dim") is None else _whole(config, "value_dim")
    if not isinstance(built, dict) or config.get("output_shape") is not None:
        raise _UndeclaredError
    query = built.get("query_shape")
    values = built.get("value_shape")
    keys = built.get("key_shape") or values
    dense = {"query": (query, key), "key": (keys, key), "value": (values, value)}
    groups = {f"/{name}_dense": [(_at(shape, -1), heads, size), *_bias(config, (heads, size))] for name, (shape, size) in dense.items()}
    return groups | {"/output_dense": [(heads, value, _at(query, -1)), *_bias(config, (_at(query, -1),))]}


_RULES: dict[str, Callable[[Config, Any], dict[str, list[Shape]]]] = {
    "BatchNormalization": _batch_norm,
    "Dense": _dense,
    "Embedding": _embedding,
    "GRU": _recurrent(3, "/cell", resets=True),
    "GRUCell": _recurrent(3, "", resets=True),
    "GroupNormalization": _group_norm,
    "LSTM": _recurrent(4, "/cell"),
    "LSTMCell": _recurrent(4, ""),
    "LayerNormalization": _layer_norm,
    "MultiHeadAttention": _attention,
    "PReLU": _prelu,
    "RMSNormalization": _rms_norm,
    "SimpleRNN": _recurrent(1, "/cell"),
    "SimpleRNNCell": _recurrent(1, ""),
    **{f"Conv{rank}D": _conv(rank) for rank in (1, 2, 3)},
    **{f"Conv{rank}DTranspose": _conv_transpose(rank) for rank in (1, 2, 3)},
    **{f"DepthwiseConv{rank}D": _depthwise_conv(rank) for rank in (1, 2)},
    **{f"SeparableConv{rank}D": _separable_conv(rank) for rank in (1, 2)},
}

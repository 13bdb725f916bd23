"""The inputs and outputs that a functional or sequential model's config declares, named as `kpipe_stages.keras_calling` names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kpipe_stages.archive.shapes import variable_dtype
from kpipe_stages.keras_calling import unique_names
from kpipe_stages.protocol import Signature, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpipe_stages.archive.layers import Layer

Path = tuple[str | int, ...]
HISTORY = 3
"""A tensor in a config: layer name, call, output."""
_COMPUTE_DTYPES = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}
_SAME_SHAPE = frozenset({"Activation", "Softmax", "ReLU", "LeakyReLU", "ELU", "PReLU", "Dropout", "LayerNormalization", "BatchNormalization"})


def read_signature(config: dict[str, Any], layers: tuple[Layer, ...]) -> Signature | None:
    """Names, shapes and dtypes in the model's own order; None for a subclassed model, and for a config that contradicts itself.

    An output's shape is None and its dtype empty where only the layer itself could tell.
    """
    inner = config.get("config")
    if not isinstance(inner, dict) or not layers:
        return None
    by_name = {layer.name: layer for layer in layers}
    if "input_layers" not in inner:
        return _sequential(inner, layers)
    inputs = [by_name.get(name) for _, name in _leaves(inner["input_layers"], ())]
    outputs = [(path, by_name.get(name)) for path, name in _leaves(inner.get("output_layers"), ())]
    if not inputs or not outputs or any(layer is None for layer in inputs) or any(layer is None for _, layer in outputs):
        return None
    specs = [_input(layer) for layer in inputs if layer is not None]
    if any(spec is None for spec in specs):
        return None
    entries = {str(entry.get("name")): entry for entry in inner["layers"] if isinstance(entry, dict)}
    named = [(_output_name(path, layer), layer) for path, layer in outputs if layer is not None]
    return _unique([s for s in specs if s], [_output(name, layer, entries.get(layer.name, {})) for name, layer in named])


def _sequential(inner: dict[str, Any], layers: tuple[Layer, ...]) -> Signature | None:
    spec = _input(layers[0])
    if spec is None:
        return None
    entries = [entry for entry in inner["layers"] if isinstance(entry, dict)]
    return Signature((spec,), (_output(layers[-1].name, layers[-1], entries[-1]),))


def _leaves(structure: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Layer names in the order in which Keras flattens a structure: dicts by sorted key."""
    if isinstance(structure, list) and len(structure) == HISTORY and isinstance(structure[0], str):
        yield path, structure[0]
    elif isinstance(structure, dict):
        for key in sorted(structure):
            yield from _leaves(structure[key], (*path, key))
    elif isinstance(structure, list):
        for position, item in enumerate(structure):
            yield from _leaves(item, (*path, position))


def _input(layer: Layer) -> TensorSpec | None:
    if layer.class_name != "InputLayer":
        return None
    shape, dtype = _shape(layer.config.get("batch_shape", layer.config.get("batch_input_shape"))), layer.config.get("dtype")
    return TensorSpec(layer.name, shape, dtype) if isinstance(dtype, str) else None


def _output_name(path: Path, layer: Layer) -> str:
    return "/".join(str(part) for part in path) if any(isinstance(part, str) for part in path) else layer.name


def _output(name: str, layer: Layer, entry: dict[str, Any]) -> TensorSpec:
    given = _input(layer)
    if given is not None:
        return TensorSpec(name, given.shape, given.dtype)
    shape, units = None, layer.config.get("units")
    if layer.is_keras and layer.class_name == "Dense" and isinstance(units, int):
        built = _shape(layer.build_shape)
        shape = (*built[:-1], units) if built else None
    elif layer.is_keras and layer.class_name in _SAME_SHAPE:
        shape = _called_with(entry) or _shape(layer.build_shape)
    if shape is None:
        return TensorSpec(name, None, "")
    policy = layer.dtype
    return TensorSpec(name, shape, _COMPUTE_DTYPES.get(policy) or variable_dtype(policy) or "")


def _called_with(entry: dict[str, Any]) -> tuple[int | None, ...] | None:
    """Shape of the one tensor that the layer is called with; None where it is called more than once."""
    nodes = entry.get("inbound_nodes")
    arguments = nodes[0].get("args") if isinstance(nodes, list) and len(nodes) == 1 and isinstance(nodes[0], dict) else None
    first = arguments[0] if isinstance(arguments, list) and arguments else None
    tensor = first.get("config") if isinstance(first, dict) and first.get("class_name") == "__keras_tensor__" else None
    return _shape(tensor.get("shape")) if isinstance(tensor, dict) else None


def _shape(value: Any) -> tuple[int | None, ...] | None:
    if not isinstance(value, list) or not all(n is None or (isinstance(n, int) and not isinstance(n, bool)) for n in value):
        return None
    return tuple(value)


def _unique(inputs: list[TensorSpec], outputs: list[TensorSpec]) -> Signature:
    return Signature(tuple(_renamed(inputs)), tuple(_renamed(outputs)))


def _renamed(specs: list[TensorSpec]) -> Iterator[TensorSpec]:
    for name, spec in zip(unique_names([spec.name for spec in specs]), specs, strict=True):
        yield TensorSpec(name, spec.shape, spec.dtype)

"""The one trace that every artifact is made from: a TensorFlow function with ``training=False``, all free axes free, weights frozen."""

# ruff: noqa: SLF001 - Keras has no public way to all layers of a model, nested ones too; a version that changes it fails the tests

from __future__ import annotations

import math
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kpipe_stages.artifacts.inventory import identifiers
from kpipe_stages.keras_loading import telling_line
from kpipe_stages.protocol import Observation, Signature, StageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kpipe_stages.keras_loading import KerasCaller

MOST_FROZEN_BYTES = 1_500_000_000
"""A graph is one protobuf of at most 2 GiB; above this, weights stay variables in the SavedModel's own files."""
USUAL = frozenset({"float32", "int32", "int64", "bool", "resource", "variant", "string"})
"""Dtypes that nearly every graph has: naming them names no layer."""
LOOPS = ("While", "StatelessWhile")
STATE_OPS = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "ResourceScatterUpdate")
RANDOM_OPS = (
    "RandomUniform", "RandomStandardNormal", "RandomUniformInt", "TruncatedNormal", "Multinomial", "RandomGammaV3",
    "StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessRandomUniformIntV2", "StatelessTruncatedNormalV2", "StatelessMultinomial",
)  # fmt: skip


@dataclass(frozen=True)
class Trace:
    """A concrete function of flat tensors in, flat tensors out, both in the model's order."""

    signature: Signature
    """The model's own."""
    inputs: tuple[str, ...]
    """Name of each input in the artifacts: the model's, or the nearest that TensorFlow takes."""
    function: Any
    """The concrete function; its weights are constants where ``frozen``."""
    frozen: bool
    why_not_frozen: str
    keep: Any
    """What a SavedModel must track besides the function: its tables, or the whole model where it isn't frozen; None for nothing."""
    layers: frozenset[str]
    """Layer names, for telling where an op comes from."""
    batch: int | None = None
    """The batch size it was traced with, None for a free axis."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs: the model's own."""
        return tuple(spec.name for spec in self.signature.outputs)

    @cached_property
    def nodes(self) -> tuple[tuple[str, str], ...]:
        """Every node's (op type, name), functions included; kept, because a GraphDef holds a copy of the weights."""
        graph = self.function.graph.as_graph_def()
        return tuple((node.op, node.name) for nodes in (graph.node, *(f.node_def for f in graph.library.function)) for node in nodes)

    def op_types(self) -> set[str]:
        """Every op type in it."""
        return {op for op, _ in self.nodes}

    @cached_property
    def op_layers(self) -> dict[str, list[str]]:
        """Op type to the layers that it comes from, once each."""
        found: dict[str, dict[str, None]] = {}
        for op, name in self.nodes:
            if place := self.layer_of(name):
                found.setdefault(op, {})[place] = None
        return {op: list(places) for op, places in found.items()}

    def places_of(self, op: str) -> list[str]:
        """Layers that an op type comes from, once each."""
        return self.op_layers.get(op, [])

    def layers_with(self, words: set[str]) -> list[str]:
        """Layers of nodes of an unusual dtype that one of ``words`` names (``float8_e4m3fn``, or MLIR's ``f8E4M3FN``), once each."""
        import tensorflow as tf

        wanted = {word.lower().replace("float", "f").replace("_", "") for word in words}
        found: dict[str, None] = {}
        for operation in self.function.graph.get_operations():
            kinds = {tf.as_dtype(tensor.dtype).base_dtype.name for tensor in operation.outputs}
            short = {kind.replace("float", "f").replace("_", "") for kind in kinds if kind not in USUAL}
            if short & wanted and (place := self.layer_of(operation.name)):
                found[place] = None
        return list(found)

    def layer_of(self, path: str) -> str:
        """`layer_of` this model's layers."""
        return layer_of(path, self.layers)


def layer_of(path: str, layers: frozenset[str]) -> str:
    """The innermost layer named in an op's path; empty for an op of the model's own ``call`` or of ``keras.ops`` in a functional model."""
    for part in reversed(path.split("/")[:-1]):
        for name in (part, re.sub(r"_\d+$", "", part)):
            if name in layers:
                return name
    return ""


def layer_names_of(model: Any) -> frozenset[str]:
    """Names of all layers of a model, nested ones too."""
    return frozenset(layer.name for layer in model._flatten_layers() if layer is not model)


def trace(caller: KerasCaller, *, batch: int | None = None, prune: bool = False) -> Trace:
    """Trace the model once.

    Args:
        caller: the model.
        batch: fixes every free batch axis at this size; None leaves it free.
        prune: leave out what no output depends on, state that is written and never read among it.

    Raises:
        StageError: KP201, naming the layer in which TensorFlow refused.
    """
    import tensorflow as tf

    specs = caller.signature.inputs
    names = identifiers([spec.name for spec in specs])
    shapes = [_with_batch(spec.shape, batch) for spec in specs]
    arguments = [tf.TensorSpec(shape, spec.dtype, name=name) for spec, name, shape in zip(specs, names, shapes, strict=True)]

    def serve(*values: Any) -> list[Any]:
        outputs = caller({spec.name: value for spec, value in zip(specs, values, strict=True)})
        return [tf.identity(value) for value in outputs.values()]  # so that an output that is an input, or is there twice, stays one of its own

    try:
        with _whole_tracebacks():
            function = tf.function(serve, autograph=False).get_concrete_function(*arguments)
    except Exception as error:  # layers raise anything while they are traced; it ends the export as one finding that names the layer
        raise _untraceable(error) from error
    if prune:
        function = _pruned(function, len(specs))
    frozen, why = _freeze(function, caller)
    layers = layer_names_of(caller.model)
    return Trace(
        _as_traced(caller.signature, function, batch),
        names,
        frozen or function,
        frozen is not None,
        why,
        _resources(caller.model, frozen),
        layers,
        batch,
    )


def observe_state(traced: Trace) -> list[Observation]:
    """KP214 where the graph draws random numbers or changes the model's own state: such an artifact gives no fixed answer."""
    kinds = traced.op_types()
    found = [op for op in (*RANDOM_OPS, *STATE_OPS) if op in kinds]
    if not found:
        return []
    places = list(dict.fromkeys(place for op in found for place in traced.places_of(op)))
    what = "draws random numbers" if set(found) & set(RANDOM_OPS) else "changes its own state"
    where = f" in layer {', '.join(places[:4])}" if places else ""
    return [
        Observation(
            "KP214",
            f"The inference graph {what}{where} ({', '.join(found)}): the same input need not give the same answer.",
            "Build the layer without training=True (and recurrent layers without stateful=True) for the model that ships.",
            place=places[0] if places else "",
            evidence={"ops": found, "layers": places},
        )
    ]


def as_given(traced: Trace) -> tuple[Signature, list[Observation]]:
    """The signature with its outputs as the trace gives them, and KP235 where the model declares something else.

    A layer's ``compute_output_shape`` can be wrong; what counts is what it computes, which is what every runtime is held to.
    """
    import tensorflow as tf

    outputs, seen = [], []
    for spec, tensor in zip(traced.signature.outputs, traced.function.outputs, strict=True):
        dtype = tf.as_dtype(tensor.dtype).name
        found = tuple(tensor.shape) if tensor.shape.rank is not None else spec.shape
        wrong = spec.shape is not None and found is not None and _contradicts(spec.shape, found)
        given = replace(spec, dtype=dtype, shape=found if wrong else spec.shape)
        outputs.append(given)
        if given != spec:
            seen.append(
                Observation(
                    "KP235",
                    f"Output '{spec.name}' is declared as {spec.dtype} {_shown(spec.shape)}; the model gives {given.dtype} {_shown(given.shape)}.",
                    "Mend compute_output_shape or compute_output_spec of the layer that makes it; if it is Keras' own, don't rely on what it declares.",
                    place=spec.name,
                    evidence={"declared": [spec.dtype, list(spec.shape or ())], "given": [given.dtype, list(given.shape or ())]},
                )
            )
    return replace(traced.signature, outputs=tuple(outputs)), seen


def _contradicts(declared: tuple[int | None, ...], found: tuple[int | None, ...]) -> bool:
    return len(declared) != len(found) or any(a is not None and b is not None and a != b for a, b in zip(declared, found, strict=True))


def _shown(shape: tuple[int | None, ...] | None) -> str:
    return "of unknown rank" if shape is None else "(" + ", ".join("None" if n is None else str(n) for n in shape) + ")"


def _as_traced(signature: Signature, function: Any, batch: int | None) -> Signature:
    """The signature with sizes of its outputs that Keras' own inference leaves open and the trace has fixed; the batch axis stays as it is.

    Where the two contradict each other, `as_given` says so.
    """
    outputs = []
    for spec, tensor in zip(signature.outputs, function.outputs, strict=True):
        sizes = None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
        if sizes and spec.shape is not None and len(sizes) == len(spec.shape):
            first = spec.shape[0] if batch is not None or spec.shape[0] is not None else sizes[0]
            sizes = (first, *(b if a is None else a for a, b in zip(spec.shape[1:], sizes[1:], strict=True)))
            outputs.append(replace(spec, shape=sizes))
        else:
            outputs.append(spec)
    return replace(signature, outputs=tuple(outputs))


def _pruned(function: Any, count: int) -> Any:
    """The function without the ops that none of its outputs needs; the variables that are left are captured as before.

    The function itself, where an output reads a variable that may be written to: a recurrent layer's state is no dead one.
    """
    import tensorflow as tf

    graph = function.graph.as_graph_def()
    written = _written(graph, {inner.op.name for _, inner in function.graph.captures})
    fetched = [tensor.op.name for tensor in function.outputs]
    for node in graph.node:
        if node.name in fetched:  # TensorFlow ties whatever must run to what is returned
            node.input[:] = [name for name in node.input if not name.startswith("^")]
    kept = tf.compat.v1.graph_util.extract_sub_graph(graph, fetched)
    present = {node.name for node in kept.node}
    if written & present:
        return function
    captured = {inner.name: outer for outer, inner in function.graph.captures if inner.op.name in present}
    inputs = function.inputs[:count]

    def serve(*values: Any) -> list[Any]:
        given = {tensor.name: value for tensor, value in zip(inputs, values, strict=True) if tensor.op.name in present}
        graph = tf.compat.v1.get_default_graph()
        held = {name: graph.capture(tensor) for name, tensor in captured.items()}
        return list(tf.graph_util.import_graph_def(kept, {**given, **held}, [tensor.name for tensor in function.outputs], name="kept"))

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype, name=tensor.op.name) for tensor in inputs]
    return tf.function(serve, autograph=False).get_concrete_function(*specs)


def _written(graph: Any, captured: set[str]) -> set[str]:
    """The captured variables that the graph may write to: by an op of its own, or inside any function that it hands them to."""
    passed = {node.name: node.input[0].removeprefix("^").split(":")[0] for node in graph.node if node.op == "Identity" and node.input}
    found: set[str] = set()
    for node in graph.node:
        if node.op in STATE_OPS or any(value.HasField("func") for value in node.attr.values()):
            found |= {_source(one.removeprefix("^").split(":")[0], passed) for one in node.input}
    return found & captured


def _source(name: str, passed: Mapping[str, str]) -> str:
    """Where a value comes from, behind the ops that only pass it on."""
    while name in passed:
        name = passed[name]
    return name


def _with_batch(shape: tuple[int | None, ...] | None, batch: int | None) -> list[int | None] | None:
    if not shape or batch is None or shape[0] is not None:
        return None if shape is None else list(shape)
    return [batch, *shape[1:]]


def weight_bytes(model: Any) -> int:
    """Bytes that a model's variables take."""
    import tensorflow as tf

    return sum(math.prod(variable.shape) * tf.as_dtype(variable.dtype).size for variable in model.variables)


def _freeze(function: Any, caller: KerasCaller) -> tuple[Any | None, str]:
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    if (size := weight_bytes(caller.model)) > MOST_FROZEN_BYTES:
        return None, f"its weights take {size:,} bytes, too much for one graph"
    try:
        frozen = convert_variables_to_constants_v2(function, lower_control_flow=False)
        return _with_captures(frozen, function, len(caller.signature.inputs)), ""
    except Exception as error:  # noqa: BLE001 - TensorFlow raises several kinds here; the unfrozen function is used and the reason kept
        return None, telling_line(error)


def _with_captures(frozen: Any, function: Any, count: int) -> Any:
    """A function of the model's inputs alone, where freezing left others: tables and their defaults, which can't be constants."""
    import tensorflow as tf

    if len(frozen.inputs) == count:
        return frozen
    outside = {inner.name: outer for outer, inner in function.graph.captures}
    captured = [outside[tensor.name] for tensor in frozen.inputs[count:]]

    def serve(*values: Any) -> list[Any]:
        return [tf.identity(value) for value in frozen(*values, *captured)]

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype, name=tensor.op.name) for tensor in frozen.inputs[:count]]
    return tf.function(serve, autograph=False).get_concrete_function(*specs)


def _resources(model: Any, frozen: Any | None) -> Any:
    """What a SavedModel of the function must track: nothing but tables where weights are constants, else the whole model."""
    from tensorflow.python.trackable.resource import TrackableResource

    if frozen is None:
        return model
    tables = [value for layer in model._flatten_layers() for value in vars(layer).values() if isinstance(value, TrackableResource)]
    return tables or None


@contextmanager
def _whole_tracebacks() -> Iterator[None]:
    import keras

    filtered = keras.config.is_traceback_filtering_enabled()
    keras.config.disable_traceback_filtering()
    try:
        yield
    finally:
        if filtered:
            keras.config.enable_traceback_filtering()


def _untraceable(error: Exception) -> StageError:
    import keras

    layer, walk = None, error.__traceback__
    while walk is not None:
        owner = walk.tb_frame.f_locals.get("self")
        if isinstance(owner, keras.layers.Layer) and not isinstance(owner, keras.Model):
            layer = owner
        walk = walk.tb_next
    where = f"layer '{layer.name}' ({type(layer).__name__})" if layer is not None else "the model's call"
    return StageError(
        Observation(
            "KP201",
            f"TensorFlow can't trace {where}: {type(error).__name__}: {telling_line(error)}",
            "Give the model's inputs the sizes that this layer needs, or replace the layer; no format can be exported until it traces.",
            place=layer.name if layer is not None else "",
            evidence={"layer_class": type(layer).__name__ if layer is not None else ""},
        )
    )

"""ONNX: converted by tf2onnx from the same frozen graph that the SavedModel holds; read back with ``onnx``."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kpipe_stages.artifacts.inventory import Opened, op_uses
from kpipe_stages.artifacts.onnx_conversion import Order, converted
from kpipe_stages.artifacts.repairs import inline_compiled
from kpipe_stages.protocol import Observation, OpUse, Signature, StageError, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from kpipe_stages.artifacts.tracing import Trace

MOST_INFERRED_BYTES = 500_000_000
"""Above this the dtypes of values inside a file aren't inferred: that takes as much memory again."""
RUNTIME_DOMAINS = frozenset({"com.microsoft"})
"""ONNX Runtime's own; their schemas aren't in ``onnx``."""


def output_names(traced: Trace) -> dict[str, str]:
    """Model output to ONNX output: the same, but a value can't be an input and an output at once."""
    inputs = {spec.name for spec in traced.signature.inputs}
    taken = inputs | set(traced.outputs)
    names = {}
    for name in traced.outputs:
        other, number = name, 1
        while other in inputs or (other != name and other in taken):
            other, number = (f"{name}_out" if number == 1 else f"{name}_out_{number}"), number + 1
        names[name] = other
        taken.add(other)
    return names


@dataclass(frozen=True)
class Converted:
    """What tf2onnx made of a trace."""

    model: Any
    """``onnx.ModelProto``; inputs and outputs named and ordered as the model's, but for `output_names`."""
    erfc: tuple[str, ...] = ()
    """Graph paths of the ``Erfc`` ops written as ``1 - Erf``."""
    inlined: tuple[str, ...] = ()
    """Graph paths of the calls of compiled functions that were inlined."""


def convert(traced: Trace, *, repairs: bool) -> Converted:
    """Convert the trace, with `kpipe_stages.artifacts.repairs` where they are allowed."""
    import tensorflow as tf

    inputs = [tensor.name for tensor in traced.function.inputs[: len(traced.inputs)]]
    outputs = [tensor.name for tensor in traced.function.outputs]
    model_inputs = [spec.name for spec in traced.signature.inputs]
    renamed = {**dict(zip(inputs, model_inputs, strict=True)), **dict(zip(outputs, output_names(traced).values(), strict=True))}
    with tf.device("/cpu:0"):
        graph, tables, inlined = _graph(traced, inputs, outputs, repairs=repairs)
        order = Order(tuple(inputs), tuple(outputs), renamed, tables, repairs=repairs)
        try:
            model, erfc = converted(graph, order, copies=False)
        except Exception:  # noqa: BLE001 - whichever pass it was: with a copy of the graph for each, tf2onnx leaves out the one that fails
            model, erfc = converted(graph, order, copies=True)
    return Converted(model, tuple(erfc), tuple(inlined))


def _graph(traced: Trace, inputs: list[str], outputs: list[str], *, repairs: bool) -> tuple[Any, dict[Any, Any], list[str]]:
    """What tf2onnx does to a graph before it converts it; it would freeze again what is frozen already."""
    import tensorflow as tf
    from tf2onnx import tf_loader

    if traced.keep is not None:
        holder = tf.Module()
        holder.keep = traced.keep
        graph, tables = tf_loader.from_trackable(holder, traced.function, inputs, outputs, large_model=False)
        return graph, tables, []
    graph = tf_loader.fix_freezing_errors_part2(traced.function.graph.as_graph_def(add_shapes=True))
    inlined = inline_compiled(graph) if repairs else []
    with tf.Graph().as_default():
        tf.import_graph_def(graph, name="")
        return tf_loader.tf_optimize(inputs, outputs, graph), {}, inlined


def read(path: Path) -> Opened:
    """Read signature, ops and constants.

    Raises:
        StageError: KP303, not an ONNX file.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(str(path), load_external_data=False)
    except DecodeError as error:
        raise _unreadable(path, "isn't a whole protobuf") from error
    if not model.graph.output:
        raise _unreadable(path, "holds no graph with outputs")
    versions = {_domain(entry.domain): entry.version for entry in model.opset_import}
    local = {(_domain(function.domain), function.name) for function in model.functions}
    nodes = list(_all_nodes(model.graph.node)) + [node for function in model.functions for node in _all_nodes(function.node)]
    ops = Counter(_title(node) for node in nodes if (_domain(node.domain), node.op_type) not in local)
    foreign = {_title(node) for node in nodes if (_domain(node.domain), node.op_type) not in local and not _known(node, versions)}
    numbers, size = _constants(_tensors(model.graph, nodes))
    companions = _external(path, _tensors(model.graph, nodes))
    uses = _uses(model, [node for node in nodes if (_domain(node.domain), node.op_type) not in local], versions)
    return Opened(
        _signature(model.graph), dict(sorted(ops.items())), tuple(sorted(foreign)), numbers, size, companions, uses=uses, opset=versions.get("", 0)
    )


def _uses(model: Any, nodes: list[Any], versions: dict[str, int]) -> tuple[OpUse, ...]:
    kinds = _value_types(model)
    return op_uses((_title(node), _version(node, versions), [kinds[name] for name in node.output if name in kinds]) for node in nodes)


def _version(node: Any, versions: dict[str, int]) -> str:
    """The opset that last changed the op, of those up to the file's; the file's own for an op that ``onnx`` doesn't know."""
    import onnx

    domain = _domain(node.domain)
    try:
        return str(onnx.defs.get_schema(node.op_type, versions.get(domain, 1), domain).since_version)
    except onnx.defs.SchemaError:
        return str(versions.get(domain, 1))


def _value_types(model: Any) -> dict[str, str]:
    """Value name to dtype, by shape inference; without it (a file of gigabytes, an op that it doesn't know) what the file itself declares."""
    import onnx

    if model.ByteSize() < MOST_INFERRED_BYTES:
        with suppress(onnx.shape_inference.InferenceError, RuntimeError, ValueError):
            model = onnx.shape_inference.infer_shapes(model)
    values = [*model.graph.value_info, *model.graph.input, *model.graph.output]
    return {value.name: _spec(value).dtype for value in values if value.type.HasField("tensor_type")}


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _title(node: Any) -> str:
    domain = _domain(node.domain)
    return f"{domain}::{node.op_type}" if domain else str(node.op_type)


def _known(node: Any, versions: dict[str, int]) -> bool:
    import onnx

    domain = _domain(node.domain)
    if domain in RUNTIME_DOMAINS:
        return True
    try:
        schema = onnx.defs.get_schema(node.op_type, versions.get(domain, 1), domain)
    except onnx.defs.SchemaError:
        return False
    return not schema.deprecated


def _all_nodes(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                yield from _all_nodes(graph.node)


def _tensors(graph: Any, nodes: list[Any]) -> list[Any]:
    """Every constant of the file, sub-graphs included."""
    tensors = list(graph.initializer)
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                tensors.append(attribute.t)
            tensors.extend(inner for sub in ([attribute.g] if attribute.HasField("g") else []) for inner in sub.initializer)
    return tensors


def _constants(tensors: list[Any]) -> tuple[int, int]:
    from onnx import helper

    numbers = size = 0
    for tensor in tensors:
        kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if kind.kind in "fiuV":
            count = math.prod(tensor.dims)
            numbers, size = numbers + count, size + count * kind.itemsize
    return numbers, size


def _external(path: Path, tensors: list[Any]) -> tuple[Path, ...]:
    """The files beside ``path`` that hold its weights.

    Raises:
        StageError: KP303, one lies outside the artifact's folder or is missing.
    """
    from onnx import TensorProto

    stored = [tensor for tensor in tensors if tensor.data_location == TensorProto.EXTERNAL]
    names = sorted({entry.value for tensor in stored for entry in tensor.external_data if entry.key == "location"})
    files = tuple(path.parent / name for name in names)
    for name, file in zip(names, files, strict=True):
        if not file.resolve().is_relative_to(path.parent.resolve()):
            raise _unreadable(path, f"keeps weights outside its folder, in {name!r}")
        if not file.is_file():
            raise _unreadable(path, f"keeps weights in {name!r}, which isn't there")
    return files


def _signature(graph: Any) -> Signature:
    constants = {tensor.name for tensor in graph.initializer}
    return Signature(
        inputs=tuple(_spec(value) for value in graph.input if value.name not in constants),
        outputs=tuple(_spec(value) for value in graph.output),
    )


def _spec(value: Any) -> TensorSpec:
    from onnx import TensorProto, helper

    kind = value.type.tensor_type
    if kind.elem_type == TensorProto.STRING:
        dtype = "string"
    elif kind.elem_type == TensorProto.UNDEFINED:
        dtype = "unknown"
    else:
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type).name
    shape = tuple(int(dim.dim_value) if dim.HasField("dim_value") else None for dim in kind.shape.dim) if kind.HasField("shape") else None
    return TensorSpec(name=value.name, shape=shape, dtype=dtype)


def _unreadable(path: Path, reason: str) -> StageError:
    return StageError(Observation("KP303", f"{path.name} {reason}.", "Export the file again; check that it was copied whole.", place="onnx"))

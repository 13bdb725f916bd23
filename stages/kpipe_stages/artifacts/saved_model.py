"""SavedModel: a dict of named tensors in, a dict of named tensors out, one signature ``serving_default``."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from kpipe_stages.artifacts.inventory import Opened, op_uses
from kpipe_stages.protocol import Observation, Signature, StageError, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from kpipe_stages.artifacts.tracing import Trace

SIGNATURE = "serving_default"
HOST_OPS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc", "NumpyFunction"})
"""Registered, but they call into the Python process that exported the model."""


def write(traced: Trace, folder: Path) -> None:
    """Write ``traced`` as a SavedModel at ``folder`` (a version folder)."""
    import tensorflow as tf

    specs = {
        name: tf.TensorSpec(tensor.shape, tensor.dtype, name=name) for name, tensor in zip(traced.inputs, traced.function.inputs, strict=False)
    }  # an unfrozen function has its tables and weights as further inputs

    def serve(**values: Any) -> dict[str, Any]:
        outputs = traced.function(*[values[name] for name in traced.inputs])
        return {name: tf.identity(value) for name, value in zip(traced.outputs, outputs, strict=True)}

    function = tf.function(serve, autograph=False).get_concrete_function(**specs)
    module = tf.Module()
    module.serve = function
    if traced.keep is not None:
        module.keep = traced.keep
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)  # inference needs none, and SiLU's own doesn't survive freezing
    tf.saved_model.save(module, str(folder), signatures={SIGNATURE: function}, options=options)
    _settle_fingerprint(folder / "fingerprint.pb")


def _settle_fingerprint(path: Path) -> None:
    """Put the graph's own checksum where TensorFlow writes a random number, so that the same model gives the same bytes."""
    from tensorflow.core.protobuf import fingerprint_pb2

    if path.is_file():
        fingerprint = fingerprint_pb2.FingerprintDef.FromString(path.read_bytes())
        fingerprint.uuid = str(fingerprint.saved_model_checksum)
        path.write_bytes(fingerprint.SerializeToString(deterministic=True))


def version_folder(path: Path) -> Path:
    """The folder that holds ``saved_model.pb``: ``path``, or its sub-folder with the highest number.

    Raises:
        StageError: KP303, there is none.
    """
    if (path / "saved_model.pb").is_file():
        return path
    numbered = [child for child in path.iterdir() if child.name.isdigit() and (child / "saved_model.pb").is_file()] if path.is_dir() else []
    if not numbered:
        raise StageError(
            Observation(
                "KP303",
                f"{path} holds no saved_model.pb, nor a numbered folder that does.",
                "Point to the SavedModel's own folder, or to the folder of its versions (1, 2, ...).",
                place="saved_model",
            )
        )
    return max(numbered, key=lambda child: int(child.name))


def read(folder: Path) -> Opened:
    """Read a SavedModel's signature, ops and size from its protobuf; nothing of it is loaded or run.

    Raises:
        StageError: KP303 (not a SavedModel) or KP213 (no signature to bind to).
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2
    from tensorflow.python.framework import op_def_registry

    model = saved_model_pb2.SavedModel()
    try:
        model.ParseFromString((folder / "saved_model.pb").read_bytes())
        graph = next(meta for meta in model.meta_graphs if "serve" in meta.meta_info_def.tags)
    except (DecodeError, StopIteration) as error:
        reason = "has no graph for serving" if isinstance(error, StopIteration) else "isn't a whole protobuf"
        cause = f"saved_model.pb {reason}."
        raise StageError(Observation("KP303", cause, "Export the SavedModel again.", place="saved_model")) from error
    nodes = list(_nodes(graph.graph_def))
    own = {function.signature.name for function in graph.graph_def.library.function}
    ops = Counter(node.op for node in nodes if node.op not in own)
    foreign = tuple(sorted(op for op in ops if op in HOST_OPS or op_def_registry.get(op) is None))
    numbers, size = _constants(nodes)
    more, more_bytes = _variables(folder)
    uses = op_uses((node.op, "", _dtypes(node)) for node in nodes if node.op not in own)
    return Opened(_signature(graph.signature_def), dict(sorted(ops.items())), foreign, numbers + more, size + more_bytes, ordered=False, uses=uses)


def _dtypes(node: Any) -> list[str]:
    """What an op gives, by the attributes that TensorFlow's ops declare their outputs' types with."""
    import tensorflow as tf

    kinds = [node.attr[name].type for name in ("DstT", "dtype", "out_type", "output_type", "T") if name in node.attr and node.attr[name].type]
    return [tf.as_dtype(kinds[0]).name] if kinds else []


def _nodes(graph: Any) -> Iterator[Any]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def _signature(signatures: Any) -> Signature:
    usable = [name for name in signatures if not name.startswith("__")]
    name = SIGNATURE if SIGNATURE in usable else usable[0] if len(usable) == 1 else None
    if name is None:
        raise StageError(
            Observation(
                "KP213",
                f"The SavedModel has the signatures {sorted(usable)}, none of them '{SIGNATURE}'.",
                f"Export it with one signature named '{SIGNATURE}'.",
                place="saved_model",
            )
        )
    chosen = signatures[name]
    return Signature(inputs=tuple(_specs(chosen.inputs)), outputs=tuple(_specs(chosen.outputs)))


def _specs(tensors: Any) -> Iterable[TensorSpec]:
    import tensorflow as tf

    for name in sorted(tensors):
        info = tensors[name]
        shape = None if info.tensor_shape.unknown_rank else tuple(None if dim.size < 0 else int(dim.size) for dim in info.tensor_shape.dim)
        yield TensorSpec(name=name, shape=shape, dtype=tf.as_dtype(info.dtype).name)


def _constants(nodes: Iterable[Any]) -> tuple[int, int]:
    import tensorflow as tf

    numbers = size = 0
    for node in nodes:
        if node.op == "Const":
            tensor = node.attr["value"].tensor
            kind = tf.as_dtype(tensor.dtype)
            if kind.is_floating or kind.is_integer:
                count = math.prod(dim.size for dim in tensor.tensor_shape.dim)
                numbers, size = numbers + count, size + count * kind.size
    return numbers, size


def _variables(folder: Path) -> tuple[int, int]:
    import tensorflow as tf

    if not (folder / "variables" / "variables.index").is_file():
        return 0, 0
    reader = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    kinds, numbers, size = reader.get_variable_to_dtype_map(), 0, 0
    for name, shape in reader.get_variable_to_shape_map().items():
        if kinds[name].is_floating or kinds[name].is_integer:
            numbers, size = numbers + math.prod(shape), size + math.prod(shape) * kinds[name].size
    return numbers, size

"""tf2onnx's conversion of a frozen graph, without the copies of the weights that it makes on its way."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kpipe_stages.artifacts.repairs import lower_erfc

if TYPE_CHECKING:
    from collections.abc import Iterator

OPSET = 18
"""The newest that tf2onnx 1.17 writes; ONNX Runtime has read it since 1.14."""


@dataclass(frozen=True)
class Order:
    """What tf2onnx is told besides the graph."""

    inputs: tuple[str, ...]
    """Tensors of the graph."""
    outputs: tuple[str, ...]
    renamed: Mapping[str, str]
    """Tensor to its name in the ONNX file."""
    tables: Mapping[Any, Any]
    """Of lookups, as `tf2onnx.tf_loader` gives them."""
    repairs: bool
    """Whether ``Erfc`` is lowered."""


def converted(graph: Any, order: Order, *, copies: bool) -> tuple[Any, list[str]]:
    """The ONNX model, and the paths of its ``Erfc`` ops.

    What tf2onnx's own `_convert_common` does, but for ``copies``: it keeps a copy of the whole graph before each of some sixty passes of its
    optimizers, so that it can go back behind one that fails. These, and what `_constants_written_once` leaves out, took half of the time
    and 4 GB for weights of 100 MB. The file is the same, byte for byte.

    Args:
        graph: a frozen ``GraphDef``, optimized as tf2onnx wants it.
        order: names, tables and repairs.
        copies: go back behind a pass that fails; without, its exception is raised.
    """
    import tensorflow as tf
    from tf2onnx import optimizer
    from tf2onnx.tfonnx import process_tf_graph

    erfc: list[str] = []
    with _constants_written_once():
        with tf.Graph().as_default() as imported:
            tf.import_graph_def(graph, name="")
            made = process_tf_graph(
                imported,
                opset=OPSET,
                input_names=list(order.inputs),
                output_names=list(order.outputs),
                tensors_to_rename=dict(order.renamed),
                initialized_tables=order.tables,
                custom_op_handlers={"Erfc": (lower_erfc(erfc), [])} if order.repairs else None,
            )
        made = optimizer.optimize_graph(made, catch_errors=copies)
        return made.make_model("converted from keras model"), erfc


@contextmanager
def _constants_written_once() -> Iterator[None]:
    """Let passes leave the protobuf of a constant as it is, which nothing reads: `make_graph` takes a constant's value from its attribute.

    tf2onnx writes every node's protobuf anew after each pass, and protobuf keeps what was there before until the node itself is gone.
    """
    from tf2onnx.graph import Node

    original = Node.update_proto

    def update(node: Any, *arguments: Any) -> None:
        if not node.is_const():
            original(node, *arguments)

    Node.update_proto = update
    try:
        yield
    finally:
        Node.update_proto = original

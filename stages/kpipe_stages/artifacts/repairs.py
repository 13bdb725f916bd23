"""Rewrites that let a format hold what its converter can't: each exact (or to the last bit of float32), named, and off when the contract says so."""

# ruff: noqa: SLF001 - Keras has no public way to all layers of a model, nested ones too; a version that changes it fails the tests

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SCOPE = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")
"""What TensorFlow takes for a root name scope."""


@contextmanager
def scopes_renamed(model: Any) -> Iterator[list[str]]:
    """Give layers (the model among them) with odd names one that TensorFlow takes for a scope, for the time of a trace.

    Yields the names replaced. Nothing but the names of ops changes.
    """
    layers = [layer for layer in model._flatten_layers() if not SCOPE.fullmatch(layer.name)]
    names = [layer.name for layer in layers]
    for layer, name in zip(layers, names, strict=True):
        safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
        layer.name = safe if SCOPE.fullmatch(safe) else f"layer{safe}"
    try:
        yield names
    finally:
        for layer, name in zip(layers, names, strict=True):
            layer.name = name


@contextmanager
def unrolled(model: Any) -> Iterator[list[str]]:
    """Let recurrent layers write out every step while they are traced, where they would be a loop; the arithmetic is the same.

    Yields their names; a trace then needs a fixed number of steps.
    """
    import keras

    layers = [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.RNN) and not layer.unroll]
    for layer in layers:
        layer.unroll = True
    try:
        yield [layer.name for layer in layers]
    finally:
        for layer in layers:
            layer.unroll = False


@contextmanager
def signs_without_bits() -> Iterator[None]:
    """Let Keras tell the sign of a float by arithmetic while it is traced, not by its bits, which ONNX, OpenVINO and LiteRT lack.

    ``argmax`` and ``argmin`` ask for it, to order -0.0 before 0.0. ``x < 0 or (x == 0 and 1 / x < 0)`` is the sign bit of every float but NaN.
    """
    import tensorflow as tf
    from keras.src.backend.tensorflow import numpy as backend_numpy

    original = backend_numpy.signbit

    def signbit(x: Any) -> Any:
        x = tf.convert_to_tensor(x)
        if not x.dtype.is_floating:
            return original(x)
        zero, one = tf.zeros([], x.dtype), tf.ones([], x.dtype)
        return tf.logical_or(x < zero, tf.logical_and(tf.equal(x, zero), one / x < zero))

    backend_numpy.signbit = signbit
    try:
        yield
    finally:
        backend_numpy.signbit = original


def inline_compiled(graph: Any) -> list[str]:
    """Turn functions that must be compiled by XLA (grouped convolutions) into plain ones, which a converter can inline.

    Args:
        graph: a GraphDef, changed in place. What is computed stays the same; who compiles it doesn't concern a converter.

    Returns:
        The paths of the calls.
    """
    compiled = {function.signature.name for function in graph.library.function if "_XlaMustCompile" in function.attr}
    for function in graph.library.function:
        function.attr.pop("_XlaMustCompile", None)
        if function.signature.name in compiled:
            function.attr.pop("_noinline", None)
    calls = []
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            if node.op in {"StatefulPartitionedCall", "PartitionedCall"} and node.attr["f"].func.name in compiled:
                node.op = "PartitionedCall"
                node.attr.pop("_XlaMustCompile", None)
                calls.append(node.name)
    return calls


def lower_erfc(lowered: list[str]) -> Any:
    """A tf2onnx handler that writes ``Erfc(x)`` as ``1 - Erf(x)``; puts the path of each op into ``lowered``."""

    def lower(ctx: Any, node: Any, name: str, _args: Any) -> None:
        import numpy as np
        from tf2onnx import utils

        lowered.append(name)
        output, kind, shape = node.output[0], ctx.get_dtype(node.output[0]), ctx.get_shape(node.output[0])
        one = ctx.make_const(utils.make_name("one"), np.array(1, dtype=utils.map_onnx_to_numpy_type(kind)))
        erf = ctx.make_node("Erf", [node.input[0]], dtypes=[kind], shapes=[shape], name=utils.make_name(name))
        ctx.remove_node(node.name)
        ctx.make_node("Sub", [one.output[0], erf.output[0]], outputs=[output], dtypes=[kind], shapes=[shape], name=name)

    return lower

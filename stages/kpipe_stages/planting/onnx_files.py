"""Faults in an ONNX file that was healthy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.planting import ImpossibleError

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, np.dtype[Any]]

MATRIX = 2


def _tensors(model: Any) -> list[Any]:
    """Float initializers, largest first."""
    import onnx

    found = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
    return sorted(found, key=lambda t: -int(np.prod(t.dims)))


def _put(tensor: Any, values: Array) -> None:
    import onnx

    tensor.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float32), tensor.name))


def _get(tensor: Any) -> Array:
    import onnx

    values: Array = np.array(onnx.numpy_helper.to_array(tensor))
    return values


def one_number(model: Any, *, add: float) -> None:
    """The largest number of the largest tensor moves by ``add`` of itself."""
    tensor = _tensors(model)[0]
    values = _get(tensor)
    values.flat[int(np.abs(values).argmax())] *= 1.0 + add
    _put(tensor, values)


def rounded(model: Any) -> None:
    """All weights as float16 holds them, stored as float32 again."""
    for tensor in _tensors(model):
        _put(tensor, _get(tensor).astype(np.float16))


def zero_vector(model: Any) -> None:
    """A bias is lost."""
    for tensor in reversed(_tensors(model)):
        if len(tensor.dims) == 1 and tensor.dims[0] > 1 and np.any(_get(tensor)):
            _put(tensor, np.zeros(tuple(tensor.dims)))
            return
    raise ImpossibleError("no vector is other than zero")


def attribute(model: Any, *, op: str, name: str, to: Any) -> None:
    """An attribute of the first op of that kind has another value, or is there where it was left to its default."""
    import onnx

    for node in model.graph.node:
        if node.op_type == op:
            left = [a for a in node.attribute if a.name != name]
            del node.attribute[:]
            node.attribute.extend([*left, onnx.helper.make_attribute(name, to)])
            return
    raise ImpossibleError(f"the file has no {op}")


def shifted_pads(model: Any) -> None:
    """Padding moves to the end, as frameworks differ about where an odd one goes: the size stays."""
    import onnx

    for node in model.graph.node:
        for item in node.attribute:
            if node.op_type == "Conv" and item.name == "pads" and any(item.ints):
                half = len(item.ints) // 2
                pads = list(item.ints)
                moved = [0] * half + [pads[i] + pads[i + half] for i in range(half)]
                item.CopyFrom(onnx.helper.make_attribute("pads", moved))
                return
    raise ImpossibleError("no convolution pads")


def op_for(model: Any, *, old: str, new: str) -> None:
    """The first ``old`` op is a ``new`` one."""
    for node in model.graph.node:
        if node.op_type == old:
            node.op_type = new
            return
    raise ImpossibleError(f"the file has no {old}")


def noise(model: Any, *, scale: float) -> None:
    """An op draws random numbers and adds them to the first input."""
    import onnx

    name = model.graph.input[0].name
    if model.graph.input[0].type.tensor_type.elem_type != onnx.TensorProto.FLOAT:
        raise ImpossibleError("the first input isn't floating point")
    for node in model.graph.node:
        for i, given in enumerate(node.input):
            if given == name:
                node.input[i] = f"{name}__noisy"
    draw = onnx.helper.make_node("RandomNormalLike", [name], [f"{name}__noise"], scale=scale, mean=0.0)
    add = onnx.helper.make_node("Add", [name, f"{name}__noise"], [f"{name}__noisy"])
    nodes = [draw, add, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def reorder_outputs(model: Any) -> None:
    """The outputs are listed the other way round; each keeps its name."""
    outputs = list(model.graph.output)
    if len(outputs) < MATRIX:
        raise ImpossibleError("the file has one output")
    del model.graph.output[:]
    model.graph.output.extend(reversed(outputs))


def rename_output(model: Any) -> None:
    """The first output has a name that the model doesn't have."""
    name = model.graph.output[0].name
    for node in model.graph.node:
        for i, given in enumerate(node.output):
            if given == name:
                node.output[i] = "result_0"
    for node in model.graph.node:
        for i, given in enumerate(node.input):
            if given == name:
                node.input[i] = "result_0"
    model.graph.output[0].name = "result_0"


def swap_alike(model: Any) -> None:
    """Two tensors of equal shape change places."""
    tensors = _tensors(model)
    for i, left in enumerate(tensors):
        for right in tensors[i + 1 :]:
            a, b = _get(left), _get(right)
            if a.size > 1 and a.shape == b.shape and not np.array_equal(a, b):
                _put(left, b)
                _put(right, a)
                return
    raise ImpossibleError("no two tensors have the same shape")


EDITS: dict[str, Callable[..., None]] = {
    "one_number": one_number,
    "rounded": rounded,
    "zero_vector": zero_vector,
    "attribute": attribute,
    "shifted_pads": shifted_pads,
    "op_for": op_for,
    "noise": noise,
    "reorder_outputs": reorder_outputs,
    "rename_output": rename_output,
    "swap_alike": swap_alike,
}

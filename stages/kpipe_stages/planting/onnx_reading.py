"""An ONNX file in float64: its float32 constants widened, its ops evaluated by ONNX's own reference implementation in NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.planting import ImpossibleError
from kpipe_stages.rows import Rows, write_rows

if TYPE_CHECKING:
    from pathlib import Path

Array = np.ndarray[Any, np.dtype[Any]]


def raised(model: Any) -> Any:
    """The model with every float32 tensor, cast and declared type as float64.

    Raises:
        ImpossibleError: it holds sub-graphs, which aren't raised.
    """
    import onnx

    single, double = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE
    for tensor in model.graph.initializer:
        _widen(tensor)
    for node in model.graph.node:
        for item in node.attribute:
            if item.HasField("g") or item.graphs:
                raise ImpossibleError(f"op {node.op_type} has a sub-graph")
            if item.HasField("t"):
                _widen(item.t)
            if node.op_type == "Cast" and item.name == "to" and item.i == single:
                item.i = double
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        if value.type.tensor_type.elem_type == single:
            value.type.tensor_type.elem_type = double
    return model


def _widen(tensor: Any) -> None:
    import onnx

    if tensor.data_type == onnx.TensorProto.FLOAT:
        tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


def read(path: Path, tensors: Path, names: tuple[str, ...], out: Path) -> tuple[str, ...]:
    """Evaluate every golden input alone; write rows below ``out`` by the output's position.

    Returns:
        The outputs' names, in the file's order.

    Raises:
        ImpossibleError: the file's inputs aren't named as the model's.
    """
    import onnx
    from onnx.reference import ReferenceEvaluator

    model = raised(onnx.load(str(path)))
    evaluator = ReferenceEvaluator(model)
    if set(evaluator.input_names) != set(names):
        raise ImpossibleError(f"the file's inputs are {', '.join(evaluator.input_names)}")
    columns = {name: Rows(tensors / str(position)) for position, name in enumerate(names)}
    answers: dict[str, list[Array]] = {name: [] for name in evaluator.output_names}
    for i in range(len(next(iter(columns.values())))):
        feed = {name: _fed(rows[i]) for name, rows in columns.items()}
        for name, value in zip(evaluator.output_names, evaluator.run(None, feed), strict=True):
            answers[name].append(np.asarray(value)[0])
    for position, rows in enumerate(answers.values()):
        write_rows(out / str(position), rows)
    return tuple(answers)


def _fed(row: Array) -> Array:
    wide = row.astype(np.float64) if row.dtype == np.float32 else row
    return wide[None]

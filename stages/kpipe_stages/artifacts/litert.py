"""LiteRT (``.tflite``): converted from the SavedModel; read back from the flatbuffer without an interpreter, so that a file that none can run is still described."""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
import struct
from typing import TYPE_CHECKING, Any

from kpipe_stages.artifacts.inventory import Opened, op_uses
from kpipe_stages.protocol import Observation, OpUse, Signature, StageError, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SIGNATURE = "serving_default"
IDENTIFIER = b"TFL3"


class ConversionError(Exception):
    """The converter refused."""

    def __init__(self, reason: str, ops: Sequence[str], text: str = "") -> None:
        super().__init__(reason)
        self.ops = tuple(ops)
        """TensorFlow ops that it named."""
        self.text = text
        """All that it said; its lines name the graph's own nodes."""


def convert(saved_model: Path, *, select_tf: bool = False) -> bytes:
    """Convert a SavedModel; with ``select_tf`` TensorFlow's own ops stand in where LiteRT has none.

    Raises:
        ConversionError: with the converter's reason in one line.
    """
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved_model), signature_keys=[SIGNATURE])
    if select_tf:
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
    try:
        converted = converter.convert()
    except MemoryError:
        raise  # the machine's, not the converter's
    except Exception as error:  # the converter raises its own and TensorFlow's kinds; each becomes one finding with its reason
        raise ConversionError(*_reason(str(error)), str(error)) from error
    return bytes(converted)


def _reason(text: str) -> tuple[str, list[str]]:
    ops = list(dict.fromkeys(re.findall(r"'tf\.(\w+)' op|\btf\.(\w+)\(", text)))
    names = list(dict.fromkeys(first or second for first, second in ops))
    errors = [line.rsplit("): ", 1)[-1].split(": error: ")[-1].strip() for line in text.splitlines() if "error:" in line]
    line = next(
        (line for line in errors if "op " in line), errors[0] if errors else text.strip().splitlines()[0] if text.strip() else "no reason given"
    )
    return line[:300], names


def read(path: Path) -> Opened:
    """Read signature, ops and constants.

    Raises:
        StageError: KP303, not a LiteRT file.
    """
    data = path.read_bytes()
    if data[4:8] != IDENTIFIER:
        raise _unreadable(path, "doesn't begin as a LiteRT file does")
    try:
        return _read(data)
    except (IndexError, KeyError, ValueError, TypeError, AttributeError, struct.error) as error:  # a flatbuffer's offsets lead nowhere
        raise _unreadable(path, f"is damaged or cut short ({type(error).__name__})") from error


def _read(data: bytes) -> Opened:
    schema = flatbuffer_schema()
    model = schema.Model.GetRootAs(data, 0)
    graphs = [model.Subgraphs(i) for i in range(model.SubgraphsLength())]
    uses = _uses(model, graphs, schema)
    ops = dict(sorted(_counts(uses).items()))
    foreign = tuple(sorted(op for op in ops if op.startswith(("CUSTOM:", "Flex"))))
    numbers, size = _constants(model, graphs, schema)
    return Opened(_signature(model, graphs, schema), ops, foreign, numbers, size, uses=uses)


def flatbuffer_schema() -> Any:
    """The generated reader of the format, from whichever library is there.

    Raises:
        StageError: KP301, neither is.
    """
    for name in ("ai_edge_litert.schema_py_generated", "tensorflow.lite.python.schema_py_generated"):
        if importlib.util.find_spec(name.split(".")[0]) is not None:
            return importlib.import_module(name)
    raise StageError(
        Observation(
            "KP301",
            "Neither ai-edge-litert nor tensorflow is installed, so a LiteRT file can't be read.",
            "Install keras-kpipe[litert].",
            place="litert",
        )
    )


def _names(constants: Any) -> dict[int, str]:
    return {value: name for name, value in vars(constants).items() if isinstance(value, int)}


def _uses(model: Any, graphs: Sequence[Any], schema: Any) -> tuple[OpUse, ...]:
    builtin, types, codes = _names(schema.BuiltinOperator), _names(schema.TensorType), []
    for i in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(i)
        if custom := code.CustomCode():
            name = custom.decode()
            name = name if name.startswith("Flex") else f"CUSTOM:{name}"
        else:
            name = builtin[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())]
        codes.append((name, str(code.Version())))
    found = []
    for graph in graphs:
        for i in range(graph.OperatorsLength()):
            op = graph.Operators(i)
            given = [types[graph.Tensors(op.Outputs(n)).Type()].lower() for n in range(op.OutputsLength())]
            found.append((*codes[op.OpcodeIndex()], given))
    return op_uses(found)


def _counts(uses: Sequence[OpUse]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for use in uses:
        counts[use.op] = counts.get(use.op, 0) + use.count
    return counts


def _constants(model: Any, graphs: Sequence[Any], schema: Any) -> tuple[int, int]:
    kinds, numbers, size, seen = _names(schema.TensorType), 0, 0, set[int]()
    for graph in graphs:
        for i in range(graph.TensorsLength()):
            tensor = graph.Tensors(i)
            index = tensor.Buffer()
            buffer = model.Buffers(index)
            length = buffer.DataLength() or buffer.Size()
            kind = kinds[tensor.Type()].lower()
            if length and index not in seen and kind != "string":
                seen.add(index)
                numbers += math.prod(tensor.Shape(axis) for axis in range(tensor.ShapeLength()))
                size += length
    return numbers, size


def _signature(model: Any, graphs: Sequence[Any], schema: Any) -> Signature:
    chosen = None
    signatures = [model.SignatureDefs(i) for i in range(model.SignatureDefsLength())]
    for candidate in signatures:
        if len(signatures) == 1 or candidate.SignatureKey() == SIGNATURE.encode():
            chosen = candidate
    if len(signatures) > 1 and chosen is None:
        raise StageError(
            Observation(
                "KP213",
                f"The LiteRT file has {len(signatures)} signatures, none of them '{SIGNATURE}'.",
                f"Convert it with one signature, named '{SIGNATURE}'.",
                place="litert",
            )
        )
    graph = graphs[chosen.SubgraphIndex() if chosen is not None else 0]
    inputs = {} if chosen is None else {chosen.Inputs(i).TensorIndex(): chosen.Inputs(i).Name().decode() for i in range(chosen.InputsLength())}
    outputs = [] if chosen is None else [(chosen.Outputs(i).TensorIndex(), chosen.Outputs(i).Name().decode()) for i in range(chosen.OutputsLength())]
    return Signature(inputs=tuple(_inputs(graph, inputs, schema)), outputs=tuple(_outputs(graph, outputs, schema)))


def _inputs(graph: Any, names: dict[int, str], schema: Any) -> list[TensorSpec]:
    order = [graph.Inputs(i) for i in range(graph.InputsLength())]
    return [_spec(names.get(index) or graph.Tensors(index).Name().decode(), graph.Tensors(index), schema, output=False) for index in order]


def _outputs(graph: Any, names: list[tuple[int, str]], schema: Any) -> list[TensorSpec]:
    """In the graph's order. One tensor can be several outputs, so each name is taken once."""
    left, specs = list(names), []
    for index in [graph.Outputs(i) for i in range(graph.OutputsLength())]:
        name = next((pair for pair in left if pair[0] == index), None)
        if name is not None:
            left.remove(name)
        specs.append(_spec(name[1] if name else graph.Tensors(index).Name().decode(), graph.Tensors(index), schema, output=True))
    return specs + [_spec(name, graph.Tensors(index), schema, output=True) for index, name in left]


def _spec(name: str, tensor: Any, schema: Any, *, output: bool) -> TensorSpec:
    kind = _names(schema.TensorType)[tensor.Type()].lower()
    free = tuple(tensor.ShapeSignature(i) for i in range(tensor.ShapeSignatureLength()))
    shape: tuple[int | None, ...] | None = tuple(tensor.Shape(i) for i in range(tensor.ShapeLength()))
    if free and shape is not None and len(free) == len(shape):
        shape = tuple(None if n < 0 else n for n in free)
    if output and not shape and not tensor.HasRank():
        shape = None
    return TensorSpec(name=name, shape=shape, dtype=kind)


def _unreadable(path: Path, reason: str) -> StageError:
    return StageError(Observation("KP303", f"{path.name} {reason}.", "Convert the file again; check that it was copied whole.", place="litert"))

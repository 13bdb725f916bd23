"""OpenVINO IR (``.xml`` and ``.bin``, or an ``.onnx`` file that was handed in): converted from the SavedModel, weights kept in float32."""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from kpipe_stages.artifacts.inventory import Opened, op_uses
from kpipe_stages.protocol import Binding, Observation, Signature, StageError, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

_DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "boolean": "bool", "string": "string",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
}  # fmt: skip


def convert(saved_model: Path, inputs: Mapping[str, str], outputs: Mapping[str, str], path: Path) -> Binding | None:
    """Convert a SavedModel and write ``path`` (``.xml``) with its ``.bin``.

    Args:
        saved_model: its version folder.
        inputs: model name to SavedModel name, in the model's order, which the IR gets too (OpenVINO's own follows the file).
        outputs: likewise.
        path: what to write.

    Returns:
        Model names to the IR's; None (and OpenVINO's own order) where the SavedModel's names can't be told in what it made.
    """
    import openvino

    model = openvino.convert_model(str(saved_model))
    parameters = _ports_by_name(model.inputs, list(inputs.values()), ())
    results = _ports_by_name(model.outputs, list(outputs.values()), set(inputs.values()))
    known = None
    if parameters is not None and results is not None:
        known = Binding(
            inputs={name: _port_name(parameters[other], other) for name, other in inputs.items()},
            outputs={name: _port_name(results[other], other) for name, other in outputs.items()},
        )
        ordered_results = [results[other].get_node() for other in outputs.values()]
        ordered_parameters = [parameters[other].get_node() for other in inputs.values()]
        model = openvino.Model(ordered_results, model.get_sinks(), ordered_parameters, model.friendly_name)
    openvino.save_model(model, str(path), compress_to_fp16=False)
    return known


def _ports_by_name(ports: Sequence[Any], names: Sequence[str], inputs: Collection[str]) -> dict[str, Any] | None:
    """A port for every name, each port once; None where that doesn't come out even.

    Two outputs that are one tensor carry both names each; an output named as an input has a number behind its name.
    """
    left, found = list(ports), {}
    for exact in (True, False):
        for name in names:
            port = next((port for port in left if name not in found and _carries(port, name, inputs, exact=exact)), None)
            if port is not None:
                found[name] = port
                left.remove(port)
    return found if not left and len(found) == len(names) else None


def _carries(port: Any, name: str, inputs: Collection[str], *, exact: bool) -> bool:
    names = port.get_names()
    return name in names if exact else name in inputs and any(re.fullmatch(rf"{re.escape(name)}_\d+", other) for other in names)


def _port_name(port: Any, wanted: str) -> str:
    names = port.get_names()
    return wanted if wanted in names else min(names, key=lambda name: (len(name), name))


def read(path: Path, known: Collection[str] = ()) -> Opened:
    """Read signature, ops and constants; of a port's several names, one of ``known`` where it has one.

    Raises:
        StageError: KP303, OpenVINO can't read the file.
    """
    import openvino

    companions = _companions(path)
    try:
        model = openvino.Core().read_model(str(path))
    except RuntimeError as error:
        raise _unreadable(path, f"is refused by OpenVINO: {str(error).strip().splitlines()[-1][:200]}") from error
    nodes = list(_all_nodes(model))
    ops = Counter(node.get_type_name() for node in nodes)
    foreign = tuple(sorted(op for op in ops if "Framework" in op))
    constants = [node for node in nodes if node.get_type_name() == "Constant" and node.get_element_type().get_type_name() != "string"]
    numbers = sum(math.prod(node.get_output_shape(0)) for node in constants)
    size = sum(int(node.get_byte_size()) for node in constants)
    signature = Signature(inputs=_specs(model.inputs, known), outputs=_specs(model.outputs, known))
    uses = op_uses((node.get_type_name(), str(node.get_type_info().version_id or ""), _dtypes(node)) for node in nodes)
    return Opened(signature, dict(sorted(ops.items())), foreign, numbers, size, companions, uses=uses)


def _dtypes(node: Any) -> list[str]:
    names = [output.get_element_type().get_type_name() for output in node.outputs()]
    return [_DTYPES.get(name, name) for name in names]


def _companions(path: Path) -> tuple[Path, ...]:
    """The files that OpenVINO reads besides: the weights of an IR, the external data of an ONNX file, which it takes as well."""
    if path.suffix == ".onnx":
        try:
            from kpipe_stages.artifacts import onnx_model

            return onnx_model.read(path).companions
        except ImportError as error:
            raise _unreadable(path, f"can't be searched for files that belong to it without the library onnx ({error})") from error
    if not path.with_suffix(".bin").is_file():
        raise _unreadable(path, f"has no {path.with_suffix('.bin').name} beside it")
    return (path.with_suffix(".bin"),)


def _all_nodes(model: Any) -> Iterator[Any]:
    for node in model.get_ops():
        yield node
        for body in _bodies(node):
            yield from _all_nodes(body)


def _bodies(node: Any) -> Iterator[Any]:
    """The sub-graphs of an If or of a loop; an If's ``get_function`` wants to know which."""
    getters = [getter for name in ("get_then_body", "get_else_body", "get_body") if (getter := getattr(node, name, None)) is not None]
    if not getters and (getter := getattr(node, "get_function", None)) is not None:
        getters = [getter] if node.get_type_name() != "If" else [partial(getter, 0), partial(getter, 1)]
    for getter in getters:
        yield getter()


def _specs(ports: Sequence[Any], known: Collection[str]) -> tuple[TensorSpec, ...]:
    taken: list[str] = []
    specs = []
    for port in ports:
        specs.append(_spec(port, known, taken))
        taken.append(specs[-1].name)
    return tuple(specs)


def _spec(port: Any, known: Collection[str], taken: Collection[str]) -> TensorSpec:
    shape = port.get_partial_shape()
    names = sorted(port.get_names(), key=lambda name: (name in taken, name not in known, len(name), name))
    dims = None if shape.rank.is_dynamic else tuple(None if dim.is_dynamic else int(dim.get_length()) for dim in shape)
    return TensorSpec(
        name=names[0] if names else port.get_node().friendly_name,
        shape=dims,
        dtype=_DTYPES.get(port.get_element_type().get_type_name(), port.get_element_type().get_type_name()),
    )


def _unreadable(path: Path, reason: str) -> StageError:
    return StageError(Observation("KP303", f"{path.name} {reason}.", "Convert it again; an IR is two files, .xml and .bin.", place="openvino_ir"))

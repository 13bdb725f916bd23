"""Open an artifact again after it was written (or handed in) and put down what it is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe_stages.artifacts.inventory import FORMAT_TITLES, Opened, bind, compare_size
from kpipe_stages.digest import digest, size
from kpipe_stages.protocol import Artifact, Binding, Observation, OpUse, Signature, StageError

if TYPE_CHECKING:
    from kpipe_stages.artifacts.tracing import Trace
    from kpipe_stages.worker import Worker


NAMED_LAYERS = 4
"""As many layers an op's message names at most."""
TF_NAMES: dict[tuple[str, str], tuple[str, ...]] = {
    ("litert", "FULLY_CONNECTED"): ("MatMul", "BatchMatMulV2"),
    ("litert", "BATCH_MATMUL"): ("BatchMatMulV2", "MatMul"),
    ("litert", "DEPTHWISE_CONV_2D"): ("DepthwiseConv2dNative",),
    ("litert", "AVERAGE_POOL_2D"): ("AvgPool",),
    ("litert", "MAX_POOL_2D"): ("MaxPool",),
    ("litert", "LOGISTIC"): ("Sigmoid",),
    ("litert", "TRANSPOSE_CONV"): ("Conv2DBackpropInput",),
    ("litert", "DIV"): ("RealDiv",),
    ("litert", "GELU"): ("Erfc",),
    ("litert", "GATHER"): ("GatherV2", "ResourceGather"),
    ("litert", "WHILE"): ("StatelessWhile", "While"),
    ("onnx", "Gemm"): ("MatMul",),
    ("onnx", "Conv"): ("Conv2D", "DepthwiseConv2dNative", "Conv3D"),
    ("onnx", "AveragePool"): ("AvgPool",),
    ("onnx", "GlobalAveragePool"): ("Mean",),
    ("onnx", "ReduceMean"): ("Mean",),
    ("onnx", "ConvTranspose"): ("Conv2DBackpropInput",),
    ("onnx", "Div"): ("RealDiv",),
    ("onnx", "Erf"): ("Erfc",),
    ("onnx", "Gather"): ("GatherV2", "ResourceGather"),
}
"""Format and op to the TensorFlow ops that a converter makes it of, where the names differ by more than case and underscores."""


@dataclass(frozen=True)
class Written:
    """An artifact on disk."""

    kind: str
    """A format of `kpipe_stages.catalog.FORMATS`."""
    path: Path
    known: Binding | None = None
    """The names it was written under; None for a file that was handed in."""
    versions: dict[str, str] = field(default_factory=dict)
    repairs: tuple[str, ...] = ()


def read(kind: str, path: Path, known: Binding | None = None) -> Opened:
    """Read an artifact of any format; only its own format's library is imported."""
    from kpipe_stages.artifacts import litert, onnx_model, openvino_ir, saved_model

    if kind == "openvino_ir":
        return openvino_ir.read(path, {*known.inputs.values(), *known.outputs.values()} if known else ())
    return {"saved_model": saved_model.read, "litert": litert.read, "onnx": onnx_model.read}[kind](path)


def record(
    written: Written, model: Signature, parameters: int, *, traced: Trace | None = None, foreign_allowed: bool = False
) -> tuple[Artifact | None, list[Observation]]:
    """Read ``written`` back, bind it to ``model`` and compare.

    Args:
        written: the artifact.
        model: the model's own signature.
        parameters: how many numbers the model has, 0 for unknown.
        traced: tells which layer an op comes from.
        foreign_allowed: ops outside the runtime's own set are listed, not observed.

    Returns:
        The artifact, None where it can't be bound to the model; and what was observed.

    Raises:
        StageError: it can't be read.
    """
    opened = read(written.kind, written.path, written.known)
    binding, seen = bind(written.kind, model, opened, written.known)
    seen += compare_size(written.kind, opened, parameters)
    if opened.foreign_ops and not foreign_allowed:
        seen.append(_foreign(written.kind, opened.foreign_ops, traced))
    seen = [replace(observation, evidence={**observation.evidence, "format": written.kind}) for observation in seen]
    if binding is None:
        return None, seen
    artifact = Artifact(
        format=written.kind,
        path=str(written.path),
        sha256=digest(written.path, opened.companions),
        size=size(written.path, opened.companions),
        signature=opened.signature,
        binding=binding,
        ops=opened.ops,
        foreign_ops=opened.foreign_ops,
        parameters_bytes=opened.parameters_bytes,
        repairs=written.repairs,
        versions=written.versions,
        batch=opened.batch,
        companions=tuple(str(path) for path in opened.companions),
        op_layers=_op_layers(written.kind, opened, traced),
        inventory=_inventory(written.kind, opened, traced),
        opset=opened.opset,
    )
    return artifact, seen


def _op_layers(kind: str, opened: Opened, traced: Trace | None) -> dict[str, tuple[str, ...]]:
    """Op name, in the format's own spelling, to layers."""
    if traced is None:
        return {}
    places = {op: _places(kind, op, traced) for op in opened.ops}
    return {op: tuple(found[:NAMED_LAYERS]) for op, found in places.items() if found}


def _inventory(kind: str, opened: Opened, traced: Trace | None) -> tuple[OpUse, ...]:
    """The ops with the layers that they come from: by an op's own name in TensorFlow's formats, by `TF_NAMES` where the format has other names."""
    if traced is None:
        return opened.uses
    return tuple(replace(use, layers=tuple(_places(kind, use.op, traced)[:NAMED_LAYERS])) for use in opened.uses)


def _places(kind: str, op: str, traced: Trace) -> list[str]:
    plain = op.removeprefix("Flex")
    names = (plain, *TF_NAMES.get((kind, plain), ()), plain.replace("_", "").lower() if kind != "saved_model" else "")
    known = {name.lower().removesuffix("v2").removesuffix("v3"): name for name in traced.op_layers}
    found = [traced.op_layers.get(name) or traced.op_layers.get(known.get(name.lower(), ""), []) for name in names]
    return list(dict.fromkeys(place for places in found for place in places))


def accept(worker: Worker, written: Written, model: Signature, parameters: int) -> Artifact:
    """`record` for a stage with one artifact: observe what doesn't stop it, raise what does.

    Raises:
        StageError: it can't be read, or can't be bound to the model.
    """
    artifact, seen = record(written, model, parameters)
    stopping = next((observation for observation in seen if observation.code in {"KP207", "KP213"}), None)
    for observation in seen:
        if artifact is not None or observation is not stopping:
            worker.observations.append(observation)
    if artifact is None:
        assert stopping is not None  # noqa: S101 - `bind` never refuses without saying why
        raise StageError(stopping)
    return artifact


def repaired(kind: str, repair: str) -> Observation:
    """KP209 for one of an artifact's repairs."""
    layer = re.search(r" in layer '([^']*)'", repair)
    return Observation(
        "KP209",
        repair,
        "Ship this very artifact (its digest is in deploy.toml), or change the layer so that no repair is needed.",
        place=layer[1] if layer else kind,
        evidence={"format": kind},
    )


def _foreign(kind: str, ops: tuple[str, ...], traced: Trace | None) -> Observation:
    places = {op: traced.places_of(op.removeprefix("Flex")) if traced is not None else [] for op in ops}
    named = ", ".join(f"{op} (layer {', '.join(places[op][:3])})" if places[op] else op for op in ops)
    first = next((place for op in ops for place in places[op]), kind)
    return Observation(
        "KP202",
        f"The {FORMAT_TITLES[kind]} artifact needs {named}, outside the runtime's own ops.",
        "Replace the layer by one made of ops that this runtime has"
        + (", or allow Select TF ops and ship the runtime that holds them." if kind == "litert" else "."),
        place=first,
        evidence={"ops": list(ops), "layers": places},
    )

"""Open an artifact again after it was written (or handed in) and put down what it is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from kpipe_stages.artifacts.inventory import FORMAT_TITLES, Opened, bind, compare_size
from kpipe_stages.artifacts.op_names import NAMED_LAYERS, layers_of
from kpipe_stages.digest import digest, size
from kpipe_stages.protocol import Artifact, Binding, Observation, OpUse, Signature, StageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kpipe_stages.artifacts.tracing import Trace
    from kpipe_stages.worker import Worker

NOTHING: Mapping[str, Sequence[str]] = MappingProxyType({})


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
    written: Written,
    model: Signature,
    parameters: int,
    *,
    traced: Trace | None = None,
    op_layers: Mapping[str, Sequence[str]] = NOTHING,
    foreign_allowed: bool = False,
) -> tuple[Artifact | None, list[Observation]]:
    """Read ``written`` back, bind it to ``model`` and compare.

    Args:
        written: the artifact.
        model: the model's own signature.
        parameters: how many numbers the model has, 0 for unknown.
        traced: tells which layer an op comes from.
        op_layers: tells it where there is no trace here: op of TensorFlow, or of this very format, to layers.
        foreign_allowed: ops outside the runtime's own set are listed, not observed.

    Returns:
        The artifact, None where it can't be bound to the model; and what was observed.

    Raises:
        StageError: it can't be read.
    """
    opened = read(written.kind, written.path, written.known)
    op_layers = traced.op_layers if traced is not None else op_layers
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
        op_layers=_op_layers(written.kind, opened, op_layers),
        inventory=_inventory(written.kind, opened, op_layers),
        opset=opened.opset,
    )
    return artifact, seen


def _op_layers(kind: str, opened: Opened, known: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Op name, in the format's own spelling, to layers."""
    places = {op: layers_of(kind, op, known) for op in opened.ops}
    return {op: tuple(found[:NAMED_LAYERS]) for op, found in places.items() if found}


def _inventory(kind: str, opened: Opened, known: Mapping[str, Sequence[str]]) -> tuple[OpUse, ...]:
    """The ops with the layers that they come from."""
    return tuple(replace(use, layers=tuple(layers_of(kind, use.op, known)[:NAMED_LAYERS])) for use in opened.uses)


def accept(worker: Worker, written: Written, model: Signature, parameters: int, op_layers: Mapping[str, Sequence[str]] = NOTHING) -> Artifact:
    """`record` for a stage with one artifact: observe what doesn't stop it, raise what does.

    Raises:
        StageError: it can't be read, or can't be bound to the model.
    """
    artifact, seen = record(written, model, parameters, op_layers=op_layers)
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

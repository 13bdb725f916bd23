"""Does an artifact keep to the ops that its place has? Pure, over the inventory that was read back from the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kpipe.opsets import LITERT_MICRO, RUNTIME_OF_OPSET, NamedProfile, named_profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe.contract import OpProfileTable
    from kpipe_stages.protocol import OpUse


class Listed(Protocol):
    """What has an inventory: an artifact, or a file that was only read."""

    @property
    def inventory(self) -> tuple[OpUse, ...]:
        """Its ops."""

    @property
    def opset(self) -> int:
        """Of ai.onnx, 0 where it is no ONNX file."""


NO_LAYER = "of no layer that kpipe can name"


@dataclass(frozen=True)
class Violation:
    """One op that isn't in the profile."""

    op: str
    version: str
    count: int
    layers: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Checked:
    """What came of a profile."""

    violations: tuple[Violation, ...] = ()
    unknown: str = ""
    """Why it could not be checked; empty where it was."""


def check_ops(profile: str, own: Mapping[str, OpProfileTable], artifact: Listed, facts: Mapping[str, Any] | None) -> Checked:
    """Hold an artifact against a profile.

    Args:
        profile: its name.
        own: the contract's ``[op_profiles]``.
        artifact: with its inventory.
        facts: what the runtime said of itself, ``query_model`` among it; None where it never ran.
    """
    if not artifact.inventory:
        return Checked(unknown="the artifact's ops were not read")
    if profile in own:
        return Checked(tuple(found for use in artifact.inventory if (found := _against_own(use, own[profile])) is not None))
    named = named_profile(profile)
    assert named is not None  # the contract was checked
    if named.device:
        return _queried(named, artifact, facts)
    if named.runtime != (0, 0):
        return _runtime(named, artifact)
    return Checked(tuple(_violation(use, why) for use in artifact.inventory if (why := _why(named, use))))


def _violation(use: OpUse, why: str) -> Violation:
    return Violation(use.op, use.version, use.count, use.layers, why)


def _against_own(use: OpUse, table: OpProfileTable) -> Violation | None:
    if use.op not in table.ops:
        return _violation(use, "it isn't in the list")
    limit = table.versions.get(use.op)
    if limit is not None and (not use.version.isdecimal() or int(use.version) > limit):
        return _violation(use, f"it is version {use.version or 'unknown'}, and the list ends at {limit}")
    return None


def _why(named: NamedProfile, use: OpUse) -> str:
    """Why an op is outside a profile that is a list; empty where it is inside."""
    foreign = use.op.startswith(("Flex", "CUSTOM:"))
    if named.name == "litert-builtin":
        return "it isn't one of LiteRT's own ops" if foreign else ""
    if named.name == "litert-select-tf":
        return "it is a custom op, neither LiteRT's nor TensorFlow's" if use.op.startswith("CUSTOM:") else ""
    if named.name == "tflite-micro":
        return "" if use.op in LITERT_MICRO else "TensorFlow Lite Micro has no kernel for it"
    domain, _, _ = use.op.rpartition("::")
    if domain:
        return f"it is of the domain {domain}, not of ONNX itself"
    return "" if use.version.isdecimal() and int(use.version) <= named.opset else f"it came, or changed, with opset {use.version or 'unknown'}"


def needed_runtime(artifact: Listed) -> tuple[tuple[int, int] | None, int]:
    """The first release of ONNX Runtime that reads an ONNX file's opset, None where the table doesn't know it; and that opset."""
    opset = artifact.opset
    return RUNTIME_OF_OPSET.get(opset) if opset >= min(RUNTIME_OF_OPSET) else (0, 1), opset


def _runtime(named: NamedProfile, artifact: Listed) -> Checked:
    needed, opset = needed_runtime(artifact)
    if needed is None or not opset:
        return Checked(unknown=f"the first ONNX Runtime for opset {opset or 'unknown'} is not in kpipe's table")
    own = next((use.op for use in artifact.inventory if "::" in use.op), "")
    if needed <= named.runtime:
        return Checked(unknown=f"which ONNX Runtime brought {own}, no op of ONNX itself, is not in kpipe's table" if own else "")
    late = tuple(
        use
        for use in artifact.inventory
        if "::" not in use.op and use.version.isdecimal() and RUNTIME_OF_OPSET.get(int(use.version), needed) > named.runtime
    )
    wanted = ".".join(map(str, needed))
    rows = tuple(_violation(use, f"it came, or changed, with opset {use.version}, which needs ONNX Runtime {wanted}") for use in late)
    return Checked(rows or (Violation("(opset)", str(opset), 1, (), f"the file declares opset {opset}, which needs ONNX Runtime {wanted}"),))


def _queried(named: NamedProfile, artifact: Listed, facts: Mapping[str, Any] | None) -> Checked:
    query = (facts or {}).get("query_model")
    if not isinstance(query, dict) or query.get("device") != named.device:
        return Checked(unknown=f"OpenVINO was never asked about {named.device}: the target didn't load")
    if query.get("problem"):
        return Checked(unknown=str(query["problem"]))
    layers = {use.op: use.layers for use in artifact.inventory}
    return Checked(
        tuple(Violation(op, "", len(names), layers.get(op, ()), f"{named.device} doesn't take it") for op, names in query["unsupported"].items())
    )


def told(violation: Violation) -> str:
    """One op for a message."""
    version = f" version {violation.version}" if violation.version else ""
    where = f"layer {', '.join(violation.layers)}" if violation.layers else NO_LAYER
    return f"{violation.op}{version}, {violation.count} times ({where}): {violation.why}"

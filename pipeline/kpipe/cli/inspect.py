"""``kpipe inspect``: what lies in the archive."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kpipe.errors import Exit, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe.findings import Finding
    from kpipe_stages.protocol import InspectResult, Signature


def run_inspect(model: Path, contract: Path | None, custom_objects: tuple[Path, ...], op_profile: str | None, *, as_json: bool) -> int:
    """Inspect and print; FAIL where the archive would be refused."""
    from kpipe.cli.inspect_ops import format_of, run_list

    if (kind := format_of(model)) is not None:
        return run_list(model, kind, contract, op_profile, as_json=as_json)
    if op_profile is not None:
        raise UsageError(f"--op-profile is about ops, and {model} is no artifact: give a .tflite, .onnx or .xml file, or a SavedModel folder.")
    from kpipe.judging.judge import inspection
    from kpipe.judging.stages import stage_findings
    from kpipe.judging.verdict import failing
    from kpipe.running.request import Request, resolve
    from kpipe.running.single import run_stage
    from kpipe_stages.protocol import InspectJob

    resolved = resolve(Request(model, contract, custom_objects=custom_objects), golden=False)
    stage = run_stage(
        "inspect", InspectJob(str(resolved.request.model), resolved.trust), backend=None, time_limit_s=resolved.loaded.contract.run.stage_s
    )
    findings, result = stage_findings(stage, failed_as="KP001"), inspection(stage)
    if as_json:
        print(json.dumps(_document(result, findings), ensure_ascii=False, indent=1))
    else:
        print("\n".join([*_describe(model, result), *_tell(findings)]))
    return Exit.FAIL if failing(findings) or result is None else Exit.PASS


def _document(result: InspectResult | None, findings: list[Finding]) -> dict[str, Any]:
    from kpipe_stages.codec import encode

    return {"archive": encode(result), "findings": encode(findings)}


def _describe(model: Path, result: InspectResult | None) -> list[str]:
    if result is None:
        return [f"{model}: refused, nothing of it was run"]
    lines = [
        f"{model}: {result.model_class} '{result.model_name}', saved by Keras {result.keras_version} {result.saved_at}".rstrip(),
        f"  sha256      {result.sha256}",
        f"  size        {result.size:,} bytes; {result.parameters:,} parameters in {result.weight_bytes:,} bytes of weights; optimizer state: {'yes' if result.has_optimizer else 'no'}",
        *_signature(result.signature),
        "  layers",
    ]
    for row in result.layers:
        extra = f" ({row.registered_name})" if row.registered_name and row.registered_name != row.class_name else ""
        count = "" if row.parameters is None else f"{row.parameters:,} parameters"
        forced = "training=True forced" if row.forced_training else ""
        lines.append(
            "    " + "  ".join(part for part in (f"{row.name:<24}", f"{row.class_name}{extra:<20}", row.dtype, count, forced) if part).rstrip()
        )
    return lines


def _signature(signature: Signature | None) -> list[str]:
    if signature is None:
        return ["  signature   known only after loading (a subclassed model)"]
    lines = []
    for kind, specs in (("input", signature.inputs), ("output", signature.outputs)):
        for spec in specs:
            shape = "unknown shape" if spec.shape is None else "(" + ", ".join("any" if n is None else str(n) for n in spec.shape) + ")"
            lines.append(f"  {kind:<11} {spec.name}  {shape}  {spec.dtype}".rstrip())
    return lines


def _tell(findings: list[Finding]) -> list[str]:
    lines = []
    for item in findings:
        place = f" [{item.place}]" if item.place else ""
        lines += [f"{item.code} {item.severity}{place}: {item.cause}", f"  {item.remedy}"]
    return lines

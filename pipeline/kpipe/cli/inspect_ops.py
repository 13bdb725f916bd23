"""``kpipe inspect ARTIFACT``: its ops, and whether a place has them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kpipe.errors import Exit, UsageError, nearest

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe.contract import OpProfileTable
    from kpipe.judging.ops import Checked
    from kpipe_stages.build_orders import ListResult

SUFFIXES = {".tflite": "litert", ".onnx": "onnx", ".xml": "openvino_ir"}
LIMIT_S = 600.0


def format_of(path: Path) -> str | None:
    """An artifact's format by its name, or a SavedModel's by what lies in the folder; None for anything else."""
    if path.is_dir() and ((path / "saved_model.pb").is_file() or any(path.glob("*/saved_model.pb"))):
        return "saved_model"
    return SUFFIXES.get(path.suffix) if path.is_file() else None


def run_list(path: Path, kind: str, contract: Path | None, op_profile: str | None, *, as_json: bool) -> int:
    """Read in a worker, print; 1 where an op is outside the profile, 3 where the profile could not be checked."""
    from kpipe.contract import load_contract
    from kpipe.evidence import Ending
    from kpipe.judging.ops import check_ops
    from kpipe.judging.stages import stage_findings
    from kpipe.opsets import named_profile
    from kpipe.running.single import run_stage
    from kpipe_stages.build_orders import ListJob, ListResult
    from kpipe_stages.codec import decode, encode

    own = load_contract(contract).contract.op_profiles if contract else {}
    _check_profile(op_profile, own, kind)
    named = named_profile(op_profile) if op_profile else None
    job = ListJob(kind, str(path.resolve()), named.device if named else "")
    stage = run_stage("list_ops", job, backend="tensorflow" if kind == "saved_model" else None, time_limit_s=LIMIT_S)
    if stage.ending is not Ending.OK or stage.result is None:
        raise UsageError(f"{path} can't be read: " + "; ".join(f"{finding.cause} {finding.remedy}" for finding in stage_findings(stage)))
    result = decode(ListResult, stage.result.data)
    checked = check_ops(op_profile, own, result, {"query_model": result.query}) if op_profile else None
    if as_json:
        print(json.dumps({"artifact": encode(result), "op_profile": op_profile, "checked": encode(checked)}, ensure_ascii=False, indent=1))
    else:
        print("\n".join([*_described(path, kind, result), *_told(op_profile or "", checked)]))
    if checked is None:
        return Exit.PASS
    return Exit.FAIL if checked.violations else Exit.INCOMPLETE if checked.unknown else Exit.PASS


def _check_profile(name: str | None, own: dict[str, OpProfileTable], kind: str) -> None:
    from kpipe.opsets import NAMES, named_profile

    if name is None or name in own:
        return
    named = named_profile(name)
    if named is None:
        raise UsageError(f"--op-profile {name}: no such profile{nearest(name, [*NAMES, *own])}. Expected one of {', '.join((*NAMES, *own))}.")
    fits = {"litert": {"litert"}, "onnx": {"onnx"}, "openvino": {"openvino_ir", "saved_model", "onnx"}}[named.format]
    if kind not in fits:
        raise UsageError(f"--op-profile {name} is about {named.format}; this file is of the format {kind}.")


def _described(path: Path, kind: str, result: ListResult) -> list[str]:
    opset = f", opset {result.opset}" if result.opset else ""
    lines = [f"{path}: {kind}{opset}; {result.parameters:,} numbers in {result.parameters_bytes:,} bytes"]
    for side, specs in (("input", result.signature.inputs), ("output", result.signature.outputs)):
        for spec in specs:
            shape = "unknown shape" if spec.shape is None else "(" + ", ".join("any" if n is None else str(n) for n in spec.shape) + ")"
            lines.append(f"  {side:<7} {spec.name}  {shape}  {spec.dtype}")
    lines.append(f"  {sum(use.count for use in result.inventory)} ops of {len(result.inventory)} kinds")
    for use in result.inventory:
        foreign = "  outside the runtime's own ops" if use.op in result.foreign_ops else ""
        lines.append(f"    {use.count:>5}  {use.op:<32} {use.version:<8} {', '.join(use.dtypes)}{foreign}".rstrip())
    lines.append("  Which Keras layer an op comes from, a file alone doesn't tell; the run.json of a validation or a preflight does (inventory).")
    return lines


def _told(profile: str, checked: Checked | None) -> list[str]:
    from kpipe.judging.ops import told

    if checked is None:
        return []
    if checked.unknown:
        return [f"{profile}: unchecked, {checked.unknown}"]
    return (
        [f"{profile}: ops outside it: {len(checked.violations)}", *(f"  {told(one)}" for one in checked.violations)]
        if checked.violations
        else [f"{profile}: every op is in it"]
    )

"""``kpipe init``: a first contract beside the model, and a golden folder from raw files."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from kpipe.contract import CONTRACT_NAME, parse_contract
from kpipe.drafting import draft_contract, draft_manifest
from kpipe.errors import Exit, UsageError
from kpipe.golden import MANIFEST, sha256_of
from kpipe.judging.judge import inspection, model_signature
from kpipe.judging.stages import stage_findings
from kpipe.judging.verdict import failing
from kpipe.running.plan import missing_distributions
from kpipe.running.request import Request, resolve
from kpipe.running.single import run_stage
from kpipe.running.system import this_interpreter
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.protocol import ExportJob, InspectJob

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe.findings import Finding
    from kpipe.running.request import Resolved
    from kpipe_stages.protocol import InspectResult, Signature

RAW_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".npy"})
STAGE_LIMIT_S = 600.0


def run_init(model: Path, raw: Path | None, out: Path | None, golden: Path | None, custom_objects: tuple[Path, ...]) -> int:
    """Write both; nothing that exists is overwritten."""
    contract = (out or model.parent / CONTRACT_NAME).resolve()
    if contract.exists():
        raise UsageError(f"{contract} exists already. Name another file with --out; nothing was changed.")
    resolved = resolve(Request(model, custom_objects=custom_objects), golden=False)
    inspected, signature = _look(resolved)
    folder = (golden or contract.parent / "golden_inputs").resolve()
    if raw is not None:
        count = make_golden(raw, folder, [spec.name for spec in signature.inputs])
        print(f"{folder}: {count} golden inputs; look at labels, slices and expected decisions in {MANIFEST}")
    here = this_interpreter()
    text = draft_contract(
        signature,
        inspected,
        custom_objects=[os.path.relpath(path, contract.parent) for path in resolved.trust.custom_objects],
        golden=os.path.relpath(folder, contract.parent) if raw is not None else None,
        runtimes={name: row.required_by_default for name, row in RUNTIMES.items() if row.default_target and not missing_distributions(row, here)},
    )
    parse_contract(text, str(contract))
    contract.write_text(text, encoding="utf-8")
    print(f"{contract}: written; look at [inputs] and [decision], then: kpipe validate {model} --contract {contract}")
    return Exit.PASS


def _look(resolved: Resolved) -> tuple[InspectResult, Signature]:
    """Inspect the archive; reload it only where the archive can't tell the signature."""
    model = str(resolved.request.model)
    stage = run_stage("inspect", InspectJob(model, resolved.trust), backend=None, time_limit_s=STAGE_LIMIT_S)
    inspected = inspection(stage)
    if inspected is None or failing(stage_findings(stage, failed_as="KP001")):
        raise UsageError(_why(stage_findings(stage, failed_as="KP001"), model))
    if inspected.signature is not None:
        return inspected, inspected.signature
    reload = run_stage("export", ExportJob(model, resolved.trust, (), ""), backend="tensorflow", time_limit_s=STAGE_LIMIT_S)
    signature = model_signature({"export": reload})
    if signature is None:
        raise UsageError(_why(stage_findings(reload, failed_as="KP012"), model))
    return inspected, signature


def _why(findings: list[Finding], model: str) -> str:
    causes = "; ".join(f"{f.code}: {f.cause} {f.remedy}" for f in findings)
    return f"{model} can't be read, so no contract was written: {causes}"


def make_golden(raw: Path, folder: Path, inputs: list[str]) -> int:
    """Copy raw files into a golden folder and write its manifest; a sub-folder's name becomes the label of the files in it."""
    if len(inputs) != 1:
        raise UsageError(
            f"--raw makes golden inputs of one file each, and the model has {len(inputs)} inputs ({', '.join(inputs)}). Write the manifest by hand; see docs/golden.md."
        )
    if not raw.is_dir():
        raise UsageError(f"--raw {raw} is no folder. Expected a directory of raw files.")
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"the golden folder {folder} is not empty. Name another one with --golden; nothing was changed.")
    files = sorted(path for path in raw.rglob("*") if path.is_file() and path.suffix.lower() in RAW_SUFFIXES)
    if not files:
        raise UsageError(f"--raw {raw} holds none of the kinds {', '.join(sorted(RAW_SUFFIXES))}. Nothing was written.")
    entries = []
    for path in files:
        name = path.relative_to(raw).as_posix()
        target = folder / "files" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        label = path.relative_to(raw).parts[0] if len(path.relative_to(raw).parts) > 1 else None
        entries.append((f"files/{name}", sha256_of(target), label))
    (folder / MANIFEST).write_text(draft_manifest(entries, f"collected from {raw.name}"), encoding="utf-8")
    return len(entries)

"""``kpipe init``: a first contract beside the model, and a golden folder from raw files."""

from __future__ import annotations

import csv
import os
import shutil
from collections import Counter
from typing import TYPE_CHECKING

from kpipe.contract import CONTRACT_NAME, parse_contract
from kpipe.drafting import NO_FILES, RawFiles, draft_contract, draft_manifest, kind_for
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
    from kpipe_stages.protocol import InspectResult, Signature, TensorSpec

KINDS = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"), "image"),
    **dict.fromkeys((".wav", ".flac"), "audio"),
    ".txt": "text",
    ".csv": "table",
    ".parquet": "table",
    ".npy": "npy",
}
"""Suffix to the decoder of such files."""
MOST_NAMES = 1000
"""Columns that a first contract lists."""
MOST_ROWS = 10_000
"""Of one table: each becomes a golden input."""
STAGE_LIMIT_S = 600.0


def run_init(model: Path, raw: Path | None, out: Path | None, golden: Path | None, custom_objects: tuple[Path, ...]) -> int:
    """Write both; nothing that exists is overwritten."""
    contract = (out or model.parent / CONTRACT_NAME).resolve()
    if contract.exists():
        raise UsageError(f"{contract} exists already. Name another file with --out; nothing was changed.")
    resolved = resolve(Request(model, custom_objects=custom_objects), golden=False)
    inspected, signature = _look(resolved)
    look = NO_FILES
    folder = (golden or contract.parent / "golden_inputs").resolve()
    if raw is not None:
        files, others = of_one_kind(raw_files(raw, [spec.name for spec in signature.inputs], folder), signature.inputs[0])
        look = look_at(files)
        count = make_golden(raw, files, folder)
        if others:
            print(f"{raw}: {len(others)} of another kind left out, {others[0].name} first")
        print(f"{folder}: {count} golden inputs; look at labels, slices and expected decisions in {MANIFEST}")
    here = this_interpreter()
    text = draft_contract(
        signature,
        inspected,
        custom_objects=[os.path.relpath(path, contract.parent) for path in resolved.trust.custom_objects],
        golden=os.path.relpath(folder, contract.parent) if raw is not None else None,
        raw=look,
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


def raw_files(raw: Path, inputs: list[str], folder: Path) -> list[Path]:
    """The raw files that can become golden inputs, by name.

    Raises:
        UsageError: the model has several inputs, there are no such files, or the golden folder isn't empty.
    """
    if len(inputs) != 1:
        raise UsageError(
            f"--raw makes golden inputs of one file each, and the model has {len(inputs)} inputs ({', '.join(inputs)}). Write the manifest by hand; see docs/golden.md."
        )
    if not raw.is_dir():
        raise UsageError(f"--raw {raw} is no folder. Expected a directory of raw files.")
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"the golden folder {folder} is not empty. Name another one with --golden; nothing was changed.")
    files = sorted(path for path in raw.rglob("*") if path.is_file() and path.suffix.lower() in KINDS)
    if not files:
        raise UsageError(f"--raw {raw} holds none of the kinds {', '.join(sorted(KINDS))}. Nothing was written.")
    return files


def of_one_kind(files: list[Path], spec: TensorSpec) -> tuple[list[Path], list[Path]]:
    """The files of the kind that the model's input is made of, and the others: one decoder reads all golden inputs."""
    kind = kind_for(spec, Counter(KINDS[path.suffix.lower()] for path in files))
    return [path for path in files if KINDS[path.suffix.lower()] == kind], [path for path in files if KINDS[path.suffix.lower()] != kind]


def look_at(files: list[Path]) -> RawFiles:
    """What the files are, all of one kind; the columns are those of the first table."""
    first = files[0]
    is_csv = first.suffix.lower() == ".csv"
    header = _csv_lines(first)[0] if is_csv else []
    if len(set(header)) != len(header) or "" in header or len(header) > MOST_NAMES:
        header = []  # nothing that columns could be found by
    kind = KINDS[first.suffix.lower()]
    return RawFiles(kind, "csv" if is_csv else first.suffix.lower().removeprefix("."), tuple(header), _shapes(files) if kind == "npy" else ())


def _shapes(files: list[Path]) -> tuple[tuple[int, ...], ...]:
    """Shapes of ``.npy`` files by their headers; none where one can't be read: the decoder says why."""
    import numpy as np

    try:
        return tuple(np.load(path, mmap_mode="r", allow_pickle=False).shape for path in files)
    except (OSError, ValueError, EOFError):
        return ()


def _csv_lines(path: Path) -> tuple[list[str], int]:
    """Header and number of rows of a CSV file; none where it can't be read as one: the decoder says why."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, strict=True)
            header = next(lines, [])
            return header, sum(1 for cells in lines if cells)
    except (OSError, UnicodeError, csv.Error):
        return [], 0


def make_golden(raw: Path, files: list[Path], folder: Path) -> int:
    """Copy raw files into a golden folder and write its manifest; a sub-folder's name becomes the label of the files in it.

    Raises:
        UsageError: a table has more rows than a golden set is made of.
    """
    rows = {f"files/{path.relative_to(raw).as_posix()}": _csv_lines(path)[1] for path in files if path.suffix.lower() == ".csv"}
    if large := next((name for name, count in rows.items() if count > MOST_ROWS), None):
        raise UsageError(
            f"--raw {raw}: {large} has {rows[large]:,} rows; at most {MOST_ROWS:,} become golden inputs. Draw a sample. Nothing was written."
        )
    entries = []
    for path in files:
        name = path.relative_to(raw).as_posix()
        target = folder / "files" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        label = path.relative_to(raw).parts[0] if len(path.relative_to(raw).parts) > 1 else None
        entries.append((f"files/{name}", sha256_of(target), label))
    several = {name: count for name, count in rows.items() if count > 1}
    (folder / MANIFEST).write_text(draft_manifest(entries, f"collected from {raw.name}", several), encoding="utf-8")
    return sum(several.get(file, 1) for file, _, _ in entries)

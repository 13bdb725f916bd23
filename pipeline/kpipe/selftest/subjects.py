"""The healthy setups: the selftest's own small models, and a user's."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomlkit

from kpipe.api import validate
from kpipe.errors import KpipeError, UsageError
from kpipe.evidence import Ending
from kpipe.record import Verdict
from kpipe.running import system
from kpipe.running.single import run_stage
from kpipe.selftest.fault import Setup, Table
from kpipe.selftest.own import HEALTHY
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import decode
from kpipe_stages.plant_orders import SubjectsJob, SubjectsResult
from kpipe_stages.protocol import Trust

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe.api import Run
    from kpipe.record import RunRecord

    Say = Callable[[str], None]

RUNNABLE = ("litert", "onnxruntime", "openvino")
"""The targets that faults are about, where they are installed."""

QUIET: Table = {"calls": 0, "end_to_end_calls": 0}

BUILD_LIMIT_S = 600.0


def targets(wanted: tuple[str, ...] = RUNNABLE) -> Table:
    """Tables of the installed runtimes; precision is stated, so that none has to be chosen.

    Raises:
        UsageError: none of them is installed.
    """
    here = system.this_interpreter().versions
    found: Table = {name: {} for name in wanted if all(d in here for d in RUNTIMES[name].distributions)}
    if not found:
        raise UsageError(f"none of {', '.join(wanted)} is installed, so there is no target to plant faults into. Install keras-kpipe[litert].")
    for name, table in found.items():
        if RUNTIMES[name].float32_settings:
            table["settings"] = dict(RUNTIMES[name].float32_settings)
    return found


def own_setups(names: tuple[str, ...], out: Path, say: Say) -> list[Setup]:
    """Build the selftest's own models and let each pass once; what the healthy model decides is then approved.

    Raises:
        KpipeError: a model could not be built, or doesn't pass on this machine.
    """
    return [_own(name, contract, entries, out / name, say) for name, (contract, entries) in build(names, out, 0, targets(), say).items()]


def build(names: tuple[str, ...], out: Path, draw: int, chosen: Table, say: Say) -> dict[str, tuple[Table, list[Table]]]:
    """Build models with their golden folders: name to contract and manifest entries. Nothing is approved yet.

    Raises:
        KpipeError: they could not be built.
    """
    say("building " + ", ".join(names))
    stage = run_stage("plant_subjects", SubjectsJob(str(out), names, draw), backend="tensorflow", time_limit_s=BUILD_LIMIT_S)
    if stage.ending is not Ending.OK or stage.result is None:
        failure = stage.result.failure if stage.result else None
        raise KpipeError(f"the selftest's models could not be built: {failure.message if failure else stage.detail}. It needs TensorFlow.")
    found = {}
    for name, files in decode(SubjectsResult, stage.result.data).files.items():
        golden = out / name / "golden"
        entries = [_entry(f"{name}-{i:02d}", golden, row) for i, row in enumerate(files)]
        _write(golden, entries)
        table = HEALTHY[name]
        found[name] = (settled({**table, "golden": {**table["golden"], "path": str(golden)}}, chosen), entries)
    return found


def _write(golden: Path, entries: list[Table]) -> None:
    write_manifest(golden, {"version": 1, "set": {"source": "drawn by kpipe selftest"}, "golden": entries})


def _own(name: str, contract: Table, entries: list[Table], folder: Path, say: Say) -> Setup:
    setup = _passed(name, folder / "model.keras", contract, folder, say)
    for entry, row in zip(entries, setup.record.golden.rows, strict=True):
        entry["expected"] = {r.rule: r.decision for r in row.rules} if row.rules else row.decision
    _write(setup.golden, entries)
    return replace(setup, record=approved(setup.record))


def approved(record: RunRecord) -> RunRecord:
    """The record with every decision approved, as the manifest says from now on."""
    rows = tuple(
        replace(row, expected=row.decision, rules=tuple(replace(rule, expected=rule.decision) for rule in row.rules)) for row in record.golden.rows
    )
    return replace(record, golden=replace(record.golden, rows=rows))


def _entry(name: str, golden: Path, files: dict[str, str]) -> Table:
    digests = {key: hashlib.sha256((golden / file).read_bytes()).hexdigest() for key, file in files.items()}
    if len(files) == 1:
        return {"id": name, "file": next(iter(files.values())), "sha256": next(iter(digests.values())), "chosen": "sampled"}
    return {"id": name, "files": files, "sha256": digests, "chosen": "sampled"}


def user_setup(model: Path, contract: Path, out: Path, say: Say) -> Setup:
    """A user's model by its own contract, with derived tolerances, no times, and the targets that faults are about.

    Raises:
        KpipeError: the contract can't be used, or has no raw golden folder, or the model doesn't pass.
    """
    from kpipe.contract import load_contract

    loaded = load_contract(contract)
    table = absolute(tomllib.loads(loaded.text), loaded.folder)
    path = table.get("golden", {}).get("path")
    if path is None or not Path(path).is_dir() or not table.get("inputs"):
        raise UsageError(
            f"{contract} names no folder of raw golden inputs with [inputs] that read them, and preprocessing is where most faults are. "
            "Add [golden] path and [inputs]; 'kpipe init MODEL --raw DIR' writes both."
        )
    wanted = tuple(name for name in RUNNABLE if name in table.get("targets", {})) or RUNNABLE
    if not model.is_file():
        raise UsageError(f"model {model} does not exist. Check the path.")
    name = model.stem if model.stem != "model" else model.resolve().parent.name
    return _passed(name, model.resolve(), settled(table, targets(wanted)), out / name, say)


def absolute(table: Table, folder: Path) -> Table:
    """The contract with paths that hold from anywhere."""
    found = {key: dict(value) if isinstance(value, dict) else value for key, value in table.items()}
    if "custom_objects" in found.get("model", {}):
        found["model"]["custom_objects"] = [str((folder / path).resolve()) for path in found["model"]["custom_objects"]]
    if "path" in found.get("golden", {}):
        found["golden"]["path"] = str((folder / found["golden"]["path"]).resolve())
    return found


def settled(table: Table, chosen: Table) -> Table:
    """The contract as the selftest uses it: derived tolerances, no pins (faults set them), no times, these targets."""
    found = {key: dict(value) if isinstance(value, dict) else value for key, value in table.items()}
    found.setdefault("model", {}).pop("sha256", None)
    found["golden"].pop("manifest_sha256", None)
    found["agreement"] = {"tolerance": "auto", "max_flips": 0}
    return {**found, "timing": dict(QUIET), "targets": chosen}


def _passed(name: str, model: Path, contract: Table, folder: Path, say: Say) -> Setup:
    """Validate once; only a setup that passes can show a fault."""
    say(f"{name}: the healthy run")
    run = run_contract(model, contract, folder / "healthy")
    if run.verdict is not Verdict.PASS:
        raise UsageError(
            f"the healthy setup '{name}' doesn't pass: {run.record.headline} A fault can't be told from that. See {run.report}, and mend it first."
        )
    artifacts = {t.artifact.format: str(run.folder / t.artifact.path) for t in run.record.targets if t.artifact is not None}
    table = contract.get("model", {})
    trust = Trust(tuple(table.get("custom_objects", ())), tuple(table.get("allow_modules", ())), tuple(table.get("allow_lambda", ())))
    if (saved := run.folder / "artifacts" / "saved_model" / "1").is_dir():
        artifacts["saved_model"] = str(saved)
    return Setup(name, model, contract, trust, run.folder, run.record, artifacts)


def run_contract(model: Path, contract: Table, folder: Path, *, golden: Path | None = None) -> Run:
    """Validate by a contract that is a table.

    Raises:
        KpipeError: as `kpipe.validate`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "kpipe.toml"
    path.write_text(tomlkit.dumps(contract), encoding="utf-8")
    return validate(model, contract=path, golden=golden, out=folder / "run")


def write_manifest(folder: Path, manifest: Table) -> None:
    """Write a golden folder's manifest."""
    (folder / "manifest.toml").write_text(tomlkit.dumps(manifest), encoding="utf-8")


def read_manifest(folder: Path) -> Any:
    """Read it, as plain data."""
    return tomllib.loads((folder / "manifest.toml").read_text(encoding="utf-8"))

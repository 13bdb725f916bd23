"""From a fault to the files that ``kpipe validate`` is given: a contract, a golden folder and an archive, one of them faulty."""

from __future__ import annotations

import copy
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.errors import KpipeError
from kpipe.evidence import Ending
from kpipe.running.single import run_stage
from kpipe.selftest.fault import Fault, NotPlantableError, Setup, Table
from kpipe.selftest.golden_set import digested
from kpipe.selftest.subjects import read_manifest, write_manifest
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import decode
from kpipe_stages.plant_orders import Planted, PlantJob, PlantOrder, PlantResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe.selftest.subjects import Say

PLANT_LIMIT_S = 1800.0


@dataclass(frozen=True)
class Files:
    """What the worker planted for one setup."""

    made: dict[str, Planted] = field(default_factory=dict)
    impossible: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One fault, ready to be validated."""

    fault: Fault
    setup: Setup
    model: Path
    contract: Table
    archive: Path | None
    """An edited archive whose float64 run says what the fault really changes; None where none was edited."""


def slug(name: str) -> str:
    """A fault's name as a folder's."""
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")


def plant_files(setup: Setup, faults: Sequence[Fault], out: Path, say: Say) -> Files:
    """Let one worker plant every fault that is a file.

    Raises:
        KpipeError: the worker failed as a whole.
    """
    wanted = [fault for fault in faults if fault.file is not None and fault.runtime in setup.contract["targets"]]
    if not wanted:
        return Files()
    say(f"{setup.name}: planting {len(wanted)} faulty files")
    prepared = setup.run / "stages" / "prepare" / "tensors"
    job = PlantJob(
        model=str(setup.model),
        trust=setup.trust,
        out=str(out),
        orders=tuple(_order(fault) for fault in wanted),
        artifacts=setup.artifacts,
        tensors=str(prepared),
        names=tuple(setup.contract["inputs"]),
        golden=str(setup.golden),
    )
    stage = run_stage("plant", job, backend="tensorflow", time_limit_s=PLANT_LIMIT_S, folder=out / "planting")
    if stage.ending is not Ending.OK or stage.result is None:
        failure = stage.result.failure if stage.result else None
        raise KpipeError(f"faults could not be planted into '{setup.name}': {failure.message if failure else stage.detail}. See {out / 'planting'}.")
    result = decode(PlantResult, stage.result.data)
    files = Files({planted.name: planted for planted in result.made}, result.impossible, result.failed)
    if lost := [f.name for f in wanted if slug(f.name) not in {**files.made, **files.impossible, **files.failed}]:
        raise KpipeError(f"the worker says nothing of the fault '{lost[0]}'. This is a fault of kpipe's own; report it.")
    return files


def _order(fault: Fault) -> PlantOrder:
    assert fault.file is not None
    formats = () if fault.file.candidate or fault.file.on != "keras" else (RUNTIMES[fault.runtime].artifact,)
    return PlantOrder(slug(fault.name), fault.file.on, fault.file.edits, formats)


def case_of(fault: Fault, setup: Setup, files: Files, folder: Path) -> Case:
    """The healthy contract with one target, and the fault in it.

    Raises:
        NotPlantableError: there is no place for it in this setup, or it could not be made.
    """
    if fault.runtime not in setup.contract["targets"]:
        raise NotPlantableError(f"there is no target {fault.runtime}")
    contract = copy.deepcopy({**setup.contract, "targets": {fault.runtime: setup.contract["targets"][fault.runtime]}})
    table, kind = contract["targets"][fault.runtime], RUNTIMES[fault.runtime].artifact
    planted = files.made.get(slug(fault.name)) if fault.file is not None else None
    if fault.file is not None and planted is None:
        raise NotPlantableError(files.impossible.get(slug(fault.name)) or f"failed: {files.failed.get(slug(fault.name), 'not planted')}")
    candidate = planted is not None and fault.file is not None and fault.file.candidate
    if not candidate:
        table["artifact"] = planted.files.get(kind, setup.artifacts[kind]) if planted is not None else setup.artifacts[kind]
    if planted is not None and "golden" in planted.files:
        contract["golden"]["path"] = planted.files["golden"]
        _renewed(Path(planted.files["golden"]))
    if fault.contract is not None:
        fault.contract(contract, fault.runtime, setup)
    if fault.golden is not None:
        contract["golden"]["path"] = str(_golden(fault, setup, folder))
    archive = Path(planted.archive) if planted is not None and planted.archive else None
    return Case(fault, setup, archive if candidate and archive is not None else setup.model, contract, archive)


def _golden(fault: Fault, setup: Setup, folder: Path) -> Path:
    """A copy of the golden folder with the fault in it."""
    assert fault.golden is not None
    copied = folder / "golden"
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(setup.golden, copied)
    manifest = read_manifest(copied)
    fault.golden(copied, manifest, setup)
    write_manifest(copied, manifest)
    return copied


def _renewed(golden: Path) -> None:
    """Digests of the files as they are now."""
    manifest = read_manifest(golden)
    digested(golden, manifest)
    write_manifest(golden, manifest)

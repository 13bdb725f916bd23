"""The same faults by what people use today: ``numpy.allclose`` of a target's outputs and the reference's, on seeded random inputs and on the golden ones.

Generous to both: a script that stops because a file can't be loaded has caught it, and a target's own preprocessing is run end to end.
"""

from __future__ import annotations

import copy
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe.errors import KpipeError
from kpipe.selftest.distance import allclose, answers_of
from kpipe.selftest.subjects import read_manifest, run_contract, write_manifest
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe.selftest.fault import Setup, Table
    from kpipe.selftest.planting import Case
    from kpipe.selftest.subjects import Say

Array = np.ndarray[Any, np.dtype[Any]]

RANDOM_ROWS = 32


@dataclass(frozen=True)
class Yardsticks:
    """What the two scripts say; None where there was nothing to run them on."""

    random: bool | None
    """``allclose`` on random inputs fails: the script caught it."""
    golden: bool | None


def random_rows(rows: Rows, count: int, name: str) -> Array:
    """Seeded inputs like these rows in shape and dtype: standard normal, or whole numbers of the same range.

    Raises:
        ValueError: the rows differ in shape.
    """
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    values = stacked(rows)
    if values.dtype.kind == "f":
        return rng.standard_normal((count, *values.shape[1:])).astype(values.dtype)
    return rng.integers(int(values.min()), int(values.max()) + 1, (count, *values.shape[1:])).astype(values.dtype)


def stacked(rows: Rows) -> Array:
    """All rows as one array.

    Raises:
        ValueError: they differ in shape.
    """
    return np.stack(list(rows))


def arrays_for(setup: Setup) -> dict[str, Array]:
    """By input name: `RANDOM_ROWS` random rows, then the healthy golden tensors.

    Raises:
        ValueError: golden tensors differ in shape.
    """
    found = {}
    for position, name in enumerate(setup.contract["inputs"]):
        rows = Rows(setup.run / "stages" / "prepare" / "tensors" / str(position))
        found[name] = np.concatenate([random_rows(rows, RANDOM_ROWS, f"{setup.name}.{name}"), stacked(rows)])
    return found


def yardsticks_of(setup: Setup, cases: Sequence[Case], runs: dict[str, Path], folder: Path, say: Say) -> dict[str, Yardsticks]:
    """Fault name, and `healthy_name` of each target, to what both scripts say of it.

    Args:
        setup: the healthy setup of all of them.
        cases: the faults.
        runs: fault name to its own validation, where one was judged.
        folder: where runs may be left.
        say: hears what is going on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        arrays = arrays_for(setup)
    except ValueError:
        return {case.fault.name: Yardsticks(None, None) for case in cases}
    path = folder / "inputs.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    shared = [case for case in cases if case.model == setup.model]
    say(f"{setup.name}: numpy.allclose on {len(shared)} targets")
    verdicts = _together(setup, shared, path, folder / "together", len(next(iter(arrays.values()))))
    for case in cases:
        if case.model != setup.model:
            verdicts |= _alone(case, path, folder / f"alone-{len(verdicts)}", len(next(iter(arrays.values()))))
    healthy = {name: said for name, said in verdicts.items() if name.startswith("(healthy ")}
    return {**healthy, **{case.fault.name: _end_to_end(case, verdicts[case.fault.name], runs, folder) for case in cases}}


def healthy_name(runtime: str) -> str:
    """Under which name `yardsticks_of` tells of a healthy target: what a script says of that is an alarm."""
    return f"(healthy {runtime})"


def bare(contract: Table) -> Table:
    """What a script knows of a contract: the model and the target, no rules, versions or preprocessing of its own."""
    known: Table = {key: copy.deepcopy(contract[key]) for key in ("model", "agreement", "timing", "targets") if key in contract}
    known["model"].pop("sha256", None)
    known["agreement"] = {"tolerance": "default"}
    known["golden"] = {"batches": [2, 3]}
    for table in known["targets"].values():
        for key in ("inputs", "version", "limits", "precision"):
            table.pop(key, None)
        if not table.get("settings"):
            table["precision"] = "default"  # a script asks for nothing
    return known


def _together(setup: Setup, cases: Sequence[Case], path: Path, folder: Path, rows: int) -> dict[str, Yardsticks]:
    """All targets that the healthy candidate is compared with, in one run."""
    if not cases:
        return {}
    contract = bare(setup.contract)
    contract["targets"] = {}
    names: dict[str, str] = {}
    known: dict[str, str] = {}
    for runtime, healthy in setup.contract["targets"].items():
        table = {**healthy, "artifact": setup.artifacts[RUNTIMES[runtime].artifact]}
        contract["targets"][f"healthy_{runtime}"] = {**bare({**setup.contract, "targets": {runtime: table}})["targets"][runtime], "runtime": runtime}
        names[healthy_name(runtime)] = f"healthy_{runtime}"
    for case in cases:
        table = bare(case.contract)["targets"][case.fault.runtime]
        key = repr(sorted(table.items(), key=lambda item: item[0])) + case.fault.runtime
        name = known.setdefault(key, f"t{len(known)}")
        contract["targets"][name] = {**table, "runtime": case.fault.runtime}
        names[case.fault.name] = name
    try:
        run = run_contract(setup.model, contract, folder, golden=path).folder
    except KpipeError:
        return {case.fault.name: Yardsticks(None, None) for case in cases}
    return {fault: _said(run, target, rows) for fault, target in names.items()}


def _alone(case: Case, path: Path, folder: Path, rows: int) -> dict[str, Yardsticks]:
    """A faulty candidate and what is exported of it."""
    try:
        run = run_contract(case.model, bare(case.contract), folder, golden=path).folder
    except KpipeError:
        return {case.fault.name: Yardsticks(random=True, golden=True)}
    if answers_of(run, "reference") is None and answers_of(run, f"run.{case.fault.runtime}") is None:
        return {case.fault.name: Yardsticks(None, None)}  # kpipe refused the archive; a script would not have
    return {case.fault.name: _said(run, case.fault.runtime, rows)}


def _said(run: Path, target: str, rows: int) -> Yardsticks:
    reference, answers = answers_of(run, "reference"), answers_of(run, f"run.{target}")
    return Yardsticks(random=not allclose(reference, answers, range(RANDOM_ROWS)), golden=not allclose(reference, answers, range(RANDOM_ROWS, rows)))


def _end_to_end(case: Case, said: Yardsticks, runs: dict[str, Path], folder: Path) -> Yardsticks:
    """A target's own preprocessing shows on raw golden inputs only; a faulty golden set is read as a script reads it, without a manifest's promises."""
    fault = case.fault
    if "inputs" in case.contract["targets"][fault.runtime] and fault.name in runs:
        reference, answers = answers_of(runs[fault.name], "reference"), answers_of(runs[fault.name], f"run.{fault.runtime}")
        return Yardsticks(said.random, not allclose(reference, answers, range(_count(runs[fault.name]))))
    if fault.golden is not None or (fault.file is not None and fault.file.on == "raw"):
        return Yardsticks(said.random, _golden_script(case, folder / f"golden-{fault.name.replace(' ', '-').replace(',', '')}"))
    return said


def _count(run: Path) -> int:
    from kpipe.store import load_evidence

    return len(load_evidence(run).golden.inputs)


def _golden_script(case: Case, folder: Path) -> bool | None:
    """The faulty folder as a loop over its files sees it: whatever is there, once each, no digests, no approvals."""
    from kpipe.selftest.golden_set import digested, files_of

    source = Path(case.contract["golden"]["path"])
    manifest = read_manifest(source)
    entries: dict[str, Table] = {}
    for entry in manifest["golden"]:
        if all((source / file).is_file() for file in files_of(entry)):
            entries.setdefault(entry["id"], {**{k: v for k, v in entry.items() if k not in {"expected", "label"}}, "chosen": "sampled"})
    if not entries:
        return False  # a loop over nothing finds nothing
    manifest = {**manifest, "golden": list(entries.values())}
    digested(source, manifest)
    kept = source / "manifest.toml"
    text = kept.read_bytes()
    try:
        write_manifest(source, manifest)
        contract = {**bare(case.contract), "inputs": case.contract["inputs"], "golden": {"path": str(source), "batches": [2, 3]}}
        run = run_contract(case.model, contract, folder).folder
    except KpipeError:
        return None
    finally:
        kept.write_bytes(text)
    reference, answers = answers_of(run, "reference"), answers_of(run, f"run.{case.fault.runtime}")
    return not allclose(reference, answers, range(len(entries)))

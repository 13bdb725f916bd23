"""A finished run held against another contract. What that contract asks for and the run did not do is unchecked, never passed. Pure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kpipe.contract import TargetTable, input_files, runtime_of
from kpipe.evidence import TargetEvidence, TargetPlan
from kpipe.judging.decided import DECIDE_STAGE
from kpipe.rules import place_of_rule
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.decisions import runs_code
from kpipe_stages.protocol import Observation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kpipe.contract import Contract, LoadedContract
    from kpipe.evidence import Evidence
    from kpipe.inputs import Input

WORK_OF_TARGET = ("settings", "precision", "quantize", "threads", "affinity", "memory_mib")
"""Keys of a target that say what is run; the others say how it is judged."""

FILES_OF_TARGET = ("artifact", "python")
"""The same, for keys that are paths."""


def adapt(
    evidence: Evidence, made_with: LoadedContract, asked: LoadedContract, code: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> Evidence:
    """The evidence as the contract ``asked`` has to see it.

    Args:
        evidence: what the run left behind.
        made_with: the contract that the run was made with.
        asked: the contract to judge by.
        code: rule name to the files of its decision code, path to SHA-256 (empty for a file that isn't there), as ``asked`` has them.
    """
    ran = {target.plan.name: target for target in evidence.targets}
    tables = asked.contract.targets or {name: made_with.contract.targets.get(name, TargetTable(required=t.plan.required)) for name, t in ran.items()}
    targets = tuple(_target(name, table, ran.get(name), made_with, asked) for name, table in tables.items())
    notes = [*evidence.notes, *_digests(evidence, made_with.contract, asked.contract), *(_note("", key) for key in _differences(made_with, asked))]
    changed = [
        name for name, table in asked.contract.rule_tables.items() if runs_code(table.rule) and not _same_code(name, evidence, made_with, asked, code)
    ]
    notes += [_note("", f"{place_of_rule(name)} (a rule of your own code, with its files)") for name in changed]
    stages = tuple(stage for stage in evidence.stages if not changed or stage.name != DECIDE_STAGE)
    return replace(evidence, targets=targets, notes=tuple(notes), stages=stages)


def _same_code(name: str, evidence: Evidence, made_with: LoadedContract, asked: LoadedContract, code: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether the stored decisions are the ones that the rule's code would take: the same rule, and the same files by name and digest."""
    old, new = made_with.contract.rule_tables.get(name), asked.contract.rule_tables[name]
    ran, now = evidence.decision_code.get(name, {}), code.get(name, {})
    files = sorted((Path(path).name, sha256) for path, sha256 in now.items())
    return old is not None and old.rule == new.rule and "" not in now.values() and files == sorted((Path(p).name, d) for p, d in ran.items()) != []


def _note(target: str, key: str) -> Observation:
    where = f"Target '{target}': " if target else ""
    return Observation("KP609", f"{where}the contract's {key} is not what the run was made with.", "", key)


def _digests(evidence: Evidence, made_with: Contract, asked: Contract) -> Iterator[Observation]:
    """The files that the contract names by digest, where the run was not held to the same ones."""
    if asked.model.sha256 and asked.model.sha256 not in {evidence.candidate_sha256, made_with.model.sha256}:
        yield Observation(
            "KP011", f"The run's candidate has SHA-256 {evidence.candidate_sha256}; the contract names {asked.model.sha256}.", "", "model.sha256"
        )
    wanted, found = asked.golden.manifest_sha256, evidence.golden.manifest_sha256
    if wanted and wanted not in {found, made_with.golden.manifest_sha256}:
        yield Observation("KP105", f"The run's manifest has SHA-256 {found or 'none'}; the contract names {wanted}.", "", "golden.manifest_sha256")
    wanted, used = asked.calibration.sha256 if asked.calibration else None, evidence.calibration.sha256 if evidence.calibration else ""
    if wanted and wanted not in {used, made_with.calibration.sha256 if made_with.calibration else None}:
        yield Observation("KP223", f"The run's calibration set has SHA-256 {used or 'none'}; the contract names {wanted}.", "", "calibration.sha256")


def _differences(made_with: LoadedContract, asked: LoadedContract) -> Iterator[str]:
    """Keys that change the work of every target; paths are compared as the files that they mean."""
    old, new = made_with.contract, asked.contract
    for key in ("backend", "allow_modules", "allow_lambda"):
        if getattr(old.model, key) != getattr(new.model, key):
            yield f"model.{key}"
    if [made_with.resolve(p) for p in old.model.custom_objects] != [asked.resolve(p) for p in new.model.custom_objects]:
        yield "model.custom_objects"
    if new.golden.path is not None and (old.golden.path is None or made_with.resolve(old.golden.path) != asked.resolve(new.golden.path)):
        yield "golden.path"
    if new.calibration is not None and (old.calibration is None or made_with.resolve(old.calibration.path) != asked.resolve(new.calibration.path)):
        yield "calibration.path"
    if _inputs(made_with, old.inputs) != _inputs(asked, new.inputs):
        yield "inputs"
    if old.export != new.export:
        yield "export"
    if new.timing.server_rate is not None and new.timing.server_rate != old.timing.server_rate:
        yield "timing.server_rate"


def _target(name: str, table: TargetTable, ran: TargetEvidence | None, made_with: LoadedContract, asked: LoadedContract) -> TargetEvidence:
    runtime = runtime_of(name, table)
    required = RUNTIMES[runtime].required_by_default if table.required is None else table.required
    if ran is None:
        absent = Observation("KP609", f"Target '{name}' was not part of the run.", "", name)
        plan = TargetPlan(name, runtime, required, {}, {}, table.precision, 0, "", "", (), quiet_load=False, absent=absent)
        return TargetEvidence(plan, None)
    old = made_with.contract.targets.get(name, TargetTable())
    changed: list[Any] = [key for key in WORK_OF_TARGET if getattr(old, key) != getattr(table, key)]
    changed += [key for key in FILES_OF_TARGET if _file(made_with, getattr(old, key)) != _file(asked, getattr(table, key))]
    if _inputs(made_with, old.inputs) != _inputs(asked, table.inputs):
        changed.append("inputs")
    if ran.plan.runtime != runtime:
        changed.insert(0, "runtime")
    problems = [*ran.problems, *(_note(name, f"targets.{name}.{key}") for key in changed)]
    return replace(ran, plan=replace(ran.plan, required=required), problems=tuple(problems))


def _file(loaded: LoadedContract, path: str | None) -> str | None:
    return str(loaded.resolve(path)) if path is not None else None


def _inputs(loaded: LoadedContract, tables: Mapping[str, Input]) -> dict[str, Any]:
    """Input tables, with the files that they name in place of how they name them."""
    return {name: (table.model_dump(exclude={"files", "tensors"}), input_files(table, loaded)) for name, table in tables.items()}

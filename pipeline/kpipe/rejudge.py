"""A finished run held against another contract. What that contract asks for and the run did not do is unchecked, never passed. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet

from kpipe.contract import TargetTable
from kpipe.evidence import TargetEvidence, TargetPlan
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.protocol import Observation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpipe.contract import Contract
    from kpipe.evidence import Evidence

WORK_OF_TARGET = ("artifact", "settings", "precision", "python", "threads", "inputs")
"""Keys of a target that say what is run; the others say how it is judged."""


def adapt(evidence: Evidence, made_with: Contract, asked: Contract) -> Evidence:
    """The evidence as the contract ``asked`` has to see it.

    Args:
        evidence: what the run left behind.
        made_with: the contract that the run was made with.
        asked: the contract to judge by.
    """
    ran = {target.plan.name: target for target in evidence.targets}
    tables = asked.targets or {name: made_with.targets.get(name, TargetTable(required=t.plan.required)) for name, t in ran.items()}
    targets = tuple(_target(name, table, ran.get(name), made_with, evidence) for name, table in tables.items())
    notes = [*evidence.notes, *_digests(evidence, asked), *(_note("", key) for key in _differences(made_with, asked))]
    return replace(evidence, targets=targets, notes=tuple(notes))


def _note(target: str, key: str) -> Observation:
    where = f"Target '{target}': " if target else ""
    return Observation("KP609", f"{where}the contract's {key} is not what the run was made with.", "", key)


def _digests(evidence: Evidence, asked: Contract) -> Iterator[Observation]:
    """The files that the contract names by digest, whatever the run was made with."""
    if asked.model.sha256 and asked.model.sha256 != evidence.candidate_sha256:
        yield Observation(
            "KP011", f"The run's candidate has SHA-256 {evidence.candidate_sha256}; the contract names {asked.model.sha256}.", "", "model.sha256"
        )
    wanted, found = asked.golden.manifest_sha256, evidence.golden.manifest_sha256
    if wanted and wanted != found:
        yield Observation("KP105", f"The run's manifest has SHA-256 {found or 'none'}; the contract names {wanted}.", "", "golden.manifest_sha256")


def _differences(made_with: Contract, asked: Contract) -> Iterator[str]:
    """Keys that change the work of every target."""
    for key in ("backend", "custom_objects", "allow_modules", "allow_lambda"):
        if getattr(made_with.model, key) != getattr(asked.model, key):
            yield f"model.{key}"
    if made_with.golden.path != asked.golden.path and asked.golden.path is not None:
        yield "golden.path"
    if made_with.inputs != asked.inputs:
        yield "inputs"
    if made_with.export != asked.export:
        yield "export"


def _target(name: str, table: TargetTable, ran: TargetEvidence | None, made_with: Contract, evidence: Evidence) -> TargetEvidence:
    runtime = table.runtime or name
    required = RUNTIMES[runtime].required_by_default if table.required is None else table.required
    if ran is None:
        absent = Observation("KP609", f"Target '{name}' was not part of the run.", "", name)
        plan = TargetPlan(name, runtime, required, {}, {}, table.precision, 0, "", "", (), quiet_load=False, absent=absent)
        return TargetEvidence(plan, None)
    old = made_with.targets.get(name, TargetTable())
    changed: list[Any] = [key for key in WORK_OF_TARGET if getattr(old, key) != getattr(table, key)]
    if ran.plan.runtime != runtime:
        changed.insert(0, "runtime")
    problems = [*ran.problems, *(_note(name, f"targets.{name}.{key}") for key in changed), *_version(name, table, ran, evidence)]
    return replace(ran, plan=replace(ran.plan, required=required), problems=tuple(problems))


def _version(name: str, table: TargetTable, ran: TargetEvidence, evidence: Evidence) -> Iterator[Observation]:
    if not table.version or ran.plan.absent is not None:
        return
    stage = next((s for s in evidence.stages if s.name == f"run.{name}"), None)
    distribution = RUNTIMES[ran.plan.runtime].distributions[0]
    identity = stage.result.identity if stage and stage.result else None
    found = identity.versions.get(distribution, "") if identity else ""
    if not found or not SpecifierSet(table.version).contains(found, prereleases=True):
        yield Observation("KP302", f"Target '{name}' asks for {distribution} {table.version}; the run had {found or 'an unknown version'}.", "", name)

"""From the record of a validation on synthetic inputs to the answer. Pure. Decisions are left out: those of an untrained model mean nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kpipe.codes import UNCHECKED_CODES
from kpipe.findings import Finding, Severity
from kpipe.preflight.result import Answer, Preflight, Problem, TargetAnswer
from kpipe.preflight.ways import GENERAL, ways_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe.record import RunRecord, TargetRecord

OF_DECISIONS = frozenset({"KP309", "KP404", "KP405", "KP410", "KP414", "KP415", "KP603", "KP605", "KP607", "KP608", "KP610", "KP613"})
"""About decisions, of which an untrained model takes none."""
OF_EVIDENCE = frozenset({"KP308", "KP312", "KP601", "KP602", "KP606", "KP617", "KP618", "KP619"})
"""Notes about the evidence, and what kpipe asked for by itself: neither layer nor op has a part in them."""
NUMBERS = frozenset({"KP401", "KP402", "KP403", "KP406", "KP407", "KP408", "KP416"})


def conclude(record: RunRecord, model: str, parameters: int, layers: Mapping[str, str], report: str, asked: tuple[str, ...] = ()) -> Preflight:
    """The answer.

    Args:
        record: of the validation.
        model: what it is called: ``arch.py:build_model``.
        parameters: how many numbers it has.
        layers: layer name to class.
        report: path of the page.
        asked: the answer is about these targets alone; empty for all.
    """
    rows = [row for row in record.targets if not asked or row.name in asked]
    told = [finding for finding in record.findings if finding.code not in OF_DECISIONS | OF_EVIDENCE and finding.severity is not Severity.NOTE]
    targets = tuple(_target(row, [finding for finding in told if finding.target == row.name]) for row in rows)
    runtimes = {row.name: row.runtime for row in rows}
    general = [finding for finding in told if finding.target not in {row.name for row in record.targets}]
    problems = tuple(
        _problem(finding, runtimes.get(finding.target, ""), layers) for finding in (*general, *(f for f in told if f.target in runtimes))
    )
    return Preflight(model, parameters, _whole(targets, general), targets, problems, record.wall_s, report)


def _whole(targets: tuple[TargetAnswer, ...], general: list[Finding]) -> Answer:
    """The worst of the required targets; nothing that was compared with nothing is fine."""
    answers = [target.answer for target in targets if target.required]
    errors = [finding for finding in general if finding.severity is Severity.ERROR]
    if any(answer is Answer.FAILS for answer in answers) or any(finding.code not in UNCHECKED_CODES for finding in errors):
        return Answer.FAILS
    return Answer.UNCHECKED if errors or not answers or Answer.UNCHECKED in answers else Answer.OK


def _target(row: TargetRecord, findings: list[Finding]) -> TargetAnswer:
    errors = [finding.code for finding in findings if finding.severity is Severity.ERROR]
    compared = [drift for drift in row.drift if " vs " not in drift.mode]
    if any(code not in UNCHECKED_CODES for code in errors):
        answer = Answer.FAILS
    elif errors or row.cells.unchecked or not compared:
        answer = Answer.UNCHECKED
    else:
        answer = Answer.OK
    drift = max((one.max_rel for one in compared if not math.isnan(one.max_rel)), default=None)
    artifact = row.artifact
    return TargetAnswer(
        row.name,
        row.title,
        row.required,
        answer,
        drift,
        dict(artifact.ops) if artifact else {},
        artifact.fixed_batch if artifact else None,
        artifact.size if artifact else None,
    )


def _problem(finding: Finding, runtime: str, layers: Mapping[str, str]) -> Problem:
    named = finding.evidence.get("layers", ())
    places = [finding.place, *(named if isinstance(named, list | tuple) else [place for some in named.values() for place in some])]
    layer = next((place for place in places if place in layers), "")
    ops = tuple(str(op) for op in finding.evidence.get("ops", ()))
    text = " ".join((*ops, layers.get(layer, ""), finding.cause))
    ways = ways_out(runtime, text) if runtime else GENERAL
    if finding.code in NUMBERS:
        ways = (f"kpipe diagnose RUN --target {finding.target} names the layer and writes a minimal model", *ways[1:])
    return Problem(finding.target, finding.code, finding.severity is Severity.ERROR, layer, layers.get(layer, ""), ops, finding.cause, ways)

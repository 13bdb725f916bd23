"""How a stage's ending becomes a finding. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.evidence import Ending
from kpipe.findings import Severity
from kpipe.judging.grade import finding, from_observation
from kpipe.text import first_line
from kpipe_stages.protocol import Status

if TYPE_CHECKING:
    from kpipe.evidence import StageEvidence
    from kpipe.findings import Finding

_BY_ENDING = {Ending.CRASHED: "KP304", Ending.TIMED_OUT: "KP305", Ending.OUT_OF_MEMORY: "KP306", Ending.NOT_STARTED: "KP314"}
_BY_PHASE = {"import": "KP303", "load": "KP303", "run": "KP311"}


def stage_findings(stage: StageEvidence, *, target: str = "", required: bool = True, failed_as: str = "KP314", memory_mib: int = 0) -> list[Finding]:
    """Every observation of the stage, and one finding for the way it ended if that was not well.

    Args:
        stage: its evidence.
        target: whose findings these are.
        required: whether the target counts.
        failed_as: the code of an exception outside the phases import, load and run.
        memory_mib: what the contract held the process to; 0 for nothing. Memory that runs out below it is the target's, not the machine's.
    """
    observations = stage.result.observations if stage.result else ()
    findings = [from_observation(o, target=target, required=required) for o in observations]
    if stage.ending is Ending.OK:
        return findings
    if memory_mib and stage.ending is Ending.OUT_OF_MEMORY:
        cause = f"Stage '{stage.name}' needs more than the {memory_mib} MiB of private memory that the contract gives it: {stage.detail}"
        return [*findings, finding("KP510", cause, target=target, place="memory_mib", required=required, memory_mib=memory_mib)]
    if code := _BY_ENDING.get(stage.ending):
        cause = f"Stage '{stage.name}' {_verb(stage.ending)}: {stage.detail}"
        return [*findings, finding(code, cause, target=target, place=stage.name, required=required)]
    failure = stage.result.failure if stage.result else None
    if failure is None:  # a stage that failed without an exception named its reason in its last observation
        named = any(f.severity is Severity.ERROR for f in findings)
        return findings if named else [*findings, _unexplained(stage, target, failed_as, required=required)]
    code = _BY_PHASE.get(failure.phase, failed_as)
    cause = f"{failure.type} while {_doing(failure.phase)}: {first_line(failure.message)}"
    return [*findings, finding(code, cause, target=target, place=stage.name, required=required, phase=failure.phase)]


def timing_findings(stage: StageEvidence | None, *, target: str, required: bool) -> list[Finding]:
    """What the timed phase saw, and one finding where it was asked for and did not end well.

    A runtime that refuses a call it took before fails (KP311); a worker that was lost leaves times unknown (KP417).
    """
    if stage is None or stage.ending is not Ending.OK:
        return []
    if stage.timing is None:
        cause = f"The timed phase of '{target}' gave no answer: {stage.timing_lost or 'it was not run'}."
        return [finding("KP417", cause, target=target, place="timing", required=required)] if stage.timing_due or stage.timing_lost else []
    findings = [from_observation(o, target=target, required=required) for o in stage.timing.observations]
    if stage.timing.status is Status.OK:
        return findings
    failure = stage.timing.failure
    if failure is not None:
        cause = f"The timed phase failed: {failure.type}: {first_line(failure.message)}"
        return [*findings, finding("KP311", cause, target=target, place="timing", required=required)]
    if any(f.severity is Severity.ERROR for f in findings):
        return findings
    return [
        *findings,
        finding("KP417", f"The timed phase of '{target}' failed and named no reason.", target=target, place="timing", required=required),
    ]


def _unexplained(stage: StageEvidence, target: str, code: str, *, required: bool) -> Finding:
    """The finding of a stage that failed and named nothing that fails."""
    return finding(code, f"Stage '{stage.name}' failed: {stage.detail}", target=target, place=stage.name, required=required)


def _verb(ending: Ending) -> str:
    return {Ending.CRASHED: "crashed", Ending.TIMED_OUT: "timed out", Ending.OUT_OF_MEMORY: "ran out of memory"}.get(ending, "was not started")


def _doing(phase: str) -> str:
    return {"import": "importing the runtime", "load": "loading", "run": "running"}.get(phase, f"in phase '{phase}'")

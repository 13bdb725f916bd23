"""How a stage's ending becomes a finding. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.evidence import Ending
from kpipe.findings import Severity
from kpipe.grade import finding, from_observation
from kpipe.text import first_line

if TYPE_CHECKING:
    from kpipe.evidence import StageEvidence
    from kpipe.findings import Finding

_BY_ENDING = {Ending.CRASHED: "KP304", Ending.TIMED_OUT: "KP305", Ending.OUT_OF_MEMORY: "KP306", Ending.NOT_STARTED: "KP314"}
_BY_PHASE = {"import": "KP303", "load": "KP303", "run": "KP311"}


def stage_findings(stage: StageEvidence, *, target: str = "", required: bool = True, failed_as: str = "KP314") -> list[Finding]:
    """Every observation of the stage, and one finding for the way it ended if that was not well.

    Args:
        stage: its evidence.
        target: whose findings these are.
        required: whether the target counts.
        failed_as: the code of an exception outside the phases import, load and run.
    """
    observations = stage.result.observations if stage.result else ()
    findings = [from_observation(o, target=target, required=required) for o in observations]
    if stage.ending is Ending.OK:
        return findings
    if code := _BY_ENDING.get(stage.ending):
        cause = f"Stage '{stage.name}' {_verb(stage.ending)}: {stage.detail}"
        return [*findings, finding(code, cause, target=target, place=stage.name, required=required)]
    failure = stage.result.failure if stage.result else None
    if failure is None:  # a stage that failed without an exception named its reason in its last observation
        return (
            findings
            if any(f.severity is Severity.ERROR for f in findings)
            else [*findings, _unexplained(stage, target, failed_as, required=required)]
        )
    code = _BY_PHASE.get(failure.phase, failed_as)
    cause = f"{failure.type} while {_doing(failure.phase)}: {first_line(failure.message)}"
    return [*findings, finding(code, cause, target=target, place=stage.name, required=required, phase=failure.phase)]


def _unexplained(stage: StageEvidence, target: str, code: str, *, required: bool) -> Finding:
    """The finding of a stage that failed and named nothing that fails."""
    return finding(code, f"Stage '{stage.name}' failed: {stage.detail}", target=target, place=stage.name, required=required)


def _verb(ending: Ending) -> str:
    return {Ending.CRASHED: "crashed", Ending.TIMED_OUT: "timed out", Ending.OUT_OF_MEMORY: "ran out of memory"}.get(ending, "was not started")


def _doing(phase: str) -> str:
    return {"import": "importing the runtime", "load": "loading", "run": "running"}.get(phase, f"in phase '{phase}'")

"""Making findings: a code's severity comes from the table, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kpipe.codes import CODES
from kpipe.findings import Finding

if TYPE_CHECKING:
    from kpipe_stages.protocol import Observation


def finding(code: str, cause: str, *, target: str = "", place: str = "", remedy: str = "", required: bool = True, **evidence: Any) -> Finding:
    """A finding of a known code; the table's remedy where none better is given."""
    row = CODES[code]
    return Finding(code, row.severity, target, place, cause, remedy or row.remedy, evidence, required)


def from_observation(observation: Observation, *, target: str = "", required: bool = True) -> Finding:
    """A worker's observation, graded. One with an unknown code is graded as a failed stage, so that it can't pass unseen."""
    code = observation.code if observation.code in CODES else "KP314"
    row = CODES[code]
    return Finding(
        code, row.severity, target, observation.place, observation.cause, observation.remedy or row.remedy, dict(observation.evidence), required
    )

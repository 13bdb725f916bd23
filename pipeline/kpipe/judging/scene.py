"""What judging one target works on: the whole scene, the target, and the findings so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe.contract import Contract, TargetTable
from kpipe.evidence import Evidence, StageEvidence, TargetEvidence
from kpipe.findings import Finding
from kpipe.judging.cells import Question
from kpipe.judging.decided import Decided
from kpipe.judging.grade import finding
from kpipe.judging.reference import Reference
from kpipe.record import ShapeRecord
from kpipe_stages.protocol import Signature

if TYPE_CHECKING:
    from kpipe.evidence import TargetPlan


@dataclass(frozen=True)
class Scene:
    """What judging every target needs."""

    run: Path
    contract: Contract
    evidence: Evidence
    stages: Mapping[str, StageEvidence]
    model_dtypes: set[str]
    """Dtypes that the model's layers compute in."""
    signature: Signature | None
    """The model's own, as reloaded on TensorFlow."""
    reference: Reference | None
    decided: Decided | None = None
    """What the user's own code decided."""


@dataclass
class Bench:
    """One target on the bench."""

    scene: Scene
    target: TargetEvidence
    findings: list[Finding]
    question: Question | None = None
    """What its cells were asked; None where there was nothing to compare."""
    shapes: tuple[ShapeRecord, ...] = ()
    proof: str = ""
    """How far its binding is proved."""

    @property
    def plan(self) -> TargetPlan:
        """What was planned for it."""
        return self.target.plan

    @property
    def table(self) -> TargetTable:
        """Its table in the contract; the defaults where there is none."""
        return self.scene.contract.targets.get(self.plan.name, TargetTable())

    def add(self, code: str, cause: str, *, place: str = "", remedy: str = "", **evidence: Any) -> None:
        """Put down a finding on this target."""
        self.findings.append(finding(code, cause, target=self.plan.name, place=place, remedy=remedy, required=self.plan.required, **evidence))

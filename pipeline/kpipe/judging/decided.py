"""Decisions that the user's own code took when the run was made, read back. Pure, over saved decisions."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.evidence import Ending
from kpipe_stages.codec import decode
from kpipe_stages.decisions import Decision, NoDecisionError
from kpipe_stages.digest import digest
from kpipe_stages.protocol import DecideResult

if TYPE_CHECKING:
    from kpipe.evidence import Evidence, StageEvidence
    from kpipe_stages.protocol import DecidedMode, DecisionSpec

DECIDE_STAGE = "decide"


@dataclass(frozen=True)
class Decided:
    """What the stage ``decide`` left behind."""

    folder: Path
    rows: int
    """Golden inputs."""
    result: DecideResult | None
    why: str = ""
    """Why there is no result."""

    def of(self, spec: DecisionSpec, stage: str, mode: str, outputs_sha256: str) -> list[Decision]:
        """The decisions by one rule on one worker's answers, a golden input each.

        Args:
            spec: the rule.
            stage: the worker's.
            mode: the way of running.
            outputs_sha256: digest of the outputs that are judged: decisions on others say nothing.

        Raises:
            NoDecisionError: there are none, or they aren't the ones that were stored.
        """
        if self.result is None:
            raise NoDecisionError(self.why)
        known = [d for d in self.result.decided if (d.rule, d.function, d.stage, d.mode) == (spec.name, spec.rule, stage, mode)]
        if len(known) != 1 or known[0].outputs_sha256 != outputs_sha256:
            raise NoDecisionError(f"the code was not run on these answers of '{stage}' in mode '{mode}'")
        if known[0].failure:
            raise NoDecisionError(known[0].failure)
        return [Decision(text, -1, margin, (), tied=False) for text, margin in self._read(known[0])]

    def _read(self, known: DecidedMode) -> list[tuple[str, float]]:
        path = self.folder / "decisions" / known.file
        try:
            if digest(path) != known.sha256:
                raise ValueError("another SHA-256 than was written")
            found = [(str(text), float(margin)) for text, margin in json.loads(path.read_text(encoding="utf-8"))]
        except (OSError, ValueError, TypeError) as error:
            raise NoDecisionError(f"the stored decisions {path} can't be used: {error}") from error
        if len(found) != self.rows or any(math.isnan(margin) for _, margin in found):
            raise NoDecisionError(f"{path} holds {len(found)} decisions for {self.rows} golden inputs")
        return found


def stored_decisions(run: Path, evidence: Evidence, stage: StageEvidence | None) -> Decided:
    """What a run knows of decisions by the user's own code."""
    folder, rows = run / evidence.folders.get(DECIDE_STAGE, f"stages/{DECIDE_STAGE}"), len(evidence.golden.inputs)
    if stage is None:
        return Decided(folder, rows, None, "the code was not run")
    if stage.ending is not Ending.OK or stage.result is None or not stage.result.data:
        told = stage.result.observations[-1].cause if stage.result and stage.result.observations else stage.detail
        return Decided(folder, rows, None, told or str(stage.ending))
    return Decided(folder, rows, decode(DecideResult, stage.result.data))

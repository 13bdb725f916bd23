"""The prepared tensors of a run, by input name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe_stages.codec import decode
from kpipe_stages.protocol import PrepareResult
from kpipe_stages.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kpipe.evidence import Evidence, StageEvidence


def prepared(stage: StageEvidence | None) -> PrepareResult | None:
    """What a prepare stage says it made, None where it made nothing."""
    if stage is None or stage.result is None or not stage.result.data:
        return None
    return decode(PrepareResult, stage.result.data)


def tensors_of(run: Path, evidence: Evidence, stages: Mapping[str, StageEvidence], name: str) -> dict[str, Rows]:
    """Input name to rows of one prepare stage; empty where it did not end well."""
    result = prepared(stages.get(name))
    if result is None:
        return {}
    folder = run / evidence.folders.get(name, f"stages/{name}") / "tensors"
    return {input_name: Rows(folder / str(position)) for position, input_name in enumerate(result.names)}

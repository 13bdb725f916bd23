"""What the float64 run says: the noise floors that tolerances are derived from, and what of it can't be used. Pure, over saved outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe.evidence import Ending
from kpipe.judging.answers import open_answers
from kpipe.judging.floor import SUSPECT, Floor, noise_floors
from kpipe.judging.grade import finding
from kpipe.record import FloorRecord, TruthRecord

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe.evidence import Evidence, StageEvidence
    from kpipe.findings import Finding
    from kpipe.judging.answers import Answers

TRUTH_STAGE = "truth"

NAMED = 4
"""Parts that a message names."""


def judge_truth(
    run: Path, evidence: Evidence, stage: StageEvidence | None, reference: Answers, precision: str
) -> tuple[dict[str, Floor], TruthRecord | None, list[Finding]]:
    """The floors by output, their record, and a finding for whatever keeps one from being used.

    Args:
        run: the run folder.
        evidence: what the run left behind.
        stage: the float64 run's evidence, None where there was none.
        reference: the candidate's answers.
        precision: class of the model's own layers.
    """
    if stage is None:
        return {}, None, [_unknown("The float64 run was not made.")]
    answers = open_answers(stage, run / evidence.folders.get(TRUTH_STAGE, f"stages/{TRUTH_STAGE}"))
    if answers is None:
        reason = stage.result.observations[-1].cause if stage.ending is Ending.FAILED and stage.result and stage.result.observations else stage.detail
        return {}, None, [_unknown(reason or str(stage.ending))]
    try:
        floors = noise_floors(reference, answers, precision)
    except (OSError, ValueError, LookupError) as error:
        return {}, None, [_unknown(f"Its answers can't be used: {error}")]
    facts = answers.result.facts
    findings = _partial(facts)
    usable, more = _usable(floors, evidence, precision)
    record = TruthRecord(
        kept=dict(facts.get("kept", {})),
        computes_in_less={layer: tuple(dtypes) for layer, dtypes in facts.get("computes_in_less", {}).items()},
        floors=tuple(_record(output, floor, used=output in usable) for output, floor in floors.items()),
    )
    return usable, record, findings + more


def _record(output: str, floor: Floor, *, used: bool) -> FloorRecord:
    scale = float(np.max(floor.scales, initial=0.0))
    return FloorRecord(
        output=output,
        typical=floor.typical,
        largest=floor.largest,
        smallest_allowed=float(np.min(floor.widths, initial=np.inf)),
        scale=scale,
        used=used,
    )


def _partial(facts: dict[str, Any]) -> list[Finding]:
    parts = [f"layer '{layer}' kept its own dtype ({why})" for layer, why in facts.get("kept", {}).items()]
    parts += [
        f"{f'layer {layer!r}' if layer else 'an op outside any layer'} computes in {', '.join(dtypes)}"
        for layer, dtypes in facts.get("computes_in_less", {}).items()
        if layer not in facts.get("kept", {})
    ]
    findings = []
    if why := facts.get("sensitivity_unknown"):
        cause = f"What rounding may do on each input could not be drawn: {why}. Noise floors rest on the reference's own errors alone."
        findings.append(finding("KP618", cause, target="reference", place="truth"))
    if not parts:
        return findings
    cause = f"Not all of the model could be raised to float64: {'; '.join(parts[:NAMED])}{' ...' if len(parts) > NAMED else ''}. Rounding there is missing from the noise floor."
    return [*findings, finding("KP618", cause, target="reference", place="truth", parts=parts[:50])]


def _usable(floors: dict[str, Floor], evidence: Evidence, precision: str) -> tuple[dict[str, Floor], list[Finding]]:
    """Leave out a floor that is too high to be rounding: as a tolerance it would let a wrong reference excuse wrong targets."""
    usable, findings = {}, []
    for output, floor in floors.items():
        known = floor.scales > 0
        relative = floor.errors[known] / floor.scales[known]
        if relative.size and float(np.median(relative)) > SUSPECT[precision]:
            worst = int(np.argmax(floor.errors))
            cause = (
                f"The reference differs from the candidate in float64 by {float(np.median(relative)):.2g} of output '{output}' on the typical input "
                f"(at most {floor.largest:.3g}, on '{evidence.golden.inputs[worst].id}'): more than rounding explains. Its tolerance is the default."
            )
            findings.append(finding("KP619", cause, target="reference", place=output, median=float(np.median(relative)), largest=floor.largest))
            continue
        usable[output] = floor
        if noisy := [evidence.golden.inputs[i].id for i in np.flatnonzero(floor.errors > SUSPECT[precision] * floor.scales) if floor.scales[i] > 0]:
            cause = (
                f"On {len(noisy)} golden inputs ({', '.join(noisy[:5])}) the reference differs from the candidate in float64 by more than rounding "
                f"explains in output '{output}'; there the tolerance is held at what rounding could do."
            )
            findings.append(finding("KP619", cause, target="reference", place=output, inputs=noisy[:50]))
    return usable, findings


def _unknown(reason: str) -> Finding:
    cause = f"Tolerances could not be derived, and are the defaults of the precision class: {reason}"
    return finding("KP617", cause, target="reference", place="truth")

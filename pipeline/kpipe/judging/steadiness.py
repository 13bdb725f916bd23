"""The reference against itself: asked again, in batches, on one thread. Evidence beside the noise floor; it widens no tolerance. Pure, over saved outputs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe.judging.answers import ALONE, Answers, open_answers
from kpipe.judging.compare import Problem, compare, kind_of
from kpipe.judging.grade import finding
from kpipe.judging.ruled import named
from kpipe.judging.ties import breaks_tie
from kpipe.record import FloorRecord, Steadiness, Tolerance, TruthRecord
from kpipe_stages.decisions import same

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kpipe.evidence import Evidence, StageEvidence
    from kpipe.findings import Finding
    from kpipe.judging.reference import Reference
    from kpipe.judging.ruled import Ruled

ONE_THREAD_STAGE = "reference.one_thread"

IN_FLOORS = Tolerance(rtol=0.0, atol=1.0, source="", unit="floor")
IN_SCALES = Tolerance(rtol=0.0, atol=1.0, source="")


def judge_threads(
    run: Path, evidence: Evidence, stage: StageEvidence | None, reference: Reference, tolerances: dict[str, Tolerance]
) -> tuple[Reference, list[Finding]]:
    """Hold the reference on all threads against itself on one, and record how far it moves.

    Args:
        run: the run folder.
        evidence: what the run left behind.
        stage: the run on one thread, which is owed; None where it was not made.
        reference: the reference on all threads.
        tolerances: its own, by output.
    """
    if stage is None:
        return reference, [_unknown("it was not run so")]
    single = open_answers(stage, run / evidence.folders.get(ONE_THREAD_STAGE, f"stages/{ONE_THREAD_STAGE}"), reference.answers.decided)
    if single is None:
        observed = stage.result.observations[-1].cause if stage.result and stage.result.observations else ""
        return reference, [_unknown(observed or stage.detail or str(stage.ending))]
    try:
        found = [f for output in reference.answers.outputs for f in _output(reference, single, output, tolerances[output], evidence)]
        found += [f for ruled in reference.rules for f in _decided(reference, single, ruled, evidence)]
        truth = with_threads(reference, single)
    except (OSError, ValueError, LookupError) as error:  # DecisionError among them
        return reference, [_unknown(f"its answers can't be used: {error}")]
    return replace(reference, truth=truth), found


def _unknown(why: str) -> Finding:
    return finding("KP314", f"What the reference answers on one thread is not known: {why}.", target="reference", place=ONE_THREAD_STAGE)


def _output(reference: Reference, single: Answers, output: str, tolerance: Tolerance, evidence: Evidence) -> Iterable[Finding]:
    rows = reference.answers.rows(ALONE, output)
    drifts = compare(rows, single.rows(ALONE, output), tolerance, frozenset({rows.dtype}), reference.widths(output))
    if len(drifts) != len(evidence.golden.inputs):
        raise ValueError(f"{len(drifts)} rows for {len(evidence.golden.inputs)} golden inputs")
    bad = [d for d in drifts if d.problem is not Problem.NONE]
    if not bad:
        return
    worst = max(bad, key=lambda d: d.factor)
    cause = (
        f"On one thread the reference answers {len(bad)} of {len(drifts)} inputs otherwise than on all, by up to {worst.max_abs:.3g} in '{output}' "
        f"(input {evidence.golden.inputs[worst.index].id}; {worst.factor:.3g} times what is allowed)."
    )
    yield finding("KP418", cause, target="reference", place=output, inputs=len(bad), max_abs=worst.max_abs, factor=worst.factor)


def _decided(reference: Reference, single: Answers, ruled: Ruled, evidence: Evidence) -> Iterable[Finding]:
    """Decisions on one thread against those on all, ties aside."""
    spec = ruled.spec
    scores = zip(reference.answers.decidable(spec, ALONE), single.decidable(spec, ALONE), strict=True)
    pairs = zip(ruled.decisions, single.decisions(spec, ALONE), scores, strict=True)
    moved = [
        evidence.golden.inputs[i].id
        for i, (ours, theirs, (left, right)) in enumerate(pairs)
        if not same(spec, ours, theirs) and not breaks_tie(spec, left, right, band=reference.band(spec, i))
    ]
    if moved:
        cause = f"{named(spec)}on one thread the reference decides {len(moved)} of {len(evidence.golden.inputs)} inputs otherwise than on all ({', '.join(moved[:5])})."
        yield finding("KP418", cause[0].upper() + cause[1:], target="reference", place=spec.output, inputs=moved[:50])


# ---------------------------------------------------------------- the record


def with_own_differences(reference: Reference) -> TruthRecord | None:
    """The record of the float64 run with how far the reference moves when it is asked again and in company; None without such a run."""
    if reference.truth is None:
        return None
    return replace(reference.truth, floors=tuple(_with_own(reference, floor) for floor in reference.truth.floors))


def with_threads(reference: Reference, single: Answers) -> TruthRecord | None:
    """The record with how far the reference moves on one thread."""
    if reference.truth is None:
        return None
    floors = tuple(replace(f, threads=_step(reference, [(single, ALONE)], f.output)) for f in reference.truth.floors)
    return replace(reference.truth, floors=floors)


def _with_own(reference: Reference, floor: FloorRecord) -> FloorRecord:
    answers = reference.answers
    modes = [(answers, mode) for mode in answers.result.modes if mode != ALONE and answers.batched(mode, floor.output)]
    batch = _step(reference, modes, floor.output) if answers.batched(ALONE, floor.output) else None
    moved = answers.result.repeat_differences.get(floor.output) if answers.result.repeats_equal is not None else None
    widths = reference.widths(floor.output)
    smallest = float(np.min(widths, initial=math.inf)) if widths is not None else None
    repeat = Steadiness(moved, _over(moved, smallest)) if moved is not None else None
    return replace(floor, repeat=repeat, batch=batch)


def _over(moved: float, smallest: float | None) -> float | None:
    """In the smallest floor of any input: which input moved isn't kept, so it is this at most."""
    if smallest is None:
        return None
    return 0.0 if moved == 0 else moved / smallest if smallest > 0 else math.inf


def _step(reference: Reference, others: list[tuple[Answers, str]], output: str) -> Steadiness | None:
    """The largest step from the reference's answers alone to any of ``others``; None where there is none to compare."""
    rows: Any = reference.answers.rows(ALONE, output)
    widths = reference.widths(output)
    if not others or kind_of(rows.dtype) != "float":
        return None
    tolerance = IN_SCALES if widths is None else IN_FLOORS
    drifts = [d for answers, mode in others for d in compare(rows, answers.rows(mode, output), tolerance, frozenset({rows.dtype}), widths)]
    largest = max(
        (math.inf if math.isnan(d.max_abs) and d.problem else d.max_abs for d in drifts if d.problem or not math.isnan(d.max_abs)), default=0.0
    )
    return Steadiness(largest, max((d.factor for d in drifts), default=0.0) if widths is not None else None)

"""What came of one target in one environment: as judged by its contract, and against its own sealed answers. Pure, over saved outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe.judging.answers import ALONE, Answers, open_answers
from kpipe.judging.compare import Problem, compare
from kpipe.judging.decided import DECIDE_STAGE, stored_decisions
from kpipe.judging.floor import Floor, K, band_of, noise_floors
from kpipe.judging.ties import breaks_tie
from kpipe.judging.tolerance import DEFAULTS
from kpipe.judging.truth import TRUTH_STAGE
from kpipe.judging.verdict import failing, unchecking
from kpipe.recheck.trial import AGAIN, stage_of
from kpipe.record import CellStatus, Tolerance
from kpipe.signoff.contents import REFERENCE
from kpipe_stages.decisions import DecisionError, NoDecisionError, outputs_of, same
from kpipe_stages.digest import digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kpipe.findings import Finding
    from kpipe.recheck.trial import Tried
    from kpipe.record import TargetRecord
    from kpipe.signoff.bundle import Bundle
    from kpipe_stages.protocol import DecisionSpec

Array = np.ndarray[Any, np.dtype[Any]]

NO_RUNTIME, UNKNOWN = "KP301", "KP314"


@dataclass(frozen=True)
class Against:
    """New answers against the sealed ones of the same target."""

    same_bits: bool
    factor: float
    """The largest difference of any output in any way of running, over what an output may drift; above 1 is more. Infinite for other shapes, or NaN on one side."""
    max_abs: float
    """The same in output units."""
    changed: tuple[str, ...]
    """Golden inputs that are decided otherwise than when they were sealed; ties among them."""
    ties: tuple[str, ...]
    """Those of ``changed`` that lie within rounding of two decisions."""
    missing: tuple[str, ...] = ()
    """Ways of running that were sealed and not run now."""
    unknown: str = ""
    """Why decisions could not be compared."""


@dataclass(frozen=True)
class Outcome:
    """A cell of the table."""

    bundle: str
    target: str
    required: bool
    column: str
    status: CellStatus
    reason: str
    codes: tuple[str, ...] = ()
    """Of the findings that fail it or leave it unchecked."""
    versions: dict[str, str] = field(default_factory=dict)
    """What its worker had imported."""
    against: Against | None = None
    """None where there is nothing to compare."""
    load_s: float | None = None
    """Import, load and first inference, cold."""
    p50_s: float | None = None


def outcome(bundle: Bundle, tried: Tried, name: str, column: str, *, anew: bool = False) -> Outcome:
    """One target's outcome.

    Args:
        bundle: the bundle.
        tried: what came of its trial.
        name: the target, or ``reference``.
        column: title of the environment.
        anew: its file was exported anew.
    """
    against = _against(bundle, tried, name)
    if name == REFERENCE:
        return _reference(bundle, tried, column, against)
    record = next(t for t in tried.record.targets if t.name == name)
    said = [f for f in tried.record.findings if f.target == name]
    codes = {f.code for f in (*failing(said), *unchecking(said))}
    status, reason = _held(record, unchecking([replace(f, required=True) for f in said]))
    if status is CellStatus.PASS and (owed := _owed(against)):
        status, reason, codes = CellStatus.UNCHECKED, owed, {UNKNOWN}
    return Outcome(
        bundle=bundle.id,
        target=row_of(name, anew=anew),
        required=record.required,
        column=column,
        status=status,
        reason=reason,
        codes=tuple(sorted(codes or {UNKNOWN})) if status is not CellStatus.PASS else (),
        versions=dict(record.identity.versions) if record.identity else {},
        against=against,
        load_s=_load(record),
        p50_s=_p50(record),
    )


def _held(record: TargetRecord, open_: Sequence[Finding]) -> tuple[CellStatus, str]:
    """A target's status, and why. What somebody answers for has passed; what was not checked beside it has not."""
    if not record.waived:
        return record.status, record.reason
    if open_:
        return CellStatus.UNCHECKED, f"{open_[0].code}: {open_[0].cause}"
    if record.cells.unchecked:
        return CellStatus.UNCHECKED, f"{record.cells.unchecked} of its cells were not checked"
    return CellStatus.PASS, f"waived: {record.reason}"


def row_of(name: str, *, anew: bool) -> str:
    """The row of a target: its name, marked where its file was exported anew."""
    return f"{name}, exported anew" if anew else name


def unbuilt(bundle: Bundle, name: str, column: str, why: str, *, anew: bool = False) -> Outcome:
    """The outcome where there was no environment to run it in."""
    return Outcome(bundle.id, row_of(name, anew=anew), bundle.target(name).required, column, CellStatus.UNCHECKED, why, (NO_RUNTIME,))


def _owed(against: Against | None) -> str:
    """What keeps a target that passed its contract from being known to be what was sealed."""
    if against is None:
        return "its answers could not be compared with the sealed ones"
    if against.missing:
        return f"it was not run in {', '.join(against.missing[:5])}, as it was when it was sealed"
    return f"its decisions could not be compared with the sealed ones: {against.unknown}" if against.unknown else ""


def _reference(bundle: Bundle, tried: Tried, column: str, against: Against | None) -> Outcome:
    """The trained model itself, held to its own sealed answers."""
    stage = tried.new.get(AGAIN)
    identity = stage.result.identity if stage and stage.result else None
    codes: tuple[str, ...] = ()
    if owed := _owed(against):
        status, reason, codes = CellStatus.UNCHECKED, owed, (UNKNOWN,)
    elif against is not None and (not against.factor <= 1 or set(against.changed) - set(against.ties)):
        codes = ("KP404",) if set(against.changed) - set(against.ties) else ("KP401",)
        status, reason = (
            CellStatus.FAIL,
            f"it answers otherwise than when it was sealed: {against.factor:.3g} times what rounding may do, {len(against.changed)} decisions",
        )
    else:
        status, reason = CellStatus.PASS, "answers as it did when it was sealed"
    return Outcome(
        bundle=bundle.id,
        target=REFERENCE,
        required=True,
        column=column,
        status=status,
        reason=reason,
        codes=codes,
        versions=dict(identity.versions) if identity else {},
        against=against,
    )


def _load(record: TargetRecord) -> float | None:
    return record.load.import_s + record.load.load_s + record.load.first_s if record.load is not None else None


def _p50(record: TargetRecord) -> float | None:
    if record.latency is None:
        return None
    return next((p.seconds for p in record.latency.percentiles if p.p == 50), None)  # noqa: PLR2004 - the median


# ---------------------------------------------------------------- against the sealed answers


def _against(bundle: Bundle, tried: Tried, name: str) -> Against | None:
    stage = stage_of(bundle.target(name))
    stages = {s.name: s for s in tried.evidence.stages}
    decided = stored_decisions(tried.run, tried.evidence, stages.get(DECIDE_STAGE))
    new = open_answers(tried.new.get(stage), tried.folder / stage, decided)
    if new is None:
        return None
    try:
        return compared(bundle.answers(name), new, bundle.rules, tuple(g.id for g in bundle.evidence.golden.inputs), floors_of(bundle))
    except (OSError, ValueError, LookupError):
        return None  # answers that can't be read are answers that nobody compared


def floors_of(bundle: Bundle) -> dict[str, Floor]:
    """The noise floors that the sealed float64 run gives; none where there was none."""
    stage = next((s for s in bundle.evidence.stages if s.name == TRUTH_STAGE), None)
    truth = open_answers(stage, bundle.run / "stages" / TRUTH_STAGE)
    return noise_floors(bundle.answers(REFERENCE), truth, "float32") if truth is not None else {}


def compared(sealed: Answers, new: Answers, rules: tuple[DecisionSpec, ...], ids: tuple[str, ...], floors: Mapping[str, Floor]) -> Against:
    """New answers against the sealed ones, in every way of running that was sealed.

    Args:
        sealed: as sealed.
        new: as answered now.
        rules: decision rules.
        ids: of the golden inputs, one a row.
        floors: output to the noise floor of the sealed reference.

    Raises:
        OSError: saved answers are gone.
        ValueError: they aren't the ones that were written, or have other rows.
    """
    modes = [mode for mode in sealed.result.modes if new.has(mode)]
    missing = tuple(mode for mode in sealed.result.modes if not new.has(mode))
    same_bits = not missing and all(digest(sealed.folder / "outputs" / m) == digest(new.folder / "outputs" / m) for m in modes)
    if same_bits and not rules:
        return Against(same_bits=True, factor=0.0, max_abs=0.0, changed=(), ties=())
    factor, largest = _differences(sealed, new, modes, floors)
    changed, ties, unknown = _changed(sealed, new, rules, modes, floors)
    return Against(same_bits, factor, largest, tuple(ids[i] for i in changed), tuple(ids[i] for i in ties), missing, unknown)


def _differences(sealed: Answers, new: Answers, modes: list[str], floors: Mapping[str, Floor]) -> tuple[float, float]:
    factor = largest = 0.0
    if new.outputs != sealed.outputs:
        return math.inf, math.inf
    for mode in modes:
        for output in sealed.outputs:
            rows, others = sealed.rows(mode, output), new.rows(mode, output)
            floor = floors.get(output)
            usable = floor is not None and len(floor.widths) == len(rows)
            rtol, atol = (0.0, K) if usable else DEFAULTS["float32"]
            tolerance = Tolerance(rtol=rtol, atol=atol, source="", unit="floor" if usable else "scale")
            for drift in compare(rows, others, tolerance, frozenset({rows.dtype}), floor.widths if floor is not None and usable else None):
                bad = drift.problem not in {Problem.NONE, Problem.DRIFT}
                factor = max(factor, math.inf if bad or math.isnan(drift.factor) else drift.factor)
                largest = max(largest, math.inf if bad or math.isnan(drift.max_abs) else drift.max_abs)
    return factor, largest


def _changed(
    sealed: Answers, new: Answers, rules: tuple[DecisionSpec, ...], modes: list[str], floors: Mapping[str, Floor]
) -> tuple[list[int], list[int], str]:
    """Rows decided otherwise in any way of running, those of them that are ties in all, and why it isn't known."""
    changed: set[int] = set()
    firm: set[int] = set()
    try:
        for spec in rules:
            for mode in [m for m in modes if m == ALONE or all(sealed.batched(m, o) for o in outputs_of(spec))]:
                before, now = sealed.decisions(spec, mode), new.decisions(spec, mode)
                scores = zip(sealed.decidable(spec, mode), new.decidable(spec, mode), strict=True)
                for i, (ours, theirs, (left, right)) in enumerate(zip(before, now, scores, strict=True)):
                    if not same(spec, ours, theirs):
                        changed.add(i)
                        if not breaks_tie(spec, left, right, band=band_of(floors, spec, i)):
                            firm.add(i)
    except (DecisionError, NoDecisionError) as error:
        return sorted(changed), sorted(changed - firm), str(error)
    return sorted(changed), sorted(changed - firm), ""

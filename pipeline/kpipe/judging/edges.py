"""Where a target first leaves the reference. Pure, over saved outputs and findings.

Between the raw file and a target's decision lie borders, each with its own way of breaking:

    archive | decode | preprocess | signature | backend | export | runtime | precision | batch | decision | golden

Findings tell most of them by themselves: what is refused, missing or bound wrongly names its border. Numbers that differ are told apart by the
other targets of the same run, which stand between the reference and this one: Keras on TensorFlow (`backend`: the candidate, another framework),
the SavedModel (`export`: the same framework, the graph that was written), a sibling on the same artifact in float32 (`precision`), the target's
own answers one by one (`batch`). The first one that leaves the reference names the border; what nobody stands before isn't told apart, and that
is said.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kpipe.evidence import TargetPlan
from kpipe.findings import Finding
from kpipe.judging.answers import ALONE, MACHINE_DEFAULT, Answers
from kpipe.judging.compare import compare, kind_of
from kpipe.judging.swaps import exchanged
from kpipe.record import CellStatus, Edge, EdgeDrift, TargetRecord, Tolerance
from kpipe_stages.catalog import RUNTIMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kpipe.judging.reference import Reference
    from kpipe.record import KnobRecord

BORDER_OF = {
    **dict.fromkeys(
        ("KP001", "KP002", "KP003", "KP004", "KP005", "KP006", "KP007", "KP008", "KP009", "KP010", "KP011", "KP012", "KP018", "KP019"), "archive"
    ),
    **dict.fromkeys(("KP101", "KP102", "KP105"), "golden"),
    **dict.fromkeys(("KP103", "KP109"), "decode"),
    **dict.fromkeys(("KP104", "KP106", "KP110", "KP112"), "preprocess"),
    **dict.fromkeys(("KP205", "KP206", "KP207", "KP213", "KP231", "KP403", "KP406", "KP407"), "signature"),
    **dict.fromkeys(("KP201", "KP202", "KP208", "KP210", "KP211", "KP214", "KP220", "KP221", "KP222", "KP223", "KP230"), "export"),
    **dict.fromkeys(("KP303", "KP311", "KP416", "KP412"), "runtime"),
    **dict.fromkeys(("KP307", "KP309"), "precision"),
    **dict.fromkeys(("KP313", "KP409", "KP411", "KP413", "KP418"), "backend"),
    "KP241": "shape",
    **dict.fromkeys(("KP410", "KP608", "KP720"), "decision"),
}
"""Code to the border that it names by itself."""

NUMBERS = frozenset({"KP401", "KP402", "KP404"})
"""Codes that say that something differs, and not where."""

FIRST = ("archive", "golden", "decode", "preprocess", "signature", "export", "runtime", "precision", "backend", "shape", "decision")
"""The order in which borders are passed, for findings that name theirs."""

PRECISION_KNOBS = frozenset({"in float32", "in accuracy mode"})

IN_FLOORS = Tolerance(rtol=0.0, atol=1.0, source="", unit="floor")
IN_SPACINGS = Tolerance(rtol=0.0, atol=2.0**-23, source="")


AS_MUCH = 0.25
"""Repeats that differ by this share of what company moves are the same randomness: the largest of fewer draws."""


@dataclass(frozen=True)
class Station:
    """One target of a run: what it was, what it answered, what came of it."""

    plan: TargetPlan
    record: TargetRecord
    answers: Answers | None
    findings: tuple[Finding, ...]

    @property
    def differs(self) -> bool:
        """Whether its numbers or decisions leave the reference when inputs are run one by one."""
        return any(f.code in NUMBERS and ALONE in f.evidence.get("modes", (ALONE,)) for f in self.findings)

    @property
    def plain(self) -> bool:
        """Whether it stands for its runtime: nothing handed in, no preprocessing of its own, float32."""
        coarse = any(name in self.record.effective_precision for name in ("bfloat16", "float16", "int8"))
        return not self.plan.quantize and not self.plan.provided and not self.plan.inputs and not coarse and self.answers is not None


def edge_of(finding: Finding) -> str:
    """The border that a finding names by itself; empty for none."""
    return BORDER_OF.get(finding.code, "")


def run_edge(findings: Sequence[Finding]) -> Edge | None:
    """The first border at which the run itself broke, before or beside its targets; None where nothing did."""
    errors = [f for f in findings if f.severity == "error" and f.target in {"", "reference"} and edge_of(f)]
    borders = sorted({edge_of(f) for f in errors}, key=FIRST.index)
    return _without_a_file(_told(borders[0], errors)) if borders else None


def name_edge(station: Station, stations: Sequence[Station], reference: Reference | None) -> Edge | None:
    """The first border at which a failed target leaves the reference; None where it didn't fail."""
    if station.record.status is not CellStatus.FAIL:
        return None
    errors = [f for f in station.findings if f.severity == "error"]
    told = sorted({border for f in errors if (border := edge_of(f))}, key=FIRST.index)
    if told and told[0] in FIRST[: FIRST.index("runtime")]:
        return _told(told[0], errors)
    if reference is not None and station.answers is not None and any(f.code in NUMBERS for f in errors):
        return _by_numbers(station, stations, reference)
    if any(f.code in {"KP408", "KP420"} for f in errors):
        return _in_company(station)
    edge = _told(told[0], errors) if told else None
    return _without_a_file(edge) if edge and RUNTIMES[station.plan.runtime].artifact == "keras" else edge


def _without_a_file(edge: Edge) -> Edge:
    """Of Keras itself: no artifact lies in between, so what runs it is the backend."""
    return replace(edge, name="backend") if edge.name == "runtime" else edge


def _told(border: str, errors: Sequence[Finding]) -> Edge:
    first = next(f for f in errors if edge_of(f) == border)
    return Edge(border, f"{first.code} names it: {first.cause}")


def _by_numbers(station: Station, stations: Sequence[Station], reference: Reference) -> Edge:
    if swap := exchanged(station.answers, reference.answers):
        return Edge("signature", swap)
    if not station.differs:
        return _in_company(station)
    before = None if station.plan.provided else _before_it(station, stations)
    return before or _by_precision(station, stations) or _by_knobs(station) or _last(station, stations)


def _in_company(station: Station) -> Edge:
    """One by one it agrees and in company it doesn't: unless it moves about as much from call to call, that is the batch."""
    largest = max((f.evidence.get("max_abs", 0.0) for f in station.findings if f.code in {"KP401", "KP408"}), default=0.0)
    result = station.answers.result if station.answers is not None else None
    if result is not None and result.repeats_equal is False and result.repeat_difference >= AS_MUCH * largest:
        cause = f"Asked again, it answers the same input otherwise, by up to {result.repeat_difference:.3g}: about as much as in company."
        return Edge("runtime", cause)
    return Edge("batch", "Inputs run one by one agree with the reference; in company they don't.")


def _by_knobs(station: Station) -> Edge | None:
    """A setting that removes the difference."""
    for knob in station.record.knobs:
        if knob.removes:
            border = "precision" if knob.title in PRECISION_KNOBS else "runtime"
            return Edge(border, f"Run {knob.title} ({_setting(knob)}) it agrees with the reference.")
    return None


def _setting(knob: KnobRecord) -> str:
    return ", ".join(f"{key} = {value}" for key, value in knob.settings.items())


def _named(stations: Sequence[Station], runtime: str) -> Station | None:
    return next((s for s in stations if s.plan.runtime == runtime and s.plain), None)


def _before_it(station: Station, stations: Sequence[Station]) -> Edge | None:
    """The stations that its numbers pass through: Keras on TensorFlow, then the SavedModel."""
    backend, export = _named(stations, "tensorflow"), _named(stations, "saved_model")
    if station.plan.runtime == "tensorflow" and station.plain:
        return Edge("backend", "The candidate itself computes otherwise on TensorFlow than on the backend that trained it.")
    if backend is not None and backend.differs:
        return Edge("backend", f"Target '{backend.plan.name}', the candidate itself on TensorFlow, leaves the reference already.")
    if RUNTIMES[station.plan.runtime].artifact == "keras":
        return None
    if station.plan.runtime == "saved_model" and backend is not None:
        return Edge("export", f"Target '{backend.plan.name}' agrees with the reference; the SavedModel written from it does not.")
    if export is not None and export is not station and export.differs:
        return Edge("export", f"Target '{export.plan.name}', the graph that every artifact is made from, leaves the reference already.")
    return None


def _by_precision(station: Station, stations: Sequence[Station]) -> Edge | None:
    """A precision variant; coarser arithmetic where a sibling on the same runtime and artifact agrees in float32, or where the runtime says so."""
    if station.plan.quantize:
        return _by_variant(station, stations)
    if station.record.effective_precision.startswith("float32") and "float16" not in station.record.effective_precision:
        return None
    other = _sibling(station, stations)
    if other is not None and not other.differs:
        cause = f"It computes in {station.record.effective_precision}; target '{other.plan.name}' agrees in {other.record.effective_precision}."
        return Edge("precision", cause)
    return Edge("precision", f"It computes in {station.record.effective_precision}.") if station.record.effective_precision else None


def _by_variant(station: Station, stations: Sequence[Station]) -> Edge:
    other = _float_row(station, stations)
    beside = f"; target '{other.plan.name}', on the float artifact, agrees" if other is not None and not other.differs else ""
    return Edge("precision", f"It runs the variant {station.plan.quantize}{beside}.")


def _float_row(station: Station, stations: Sequence[Station]) -> Station | None:
    """The target that runs the float artifact on the same runtime."""
    return _named(stations, station.plan.runtime)


def _sibling(station: Station, stations: Sequence[Station]) -> Station | None:
    """A target on the same runtime and the same file, in float32."""
    artifact = station.record.artifact.sha256 if station.record.artifact else ""
    for other in stations:
        same = other.plan.runtime == station.plan.runtime and (other.record.artifact.sha256 if other.record.artifact else "") == artifact
        if other is not station and same and other.plain:
            return other
    return None


def _last(station: Station, stations: Sequence[Station]) -> Edge:
    """The stations before it agree, or aren't there: what is left is the conversion to its format, and the runtime."""
    if station.plan.provided:
        return Edge("export", "The artifact that was handed in does not compute what the candidate computes.")
    artifact = station.record.artifact.sha256 if station.record.artifact else ""
    shared = next(
        (s for s in stations if s is not station and artifact and s.record.artifact and s.record.artifact.sha256 == artifact and not s.differs), None
    )
    if shared is not None and shared.answers is not None:
        return Edge("runtime", f"Target '{shared.plan.name}' runs the same file and agrees with the reference.")
    missing = [name for name in ("tensorflow", "saved_model") if _named(stations, name) is None]
    if RUNTIMES[station.plan.runtime].artifact == "keras":
        return Edge("backend", f"The candidate itself computes otherwise on {station.record.title}.")
    if missing:
        return Edge("export", f"Backend, export and runtime are not told apart: the run has no target {' and no target '.join(missing)}.")
    return Edge("export", "The SavedModel agrees with the reference; the conversion to this format, or its runtime, does not.")


# ---------------------------------------------------------------- drift per border


def edge_drifts(station: Station, stations: Sequence[Station], reference: Reference) -> tuple[EdgeDrift, ...]:
    """How far the numbers move at each border that can be measured, in noise floors (in float32 spacings of the output's scale without them).

    Raises:
        OSError, ValueError: saved answers can't be read back.
    """
    if station.answers is None or station.plan.inputs:
        return ()
    backend, export = _named(stations, "tensorflow"), _named(stations, "saved_model")
    chain: list[tuple[str, Answers, Answers, str]] = []
    start = reference.answers
    if backend is not None and backend.answers is not None:
        chain.append(("backend", start, backend.answers, ALONE))
        start = backend.answers
    artifact = RUNTIMES[station.plan.runtime].artifact
    if artifact != "keras" and not station.plan.provided and export is not None and export.answers is not None:
        chain.append(("export", start, export.answers, ALONE))
        start = export.answers
    fine = _float_row(station, stations) if station.plan.quantize else _sibling(station, stations)
    if fine is not None and fine.answers is not None and not station.plain:
        chain += [("runtime", start, fine.answers, ALONE), ("precision", fine.answers, station.answers, ALONE)]
    elif station is not backend and station is not export:
        chain.append(("runtime", start, station.answers, ALONE))
    if station.answers.has(MACHINE_DEFAULT):
        chain.append(("precision", station.answers, station.answers, MACHINE_DEFAULT))
    chain += [("batch", station.answers, station.answers, mode) for mode in station.record.modes if mode != ALONE and station.answers.has(mode)]
    measured = [_measure(border, left, right, mode, reference) for border, left, right, mode in chain]
    worst: dict[str, EdgeDrift] = {}
    for drift in measured:
        if drift is not None and (drift.edge not in worst or drift.multiple > worst[drift.edge].multiple):
            worst[drift.edge] = drift
    return tuple(worst.values())


def _measure(border: str, left: Answers, right: Answers, mode: str, reference: Reference) -> EdgeDrift | None:
    """The largest step between two answers to the same inputs, over every floating-point output that both have."""
    found: EdgeDrift | None = None
    for output in left.outputs:
        if output not in right.outputs or not (left.batched(ALONE, output) and right.batched(mode, output)):
            continue
        rows, other = left.rows(ALONE, output), right.rows(mode, output)
        if kind_of(rows.dtype) != "float" or kind_of(other.dtype) != "float" or len(rows) != len(other):
            continue
        widths = reference.widths(output)
        drifts = compare(rows, other, IN_SPACINGS if widths is None else IN_FLOORS, frozenset({other.dtype}), widths)
        worst = max(drifts, key=lambda d: d.factor, default=None)
        if worst is not None and (found is None or worst.factor > found.multiple):
            found = EdgeDrift(border, output, mode, worst.max_abs, worst.factor, "spacings" if widths is None else "floors")
    return found


def attributed(stations: Mapping[str, Station], reference: Reference | None) -> dict[str, tuple[Edge | None, tuple[EdgeDrift, ...]]]:
    """Edge and drifts of every target by name; numbers that can't be read back are measured nowhere."""
    result: dict[str, tuple[Edge | None, tuple[EdgeDrift, ...]]] = {}
    everyone = tuple(stations.values())
    for name, station in stations.items():
        try:
            drifts = edge_drifts(station, everyone, reference) if reference is not None else ()
            result[name] = (name_edge(station, everyone, reference), drifts)
        except (OSError, ValueError, LookupError):  # its cells are unchecked for that very reason, by KP314
            result[name] = (None, ())
    return result

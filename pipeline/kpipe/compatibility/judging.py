"""From what the workers left on disk to cells, by the gate's own comparison. Nothing is run here."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe.compatibility.result import CaseRow, Cell, Status
from kpipe.judging.compare import Problem, compare
from kpipe.judging.tolerance import DEFAULTS, precision_class
from kpipe.record import Tolerance
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import CodecError, read_json
from kpipe_stages.zoo.orders import EXPORT, OPENVINO_IR, Exported, Ran, folder_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kpipe.judging.compare import RowDrift
    from kpipe_stages.protocol import Observation
    from kpipe_stages.zoo.case import Case

Array = np.ndarray[Any, np.dtype[Any]]
REFERENCES = ("jax", "tensorflow")
"""The first that answered is what the others are compared with: as in the gate, the backend that trains."""
NARROWING = {"KP206", "KP212"}
LOADING = {"KP202", "KP303", "KP207", "KP407", "KP213", "KP310"}
LONGEST = 220
SPACINGS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Spacing of the coarse precisions at 1."""


class ArrayRows:
    """An array as rows along its first axis, as `kpipe.judging.compare` takes them."""

    def __init__(self, array: Array, dtype: str) -> None:
        self._array = array
        self.dtype = dtype

    def __len__(self) -> int:
        return 1

    def shape(self, _: int) -> tuple[int, ...]:
        """Of the whole array: a case's output is one row, so that an output without a batch axis is one too."""
        return tuple(map(int, self._array.shape))

    def __getitem__(self, _: int) -> Array:
        return self._array


class Answers:
    """What one runtime answered."""

    def __init__(self, ran: Ran, outputs: Mapping[str, Array]) -> None:
        self.ran = ran
        self.outputs = outputs

    @property
    def ways(self) -> list[str]:
        """Ways that have answers."""
        return [way for way, refused in self.ran.ways.items() if not refused]


def judge(root: Path, case: Case, group: str, runtimes: Sequence[str]) -> CaseRow:
    """A row of the table."""
    folder = root / folder_of(case.name)
    exported = _exported(folder / f"{EXPORT}.json")
    answers = {name: found for name in (*runtimes, *REFERENCES) if (found := _answers(folder, name)) is not None}
    reference = _reference(answers, exported)
    cells = {name: _cell(folder, name, exported, answers, reference) for name in runtimes}
    return CaseRow(case.unit, group, case.config, exported.dtypes if exported else (), reference, cells)


def _lost(file: Path) -> str:
    """How the process ended in the step: a signal, or the last line of its log."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return "the process ended"


def _reference(answers: Mapping[str, Answers], exported: Exported | None) -> str:
    """The first of `REFERENCES` that answers in the dtypes that the model declares (JAX has no float64 here); else the first that answers."""
    declared = [spec.dtype for spec in exported.signature.outputs] if exported and exported.signature else []
    there = [name for name in REFERENCES if name in answers]
    alike = [name for name in there if all(_same_kind(a, b) for a, b in zip(answers[name].ran.dtypes, declared, strict=True))] if declared else []
    return next(iter((*alike, *there)), "")


def _same_kind(found: str, wanted: str) -> bool:
    return found == wanted or {found, wanted} == {"int32", "int64"}


def _exported(file: Path) -> Exported | None:
    try:
        return read_json(Exported, file)
    except (OSError, CodecError):
        return None


def _ran(file: Path) -> Ran | None:
    try:
        return read_json(Ran, file)
    except (OSError, CodecError):
        return None


def _answers(folder: Path, runtime: str) -> Answers | None:
    ran = _ran(folder / f"run.{runtime}.json")
    if ran is None or not ran.ended or ran.refusal is not None:
        return None
    with np.load(folder / f"run.{runtime}.npz", allow_pickle=False) as stored:
        return Answers(ran, {name: stored[name] for name in stored.files})


def _cell(
    folder: Path,
    runtime: str,
    exported: Exported | None,
    answers: Mapping[str, Answers],
    reference: str,
) -> Cell:
    if exported is not None and exported.refusal is not None and exported.refusal.code == "KP012":
        return Cell(Status.NO_MODEL, _line(exported.refusal), "KP012")
    converted = RUNTIMES[runtime].artifact == "openvino_ir"
    source = _exported(folder / f"{OPENVINO_IR}.json") if converted else exported
    ran = _ran(folder / f"run.{runtime}.json")
    if ran is None or exported is None:
        return Cell(Status.UNCHECKED, "it was never run", "KP304")
    steps = {EXPORT: exported.ended, OPENVINO_IR: not converted or (source is not None and source.ended), f"run.{runtime}": ran.ended}
    if begun := [step for step, ended in steps.items() if not ended]:
        return Cell(Status.CRASHED, _short(f"{begun[0]}: {_lost(folder / f'{begun[0]}.lost')}"), "KP304")
    if ran.refusal is not None:
        return _refused(ran.refusal, runtime, source)
    if not reference:
        return Cell(Status.UNCHECKED, "neither Keras on JAX nor Keras on TensorFlow answers, so there is nothing to compare with")
    return _compared(runtime, answers, reference, exported, source)


def _refused(refusal: Observation, runtime: str, source: Exported | None) -> Cell:
    exists = RUNTIMES[runtime].artifact == "keras" or any(one.format == RUNTIMES[runtime].artifact for one in (source.artifacts if source else ()))
    status = Status.EXPORT_FAILS if not exists else Status.LOAD_FAILS if refusal.code in LOADING else Status.RUN_FAILS
    return Cell(status, _line(refusal), refusal.code)


def _compared(runtime: str, answers: Mapping[str, Answers], reference: str, exported: Exported | None, source: Exported | None) -> Cell:
    mine, theirs = answers[runtime], answers[reference]
    kind = RUNTIMES[runtime].artifact
    repairs = tuple(one for artifact in (source.artifacts if source else ()) if artifact.format == kind for one in artifact.repairs)
    tolerance = _tolerance(precision_class(set(exported.dtypes if exported else ()), "", "f32"))
    drift, worst, where = 0.0, None, ("", 0)
    for way in mine.ways:
        if way not in theirs.ways:
            return Cell(Status.UNCHECKED, f"{reference} doesn't answer '{way}', so this can't be compared", repairs=repairs)
        for position in range(len(theirs.ran.dtypes)):
            found = _drift(mine, theirs, way, position, tolerance)
            drift = max(drift, found.max_rel if not math.isnan(found.max_rel) else math.inf)
            if found.problem is not Problem.NONE and (worst is None or found.factor > worst.factor):
                worst, where = found, (way, position)
    if worst is not None:
        alike = _as_tensorflow(runtime, reference, answers, tolerance)
        return Cell(Status.DIFFERS, _said(worst, where, reference, mine, theirs) + alike, "KP401", drift, repairs)
    lost = [f"{way}: {said}" for way, said in mine.ran.ways.items() if said and not theirs.ran.ways.get(way)]
    narrowed = [one.cause for one in (source.observations if source else ()) if one.code in NARROWING and one.evidence.get("format") == kind]
    if lost or narrowed:
        return Cell(Status.NARROWED, _short((narrowed or lost)[0]), "KP206", drift, repairs)
    return Cell(Status.WORKS, drift=drift, repairs=repairs)


def _tolerance(precision: str) -> Tolerance:
    """The gate's default; for float16 and bfloat16 eight units in the last place, since a sum of a few dozen numbers is off by as much in any order."""
    rtol, atol = DEFAULTS[precision]
    if precision in SPACINGS:
        rtol = atol = 8 * SPACINGS[precision]
    return Tolerance(rtol=rtol, atol=atol, source=f"default for {precision}")


def _drift(mine: Answers, theirs: Answers, way: str, position: int, tolerance: Tolerance) -> RowDrift:
    key = f"{way}/{position}"
    left, right = theirs.outputs[key], mine.outputs[key]
    wanted = theirs.ran.dtypes[position]
    accepted = frozenset(
        {wanted, *({"int64", "int32"} if wanted in {"int64", "int32"} else ())}
    )  # JAX without x64 has no int64: that it differs is its own
    return compare(ArrayRows(left, wanted), ArrayRows(right, mine.ran.dtypes[position]), tolerance, accepted)[0]


def _said(drift: RowDrift, where: tuple[str, int], reference: str, mine: Answers, theirs: Answers) -> str:
    way, position = where
    place, key = f"output {position}, {way}", f"{way}/{position}"
    if drift.problem is Problem.DTYPE:
        return f"{place}: {mine.ran.dtypes[position]} for {theirs.ran.dtypes[position]} of {reference}"
    if drift.problem is Problem.SHAPE:
        return f"{place}: shape {mine.outputs[key].shape} for {theirs.outputs[key].shape} of {reference}"
    left, right = drift.pair
    return f"{place}: off by {drift.max_abs:.3g}, {drift.max_rel:.2g} of the scale ({right:.6g} for {left:.6g} of {reference})"


def _as_tensorflow(runtime: str, reference: str, answers: Mapping[str, Answers], tolerance: Tolerance) -> str:
    """Whether the difference is the border between the two Keras backends, and not this runtime's."""
    if reference != "jax" or runtime == "tensorflow" or "tensorflow" not in answers:
        return ""
    other, mine = answers["tensorflow"], answers[runtime]
    ways = [way for way in mine.ways if way in other.ways]
    same = all(_drift(mine, other, way, position, tolerance).problem is Problem.NONE for way in ways for position in range(len(other.ran.dtypes)))
    return "; Keras on TensorFlow says the same" if same else ""


def _line(refusal: Observation) -> str:
    return _short(refusal.cause)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."

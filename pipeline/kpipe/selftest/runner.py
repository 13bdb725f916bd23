"""Plant, validate, and look at what was said: one fault at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.codes import CODES
from kpipe.errors import KpipeError
from kpipe.judging.floor import K
from kpipe.judging.verdict import failing, unchecking
from kpipe.record import Verdict
from kpipe.selftest.distance import answers_of, decides_alike, distance, healthy_floors, in_floors, smallest_margin
from kpipe.selftest.edges import edge_of_error, edge_of_run
from kpipe.selftest.fault import NotPlantableError
from kpipe.selftest.planting import Case, case_of, plant_files, slug
from kpipe.selftest.reading import read_float64
from kpipe.selftest.result import Healthy, Row, Skipped, Table
from kpipe.selftest.subjects import build, run_contract, targets
from kpipe.selftest.yardsticks import healthy_name, yardsticks_of
from kpipe_stages.catalog import RUNTIMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe.api import Run
    from kpipe.selftest.fault import Fault, Setup
    from kpipe.selftest.subjects import Say

DETAIL = 160


@dataclass
class _Found:
    """One setup's faults so far."""

    rows: list[Row] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    runs: dict[str, Path] = field(default_factory=dict)


def run_selftest(setups: Sequence[Setup], faults: Sequence[Fault], out: Path, say: Say, *, all_faults: bool) -> Table:
    """Plant every fault into every setup that it is for.

    Args:
        setups: healthy ones.
        faults: what to plant.
        out: where everything is left.
        say: hears what is going on.
        all_faults: plant each fault wherever there is a place for it, whatever setups it names.
    """
    began = time.monotonic()
    rows: list[Row] = []
    skipped: list[Skipped] = []
    alarms: dict[str, list[str]] = {"random": [], "golden": []}
    for setup in setups:
        found = _faults_of(setup, [f for f in faults if all_faults or setup.name in f.subjects], out / setup.name, say)
        sticks = yardsticks_of(setup, found.cases, found.runs, out / setup.name / "yardsticks", say)
        rows += [replace(row, random=sticks[row.name].random, golden=sticks[row.name].golden) for row in found.rows]
        skipped += found.skipped
        healthy = {runtime: sticks[name] for runtime in setup.contract["targets"] if (name := healthy_name(runtime)) in sticks}
        for way, lines in alarms.items():
            lines += [f"{setup.name}: {runtime}" for runtime, said in healthy.items() if getattr(said, way)]
    return Table(
        rows=tuple(rows),
        skipped=tuple(skipped),
        setups=tuple(setup.name for setup in setups),
        seconds=time.monotonic() - began,
        random_alarms=tuple(alarms["random"]),
        golden_alarms=tuple(alarms["golden"]),
    )


def _faults_of(setup: Setup, faults: Sequence[Fault], out: Path, say: Say) -> _Found:
    found = _Found()
    files = plant_files(setup, faults, out / "planted", say)
    for position, fault in enumerate(faults):
        folder = out / "faults" / slug(fault.name)
        try:
            case = case_of(fault, setup, files, folder)
        except NotPlantableError as error:
            found.skipped.append(Skipped(fault.name, fault.family, setup.name, str(error), str(error).startswith("failed: ")))
            continue
        found.cases.append(case)
        row = _row(case, folder, found.runs)
        found.rows.append(row)
        say(
            f"{setup.name} {position + 1}/{len(faults)} {fault.name}: {row.verdict}{' (equivalent)' if row.equivalent else ' (small)' if row.small else ''}"
        )
    return found


def _row(case: Case, folder: Path, runs: dict[str, Path]) -> Row:
    began = time.monotonic()
    try:
        run = run_contract(case.model, case.contract, folder)
    except KpipeError as error:
        return _refused(case, error, time.monotonic() - began)
    runs[case.fault.name] = run.folder
    return _judged(case, run, folder, time.monotonic() - began)


def _refused(case: Case, error: KpipeError, seconds: float) -> Row:
    fault, edge = case.fault, edge_of_error(error)
    return Row(
        name=fault.name,
        family=fault.family,
        setup=case.setup.name,
        caught=True,
        equivalent=False,
        small=False,
        codes=(),
        edge=edge,
        right_edge=edge in fault.edges,
        verdict=f"exit {int(error.exit_code)}",
        floors=None,
        margins=None,
        random=None,
        golden=None,
        seconds=seconds,
        detail=" ".join(str(error).split())[:DETAIL],
    )


def _judged(case: Case, run: Run, folder: Path, seconds: float) -> Row:
    fault, record = case.fault, run.record
    said = [*failing(record.findings), *unchecking(record.findings)]
    edge = edge_of_run(record)
    alike = decides_alike(case.setup.record, record)
    far = distance(case.setup.run, answers_of(run.folder, f"run.{fault.runtime}"), smallest_margin(case.setup.record))
    reading = _reading(case, run, folder / "reading") if alike and far is not None and far.floors <= K else None
    return Row(
        name=fault.name,
        family=fault.family,
        setup=case.setup.name,
        caught=run.verdict is not Verdict.PASS,
        equivalent=reading is not None and reading < 1.0,
        small=reading is not None and 1.0 <= reading <= K,
        codes=tuple(sorted({f.code for f in said})),
        edge=edge,
        right_edge=edge in fault.edges,
        verdict=str(run.verdict),
        floors=far.floors if far else None,
        margins=far.margin if far else None,
        random=None,
        golden=None,
        seconds=seconds,
        detail=f"{CODES[said[0].code].title}: {said[0].cause}"[:DETAIL] if said else record.headline[:DETAIL],
    )


def _reading(case: Case, run: Run, folder: Path) -> float | None:
    """How far the fault is from the healthy setup in float64, in noise floors; None where it can't be read."""
    readings = read_float64(case, run.folder, folder)
    return in_floors(healthy_floors(case.setup.run), readings.healthy, readings.fault) if readings is not None else None


def run_healthy(count: int, own: tuple[str, ...], setups: Sequence[Setup], out: Path, say: Say) -> Healthy:
    """Validate ``count`` healthy models on every installed runtime, timed calls and all: models drawn anew, and the user's again.

    What doesn't pass is an alarm.

    Args:
        count: validations.
        own: the selftest's models to draw.
        setups: a user's healthy setups, each validated by its own contract as often as it has its turn.
        out: where runs are left.
        say: hears what is going on.
    """
    began, alarms, done, draw = time.monotonic(), [], 0, 0
    everything = targets(tuple(name for name, row in RUNTIMES.items() if row.default_target and row.required_by_default))
    while done < count:
        draw += 1
        drawn = build(own, out / f"draw-{draw}", draw, everything, say) if own else {}
        turns = [(name, out / f"draw-{draw}" / name / "model.keras", contract) for name, (contract, _) in drawn.items()]
        turns += [(setup.name, setup.model, {**setup.contract, "targets": everything}) for setup in setups]
        for name, model, contract in turns[: count - done]:
            done += 1
            try:
                run = run_contract(model, {key: table for key, table in contract.items() if key != "timing"}, out / f"healthy-{done}")
            except KpipeError as error:
                alarms.append(f"{name}, draw {draw}: {error}")
                continue
            say(f"healthy {done}/{count} {name}: {run.verdict}")
            if run.verdict is not Verdict.PASS:
                alarms.append(f"{name}, draw {draw}: {run.verdict}: {run.record.headline}")
    return Healthy(done, tuple(alarms), time.monotonic() - began)

"""The float64 reading of a fault: what it changes in exact arithmetic, on the golden inputs. Only that can say that a fault changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kpipe.evidence import Ending
from kpipe.judging.answers import ALONE, open_answers
from kpipe.running.single import run_stage
from kpipe.selftest.distance import answers_of
from kpipe.store import load_evidence
from kpipe_stages.codec import decode, read_json
from kpipe_stages.plant_orders import ReadJob, ReadResult, objects_file
from kpipe_stages.protocol import Job, RunJob, Trust
from kpipe_stages.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kpipe.judging.answers import Answers
    from kpipe.selftest.planting import Case

READ_LIMIT_S = 300.0

Reading = dict[str, Rows]


@dataclass(frozen=True)
class Readings:
    """Output name to rows, of the healthy setup and of the fault, read in the same way."""

    healthy: Reading
    fault: Reading


def read_float64(case: Case, run: Path, folder: Path) -> Readings | None:
    """The fault in float64, and the healthy setup. None where it can't be read that way: a file that only its own runtime understands.

    Args:
        case: the fault.
        run: its own validation.
        folder: where a run that is made for this may leave its outputs.
    """
    if case.fault.file is not None and case.fault.file.on == "onnx":
        healthy = _onnx(case, case.setup.artifacts["onnx"], folder / "healthy")
        fault = _onnx(case, case.contract["targets"][case.fault.runtime]["artifact"], folder / "fault")
    else:
        healthy, fault = rows_of(answers_of(case.setup.run, "truth")), _by_keras(case, run, folder)
    return Readings(healthy, fault) if healthy is not None and fault is not None else None


def _by_keras(case: Case, run: Path, folder: Path) -> Reading | None:
    """By Keras on TensorFlow: the edited archive, or the healthy one on the fault's own tensors, or the fault's own float64 run."""
    prepared = case.setup.run / "stages" / "prepare" / "tensors"
    if case.fault.file is not None and case.fault.file.on in {"litert", "convert"}:
        return None
    if "inputs" in case.contract["targets"][case.fault.runtime]:
        return _truth_again(case, str(case.setup.model), run / "stages" / f"prepare.{case.fault.runtime}" / "tensors", folder)
    if case.archive is not None and case.archive != case.model:
        return _truth_again(case, str(case.archive), prepared, folder)
    return rows_of(answers_of(run, "truth"))


def rows_of(answers: Answers | None) -> Reading | None:
    """Answers alone, by output."""
    return {output: answers.rows(ALONE, output) for output in answers.outputs} if answers is not None else None


def _onnx(case: Case, path: str, folder: Path) -> Reading | None:
    """By ONNX's own reference implementation, widened; names are the file's, but for a single one that changed."""
    job = ReadJob(path, str(case.setup.run / "stages" / "prepare" / "tensors"), tuple(case.contract["inputs"]), str(folder / "outputs"))
    evidence = run_stage("plant_read", job, backend=None, time_limit_s=READ_LIMIT_S, folder=folder)
    if evidence.ending is not Ending.OK or evidence.result is None:
        return None
    result = decode(ReadResult, evidence.result.data)
    found = {name: Rows(folder / "outputs" / str(position)) for position, name in enumerate(result.outputs)}
    return renamed(found, [spec.name for spec in case.setup.record.candidate.signature.outputs] if case.setup.record.candidate.signature else [])


def renamed(found: Reading, wanted: Sequence[str]) -> Reading:
    """With the one name that isn't the model's taken for the one that is missing; more than one are left as they are."""
    missing, extra = [name for name in wanted if name not in found], [name for name in found if name not in wanted]
    if len(missing) == len(extra) == 1:
        return {missing[0] if name == extra[0] else name: rows for name, rows in found.items()}
    return found


def _truth_again(case: Case, model: str, tensors: Path, folder: Path) -> Reading | None:
    """The healthy run's own order for its float64 run, with another archive or other tensors."""
    stage = case.setup.run / load_evidence(case.setup.run).folders.get("truth", "stages/truth")
    order = decode(RunJob, read_json(Job, stage / "job.json").params)
    trust = Trust((*order.trust.custom_objects, objects_file()), order.trust.allow_modules, order.trust.allow_lambda)
    job = replace(order, artifact=model, tensors=str(tensors), trust=trust, sha256="")
    evidence = run_stage("truth", job, backend="tensorflow", time_limit_s=READ_LIMIT_S, folder=folder)
    if evidence.ending is not Ending.OK:
        return None
    return rows_of(open_answers(evidence, folder / "stages" / "truth"))

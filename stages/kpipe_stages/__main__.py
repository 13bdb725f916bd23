"""``python -P -m kpipe_stages STAGE JOB.json``: run one stage and leave its answer beside the job."""

from __future__ import annotations

import importlib
import os
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe_stages.catalog import STAGES
from kpipe_stages.codec import encode, read_json, write_json
from kpipe_stages.protocol import PROTOCOL, Failure, Job, Result, StageError, Status
from kpipe_stages.worker import NOTHING, Inheritance, Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe_stages.protocol import ShapesResult


def main(argv: list[str], inherited: Inheritance = NOTHING) -> int:
    """Run the stage; 0 when an answer was written, whatever it says.

    Args:
        argv: stage and job file.
        inherited: what this process got by being forked.
    """
    try:
        stage, path = argv
        if stage not in STAGES:
            raise ValueError(stage)
    except ValueError:
        print(f"usage: python -m kpipe_stages STAGE JOB.json, STAGE one of {', '.join(sorted(STAGES))}", file=sys.stderr)
        return 2
    channel = os.dup(1)
    os.dup2(2, 1)  # what frameworks print goes where the orchestrator put stderr: stage.log
    job = read_json(Job, path)
    if job.protocol != PROTOCOL or job.stage != stage:
        print(f"{path}: protocol {job.protocol} stage {job.stage}; this worker speaks {PROTOCOL} and was started as {stage}", file=sys.stderr)
        return 2
    folder = Path(job.folder)
    worker = Worker(stage, folder, channel, inherited)
    worker.listen()
    worker.emit("started", pid=os.getpid())
    result = perform(job, worker)
    write_json(folder / "result.json", result)
    worker.emit("result", status=result.status)
    if result.status is Status.OK:
        finish(job, worker, result)
    worker.emit("done")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # frameworks' exit handlers can hang or crash after the answer is safe on disk


def perform(job: Job, worker: Worker) -> Result:
    """Run the stage's ``run`` and wrap what came of it."""
    start = time.perf_counter()
    data, failure, status = {}, None, Status.OK
    try:
        data = encode(importlib.import_module(STAGES[job.stage]).run(job, worker))
    except StageError as error:
        worker.observations.append(error.observation)
        status = Status.FAILED
    except (Exception, SystemExit) as error:  # a stage's fault becomes an answer; the orchestrator turns it into a finding
        failure, status = describe(error, worker.phase), Status.FAILED
    return Result(
        protocol=PROTOCOL,
        stage=job.stage,
        attempt=job.attempt,
        status=status,
        identity=worker.identity(),
        observations=tuple(worker.observations),
        failure=failure,
        data=data,
        seconds=time.perf_counter() - start,
        peak_rss_bytes=worker.peak_rss_bytes(),
    )


def finish(job: Job, worker: Worker, result: Result) -> None:
    """Run what comes after the answer, each once and when the orchestrator says so: the timed phase, and the shapes to try."""
    module = importlib.import_module(STAGES[job.stage])
    phases: dict[str, Callable[[Job, Worker, Result], None]] = {}
    if hasattr(module, "measure"):
        phases["time"] = _time
    if job.params.get("shapes"):
        phases["shapes"] = _shapes
    while phases and (word := worker.wait_for(*phases)):
        phases.pop(word)(job, worker, result)


def _time(job: Job, worker: Worker, result: Result) -> None:
    answer = _phase("time", importlib.import_module(STAGES[job.stage]).measure, job, worker, result)
    write_json(Path(job.folder) / "timing.json", answer)
    worker.emit("timed", status=answer.status)


def _shapes(job: Job, worker: Worker, result: Result) -> None:
    """Try the shapes; ``shapes.json`` is written anew after each, so that it says what was tried when the process died."""
    from kpipe_stages.shapes import try_shapes

    def keep(sofar: ShapesResult) -> None:
        write_json(Path(job.folder) / "shapes.json", replace(result, observations=(), data=encode(sofar)))

    answer = _phase("shapes", lambda job, worker: try_shapes(job, worker, keep), job, worker, result)
    if answer.status is not Status.OK:  # the cases that were done stay
        write_json(Path(job.folder) / "shapes_failed.json", answer)
    worker.emit("shaped", status=answer.status)


def _phase(name: str, work: Callable[[Job, Worker], Any], job: Job, worker: Worker, result: Result) -> Result:
    worker.observations.clear()
    start = time.perf_counter()
    data, failure, status = {}, None, Status.OK
    try:
        data = encode(work(job, worker))
    except StageError as error:
        worker.observations.append(error.observation)
        status = Status.FAILED
    except (Exception, SystemExit) as error:  # as in `perform`
        failure, status = describe(error, name), Status.FAILED
    return replace(
        result,
        status=status,
        observations=tuple(worker.observations),
        failure=failure,
        data=data,
        seconds=time.perf_counter() - start,
        peak_rss_bytes=worker.peak_rss_bytes(),
    )


def describe(error: BaseException, phase: str) -> Failure:
    """An exception as plain text."""
    return Failure(phase=phase, type=type(error).__name__, message=str(error)[:4000], traceback="".join(traceback.format_exception(error))[-8000:])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

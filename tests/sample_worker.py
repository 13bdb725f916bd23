"""Stages run as the orchestrator runs them: a process, a job file, a channel of events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kpipe_stages
from kpipe_stages.codec import decode, encode, read_json, write_json
from kpipe_stages.protocol import Job, Result, RunResult, Status, TimingResult
from kpipe_stages.rows import Rows


def environment(home: Path, backend: str | None, first_on_path: str = "") -> dict[str, str]:
    for name in ("intel", "keras"):
        (home / name).mkdir(parents=True, exist_ok=True)
    (home / "intel" / "openvino_telemetry").write_text("0")
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "LD_LIBRARY_PATH"} or name.startswith("COVERAGE")}
    source = str(Path(kpipe_stages.__file__).parents[1])
    fixed = {
        "HOME": str(home),
        "KERAS_HOME": str(home / "keras"),
        "PYTHONPATH": os.pathsep.join(filter(None, [first_on_path, source])),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "JAX_PLATFORMS": "cpu",
    }
    return kept | fixed | ({"KERAS_BACKEND": backend} if backend else {})


def python(script: str, folder: Path, backend: str | None = None) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], env=environment(folder / "home", backend), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@dataclass
class Told:
    """What one worker said."""

    result: Result
    timing: Result | None
    events: list[dict[str, Any]]
    folder: Path

    @property
    def run(self) -> RunResult:
        assert self.result.status is Status.OK, (self.result.observations, self.result.failure)
        return decode(RunResult, self.result.data)

    @property
    def timed(self) -> TimingResult:
        assert self.timing is not None
        assert self.timing.status is Status.OK, (self.timing.observations, self.timing.failure)
        return decode(TimingResult, self.timing.data)

    @property
    def code(self) -> str:
        """The code of the observation that ended the stage."""
        assert self.result.status is Status.FAILED
        assert self.result.failure is None, self.result.failure
        return self.result.observations[-1].code

    def rows(self, mode: str, output: str) -> Rows:
        names = [spec.name for spec in self.run.signature.outputs]
        return Rows(self.folder / "outputs" / mode / str(names.index(output)))


def tell(stage: str, params: Any, folder: Path, home: Path, backend: str | None = None, *, time: bool = False, first_on_path: str = "") -> Told:
    """Run one stage to its end, as the orchestrator does."""
    folder.mkdir(parents=True)
    write_json(folder / "job.json", Job(1, stage, "once", str(folder), encode(params)))
    events = []
    with (folder / "stage.log").open("w") as log:
        worker = subprocess.Popen(
            [sys.executable, "-P", "-m", "kpipe_stages", stage, str(folder / "job.json")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(home, backend, first_on_path),
            text=True,
        )
        with worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            for line in worker.stdout:
                events.append(json.loads(line))
                if events[-1]["event"] == "waiting":
                    worker.stdin.write("time\n" if time else "stop\n")
                    worker.stdin.flush()
    assert worker.returncode == 0, (folder / "stage.log").read_text()[-3000:]
    timing = folder / "timing.json"
    return Told(read_json(Result, folder / "result.json"), read_json(Result, timing) if timing.exists() else None, events, folder)

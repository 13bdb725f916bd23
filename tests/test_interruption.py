"""Signals at any moment, time limits, and going on afterwards: nothing is left running, nothing finished is lost, nothing unfinished passes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kpipe

from .cases.gate import command
from .sample_gate import MODEL, QUIET, Started, codes, copy_golden, digits_contract, eventually, findings, flat, states, without_targets, workers_of

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.runtimes

TARGETS = "[targets.litert]\nlimits = { load_s = 1000.0 }\n[targets.onnxruntime]\n"
TIMED = "\n[timing]\ncalls = 20000\nend_to_end_calls = 0\n"
"""Enough for an interruption to come while calls are timed."""


@dataclass(frozen=True)
class Stop:
    """One interruption and what it left."""

    exit_code: int
    stderr: str
    workers_before: int
    workers_after: int
    finished: frozenset[str]
    """Stages with an answer."""


@dataclass(frozen=True)
class Trip:
    """A run that was stopped at every stage, and then finished."""

    folder: Path
    stops: dict[str, Stop]
    kept: dict[str, int]
    """Files of the export to their time of change, before the last two stops."""
    end: int
    stdout: str


def answered(run: Path) -> frozenset[str]:
    return frozenset(path.parent.name for path in (run / "stages").glob("*/result.json"))


def stop(here: Path, words: list[str], number: signal.Signals, moment: Callable[[Path], Any], what: str) -> Stop:
    """Start or resume the run, wait for the moment, and send the signal to kpipe alone."""
    run = here / "run"
    started = Started(here, words)
    eventually(lambda: moment(run) or started.process.poll() is not None, what)
    assert started.process.poll() is None, (started.stderr, "it ended before it could be stopped")
    before = len(workers_of(run))
    started.send(number)
    code, _ = started.end()
    if number == signal.SIGKILL:
        eventually(lambda: not workers_of(run), "the workers of a kpipe that was killed end by themselves", 60.0)
    return Stop(code, started.stderr, before, len(workers_of(run)), answered(run))


def stage_at_work(name: str) -> Callable[[Path], Any]:
    """The moment in which a stage has started and not yet answered."""
    return lambda run: (run / "stages" / name / "stage.log").is_file() and not (run / "stages" / name / "result.json").is_file() and workers_of(run)


def targets_at_work(run: Path) -> bool:
    """The export has answered, and a worker is at it still."""
    return "export" in answered(run) and len(workers_of(run)) > 0


def timing_at_work(run: Path) -> bool:
    """All agreement runs have answered: the first thing of the quiet phase, a load with a limit, is there."""
    return (run / "stages" / "load.litert" / "stage.log").is_file() and len(workers_of(run)) > 0


@pytest.fixture(scope="module")
def trip(tmp_path_factory: pytest.TempPathFactory) -> Trip:
    """One run: SIGINT while it inspects, SIGTERM while it exports, SIGKILL while it exports, SIGINT while targets run, SIGTERM while it times."""
    here = tmp_path_factory.mktemp("trip")
    (here / "tmp").mkdir()
    contract = here / "kpipe.toml"
    contract.write_text(without_targets().replace(QUIET, TIMED) + TARGETS, encoding="utf-8")
    first = ["validate", str(MODEL), "--contract", "kpipe.toml", "--out", "run", "--jobs", "2"]
    again = [*first, "--resume"]
    stops = {
        "inspect": stop(here, first, signal.SIGINT, stage_at_work("inspect"), "inspect starts"),
        "export": stop(here, again, signal.SIGTERM, stage_at_work("export"), "export starts"),
        "killed": stop(here, again, signal.SIGKILL, stage_at_work("export"), "export starts again"),
        "run": stop(here, again, signal.SIGINT, targets_at_work, "targets start"),
    }
    kept = {str(p.relative_to(here)): p.stat().st_mtime_ns for p in (here / "run" / "artifacts").rglob("*") if p.is_file()}
    stops["last"] = stop(here, again, signal.SIGTERM, timing_at_work, "the timed phase starts")
    last = Started(here, again)
    code, stdout = last.end()
    return Trip(here / "run", stops, kept, code, stdout)


@pytest.mark.parametrize(("moment", "code"), [("inspect", 130), ("export", 143), ("killed", -9), ("run", 130), ("last", 143)])
def test_an_interruption_ends_every_worker(trip: Trip, moment: str, code: int) -> None:
    stopped = trip.stops[moment]
    assert stopped.exit_code == code, stopped.stderr
    assert stopped.workers_before > 0
    assert stopped.workers_after == 0
    assert "Traceback" not in stopped.stderr


@pytest.mark.parametrize("moment", ["inspect", "export", "run", "last"])
def test_an_interruption_says_how_to_go_on(trip: Trip, moment: str) -> None:
    message = flat(trip.stops[moment].stderr)
    assert "kpipe: stopped." in message
    assert f"go on with the same command and --out {trip.folder} --resume" in message
    assert message.count("kpipe:") == 1


def test_what_was_finished_is_kept_and_what_was_not_has_no_answer(trip: Trip) -> None:
    assert "inspect" not in trip.stops["inspect"].finished
    assert "inspect" in trip.stops["export"].finished
    assert "export" not in trip.stops["export"].finished | trip.stops["killed"].finished
    assert {"inspect", "prepare", "export"} <= trip.stops["run"].finished
    assert not {"run.litert", "run.onnxruntime"} <= trip.stops["run"].finished
    assert {"run.litert", "run.onnxruntime", "reference"} <= trip.stops["last"].finished


def test_a_resumed_run_ends_as_one_that_was_never_stopped(trip: Trip) -> None:
    assert trip.end == 0, trip.stdout
    record = kpipe.load_run(trip.folder).record
    assert str(record.verdict) == "PASS"
    assert states(record) == {"litert": "pass", "onnxruntime": "pass"}
    assert {t.cells.passed for t in record.targets} == {3 * record.golden.count}
    assert all(t.latency is not None and t.latency.calls > 100 for t in record.targets)


def test_what_was_finished_is_not_done_again(trip: Trip) -> None:
    record = kpipe.load_run(trip.folder).record
    outcomes = {stage.name: stage.outcome for stage in record.stages}
    for name in ("inspect", "prepare", "export", "reference"):
        assert outcomes[name] == "reused", outcomes
    now = {name: (trip.folder.parent / name).stat().st_mtime_ns for name in trip.kept}
    assert now == trip.kept
    assert any(name.endswith("model.tflite") for name in trip.kept)


def test_every_attempt_that_was_cut_short_was_set_aside(trip: Trip) -> None:
    aside = {path.name for path in (trip.folder / "stages").iterdir() if ".attempt-" in path.name}
    assert {"inspect.attempt-1", "export.attempt-1", "export.attempt-2"} <= aside


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda text: text.replace("max_flips = 0", "max_flips = 1"), "contract"),
        (lambda text: text + "[targets.openvino]\n", "contract"),
    ],
)
def test_a_run_is_not_resumed_by_another_contract(trip: Trip, tmp_path: Path, change: Callable[[str], str], word: str) -> None:
    text = (trip.folder.parent / "kpipe.toml").read_text(encoding="utf-8")
    contract = tmp_path / "kpipe.toml"
    contract.write_text(change(text), encoding="utf-8")
    before = (trip.folder / "run.json").read_bytes()
    answer = command("validate", MODEL, "--contract", contract, "--out", trip.folder, "--resume", folder=tmp_path)
    assert answer.exit_code == 2
    assert f"the run there is of other things: {word} changed" in flat(answer.stderr)
    assert (trip.folder / "run.json").read_bytes() == before


def test_a_run_is_not_resumed_with_another_model_golden_set_or_choice_of_targets(trip: Trip, tmp_path: Path) -> None:
    contract = trip.folder.parent / "kpipe.toml"
    other = tmp_path / "model.keras"
    other.write_bytes(MODEL.read_bytes() + b"\n")
    answer = command("validate", other, "--contract", contract, "--out", trip.folder, "--resume", folder=tmp_path)
    assert (answer.exit_code, "model changed" in flat(answer.stderr)) == (2, True), answer.stderr
    golden = copy_golden(tmp_path)
    (golden / "manifest.toml").write_text((golden / "manifest.toml").read_text(encoding="utf-8") + "\n", encoding="utf-8")
    answer = command("validate", MODEL, "--contract", contract, "--golden", golden, "--out", trip.folder, "--resume", folder=tmp_path)
    assert (answer.exit_code, "golden set changed" in flat(answer.stderr)) == (2, True), answer.stderr
    answer = command("validate", MODEL, "--contract", contract, "--target", "litert", "--out", trip.folder, "--resume", folder=tmp_path)
    assert (answer.exit_code, "targets changed" in flat(answer.stderr)) == (2, True), answer.stderr


def test_a_finished_run_that_is_resumed_starts_nothing_and_keeps_its_quiet_load_and_times(trip: Trip) -> None:
    run = kpipe.validate(MODEL, contract=trip.folder.parent / "kpipe.toml", out=trip.folder, resume=True)
    assert str(run.verdict) == "PASS", run.record.headline
    assert {stage.outcome for stage in run.record.stages} == {"reused"}
    quick = next(t for t in run.record.targets if t.name == "litert")
    assert quick.load is not None
    assert not quick.load.shared
    assert quick.latency is not None
    assert [check.ok for check in quick.limits] == [True]


def test_two_of_them_never_work_in_one_folder(tmp_path: Path) -> None:
    contract = digits_contract(tmp_path, TARGETS)
    contract.write_text(contract.read_text(encoding="utf-8").replace(QUIET, TIMED), encoding="utf-8")
    words = ["validate", str(MODEL), "--contract", "kpipe.toml", "--out", "run"]
    started = Started(tmp_path, words)
    eventually(lambda: stage_at_work("export")(tmp_path / "run"), "export starts")
    answer = command(*words, "--resume", folder=tmp_path)
    assert (answer.exit_code, "another kpipe is at work in it" in answer.stderr) == (2, True), answer.stderr
    assert workers_of(tmp_path / "run")
    started.send(signal.SIGINT)
    assert started.end()[0] == 130, started.stderr


# ------------------------------------------------------------ workers that misbehave


RUDE = """
import os
import signal
import time

import keras

backend = keras.backend.backend()
if backend == "openvino":
    os.kill(os.getpid(), signal.SIGSEGV)
if backend == "jax" and os.fork() == 0:
    time.sleep(600)
    os._exit(0)
"""

MISBEHAVING = """
[targets.litert]

[targets.keras_openvino]
required = true
settings = {{ INFERENCE_PRECISION_HINT = "f32" }}

[targets.vanishing]
runtime = "litert"
python = "{python}"
"""


@pytest.fixture(scope="module")
def rude(tmp_path_factory: pytest.TempPathFactory) -> kpipe.Run:
    """A custom-object file that crashes one target and leaves a child behind in the reference; and an interpreter that goes away."""
    folder = tmp_path_factory.mktemp("rude")
    (folder / "rude.py").write_text(RUDE, encoding="utf-8")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)

    def take_away(stage: str, event: dict[str, Any]) -> None:
        if (stage, event["event"]) == ("inspect", "started"):
            python.unlink()

    contract = digits_contract(folder, MISBEHAVING.format(python=python))
    return kpipe.validate(MODEL, contract=contract, custom_objects=(folder / "rude.py",), out=folder / "run", on_event=take_away)


def test_a_target_that_crashes_leaves_its_own_cells_unchecked(rude: kpipe.Run) -> None:
    assert (str(rude.verdict), int(rude.exit_code)) == ("INCOMPLETE", 3), rude.record.headline
    assert states(rude.record) == {"litert": "pass", "keras_openvino": "unchecked", "vanishing": "unchecked"}
    (found,) = findings(rude.record, "KP304")
    assert (found.target, "SIGSEGV" in found.cause) == ("keras_openvino", True)


def test_an_interpreter_that_goes_away_is_named(rude: kpipe.Run) -> None:
    (found,) = findings(rude.record, "KP314", "vanishing")
    assert str(rude.folder.parent / "python") in found.cause


def test_a_child_that_a_worker_leaves_behind_is_ended_with_it(rude: kpipe.Run) -> None:
    assert not workers_of(rude.folder)


# ------------------------------------------------------------ listeners


def test_a_listener_that_raises_ends_the_run_and_its_workers(tmp_path: Path) -> None:
    class Tired(Exception):  # noqa: N818 - anything that a listener may raise
        pass

    def listen(stage: str, event: dict[str, Any]) -> None:
        if stage == "inspect" and event["event"] == "started":
            raise Tired

    begin = time.monotonic()
    with pytest.raises(Tired):
        kpipe.validate(MODEL, contract=digits_contract(tmp_path, TARGETS), out=tmp_path / "run", on_event=listen)
    assert time.monotonic() - begin < 60.0
    assert not workers_of(tmp_path / "run")


@pytest.mark.parametrize("stream", ["stderr", "stdout"])
def test_a_reader_that_goes_away_ends_no_run_with_a_pass(tmp_path: Path, stream: str) -> None:
    """``kpipe validate ... | head -0``: progress may be lost, the record may not, and the exit code is no verdict that nobody read."""
    contract = digits_contract(tmp_path, "[targets.litert]\nrequired = false\n")
    (tmp_path / "broken.keras").write_bytes(b"no model")
    process = subprocess.Popen(
        [sys.executable, "-m", "kpipe", "validate", "broken.keras", "--contract", str(contract), "--out", "run"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    gone, left = (process.stderr, process.stdout) if stream == "stderr" else (process.stdout, process.stderr)
    gone.close()
    said = left.read().decode()
    left.close()
    assert process.wait(60) == (1 if stream == "stderr" else 4)
    assert "Traceback" not in said
    assert (tmp_path / "run" / "report.html").is_file()


# ------------------------------------------------------------ time limits


def test_the_time_limit_of_the_run_leaves_the_rest_unchecked(tmp_path: Path) -> None:
    contract = digits_contract(tmp_path, "[run]\ntotal_s = 2.0\n" + TARGETS)
    run = kpipe.validate(MODEL, contract=contract, out=tmp_path / "run")
    assert (str(run.verdict), int(run.exit_code)) == ("INCOMPLETE", 3), run.record.headline
    assert set(states(run.record).values()) == {"unchecked"}
    assert not any(t.cells.passed for t in run.record.targets)
    assert codes(run.record) & {"KP305", "KP314"}
    told = " ".join([run.record.headline, *(f.cause for f in run.record.findings)])
    assert "2 s" in told or "within" in told
    assert not workers_of(run.folder)


def test_the_time_limit_of_a_stage_leaves_what_needs_it_unchecked(tmp_path: Path) -> None:
    contract = digits_contract(tmp_path, "[run]\nstage_s = 1.0\n" + TARGETS)
    run = kpipe.validate(MODEL, contract=contract, out=tmp_path / "run")
    assert (str(run.verdict), int(run.exit_code)) == ("INCOMPLETE", 3), run.record.headline
    late = {f.place for f in findings(run.record, "KP305")}
    assert {"export", "reference"} <= late
    assert all("timed out: no answer within 1 s" in f.cause for f in findings(run.record, "KP305"))
    assert set(states(run.record).values()) == {"unchecked"}
    assert not workers_of(run.folder)

"""The shipped digits example as tests use it: contracts with absolute paths, altered copies, and what runs on this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    import kpipe
    from kpipe.findings import Finding
    from kpipe.record import RunRecord

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "examples" / "digits" / "model.keras"
LAYERS = ROOT / "examples" / "digits" / "layers.py"
GOLDEN = ROOT / "golden_inputs" / "digits"
REQUIRED = ("tensorflow", "saved_model", "litert", "onnxruntime", "openvino", "openvino_ir", "keras_openvino")
"""The targets of the shipped contract that decide."""

QUIET = "\n[timing]\ncalls = 0\nend_to_end_calls = 0\n"
FEW_CALLS = "\n[timing]\ncalls = 20\nend_to_end_calls = 12\n"
PATIENCE_S = 120.0
"""How long a test waits for something that has to happen; nobody measures it."""


def shipped(golden: Path = GOLDEN) -> str:
    """The shipped contract, its paths made absolute."""
    text = (ROOT / "examples" / "digits" / "kpipe.toml").read_text(encoding="utf-8")
    return text.replace('"layers.py"', json.dumps(str(LAYERS))).replace('"../../golden_inputs/digits"', json.dumps(str(golden)))


def without_targets(golden: Path = GOLDEN) -> str:
    """The shipped contract up to its targets, nothing timed."""
    return shipped(golden).split("[targets.", 1)[0] + QUIET


def digits_contract(folder: Path, targets: str, *, golden: Path = GOLDEN, name: str = "kpipe.toml") -> Path:
    """Write the shipped contract with other targets."""
    path = folder / name
    path.write_text(without_targets(golden) + targets, encoding="utf-8")
    return path


def copy_golden(folder: Path) -> Path:
    """A golden set of one's own to spoil."""
    return Path(shutil.copytree(GOLDEN, folder / "golden"))


def manifest(golden: Path) -> list[dict[str, Any]]:
    """The entries of a golden set."""
    entries: list[dict[str, Any]] = tomllib.loads((golden / "manifest.toml").read_text(encoding="utf-8"))["golden"]
    return entries


def change_weights(source: Path, target: Path, dataset: str, change: Callable[[np.ndarray[Any, Any]], None]) -> Path:
    """Copy a ``.keras`` file with one array of its weights changed in place."""
    with zipfile.ZipFile(source) as old:
        members = {info: old.read(info) for info in old.infolist()}
    scratch = target.with_suffix(".h5")
    weights = next(info for info in members if info.filename == "model.weights.h5")
    scratch.write_bytes(members[weights])
    with h5py.File(scratch, "r+") as file:
        values = file[dataset][()]
        change(values)
        file[dataset][...] = values
    members[weights] = scratch.read_bytes()
    scratch.unlink()
    with zipfile.ZipFile(target, "w") as new:
        for info, data in members.items():
            new.writestr(info, data)
    return target


def codes(record: RunRecord, target: str | None = None) -> set[str]:
    """Codes of the findings, of one target or of all."""
    return {f.code for f in record.findings if target in (None, f.target)}


def findings(record: RunRecord, code: str, target: str | None = None) -> list[Finding]:
    """The findings of one code."""
    return [f for f in record.findings if f.code == code and target in (None, f.target)]


def states(record: RunRecord) -> dict[str, str]:
    """Target name to status."""
    return {t.name: str(t.status) for t in record.targets}


def artifact(run: kpipe.Run, target: str) -> Path:
    """Where the artifact of a target lies."""
    record = next(t.artifact for t in run.record.targets if t.name == target)
    assert record is not None
    return run.folder / record.path


def workers_of(folder: Path) -> dict[int, str]:
    """Process id to command line of every worker, and fork server, of one run that is alive on this machine: known by its private HOME."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                home = f"HOME={folder}/".encode() in (entry / "environ").read_bytes()
                state = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            except OSError:
                continue  # it has just ended
            if any(word.startswith("kpipe_stages") for word in words) and home and state != "Z":
                found[int(entry.name)] = " ".join(words)
    return found


def eventually(happened: Callable[[], Any], what: str, limit: float = PATIENCE_S) -> Any:
    """Wait until something is true; fail with ``what`` if it never is."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if value := happened():
            return value
        time.sleep(0.02)
    raise AssertionError(f"never happened: {what}")


def hear_interrupts() -> None:
    """A test suite that a shell started in the background ignores SIGINT, and what it starts inherits that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass
class Started:
    """``kpipe`` under way in a process of its own, started as a shell does."""

    folder: Path
    words: list[str]
    process: subprocess.Popen[str] = field(init=False)
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.folder / f"stderr-{time.monotonic_ns()}.txt"
        with self.log.open("w", encoding="utf-8") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-m", "kpipe", *self.words],
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                preexec_fn=hear_interrupts,  # noqa: PLW1509 - it calls one system function, and the parent has no lock that the child needs
            )

    @property
    def stderr(self) -> str:
        """What it has said so far."""
        return self.log.read_text(encoding="utf-8")

    def wait_for(self, words: str) -> None:
        """Wait for a line of progress."""
        eventually(lambda: words in self.stderr or self.process.poll() is not None, f"{words!r} in {self.stderr!r}")
        assert words in self.stderr, self.stderr

    def send(self, number: signal.Signals) -> None:
        """Send a signal to kpipe alone."""
        os.kill(self.process.pid, number)

    def end(self) -> tuple[int, str]:
        """Wait for its end; exit code and stdout."""
        stdout, _ = self.process.communicate(timeout=PATIENCE_S * 2)
        return self.process.returncode, stdout


def flat(text: str) -> str:
    """On one line, however a terminal broke it."""
    return " ".join(text.split())

"""What every table of the bench is made of: rows with their bounds, and commands timed side by side."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
BENCH = ROOT / "bench"
MODEL = ROOT / "examples" / "digits" / "model.keras"
GOLDEN = ROOT / "golden_inputs" / "digits"
CONTRACT = ROOT / "examples" / "digits" / "kpipe.toml"


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    name: str
    value: float
    bound: float
    unit: str
    met: bool
    detail: str = ""
    profile: str = ""
    """Where the time goes, where the bound isn't met."""


@dataclass(frozen=True)
class Bench:
    """What a table gets."""

    scratch: Path
    """A folder of its own."""
    rounds: int
    """Interleaved repetitions of what is compared."""

    def environment(self, **more: str) -> dict[str, str]:
        """What all sides get: no telemetry, no keras.json, the CPU only."""
        home = self.scratch / "home"
        (home / "intel").mkdir(parents=True, exist_ok=True)
        (home / "intel" / "openvino_telemetry").write_text("0", encoding="utf-8")
        return {**os.environ, "HOME": str(home), "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu", **more}

    def validate(self, model: Path, contract: Path, out: Path, cache: Path, *more: str) -> Taken:
        """``kpipe validate``; FAIL and INCOMPLETE are answers too."""
        command = [sys.executable, "-m", "kpipe", "validate", str(model), "--contract", str(contract), "--out", str(out), *more]
        return taken(command, self.environment(KPIPE_CACHE_DIR=str(cache)), accept=(0, 1, 3))


@dataclass(frozen=True)
class Taken:
    """What a command took."""

    wall_s: float
    cpu_s: float
    """User and system, of the command and of all that it started: hardly moved by other programs."""
    peak_mib: float
    """Of its largest process."""
    printed: str


def taken(command: list[str], environment: dict[str, str], *, accept: tuple[int, ...] = (0,)) -> Taken:
    """Run a command to its end; one that ends otherwise ends the bench."""
    start = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - start
    if process.returncode not in accept:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{printed[-6000:]}")
    return Taken(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, printed)


def at_most(name: str, value: float, bound: float, unit: str, detail: str, profile: str = "") -> Row:
    """A row whose value may not be larger."""
    return Row(name, round(value, 3), bound, unit, value <= bound, detail, "" if value <= bound else profile)


def at_least(name: str, value: float, bound: float, unit: str, detail: str, profile: str = "") -> Row:
    """A row whose value may not be smaller."""
    return Row(name, round(value, 3), bound, unit, value >= bound, detail, "" if value >= bound else profile)


def paired(ours: Callable[[int], float], theirs: Callable[[int], float], rounds: int) -> tuple[float, list[float], list[float]]:
    """The median of the ratios of ``rounds`` interleaved pairs; which side goes first alternates."""
    a, b = [], []
    for number in range(rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            (a if side == 0 else b).append((ours if side == 0 else theirs)(number))
    return statistics.median(x / y for x, y in zip(a, b, strict=True)), a, b


def ratio(name: str, bound: float, ours: Callable[[int], float], theirs: Callable[[int], float], rounds: int) -> Row:
    """Measure one ratio of seconds."""
    value, a, b = paired(ours, theirs, rounds)
    return at_most(
        name, value, bound, "ratio", f"median {statistics.median(a):.2f} s against {statistics.median(b):.2f} s, {rounds} interleaved rounds"
    )


def seconds_in(printed: str) -> float:
    """The number after ``seconds``."""
    return float(next(line for line in printed.splitlines() if line.startswith("seconds ")).split()[1])

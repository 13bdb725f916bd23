"""``make bench``: ratios measured side by side in one run, and planted faults, against their bounds; ``build/bench.json`` and a table."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
BENCH = ROOT / "bench"
MODEL = ROOT / "examples" / "digits" / "model.keras"
GOLDEN = ROOT / "golden_inputs" / "digits"
CONTRACT = ROOT / "examples" / "digits" / "kpipe.toml"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    value: float
    bound: float
    unit: str
    met: bool
    detail: str = ""


def private_environment(scratch: Path) -> dict[str, str]:
    """What both sides get: no telemetry, no keras.json, the CPU only."""
    home = scratch / "home"
    (home / "intel").mkdir(parents=True, exist_ok=True)
    (home / "intel" / "openvino_telemetry").write_text("0", encoding="utf-8")
    return {**os.environ, "HOME": str(home), "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}


def timed(command: list[str], environment: dict[str, str], *, accept: tuple[int, ...] = (0,)) -> tuple[float, str]:
    """Wall seconds of a command and what it printed."""
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode not in accept:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return seconds, done.stdout


def paired(ours: Callable[[int], float], theirs: Callable[[int], float], rounds: int) -> tuple[float, list[float], list[float]]:
    """The median of the ratios of ``rounds`` interleaved pairs; which side goes first alternates."""
    a, b = [], []
    for number in range(rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            (a if side == 0 else b).append((ours if side == 0 else theirs)(number))
    return statistics.median(x / y for x, y in zip(a, b, strict=True)), a, b


def row(name: str, bound: float, ours: Callable[[int], float], theirs: Callable[[int], float], rounds: int) -> Row:
    """Measure one ratio."""
    ratio, a, b = paired(ours, theirs, rounds)
    detail = f"median {statistics.median(a):.2f} s against {statistics.median(b):.2f} s, {rounds} interleaved rounds"
    result = Row(name, round(ratio, 3), bound, "ratio", ratio <= bound, detail)
    print(f"{'met ' if result.met else 'MISSED'} {name}: {ratio:.3f} (bound {bound}); {detail}", flush=True)
    return result


def exports(scratch: Path, rounds: int) -> Row:
    """All four exports from one load against one load and four ``model.export`` calls, imports left out on both sides."""
    environment = {**private_environment(scratch), "KERAS_BACKEND": "tensorflow"}
    model = scratch / "mobilenet.keras"
    timed([sys.executable, str(BENCH / "make_mobilenet.py"), str(model)], environment)

    def ours(number: int) -> float:
        from kpipe.codes import CODES  # noqa: F401 - fails early where kpipe is not installed

        out = scratch / f"kpipe-{number}"
        _, printed = timed([sys.executable, str(BENCH / "kpipe_export.py"), str(model), str(out)], environment)
        return seconds_in(printed)

    def theirs(number: int) -> float:
        out = scratch / f"plain-{number}"
        out.mkdir()
        _, printed = timed([sys.executable, str(BENCH / "plain_export.py"), str(model), str(out)], environment)
        return seconds_in(printed)

    return row("MobileNetV2: load and four exports / load and four model.export", 0.5, ours, theirs, rounds)


def seconds_in(printed: str) -> float:
    """The number after ``seconds``."""
    return float(next(line for line in printed.splitlines() if line.startswith("seconds ")).split()[1])


def whole_gate(scratch: Path, rounds: int) -> Row:
    """``kpipe validate`` on the digits against the plain script."""
    environment = private_environment(scratch)
    environment["KPIPE_CACHE_DIR"] = str(scratch / "cache")

    def ours(number: int) -> float:
        out = scratch / f"run-{number}"
        command = [sys.executable, "-m", "kpipe", "validate", str(MODEL), "--contract", str(CONTRACT), "--out", str(out)]
        return timed(command, environment)[0]

    def theirs(number: int) -> float:
        return timed([sys.executable, str(BENCH / "plain_gate.py"), str(MODEL), str(GOLDEN), str(scratch / f"gate-{number}")], environment)[0]

    return row("digits: kpipe validate / plain script", 0.5, ours, theirs, rounds)


def help_time(scratch: Path, rounds: int) -> Row:
    """``kpipe --help`` against ``import typer``."""
    environment = private_environment(scratch)
    ours = [sys.executable, "-m", "kpipe", "--help"]
    theirs = [sys.executable, "-c", "import typer"]
    return row(
        "kpipe --help / python -c 'import typer'", 3.0, lambda _: timed(ours, environment)[0], lambda _: timed(theirs, environment)[0], rounds * 5
    )


def selftest(scratch: Path, _rounds: int) -> Row:
    """Planted faults that kpipe misses, beside what ``numpy.allclose`` catches of the same ones; equivalent faults are left out, and those below the tolerance."""
    command = [sys.executable, "-m", "kpipe", "selftest", "--json", "--out", str(scratch / "selftest")]
    seconds, printed = timed(command, private_environment(scratch), accept=(0, 1))
    print((scratch / "selftest" / "selftest.md").read_text(encoding="utf-8"))
    real = [fault for fault in json.loads(printed)["rows"] if not fault["equivalent"]]
    caught = {name: sum(fault[name] is True for fault in real) for name in ("caught", "random", "golden")}
    edges = sum(fault["caught"] and fault["right_edge"] for fault in real)
    detail = (
        f"of {len(real)}: kpipe {caught['caught']} (right edge {edges}), allclose on random inputs {caught['random']}, "
        f"on golden inputs {caught['golden']}; {seconds:.0f} s"
    )
    missed = sum(not fault["caught"] and not fault["small"] for fault in real)
    result = Row("selftest: planted faults missed", missed, 0, "faults", bool(real) and missed == 0, detail)
    print(f"{'met ' if result.met else 'MISSED'} {result.name}: {missed} (bound 0); {detail}", flush=True)
    return result


MEASUREMENTS = {"help": help_time, "exports": exports, "gate": whole_gate, "selftest": selftest}


def main() -> None:
    """Measure what was asked for and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=sorted(MEASUREMENTS), action="append")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench.json")
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="kpipe-bench-"))
    try:
        rows = [measure(scratch, options.rounds) for name, measure in MEASUREMENTS.items() if not options.only or name in options.only]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n", encoding="utf-8")
    print(f"\n{'value':>8} {'bound':>7}  name")
    for result in rows:
        print(f"{result.value:>8} {result.bound:>7}  {result.name}{'' if result.met else '   MISSED'}")
    print(f"written to {options.out}")
    raise SystemExit(0 if all(r.met for r in rows) else 1)


if __name__ == "__main__":
    main()

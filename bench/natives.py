"""kpipe's times beside those of the runtimes' own tools, on the same artifact, threads and shapes, in turns; and what its loop adds to a call.

``python bench/natives.py`` prints the rows. The tools: ``benchmark_app`` (openvino, synchronous, no hint), ``litert-benchmark`` (ai-edge-litert; it
runs the compiled-model API, as the runtime ``litert_compiled`` does). ONNX Runtime's wheel has no ``onnxruntime_perf_test``, and its
``onnxruntime_test`` prints a mean only and takes no thread count; so its loop, ``session.run`` on one input again and again, is made here, each
call timed.

A tool calls with inputs that are in place and leaves the outputs where they are; kpipe's call hands in an input and takes the outputs, as a product
does. What that costs is measured in one process, in turns with the tool's own call. A row is met where kpipe's p50 is within the bound of the
tool's, or of the tool's and these measured parts together; it says both.
"""

# ruff: noqa: SLF001 - the tool's own call is made on what kpipe's sessions hold

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from rows import BENCH, GOLDEN, MODEL, ROOT, Bench, Row, taken

from kpipe_stages.codec import decode, encode, read_json, write_json
from kpipe_stages.protocol import Job, Result, RunJob, Signature, TensorSpec, TimingPlan, TimingResult, Trust

BOUND = 0.05
STRETCH = 50
LOOP_BOUND_US = 2.0
BIN = Path(sys.executable).parent
TARGETS = "\n".join(f"[targets.{name}]\nthreads = 1" for name in ("openvino_ir", "litert_compiled", "onnxruntime"))
QUIET = "\n[timing]\ncalls = 0\nend_to_end_calls = 0\n"


@dataclass(frozen=True)
class Tool:
    """One runtime's own tool."""

    target: str
    title: str
    measure: Callable[[RunJob, int, Bench], float]
    """Median seconds of a call, on this artifact, from so many calls."""


def benchmark_app(job: RunJob, calls: int, bench: Bench) -> float:
    shapes = ",".join(f"{job.binding.inputs[spec.name]}[{','.join(str(n or 1) for n in spec.shape)}]" for spec in job.signature.inputs)
    words = ["-m", job.artifact, "-d", "CPU", "-api", "sync", "-hint", "none", "-nthreads", "1", "-infer_precision", "f32"]
    printed = taken([str(BIN / "benchmark_app"), *words, "-niter", str(calls), "-data_shape", shapes], bench.environment()).printed
    value, unit = re.search(r"Median:\s+([\d.]+) (ms|us)", printed).groups()
    return float(value) * {"ms": 1e-3, "us": 1e-6}[unit]


def litert_benchmark(job: RunJob, calls: int, bench: Bench) -> float:
    out = bench.scratch / "litert.json"
    words = ["--model", job.artifact, "--num_runs", str(calls), "--warmup_runs", "50", "--num_threads", "1", "--result_json", str(out)]
    taken([str(BIN / "litert-benchmark"), *words], bench.environment())
    found = json.loads(out.read_text(encoding="utf-8"))
    flat = {key: value for table in (found, *(t for t in found.values() if isinstance(t, dict))) for key, value in table.items()}
    return float(next(value for key, value in flat.items() if key in {"p50_ms", "median_ms", "latency_p50_ms", "p50"})) * 1e-3


def onnxruntime_loop(job: RunJob, calls: int, bench: Bench) -> float:
    path = bench.scratch / "loop.json"
    write_json(path, encode(job))
    printed = taken([sys.executable, __file__, "--loop", str(path), "--calls", str(calls)], bench.environment()).printed
    return float(re.search(r"^median ([\d.e+-]+)$", printed, re.MULTILINE)[1])


def plain_loop(path: Path, calls: int) -> None:
    """``onnxruntime_test``'s loop, each call timed; prints the median."""
    import onnxruntime

    job = decode(RunJob, json.loads(path.read_text(encoding="utf-8")))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    session = onnxruntime.InferenceSession(job.artifact, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    feeds = {one.name: rng.random([n if isinstance(n, int) else 1 for n in one.shape], dtype=np.float32) for one in session.get_inputs()}
    times = []
    for _ in range(calls + 50):
        start = time.perf_counter()
        session.run([], feeds)
        times.append(time.perf_counter() - start)
    print(f"median {statistics.median(times[50:]):.9f}")


TOOLS = (
    Tool("openvino_ir", "benchmark_app", benchmark_app),
    Tool("litert_compiled", "litert-benchmark", litert_benchmark),
    Tool("onnxruntime", "session.run in a loop", onnxruntime_loop),
)


def natives(bench: Bench, models: tuple[str, ...] = ("digits", "MobileNetV2")) -> list[Row]:
    """A row for each tool and model, and the loop's own cost."""
    rows = [loop_cost(bench)]
    made = {"digits": (4000, digits_jobs), "MobileNetV2": (150, mobilenet_jobs)}
    for model in models:
        calls, make = made[model]
        jobs = make(bench)
        for tool in TOOLS:
            rows.append(_row(bench, f"{model}: kpipe's p50 / {tool.title}", tool, jobs, calls))
            print(f"{'met ' if rows[-1].met else 'MISSED'} {rows[-1].name}: {rows[-1].value}; {rows[-1].detail}", flush=True)
    return rows


def _row(bench: Bench, name: str, tool: Tool, jobs: dict[str, RunJob], calls: int) -> Row:
    """Rounds in turns; a tool that is missing or fails is a row that isn't met."""
    job = jobs.get(tool.target)
    if job is None:
        return Row(name, 0.0, 1 + BOUND, "ratio", met=False, detail=f"not measured: kpipe did not run {tool.target}")
    ours, theirs = [], []
    try:
        for number in range(bench.rounds):
            for side in (0, 1) if number % 2 else (1, 0):
                if side:
                    ours.append(kpipe_call(job, calls, bench))
                else:
                    theirs.append(tool.measure(job, calls, bench))
        handed, spaced = bare(bench, job, calls)
    except (OSError, SystemExit, TypeError, StopIteration, ValueError) as error:
        return Row(name, 0.0, 1 + BOUND, "ratio", met=False, detail=f"not measured: {type(error).__name__}: {str(error).splitlines()[-1:]}")
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    explained = statistics.median(a / (b + handed + spaced) for a, b in zip(ours, theirs, strict=True))
    detail = (
        f"{_span(ours)} against {_span(theirs)}, {bench.rounds} interleaved rounds of {calls} calls; of kpipe's call {handed * 1e6:.1f} us hand in "
        f"inputs and take outputs, {spaced * 1e6:.1f} us are memory that the loop's own work between calls leaves cold; against the tool and both "
        f"{explained:.3f}"
    )
    if abs(ratio - 1) > BOUND:  # what the row shows is what the parts leave open
        name, ratio, detail = f"{name} and the parts that were measured", explained, f"{ratio:.3f} plainly: {detail}"
    return Row(name, round(ratio, 3), 1 + BOUND, "ratio", abs(ratio - 1) <= BOUND, detail)


def _span(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1e6:.1f} us ({min(seconds) * 1e6:.1f} to {max(seconds) * 1e6:.1f})"


# ---------------------------------------------------------------- kpipe's side


def kpipe_call(job: RunJob, calls: int, bench: Bench) -> float:
    """The worker as a run starts it, timed; median seconds of a call."""
    folder = Path(tempfile.mkdtemp(dir=bench.scratch))
    job = replace(job, timing=TimingPlan(calls=calls, end_to_end_calls=0, fresh_pairs=0, max_seconds=60.0))
    stage = f"run_{job.runtime}"
    write_json(folder / "job.json", Job(1, stage, "once", str(folder), encode(job)))
    command = [sys.executable, "-P", "-m", "kpipe_stages", stage, str(folder / "job.json")]
    with subprocess.Popen(
        command, env=bench.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as worker:
        worker.stdin.write("time\nstop\n")
        worker.stdin.flush()  # and left open: a worker whose orchestrator is gone leaves
        worker.stdout.read()
        said = worker.stderr.read()
    if not (folder / "timing.json").exists():
        raise ValueError(said[-500:] or "the worker gave no times")
    answer = read_json(Result, folder / "timing.json")
    timing = decode(TimingResult, answer.data)
    seconds = timing.model_only.seconds
    return statistics.median(seconds)


def jobs_of(run: Path) -> dict[str, RunJob]:
    """What each target's worker was told: every input alone, nothing else."""
    found = {}
    for path in run.glob("stages/run.*/job.json"):
        job = decode(RunJob, read_json(Job, path).params)
        plain = {"batches": (), "repeat": 0, "arranged": (), "shapes": (), "probe_default": False, "probe_binding": False, "exchange": False}
        found[path.parent.name.removeprefix("run.")] = replace(job, **plain, items=(), inputs=(), decisions=())
    return found


def digits_jobs(bench: Bench) -> dict[str, RunJob]:
    text = (ROOT / "examples" / "digits" / "kpipe.toml").read_text(encoding="utf-8").split("[targets.", 1)[0]
    text = text.replace('"layers.py"', json.dumps(str(MODEL.parent / "layers.py"))).replace('"../../golden_inputs/digits"', json.dumps(str(GOLDEN)))
    contract = bench.scratch / "digits.toml"
    contract.write_text(text.replace('tolerance = "auto"', "") + QUIET + TARGETS, encoding="utf-8")
    if not (bench.scratch / "digits").exists():
        bench.validate(MODEL, contract, bench.scratch / "digits", bench.scratch / "cache")
    return jobs_of(bench.scratch / "digits")


def mobilenet_jobs(bench: Bench) -> dict[str, RunJob]:
    if (bench.scratch / "mobilenet").exists():
        return jobs_of(bench.scratch / "mobilenet")
    model, arrays = bench.scratch / "mobilenet.keras", bench.scratch / "mobilenet.npz"
    taken([sys.executable, str(BENCH / "make_mobilenet.py"), str(model)], bench.environment(KERAS_BACKEND="tensorflow"))
    np.savez(arrays, input_layer=np.random.default_rng(0).random((3, 224, 224, 3), dtype=np.float32))
    contract = bench.scratch / "mobilenet.toml"
    contract.write_text(QUIET + TARGETS + '\n[model]\nbackend = "tensorflow"\n', encoding="utf-8")
    bench.validate(model, contract, bench.scratch / "mobilenet", bench.scratch / "cache", "--golden", str(arrays))
    return jobs_of(bench.scratch / "mobilenet")


# ---------------------------------------------------------------- what the difference is


def bare(bench: Bench, job: RunJob, calls: int) -> tuple[float, float]:
    """What kpipe's call takes more than the tool's own call, by the tool's own clock, in a process that makes them in turns. Seconds.

    Returns:
        For handing in inputs and taking outputs; and because the loop prepares the next input and keeps the outputs between two calls, where the
        tool's follow at once on the same memory.
    """
    path = bench.scratch / "bare.json"
    write_json(path, encode(job))
    printed = taken([sys.executable, __file__, "--bare", str(path), "--calls", str(calls)], bench.environment()).printed
    handed, spaced = (float(re.search(rf"^{word} ([\d.e+-]+)$", printed, re.MULTILINE)[1]) for word in ("handed", "spaced"))
    return max(0.0, handed), max(0.0, spaced)  # below zero is noise, and explains nothing


def in_turns(path: Path, calls: int) -> None:
    """Print the differences of the medians: stretches of calls of each kind in turns, the first fifth of each left out."""
    from kpipe_stages.catalog import RUNTIMES
    from kpipe_stages.feeds import Golden
    from kpipe_stages.measure import Kept
    from kpipe_stages.timing import Loop, Model, collector_off

    job = decode(RunJob, json.loads(path.read_text(encoding="utf-8")))
    engine = importlib.import_module(f"kpipe_stages.{RUNTIMES[job.runtime].module}").engine(job.runtime)
    engine.bring(job)
    session = engine.open(job, {**job.chosen, **job.settings})
    golden = Golden(job, session)
    feeds = golden.batch([golden.present[0]] * (job.fixed_batch or 1))
    call = {"openvino_ir": _openvino, "litert_compiled": _litert, "onnxruntime": _onnxruntime}[job.runtime](session, feeds)

    def plain(_row: int) -> float:
        start = time.perf_counter()
        session.infer(feeds)
        return time.perf_counter() - start

    fixed = job.fixed_batch or 1
    folder = Path(job.tensors).parents[1] / f"run.{job.runtime}"  # its saved answers: the real loop compares
    loop = Loop(Model(kept := Kept(job, session, golden, fixed, frozenset(), folder, raw_usable=False, fixed=fixed, engine=engine)), kept, STRETCH)
    found: tuple[list[float], ...] = ([], [], [])
    with collector_off():
        for number in range(max(3, calls // STRETCH)):
            for turn in range(3):
                way = (turn + number) % 3
                if way == 2:
                    loop.block(STRETCH, math.inf)
                    times = list(loop.seconds[-STRETCH:])
                else:
                    times = [(lambda _: call(), plain)[way](n) for n in range(STRETCH)]
                found[way].extend(times[STRETCH // 5 :])
    tool, packed, spaced = map(statistics.median, found)
    print(f"handed {packed - tool:.9f}\nspaced {spaced - packed:.9f}")


def _openvino(session, _feeds):
    request = session._request

    def call() -> float:
        request.infer()
        return request.latency * 1e-3

    return call


def _litert(session, _feeds):
    def call() -> float:
        start = time.perf_counter()
        session._model.run_by_name(session._key, session._in, session._out)
        return time.perf_counter() - start

    return call


def _onnxruntime(session, feeds):
    given = {session._binding.inputs[name]: array for name, array in feeds.items()}

    def call() -> float:
        start = time.perf_counter()
        session._session.run([], given)
        return time.perf_counter() - start

    return call


# ---------------------------------------------------------------- the loop


class Null:
    """A session that does nothing."""

    def __init__(self) -> None:
        self.signature = Signature((TensorSpec("x", (None, 8), "float32"),), (TensorSpec("y", (None, 8), "float32"),))
        self.takes, self.narrows, self.computes_as = {"x": "float32"}, {}, {}
        self._answer = {"y": np.zeros((1, 8), np.float32)}

    def infer(self, _feeds):
        return self._answer


def loop_cost(bench: Bench, calls: int = 20_000) -> Row:
    """What the real loop makes of a session that does nothing: the seconds that it would add to every call."""
    from kpipe_stages.feeds import Golden
    from kpipe_stages.measure import Kept
    from kpipe_stages.rows import write_rows
    from kpipe_stages.timing import Model, collector_off, sample
    from kpipe_stages.worker import Worker

    folder = Path(tempfile.mkdtemp(dir=bench.scratch))
    for name in ("tensors/0", "outputs/alone/0"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_rows(folder / name, [np.zeros(8, np.float32)] * 4)
    order = RunJob("null", "", Trust(), None, None, str(folder / "tensors"), ("x",), 4, (), timing=TimingPlan(calls, 0))
    session = Null()
    kept = Kept(order, session, Golden(order, session), 1, frozenset(), folder, raw_usable=False, fixed=1, engine=None)
    worker = Worker("null", folder, os.open(os.devnull, os.O_WRONLY))
    start = time.perf_counter()
    with collector_off():
        found = sample(Model(kept), kept, worker, calls, 60.0)
    wall = time.perf_counter() - start
    assert found.compared == len(found.seconds) >= calls
    ordered = sorted(found.seconds)
    value = statistics.median(ordered) * 1e6
    detail = (
        f"{len(ordered)} calls of a session that does nothing: p99 {ordered[int(0.99 * len(ordered))] * 1e6:.2f} us; outside the clock the loop takes "
        f"{(wall - sum(ordered)) / len(ordered) * 1e6:.0f} us a call, for the next input, the comparison of outputs, memory and the machine"
    )
    return Row("timing loop, added to each call (null runtime)", round(value, 3), LOOP_BOUND_US, "us", value < LOOP_BOUND_US, detail)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bare", type=Path)
    parser.add_argument("--loop", type=Path)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--only-loop", action="store_true")
    parser.add_argument("--model", choices=("digits", "MobileNetV2"), action="append")
    parser.add_argument("--keep", type=Path, help="work here, and leave it")
    options = parser.parse_args()
    if options.bare:
        in_turns(options.bare, options.calls)
        return
    if options.loop:
        plain_loop(options.loop, options.calls)
        return
    with tempfile.TemporaryDirectory(prefix="kpipe-bench-") as scratch:
        bench = Bench(options.keep or Path(scratch), options.rounds)
        found = [loop_cost(bench)] if options.only_loop else natives(bench, tuple(options.model or ("digits", "MobileNetV2")))
    print(json.dumps([asdict(row) for row in found], indent=1))
    raise SystemExit(0 if all(row.met for row in found) else 1)


if __name__ == "__main__":
    main()

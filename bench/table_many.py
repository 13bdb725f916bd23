"""20,000 golden PNGs on LiteRT and ONNX Runtime: throughput against a plain loop, memory from 1,000 on, the report's size; then 1,000,000 cells judged."""

from __future__ import annotations

import sys
from pathlib import Path

from profiles import timeline
from rows import BENCH, MODEL, Bench, Row, at_least, at_most, seconds_in, taken

from kpipe.store import load_evidence

COUNT, FEW = 20_000, 1_000
CELLS = 1_000_000
RUNTIMES = {"litert": "litert/model.tflite", "onnxruntime": "onnx/model.onnx"}
WORKERS = ("prepare", *(f"run.{name}" for name in RUNTIMES))


def many(bench: Bench) -> list[Row]:
    """One validation of each size, one worker at a time, so that seconds of work are comparable with the plain loop's."""
    few = _validated(bench, FEW)
    golden = _golden(bench, COUNT)
    before = {name: _plain(bench, few, golden, name) for name in RUNTIMES}
    run = _validated(bench, COUNT)
    after = {name: _plain(bench, few, golden, name) for name in RUNTIMES}
    plain = {name: (before[name] + after[name]) / 2 for name in RUNTIMES}  # before and after: the machine is not the same all the time
    work = {stage.name: stage.result.seconds for stage in load_evidence(run).stages if stage.result is not None}
    ours, theirs = sum(work[name] for name in WORKERS), sum(plain.values())
    told = ", ".join(f"{name} {work[name]:.1f} s" for name in WORKERS)
    peaks = {count: _peaks(folder) for count, folder in ((FEW, few), (COUNT, run))}
    growth = max(peaks[COUNT][name] - peaks[FEW][name] for name in WORKERS)
    memory = "; ".join(f"{name} {peaks[FEW][name]:.0f} to {peaks[COUNT][name]:.0f} MiB" for name in WORKERS)
    html = (run / "report.html").stat().st_size / 1e6
    return [
        at_least(
            "20,000 PNGs: throughput / plain loop",
            theirs / ours,
            0.9,
            "ratio",
            f"kpipe {told}, with imports, loads and what the plain loop doesn't do: every file's digest, a check of each target's own decoding, "
            f"every input once more for its repeat, answers and progress written; plain {', '.join(f'{name} {s:.1f} s' for name, s in plain.items())}",
            timeline(load_evidence(run)),
        ),
        at_most(
            "20,000 PNGs: peak memory of a worker over 1,000 PNGs",
            growth,
            32.0,
            "MiB",
            f"{memory}. What grows is the list of the inputs (ids, paths, digests) and the mapped tensors (1 KiB each), not what was decoded",
        ),
        at_most("20,000 PNGs: report.html", html, 5.0, "MB", "all failures, the rest sampled"),
        *_cells(bench, run),
    ]


def _validated(bench: Bench, count: int) -> Path:
    golden = _golden(bench, count)
    folder, contract = golden.parent, golden.parent / "kpipe.toml"
    contract.write_text(_contract(golden), encoding="utf-8")
    bench.validate(MODEL, contract, folder / "run", bench.scratch / "cache", "--jobs", "1")
    return folder / "run"


def _golden(bench: Bench, count: int) -> Path:
    """The golden set, drawn once."""
    folder = bench.scratch / f"many-{count}" / "golden"
    if not folder.is_dir():
        folder.parent.mkdir()
        taken([sys.executable, str(BENCH / "many_golden.py"), str(count), str(folder)], bench.environment())
    return folder


def _contract(golden: Path) -> str:
    """The digits' contract, for other golden inputs and the two light runtimes alone."""
    text = (MODEL.parent / "kpipe.toml").read_text(encoding="utf-8")
    head = text[text.index("[inputs.image]") : text.index("[targets.")]
    return (
        f'[model]\ncustom_objects = ["{(MODEL.parent / "layers.py").as_posix()}"]\n\n[golden]\npath = "{golden.as_posix()}"\n\n{head}'
        + "\n".join(f"[targets.{name}]" for name in RUNTIMES)
        + "\n"
    )


def _plain(bench: Bench, run: Path, golden: Path, name: str) -> float:
    """Seconds of the plain loop on a run's artifact, which is the same for any golden set."""
    words = [name, str(golden), str(run / "artifacts" / RUNTIMES[name]), str(bench.scratch / f"{name}.npz")]
    return seconds_in(taken([sys.executable, str(BENCH / "plain_many.py"), *words], bench.environment()).printed)


def _peaks(run: Path) -> dict[str, float]:
    """Peak memory by worker, MiB."""
    return {stage.name: stage.result.peak_rss_bytes / 2**20 for stage in load_evidence(run).stages if stage.result is not None}


def _cells(bench: Bench, run: Path) -> list[Row]:
    """`kpipe judge` over a run widened to a million cells: every answer read from disk, held against its digest, compared and decided."""
    wide = bench.scratch / "wide"
    printed = taken([sys.executable, str(BENCH / "widen_run.py"), str(run), str(wide), str(CELLS)], bench.environment()).printed
    held = int(printed.split("cells ")[1])
    done = taken(
        [sys.executable, "-m", "kpipe", "judge", str(wide), "--contract", str(bench.scratch / "wide.toml")], bench.environment(), accept=(0, 1, 3)
    )
    detail = f"{held:,} cells in {done.wall_s:.1f} s ({done.cpu_s:.1f} s of the processor), reports included; peak {done.peak_mib:.0f} MiB"
    return [
        at_most("1,000,000 cells: judged, per million", done.wall_s * 1e6 / held, 30.0, "seconds", detail),
        at_most("1,000,000 cells: peak memory", done.peak_mib, 1024.0, "MiB", "answers are read from disk in blocks of at most 4,000,000 values"),
    ]

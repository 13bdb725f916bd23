"""``kpipe train``: a recipe in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.cli.console import Progress
from kpipe.errors import Exit, UsageError

if TYPE_CHECKING:
    from pathlib import Path

TRAINING_LIMIT_S = 24 * 3600.0


def run_train(recipe: Path, out: Path, *, seed: int, epochs: int | None, backend: str, calibration: int = 0) -> int:
    """Train and print a line an epoch."""
    from kpipe.evidence import Ending
    from kpipe.judging.stages import stage_findings
    from kpipe.running.single import run_stage
    from kpipe_stages.codec import decode
    from kpipe_stages.protocol import TrainJob, TrainResult

    if not recipe.exists():
        raise UsageError(f"recipe {recipe} does not exist. Expected a folder with recipe.py, or that file.")
    if out.suffix != ".keras":
        raise UsageError(f"--out {out} must end in .keras.")
    progress = Progress()
    try:
        job = TrainJob(str(recipe.resolve()), str(out.resolve()), seed, backend, epochs, calibration)
        stage = run_stage("train", job, backend=backend, time_limit_s=TRAINING_LIMIT_S, on_event=progress)
    finally:
        progress.close()
    if stage.ending is not Ending.OK or stage.result is None:
        findings = stage_findings(stage)
        raise UsageError("training failed: " + "; ".join(f"{f.cause} {f.remedy}" for f in findings))
    result = decode(TrainResult, stage.result.data)
    for epoch in result.epochs:
        metrics = "  ".join(f"{name} {value:.4f}" for name, value in epoch.metrics.items())
        print(f"epoch {epoch.epoch:>3}  {epoch.seconds:6.2f} s  {metrics}")
    print(
        f"{out}: sha256 {result.model_sha256}; compile {result.compile_s:.1f} s, steps {result.steps_s:.1f} s, saving {result.save_s:.1f} s, all {result.total_s:.1f} s"
    )
    if result.calibration:
        print(f"{out.with_suffix('.calibration.npz')}: sha256 {result.calibration_sha256}; training inputs, for [calibration] of the contract")
    return Exit.PASS

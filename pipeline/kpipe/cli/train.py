"""``kpipe train``: a recipe in a process of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kpipe import signals
from kpipe.cli.console import Progress
from kpipe.errors import Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kpipe_stages.protocol import Cadence, Preserved, TrainResult

TRAINING_LIMIT_S = 24 * 3600.0


def run_train(
    recipe: Path,
    out: Path,
    *,
    seed: int,
    epochs: int | None,
    backend: str,
    checkpoint_every: str = "auto",
    resume: bool = False,
    calibration: int = 0,
) -> int:
    """Train and print a line an epoch."""
    from kpipe.evidence import Ending
    from kpipe.judging.stages import stage_findings
    from kpipe.running.single import run_stage
    from kpipe_stages.checkpointing.files import checkpoints, folder_of
    from kpipe_stages.codec import decode
    from kpipe_stages.protocol import TrainJob, TrainResult

    if not recipe.exists():
        raise UsageError(f"recipe {recipe} does not exist. Expected a folder with recipe.py, or that file.")
    if out.suffix != ".keras":
        raise UsageError(f"--out {out} must end in .keras.")
    job = TrainJob(str(recipe.resolve()), str(out.resolve()), seed, backend, epochs, cadence(checkpoint_every), resume, calibration)
    progress = Progress()
    try:
        stage = run_stage("train", job, backend=backend, time_limit_s=TRAINING_LIMIT_S, on_event=progress)
    except (KeyboardInterrupt, signals.Terminated) as stop:
        if there := checkpoints(folder_of(out)):
            stop.add_note(f"The training is kept up to step {int(there[0].name)}: go on with the same command and --resume.")
        raise
    finally:
        progress.close()
    if stage.ending is not Ending.OK or stage.result is None:
        findings = stage_findings(stage)
        kept = checkpoints(folder_of(out))
        more = f"\nIts checkpoints are kept in {folder_of(out)}, up to step {int(kept[0].name)}." if kept else ""
        raise UsageError("training failed: " + " ".join(f"{f.cause.rstrip('.')}. {f.remedy}" for f in findings) + more)
    print("\n".join(_lines(out, decode(TrainResult, stage.result.data))))
    return Exit.PASS


def cadence(words: str) -> Cadence:
    """What ``--checkpoint-every`` says.

    Raises:
        UsageError: it says nothing that is known.
    """
    from kpipe_stages.protocol import Cadence

    if words in {"auto", "off"}:
        return Cadence(words)
    match = re.fullmatch(r"([1-9]\d{0,8}) ?(step|epoch)s?", words)
    if match is None:
        raise UsageError(f"--checkpoint-every {words!r} is not 'auto', 'off', '500 steps' or '2 epochs'.")
    return Cadence(f"{match[2]}s", int(match[1]))


def _lines(out: Path, result: TrainResult) -> Iterator[str]:
    for epoch in result.epochs:
        metrics = "  ".join(f"{name} {value:.4f}" for name, value in epoch.metrics.items())
        yield f"epoch {epoch.epoch:>3}  {epoch.seconds:6.2f} s  {metrics}"
    yield (
        f"{out}: sha256 {result.model_sha256}; compile {result.compile_s:.1f} s, steps {result.steps_s:.1f} s, saving {result.save_s:.1f} s, "
        f"all {result.total_s:.1f} s"
    )
    cost = result.checkpoints
    if result.no_checkpoints:
        yield f"no checkpoints: {result.no_checkpoints}. Had it been stopped, it would have had to begin anew."
    elif cost.written:
        yield f"{cost.written} checkpoints of {cost.bytes:,} bytes took {cost.seconds:.2f} s; they are gone now that the model is written."
    for at in result.resumed:
        fell_back = f", {len(at.damaged)} damaged passed over" if at.damaged else ""
        yield f"resumed after epoch {at.epoch}, batch {at.batch}{fell_back}"
    if result.notes:
        yield from (f"{'' if result.resumed else 'if resumed, '}not bit for bit an uninterrupted run: {note}" for note in result.notes)
    elif result.resumed:
        yield "bit for bit an uninterrupted run, as far as is known: same machine, versions, recipe and data; the first steps gave the same bits again."
    if result.calibration:
        yield f"{out.with_suffix('.calibration.npz')}: sha256 {result.calibration_sha256}; training inputs, for [calibration] of the contract"


def preserved_lines(rows: tuple[Preserved, ...]) -> Iterator[str]:
    """The table of what a checkpoint preserves."""
    cells = [("what", "preserved", "how"), *((row.what, row.preserved, row.detail) for row in rows)]
    first, second = (max(len(row[i]) for row in cells) for i in range(2))
    yield from (f"{what.ljust(first)}  {kept.ljust(second)}  {how}".rstrip() for what, kept, how in cells)

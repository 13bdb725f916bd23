"""Where a training begins: at its first step, or where a checkpoint left it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kpipe_stages.checkpointing import files
from kpipe_stages.checkpointing.keeper import Keeper
from kpipe_stages.checkpointing.ordered import leaves, ordered
from kpipe_stages.checkpointing.replay import against, replay
from kpipe_stages.checkpointing.state import State, mismatch, random_state, restore_random, variables
from kpipe_stages.checkpointing.subject import changed, environment, parts
from kpipe_stages.protocol import CheckpointCost, Epoch, Observation, Resumption, StageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np

    from kpipe_stages.protocol import TrainJob
    from kpipe_stages.recipe import Recipe
    from kpipe_stages.worker import Worker


@dataclass(frozen=True)
class Footing:
    """Where a training begins."""

    model: Any
    keeper: Keeper | None = None
    data: Any = None
    """An `kpipe_stages.checkpointing.ordered.ordered`; None where Keras orders."""
    state: State | None = None
    epoch: int = 0
    batch: int = 0
    epochs: tuple[Epoch, ...] = ()
    running_s: float = 0.0
    compile_s: float = 0.0
    none: str = ""
    """Why there are no checkpoints; empty where there are."""


def begin(
    params: TrainJob,
    recipe: Recipe,
    model: Any,
    data: tuple[Any, Any],
    held_out: Mapping[str, np.ndarray[Any, Any]],
    folder: Path,
    epochs: int,
    worker: Worker,
) -> Footing:
    """Take the first steps twice, and find the place to begin.

    Args:
        params: what was asked for.
        recipe: loaded.
        model: built.
        data: training inputs and targets, every leaf an array.
        held_out: the arrays of the validation data, by name.
        folder: where checkpoints lie.
        epochs: of the whole training.
        worker: says where it goes on.

    Raises:
        StageError: the checkpoint is damaged, of another version or of another training.
    """
    arrays = {**leaves(data[0], "x"), **leaves(data[1], "y")}
    rows = {name: len(array) for name, array in arrays.items()}
    if len(set(rows.values())) != 1 or not next(iter(rows.values())):
        raise ValueError(f"load_data() gives arrays of different lengths, or empty ones: {rows}")
    batches = ordered(*data, rows=next(iter(rows.values())), batch_size=recipe.batch_size, seed=params.seed)
    if params.checkpoint.kind == "off" and not params.resume:
        return Footing(model, data=batches, none="they were turned off")
    of = parts(params, recipe, model, {**arrays, **held_out}, epochs)
    found = files.newest(folder) if params.resume else None
    if found and (different := changed(found.record.of, of)):
        raise _of_another(found.folder, "; ".join(different))
    generators = random_state()
    start = time.perf_counter()
    seen = replay(model, batches)
    cost = CheckpointCost(replay_s=time.perf_counter() - start)
    if seen.grew:
        return _anew(params, recipe, batches, generators, seen.grew)
    notes = (f"the first {seen.witness.steps} steps, taken twice from one state, differ: {seen.witness.differs}",) if seen.witness.differs else ()
    keeper = Keeper(
        folder=folder,
        cadence=params.checkpoint,
        of=of,
        environment=environment(params.backend, worker.threads),
        witness=seen.witness,
        batches=batches.all,
        all_epochs=epochs,
        notes=notes,
        cost=cost,
    )
    if found is None:
        keeper.start(0, 0)
        return Footing(model, keeper, batches, seen.start, compile_s=seen.compile_s)
    return replace(_resumed(model, batches, keeper, found, worker), compile_s=seen.compile_s)


def _resumed(model: Any, batches: Any, keeper: Keeper, found: files.Found, worker: Worker) -> Footing:
    record = found.record
    if problem := mismatch([(group, v.path, tuple(v.shape)) for group, v in variables(model)], record.arrays):
        raise _of_another(found.folder, problem)
    notes = [*record.notes, *(f"the {line}" if not line.startswith("the ") else line for line in changed(record.environment, keeper.environment))]
    notes += against(record.witness, keeper.witness)
    keeper.notes = tuple(dict.fromkeys([*notes, *keeper.notes]))
    here = Resumption(found.folder.name, record.epoch, record.batch, record.written, found.damaged, keeper.notes)
    keeper.resumed = (*record.resumed, here)
    keeper.start(record.epoch, record.batch)
    for line in said(here, keeper.batches):
        worker.emit("notice", text=line)
    return Footing(
        model, keeper, batches, State(record.arrays, found.arrays, record.random), record.epoch, record.batch, record.epochs, record.running_s
    )


def said(resumption: Resumption, batches: int) -> list[str]:
    """A resumption in sentences."""
    lines = [f"checkpoint {line}: damaged, so the one before it is used" for line in resumption.damaged]
    lines.append(f"resumed after epoch {resumption.epoch}, batch {resumption.batch} of {batches} (checkpoint of {resumption.written})")
    return [*lines, *(f"not bit for bit an uninterrupted run: {note}" for note in resumption.notes)]


def _anew(params: TrainJob, recipe: Recipe, batches: Any, generators: dict[str, Any], grew: str) -> Footing:
    """The steps that were tried can't be undone: build the model again, as if they had not been taken."""
    import keras

    why = f"the model makes variables while it trains ({grew})"
    if params.resume or params.checkpoint.kind != "auto":
        raise StageError(Observation(files.CODE, f"{recipe.file}: this training can't be resumed: {why}", "Build everything in build_model()."))
    keras.backend.clear_session()
    keras.utils.set_random_seed(params.seed)
    model = recipe.build_model()
    restore_random(generators)
    return Footing(model, data=batches, none=why)


def _of_another(place: Path, what: str) -> StageError:
    cause = f"the checkpoint {place} is of another training: {what}"
    return StageError(Observation(files.CODE, cause, "Put back what changed, or start the training anew with another --out.", place=str(place)))

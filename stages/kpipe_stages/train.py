"""Stage ``train``: run a recipe, write the model whole or not at all, and say what the run was.

The backend comes from the environment that the orchestrator built; a process on another one stops. Beside the model lies
``<model>.train.json``, the stage's result; until the model is written, ``<model>.checkpoints``.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.checkpointing import files
from kpipe_stages.checkpointing.ordered import NotArraysError, as_arrays, leaves
from kpipe_stages.checkpointing.resuming import Footing, begin
from kpipe_stages.codec import decode, write_json
from kpipe_stages.digest import digest
from kpipe_stages.fitting import Clock, Fit
from kpipe_stages.protocol import CheckpointCost, Job, Observation, StageError, TrainJob, TrainResult
from kpipe_stages.recipe import CODE, Recipe, load_recipe

if TYPE_CHECKING:
    from kpipe_stages.worker import Worker

_PAIR = 2


def run(job: Job, worker: Worker) -> TrainResult:
    """Train and save.

    Raises:
        StageError: another backend than the job's (KP310); a recipe that is missing, incomplete, raises or diverges (KP018); a checkpoint that
            can't be written or used, or is of another training (KP019).
    """
    params = decode(TrainJob, job.params)
    folder = files.folder_of(params.out)
    _check_folder(params, folder)
    with files.held(folder):
        _check_folder(params, folder)
        return _run(params, folder, worker)


def _check_folder(params: TrainJob, folder: Path) -> None:
    """A training never begins over another's checkpoints, nor goes on from none."""
    there = files.checkpoints(folder)
    if there and not params.resume:
        cause = f"{folder} holds checkpoints of a training that did not end ({there[0].name} steps)"
        raise StageError(Observation(files.CODE, cause, "Go on with --resume, give another --out, or move that folder away.", place=str(folder)))
    if params.resume and not there:
        cause = f"there is no checkpoint in {folder} to go on from"
        raise StageError(Observation(files.CODE, cause, "Start the training without --resume.", place=str(folder)))


def _run(params: TrainJob, folder: Path, worker: Worker) -> TrainResult:
    start = time.perf_counter()
    keras, _ = worker.timed("import", _import_keras)
    worker.distributions = ["keras", params.backend, "numpy", "pillow"]
    if keras.backend.backend() != params.backend:
        cause = f"the process runs on {keras.backend.backend()}; the job wants {params.backend}"
        raise StageError(Observation("KP310", cause, "Set KERAS_BACKEND for this stage, and no keras.json."))
    keras.utils.set_random_seed(params.seed)
    recipe, _ = worker.timed("recipe", lambda: load_recipe(params.recipe))
    model = _built(recipe, keras)
    (x, y), validation = _data(recipe)
    epochs = params.epochs or recipe.epochs
    footing = _footing(params, recipe, model, (x, y), validation, folder, epochs, worker)
    fit = Fit(recipe, footing.model, epochs, validation, Clock(), worker, footing.keeper, footing.state, footing.epoch, footing.batch)
    clock = fit.clock
    clock.epochs, clock.epoch_started, clock.compile_s = list(footing.epochs), -footing.running_s, footing.compile_s
    _, fit_s = worker.timed("fit", lambda: _fit(fit, footing, x, y))
    _check_epochs(fit, folder)
    _, save_s = worker.timed("save", lambda: _save(fit.model, Path(params.out), recipe))
    calibration = _calibration(recipe, fit.model, x, params)
    keeper = footing.keeper
    result = TrainResult(
        model_sha256=digest(params.out),
        seed=params.seed,
        epochs=tuple(clock.epochs),
        compile_s=clock.compile_s,
        steps_s=fit_s - (0.0 if footing.compile_s else clock.compile_s),
        save_s=save_s,
        total_s=time.perf_counter() - start,
        checkpoints=keeper.cost if keeper else CheckpointCost(),
        no_checkpoints=footing.none,
        notes=keeper.notes if keeper else (),
        resumed=keeper.resumed if keeper else (),
        preserved=keeper.preserved if keeper else (),
        calibration=str(calibration) if calibration else "",
        calibration_sha256=digest(calibration) if calibration else "",
    )
    write_json(f"{params.out}.train.json", result)
    files.remove(folder)
    return result


def _footing(
    params: TrainJob, recipe: Recipe, model: Any, data: tuple[Any, Any], validation: Any, folder: Path, epochs: int, worker: Worker
) -> Footing:
    """Where the training begins, and who keeps its checkpoints; none where the data's order can't be known."""
    import keras

    if type(model).fit is not keras.Model.fit:
        none = f"{type(model).__name__} has a fit() of its own, which can't be entered in the middle"
    else:
        try:
            floatx = keras.config.floatx()
            x, y = (as_arrays(part, floatx) for part in data)
            held_out = {f"validation {name}": array for name, array in leaves(tuple(as_arrays(part, floatx) for part in validation), "").items()}
            worker.enter("replay")
            found: Footing = recipe.call("the training", begin, params, recipe, model, (x, y), held_out, folder, epochs, worker)
            return found
        except NotArraysError as error:
            none = f"load_data() gives {error}"
    if params.resume or params.checkpoint.kind in {"steps", "epochs"}:
        cause = f"{recipe.file}: this training can't be resumed: {none}"
        raise StageError(
            Observation(files.CODE, cause, "Return arrays of numbers from load_data(), or train without --checkpoint-every and --resume.")
        )
    return Footing(model, none=none)


def _import_keras() -> Any:
    import keras

    return keras


def _built(recipe: Recipe, keras: Any) -> Any:
    model = recipe.call("build_model()", recipe.build_model)
    if not isinstance(model, keras.Model):
        raise _wrong(recipe, f"build_model() returned a {type(model).__name__}", "Return a compiled keras.Model.")
    if not model.compiled:
        raise _wrong(recipe, "build_model() returned a model without a loss", "Call model.compile(...) in build_model().")
    return model


def _data(recipe: Recipe) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    data: Any = recipe.call("load_data()", recipe.load_data, recipe.preprocess)
    fits = isinstance(data, tuple) and len(data) == _PAIR and all(isinstance(part, tuple) and len(part) == _PAIR for part in data)
    if not fits:
        raise _wrong(recipe, f"load_data() returned a {type(data).__name__} of another form", "Return ((x, y), (x_val, y_val)).")
    training, validation = data
    return training, validation


def _wrong(recipe: Recipe, cause: str, remedy: str) -> StageError:
    return StageError(Observation(CODE, f"{recipe.file}: {cause}", remedy, place=str(recipe.file)))


def _fit(fit: Fit, footing: Footing, x: Any, y: Any) -> None:
    if footing.data is None:
        fit.recipe.call("the training", fit.plain, x, y)
    else:
        fit.recipe.call("the training", fit.ordered, footing.data)


def _check_epochs(fit: Fit, folder: Path) -> None:
    """A training that diverged is worth no checkpoint: going on from one would end there again."""
    for epoch in fit.clock.epochs:
        if bad := {name: value for name, value in epoch.metrics.items() if not math.isfinite(value)}:
            files.remove(folder)
            raise _wrong(fit.recipe, f"epoch {epoch.epoch} ended with {bad}", "Lower the learning rate, or look for NaN in the data.")
    if len(fit.clock.epochs) != fit.epochs:
        files.remove(folder)
        raise _wrong(
            fit.recipe, f"{len(fit.clock.epochs)} of {fit.epochs} epochs were run", "Leave nothing in the recipe that stops the training early."
        )


def _calibration(recipe: Recipe, model: Any, x: Any, params: TrainJob) -> Path | None:
    """Training inputs, spread over the set, as ``<model>.calibration.npz``: arrays by the model's input names. None where none were asked for."""
    if not params.calibration:
        return None
    from kpipe_stages.keras_calling import model_signature

    names = [spec.name for spec in model_signature(model).inputs]
    parts = (
        dict(x)
        if isinstance(x, dict)
        else dict(zip(names, x, strict=True))
        if isinstance(x, list | tuple) and len(x) == len(names)
        else {names[0]: x}
    )
    if sorted(parts) != sorted(names) or not all(hasattr(part, "shape") and len(part) for part in parts.values()):
        told = f"load_data() gives training inputs for {sorted(parts)}; the model's are {sorted(names)}"
        raise _wrong(recipe, told, "For --calibration, return arrays: one, or a dict by the model's input names.")
    arrays = {name: np.asarray(part) for name, part in parts.items()}
    total = min(len(array) for array in arrays.values())
    chosen = np.unique(np.linspace(0, total - 1, min(params.calibration, total)).round().astype(int))
    path = Path(params.out).with_suffix(".calibration.npz")
    scratch = path.with_name(f".{path.stem}.{os.getpid()}.npz")
    try:
        np.savez_compressed(scratch, **{name: array[chosen] for name, array in arrays.items()})
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    return path


def _save(model: Any, out: Path, recipe: Recipe) -> None:
    """Write beside the place, then rename: a reader sees the old model or the new one, whole."""
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = out.with_name(f".{out.stem}.{os.getpid()}.keras")
    try:
        recipe.call("saving the model", model.save, scratch)
        files.flush(scratch)  # before its checkpoints go
        scratch.replace(out)
        files.flush(out.parent)
    finally:
        scratch.unlink(missing_ok=True)

"""Stage ``train``: run a recipe, write the model whole or not at all, and say what the run was.

The backend comes from the environment that the orchestrator built; a process on another one stops. Beside the model lies
``<model>.train.json``, the stage's result.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.codec import decode, write_json
from kpipe_stages.digest import digest
from kpipe_stages.protocol import Epoch, Job, Observation, StageError, TrainJob, TrainResult
from kpipe_stages.recipe import CODE, Recipe, load_recipe

if TYPE_CHECKING:
    from kpipe_stages.worker import Worker

_PAIR = 2


@dataclass
class _Clock:
    """What the training loop tells while it runs."""

    started: float = 0.0
    compile_s: float = 0.0
    epoch_started: float = 0.0
    epochs: list[Epoch] = field(default_factory=list)


def run(job: Job, worker: Worker) -> TrainResult:
    """Train and save.

    Raises:
        StageError: another backend than the job's (KP310); a recipe that is missing, incomplete, raises or diverges (KP018).
    """
    start = time.perf_counter()
    params = decode(TrainJob, job.params)
    keras, _ = worker.timed("import", _import_keras)
    worker.distributions = ["keras", params.backend, "numpy", "pillow"]
    if keras.backend.backend() != params.backend:
        cause = f"the process runs on {keras.backend.backend()}; the job wants {params.backend}"
        raise StageError(Observation("KP310", cause, "Set KERAS_BACKEND for this stage, and no keras.json."))
    keras.utils.set_random_seed(params.seed)
    recipe, _ = worker.timed("recipe", lambda: load_recipe(params.recipe))
    model = _built(recipe, keras)
    data = _data(recipe)
    clock = _Clock()
    _, fit_s = worker.timed("fit", lambda: _fit(recipe, model, data, params.epochs or recipe.epochs, clock, worker))
    _, save_s = worker.timed("save", lambda: _save(model, Path(params.out), recipe))
    calibration = _calibration(recipe, model, data[0][0], params)
    result = TrainResult(
        model_sha256=digest(params.out),
        seed=params.seed,
        epochs=tuple(clock.epochs),
        compile_s=clock.compile_s,
        steps_s=fit_s - clock.compile_s,
        save_s=save_s,
        total_s=time.perf_counter() - start,
        calibration=str(calibration) if calibration else "",
        calibration_sha256=digest(calibration) if calibration else "",
    )
    write_json(f"{params.out}.train.json", result)
    return result


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


def _fit(recipe: Recipe, model: Any, data: Any, epochs: int, clock: _Clock, worker: Worker) -> None:
    (x, y), validation = data
    clock.started = time.perf_counter()
    callback = _watcher(clock, epochs, worker)
    recipe.call(
        "the training",
        lambda: model.fit(x, y, batch_size=recipe.batch_size, epochs=epochs, validation_data=validation, callbacks=[callback], verbose=0),
    )
    for epoch in clock.epochs:
        if bad := {name: value for name, value in epoch.metrics.items() if not math.isfinite(value)}:
            raise _wrong(recipe, f"epoch {epoch.epoch} ended with {bad}", "Lower the learning rate, or look for NaN in the data.")
    if len(clock.epochs) != epochs:
        raise _wrong(recipe, f"{len(clock.epochs)} of {epochs} epochs were run", "Leave no early stop in the recipe's callbacks.")


def _watcher(clock: _Clock, epochs: int, worker: Worker) -> Any:
    """A Keras callback that keeps the clock and reports progress."""
    import keras

    class Watcher(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002  # Keras names it
            clock.epoch_started = time.perf_counter()
            self.epoch = epoch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002  # as above
            clock.compile_s = clock.compile_s or time.perf_counter() - clock.started
            worker.progress(f"epoch {self.epoch + 1}/{epochs}", batch + 1, self.params.get("steps") or 0)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            metrics = {name: float(value) for name, value in (logs or {}).items()}
            clock.epochs.append(Epoch(epoch + 1, metrics, time.perf_counter() - clock.epoch_started))

    return Watcher()


def _calibration(recipe: Recipe, model: Any, x: Any, params: TrainJob) -> Path | None:
    """Training inputs, spread over the set, as ``<model>.calibration.npz``: arrays by the model's input names. None where none were asked for."""
    if not params.calibration:
        return None
    from kpipe_stages.keras_calling import model_signature

    names = [spec.name for spec in model_signature(model).inputs]
    parts = dict(x) if isinstance(x, dict) else dict(zip(names, x, strict=False)) if isinstance(x, list | tuple) else {names[0]: x}
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
        scratch.replace(out)
    finally:
        scratch.unlink(missing_ok=True)

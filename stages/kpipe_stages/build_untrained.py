"""Stage ``build``: call the user's function and save the untrained model that it returns, seeded, on whatever backend this process has."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.build_orders import BuildJob, BuildResult
from kpipe_stages.codec import decode
from kpipe_stages.keras_loading import telling_line
from kpipe_stages.lean import without_extras
from kpipe_stages.protocol import Job, Observation, StageError

if TYPE_CHECKING:
    from types import ModuleType

    from kpipe_stages.worker import Worker

CODE = "KP018"
NUDGE = 0.1
"""How far scales, offsets and statistics (weights of one axis) move from where every layer begins: a scale of one hides what isn't applied."""


def run(job: Job, worker: Worker) -> BuildResult:
    """Build and save.

    Raises:
        StageError: KP018, the module can't be imported, the function is missing, raises or returns no built model, or it can't be saved.
    """
    params = decode(BuildJob, job.params)
    worker.distributions = ["keras", "tensorflow", "numpy"]
    keras, _ = worker.timed("import", _import_keras)
    keras.utils.set_random_seed(params.seed)
    module, _ = worker.timed("recipe", lambda: _module(params))
    model, _ = worker.timed("build", lambda: _model(params, module, keras))
    _nudge(model, params.seed)
    try:
        worker.timed("save", lambda: model.save(params.out))
    except Exception as error:  # layers of the user's own raise anything here
        raise _fault(params, error, "saving the model", "Give custom layers a get_config, and register them.") from error
    layers = [one for one in model._flatten_layers() if one is not model]  # noqa: SLF001 - nested layers too
    return BuildResult(
        parameters=int(sum(np.prod(variable.shape) for variable in model.weights)),
        layers={one.name: type(one).__name__ for one in layers},
        registered=_own_files(model, layers),
    )


def _import_keras() -> Any:
    with without_extras("tensorflow"):
        import keras

    return keras


def _module(params: BuildJob) -> ModuleType:
    sys.path.insert(0, params.folder)
    try:
        if not params.module.endswith(".py"):
            return importlib.import_module(params.module)
        file = Path(params.folder) / params.module
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None  # noqa: S101 - the name ends in .py
        assert spec.loader is not None  # noqa: S101 - likewise
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        sys.path.insert(0, str(file.parent))
        spec.loader.exec_module(module)
        return module
    except (Exception, SystemExit) as error:  # the user's code: whatever it raises is a finding about it
        raise _fault(params, error, "importing it", "Mend the module; it must import by itself.") from error


def _model(params: BuildJob, module: ModuleType, keras: Any) -> Any:
    function = getattr(module, params.function, None)
    if not callable(function):
        raise _wrong(params, f"{params.module} has no function '{params.function}'", f"Define {params.function}(), without arguments.")
    try:
        model = function()
    except (Exception, SystemExit) as error:  # as above
        raise _fault(params, error, f"{params.function}()", "Mend the function; it is called without arguments.") from error
    if not isinstance(model, keras.Model):
        raise _wrong(params, f"{params.function}() returned a {type(model).__name__}", "Return a keras.Model.")
    if not model.built:
        raise _wrong(
            params,
            f"{params.function}() returned a model that isn't built",
            "Give it an Input layer, or call it once on an example, before returning it.",
        )
    return model


def _nudge(model: Any, seed: int) -> None:
    random = np.random.default_rng(seed)
    for variable in model.weights:
        if "float" in str(variable.dtype) and len(variable.shape) == 1:
            variable.assign(np.asarray(variable, dtype=np.float32) + NUDGE * random.random(variable.shape))


def _own_files(model: Any, layers: list[Any]) -> tuple[str, ...]:
    """Files of the classes that aren't Keras' own."""
    classes = {
        cls for one in (model, *layers) for cls in type(one).__mro__ if cls.__module__.split(".")[0] not in {"keras", "builtins", "tensorflow"}
    }
    files = (getattr(sys.modules.get(cls.__module__), "__file__", None) for cls in classes)
    return tuple(sorted({str(Path(file).resolve()) for file in files if file}))


def _fault(params: BuildJob, error: BaseException, doing: str, remedy: str) -> StageError:
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if params.folder in str(Path(frame.filename).resolve())]
    place = f"{lines[-1].filename}:{lines[-1].lineno}" if lines else params.module
    return _wrong(
        params, f"{doing} of {params.module}:{params.function} raised {type(error).__name__} at {place}: {telling_line(error)}", remedy, place
    )


def _wrong(params: BuildJob, cause: str, remedy: str, place: str = "") -> StageError:
    return StageError(Observation(CODE, cause, remedy, place=place or params.module))

"""What a recipe is: a folder with ``recipe.py`` and the contract ``kpipe.toml``, from which `kpipe_stages.train` makes a model.

``recipe.py`` gives two functions and two numbers::

    EPOCHS = 12
    BATCH_SIZE = 32

    def build_model() -> keras.Model: ...  # built and compiled

    def load_data(preprocess): ...  # ((x, y), (x_val, y_val)), what Model.fit takes

``preprocess`` maps each model input's name to its `kpipe_stages.preprocess.Preprocessor`, made from ``[inputs.<name>]`` of the contract:
``preprocess["image"].from_bytes(data)`` is the tensor that the product's file would become. Training data that passes through it has
seen the product's preprocessing, not a copy of it; with ``decode = "module:function"`` it is the user's function, which ``from_path``
gives the file. The folder is importable while the recipe runs, so ``recipe.py`` may import the
files beside it, custom layers among them.

The stage calls `Model.fit`. Where the data is arrays of numbers, it is put in an order that depends on the seed and the epoch alone, and the
training can be killed at any moment and go on (`kpipe_stages.checkpointing`); with generators and datasets it can't, which is said.
"""

from __future__ import annotations

import importlib.util
import sys
import tomllib
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe_stages.codec import CodecError, decode
from kpipe_stages.preprocess import PreprocessError, Preprocessor
from kpipe_stages.protocol import InputSpec, Observation, StageError

if TYPE_CHECKING:
    from types import ModuleType

CODE = "KP018"
"""The finding of a recipe that doesn't run."""


@dataclass(frozen=True)
class Recipe:
    """A recipe's parts, found and named, not yet called."""

    file: Path
    build_model: Callable[[], Any]
    load_data: Callable[[dict[str, Preprocessor]], Any]
    epochs: int
    batch_size: int
    preprocess: dict[str, Preprocessor]

    def call(self, doing: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call what runs the recipe's code; ``doing`` names it in messages.

        Raises:
            StageError: it raised; the message has the file and line in the recipe.
        """
        try:
            return function(*arguments)
        except StageError:  # a stage's own word, from within the recipe's call
            raise
        except (Exception, SystemExit) as error:  # the recipe is the user's code: whatever it raises is a finding about it
            raise fault(self.file, error, doing) from error


def load_recipe(path: str | Path) -> Recipe:
    """Read a recipe's folder, or its ``recipe.py``, and the contract beside it.

    Raises:
        StageError: a file is missing or doesn't run, a name is missing, or the contract's inputs are wrong.
    """
    file = Path(path) / "recipe.py" if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise StageError(Observation(CODE, f"there is no {file}", "Give a folder with recipe.py, or the file itself.", place=str(file)))
    preprocess = contract_inputs(file.parent / "kpipe.toml")
    module = _import(file)
    return Recipe(
        file=file,
        build_model=_function(module, "build_model", file),
        load_data=_function(module, "load_data", file),
        epochs=_count(module, "EPOCHS", file),
        batch_size=_count(module, "BATCH_SIZE", file),
        preprocess=preprocess,
    )


def contract_inputs(contract: Path) -> dict[str, Preprocessor]:
    """The ``[inputs.<name>]`` tables of a contract as preprocessors; the rest of it is the orchestrator's.

    Raises:
        StageError: the file can't be read or an input is wrong.
    """
    remedy = "Mend the contract beside the recipe."
    try:
        tables = tomllib.loads(contract.read_text(encoding="utf-8")).get("inputs", {})
        specs = [_spec(name, table, contract) for name, table in tables.items()]
        return {spec.name: Preprocessor(spec) for spec in specs}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, CodecError, PreprocessError, TypeError, AttributeError) as error:
        raise StageError(Observation(CODE, f"{contract}: {error}", remedy, place=str(contract))) from error


def _spec(name: str, table: dict[str, Any], contract: Path) -> InputSpec:
    """One table; the files of a ``module:function`` are taken as they are, since training is what they are to be compared with."""
    files = {str((contract.parent / file).resolve()): "" for file in table.get("files", ())}
    own = {key: value for key, value in table.items() if key not in ("source", "pad_batches")}  # of golden sets and batches, not of one file
    return decode(InputSpec, {"name": name, **own, "files": files}, f"{contract} [inputs.{name}]")


def _import(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("kpipe_recipe", file)
    if spec is None or spec.loader is None:
        raise StageError(Observation(CODE, f"{file} is not a Python file", "Name it recipe.py.", place=str(file)))
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # as in `Recipe.call`
        raise fault(file, error, "the import") from error
    return module


def fault(file: Path, error: BaseException, doing: str) -> StageError:
    """A finding about the user's code: the deepest line of it that lies in the recipe's folder."""
    folder = str(file.parent.resolve())
    frames = [f for f in traceback.extract_tb(error.__traceback__) if str(Path(f.filename).resolve()).startswith(folder)]
    line = error.lineno if isinstance(error, SyntaxError) and error.filename else None
    place = f"{error.filename}:{line}" if line else f"{frames[-1].filename}:{frames[-1].lineno}" if frames else str(file)  # type: ignore[attr-defined]
    cause = f"{doing} of the recipe raised {type(error).__name__} at {place}: {error}"
    return StageError(Observation(CODE, cause, "Mend the recipe; it must run by itself.", place=place, evidence={"type": type(error).__name__}))


def _function(module: ModuleType, name: str, file: Path) -> Callable[..., Any]:
    value: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(value):
        raise StageError(Observation(CODE, f"{file} has no function {name!r}", f"Define {name}(); see kpipe_stages.recipe.", place=str(file)))
    return value


def _count(module: ModuleType, name: str, file: Path) -> int:
    value = getattr(module, name, None)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise StageError(Observation(CODE, f"{file} has {name} = {value!r}, not a whole number above zero", f"Set {name}.", place=str(file)))
    return value

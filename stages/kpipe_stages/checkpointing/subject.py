"""What a training is of, part by part, so that a checkpoint is never taken for another training's; and the table of what one preserves."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.codec import encode
from kpipe_stages.digest import digest
from kpipe_stages.protocol import Preserved
from kpipe_stages.worker import cpu_features, cpu_model, distribution_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe_stages.checkpointing.record import StoredArray, Witness
    from kpipe_stages.protocol import InputSpec, TrainJob
    from kpipe_stages.recipe import Recipe

Array = np.ndarray[Any, np.dtype[Any]]


def parts(params: TrainJob, recipe: Recipe, model: Any, data: Mapping[str, Array], epochs: int) -> dict[str, str]:
    """Every part of a training that must be the same when it is taken up again, with its value or SHA-256."""
    found = {
        "the seed": str(params.seed),
        "the backend": params.backend,
        "the number of epochs": str(epochs),
        "the batch size": str(recipe.batch_size),
        "the compile() arguments": _sha256(json.dumps(_compiled(model), sort_keys=True, default=lambda value: type(value).__name__)),
    }
    found |= {f"recipe file {name}": digest(file) for name, file in sorted(recipe_files(recipe).items())}
    found |= {f"input '{name}' of the contract": _sha256(json.dumps(_spec(made.spec))) for name, made in sorted(recipe.preprocess.items())}
    return found | {f"data {name}": f"{array.dtype} {array.shape} {_sha256(np.ascontiguousarray(array))}" for name, array in data.items()}


def recipe_files(recipe: Recipe) -> dict[str, Path]:
    """The recipe and whatever Python files of its folder were imported, by their names in it."""
    folder = recipe.file.parent.resolve()
    files = {Path(file).resolve() for module in list(sys.modules.values()) if isinstance(file := getattr(module, "__file__", None), str)}
    return {
        path.relative_to(folder).as_posix(): path for path in {recipe.file.resolve(), *files} if path.is_relative_to(folder) and path.suffix == ".py"
    }


def _spec(spec: InputSpec) -> Any:
    return {**encode(spec), "files": {Path(path).name: digest(path) for path in spec.files}}


def _compiled(model: Any) -> Any:
    """Optimizer, loss and metrics as Keras writes them into the archive; nothing where it can't (the recipe's files have their digests)."""
    try:
        return _without_addresses(model.get_compile_config() or {})
    except (NotImplementedError, TypeError, ValueError):
        return {}


def _without_addresses(config: Any) -> Any:
    """Keras numbers objects that it meets twice by where they lie in memory."""
    if isinstance(config, dict):
        return {key: _without_addresses(value) for key, value in config.items() if key != "shared_object_id"}
    return [_without_addresses(value) for value in config] if isinstance(config, list | tuple) else config


def _sha256(content: Array | str) -> str:
    """Of a text, or of the bytes of a contiguous array, without a copy of them."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content.reshape(-1).view(np.uint8).data).hexdigest()


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs between two trainings, a phrase a part."""
    lines = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if old is None or new is None:
            lines.append(f"{name} is {'new' if old is None else 'gone'}")
        else:
            lines.append(f"{name} changed from {_short(old)} to {_short(new)}")
    return lines


def _short(value: str) -> str:
    words = [f"{word[:12]}..." if len(word) == 64 else word for word in value.split(" ")]  # noqa: PLR2004 - a SHA-256
    return " ".join(words)


def environment(backend: str, threads: int) -> dict[str, str]:
    """What the bits depend on besides: versions, processor, threads."""
    versions = {name: version for name in ("keras", backend, "jaxlib", "numpy") if (version := distribution_version(name))}
    return {
        **versions,
        "Python": platform.python_version(),
        "processor": cpu_model(),
        "its features": " ".join(cpu_features()),
        "threads": str(threads),
    }


def table(rows: tuple[StoredArray, ...], model: Any, of: Mapping[str, str], position: str, witness: Witness, finished: int) -> tuple[Preserved, ...]:
    """What a checkpoint of this training preserves."""
    optimizers = [row for row in rows if row.group.startswith("optimizer")]
    seeds = [row for row in rows if "seed_generator" in row.name or row.group == "seeds"]
    weights = [row for row in rows if row.group == "model" and row not in seeds]
    files = [name.removeprefix("recipe file ") for name in of if name.startswith("recipe file ")]
    data = [name.removeprefix("data ") for name in of if name.startswith("data ")]
    replay = f"the first {witness.steps} steps, taken twice from one state, gave the same bits"
    if witness.differs:
        replay = f"THE FIRST {witness.steps} STEPS, taken twice from one state, DIFFERED: {witness.differs}"
    yes, no, by = "yes", "no", "by digest"
    return (
        Preserved("weights", yes, _count(weights)),
        Preserved("optimizer", yes, f"{type(model.optimizer).__name__}: {_count(optimizers)}"),
        Preserved("learning rate", yes, _schedule(model.optimizer)),
        Preserved("epoch and batch", yes, position),
        Preserved("order of the data", yes, "a function of the seed and the epoch"),
        Preserved("metrics of the running epoch", yes, _count([row for row in rows if row.group == "metrics"])),
        Preserved("losses and metrics of finished epochs", yes, f"{finished} so far"),
        Preserved("random generators of layers", yes, f"{len(seeds)} states of Keras seed generators"),
        Preserved("global random generators", yes, "numpy's and Python's"),
        Preserved("recipe", by, ", ".join(files)),
        Preserved("data", by, ", ".join(data)),
        Preserved("seed, epochs, batch size, backend, compile()", by, "must be the same"),
        Preserved("versions, processor, threads", no, "a change is said when the training is resumed"),
        Preserved("compiled code", no, "compiled anew"),
        Preserved("whatever else the recipe's code keeps", no, replay),
    )


def _count(rows: list[StoredArray]) -> str:
    numbers = sum(int(np.prod(row.shape, dtype=np.int64)) for row in rows)
    return f"{len(rows)} arrays, {numbers:,} numbers"


def _schedule(optimizer: Any) -> str:
    schedule = getattr(optimizer, "_learning_rate", None)
    if schedule is None or hasattr(schedule, "assign"):
        return "a constant among the optimizer's variables"
    return f"{type(schedule).__name__}, by the optimizer's count of steps"

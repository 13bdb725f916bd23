"""Faults in an archive's ``config.json``: the layers' own words are changed, the weights stay."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any

from kpipe_stages.planting import ImpossibleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONFIG = "config.json"
CUSTOM = "kpipe_selftest"


def layers_of(config: Any) -> Iterator[dict[str, Any]]:
    """Every layer that a model's config declares, nested models' too."""
    if isinstance(config, dict):
        if isinstance(config.get("layers"), list):
            yield from (layer["config"] | {"class_name": layer["class_name"], "_own": layer["config"]} for layer in config["layers"])
        for value in config.values():
            yield from layers_of(value)
    elif isinstance(config, list):
        for value in config:
            yield from layers_of(value)


def set_key(config: Any, *, key: str, old: Any, new: Any, most: int = 100) -> None:
    """``key = old`` becomes ``new`` in the first ``most`` layers that have it; ``old`` None stands for any value but ``new``."""
    found = 0
    for layer in layers_of(config):
        value = layer.get(key)
        if key in layer and (value == old or (old is None and value not in {None, new})) and found < most:
            layer["_own"][key] = new
            found += 1
    if not found:
        raise ImpossibleError(f"no layer has {key} = {old!r}" if old is not None else f"no layer has another {key} than {new!r}")


def activation(config: Any, *, old: str, new: str, custom: bool = False, most: int = 100) -> None:
    """An activation is another one; with ``custom`` a function of ``planting/given/objects.py``."""
    registered = {"module": "builtins", "class_name": "function", "config": new, "registered_name": f"{CUSTOM}>{new}"}
    set_key(config, key="activation", old=old, new=registered if custom else new, most=most)


EDITS: dict[str, Callable[..., None]] = {"set_key": set_key, "activation": activation}


def rewrite(source: Path, target: Path, change: Callable[[Any], None]) -> None:
    """Copy an archive with its config changed.

    Raises:
        ImpossibleError: there is nothing to change.
    """
    with zipfile.ZipFile(source) as old:
        config = json.loads(old.read(CONFIG))
        change(config)
        with zipfile.ZipFile(target, "w") as new:
            for member in old.infolist():
                new.writestr(member.filename, json.dumps(config) if member.filename == CONFIG else old.read(member))

"""A ``.keras`` archive rewritten so that Keras loads it in float64: dtype policies raised in the config, everything else copied.

``from_config`` with ``set_weights`` would lose what isn't a weight (a Normalization layer's statistics) and leave subclassed models in float32;
an archive goes through the same loader as ever. Weights are widened as they are loaded, which is exact.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

CONFIG = "config.json"
RAISED = frozenset({"float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16"})
FLOAT64 = "float64"


def raise_archive(source: str | Path, target: Path, keep: Collection[str] = ()) -> None:
    """Write ``source`` to ``target`` with every floating-point dtype policy of its layers raised to float64.

    Args:
        source: a ``.keras`` file that was inspected.
        target: the file to write.
        keep: names of layers that stay as they are, with all that they hold.

    Raises:
        OSError: a file can't be read or written.
        ValueError: the config isn't JSON.
    """
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for member in old.infolist():
            if member.filename == CONFIG:
                raised = raise_config(json.loads(old.read(member)), frozenset(keep))
                new.writestr(CONFIG, json.dumps(raised))
            else:
                with old.open(member) as left, new.open(zipfile.ZipInfo(member.filename, member.date_time), "w", force_zip64=True) as right:
                    shutil.copyfileobj(left, right, 2**20)


def raise_config(value: Any, keep: Collection[str] = frozenset()) -> Any:
    """The config with raised policies: what stands under a key ``dtype``, as a name or as a serialised policy. Compile settings are left alone."""
    if isinstance(value, list):
        return [raise_config(item, keep) for item in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("config"), dict) and value["config"].get("name") in keep:
        return value
    return {key: item if key == "compile_config" else _dtype(item) if key == "dtype" else raise_config(item, keep) for key, item in value.items()}


def _dtype(value: Any) -> Any:
    if isinstance(value, str):
        return FLOAT64 if value in RAISED else value
    if isinstance(value, dict) and isinstance(value.get("config"), dict) and value["config"].get("name") in RAISED:
        return {**value, "config": {**value["config"], "name": FLOAT64}}
    return value

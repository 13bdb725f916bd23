"""What an artifact depends on, as one digest: two orders of one key give the same files. Where that can't be promised there is no key."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kpipe_stages
from kpipe.running import system
from kpipe_stages.codec import encode
from kpipe_stages.digest import digest
from kpipe_stages.protocol import Artifact, ExportJob, ExportOpenvinoJob, QuantizeJob, Trust
from kpipe_stages.worker import cpu_features, cpu_model

if TYPE_CHECKING:
    from kpipe.running.launch import Order

VERSION = 2
"""Of an entry's form."""
OWN_DISTRIBUTION = "keras-kpipe"
CONVERTERS = frozenset({"keras", "tensorflow", "tf2onnx", "onnx", "onnxruntime", "openvino", "nncf", "numpy", "ml-dtypes", "flatbuffers", "protobuf"})
"""Distributions that take part in making artifacts."""
ELSEWHERE = ("HOME", "TMPDIR", "KERAS_HOME", "XDG_CACHE_HOME", "PATH", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "PYTHONDONTWRITEBYTECODE")
"""Variables of a worker's environment that name places, and don't change what it makes."""


def key_of(order: Order, sources: tuple[Artifact, ...] = ()) -> str | None:
    """The key of a stage that makes artifacts.

    Args:
        order: an `ExportJob`, `ExportOpenvinoJob` or `QuantizeJob` and where it would be run.
        sources: the artifacts that it reads by their paths alone.

    Returns:
        A SHA-256; None where what it makes depends on more than can be told from here.

    Raises:
        OSError: a file that it depends on can't be read.
        ValueError: a folder that it depends on holds a link.
    """
    if order.python != system.this_interpreter().path or (told := _told(order.params)) is None:
        return None
    installed, local = distributions()
    trust = getattr(order.params, "trust", Trust())
    if local and (trust.custom_objects or trust.allow_modules or _convert(local)):  # the model's code may import it, or it makes the file
        return None
    return _digest(
        {
            "version": VERSION,
            "stage": order.stage,
            "order": told,
            "sources": [source.sha256 for source in sources],
            "code": [[_module(path), digest(path)] for path in trust.custom_objects],
            "environment": {name: value for name, value in order.environment.items() if name not in ELSEWHERE},
            "kpipe": own_source(),
            "python": [platform.python_implementation(), *sys.version_info],
            "installed": installed,
            "machine": [platform.system(), platform.machine(), cpu_model(), *cpu_features(), system.cores()],
        }
    )


def prepare() -> None:
    """Find out what all keys of a process share, while there is nothing else to do."""
    own_source()
    distributions()


def key_or_none(order: Order, sources: tuple[Artifact, ...] = ()) -> str | None:
    """As `key_of`; None too where a file that it depends on can't be read: the stage itself will say so."""
    try:
        return key_of(order, sources)
    except (OSError, ValueError):
        return None


def _told(params: Any) -> dict[str, Any] | None:
    """An order by content: no path in it; None for one that isn't known to make the same again."""
    if isinstance(params, ExportJob):
        if not params.sha256 or not params.formats:
            return None
        params = replace(params, model="", out="", trust=replace(params.trust, custom_objects=()))
    elif isinstance(params, ExportOpenvinoJob):
        params = replace(params, saved_model="", out="")
    elif isinstance(params, QuantizeJob):
        calibrated = digest(params.tensors) if params.tensors else ""
        saved_model = _bare(params.saved_model) if params.saved_model else None
        trust = replace(params.trust, custom_objects=())
        params = replace(params, source=_bare(params.source), saved_model=saved_model, out="", tensors=calibrated, trust=trust)
    else:
        return None
    return dict(encode(params))


def _bare(artifact: Artifact) -> Artifact:
    """Without its paths: its digest says what it is."""
    source = digest(artifact.source) if artifact.source else ""
    unrolled = replace(artifact.unrolled, path=digest(artifact.unrolled.path)) if artifact.unrolled else None
    return replace(artifact, path="", companions=(), source=source, unrolled=unrolled, reused="")


def _module(path: str) -> str:
    """The names by which a file of custom objects is known to the others, and to Keras."""
    return f"{Path(path).parent.name}/{Path(path).name}"


@cache
def own_source() -> str:
    """Digest of the workers' source: a checkout changes without its version."""
    root = Path(kpipe_stages.__file__).parent
    return _digest({str(path.relative_to(root)): digest(path) for path in sorted(root.rglob("*.py"))})


@cache
def distributions() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What this interpreter holds, by the names of its metadata folders (reading 140 of them takes 0.2 s).

    Returns:
        ``numpy-2.4.6``, sorted; and those, but for kpipe's own, that were installed from a folder or a repository: their version says
        nothing of their content.
    """
    folders = [Path(entry) for entry in sys.path if entry and Path(entry).is_dir()]
    held = {item for folder in folders for kind in ("*.dist-info", "*.egg-info") for item in folder.glob(kind)}
    others = {item for item in held if _normal(item.name.partition("-")[0]) != OWN_DISTRIBUTION}
    local = {item.stem for item in others if item.suffix == ".egg-info" or (item / "direct_url.json").is_file()}
    return tuple(sorted({item.stem for item in others})), tuple(sorted(local))


def _convert(local: tuple[str, ...]) -> bool:
    """Whether one of them takes part in making artifacts."""
    return any(_normal(item.partition("-")[0]) in CONVERTERS for item in local)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()

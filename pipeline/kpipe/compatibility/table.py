"""The whole: run the units, judge what came of it."""

from __future__ import annotations

import json
import platform
import time
from typing import TYPE_CHECKING

from kpipe import signals
from kpipe.compatibility.judging import judge
from kpipe.compatibility.result import SCHEMA, Table
from kpipe.compatibility.running import Zoo, children_seconds
from kpipe.errors import UsageError
from kpipe.running import system
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kpipe_stages.zoo import Unit

SPENT = "spent.json"
"""What a folder that is gone on with has taken so far."""


def columns() -> tuple[str, ...]:
    """The runtimes of the table: one that takes one input at a time is another way to run a file that is in it already."""
    return tuple(name for name, row in RUNTIMES.items() if row.batch is None)


def make_table(units: Sequence[Unit], root: Path, say: Callable[[str], None], jobs: int | None) -> tuple[Table, list[str]]:
    """Run every case of the units on every runtime that is installed; the table, and the workers that were lost.

    Raises:
        UsageError: TensorFlow isn't there: every model is built and exported on it.
    """
    installed = system.this_interpreter().versions
    if "tensorflow" not in installed or "keras" not in installed:
        raise UsageError("kpipe compatibility builds and exports every model on TensorFlow, which isn't installed: pip install 'keras-kpipe[all]'.")
    runtimes = tuple(name for name in columns() if all(one in installed for one in RUNTIMES[name].distributions))
    began, used = time.monotonic(), children_seconds()
    root.mkdir(parents=True, exist_ok=True)
    before = _spent(root)
    zoo = Zoo(root, say, jobs or system.cores())
    signals.run(zoo.run([case.name for unit in units for case in unit.cases], runtimes))
    rows = tuple(judge(root, case, unit.group, runtimes) for unit in units for case in unit.cases)
    names = [name for runtime in RUNTIMES.values() for name in runtime.distributions]
    versions = {name: installed[name] for name in dict.fromkeys([*names, "onnx", "tf2onnx"]) if name in installed}
    environment = system.environment()
    spent = (before[0] + time.monotonic() - began, before[1] + children_seconds() - used)
    write_json(root / SPENT, spent)
    table = Table(
        schema=SCHEMA,
        versions=versions,
        python=platform.python_version(),
        cpu=", ".join(environment.cpu_features),
        runtimes=runtimes,
        cases=rows,
        seconds=spent[0],
        cpu_seconds=spent[1],
    )
    return table, zoo.failures


def _spent(root: Path) -> tuple[float, float]:
    """What earlier runs in this folder took: seconds of the clock and of the processor."""
    try:
        seconds, used = json.loads((root / SPENT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0.0, 0.0
    return float(seconds), float(used)

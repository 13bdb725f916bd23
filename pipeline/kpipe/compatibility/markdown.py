"""The table as a page: a row a unit, a column a runtime, and below it every cell that isn't green with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.compatibility.faults import FAULTS, fault_of
from kpipe.compatibility.result import CaseRow, Cell, Status, Table, worst
from kpipe_stages.catalog import RUNTIMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GROUPS = {"layers": "Layers", "activations": "Activations", "ops": "Ops of `keras.ops`, by family"}
SHORT = {
    "jax": "JAX",
    "tensorflow": "TensorFlow",
    "saved_model": "SavedModel",
    "litert": "LiteRT",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "openvino_ir": "OpenVINO IR",
    "keras_openvino": "Keras on OpenVINO",
}
MARKS = {
    Status.WORKS: "✓",
    Status.NARROWED: "shape",
    Status.DIFFERS: "differs",
    Status.RUN_FAILS: "run",
    Status.LOAD_FAILS: "load",
    Status.EXPORT_FAILS: "export",
    Status.CRASHED: "crash",
    Status.UNCHECKED: "?",
    Status.NO_MODEL: "Keras",
}

HEAD = """# What works where

Every public layer and activation of Keras and the families of `keras.ops`, each in several configurations and dtypes, through every runtime that kpipe knows: built, saved as `.keras`, exported by kpipe's own export stage with its repairs, loaded, and run on one row, on three, and on another length of every free axis. The numbers are compared with Keras on JAX (where that has no answer, with Keras on TensorFlow) by the gate's default tolerance (for float16 and bfloat16 by eight units in the last place). Made by `make compatibility`; don't edit it by hand. A library upgrade: `kpipe compatibility --against docs/compatibility.json` prints what it changed.
"""

LEGEND = """A cell says how many of a unit's models work, and the worst that happened to the others:

| mark | meaning |
|---|---|
| ✓ | all models work, in every way of running |
| shape | right numbers, but an axis that is free in the model is fixed in the artifact (LiteRT takes recurrent layers at batch 1 only), or another length is refused |
| differs | an answer, without an error, and it isn't the reference's |
| run | loads, and gives no answer |
| load | the export says success; the runtime refuses the file |
| export | no file |
| crash | the process ended, or outlasted its limit |
| Keras | Keras itself can't build or save it, on any backend |
| ? | nothing to compare with |
"""


def summary(table: Table) -> str:
    """A line a runtime, for a terminal."""
    lines = [f"{len(_units(table))} units, {len(table.cases)} models; {table.seconds:.0f} s, {table.cpu_seconds:.0f} s of processor time"]
    for runtime in table.runtimes:
        cells = [row.cells[runtime] for row in table.cases]
        counts = {status: sum(cell.status is status for cell in cells) for status in Status}
        lines.append(f"{runtime:15} " + ", ".join(f"{count} {status}" for status, count in counts.items() if count))
    return "\n".join(lines)


def page(table: Table) -> str:
    """The whole page."""
    parts = [HEAD, _versions(table), "## In numbers\n", _numbers(table), LEGEND]
    for group, title in GROUPS.items():
        units = {name: rows for name, rows in _units(table).items() if rows[0].group == group}
        if units:
            parts += [f"## {title}\n", _table(table.runtimes, units)]
    parts += [_faults(table), _details(table)]
    return "\n".join(parts)


def _units(table: Table) -> dict[str, list[CaseRow]]:
    units: dict[str, list[CaseRow]] = {}
    for row in table.cases:
        units.setdefault(row.unit, []).append(row)
    return units


def _versions(table: Table) -> str:
    named = ", ".join(f"{name} {version}" for name, version in table.versions.items())
    return (
        f"Python {table.python}; {named}. On x86-64 with {table.cpu}. OpenVINO is asked for float32. {table.cpu_seconds:.0f} s of processor time.\n"
    )


def _numbers(table: Table) -> str:
    shown = [status for status in Status if any(cell.status is status for row in table.cases for cell in row.cells.values())]
    lines = [_row(["of " + str(len(table.cases)) + " models", *(str(status) for status in shown)]), _row(["---"] * (len(shown) + 1))]
    for runtime in table.runtimes:
        cells = [row.cells[runtime] for row in table.cases]
        lines.append(_row([RUNTIMES[runtime].title, *(str(sum(cell.status is status for cell in cells)) for status in shown)]))
    return "\n".join(lines) + "\n"


def _table(runtimes: Sequence[str], units: dict[str, list[CaseRow]]) -> str:
    lines = [_row(["unit", "models", *(SHORT.get(name, name) for name in runtimes)]), _row(["---"] * (len(runtimes) + 2))]
    for name, rows in units.items():
        lines.append(
            _row(
                [f"`{name}`" if not name.startswith("ops,") else name, str(len(rows)), *(_mark([row.cells[one] for row in rows]) for one in runtimes)]
            )
        )
    return "\n".join(lines) + "\n"


def _mark(cells: list[Cell]) -> str:
    good = sum(cell.status is Status.WORKS for cell in cells)
    status = worst(cells)
    return MARKS[status] if good == len(cells) else f"{good}/{len(cells)} {MARKS[status]}"


def _faults(table: Table) -> str:
    """The causes that were looked into, each with a minimal model and the number of cells that it explains here."""
    counts = dict.fromkeys(FAULTS, 0)
    for row in table.cases:
        for runtime, cell in row.cells.items():
            if (fault := fault_of(runtime, row, cell)) is not None:
                counts[fault] += 1
    lines = ["## Causes\n", "What stands behind the cells that aren't ✓, most of them first. The model is the smallest that shows it.\n"]
    for fault, count in sorted(counts.items(), key=lambda pair: -pair[1]):
        if count:
            lines += [f"### {fault.title} ({count})\n", f"{fault.cause} Smallest model: `{fault.model}`. {fault.way_out}\n"]
    return "\n".join(lines)


def _details(table: Table) -> str:
    lines = ["## Every cell that isn't ✓\n", "Runtimes with the same reason share a line.\n"]
    for name, rows in _units(table).items():
        told = [line for row in rows for line in _reasons(row)]
        if told:
            lines += [f"**{name}**\n", *told, ""]
    return "\n".join(lines)


def _reasons(row: CaseRow) -> Iterable[str]:
    grouped: dict[tuple[Status, str], list[str]] = {}
    for runtime, cell in row.cells.items():
        if cell.status is not Status.WORKS:
            grouped.setdefault((cell.status, cell.reason), []).append(runtime)
    for (status, reason), runtimes in grouped.items():
        yield f"- {row.config}; {', '.join(runtimes)}: {status}. {_plain(reason)}"


def _plain(text: str) -> str:
    """As text of a page: no character of it is markup."""
    escaped = "".join(f"\\{one}" if one in "\\`*_<>[]|#" else one for one in text)
    return escaped.replace("](", "]\\(")


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"

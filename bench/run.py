"""``make bench``: every table in one run, against its bounds; ``build/bench.json``, ``docs/benchmarks.md`` and a table in the terminal."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import natives
import table_exports
import table_gate
import table_many
import table_selftest
import table_startup
from document import document
from machine import load, machine
from rows import ROOT, Bench, Row


@dataclass(frozen=True)
class Table:
    """One table of the bench."""

    title: str
    measure: Callable[[Bench], list[Row]]


def gate(bench: Bench) -> list[Row]:
    """The gate, and what starts without a framework on its run."""
    rows, run = table_gate.gate(bench)
    return [*rows, *table_startup.startup(bench, run)]


TABLES = {
    "gate": Table("The whole gate: digits, eight targets; and what starts at once", gate),
    "exports": Table("Exports: MobileNetV2", table_exports.exports),
    "many": Table("Many golden inputs, many cells", table_many.many),
    "natives": Table("Times beside the runtimes' own tools, and what the timing loop adds", natives.natives),
    "selftest": Table("Planted faults", table_selftest.selftest),
}
"""A table more is a function from a `Bench` to its rows, and a line here."""


def main() -> None:
    """Measure what was asked for, print it and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=sorted(TABLES), action="append", help="one table; docs/benchmarks.md is left as it is")
    parser.add_argument("--skip", choices=sorted(TABLES), action="append", help="a table to leave out; the page says so")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench.json")
    options = parser.parse_args()
    names = options.only or [name for name in TABLES if name not in (options.skip or ())]
    begin, before, tables = time.perf_counter(), load(), dict[str, list[Row]]()
    for name in names:
        scratch = Path(tempfile.mkdtemp(prefix=f"kpipe-bench-{name}-"))
        try:
            tables[name] = TABLES[name].measure(Bench(scratch, options.rounds))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        for row in tables[name]:
            print(f"{'met   ' if row.met else 'MISSED'} {row.value:>9g} {row.bound:>7g} {row.unit:<10} {row.name}\n       {row.detail}", flush=True)
            if row.profile:
                print(row.profile, flush=True)
    took = f"{(time.perf_counter() - begin) / 60:.1f} minutes, {options.rounds} rounds"
    facts = {**machine(), "load before": before, "load after": load(), "the bench took": took}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    whole = {"machine": facts, "tables": {name: [asdict(row) for row in rows] for name, rows in tables.items()}}
    options.out.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    if not options.only:
        page = document(facts, tables, {name: table.title for name, table in TABLES.items()})
        (ROOT / "docs" / "benchmarks.md").write_text(page, encoding="utf-8")
    print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    print(f"written to {options.out}{'' if options.only else ' and docs/benchmarks.md'}")
    raise SystemExit(0 if all(row.met for rows in tables.values() for row in rows) else 1)


if __name__ == "__main__":
    main()

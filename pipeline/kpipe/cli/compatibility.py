"""``kpipe compatibility``: which layers, activations and ops work where."""

from __future__ import annotations

import fnmatch
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.errors import Exit, UsageError

if TYPE_CHECKING:
    from kpipe.compatibility.result import Table
    from kpipe_stages.zoo import Unit


def run_compatibility(
    only: tuple[str, ...], out: Path | None, as_json: Path | None, against: Path | None, keep: Path | None, jobs: int | None
) -> int:
    """Run, write, print; 0 where every step had an outcome, 3 where one was lost."""
    from kpipe.compatibility import against as comparing
    from kpipe.compatibility.markdown import page, summary
    from kpipe.compatibility.table import make_table
    from kpipe_stages.codec import encode

    units = chosen(only)
    old = comparing.load(against) if against else None
    _check_writable(out, as_json)
    with tempfile.TemporaryDirectory(prefix="kpipe-zoo-") as scratch:
        table, failures = make_table(units, keep.resolve() if keep else Path(scratch), _say, jobs)
    text = json.dumps(encode(table), ensure_ascii=False, indent=0) + "\n"
    if as_json is not None:
        as_json.write_text(text, encoding="utf-8")
    if out is not None:
        out.write_text(page(table), encoding="utf-8")
    print(summary(table))
    if old is not None:
        print(comparing.text(comparing.differences(old, table, whole=not only)))
    for line in failures:
        print(f"A worker was lost: {line}", file=sys.stderr)
    return Exit.INCOMPLETE if failures or _unchecked(table) else Exit.PASS


def chosen(only: tuple[str, ...]) -> tuple[Unit, ...]:
    """The units whose name fits one of the patterns (as file names do, without regard to case), or all.

    Raises:
        UsageError: a pattern fits none.
    """
    from kpipe_stages.zoo import UNITS

    for pattern in only:
        if not any(_fits(unit.name, pattern) for unit in UNITS):
            raise UsageError(f"--only {pattern} fits none of the {len(UNITS)} units. Patterns are as for file names: 'Conv*', 'ops, *', 'relu'.")
    return tuple(unit for unit in UNITS if not only or any(_fits(unit.name, pattern) for pattern in only))


def _fits(name: str, pattern: str) -> bool:
    return fnmatch.fnmatch(name.lower(), pattern.lower())


def _check_writable(*files: Path | None) -> None:
    for file in files:
        if file is not None and not file.resolve().parent.is_dir():
            raise UsageError(f"{file} can't be written: there is no folder {file.resolve().parent}. Make it, or name another.")


def _unchecked(table: Table) -> bool:
    from kpipe.compatibility.result import Status

    return any(cell.status is Status.UNCHECKED for row in table.cases for cell in row.cells.values())


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

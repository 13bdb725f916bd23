"""``kpipe selftest``: the gate, tested."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.cli.folders import working_folder
from kpipe.errors import Exit, UsageError, nearest

if TYPE_CHECKING:
    from kpipe.selftest.fault import Fault, Setup


def run_command(model: Path | None, contract: Path | None, only: tuple[str, ...], out: Path | None, healthy: int | None, *, as_json: bool) -> int:
    """Plant and print, or count alarms; 0 where the gate held."""
    if (model is None) != (contract is None):
        raise UsageError("--model and --contract go together: faults are planted into a model by its own contract.")
    chosen = _faults(only)
    with working_folder(out, "kpipe-selftest-") as name:
        folder = Path(name).resolve()
        return _healthy(folder, healthy, model, contract, as_json=as_json) if healthy else _table(folder, chosen, model, contract, as_json=as_json)


def _faults(only: tuple[str, ...]) -> list[Fault]:
    """The faults of these families, or of all.

    Raises:
        UsageError: there is no such family.
    """
    from kpipe.selftest.fault import Family
    from kpipe.selftest.faults import FAULTS

    known = [str(family) for family in Family]
    for word in only:
        if word not in known:
            raise UsageError(f"--only {word} is no family of faults{nearest(word, known)}; expected one of {', '.join(known)}.")
    return [fault for fault in FAULTS if not only or fault.family in only]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _table(folder: Path, faults: list[Fault], model: Path | None, contract: Path | None, *, as_json: bool) -> int:
    from kpipe.selftest.runner import run_selftest
    from kpipe.selftest.text import rendered
    from kpipe_stages.codec import encode, write_json

    setups = _setups(folder, faults, model, contract)
    table = run_selftest(setups, faults, folder, _say, all_faults=model is not None)
    write_json(folder / "selftest.json", table)
    (folder / "selftest.md").write_text(rendered(table, markdown=True), encoding="utf-8")
    print(json.dumps(encode(table), ensure_ascii=False, indent=1) if as_json else rendered(table), end="" if not as_json else "\n")
    return Exit.PASS if table.met else Exit.FAIL


def _setups(folder: Path, faults: list[Fault], model: Path | None, contract: Path | None) -> list[Setup]:
    from kpipe.selftest.own import OWN
    from kpipe.selftest.subjects import own_setups, user_setup

    if model is not None and contract is not None:
        return [user_setup(model, contract, folder, _say)]
    needed = {name for fault in faults for name in fault.subjects}
    return own_setups(tuple(name for name in OWN if name in needed), folder, _say)


def _healthy(folder: Path, count: int, model: Path | None, contract: Path | None, *, as_json: bool) -> int:
    from kpipe.selftest.own import HEALTHY
    from kpipe.selftest.runner import run_healthy
    from kpipe.selftest.subjects import user_setup
    from kpipe.selftest.text import healthy_line
    from kpipe_stages.codec import encode, write_json

    users = [user_setup(model, contract, folder, _say)] if model is not None and contract is not None else []
    found = run_healthy(count, tuple(HEALTHY), users, folder, _say)
    write_json(folder / "healthy.json", found)
    print(json.dumps(encode(found), ensure_ascii=False, indent=1) if as_json else healthy_line(found), end="" if not as_json else "\n")
    return Exit.PASS if not found.alarms else Exit.FAIL

"""Small bundles in a store, as tests make them: in their own process, and by ``python -m tests.sample_store`` in others."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe.errors import StoreError
from kpipe.signoff.files import take_stock
from kpipe.signoff.log import LOG_VERSION, Entry, Logged
from kpipe.signoff.manifest import MANIFEST, document, id_of
from kpipe.signoff.store import Store, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

ENTRY = Entry(LOG_VERSION, 0, "", "approve", "2026-11-30T12:00:00+00:00", "approvers", "good", "digits", "production", "", "PASS", "r1", "ab" * 32)

EACH = 6
"""Entries of one writer."""


def sealing(content: str) -> Callable[[Path], str]:
    """A bundle of one file."""

    def write(folder: Path) -> str:
        (folder / "run").mkdir()
        (folder / "run" / "a.txt").write_text(content)
        data = document(take_stock(folder))
        (folder / MANIFEST).write_bytes(data)
        return id_of(data)

    return write


def approved(store: Store, content: str, **changes: Any) -> Logged:
    """Seal and enter."""
    bundle, new = store.seal(sealing(content))
    return store.append(replace(ENTRY, bundle=bundle, **changes), fresh=new)


def started(*words: str) -> subprocess.Popen[str]:
    """This module as a program: ``write LOCATION WHO`` or ``full LOCATION``."""
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.sample_store", *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def main(what: str, location: str, *more: str) -> None:
    """Write many entries, or one where files of more than 1000 bytes can't be written."""
    store = open_store(location)
    if what == "write":
        for number in range(EACH):
            approved(store, f"{more[0]}-{number}", by=f"writer {more[0]}")
        return
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    try:
        approved(store, "2" * 5000)
    except StoreError as error:
        sys.stdout.write(f"{error}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

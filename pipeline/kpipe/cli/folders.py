"""Where a command works: in a new folder that stays, or in one that goes."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from typing import TYPE_CHECKING

from kpipe.errors import UsageError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path


def working_folder(out: Path | None, prefix: str) -> AbstractContextManager[str | Path]:
    """The folder that ``--out`` names, which has to be new or empty; without it a temporary one.

    Raises:
        UsageError: it holds something, or can't be made.
    """
    if out is None:
        return tempfile.TemporaryDirectory(prefix=prefix)
    try:
        out.mkdir(parents=True, exist_ok=True)
        taken = any(out.iterdir())
    except OSError as error:
        raise UsageError(f"--out {out} can't be used: {error.strerror}. Name a folder that can be written.") from error
    if taken:
        raise UsageError(f"--out {out} is not empty. Name a new folder; nothing was changed.")
    return nullcontext(out)

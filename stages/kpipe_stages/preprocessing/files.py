"""Read a raw file once, within bounds, so that what is hashed is what is decoded."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from kpipe_stages.preprocessing.errors import PreprocessError

if TYPE_CHECKING:
    from pathlib import Path


def read_bytes(path: str | Path, max_bytes: int) -> bytes:
    """Return the whole content of a regular file.

    Raises:
        PreprocessError: the file is missing (``KP101``), not a regular file, unreadable, or larger than ``max_bytes``.
    """
    try:
        # without O_NONBLOCK a named pipe would hang the open
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError as error:
        raise PreprocessError(
            "read", f"{path} does not exist", "the raw file that the manifest names", "Restore it, or list the set anew.", "KP101"
        ) from error
    except (OSError, ValueError) as error:
        raise PreprocessError("read", f"{path} can't be opened: {error}", "a readable file", "Mend the path or its permissions.", "KP101") from error
    known = os.fstat(handle)
    if not stat.S_ISREG(known.st_mode):
        os.close(handle)
        raise PreprocessError("read", f"{path} is not a regular file", "a file", "Point the manifest at the raw file itself.")
    with os.fdopen(handle, "rb") as stream:
        wanted = min(known.st_size, max_bytes) + 1  # asked for `max_bytes`, Python would set so much memory aside for every file
        data = stream.read(wanted)
        if len(data) == wanted <= max_bytes:  # it has grown since
            data += stream.read(max_bytes + 1 - wanted)
    if len(data) > max_bytes:
        raise PreprocessError("read", f"{path} is larger than {max_bytes:,} bytes", "a smaller file", "Raise max_bytes if the file is meant.")
    return data

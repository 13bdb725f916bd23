"""Libraries that one kind of raw file needs: imported where the kind is read, and named with their extra where they are missing."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from kpipe_stages.preprocessing.errors import PreprocessError

MISSING = "KP113"


def library(module: str, extra: str, needed_by: str) -> Any:
    """Import a library.

    Args:
        module: what is imported.
        extra: the extra of keras-kpipe that brings it; empty where keras-kpipe itself does.
        needed_by: what needs it.

    Raises:
        PreprocessError: KP113, it isn't installed here, or doesn't load.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:  # OSError: soundfile without its C library
        raise PreprocessError(
            "decode",
            f"{needed_by} needs {module.partition('.')[0]}, which {sys.executable} can't import: {error}",
            "it to be installed",
            f"Install it there: pip install 'keras-kpipe{f'[{extra}]' if extra else ''}'.",
            MISSING,
        ) from error

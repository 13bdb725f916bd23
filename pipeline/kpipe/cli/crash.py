"""A report of a fault of kpipe's own."""

from __future__ import annotations

import platform
import tempfile
import traceback
from pathlib import Path

from kpipe.running.system import kpipe_version, this_interpreter


def write_report(error: BaseException, words: list[str]) -> Path:
    """Write what is needed to find the fault to a file; return its path."""
    lines = [
        f"kpipe {kpipe_version()}, Python {platform.python_version()}, {platform.platform()}",
        f"command: kpipe {' '.join(words)}",
        *(f"{name} {version}" for name, version in this_interpreter().versions.items()),
        "",
        *traceback.format_exception(error),
    ]
    with tempfile.NamedTemporaryFile("w", prefix="kpipe-fault-", suffix=".txt", delete=False, encoding="utf-8") as file:
        file.write("\n".join(lines))
    return Path(file.name)

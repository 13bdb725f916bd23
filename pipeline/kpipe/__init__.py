"""kpipe, the release gate for Keras models: ``kpipe.validate("model.keras")``.

The names below are imported when first used, so that ``kpipe --help`` stays instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kpipe.api import Run, judge, load_run, report, validate
    from kpipe.errors import ContractError, GoldenError, KpipeError, RunFolderError, UsageError
    from kpipe.findings import Finding, Severity
    from kpipe.record import RunRecord, Verdict

__all__ = [
    "ContractError",
    "Finding",
    "GoldenError",
    "KpipeError",
    "Run",
    "RunFolderError",
    "RunRecord",
    "Severity",
    "UsageError",
    "Verdict",
    "judge",
    "load_run",
    "report",
    "validate",
]

_HOMES = {
    "kpipe.api": ("Run", "judge", "load_run", "report", "validate"),
    "kpipe.errors": ("ContractError", "GoldenError", "KpipeError", "RunFolderError", "UsageError"),
    "kpipe.findings": ("Finding", "Severity"),
    "kpipe.record": ("RunRecord", "Verdict"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'kpipe' has no attribute {name!r}")

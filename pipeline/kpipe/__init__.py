"""kpipe, the release gate for Keras models: ``kpipe.validate("model.keras")``.

The names below are imported when first used, so that ``kpipe --help`` stays instant.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kpipe.api import Run, compare, judge, load_run, report, validate
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
    "compare",
    "judge",
    "load_run",
    "report",
    "validate",
]

_HOMES = {
    "kpipe.api": ("Run", "compare", "judge", "load_run", "report", "validate"),
    "kpipe.errors": ("ContractError", "GoldenError", "KpipeError", "RunFolderError", "UsageError"),
    "kpipe.findings": ("Finding", "Severity"),
    "kpipe.record": ("RunRecord", "Verdict"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'kpipe' has no attribute {name!r}")


class _Package(ModuleType):
    """This package. ``judge`` and ``report`` are functions of it and modules in it: importing the module must not hide the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, except where the import of a module below would take the place of a public name."""
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

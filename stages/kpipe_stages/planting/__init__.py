"""Faults for ``kpipe selftest``: each is planted into a copy of a file, never into kpipe."""

from __future__ import annotations


class ImpossibleError(Exception):
    """This model has no place for the fault."""

"""Memory that a process has freed goes back to the system only when it is told to: glibc keeps it, for allocations that may never come."""

from __future__ import annotations

import ctypes
import gc
import sys

LARGE_BYTES = 32 * 2**20
"""Weights of a model for which giving back is worth the half second that it takes."""


def give_back(weight_bytes: int) -> None:
    """Return what is free to the system before the next hungry step, where the model is large; elsewhere than on glibc only collect."""
    if weight_bytes < LARGE_BYTES:
        return
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)

"""Import Keras (TensorFlow imports it too) without what it takes along where it happens to be installed.

As it is imported, Keras 3 tries scikit-learn (for its wrappers), Matplotlib (its plots) and JAX, whatever the backend (a checkpoint callback):
up to half of the import, and nothing that a saved model computes with. Once the import is over they can be imported as ever.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

EXTRAS = ("sklearn", "matplotlib", "jax")


@contextlib.contextmanager
def without_extras(backend: str | None, *, lean: bool = True) -> Iterator[None]:
    """Let what is imported inside find none of `EXTRAS` but Keras' own ``backend``; with ``lean`` False change nothing."""
    hidden = [name for name in EXTRAS if lean and name not in sys.modules and name != backend]
    modules = cast("dict[str, Any]", sys.modules)
    modules.update(dict.fromkeys(hidden))  # None is what the import system takes for "there is none"
    try:
        yield
    finally:
        for name in hidden:
            modules.pop(name, None)

"""Functions that edited archives name, so that they can be saved and loaded again like any custom object."""

from __future__ import annotations

from typing import Any

import keras


@keras.saving.register_keras_serializable(package="kpipe_selftest")  # type: ignore[untyped-decorator]  # Keras ships no types
def gelu_tanh(x: Any) -> Any:
    """GELU by its tanh approximation (Hendrycks and Gimpel 2016, section 2)."""
    return keras.activations.gelu(x, approximate=True)

"""Every public layer, activation and op of Keras as small models: what `kpipe compatibility` runs. Nothing heavy is imported here.

A `Unit` is a row of the table; its `Case` s are models that are built, saved and gated one by one. What isn't a unit is in `excluded`, with a reason.
"""

from __future__ import annotations

from kpipe_stages.zoo import (
    activations,
    elementwise,
    images,
    layers,
    linear,
    numbers,
    sequences,
    spatial,
    tensors,
    text,
)
from kpipe_stages.zoo.case import Case, Unit

UNITS: tuple[Unit, ...] = (
    *layers.UNITS,
    *spatial.UNITS,
    *sequences.UNITS,
    *images.UNITS,
    *text.UNITS,
    *activations.UNITS,
    *elementwise.UNITS,
    *numbers.UNITS,
    *tensors.UNITS,
    *linear.UNITS,
)

__all__ = ["UNITS", "Case", "Unit"]

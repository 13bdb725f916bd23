"""Build a case's model: seeded, with weights that no layer begins with, so that a weight that is lost or swapped shows."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from kpipe_stages.zoo.case import Case

NUDGE = 0.2
"""Every weight grows by up to this: a scale of one, a mean of zero and a variance of one hide what isn't applied."""


def build(case: Case) -> Any:
    """A functional model of the case, on whatever backend this process has."""
    import keras

    seed = zlib.crc32(case.name.encode())
    keras.utils.set_random_seed(seed)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(case.policy)
    try:
        inputs = [keras.Input(given.shape, dtype=given.dtype, name=f"x{number}") for number, given in enumerate(case.given)]
        model = keras.Model(inputs[0] if len(inputs) == 1 else inputs, case.call(keras, *inputs))
    finally:
        keras.config.set_dtype_policy(before)
    _nudge(model, seed)
    if case.finish is not None:
        case.finish(keras, model)
    return model


def _nudge(model: Any, seed: int) -> None:
    random = np.random.default_rng(seed)
    for variable in model.weights:
        if "float" in str(variable.dtype):
            variable.assign(np.asarray(variable) + NUDGE * random.random(variable.shape))

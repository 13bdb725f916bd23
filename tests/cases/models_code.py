"""Cases that need code: Lambda layers and custom objects; and the small model that archive cases are cut from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .kit import Builder, Case, normal, shake

if TYPE_CHECKING:
    import numpy as np

SCALE_SOURCE = '''\
"""The custom layer of a case, as its author would keep it."""

import keras


@keras.saving.register_keras_serializable()
class Scale(keras.layers.Layer):
    def __init__(self, factor=3.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, x):
        return x * self.factor

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}
'''

SWISHY_SOURCE = '''\
"""An activation function of one's own, registered in a package."""

import keras


@keras.saving.register_keras_serializable(package="zoo")
def swishy(x):
    return x * keras.ops.sigmoid(1.5 * x)
'''


def base(rng: np.random.Generator) -> Case:
    """Two dense layers: what archive cases are cut from."""
    from keras import Input, Model, layers

    x = Input((4,), name="x")
    model = Model(x, layers.Dense(3, activation="softmax", name="probs")(layers.Dense(5, activation="relu", name="hidden")(x)))
    shake(model, rng, 0.8)
    return Case(model, {"x": normal(rng, 4, 4)}, "argmax")


def lambda_safe_mode(rng: np.random.Generator) -> Case:
    """A Lambda with harmless code."""
    from keras import Input, Model, layers

    x = Input((4,), name="x")
    model = Model(x, layers.Dense(2, activation="softmax")(layers.Lambda(lambda t: t * 2.0 + 1.0, output_shape=(4,), name="double")(x)))
    shake(model, rng, 1.0)
    return Case(model, {"x": normal(rng, 3, 4)}, "argmax")


def nested_lambda(rng: np.random.Generator) -> Case:
    """A Lambda two models deep."""
    import keras
    from keras import Input, layers

    inner = keras.Sequential([Input((4,)), layers.Lambda(lambda t: t + 1.0, output_shape=(4,), name="hidden_code")], name="inner")
    x = Input((4,), name="x")
    model = keras.Model(x, layers.Dense(2)(keras.Sequential([Input((4,)), inner], name="outer")(x)))
    shake(model, rng, 1.0)
    return Case(model, {"x": normal(rng, 3, 4)})


def custom_layer(rng: np.random.Generator) -> Case:
    """A layer class of one's own, as registered in its file."""
    from keras import Input, Model, layers

    x = Input((4,), name="x")
    model = Model(x, layers.Dense(2, activation="softmax")(_from_source(SCALE_SOURCE, "Scale")(name="tripled")(x)))
    shake(model, rng, 1.0)
    return Case(model, {"x": normal(rng, 3, 4)}, "argmax")


def custom_function(rng: np.random.Generator) -> Case:
    """An activation function of one's own, in a package of its own."""
    from keras import Input, Model, layers

    x = Input((4,), name="x")
    model = Model(x, layers.Dense(2, activation=_from_source(SWISHY_SOURCE, "swishy"), name="bent")(x))
    shake(model, rng, 1.0)
    return Case(model, {"x": normal(rng, 3, 4)})


def lambda_code(rng: np.random.Generator) -> Case:
    """A Lambda that leaves a file behind when it runs; building the model runs it, so the caller removes that file."""
    from keras import Input, Model, layers

    x = Input((4,), name="x")
    model = Model(x, layers.Lambda(_leave_a_mark, output_shape=(4,), name="payload", arguments={"where": str(Path.cwd() / "MARKER_lambda")})(x))
    return Case(model, {"x": normal(rng, 2, 4)}, known=False)


_leave_a_mark: Any = lambda t, where: (open(where, "w").close(), t)[1]  # noqa: E731, PTH123 - must be a lambda, or Keras stores a name only


def _from_source(source: str, name: str) -> Any:
    """What a custom-object file defines, made as kpipe's own workers make it: by running the file."""
    names: dict[str, Any] = {"__name__": "layers_of_the_case"}
    exec(compile(source, "layers.py", "exec"), names)  # noqa: S102 - our own text above
    return names[name]


CODE: dict[str, Builder] = {
    "base": base,
    "21_lambda_safe_mode": lambda_safe_mode,
    "22_custom_layer_unregistered": custom_layer,
    "A03_lambda_code": lambda_code,
    "nested_lambda": nested_lambda,
    "custom_function": custom_function,
}

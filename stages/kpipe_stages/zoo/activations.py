"""Every public activation, as a layer's activation and on float16."""

from __future__ import annotations

from typing import Any

from kpipe_stages.zoo.case import IMAGE, VECTOR, Case, Given, Unit

NAMES = (
    "celu", "elu", "exponential", "gelu", "glu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_tanh", "leaky_relu", "linear", "log_sigmoid", "log_softmax",
    "mish", "relu", "relu6", "selu", "sigmoid", "silu", "soft_shrink", "softmax", "softplus", "softsign", "sparse_plus", "sparse_sigmoid", "sparsemax",
    "squareplus", "tanh", "tanh_shrink", "threshold",
)  # fmt: skip
WIDE = Given((8,), draw="wide")


def _unit(name: str) -> Unit:
    def call(keras: Any, x: Any) -> Any:
        return keras.ops.threshold(x, 0.5, 0.0) if name == "threshold" else keras.layers.Activation(name)(x)

    def layer(keras: Any, x: Any) -> Any:
        return keras.layers.Dense(4, activation=name)(x)

    cases = [
        Case(name, "float32", (WIDE,), call),
        Case(name, "image", (IMAGE if name != "glu" else Given((8, 8, 4)),), call),
        Case(name, "float16", (WIDE.of("float16"),), call),
    ]
    if name != "threshold":  # its arguments have no default, so no layer can name it
        cases.append(Case(name, "of a Dense", (VECTOR,), layer))
    return Unit(name, "activations", (name,), tuple(cases))


UNITS: tuple[Unit, ...] = (
    *(_unit(name) for name in NAMES if name != "gelu"),
    Unit(
        "gelu",
        "activations",
        ("gelu",),
        (
            *_unit("gelu").cases,
            Case("gelu", "approximate", (WIDE,), lambda k, x: k.ops.gelu(x, approximate=True)),
        ),
    ),
)

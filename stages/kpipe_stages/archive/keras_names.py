"""Which names of Keras a model may be made of, as `keras.saving` resolves them (keras 3.15, ``saving/serialization_lib.py``).

Keras looks a name up among its public symbols, functions like ``get_file`` and ``load_model`` included, and then imports any ``keras.*`` module
for a class that has weights. Only what computes, or says how to compute, belongs into a model.
"""

from __future__ import annotations

import re

CLASS_NAME = re.compile(r"_?[A-Z][A-Za-z0-9_]*\Z")
"""Classes are in capitals; ``deserialize``, ``load_model``, ``get_file`` and other functions are not."""

PUBLIC_MODULES = frozenset(
    {
        "keras.constraints",
        "keras.distillation",
        "keras.dtype_policies",
        "keras.initializers",
        "keras.layers",
        "keras._legacy.layers",
        "keras.losses",
        "keras.metrics",
        "keras.optimizers",
        "keras.optimizers.schedules",
        "keras.quantizers",
        "keras.regularizers",
    }
)
PUBLIC_CLASSES = frozenset(
    {
        *(f"keras.{name}" for name in ("DTypePolicy", "FloatDTypePolicy", "Function", "Model", "Sequential")),
        *(f"keras.models.{name}" for name in ("Functional", "Model", "Sequential")),
        "keras.random.SeedGenerator",
        "keras.utils.FeatureSpace",
    }
)
PRIVATE_PACKAGES = tuple(
    f"keras.src.{name}."
    for name in ("activations", "distillation", "layers", "legacy.layers", "losses", "metrics", "models", "ops", "optimizers", "quantizers")
)
PRIVATE_MODULES = frozenset(
    {
        "keras.src.applications.convnext",
        "keras.src.applications.inception_resnet_v2",
        "keras.src.utils.jax_layer",
        *(p[:-1] for p in PRIVATE_PACKAGES),
    }
)

CODE_CLASSES = {
    "Lambda": "runs a function of its own",
    "TorchModuleWrapper": "unpickles a PyTorch module",
    "TFSMLayer": "runs a SavedModel from another place",
}
"""Layers that bring code or fetch it. Keras loads them only with ``safe_mode=False``."""

FILE_FIELDS = {"StringLookup": "vocabulary", "IntegerLookup": "vocabulary", "TextVectorization": "vocabulary", "IndexLookup": "vocabulary"}
"""Where a string is the path of a file that the layer opens."""

SPECIAL_CLASSES = frozenset({"__keras_tensor__", "__tensor__", "__numpy__", "__bytes__", "__slice__", "__ellipsis__"})
ARRAY_DTYPE = re.compile(r"(bool|u?int(8|16|32|64)|b?float(16|32|64)|float8_e4m3fn|float8_e5m2|complex(64|128)|string)\Z")
"""Dtypes of a constant in a config; ``U500000000`` would allocate two gigabytes for one letter."""

_ACTIVATIONS = """
celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_tanh leaky_relu linear log_sigmoid log_softmax mish relu relu6 selu
sigmoid silu soft_shrink softmax softplus softsign sparse_plus sparse_sigmoid sparsemax squareplus tanh tanh_shrink threshold
"""
_LOSSES = """
categorical_generalized_cross_entropy circle cosine_similarity ctc dice huber log_cosh tversky
"""
_METRICS = """
binary_accuracy binary_crossentropy binary_focal_crossentropy categorical_accuracy categorical_crossentropy categorical_focal_crossentropy
categorical_hinge concordance_correlation hinge kl_divergence mean_absolute_error mean_absolute_percentage_error mean_squared_error
mean_squared_logarithmic_error pearson_correlation poisson sparse_categorical_accuracy sparse_categorical_crossentropy
sparse_top_k_categorical_accuracy squared_hinge top_k_categorical_accuracy
"""
FUNCTION_MODULES = {
    "keras.activations": frozenset(_ACTIVATIONS.split()),
    "keras.losses": frozenset(_LOSSES.split()),
    "keras.metrics": frozenset(_METRICS.split()),
}
FUNCTIONS = frozenset().union(*FUNCTION_MODULES.values())
"""Functions that Keras finds by name alone (module ``builtins``)."""


def is_keras(module: str) -> bool:
    """Whether Keras takes the module for its own."""
    return module == "keras" or module.startswith("keras.")


def is_modelling_class(module: str, name: str) -> bool:
    """Whether a class of Keras is one that models are made of."""
    if f"{module}.{name}" in PUBLIC_CLASSES:
        return True
    if f"{module}.{name}" == "keras.layers.Input":  # a function in capitals
        return False
    known = module in PUBLIC_MODULES or module in PRIVATE_MODULES or module.startswith(PRIVATE_PACKAGES)
    return known and bool(CLASS_NAME.match(name))


def is_modelling_function(module: str, name: str) -> bool:
    """Whether a function of Keras, referred to by name, is an activation, a loss or a metric."""
    if module == "builtins":
        return name in FUNCTIONS
    return name in FUNCTION_MODULES.get(module, frozenset())

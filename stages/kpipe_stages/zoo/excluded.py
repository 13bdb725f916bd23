"""Public names that are no unit, each with the reason."""

from __future__ import annotations

_PLUMBING = "turns configurations into objects and back; computes nothing"
_BASE = "a base class; its subclasses are units"

LAYERS: dict[str, str] = {
    "FlaxLayer": "wraps another framework's module, on the JAX backend only; a .keras file with one can't be reloaded on TensorFlow",
    "Input": "every model of the zoo begins with one",
    "InputLayer": "every model of the zoo begins with one",
    "InputSpec": "describes an input; computes nothing",
    "JaxLayer": "wraps a JAX function; a .keras file with one can't be reloaded on another backend without that code",
    "Lambda": "carries Python bytecode in the archive, which kpipe refuses (KP006) unless the contract names the layer",
    "Layer": _BASE,
    "MaxNumBoundingBoxes": "takes dictionaries of boxes in a training pipeline; no inference model holds it",
    "TFSMLayer": "wraps a SavedModel by its path, which isn't in the .keras file",
    "TorchModuleWrapper": "wraps another framework's module, on the PyTorch backend only",
    "Wrapper": _BASE,
    "deserialize": _PLUMBING,
    "serialize": _PLUMBING,
}

ACTIVATIONS: dict[str, str] = {"deserialize": _PLUMBING, "get": _PLUMBING, "serialize": _PLUMBING}

_CONSTANT = "makes a constant of numbers known when the model is built; no op of a graph that depends on an input"
_PYTHON = "answers about a tensor in Python, while the model is built"
_CODE = "takes a Python function, which a functional model can't save; the zoo's custom layers would be code in the archive"
_TRAINING = "for training: losses and gradients"
_NAMESPACE = "a module; its ops are units under their own names"
_COMPLEX = "gives or takes complex numbers, which no output of a served model may be; as parts inside a model: stft, istft, rfft"

OPS: dict[str, str] = {
    **dict.fromkeys(("arange", "array", "bartlett", "blackman", "empty", "eye", "full", "geomspace", "hamming", "hanning", "identity", "kaiser", "linspace",
                     "logspace", "meshgrid", "ones", "tri", "zeros"), _CONSTANT),
    **dict.fromkeys(("convert_to_numpy", "convert_to_tensor", "dtype", "is_tensor", "isreal", "ndim", "shape", "size"), _PYTHON),
    **dict.fromkeys(("associative_scan", "cond", "custom_gradient", "fori_loop", "map", "scan", "switch", "vectorize", "vectorized_map", "while_loop"), _CODE),
    **dict.fromkeys(("binary_crossentropy", "categorical_crossentropy", "ctc_loss", "jvp", "sparse_categorical_crossentropy", "stop_gradient"), _TRAINING),
    **dict.fromkeys(("image", "linalg", "nn", "numpy"), _NAMESPACE),
    **dict.fromkeys(("angle", "conj", "conjugate", "eig", "fft", "fft2", "ifft2", "imag", "polar", "real", "view_as_complex", "view_as_real"), _COMPLEX),
    "empty_like": "its values are whatever lay in memory",
    "nonzero": "its output has as many entries as the values say; no output shape can be declared",
    "unique": "its output has as many entries as the values say; no output shape can be declared",
    "argpartition": "the order within its two parts isn't defined, so two right answers differ",
}  # fmt: skip

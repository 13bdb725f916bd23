"""Three ways out for a layer or op that a target can't take. Each was seen to work in the table of `kpipe compatibility`, or is another target."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Remedy:
    """Ways out by target, code and what the message names."""

    targets: str
    """Regular expression over the target's runtime."""
    names: str
    """Likewise over ops, layer class and cause."""
    ways: tuple[str, str, str]


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        "litert",
        r"TensorList|ConvLSTM|takes batches of",
        (
            "leave [export] repairs on and serve one row at a time: at batch 1 LSTM, GRU and SimpleRNN are LiteRT's own ops",
            "build the layer with unroll=True and a fixed number of steps, which keeps the batch axis free",
            "replace the recurrence by Conv1D or attention, or serve this model on ONNX Runtime or OpenVINO",
        ),
    ),
    Remedy(
        "litert",
        r"float16|bfloat16|xf16|xbf16|half",
        (
            "save the model under the float32 policy (the weights are float32 in a mixed_float16 model anyway)",
            "convert that float32 model with float16 weights, which LiteRT takes",
            "serve the mixed-precision model as a SavedModel",
        ),
    ),
    Remedy(
        "litert|onnxruntime|openvino|keras_openvino|jax",
        r"LookupTable|StringSplit|StaticRegex|StringToHash|StringLower|TextVectorization|StringLookup|string",
        (
            'move the layer out of the model, into the preprocessing of the contract ([inputs.NAME] decode = "module:function")',
            "serve this model as a SavedModel, where strings and tables are TensorFlow's own",
            "give the model integers: look words up before it, and keep Embedding as its first layer",
        ),
    ),
    Remedy(
        "onnxruntime",
        r"\bErfc\b|gelu",
        (
            "leave [export] repairs on: Erfc is then written as 1 - Erf",
            "use gelu(approximate=True) or silu",
            "serve it on LiteRT or OpenVINO, which have the op",
        ),
    ),
    Remedy(
        "litert",
        r"Flex|TensorFlow's own|Select TF",
        (
            "replace the layer by one whose ops are LiteRT's own (docs/compatibility.md lists them)",
            "set [export] allow_select_tf = true and ship a LiteRT runtime built with TensorFlow's ops (ai-edge-litert from the package index has none)",
            "serve this model on ONNX Runtime, OpenVINO or as a SavedModel",
        ),
    ),
    Remedy(
        "onnxruntime",
        r".",
        (
            "replace the layer by one whose ops ONNX has (docs/compatibility.md lists them)",
            "serve this model on OpenVINO, converted from the SavedModel: that road doesn't pass through ONNX",
            "move the layer out of the model, into the preprocessing or behind the decision",
        ),
    ),
    Remedy(
        "openvino|openvino_ir",
        r".",
        (
            "replace the layer by one whose ops OpenVINO has (docs/compatibility.md lists them)",
            'hand OpenVINO the ONNX file: artifact = "model.onnx" on the target, where that one works',
            "serve this model on LiteRT, ONNX Runtime or as a SavedModel",
        ),
    ),
    Remedy(
        "keras_openvino",
        r".",
        (
            "use the openvino target, which converts the SavedModel and has more ops than Keras' OpenVINO backend",
            "replace the layer (docs/compatibility.md)",
            "leave keras_openvino out of the contract, or required = false",
        ),
    ),
)

GENERAL = (
    "replace the layer by one that works there (docs/compatibility.md)",
    "move the layer out of the model: into the preprocessing of the contract, or behind its outputs",
    "leave this target out of the contract, or required = false",
)
"""Where nothing more is known."""


def ways_out(runtime: str, text: str) -> tuple[str, str, str]:
    """Three ways, for the runtime of a target and all that its message names."""
    for remedy in REMEDIES:
        if re.fullmatch(remedy.targets, runtime) and re.search(remedy.names, text):
            return remedy.ways
    return GENERAL

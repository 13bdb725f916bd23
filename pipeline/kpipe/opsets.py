"""Named sets of ops that a target may use, as facts with their source; and which version of ONNX Runtime reads which opset. Pure data and look-ups.

`LITERT_MICRO`: the ops that TensorFlow Lite Micro's own resolver of all kernels registers (``python/tflite_micro/python_ops_resolver.cc`` of
tensorflow/tflite-micro at commit 85e19ddd, the successor of ``all_ops_resolver.cc``), in the names of the LiteRT schema. Its custom kernels for
signals have no counterpart in a Keras model and are left out. An op in the set may still lack a dtype there: the set says no more than that
there is a kernel.

`RUNTIME_OF_OPSET`: the compatibility table of ONNX Runtime's documentation (``docs/reference/compatibility``), the first release for each opset
of the domain ai.onnx. Opsets that aren't in it are not known here, which is never taken for fine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LITERT_MICRO = frozenset(
    """
    ABS ADD ADD_N ARG_MAX ARG_MIN ASSIGN_VARIABLE AVERAGE_POOL_2D BATCH_MATMUL BATCH_TO_SPACE_ND BROADCAST_ARGS BROADCAST_TO CALL_ONCE CAST CEIL
    CONCATENATION CONV_2D COS CUMSUM DEPTH_TO_SPACE DEPTHWISE_CONV_2D DEQUANTIZE DIV ELU EMBEDDING_LOOKUP EQUAL EXP EXPAND_DIMS FILL FLOOR FLOOR_DIV
    FLOOR_MOD FULLY_CONNECTED GATHER GATHER_ND GREATER GREATER_EQUAL HARD_SWISH IF L2_NORMALIZATION L2_POOL_2D LEAKY_RELU LESS LESS_EQUAL LOG
    LOG_SOFTMAX LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC MAX_POOL_2D MAXIMUM MEAN MINIMUM MIRROR_PAD MUL NEG NOT_EQUAL PACK PAD PADV2 PRELU
    QUANTIZE READ_VARIABLE REDUCE_MAX RELU RELU6 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR ROUND RSQRT SELECT_V2 SHAPE SIN SLICE SOFTMAX
    SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT SPLIT_V SQRT SQUARE SQUARED_DIFFERENCE SQUEEZE STRIDED_SLICE SUB SUM SVDF TANH TRANSPOSE TRANSPOSE_CONV
    UNIDIRECTIONAL_SEQUENCE_LSTM UNPACK VAR_HANDLE WHILE ZEROS_LIKE
    """.split()  # noqa: SIM905 - a hundred names in quotes read worse
)

RUNTIME_OF_OPSET = {
    7: (0, 1), 8: (0, 1), 9: (0, 3), 10: (0, 4), 11: (1, 0), 12: (1, 3), 13: (1, 6), 14: (1, 8), 15: (1, 9), 16: (1, 11), 17: (1, 12), 18: (1, 14), 19: (1, 15),
    20: (1, 17), 21: (1, 18),
}  # fmt: skip
"""Opset of ai.onnx to the first release of ONNX Runtime, major and minor."""

LITERT, ONNX, OPENVINO = "litert", "onnx", "openvino"
NAMES = ("litert-builtin", "litert-select-tf", "tflite-micro", "onnx-opset-N", "onnxruntime-1.N", "openvino-DEVICE")
"""As the contract writes them; N a number, DEVICE what OpenVINO calls one: CPU, GPU, NPU."""


@dataclass(frozen=True)
class NamedProfile:
    """A profile by its name."""

    name: str
    format: str
    """What it is about: ``litert``, ``onnx`` or ``openvino``."""
    opset: int = 0
    """``onnx-opset-N``."""
    runtime: tuple[int, int] = (0, 0)
    """``onnxruntime-1.N``."""
    device: str = ""
    """``openvino-DEVICE``."""


def named_profile(name: str) -> NamedProfile | None:
    """The profile of that name, None where there is none."""
    if name in {"litert-builtin", "litert-select-tf", "tflite-micro"}:
        return NamedProfile(name, LITERT)
    if found := re.fullmatch(r"onnx-opset-(\d{1,3})", name):
        return NamedProfile(name, ONNX, opset=int(found[1]))
    if found := re.fullmatch(r"onnxruntime-(\d{1,2})\.(\d{1,3})", name):
        return NamedProfile(name, ONNX, runtime=(int(found[1]), int(found[2])))
    if found := re.fullmatch(r"openvino-([A-Z]{3,8}(?:\.\d)?)", name):
        return NamedProfile(name, OPENVINO, device=found[1])
    return None

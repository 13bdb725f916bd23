"""The causes behind the cells that aren't green, as they were found by looking at every one: whose they are, a minimal model, the way out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kpipe.compatibility.result import CaseRow, Cell


@dataclass(frozen=True)
class Fault:
    """One cause."""

    title: str
    runtimes: tuple[str, ...]
    statuses: tuple[str, ...]
    reason: str
    """Regular expression that is searched for in the cell's reason."""
    rows: str
    """Likewise in ``unit: config``."""
    cause: str
    model: str
    way_out: str


_EVERY = ("jax", "tensorflow", "saved_model", "litert", "onnxruntime", "openvino", "openvino_ir", "keras_openvino")
_EXPORTED = ("saved_model", "litert", "onnxruntime", "openvino", "openvino_ir")
_OPENVINO = ("openvino", "openvino_ir")
_REFUSED = ("load fails", "export fails", "run fails")
_NAME = "See the op that the reason names."

FAULTS: tuple[Fault, ...] = (
    # Keras
    Fault("Keras: the config of the layer or op can't be read back", ("jax", "tensorflow", "keras_openvino", *_EXPORTED), ("no model",), r"can't reload", r"",
          "get_config writes what the constructor refuses: RandomShear's range about zero, a tuple that JSON turns into a list.",
          "keras.layers.RandomShear(x_factor=0.2)", "Give scalars where the op takes them; leave RandomShear out of a model that is saved."),
    Fault("Keras: no functional model can be built", _EVERY, ("no model",), r"build or save", r"",
          "Symbolic calls fail: Equalization returns its own input, correlate and rearrange want sizes that a free batch axis hasn't.",
          "keras.layers.Equalization(value_range=(0, 255))", "Do it in the preprocessing, or in a subclassed layer."),
    Fault("Keras on TensorFlow can't trace the op with a free batch axis", _EXPORTED, ("export fails",), r"can't trace", r"",
          "The backend's own code computes with sizes or values in Python while it is traced.", "keras.ops.gcd(x, y)",
          "Fix the batch axis in the model's input, or use another op."),
    Fault("Keras: lists for tuples after reloading", ("jax",), ("run fails",), r"Non-hashable static|reduce_window got inconsistent|inconsistent window", r"",
          "An op's tuple argument comes back from the archive as a list, or its data format as None, which the JAX backend doesn't take.", "keras.ops.norm(x, axis=-1)",
          "Wrap the op in a layer with a config of its own."),
    Fault("Keras: JAX and TensorFlow differ", _EVERY, ("differs",), r"says the same|^output", r"RandomCrop|uint8$|sobel|corrcoef|unravel|Resizing: bicubic$",
          "The backends return other dtypes, layouts or (bicubic) other weights; every export follows TensorFlow.", "keras.layers.Resizing(5, 6) on uint8",
          "Train and export with the op in float32, and hold the deployed model against TensorFlow ([model] backend)."),
    Fault("Keras on JAX has no float64", ("jax",), ("differs",), r"float32 for float64", r"", "JAX computes in float32 unless JAX_ENABLE_X64 is set, whatever the policy.",
          'keras.layers.Dense(4, dtype="float64")', "Use float32, or train and judge on TensorFlow."),
    Fault("Keras on OpenVINO has no float64", ("keras_openvino",), ("differs",), r"float32 for float64|float64 for float32", r"", "The backend computes in float32.",
          'keras.layers.Dense(4, dtype="float64")', "Use float32."),
    Fault("Text on JAX and on OpenVINO", ("jax", "keras_openvino"), ("run fails", "crashed"), r"string|SIGSEGV|Currently, string", r"",
          "These backends have no strings; Keras' OpenVINO backend ends the process (SIGSEGV) on StringLookup with invert=True.", "keras.layers.StringLookup(vocabulary=v, invert=True)",
          "Move text out of the model, into the preprocessing of the contract."),
    Fault("JAX: attention in float16 on a CPU", ("jax",), ("run fails",), r"F16_F16_F32", r"", "XLA's CPU backend has no float16 product that sums in float32.",
          'keras.layers.MultiHeadAttention(2, 4, dtype="mixed_float16")', "Judge such a model on TensorFlow ([model] backend), or use float32."),
    Fault("TensorFlow: 3-D pooling in float16 on a CPU", ("tensorflow", "saved_model"), ("run fails",), r"No OpKernel.*Pool3D", r"", "There is no such kernel.",
          'keras.layers.MaxPooling3D(2, dtype="mixed_float16")', "Use float32 for this layer."),
    Fault("Other refusals of Keras' own backends", ("jax", "tensorflow"), ("run fails", "differs", "shape lost"), r"", r"ops, ", "The op of one backend takes other arguments, or batches, than that of the other.",
          "keras.ops.lu_factor(x)", "Use another op, or one of the backend that has it."),
    Fault("searchsorted on batches", ("saved_model", *_OPENVINO), ("shape lost",), r"", r"searchsorted", "TensorFlow's LowerBound wants as many sorted rows as rows of values; the graph has one.",
          "keras.ops.searchsorted(edges, x)", "Broadcast the edges to the batch."),
    Fault("OpenVINO: an output that no input reaches by name", _OPENVINO, ("load fails",), r"unnamed", r"", "The frontend loses the output's name; kpipe binds by name only.", "keras.ops.inner(x[0], w)",
          "Run the ONNX file on OpenVINO."),
    # LiteRT
    Fault("LiteRT: float16, bfloat16 and float64 kernels", ("litert",), _REFUSED, r"Flex|operand|Select TensorFlow|fully_connected|celu|Expm1|not supported|rank|Invalid data-type|Can't|failed", r"float16|bfloat16|float64",
          "LiteRT computes in float32 and in quantised integers; the converter leaves other floats to TensorFlow's ops, which no LiteRT runtime on the package index holds.",
          'keras.layers.Dense(4, dtype="mixed_float16")', "Save the model under the float32 policy, then convert with float16 weights."),
    Fault("LiteRT: recurrent layers at batch 1 only", ("litert",), ("shape lost",), r"batches of 1", r"", "With a free batch axis the loop needs TensorList ops, which LiteRT lacks; kpipe's repair fixes the axis at 1.",
          "keras.layers.LSTM(3)", "Serve one row at a time, or build with unroll=True."),
    Fault("LiteRT: no such op", ("litert",), _REFUSED, r"Flex|neither a custom op|Select TensorFlow", r"", f"LiteRT has no op for it. {_NAME}", "keras.layers.MaxPooling3D(2)",
          "Replace the layer, or serve the model on another runtime."),
    Fault("LiteRT: infinities aren't told", ("litert",), ("differs",), r"", r"special numbers", "isinf, isposinf, isneginf and nan_to_num treat an infinity as a number: an answer, and it is wrong.",
          "keras.ops.isinf(x)", "Clip before the op."),
    Fault("Keras' int8 models", ("litert", *_OPENVINO), ("export fails", "differs", "load fails"), r"", r"int8 by Keras|int4 by Keras",
          "LiteRT's converter takes no int8 matrix in a float graph; OpenVINO reads the SavedModel and computes other numbers, without an error.", 'model.quantize("int8")',
          "Quantise at export instead, or run the ONNX file on OpenVINO."),
    # channels first and groups
    Fault("Conv1D with channels first, converted", ("litert", "onnxruntime", *_OPENVINO), ("differs",), r"", r"Conv1D: channels first", "An answer without an error: LiteRT has an axis too many, ONNX and OpenVINO have other numbers.",
          'keras.layers.Conv1D(4, 3, data_format="channels_first")', "Permute around a channels-last Conv1D."),
    Fault("3-D convolutions: groups, dilation, channels first", ("litert", "onnxruntime", *_OPENVINO), (*_REFUSED, "differs"), r"", r"Conv3D: (groups|dilated|channels)", "The converters write a file that the kernels refuse.",
          "keras.layers.Conv3D(4, 3, groups=2)", "Split and concatenate by hand."),
    Fault("ONNX: output_padding", ("onnxruntime",), ("load fails", "differs"), r"", r"Transpose: .*output padding", "tf2onnx writes a ConvTranspose that is refused, or (with free sizes) gives a border of zeros without an error.",
          "keras.layers.Conv2DTranspose(4, 3, strides=2, output_padding=1)", 'Use padding="same" without output_padding.'),
    Fault("TimeDistributed with a free time axis", _EXPORTED, ("differs",), r"shape", r"TimeDistributed", "The graph takes the batch size for the number of steps.", "keras.layers.TimeDistributed(keras.layers.Dense(3))",
          "Fix the number of steps, or apply the layer directly (Dense takes any rank)."),
    # ONNX Runtime
    Fault("Division of negative integers truncates", ("onnxruntime", "keras_openvino"), ("differs",), r"", r"division with a rest", "ONNX's Div and Mod on integers truncate towards zero; Keras floors.", "keras.ops.floor_divide(a, b) on int32",
          "Divide floats and floor them."),
    Fault("ONNX Runtime: NaN in nan_to_num, nanstd and nanvar", ("onnxruntime",), ("differs",), r"inf", r"", "A product with NaN isn't masked: an answer, and it is wrong.", "keras.ops.nanstd(x, axis=-1)",
          "Use where(isnan(x), ...) before the op."),
    Fault("Scattering to one place twice", ("onnxruntime", *_OPENVINO), ("differs",), r"", r"scatter", "Keras adds what is scattered to one index; the converted op keeps the last (2.599 for 2.599 - 0.143).", "keras.ops.scatter([[0], [0]], values, (5, 1))",
          "Add with segment_sum, or a product with one_hot."),
    Fault("ONNX: no such op", ("onnxruntime",), ("load fails", "export fails"), r"has no op|has no|lookup tables|RFFT|negative dimensions|cast type|failed", r"",
          f"tf2onnx writes the TensorFlow op as it is, and ONNX Runtime refuses it. {_NAME}", 'keras.layers.Activation("celu")', "Replace the op (celu by elu, log1p(x) by log(1 + x)), or use OpenVINO from the SavedModel."),
    Fault("ONNX: types and kernels", ("onnxruntime",), ("load fails", "run fails"), r"", r"", "The file's types don't match, or ONNX Runtime's CPU has no kernel for the dtype (bfloat16, float64 in LSTM, bicubic without a fitting mode).",
          'keras.layers.Dense(4, dtype="bfloat16")', "Use float32."),
    Fault("float16 for bfloat16", ("onnxruntime", "keras_openvino"), ("differs",), r"float16 for bfloat16", r"", "Keras on OpenVINO gives bfloat16's bits under the name float16; tf2onnx casts to float16 where the model says bfloat16.", 'keras.layers.Dense(4, dtype="bfloat16")', "Cast to float32 in the model."),
    # OpenVINO
    Fault("OpenVINO: no conversion rule", _OPENVINO, ("load fails", "export fails"), r"has no op|no conversion rule|couldn't be converted|OpConversionFailure", r"", f"OpenVINO's TensorFlow frontend has none. {_NAME}", "keras.layers.CategoryEncoding(6)",
          "Replace the layer, or move it out of the model."),
    Fault("OpenVINO: greedy CTC decoding", _OPENVINO, ("differs",), r"", r"ctc_decode", "It gives an output of another shape.", 'keras.ops.ctc_decode(x, n, strategy="greedy")', "Decode behind the model."),
    Fault("Keras on OpenVINO: resizing and upsampling", ("keras_openvino",), ("differs",), r"", r"Resizing|UpSampling2D", "Nearest, bicubic and antialiased bilinear are computed otherwise: an answer, and it is wrong.",
          'keras.layers.Resizing(5, 6, interpolation="nearest")', "Use the openvino target, which converts the SavedModel."),
    Fault("Keras on OpenVINO: inverse from a Cholesky factor", ("keras_openvino",), ("differs",), r"", r"cholesky_inverse", "Other numbers, without an error.",
          "keras.ops.cholesky_inverse(x)", "Invert with inv, or use the openvino target."),
    Fault("Keras on OpenVINO: not implemented, or no free axis", ("keras_openvino",), ("run fails",), r"", r"", "The backend lacks the op, or can't compute a size while it builds the graph.", "keras.layers.MixUp()",
          "Use the openvino target, which converts the SavedModel."),
)  # fmt: skip


def fault_of(runtime: str, row: CaseRow, cell: Cell) -> Fault | None:
    """The cause of a cell, None where it works or nobody has looked at it yet."""
    for fault in FAULTS:
        if (
            runtime in fault.runtimes
            and cell.status.value in fault.statuses
            and re.search(fault.reason, cell.reason)
            and re.search(fault.rows, f"{row.unit}: {row.config}")
        ):
            return fault
    return None

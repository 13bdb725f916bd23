"""Which Keras layers an op of an artifact comes from, by the TensorFlow ops that its converter makes it of.

Only TensorFlow's own formats keep the path of an op. LiteRT and ONNX keep some, under names that converters change; OpenVINO names what its
passes have made anew by number (`Transpose_10326`). What they all keep is the kind: a Convolution comes from a layer that had a Conv2D.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAMED_LAYERS = 4
"""As many layers are named for an op at most."""
TF_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "saved_model": {},
    "litert": {
        "FULLY_CONNECTED": ("MatMul", "BatchMatMulV2"),
        "BATCH_MATMUL": ("BatchMatMulV2", "MatMul"),
        "DEPTHWISE_CONV_2D": ("DepthwiseConv2dNative",),
        "AVERAGE_POOL_2D": ("AvgPool",),
        "MAX_POOL_2D": ("MaxPool",),
        "LOGISTIC": ("Sigmoid",),
        "TRANSPOSE_CONV": ("Conv2DBackpropInput",),
        "DIV": ("RealDiv",),
        "GELU": ("Erfc",),
        "GATHER": ("GatherV2", "ResourceGather"),
        "WHILE": ("StatelessWhile", "While"),
    },
    "onnx": {
        "Gemm": ("MatMul",),
        "Conv": ("Conv2D", "DepthwiseConv2dNative", "Conv3D"),
        "AveragePool": ("AvgPool",),
        "GlobalAveragePool": ("Mean",),
        "ReduceMean": ("Mean",),
        "ConvTranspose": ("Conv2DBackpropInput",),
        "Div": ("RealDiv",),
        "Erf": ("Erfc",),
        "Gather": ("GatherV2", "ResourceGather"),
    },
    "openvino_ir": {
        "MatMul": ("MatMul", "BatchMatMulV2"),
        "Convolution": ("Conv2D", "Conv3D"),
        "GroupConvolution": ("DepthwiseConv2dNative", "Conv2D"),
        "ConvolutionBackpropData": ("Conv2DBackpropInput", "Conv3DBackpropInputV2"),
        "AvgPool": ("AvgPool", "AvgPool3D"),
        "MaxPool": ("MaxPool", "MaxPool3D"),
        "ReduceMean": ("Mean",),
        "ReduceSum": ("Sum",),
        "ReduceMax": ("Max",),
        "ReduceMin": ("Min",),
        "ReduceProd": ("Prod",),
        "ReduceLogicalAnd": ("All",),
        "ReduceLogicalOr": ("Any",),
        "Add": ("BiasAdd", "AddV2", "FusedBatchNormV3"),
        "Subtract": ("Sub",),
        "Multiply": ("Mul", "FusedBatchNormV3"),
        "Divide": ("RealDiv",),
        "Power": ("Pow", "Rsqrt", "Square"),
        "Swish": ("Sigmoid",),
        "Gelu": ("Erfc", "Erf", "Tanh"),
        "Clamp": ("Relu6", "Minimum", "Maximum", "ClipByValue"),
        "Convert": ("Cast",),
        "Gather": ("GatherV2", "ResourceGather"),
        "Concat": ("ConcatV2",),
        "Unsqueeze": ("ExpandDims", "Pack"),
        "Broadcast": ("BroadcastTo", "Fill"),
        "Interpolate": ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic"),
        "VariadicSplit": ("Split", "SplitV"),
        "TopK": ("TopKV2", "ArgMax", "ArgMin"),
        "MVN": ("Mean", "SquaredDifference"),
        "Loop": ("StatelessWhile", "While"),
        "TensorIterator": ("StatelessWhile", "While"),
        "LSTMSequence": ("StatelessWhile", "While"),
        "GRUSequence": ("StatelessWhile", "While"),
        "RNNSequence": ("StatelessWhile", "While"),
        "If": ("StatelessIf", "If"),
    },
}
"""Format and op to the TensorFlow ops that a converter makes it of, where the names differ by more than case and underscores."""


def layers_of(kind: str, op: str, known: Mapping[str, Sequence[str]]) -> list[str]:
    """The layers that an op comes from, once each; empty where that can't be told.

    Args:
        kind: the artifact's format.
        op: as the format spells it.
        known: op to layers: of TensorFlow's ops, or of this format's own.
    """
    plain = op.removeprefix("Flex")
    others = TF_NAMES[kind].get(plain, ())
    names = (plain, *others) if kind == "saved_model" else (plain, *others, plain.replace("_", "").lower())
    lowered = {name.lower().removesuffix("v2").removesuffix("v3"): name for name in known}
    found = [known.get(name) or known.get(lowered.get(name.lower(), ""), ()) for name in names]
    return list(dict.fromkeys(place for places in found for place in places))

"""Faults in an export: an artifact that isn't what the candidate says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.selftest.fault import Family, Fault, FileFault, edit

if TYPE_CHECKING:
    from kpipe_stages.plant_orders import Edit

NUMBERS = frozenset({"export"})
SHAPES = frozenset({"export", "signature"})
COMPANY = frozenset({"export", "batch"})


def _made(name: str, change: Edit, *subjects: str, runtime: str = "litert", edges: frozenset[str] = NUMBERS) -> Fault:
    """The artifact was made from a changed model."""
    return Fault(name, Family.EXPORT, edges, frozenset(subjects), runtime, FileFault("keras", (change,)))


def _onnx(name: str, change: Edit, *subjects: str, edges: frozenset[str] = NUMBERS) -> Fault:
    """The healthy ONNX file was changed."""
    return Fault(name, Family.EXPORT, edges, frozenset(subjects), "onnxruntime", FileFault("onnx", (change,)))


def _litert(name: str, change: Edit, *subjects: str, edges: frozenset[str] = NUMBERS) -> Fault:
    """The healthy LiteRT file was changed."""
    return Fault(name, Family.EXPORT, edges, frozenset(subjects), "litert", FileFault("litert", (change,)))


def _converted(name: str, kind: str, *subjects: str) -> Fault:
    """LiteRT was converted with other options."""
    return Fault(
        name, Family.EXPORT, frozenset({"export", "precision", "signature"}), frozenset(subjects), "litert", FileFault("convert", (edit(kind),))
    )


FAULTS = (
    _made("padding valid for same", edit("set_key", key="padding", old="same", new="valid", most=1), "swatch"),
    _made("epsilon 1e-5 for 1e-3", edit("set_key", key="epsilon", old=None, new=1e-5), "swatch", "pair"),
    _made("GELU by tanh", edit("activation", old="gelu", new="gelu_tanh", custom=True), "tokens", "pair"),
    _made("hard sigmoid for sigmoid", edit("activation", old="sigmoid", new="hard_sigmoid"), "pair", runtime="onnxruntime"),
    _made("ReLU for SiLU", edit("activation", old="silu", new="relu"), "swatch"),
    _made("softmax twice", edit("softmax_twice"), "tokens"),
    _made("sigmoid for softmax", edit("sigmoid_for_softmax"), "tokens", runtime="onnxruntime"),
    _made("logits for probabilities", edit("logits"), "swatch"),
    _made("outputs exchanged", edit("swap_outputs"), "pair", edges=SHAPES),
    _made("inputs exchanged", edit("swap_inputs"), "pair", runtime="onnxruntime", edges=SHAPES),
    _made("width for height", edit("width_for_height"), "swatch"),
    _made("channels first read as last", edit("channels_first"), "swatch"),
    _made("upside down", edit("flip", axis=1), "swatch", runtime="onnxruntime"),
    _made("rescaled inside too", edit("rescaled", scale=1.0 / 255.0), "swatch"),
    _made("batch axis frozen at 1", edit("freeze_batch", size=1), "tokens", edges=SHAPES | COMPANY),
    _made("batch axis frozen at 4", edit("freeze_batch", size=4), "pair", runtime="onnxruntime", edges=SHAPES | COMPANY),
    _made("neighbour's answer in a batch", edit("roll_batch"), "tokens", runtime="onnxruntime", edges=COMPANY),
    _made("batch statistics at inference", edit("batch_statistics"), "pair", runtime="onnxruntime", edges=COMPANY),
    _made("last class cut off", edit("fewer_classes"), "tokens", edges=SHAPES),
    _made("last class always zero", edit("last_class_zero"), "tokens"),
    _made("classes one further", edit("classes_shifted"), "tokens", runtime="onnxruntime", edges=SHAPES),
    _converted("float16 weights", "float16", "swatch"),
    _converted("int8 weights", "dynamic"),
    _converted("int8, calibrated", "int8", "swatch"),
    _converted("int8, calibrated on other data", "int8_wrong", "swatch"),
    _onnx("ONNX: one number off by a hundredth", edit("one_number", add=1e-2), "pair"),
    _onnx("ONNX: one number off by 1e-5", edit("one_number", add=1e-5), "tokens"),
    _onnx("ONNX: weights as float16", edit("rounded"), "tokens"),
    _onnx("ONNX: a bias lost", edit("zero_vector"), "swatch"),
    _onnx("ONNX: padding at the end", edit("shifted_pads"), "swatch"),
    _onnx("ONNX: dilated convolution", edit("attribute", op="Conv", name="dilations", to=[2, 2]), "swatch", edges=SHAPES),
    _onnx("ONNX: average for maximum", edit("op_for", old="MaxPool", new="AveragePool"), "swatch"),
    _onnx("ONNX: Tanh for Erf", edit("op_for", old="Erf", new="Tanh"), "tokens"),
    _onnx("ONNX: two tensors exchanged", edit("swap_alike"), "tokens"),
    _onnx("ONNX: outputs listed the other way round", edit("reorder_outputs"), "pair", edges=SHAPES),
    _onnx("ONNX: output with another name", edit("rename_output"), "pair", edges=SHAPES),
    _litert("LiteRT: one number doubled", edit("one_number", factor=2.0), "pair"),
    _litert("LiteRT: a middle bit of a number", edit("flipped_bit", bit=12), "pair"),
    _litert("LiteRT: exponent's bit of a number", edit("flipped_bit", bit=23), "tokens"),
)

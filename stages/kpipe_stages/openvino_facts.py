"""What OpenVINO compiled a model to: properties checked before, read back after. Used on files and on Keras' OpenVINO backend."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.session import Description, check_settings, fault, owned, telling_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kpipe_stages.protocol import RunJob
    from kpipe_stages.session import Array

NAME = "OpenVINO"
PRECISION = "INFERENCE_PRECISION_HINT"
THREADS = "INFERENCE_NUM_THREADS"
READ_BACK = (
    PRECISION,
    "EXECUTION_MODE_HINT",
    "PERFORMANCE_HINT",
    "NUM_STREAMS",
    THREADS,
    "ENABLE_HYPER_THREADING",
    "ENABLE_CPU_PINNING",
    "CPU_DENORMALS_OPTIMIZATION",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE",
    "RUNTIME_REQUIREMENTS",
)
ELEMENTS = {
    "f32": "float32",
    "f64": "float64",
    "f16": "float16",
    "bf16": "bfloat16",
    "boolean": "bool",
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)},
}
SMALL = ("bf16", "f16")
COMPUTES_AS = {"int64": "int32", "uint64": "int32"}
"""OpenVINO's CPU plugin hands 64-bit integers through unchanged and does arithmetic on them in int32 (measured: both wrap)."""


CACHE = "CACHE_DIR"
"""The core's own property, which no plugin lists: the folder of the compile cache."""


def check_properties(core: Any, settings: Mapping[str, Any]) -> None:
    """Refuse a setting that the CPU plugin doesn't know or can't be given.

    Raises:
        StageError: KP303.
    """
    known = [name for name, access in core.get_property("CPU", "SUPPORTED_PROPERTIES").items() if access != "RO"]
    check_settings(NAME, settings, [*known, CACHE])


def query(core: Any, artifact: str, device: str) -> dict[str, Any]:
    """Which ops of a file a device doesn't take, by type; or why it can't be asked."""
    if device not in core.available_devices:
        return {"device": device, "problem": f"this machine has no {device}, only {', '.join(core.available_devices)}", "unsupported": {}}
    model = core.read_model(artifact)
    try:
        taken = core.query_model(model, device)
    except RuntimeError as error:
        return {"device": device, "problem": f"{device} can't be asked: {telling_line(error)}", "unsupported": {}}
    unsupported: dict[str, list[str]] = {}
    for node in model.get_ops():
        if node.friendly_name not in taken:
            unsupported.setdefault(node.get_type_name(), []).append(node.friendly_name)
    return {"device": device, "problem": "", "unsupported": unsupported}


def asked_of(order: RunJob, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, and the job's threads where the settings leave them open."""
    return {**({THREADS: order.threads} if order.threads else {}), **settings}


def element_dtype(port: Any) -> str:
    """A port's element type as a dtype name."""
    name = str(port.get_element_type().get_type_name())
    return ELEMENTS.get(name, name)


def given(array: Array) -> Any:
    """An input as OpenVINO takes it. A bfloat16 array of NumPy's would be read as float16, bit for bit; its element type has to be said."""
    if array.dtype.name != "bfloat16":
        return array
    import openvino

    return openvino.Tensor(array.view(np.uint16), list(array.shape), openvino.Type.bf16)


def take_output(tensor: Any, port: Any) -> Array:
    """Copy an output tensor out. bfloat16 comes labelled float16: its bits are taken for what they are."""
    if element_dtype(port) == "string":
        return np.array(tensor.str_data)
    data = tensor.data
    if element_dtype(port) != "bfloat16":
        return owned(data)
    try:
        import ml_dtypes
    except ImportError as error:
        raise fault(
            "KP303", "A bfloat16 output can't be read: ml_dtypes isn't installed.", "Install ml-dtypes in this target's interpreter."
        ) from error
    return np.array(data, copy=True).view(ml_dtypes.bfloat16)


def describe_compiled(models: Iterable[Any], asked: Mapping[str, Any]) -> Description:
    """Effective precision, devices and properties of one or more compiled models of the same settings."""
    models = list(models)
    effective = {name: plain(models[0].get_property(name)) for name in READ_BACK if name in models[0].get_property("SUPPORTED_PROPERTIES")}
    nodes: collections.Counter[str] = collections.Counter()
    for model in models:
        nodes.update(node_precisions(model))
    hint = str(effective.get(PRECISION, ""))
    differing = {name: (str(value), str(effective[name])) for name, value in asked.items() if name in effective and not same(value, effective[name])}
    smaller = {name: nodes[name] for name in SMALL if nodes[name]}
    floats = [name for name in ("f32", *SMALL) if nodes[name]] or ["unknown"]
    used = [ELEMENTS.get(name, name) for name in dict.fromkeys([hint, *smaller] if hint in ELEMENTS else floats)]
    facts = {"effective_settings": effective, "node_precisions": dict(nodes), "compiled_models": len(models), "tensorflow_loaded": False}
    return Description(", ".join(used), tuple(models[0].get_property("EXECUTION_DEVICES")), facts, differing)


def node_precisions(compiled: Any) -> dict[str, int]:
    """How many nodes of the compiled graph run in each element type. Constants, conversions and reorders aside: they say nothing of the arithmetic."""
    count: collections.Counter[str] = collections.Counter()
    for node in compiled.get_runtime_model().get_ordered_ops():
        info = node.get_rt_info()
        kind = str(info["layerType"].value) if "layerType" in info else ""
        if "runtimePrecision" in info and kind not in {"Const", "Constant", "Reorder", "Convert", "Input", "Output"}:
            count[str(info["runtimePrecision"].value)] += 1
    return dict(count)


def plain(value: Any) -> Any:
    """A property as a JSON value; element types and enums by the names that settings use."""
    if hasattr(value, "get_type_name"):
        return value.get_type_name()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return getattr(value, "name", None) or str(value)


def same(asked: Any, effective: Any) -> bool:
    """Whether a setting is in effect; OpenVINO takes YES and NO for booleans, and numbers as text."""
    words = {"YES": "TRUE", "NO": "FALSE"}
    left, right = (str(plain(value)).upper() for value in (asked, effective))
    return words.get(left, left) == words.get(right, right)

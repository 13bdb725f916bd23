"""Faults of deployment: settings, precision, a file that the runtime can't use, answers that change from call to call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kpipe.selftest.fault import Family, Fault, FileFault, edit

if TYPE_CHECKING:
    from kpipe.selftest.fault import ContractEdit, Setup, Table

PRECISION = frozenset({"precision"})
RUNTIME = frozenset({"runtime"})
NOISE = frozenset({"runtime", "export"})


def target_has(**keys: Any) -> ContractEdit:
    """The target's table has these keys."""

    def plant(contract: Table, target: str, _setup: Setup) -> None:
        contract["targets"][target].update(keys)

    return plant


def _fault(name: str, edges: frozenset[str], runtime: str, *subjects: str, **keys: Any) -> Fault:
    return Fault(name, Family.RUNTIME, edges, frozenset(subjects), runtime, contract=target_has(**keys))


def _noisy(name: str, scale: float, *subjects: str) -> Fault:
    return Fault(name, Family.RUNTIME, NOISE, frozenset(subjects), "onnxruntime", FileFault("onnx", (edit("noise", scale=scale),)))


BF16 = {"INFERENCE_PRECISION_HINT": "bf16"}

FAULTS = (
    _fault("bfloat16 where float32 is promised", PRECISION, "openvino", "swatch", precision="f32", settings=BF16),
    _fault("float16 where float32 is promised", PRECISION, "openvino", "swatch", precision="f32", settings={"INFERENCE_PRECISION_HINT": "f16"}),
    _fault("precision not stated", PRECISION | {"decision"}, "openvino", "swatch", settings={}),
    _fault("one thread", RUNTIME, "litert", "swatch", threads=1),
    _fault("four threads", RUNTIME, "onnxruntime", "tokens", threads=4),
    _fault("XNNPACK off", RUNTIME, "litert", "swatch", settings={"xnnpack": False}),
    _fault("graph not optimised", RUNTIME, "onnxruntime", "swatch", settings={"graph_optimization_level": "disable"}),
    _fault("a setting that isn't one", RUNTIME, "onnxruntime", "tokens", settings={"graph_optimisation": "all"}),
    _fault("another version than production's", RUNTIME, "onnxruntime", "tokens", version="<1.0"),
    _fault("artifact that isn't there", RUNTIME | {"export"}, "litert", "pair", artifact="nowhere/model.tflite"),
    _noisy("random numbers, 1e-6", 1e-6, "pair"),
    _noisy("random numbers, 1e-3", 1e-3, "swatch"),
    Fault("file cut short", Family.RUNTIME, RUNTIME | {"export"}, frozenset({"swatch"}), "litert", FileFault("litert", (edit("cut_short"),))),
)

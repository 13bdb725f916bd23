"""LiteRT: a ``.tflite`` file on ai-edge-litert's interpreter, by signature, with the delegate it takes by itself (XNNPACK)."""

from __future__ import annotations

import collections
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.measure import run_target
from kpipe_stages.session import Description, bound, check_count, check_settings, check_value, load_refused, op_missing, owned, refuse_modules
from kpipe_stages.timing import time_target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe_stages.protocol import Job, RunJob, RunResult, TimingResult
    from kpipe_stages.session import Answer, Feeds
    from kpipe_stages.worker import Worker

NAME = "LiteRT"
SETTINGS = ("num_threads", "xnnpack")


def run(job: Job, worker: Worker) -> RunResult:
    """Run the golden inputs."""
    return run_target(job, worker, LiteRT())


def measure(job: Job, worker: Worker) -> TimingResult:
    """Time the session that `run` opened."""
    return time_target(job, worker)


def engine(_runtime: str) -> LiteRT:
    """What opens its artifacts."""
    return LiteRT()


class LiteRT:
    """The engine."""

    distributions = ("ai-edge-litert", "numpy")

    def bring(self, _order: RunJob) -> None:
        """Import the interpreter; see that it came without TensorFlow."""
        import ai_edge_litert.interpreter  # noqa: F401 - loaded here so that its time is the import's

        refuse_modules("tensorflow")

    def open(self, order: RunJob, settings: Mapping[str, Any]) -> LiteRTSession:
        """Map the file, build the interpreter, allocate for the declared shapes."""
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        check_settings(NAME, settings, SETTINGS)
        threads = check_count(NAME, "num_threads", settings["num_threads"]) if "num_threads" in settings else order.threads or None
        delegate = check_value(NAME, "xnnpack", settings.get("xnnpack", True), (True, False))
        resolver = OpResolverType.AUTO if delegate else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        try:
            interpreter = Interpreter(model_path=order.artifact, num_threads=threads, experimental_op_resolver_type=resolver)
            interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            raise _refused(order, error) from error
        return LiteRTSession(order, interpreter, {"num_threads": threads or "default", "xnnpack": delegate})


class LiteRTSession:
    """One interpreter."""

    def __init__(self, order: RunJob, interpreter: Any, settings: dict[str, Any]) -> None:
        self._interpreter = interpreter
        self._settings = settings
        self.key, self._runner = _runner(interpreter)
        inputs, outputs = self._runner.get_input_details(), self._runner.get_output_details()
        self.signature, self._binding = bound(order, inputs, outputs)
        self.takes = {name: _dtype_name(inputs[artifact]["dtype"]) for name, artifact in self._binding.inputs.items()}
        self.narrows: Mapping[str, str] = {}
        self.computes_as: Mapping[str, str] = {}

    def infer(self, feeds: Feeds) -> Answer:
        """Resize to the feeds, run, copy out."""
        outputs = self._runner(**{self._binding.inputs[name]: _as_taken(array) for name, array in feeds.items()})
        return {name: owned(outputs[artifact]) for name, artifact in self._binding.outputs.items()}

    def describe(self) -> Description:
        """Delegation and the dtypes of all tensors: a file with int8 weights doesn't compute in float32, whatever its inputs are."""
        refuse_modules("tensorflow")
        ops = collections.Counter(op["op_name"] for op in self._interpreter._get_ops_details())  # noqa: SLF001 - no public way to see what was delegated
        tensors = self._interpreter.get_tensor_details()
        dtypes = collections.Counter(_dtype_name(tensor["dtype"]) for tensor in tensors)
        quantised = {_dtype_name(tensor["dtype"]) for tensor in tensors if len(tensor["quantization_parameters"]["scales"])}
        numbers = sorted(quantised | {name for name in dtypes if "float" in name})
        facts = {
            "signature": self.key,
            "effective_settings": self._settings,
            "ops": dict(ops),
            "delegates": ops.get("DELEGATE", 0),
            "tensor_dtypes": dict(dtypes),
            "tensorflow_loaded": False,
        }
        return Description(f"{', '.join(numbers) or 'none'} (declared)", ("CPU",), facts)


class _ByTensorName:
    """A file without signatures: the interpreter's tensors by their names, offered like a signature runner."""

    def __init__(self, interpreter: Any) -> None:
        self._interpreter = interpreter
        self._inputs = {detail["name"]: detail for detail in interpreter.get_input_details()}
        self._outputs = {detail["name"]: detail for detail in interpreter.get_output_details()}

    def get_input_details(self) -> dict[str, Any]:
        return self._inputs

    def get_output_details(self) -> dict[str, Any]:
        return self._outputs

    def __call__(self, **feeds: Any) -> dict[str, Any]:
        for name, array in feeds.items():
            self._interpreter.resize_tensor_input(self._inputs[name]["index"], array.shape)
        self._interpreter.allocate_tensors()
        for name, array in feeds.items():
            self._interpreter.set_tensor(self._inputs[name]["index"], array)
        self._interpreter.invoke()
        return {name: self._interpreter.get_tensor(detail["index"]) for name, detail in self._outputs.items()}


def _runner(interpreter: Any) -> tuple[str, Any]:
    """The serving signature (or the only one), else the bare tensors."""
    keys = list(interpreter.get_signature_list())
    if not keys:
        return "", _ByTensorName(interpreter)
    key = "serving_default" if "serving_default" in keys else keys[0]
    if key != "serving_default" and len(keys) > 1:
        raise load_refused(NAME, ValueError(f"the file has the signatures {keys} and none is 'serving_default'"))
    return key, interpreter.get_signature_runner(key)


def _as_taken(array: Any) -> Any:
    """Strings go in as bytes."""
    return np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array


def _dtype_name(dtype: Any) -> str:
    name = np.dtype(dtype).name
    return "string" if name.startswith(("bytes", "str", "object")) else name


def _refused(order: RunJob, error: BaseException) -> Exception:
    message = str(error)
    ops = re.findall(r"\((Flex\w+)\) failed to prepare", message) + re.findall(r"unresolved custom op: (\S+)", message)
    return op_missing(NAME, [op.rstrip(".") for op in ops], error, order.op_layers) if ops else load_refused(NAME, error, order.op_layers)

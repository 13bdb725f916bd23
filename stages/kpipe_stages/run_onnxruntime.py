"""ONNX Runtime: an ``.onnx`` file in an InferenceSession on the CPU."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kpipe_stages.measure import run_target
from kpipe_stages.session import (
    Description,
    bound,
    check_count,
    check_settings,
    check_value,
    load_refused,
    op_missing,
    owned,
    refuse_modules,
    telling_line,
)
from kpipe_stages.timing import time_target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe_stages.protocol import Job, RunJob, RunResult, TimingResult
    from kpipe_stages.session import Answer, Feeds
    from kpipe_stages.worker import Worker

NAME = "ONNX Runtime"
COUNTS = ("intra_op_num_threads", "inter_op_num_threads")
LEVELS = {"disable": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL"}
MODES = {"sequential": "ORT_SEQUENTIAL", "parallel": "ORT_PARALLEL"}
SWITCHES = ("use_deterministic_compute", "enable_cpu_mem_arena", "enable_mem_pattern")
SETTINGS = (*COUNTS, *SWITCHES, "graph_optimization_level", "execution_mode", "providers")
DTYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bfloat16)": "bfloat16",
    "tensor(bool)": "bool",
    "tensor(string)": "string",
}


def run(job: Job, worker: Worker) -> RunResult:
    """Run the golden inputs."""
    return run_target(job, worker, OnnxRuntime())


def measure(job: Job, worker: Worker) -> TimingResult:
    """Time the session that `run` opened."""
    return time_target(job, worker)


def engine(_runtime: str) -> OnnxRuntime:
    """What opens its artifacts."""
    return OnnxRuntime()


class OnnxRuntime:
    """The engine."""

    distributions = ("onnxruntime", "numpy")

    def bring(self, _order: RunJob) -> None:
        """Import the runtime; see that it came without TensorFlow."""
        import onnxruntime  # noqa: F401 - loaded here so that its time is the import's

        refuse_modules("tensorflow")

    def open(self, order: RunJob, settings: Mapping[str, Any]) -> OnnxSession:
        """Load and optimise the graph."""
        import onnxruntime

        check_settings(NAME, settings, SETTINGS)
        providers = settings.get("providers", ["CPUExecutionProvider"])
        for provider in providers:
            check_value(NAME, "providers", provider, onnxruntime.get_available_providers())
        options = _options(onnxruntime, order, settings)
        try:
            session = onnxruntime.InferenceSession(order.artifact, options, providers=providers)
        except Exception as error:  # the runtime's exceptions share no base class of their own
            raise _refused(order, error) from error
        return OnnxSession(order, session, options, providers)


class OnnxSession:
    """One InferenceSession."""

    def __init__(self, order: RunJob, session: Any, options: Any, providers: list[str]) -> None:
        self._session = session
        self._options = options
        self._asked = providers
        inputs = {value.name: value.type for value in session.get_inputs()}
        self._types = {value.name: value.type for value in session.get_outputs()}
        self.signature, self._binding = bound(order, inputs, self._types)
        self.takes = {name: dtype_name(inputs[artifact]) for name, artifact in self._binding.inputs.items()}
        self.narrows: Mapping[str, str] = {}
        self.computes_as: Mapping[str, str] = {}
        self._models = list(self._binding.outputs)
        self._artifacts = list(self._binding.outputs.values())

    def infer(self, feeds: Feeds) -> Answer:
        """Run; the arrays that come back are the caller's own."""
        values = self._session.run(self._artifacts, {self._binding.inputs[name]: array for name, array in feeds.items()})
        return {name: owned(value) for name, value in zip(self._models, values, strict=True)}

    def describe(self) -> Description:
        """Providers and options. The precision is the declared one: ONNX Runtime's CPU kernels compute in the graph's types."""
        refuse_modules("tensorflow")
        providers = self._session.get_providers()
        asked = [one for one in self._asked if one not in providers]
        facts = {
            "providers": providers,
            "effective_settings": {
                **{name: getattr(self._options, name) for name in (*COUNTS, *SWITCHES)},
                "graph_optimization_level": self._options.graph_optimization_level.name,
                "execution_mode": self._options.execution_mode.name,
            },
            "tensorflow_loaded": False,
        }
        names = sorted({dtype_name(kind) for kind in self._types.values()} | set(self.takes.values()))
        floats = [name for name in names if "float" in name] or names
        devices = tuple(name.removesuffix("ExecutionProvider") for name in providers)
        return Description(f"{', '.join(floats)} (declared)", devices, facts, {"providers": (str(self._asked), str(providers))} if asked else {})


def dtype_name(kind: str) -> str:
    """``tensor(float)`` to ``float32``."""
    return DTYPES.get(kind, kind.removeprefix("tensor(").removesuffix(")"))


def _options(onnxruntime: Any, order: RunJob, settings: Mapping[str, Any]) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if order.threads:
        options.intra_op_num_threads = order.threads
    for name in COUNTS:
        if name in settings:
            setattr(options, name, check_count(NAME, name, settings[name]))
    for name in SWITCHES:
        if name in settings:
            setattr(options, name, check_value(NAME, name, settings[name], (True, False)))
    if "graph_optimization_level" in settings:
        level = LEVELS[check_value(NAME, "graph_optimization_level", settings["graph_optimization_level"], LEVELS)]
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    if "execution_mode" in settings:
        mode = MODES[check_value(NAME, "execution_mode", settings["execution_mode"], MODES)]
        options.execution_mode = getattr(onnxruntime.ExecutionMode, mode)
    return options


def _refused(order: RunJob, error: Exception) -> Exception:
    ops = re.findall(r"No Op registered for (\S+)", str(error)) + re.findall(r"implementation for the node .*?(\w+)\(\d+\)", telling_line(error))
    return op_missing(NAME, ops, error, order.op_layers) if ops else load_refused(NAME, error, order.op_layers)

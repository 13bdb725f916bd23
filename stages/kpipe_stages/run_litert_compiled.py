"""LiteRT's compiled-model API: a ``.tflite`` file on ai-edge-litert's ``CompiledModel``, one batch of the declared size at a time.

The API of 2.3.0 takes an input of another size and runs it into output buffers of the declared one: memory beyond them is overwritten (measured: the
process aborts). So a free axis is run at the size that the file declares for it, and nothing else is ever fed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kpipe_stages.measure import run_target
from kpipe_stages.session import Description, bound, check_count, check_settings, check_value, fault, load_refused, owned, refuse_modules
from kpipe_stages.timing import time_target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe_stages.protocol import Job, RunJob, RunResult, TimingResult
    from kpipe_stages.session import Answer, Feeds
    from kpipe_stages.worker import Worker

NAME = "LiteRT's compiled-model API"
SIGNATURE = "serving_default"
KERNELS = {"xnnpack": "XNNPACK", "builtin": "BUILTIN", "reference": "REFERENCE"}
SETTINGS = ("num_threads", "kernel_mode")


def run(job: Job, worker: Worker) -> RunResult:
    """Run the golden inputs."""
    return run_target(job, worker, LiteRTCompiled())


def measure(job: Job, worker: Worker) -> TimingResult:
    """Time the session that `run` opened."""
    return time_target(job, worker)


def engine(_runtime: str) -> LiteRTCompiled:
    """What opens its artifacts."""
    return LiteRTCompiled()


class LiteRTCompiled:
    """The engine."""

    distributions = ("ai-edge-litert", "numpy")

    def bring(self, _order: RunJob) -> None:
        """Import the API; see that it came without TensorFlow."""
        import ai_edge_litert.compiled_model  # noqa: F401 - loaded here so that its time is the import's

        refuse_modules("tensorflow")

    def open(self, order: RunJob, settings: Mapping[str, Any]) -> CompiledSession:
        """Compile the file for the CPU."""
        from ai_edge_litert.compiled_model import CompiledModel
        from ai_edge_litert.cpu_kernel_mode import CpuKernelMode
        from ai_edge_litert.hardware_accelerator import HardwareAccelerator
        from ai_edge_litert.options import CpuOptions, Options

        check_settings(NAME, settings, SETTINGS)
        threads = check_count(NAME, "num_threads", settings["num_threads"]) if "num_threads" in settings else order.threads
        kernel = check_value(NAME, "kernel_mode", settings.get("kernel_mode", "xnnpack"), KERNELS)
        cpu = CpuOptions(num_threads=threads, kernel_mode=getattr(CpuKernelMode, KERNELS[kernel]))
        try:
            model = CompiledModel.from_file(order.artifact, options=Options(hardware_accelerators=HardwareAccelerator.CPU, cpu_options=cpu))
        except (RuntimeError, ValueError) as error:
            raise load_refused(NAME, error) from error
        return CompiledSession(order, model, {"num_threads": threads or "default", "kernel_mode": kernel})


class CompiledSession:
    """One compiled model with one buffer an input and output."""

    def __init__(self, order: RunJob, model: Any, settings: dict[str, Any]) -> None:
        self._model, self._settings = model, settings
        self._key = _signature(model)
        inputs, outputs = model.get_input_tensor_details(self._key), model.get_output_tensor_details(self._key)
        self.signature, self._binding = bound(order, inputs, outputs)
        self.takes = {name: str(inputs[artifact]["dtype"]) for name, artifact in self._binding.inputs.items()}
        self.narrows: Mapping[str, str] = {}
        self.computes_as: Mapping[str, str] = {}
        _refuse_dtypes({**self.takes, **{name: str(outputs[artifact]["dtype"]) for name, artifact in self._binding.outputs.items()}})
        self._shapes = {name: tuple(inputs[artifact]["shape"]) for name, artifact in self._binding.inputs.items()}
        self._gives = {artifact: (tuple(outputs[artifact]["shape"]), str(outputs[artifact]["dtype"])) for artifact in self._binding.outputs.values()}
        self._in = {artifact: model.create_input_buffer_by_name(self._key, artifact) for artifact in self._binding.inputs.values()}
        self._out = {artifact: model.create_output_buffer_by_name(self._key, artifact) for artifact in self._binding.outputs.values()}

    def infer(self, feeds: Feeds) -> Answer:
        """Write the buffers, run, copy out.

        Raises:
            ValueError: an input hasn't the size that the file declares.
        """
        for name, array in feeds.items():
            if array.shape != self._shapes[name]:
                took, takes = list(array.shape), list(self._shapes[name])
                raise ValueError(
                    f"input '{name}' has shape {took}; {NAME} takes {takes} only: it has no buffers for another size, as the runtime litert has"
                )
            self._in[self._binding.inputs[name]].write(array)
        self._model.run_by_name(self._key, self._in, self._out)
        return {name: self._read(artifact) for name, artifact in self._binding.outputs.items()}

    def _read(self, artifact: str) -> Any:
        shape, dtype = self._gives[artifact]
        return owned(self._out[artifact].read(math.prod(shape), dtype).reshape(shape))

    def describe(self) -> Description:
        """Settings, and the declared dtypes of inputs and outputs: the API tells nothing of what is inside."""
        refuse_modules("tensorflow")
        names = sorted({dtype for _, dtype in self._gives.values()} | set(self.takes.values()))
        floats = [name for name in names if "float" in name] or names
        facts = {
            "signature": self._key,
            "effective_settings": self._settings,
            "fully_accelerated": self._model.is_fully_accelerated(),
            "tensorflow_loaded": False,
        }
        return Description(f"{', '.join(floats)} (declared)", ("CPU",), facts)


def _refuse_dtypes(dtypes: Mapping[str, str]) -> None:
    """Its buffers hold fewer dtypes than a file may have: int64 isn't among them."""
    from ai_edge_litert.tensor_buffer import TensorBuffer

    for name, dtype in dtypes.items():
        try:
            TensorBuffer._normalize_dtype(dtype)  # noqa: SLF001 - no public list of what buffers hold
        except (TypeError, ValueError) as error:
            raise fault(
                "KP303",
                f"{NAME} has no buffers of {dtype}, which '{name}' is.",
                "Use the runtime litert, or give that tensor another dtype in the model.",
                place=name,
            ) from error


def _signature(model: Any) -> str:
    keys = list(model.get_signature_list())
    if SIGNATURE in keys or len(keys) == 1:
        return SIGNATURE if SIGNATURE in keys else keys[0]
    raise load_refused(NAME, ValueError(f"the file has the signatures {keys} and none is '{SIGNATURE}'"))

"""OpenVINO: a SavedModel folder, an IR (``.xml``) or an ``.onnx`` file compiled for the CPU, with the effective precision read back."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kpipe_stages.measure import run_target
from kpipe_stages.openvino_facts import COMPUTES_AS, asked_of, check_properties, describe_compiled, element_dtype, given, query, take_output
from kpipe_stages.session import bound, fault, load_refused, op_missing, refuse_modules, telling_line
from kpipe_stages.timing import time_target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe_stages.protocol import Job, RunJob, RunResult, TimingResult
    from kpipe_stages.session import Answer, Description, Feeds
    from kpipe_stages.worker import Worker

NAME = "OpenVINO"
MISSING = re.compile(r"no (?:conversion rule|translator) found for operation(?:s|\(s\)): *([\w.:]+(?:, *[\w.:]+)*)", re.IGNORECASE)

FAILED = re.compile(r"Conversion is failed for: ([\w, ]+)")
"""How it ends the list of what it knows and could not convert here."""


def run(job: Job, worker: Worker) -> RunResult:
    """Run the golden inputs."""
    return run_target(job, worker, OpenVINO())


def measure(job: Job, worker: Worker) -> TimingResult:
    """Time the session that `run` opened."""
    return time_target(job, worker)


def engine(_runtime: str) -> OpenVINO:
    """What opens its artifacts."""
    return OpenVINO()


class OpenVINO:
    """The engine."""

    distributions = ("openvino", "numpy")

    def bring(self, _order: RunJob) -> None:
        """Import the runtime; see that it came without TensorFlow."""
        import openvino  # noqa: F401 - loaded here so that its time is the import's

        refuse_modules("tensorflow")

    def open(self, order: RunJob, settings: Mapping[str, Any]) -> OpenVINOSession:
        """Read, convert where the file isn't an IR, and compile."""
        import openvino

        core = openvino.Core()
        check_properties(core, settings)
        asked = asked_of(order, settings)
        try:
            compiled = core.compile_model(core.read_model(order.artifact), "CPU", asked)
        except RuntimeError as error:
            raise _refused(order, error) from error
        return OpenVINOSession(order, compiled, asked, query(core, order.artifact, order.query_device) if order.query_device else None)


class OpenVINOSession:
    """One compiled model with one infer request."""

    def __init__(self, order: RunJob, compiled: Any, asked: dict[str, Any], queried: dict[str, Any] | None = None) -> None:
        self._queried = queried
        self._compiled = compiled
        self._asked = asked
        self._request = compiled.create_infer_request()
        inputs = _ports(compiled.inputs, order.binding.inputs if order.binding else {})
        outputs = _ports(compiled.outputs, order.binding.outputs if order.binding else {})
        self.signature, binding = bound(order, inputs, outputs)
        self._inputs = {name: inputs[artifact] for name, artifact in binding.inputs.items()}
        self._outputs = {name: outputs[artifact] for name, artifact in binding.outputs.items()}
        self.takes = {name: element_dtype(port) for name, port in self._inputs.items()}
        self.narrows: Mapping[str, str] = {}
        self.computes_as: Mapping[str, str] = COMPUTES_AS

    def infer(self, feeds: Feeds) -> Answer:
        """Run; copy out of the request's own buffers."""
        self._request.infer({self._inputs[name]: given(array) for name, array in feeds.items()}, share_outputs=True)  # copied once, below
        return {name: take_output(self._request.get_tensor(port), port) for name, port in self._outputs.items()}

    def describe(self) -> Description:
        """Read the compiled model's properties and the precision that its nodes were given."""
        refuse_modules("tensorflow")
        described = describe_compiled([self._compiled], self._asked)
        return described if self._queried is None else replace(described, facts={**described.facts, "query_model": self._queried})


def _ports(ports: list[Any], wanted: Mapping[str, str]) -> dict[str, Any]:
    """Ports by the names that the binding uses: several where equal outputs share a port. A port that isn't bound keeps its first name."""
    bound_names = set(wanted.values())
    result = {}
    for position, port in enumerate(ports):
        names = sorted(port.get_names()) or [f"(unnamed {position})"]
        result.update(dict.fromkeys([name for name in names if name in bound_names] or names[:1], port))
    return result


def _refused(order: RunJob, error: Exception) -> Exception:
    found = [*re.findall(MISSING, str(error)), *re.findall(FAILED, str(error))]
    ops = [op.strip() for match in found for op in match.split(",")]
    if re.search(r"[Ww]rong value|property key", str(error)):
        return fault("KP303", f"{NAME} refuses a setting: {telling_line(error)}", "Correct the value of the target's setting.")
    return op_missing(NAME, ops, error, order.op_layers) if ops else load_refused(NAME, error, order.op_layers)

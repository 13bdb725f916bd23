"""Convert the SavedModel to OpenVINO IR in a process without TensorFlow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe_stages.artifacts import openvino_ir
from kpipe_stages.artifacts.record import Written, accept, repaired
from kpipe_stages.codec import decode
from kpipe_stages.protocol import ArtifactResult, Binding, ExportOpenvinoJob, Job, Observation, StageError
from kpipe_stages.session import with_layers
from kpipe_stages.worker import distribution_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kpipe_stages.worker import Worker


def run(job: Job, worker: Worker) -> ArtifactResult:
    """Write ``model.xml`` and ``model.bin`` and open them again.

    Raises:
        StageError: KP201, OpenVINO refuses the SavedModel; KP207 or KP213, what it made doesn't have the model's inputs and outputs.
    """
    params = decode(ExportOpenvinoJob, job.params)
    worker.distributions = ["openvino", "numpy"]
    _, import_s = worker.timed("import", _import)
    path = Path(params.out) / "openvino_ir" / "model.xml"
    path.parent.mkdir(parents=True, exist_ok=True)
    known, convert_s = worker.timed("openvino_ir", lambda: _convert(params, path))
    version = distribution_version("openvino") or ""
    written = Written("openvino_ir", path, known, {"openvino": version}, params.repairs)
    for repair in params.repairs:
        worker.observations.append(repaired("openvino_ir", repair))
    artifact = accept(worker, written, params.signature, params.parameters, params.op_layers)
    return ArtifactResult(artifact=artifact, seconds={"import": import_s, "openvino_ir": convert_s})


def _import() -> None:
    import openvino  # noqa: F401 - its import is what is timed


def _convert(params: ExportOpenvinoJob, path: Path) -> Binding | None:
    names = params.saved_model_binding
    inputs = {spec.name: names.inputs[spec.name] for spec in params.signature.inputs}
    outputs = {spec.name: names.outputs[spec.name] for spec in params.signature.outputs}
    try:
        return openvino_ir.convert(Path(params.saved_model), inputs, outputs, path)
    except Exception as error:  # OpenVINO raises several kinds, with C++ file names in them; each is one finding with its telling line
        raise StageError(_refused(error, params.op_layers)) from error


def _refused(error: Exception, layers: Mapping[str, Sequence[str]]) -> Observation:
    text = str(error)
    missing = [op for found in re.findall(r"No conversion rule found for operations?: ([\w, ]+)", text) for op in found.split(", ")]
    failed = [op for found in re.findall(r"Conversion is failed for: ([\w, ]+)", text) for op in found.split(", ")]
    reasons = [f"no conversion rule for {with_layers(missing, layers)}"] if missing else []
    reasons += [f"{with_layers(failed, layers)} couldn't be converted"] if failed else []
    lines = [line.strip() for line in text.splitlines() if line.strip() and not re.match(r"\s*(Check |Exception from|FrontEnd API)", line)]
    reason = "; ".join(reasons) or (lines[0][:300] if lines else type(error).__name__)
    ops = missing + failed
    places = [place for op in ops for place in layers.get(op, ())]
    return Observation(
        "KP201",
        f"The conversion to OpenVINO IR failed: {reason}.",
        "Replace the layer that it names, or leave the openvino_ir target out of the contract.",
        place=next(iter([*places, *ops]), "openvino_ir"),
        evidence={"ops": ops, "layers": places, "format": "openvino_ir"},
    )

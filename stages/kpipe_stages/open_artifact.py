"""Open a file that was handed in (``artifact = "path"``): what it is, and whether its inputs and outputs are the model's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kpipe_stages.artifacts import saved_model
from kpipe_stages.artifacts.record import Written, accept
from kpipe_stages.codec import decode
from kpipe_stages.protocol import ArtifactResult, Job, Observation, OpenArtifactJob, StageError

if TYPE_CHECKING:
    from kpipe_stages.worker import Worker

_LIBRARIES = {"saved_model": ["tensorflow"], "litert": ["ai-edge-litert"], "onnx": ["onnx"], "openvino_ir": ["openvino"]}


def run(job: Job, worker: Worker) -> ArtifactResult:
    """Inventory and binding of one file or folder; nothing is exported, nothing is run.

    Raises:
        StageError: KP210 (nothing is there), KP303 (not a file of this format), KP207 or KP213 (not the model's inputs and outputs).
    """
    params = decode(OpenArtifactJob, job.params)
    worker.distributions = _LIBRARIES[params.format]
    path = Path(params.path)
    if not path.exists():
        raise StageError(
            Observation(
                "KP210",
                f"{path} doesn't exist.",
                "Correct the target's artifact path, or leave it out to have kpipe export one.",
                place=params.format,
            )
        )
    if params.format == "saved_model":
        path = saved_model.version_folder(path)
    artifact, seconds = worker.timed("open", lambda: accept(worker, Written(params.format, path), params.signature, params.parameters))
    return ArtifactResult(artifact=artifact, seconds={"open": seconds})

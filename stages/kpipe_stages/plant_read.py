"""Stage ``plant_read``: a faulty ONNX file in float64, for ``kpipe selftest``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kpipe_stages.codec import decode
from kpipe_stages.plant_orders import ReadJob, ReadResult
from kpipe_stages.planting import onnx_reading

if TYPE_CHECKING:
    from kpipe_stages.protocol import Job
    from kpipe_stages.worker import Worker


def run(job: Job, worker: Worker) -> ReadResult:
    """Evaluate; what can't be raised or evaluated ends the stage, and there is no reading."""
    params = decode(ReadJob, job.params)
    worker.distributions = ["onnx", "numpy"]
    return ReadResult(onnx_reading.read(Path(params.model), Path(params.tensors), params.names, Path(params.out)))

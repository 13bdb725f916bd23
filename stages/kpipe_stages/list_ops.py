"""Stage ``list_ops``: what lies in an artifact: signature and ops, read from the file; nothing of it is run, and no model is needed beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kpipe_stages.artifacts.record import read
from kpipe_stages.build_orders import ListJob, ListResult
from kpipe_stages.codec import decode
from kpipe_stages.protocol import Job, Observation, StageError

if TYPE_CHECKING:
    from kpipe_stages.worker import Worker


def run(job: Job, worker: Worker) -> ListResult:
    """Read it.

    Raises:
        StageError: KP301 (the library that reads this format isn't there), KP303 (not such a file).
    """
    params = decode(ListJob, job.params)
    path = Path(params.path)
    worker.distributions = ["openvino", "onnx", "tensorflow", "ai-edge-litert"]
    try:
        if params.format == "saved_model":
            from kpipe_stages.artifacts.saved_model import version_folder

            path = version_folder(path)
        opened = read(params.format, path)
        query = _query(path, params.device) if params.device else {}
    except ImportError as error:
        raise StageError(Observation("KP301", f"The file can't be read: {error}.", "Install keras-kpipe[all].", place=params.format)) from error
    return ListResult(opened.signature, opened.uses, opened.foreign_ops, opened.parameters, opened.parameters_bytes, opened.opset, query)


def _query(path: Path, device: str) -> dict[str, object]:
    import openvino

    from kpipe_stages.openvino_facts import query

    return query(openvino.Core(), str(path), device)

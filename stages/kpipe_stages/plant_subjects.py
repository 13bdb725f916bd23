"""Stage ``plant_subjects``: the models that ``kpipe selftest`` brings along, built anew and written as a product would have them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kpipe_stages.codec import decode
from kpipe_stages.plant_orders import SubjectsJob, SubjectsResult
from kpipe_stages.planting import models

if TYPE_CHECKING:
    from kpipe_stages.protocol import Job
    from kpipe_stages.worker import Worker


def run(job: Job, worker: Worker) -> SubjectsResult:
    """Build and write the subjects of the job."""
    params = decode(SubjectsJob, job.params)
    worker.distributions = ["tensorflow", "keras", "numpy", "pillow"]
    files = {}
    for name in params.names:
        worker.progress(f"build {name}")
        files[name] = models.write(name, models.build(name, params.draw), Path(params.out) / name)
    return SubjectsResult(files)

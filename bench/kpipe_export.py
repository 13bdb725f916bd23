"""The export as ``kpipe validate`` runs it: ``kpipe_export.py MODEL OUT``. Prints the seconds from load to the last artifact, imports left out.

Two workers, as in a run: TensorFlow traces once and writes three formats; OpenVINO converts the SavedModel in a process of its own as soon as
it is there. The OpenVINO process counts whole, its import too; TensorFlow's import is taken off, as it is for the plain script.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kpipe.evidence import Ending
from kpipe.running import system
from kpipe.running.launch import Launcher, Order, make_home, worker_environment
from kpipe_stages.codec import decode
from kpipe_stages.protocol import Artifact, ExportJob, ExportOpenvinoJob, ExportResult, Signature, Trust


async def export(model: Path, out: Path, scratch: Path) -> float:
    """Seconds without TensorFlow's import."""
    environment = worker_environment(make_home(scratch / "home"), backend="tensorflow", threads=0, cache=scratch / "cache")
    facts: dict[str, Any] = {}
    ready = asyncio.Event()

    def hear(_stage: str, event: dict[str, Any]) -> None:
        if event["event"] == "signature":
            facts["signature"] = decode(Signature, event["signature"])
        if event["event"] == "artifact" and event["artifact"]["format"] == "saved_model":
            facts["saved_model"] = decode(Artifact, event["artifact"])
            ready.set()

    launcher = Launcher(scratch / "stages", time.monotonic(), hear)
    here = system.this_interpreter().path
    start = time.perf_counter()
    job = ExportJob(str(model), Trust(), ("saved_model", "litert", "onnx"), str(out))
    first = await launcher.start(Order("export", "export", job, here, environment, 600.0))

    async def convert() -> None:
        await ready.wait()
        artifact = facts["saved_model"]
        order = ExportOpenvinoJob(artifact.path, facts["signature"], artifact.binding, str(out))
        second = await launcher.start(Order("export_openvino", "export_openvino", order, here, environment, 600.0))
        assert (await second.result()).ending is Ending.OK

    evidence, _ = await asyncio.gather(first.result(), convert())
    seconds = time.perf_counter() - start
    assert evidence.ending is Ending.OK, evidence.detail
    assert evidence.result is not None
    result = decode(ExportResult, evidence.result.data)
    assert len(result.artifacts) == 3, [a.format for a in result.artifacts]
    await launcher.close()
    return seconds - result.seconds["import"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(f"seconds {asyncio.run(export(Path(sys.argv[1]), Path(sys.argv[2]), Path(folder))):.3f}")

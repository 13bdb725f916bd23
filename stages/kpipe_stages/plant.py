"""Stage ``plant``: faults for ``kpipe selftest``, each in a copy of an archive or of an artifact."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kpipe_stages.codec import decode, encode
from kpipe_stages.plant_orders import Edit, Planted, PlantJob, PlantOrder, PlantResult, objects_file
from kpipe_stages.planting import ImpossibleError, configs, graphs, litert_files, onnx_files, raw_files, weights
from kpipe_stages.protocol import PROTOCOL, ExportJob, ExportResult, Job, Trust
from kpipe_stages.worker import Worker

SUFFIX = {"onnx": "model.onnx", "litert": "model.tflite", "saved_model": "1"}


@dataclass
class _Garden:
    """What planting needs."""

    job: PlantJob
    worker: Worker
    made: list[Planted] = field(default_factory=list)
    impossible: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def trust(self) -> Trust:
        """The model's own, and the functions that edits bring."""
        own = self.job.trust
        return Trust((*own.custom_objects, objects_file()), own.allow_modules, own.allow_lambda)

    def folder(self, order: PlantOrder) -> Path:
        """An order's own."""
        folder = Path(self.job.out) / order.name
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def run(job: Job, worker: Worker) -> PlantResult:
    """Plant every order; one that this model has no place for, or that fails, is named, and the others go on."""
    garden = _Garden(decode(PlantJob, job.params), worker)
    worker.distributions = ["tensorflow", "keras", "onnx", "numpy"]
    worker.timed("import", _import)
    steps = {"keras": _on_keras, "onnx": _on_onnx, "litert": _on_litert, "convert": _converted, "raw": _on_raw}
    for position, order in enumerate(garden.job.orders):
        worker.progress(f"plant {order.name}", position, len(garden.job.orders))
        try:
            garden.made.append(steps[order.on](garden, order))
        except ImpossibleError as error:
            garden.impossible[order.name] = str(error)
        except Exception as error:  # noqa: BLE001 - frameworks raise anything; a fault that wasn't planted is reported as that, never as caught
            garden.failed[order.name] = f"{type(error).__name__}: {error}"[:400]
    worker.observations.clear()  # what exporting a faulty model was seen to do is no finding about the planting
    return PlantResult(tuple(garden.made), garden.impossible, garden.failed)


def _import() -> None:
    import keras
    import tensorflow as tf  # noqa: F401 - as the exports want it

    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(f"planting runs on the {keras.backend.backend()} backend; it needs tensorflow")


def _on_keras(garden: _Garden, order: PlantOrder) -> Planted:
    archive = garden.folder(order) / "model.keras"
    _edit_archive(garden, Path(garden.job.model), archive, order.edits)
    if not order.formats:
        return Planted(order.name, str(archive), {})
    return Planted(order.name, str(archive), _export(garden, order, archive))


def _edit_archive(garden: _Garden, source: Path, target: Path, edits: tuple[Edit, ...]) -> None:
    """Edits of configs on the file, the others on the loaded model; in order."""
    import keras

    from kpipe_stages.keras_loading import load_model

    shutil.copyfile(source, target)
    scratch = target.with_name("edited.keras")
    for edit in edits:
        if edit.kind in configs.EDITS:
            configs.rewrite(target, scratch, partial(configs.EDITS[edit.kind], **edit.args))
        else:
            keras.backend.clear_session()
            model = load_model(str(target), garden.trust)
            if edit.kind in weights.EDITS:
                weights.EDITS[edit.kind](model, **edit.args)
            else:
                model = graphs.EDITS[edit.kind](model, **edit.args)
            model.save(scratch)
        scratch.replace(target)


def _export(garden: _Garden, order: PlantOrder, archive: Path) -> dict[str, str]:
    """The edited archive through kpipe's own exporter: the artifact that a build of that model would ship."""
    from kpipe_stages import export_tensorflow

    out = garden.folder(order) / "artifacts"
    params = ExportJob(str(archive), garden.trust, order.formats, str(out))
    result: ExportResult = export_tensorflow.run(Job(PROTOCOL, "export", "", str(out), encode(params)), garden.worker)
    files = {artifact.format: artifact.path for artifact in result.artifacts}
    for kind in order.formats:
        if kind not in files and (left := out / kind / SUFFIX[kind]).exists():
            files[kind] = str(left)  # written, and refused when it was opened again: a fault to be judged like any other
    if missing := [kind for kind in order.formats if kind not in files]:
        causes = "; ".join(o.cause for o in garden.worker.observations[-3:])
        raise RuntimeError(f"no {', '.join(missing)} was written: {causes}")
    garden.worker.observations.clear()
    return files


def _on_onnx(garden: _Garden, order: PlantOrder) -> Planted:
    import onnx

    model: Any = onnx.load(garden.job.artifacts["onnx"])
    for edit in order.edits:
        onnx_files.EDITS[edit.kind](model, **edit.args)
    path = garden.folder(order) / SUFFIX["onnx"]
    onnx.save(model, str(path))
    return Planted(order.name, "", {"onnx": str(path)})


def _on_litert(garden: _Garden, order: PlantOrder) -> Planted:
    data = bytearray(Path(garden.job.artifacts["litert"]).read_bytes())
    for edit in order.edits:
        litert_files.EDITS[edit.kind](data, **edit.args)
    path = garden.folder(order) / SUFFIX["litert"]
    path.write_bytes(data)
    return Planted(order.name, "", {"litert": str(path)})


def _converted(garden: _Garden, order: PlantOrder) -> Planted:
    path = garden.folder(order) / SUFFIX["litert"]
    kind = order.edits[0].kind
    path.write_bytes(litert_files.convert(garden.job.artifacts["saved_model"], kind=kind, tensors=garden.job.tensors, names=garden.job.names))
    return Planted(order.name, "", {"litert": str(path)})


def _on_raw(garden: _Garden, order: PlantOrder) -> Planted:
    folder = garden.folder(order) / "golden"
    raw_files.rewrite(Path(garden.job.golden), folder, order.edits[0].kind)
    return Planted(order.name, "", {"golden": str(folder)})

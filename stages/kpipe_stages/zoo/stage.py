"""Stage ``zoo``: take cases through the very export stage and runtime sessions that `kpipe validate` uses, many in one process.

Before a step its outcome is written as begun: a process that dies in it, or outlasts the limit and is ended by its own watchdog, leaves that
behind, and the next process goes on behind it. So a crash costs one case on one runtime.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import decode, encode, read_json, write_json
from kpipe_stages.lean import without_extras
from kpipe_stages.modes import alone_or_fault, answer
from kpipe_stages.protocol import ExportJob, ExportOpenvinoJob, ExportResult, Job, Observation, RunJob, StageError, Trust
from kpipe_stages.session import fault, raise_if_out_of_memory, telling_line
from kpipe_stages.worker import Worker
from kpipe_stages.zoo import UNITS
from kpipe_stages.zoo.orders import EXPORT, OPENVINO_IR, Exported, Ran, ZooJob, ZooResult, folder_of
from kpipe_stages.zoo.values import ROWS, feeds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe_stages.protocol import Artifact
    from kpipe_stages.session import Answer, Session
    from kpipe_stages.zoo.case import Case

NO_TRUST = Trust()
CLEAR_AFTER = 20
"""Cases between two clearings of what Keras keeps of models that are gone."""


def run(job: Job, worker: Worker) -> ZooResult:
    """Take every step of every case that nobody has taken yet."""
    order = decode(ZooJob, job.params)
    known = {case.name: case for unit in UNITS for case in unit.cases}
    worker.distributions = sorted({name for step in order.steps for name in _distributions(step)})
    quiet = Worker("zoo", worker.folder, os.open(os.devnull, os.O_WRONLY))
    taken = 0
    for number, name in enumerate(order.cases):
        folder = Path(order.root) / folder_of(name)
        for step in order.steps:
            if not (folder / f"{step}.json").exists():
                worker.emit("step", case=name, step=step)
                _watched(known[name], step, folder, quiet, order.limit_s)
                taken += 1
        if number % CLEAR_AFTER == CLEAR_AFTER - 1:
            _clear(order.steps)
    return ZooResult(taken)


def _distributions(step: str) -> tuple[str, ...]:
    runtime = step.removeprefix("run.")
    if runtime in RUNTIMES:
        return RUNTIMES[runtime].distributions
    return ("tensorflow", "keras", "tf2onnx", "onnx") if step == EXPORT else ("openvino",)


def _clear(steps: tuple[str, ...]) -> None:
    if EXPORT in steps or any(RUNTIMES[step.removeprefix("run.")].keras_backend for step in steps if step.startswith("run.")):
        import keras

        keras.backend.clear_session()
    gc.collect()


def _watched(case: Case, step: str, folder: Path, quiet: Worker, limit_s: float) -> None:
    """One step; its outcome is in ``<step>.json``, whatever happens."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{step}.json"
    write_json(file, Exported(ended=False) if step == EXPORT else Ran(ended=False))
    quiet.observations = []
    faulthandler.dump_traceback_later(limit_s, exit=True)
    try:
        if step == EXPORT:
            write_json(file, _export(case, folder, quiet))
        elif step == OPENVINO_IR:
            write_json(file, _openvino_ir(folder, quiet))
        else:
            write_json(file, _run(case, step.removeprefix("run."), folder))
    finally:
        faulthandler.cancel_dump_traceback_later()


# ---------------------------------------------------------------- export


def _export(case: Case, folder: Path, quiet: Worker) -> Exported:
    from kpipe_stages import export_tensorflow
    from kpipe_stages.zoo.building import build

    try:
        with without_extras("tensorflow"):
            import keras
        model = build(case)
        model.save(folder / "model.keras")
    except Exception as error:  # noqa: BLE001 - Keras itself can't build or save it: that is what is put down
        return Exported(ended=True, refusal=_refusal("KP012", f"Keras can't build or save it: {type(error).__name__}: {telling_line(error)}", error))
    dtypes = {str(keras.backend.standardize_dtype(tensor.dtype)) for tensor in (*model.inputs, *model.outputs)}
    dtypes |= {str(one.compute_dtype) for one in model._flatten_layers() if "float" in str(one.compute_dtype)}  # noqa: SLF001 - nested layers too
    parameters = int(sum(np.prod(variable.shape) for variable in model.weights))
    job = ExportJob(model=str(folder / "model.keras"), trust=NO_TRUST, formats=("saved_model", "litert", "onnx"), out=str(folder / "artifacts"))
    try:
        result: ExportResult = export_tensorflow.run(_job("export", folder, job), quiet)
    except StageError as error:
        return Exported(ended=True, refusal=error.observation, policy=case.policy, dtypes=tuple(sorted(dtypes)))
    return Exported(
        ended=True,
        policy=case.policy,
        dtypes=tuple(sorted(dtypes)),
        signature=result.signature,
        parameters=parameters,
        artifacts=result.artifacts,
        observations=tuple(quiet.observations),
    )


def _job(stage: str, folder: Path, params: Any) -> Job:
    return Job(protocol=1, stage=stage, attempt="zoo", folder=str(folder), params=encode(params))


def _openvino_ir(folder: Path, quiet: Worker) -> Exported:
    from kpipe_stages import export_openvino

    exported = read_json(Exported, folder / f"{EXPORT}.json")
    saved = _artifact(exported, "saved_model")
    if saved is None or exported.signature is None:
        return Exported(ended=True, refusal=_missing(exported, "saved_model"))
    order = ExportOpenvinoJob(
        saved_model=saved.path,
        signature=exported.signature,
        saved_model_binding=saved.binding,
        out=str(folder / "artifacts"),
        parameters=exported.parameters,
        repairs=saved.repairs,
        op_layers=saved.op_layers,
    )
    try:
        artifact = export_openvino.run(_job("export_openvino", folder, order), quiet).artifact
    except StageError as error:
        return Exported(ended=True, refusal=error.observation)
    return Exported(ended=True, artifacts=(artifact,), observations=tuple(quiet.observations))


def _artifact(exported: Exported, kind: str) -> Artifact | None:
    return next((artifact for artifact in exported.artifacts if artifact.format == kind), None)


def _missing(exported: Exported, kind: str) -> Observation:
    """Why there is no artifact of a format."""
    if exported.refusal is not None:
        return exported.refusal
    said = [one for one in exported.observations if one.evidence.get("format") == kind]
    stopping = [one for one in said if one.code in {"KP201", "KP207", "KP213", "KP301", "KP303", "KP306"}]
    lost = Observation("KP201", f"The export ended without a {kind} artifact and without a reason.", "Report this.")
    return stopping[0] if stopping else said[0] if said else lost


# ---------------------------------------------------------------- run


def _run(case: Case, runtime: str, folder: Path) -> Ran:
    exported = read_json(Exported, folder / f"{EXPORT}.json")
    row = RUNTIMES[runtime]
    if row.artifact == "keras":
        if not (folder / "model.keras").is_file():
            return Ran(ended=True, refusal=exported.refusal or _crashed())
        order = RunJob(**_common(runtime), artifact=str(folder / "model.keras"), signature=None, binding=None)
    else:
        source = read_json(Exported, folder / f"{OPENVINO_IR}.json") if row.artifact == "openvino_ir" else exported
        artifact = _artifact(source, row.artifact)
        if artifact is None:
            return Ran(ended=True, refusal=_missing(source, row.artifact) if source.ended else _crashed())
        order = RunJob(
            **_common(runtime),
            artifact=artifact.path,
            signature=exported.signature,
            binding=artifact.binding,
            fixed_batch=artifact.batch,
            op_layers=artifact.op_layers,
        )
    try:
        session = _open(order)
    except StageError as error:
        return Ran(ended=True, refusal=error.observation)
    except Exception as error:  # noqa: BLE001 - a runtime that can't load it raises what it likes
        raise_if_out_of_memory(error)
        return Ran(ended=True, refusal=_refusal("KP303", f"{type(error).__name__}: {telling_line(error)}", error))
    return _answers(case, session, order, folder / f"run.{runtime}.npz")


def _crashed() -> Observation:
    return Observation("KP304", "The export of this model ended its process, or outlasted the limit.", "Leave the layer out.", place=EXPORT)


def _common(runtime: str) -> dict[str, Any]:
    row = RUNTIMES[runtime]
    return {
        "runtime": runtime,
        "trust": NO_TRUST,
        "tensors": "",
        "names": (),
        "rows": ROWS,
        "batches": (),
        "chosen": dict(row.float32_settings),
        "threads": 1 if row.keras_backend is None and row.artifact != "saved_model" else 0,
    }


def _open(order: RunJob) -> Session:
    row = RUNTIMES[order.runtime]
    module = importlib.import_module(f"kpipe_stages.{row.module}")
    makers = {"run_saved_model": "SavedModel", "run_litert": "LiteRT", "run_onnxruntime": "OnnxRuntime", "run_openvino": "OpenVINO"}
    engine = module.Keras(order.runtime) if row.module == "run_keras" else getattr(module, makers[row.module])()
    with without_extras(row.keras_backend):
        engine.bring(order)
    session: Session = engine.open(order, dict(order.chosen))
    return session


def _answers(case: Case, session: Session, order: RunJob, file: Path) -> Ran:
    given = feeds(case, session.signature)
    names = [spec.name for spec in session.signature.outputs]
    if order.fixed_batch is not None and order.fixed_batch > 1:
        given = {way: _repeated(arrays, order.fixed_batch) for way, arrays in given.items() if way != "batch"}
    try:
        outputs = {"alone": alone_or_fault(session, given["alone"], 0)}
    except StageError as error:
        return Ran(ended=True, refusal=error.observation)
    ways = {"alone": ""}
    for way in [way for way in ("batch", "size") if way in given]:
        if way == "batch" and order.fixed_batch is not None:
            ways[way] = "not offered"
            continue
        try:
            outputs[way] = answer(session, given[way])
            ways[way] = ""
        except Exception as error:  # noqa: BLE001 - a way of running that is refused is what is put down
            raise_if_out_of_memory(error)
            ways[way] = f"{type(error).__name__}: {telling_line(error)}"
    _save(file, outputs, names)
    return Ran(ended=True, ways=ways, dtypes=tuple(_dtype(outputs["alone"][name]) for name in names))


def _repeated(arrays: Mapping[str, Any], count: int) -> dict[str, Any]:
    return {name: np.ascontiguousarray(np.repeat(array, count, axis=0)) for name, array in arrays.items()}


def _dtype(array: Any) -> str:
    return "string" if array.dtype.kind in "SUO" else str(array.dtype.name)


def _save(file: Path, outputs: Mapping[str, Answer], names: list[str]) -> None:
    """bfloat16 is widened, strings are text: what any numpy reads."""
    arrays = {f"{way}/{position}": _plain(answer[name]) for way, answer in outputs.items() for position, name in enumerate(names)}
    np.savez(file, **arrays)


def _plain(array: Any) -> Any:
    if array.dtype.kind == "O":
        return np.array([one.decode() if isinstance(one, bytes) else str(one) for one in array.ravel()]).reshape(array.shape)
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8")
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _refusal(code: str, cause: str, error: BaseException) -> Observation:
    return replace(fault(code, cause, "See the cause.").observation, evidence={"error": type(error).__name__})

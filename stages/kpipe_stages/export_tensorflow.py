"""Reload on TensorFlow, trace once with ``training=False``, write SavedModel, ONNX and LiteRT from that one trace, and open each again."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe_stages.artifacts import litert, onnx_model, saved_model
from kpipe_stages.artifacts.inventory import FORMAT_TITLES
from kpipe_stages.artifacts.record import Written, record, repaired
from kpipe_stages.artifacts.repairs import scopes_renamed, signs_without_bits, unrolled
from kpipe_stages.artifacts.tracing import LOOPS, STATE_OPS, Trace, as_given, observe_state, trace, weight_bytes
from kpipe_stages.codec import decode
from kpipe_stages.keras_loading import KerasCaller, load_model, telling_line
from kpipe_stages.lean import without_extras
from kpipe_stages.memory import give_back
from kpipe_stages.protocol import Artifact, Binding, ExportJob, ExportResult, Job, Observation, Signature, StageError, Twin
from kpipe_stages.session import check_artifact, named_layer, out_of_memory
from kpipe_stages.worker import Worker, distribution_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


EXTRAS = {"saved_model": "tensorflow", "litert": "tensorflow", "onnx": "onnx_export"}
"""Format to the extra that holds its converter."""


@dataclass
class _Export:
    """What the steps share."""

    job: ExportJob
    worker: Worker
    caller: KerasCaller
    parameters: int
    weight_bytes: int
    signature: Signature
    """The model's own, its outputs as it really gives them."""
    traced: Trace | None = None
    repairs: list[str] = field(default_factory=list)
    """Of the trace: they are in every artifact."""
    artifacts: list[Artifact] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        return Path(self.job.out)

    def file(self, kind: str, name: str) -> Path:
        """Where a format's file goes: each format has a folder of its own, so that ``deploy.toml`` can lie beside it."""
        folder = self.out / kind
        folder.mkdir(parents=True, exist_ok=True)
        return folder / name

    @property
    def saved_model(self) -> Path:
        return self.out / "saved_model" / "1"


def run(job: Job, worker: Worker) -> ExportResult:
    """Export every format of the job; one that fails becomes an observation and the others go on.

    Raises:
        StageError: KP301 (no TensorFlow or Keras), KP310 (another backend), KP210, KP211 (the model isn't there, or isn't the inspected one),
            and what `kpipe_stages.keras_loading` raises.
    """
    params = decode(ExportJob, job.params)
    worker.distributions = ["tensorflow", "keras", "h5py", "tf2onnx", "onnx", "numpy"]
    _, import_s = worker.timed("import", _import_lean)
    check_artifact(params.model, params.sha256)
    caller, load_s = worker.timed("load", lambda: KerasCaller(load_model(params.model, params.trust)))
    parameters = sum(math.prod(variable.shape) for variable in caller.model.weights)
    export = _Export(params, worker, caller, parameters, weight_bytes(caller.model), caller.signature)
    export.seconds.update({"import": import_s, "load": load_s})
    export.out.mkdir(parents=True, exist_ok=True)
    try:
        _, export.seconds["trace"] = worker.timed("trace", lambda: _trace(export))
    except StageError as error:
        worker.emit("signature", signature=export.signature)
        for kind in params.formats:
            _observe(export, kind, replace(error.observation, cause=f"No {FORMAT_TITLES[kind]}: {error.observation.cause}"))
    else:
        export.signature, contradicted = as_given(_traced(export))
        worker.observations.extend(contradicted)
        worker.emit("signature", signature=export.signature)
        give_back(export.weight_bytes)
        _formats(export)
    return ExportResult(signature=export.signature, artifacts=tuple(export.artifacts), seconds=export.seconds)


def _import_lean() -> None:
    with without_extras("tensorflow"):
        _import()


def _import() -> None:
    try:
        import keras
        import tensorflow as tf  # noqa: F401 - its import is part of what is timed
    except ImportError as error:
        raise StageError(_not_installed("The model can't be reloaded on TensorFlow and exported", "tensorflow", error)) from error
    if keras.backend.backend() != "tensorflow":
        raise StageError(
            Observation(
                "KP310",
                f"The export runs on the {keras.backend.backend()} backend; it needs tensorflow.",
                "Start it with KERAS_BACKEND=tensorflow and no keras.json.",
                place="export",
            )
        )


def _trace(export: _Export) -> None:
    if not export.job.repairs:
        export.traced = trace(export.caller)
    else:
        with scopes_renamed(export.caller.model) as names:
            export.traced = trace(export.caller)
            if "Bitcast" in export.traced.op_types():
                _trace_without_bits(export)
            if export.traced.op_types() & set(STATE_OPS):
                _trace_without_dead_state(export)
        if names:
            short = ", ".join(f"'{name}'" for name in names[:6])
            export.repairs.append(f"Ops of {short} have another scope name inside the graph, because TensorFlow doesn't take these names.")
    export.caller.signature = _traced(export).signature
    export.worker.observations.extend(observe_state(_traced(export)))


def _trace_without_dead_state(export: _Export) -> None:
    """Augmentation layers draw a seed, and write it back, even where nothing is done with it; a graph that writes state can't be frozen."""
    other = trace(export.caller, prune=True)
    if not other.op_types() & set(STATE_OPS):
        places = [place for op in STATE_OPS for place in _traced(export).places_of(op)]
        export.traced = other
        export.repairs.append(f"State that is written and that no output depends on{_in_layer(*places)} is left out of the graph.")


def _trace_without_bits(export: _Export) -> None:
    with signs_without_bits():
        other = trace(export.caller)
    if "Bitcast" not in other.op_types():
        where = _in_layer(*_traced(export).places_of("Bitcast"))
        export.traced = other
        export.repairs.append(
            f"The sign of a float in argmax or argmin{where} is told by arithmetic, because only TensorFlow can take it from the bits."
        )


def _formats(export: _Export) -> None:
    """SavedModel first: its targets and the OpenVINO conversion wait for it, and LiteRT is converted from it."""
    steps: dict[str, Callable[[_Export], None]] = {"saved_model": _saved_model, "onnx": _onnx, "litert": _litert}
    wanted = [kind for kind in steps if kind in export.job.formats or (kind == "saved_model" and "litert" in export.job.formats)]
    for position, kind in enumerate(wanted):
        export.worker.progress(f"export {FORMAT_TITLES[kind]}", position, len(wanted))
        try:
            _, export.seconds[kind] = export.worker.timed(kind, partial(steps[kind], export))
        except StageError as error:
            _observe(export, kind, error.observation)
        except Exception as error:  # noqa: BLE001 - converters raise anything; the format is left out with the reason, the others go on
            _observe(export, kind, _why(export, kind, error))
        give_back(export.weight_bytes)


def _saved_model(export: _Export) -> None:
    traced = _traced(export)
    shutil.rmtree(export.saved_model, ignore_errors=True)
    saved_model.write(traced, export.saved_model)
    if "saved_model" in export.job.formats:
        _record(export, "saved_model", export.saved_model, _known(traced), _versions("tensorflow", "keras"))


def _onnx(export: _Export) -> None:
    traced, path = _traced(export), export.file("onnx", "model.onnx")
    converted = onnx_model.convert(traced, repairs=export.job.repairs)
    path.write_bytes(converted.model.SerializeToString())
    converted = replace(converted, model=None)  # the file is read again below
    names = {spec.name: spec.name for spec in traced.signature.inputs}
    repairs = []
    if converted.erfc:
        repairs.append(f"Erfc{_in_layer(*map(traced.layer_of, converted.erfc))} is written as 1 - Erf, because ONNX has no Erfc.")
    if converted.inlined:
        where = _in_layer(*map(traced.layer_of, converted.inlined))
        repairs.append(f"A function that TensorFlow compiles by itself{where} is inlined, because ONNX has no call.")
    versions = _versions("tensorflow", "keras", "tf2onnx", "onnx")
    known = Binding(inputs=names, outputs=onnx_model.output_names(traced))
    _record(export, "onnx", path, known, versions, repairs)


def _litert(export: _Export) -> None:
    traced, path = _traced(export), export.file("litert", "model.tflite")
    if not (export.saved_model / "saved_model.pb").is_file():
        raise StageError(_failed(export, "litert", "there is no SavedModel to convert from", ()))
    repairs: list[str] = []
    source = ""
    try:
        data = litert.convert(export.saved_model)
    except litert.ConversionError as error:
        repaired = _litert_batch_1(export, error) if export.job.repairs and not export.job.allow_select_tf else None
        if repaired is not None:
            data, repairs, source = repaired[0], [repaired[1]], str(_batch_1(export))
        else:
            data = _litert_select_tf(export, error)
    path.write_bytes(data)
    twin = _unrolled(export) if export.job.calibrates and export.job.repairs and "WHILE" in litert.read(path).ops else None
    _record(export, "litert", path, _known(traced), _versions("tensorflow", "keras"), repairs, source, twin)


def _litert_batch_1(export: _Export, error: litert.ConversionError) -> tuple[bytes, str] | None:
    """Convert a trace at batch 1, where a free batch axis is what kept LiteRT's own ops from standing in; None where that isn't it."""
    lists = [op for op in error.ops if op.startswith("TensorList")]
    if not lists or all(spec.shape and spec.shape[0] is not None for spec in export.caller.signature.inputs):
        return None
    twin = _batch_1(export)
    shutil.rmtree(twin, ignore_errors=True)
    try:
        with scopes_renamed(export.caller.model):
            saved_model.write(trace(export.caller, batch=1), twin)
        data = litert.convert(twin)
    except (StageError, litert.ConversionError):
        shutil.rmtree(twin, ignore_errors=True)
        return None  # the failure with the free axis is the one to report
    where = _in_layer(*(place for op in lists for place in _traced(export).places_of(op)))
    return data, f"The batch axis is fixed at 1, because LiteRT has no {lists[0]} with a free one{where}."


def _unrolled(export: _Export) -> Twin | None:
    """A trace without the loops of recurrent layers: LiteRT's calibration ends the process on them. None where the number of steps is free."""
    folder = export.worker.folder / "litert_unrolled"
    with scopes_renamed(export.caller.model), unrolled(export.caller.model) as names:
        try:
            twin = trace(export.caller) if names else None
        except StageError:
            return None  # the crash of the calibration, and its ways out, are what is told
    if twin is None or twin.op_types() & set(LOOPS):
        return None
    shutil.rmtree(folder, ignore_errors=True)
    saved_model.write(twin, folder)
    told = f"Recurrent layers{_in_layer(*names)[9:]} are written out step by step, because LiteRT's calibration crashes on their loops."
    return Twin(str(folder), (*export.repairs, told))


def _batch_1(export: _Export) -> Path:
    """Where the SavedModel at batch 1 stays: precision variants are converted from it too."""
    return export.worker.folder / "litert_batch_1"


def _litert_select_tf(export: _Export, first: litert.ConversionError) -> bytes:
    """Convert with TensorFlow's ops allowed, to learn which ones the model needs; `record` observes them as foreign."""
    try:
        return litert.convert(export.saved_model, select_tf=True)
    except litert.ConversionError as error:
        raise StageError(_failed(export, "litert", str(error), first.ops or error.ops, error.text)) from error


def _traced(export: _Export) -> Trace:
    assert export.traced is not None  # noqa: S101 - formats run only after a trace
    return export.traced


def _known(traced: Trace) -> Binding:
    inputs = dict(zip([spec.name for spec in traced.signature.inputs], traced.inputs, strict=True))
    return Binding(inputs=inputs, outputs={name: name for name in traced.outputs})


def _record(
    export: _Export,
    kind: str,
    path: Path,
    known: Binding,
    versions: dict[str, str],
    repairs: Sequence[str] = (),
    source: str = "",
    twin: Twin | None = None,
) -> None:
    repairs = (*export.repairs, *repairs)
    for repair in repairs:
        _observe(export, kind, repaired(kind, repair))
    allowed = kind == "litert" and export.job.allow_select_tf
    written = Written(kind, path, known, versions, repairs)
    artifact, seen = record(written, export.signature, export.parameters, traced=_traced(export), foreign_allowed=allowed)
    for observation in seen:
        _observe(export, kind, observation)
    if artifact is not None:
        artifact = replace(artifact, source=source, unrolled=twin)
        export.artifacts.append(artifact)
        export.worker.emit("artifact", artifact=artifact)


def _observe(export: _Export, kind: str, observation: Observation) -> None:
    evidence = {**observation.evidence, "format": kind}
    export.worker.observe(observation.code, observation.cause, observation.remedy, observation.place, **evidence)


def _in_layer(*places: str) -> str:
    named = [f"'{place}'" for place in dict.fromkeys(places) if place]
    return f" in layer {', '.join(named[:4])}" if named else ""


def _why(export: _Export, kind: str, error: Exception) -> Observation:
    """What kept a format from being written: a missing library or a want of memory is this machine's, anything else the model's."""
    if isinstance(error, ImportError):
        return _not_installed(f"The model can't be converted to {FORMAT_TITLES[kind]}", EXTRAS[kind], error)
    if out_of_memory(error):
        return Observation(
            "KP306",
            f"The conversion to {FORMAT_TITLES[kind]} ran out of memory: {type(error).__name__}: {telling_line(error)}",
            "Give the machine more memory, or run fewer jobs at a time.",
            place=kind,
        )
    return _failed(export, kind, telling_line(error), (), str(error))


def _not_installed(what: str, extra: str, error: ImportError) -> Observation:
    return Observation(
        "KP301",
        f"{what}: {telling_line(error)}.",
        f"Install what it needs: pip install 'keras-kpipe[{extra}]'.",
        place=(error.name or extra).partition(".")[0],
        evidence={"extra": extra},
    )


def _failed(export: _Export, kind: str, reason: str, ops: tuple[str, ...], text: str = "") -> Observation:
    """KP201 with what the converter's words (``text``, all of them) name: ops, else nodes of the graph, else the layers of a dtype."""
    traced = _traced(export)
    words = set(re.findall(r"\w+", reason))
    telling = {word for word in words if sum(letter.isupper() for letter in word) > 1}  # RFFT, AvgPool3D; not Add or Shape, which are English too
    ops = ops or tuple(sorted(op for op in traced.op_types() & telling if traced.places_of(op)))
    places = list(dict.fromkeys(place for op in ops for place in traced.places_of(op)))
    if not places and (name := named_layer(f"{text or reason} {traced.why_not_frozen}", traced.layers)):
        places = [name]
    places = places or traced.layers_with(words)
    told = f"{', '.join(ops[:4])}{_in_layer(*places)}".strip()
    named = f" ({told})" if told else ""
    weights = "" if traced.frozen else f" (the weights couldn't be made constants: {traced.why_not_frozen})"
    return Observation(
        "KP201",
        f"The conversion to {FORMAT_TITLES[kind]} failed{named}: {reason}{weights}",
        "Replace what it names by something this format has, or leave this format's targets out of the contract.",
        place=places[0] if places else kind,
        evidence={"ops": list(ops), "layers": places},
    )


def _versions(*distributions: str) -> dict[str, str]:
    return {name: version for name in distributions if (version := distribution_version(name))}

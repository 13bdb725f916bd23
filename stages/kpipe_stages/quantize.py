"""Make a precision variant of a float artifact, and open it again as every artifact is.

LiteRT's are converted from the SavedModel, ONNX' by ONNX Runtime's tools, OpenVINO's by OpenVINO and NNCF, Keras' by Keras. What a variant is worth
is not looked at here: it is run and judged like every target.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe_stages.artifacts.inventory import FORMAT_TITLES
from kpipe_stages.artifacts.record import Written, accept, repaired
from kpipe_stages.catalog import LEAST_VARIANT_BYTES, VARIANT_SHARE, VARIANTS
from kpipe_stages.codec import decode
from kpipe_stages.digest import digest
from kpipe_stages.protocol import Artifact, ArtifactResult, Job, Observation, QuantizeJob, StageError
from kpipe_stages.quantizing.made import Made, NotMadeError
from kpipe_stages.quantizing.samples import open_samples
from kpipe_stages.session import check_artifact, out_of_memory, with_layers
from kpipe_stages.worker import distribution_version

if TYPE_CHECKING:
    from kpipe_stages.worker import Worker


def run(job: Job, worker: Worker) -> ArtifactResult:
    """Write ``<out>/<format>_<variant>/`` and open what is in it.

    Raises:
        StageError: KP220 (it can't be made), KP221 (nothing of it became smaller), KP301 (what makes it isn't installed), KP306, KP210, KP211,
            and what `kpipe_stages.artifacts.record.accept` raises.
    """
    params = decode(QuantizeJob, job.params)
    kind = params.source.format
    maker = importlib.import_module(f"kpipe_stages.quantizing.{kind}")
    worker.distributions = list(maker.DISTRIBUTIONS)
    for artifact in (params.source, params.saved_model):
        if artifact is not None:
            check_artifact(artifact.path, artifact.sha256, artifact.companions)
    path = Path(params.out) / f"{kind}_{params.variant}" / maker.FILE
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir(parents=True)
    try:
        _, import_s = worker.timed("import", maker.bring)
        made, make_s = worker.timed("quantize", lambda: maker.make(params, path, open_samples(params)))
    except NotMadeError as error:
        raise StageError(_not_made(params, error)) from error
    except ImportError as error:
        raise StageError(_not_installed(params, error)) from error
    except MemoryError as error:
        raise StageError(_no_memory(params, error)) from error
    variant = _opened(params, worker, path, made, maker.DISTRIBUTIONS)
    if params.source.parameters_bytes >= LEAST_VARIANT_BYTES and variant.parameters_bytes > VARIANT_SHARE * params.source.parameters_bytes:
        raise StageError(_no_smaller(params, variant))
    return ArtifactResult(artifact=variant, seconds={"import": import_s, "quantize": make_s})


def _opened(params: QuantizeJob, worker: Worker, path: Path, made: Made, distributions: tuple[str, ...]) -> Artifact:
    repairs = [*(params.source.repairs if made.repairs is None else made.repairs)]
    if made.kept:
        title = _title(params)
        repairs.append(f"In the {title} artifact {with_layers(made.kept, params.source.op_layers)} stays in float32, because it has no such form.")
    for repair in repairs:
        worker.observations.append(repaired(params.source.format, repair))
    used = [name for name in distributions if name in sys.modules]
    versions = {name: version for name in used if (version := distribution_version(name))}
    if params.source.format == "keras":
        return _keras_file(params, path, versions)
    written = Written(params.source.format, path, params.source.binding, versions, tuple(repairs))
    return replace(accept(worker, written, params.signature, params.parameters, params.source.op_layers), variant=params.variant)


def _keras_file(params: QuantizeJob, path: Path, versions: dict[str, str]) -> Artifact:
    """A ``.keras`` file has the candidate's own inputs and outputs; its worker says so for itself."""
    return replace(
        params.source,
        path=str(path),
        sha256=digest(path),
        size=path.stat().st_size,
        parameters_bytes=_stored_bytes(path),
        versions=versions,
        variant=params.variant,
    )


def _stored_bytes(path: Path) -> int:
    """Bytes of the arrays in the weights file."""
    import io
    import zipfile

    import h5py

    total = 0

    def add(_name: str, item: Any) -> None:
        nonlocal total
        total += int(item.size * item.dtype.itemsize) if isinstance(item, h5py.Dataset) else 0

    with zipfile.ZipFile(path) as archive, h5py.File(io.BytesIO(archive.read("model.weights.h5")), "r") as weights:
        weights.visititems(add)
    return total


def _title(params: QuantizeJob) -> str:
    return f"{FORMAT_TITLES.get(params.source.format, 'Keras')} {params.variant}"


def _not_made(params: QuantizeJob, error: NotMadeError) -> Observation:
    if out_of_memory(error):
        return _no_memory(params, error)
    layers = params.source.op_layers
    places = [place for op in error.ops for place in layers.get(op, ())]
    named = f" ({with_layers(error.ops, layers)})" if error.ops else ""
    others = [name for name in VARIANTS[params.source.format] if name != params.variant]
    instead = f"choose another variant ({', '.join(others)})" if others else "leave the variant out"
    return Observation(
        "KP220",
        f"The {_title(params)} variant can't be made{named}: {error}",
        f"Replace what it names by something that has this precision, or {instead}.",
        place=places[0] if places else error.ops[0] if error.ops else params.variant,
        evidence={"ops": list(error.ops), "layers": places, "variant": params.variant},
    )


def _no_smaller(params: QuantizeJob, artifact: Artifact) -> Observation:
    return Observation(
        "KP221",
        f"The {_title(params)} variant holds {artifact.parameters_bytes:,} bytes of constants, the float artifact {params.source.parameters_bytes:,}: next to nothing was made smaller.",
        "Take the target out: it would ship the float model under another name. Or choose a variant that covers the model's layers.",
        place=params.variant,
        evidence={"bytes": artifact.parameters_bytes, "float_bytes": params.source.parameters_bytes, "variant": params.variant},
    )


def _not_installed(params: QuantizeJob, error: ImportError) -> Observation:
    extra = VARIANTS[params.source.format][params.variant].extra
    return Observation(
        "KP301",
        f"The {_title(params)} variant can't be made here: {error}.",
        f"Install what it needs: pip install 'keras-kpipe[{extra}]'.",
        place=(error.name or extra).partition(".")[0],
        evidence={"extra": extra},
    )


def _no_memory(params: QuantizeJob, error: BaseException) -> Observation:
    return Observation(
        "KP306",
        f"Making the {_title(params)} variant ran out of memory: {type(error).__name__}: {error}",
        "Give the machine more memory, or run fewer jobs at a time.",
        place=params.variant,
    )

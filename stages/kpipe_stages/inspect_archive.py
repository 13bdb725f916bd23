"""Stage ``inspect``: what a ``.keras`` file holds, and whether it may be loaded at all. Nothing of the file runs; Keras isn't imported.

In order, each step refusing before the next could hurt: the file, the zip structure, the members, the config, the weights.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

from kpipe_stages.archive.collecting import Collector, shown
from kpipe_stages.archive.config_tree import ConfigJudge
from kpipe_stages.archive.custom_objects import read_custom_objects
from kpipe_stages.archive.hdf5_safety import Contents, Stored, read_contents, read_saved_names
from kpipe_stages.archive.hints import integer_ranges, output_activations
from kpipe_stages.archive.json_text import read_json_object
from kpipe_stages.archive.layers import Layer, read_layers, walk
from kpipe_stages.archive.peek import HDF5_SIGNATURE, open_candidate
from kpipe_stages.archive.signature import read_signature
from kpipe_stages.archive.weights_check import Owners, check_declared_sizes, check_saved_names, check_weights, is_training_state, refuse_unbuilt
from kpipe_stages.archive.weights_scan import scan
from kpipe_stages.archive.zip_reading import check_member, extract_member, read_member
from kpipe_stages.archive.zip_structure import SAVE_AGAIN, Member, read_structure
from kpipe_stages.codec import decode
from kpipe_stages.protocol import InspectJob, InspectResult, Job, LayerRow
from kpipe_stages.worker import distribution_version

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from kpipe_stages.worker import Worker

CONFIG = "config.json"
METADATA = "metadata.json"
WEIGHTS = "model.weights.h5"
ASSETS = "assets/"


def run(job: Job, worker: Worker) -> InspectResult:
    """Look into the archive.

    Raises:
        StageError: it was refused; every other problem found before is an observation.
    """
    worker.distributions = ["h5py", "numpy"]
    collector = Collector()
    try:
        return _inspect(decode(InspectJob, job.params), worker, collector)
    finally:
        worker.observations.extend(collector.others())


def _inspect(job: InspectJob, worker: Worker, collector: Collector) -> InspectResult:
    provided = read_custom_objects(job.trust, collector)
    with open_candidate(job.model, collector) as file:
        worker.enter("structure")
        members = read_structure(file, job.limits, collector)
        _check_members(file, members, worker, collector)
        config = _read_json(file, members, CONFIG, job, collector)
        metadata = _read_json(file, members, METADATA, job, collector)
        worker.enter("config")
        if config is not None:
            ConfigJudge(provided, job.trust.allow_lambda, collector).judge(config)
        for layer in walk(read_layers(config or {})):
            _check_forced_training(layer, collector)
        _check_version(metadata or {}, collector)
        contents = _inspect_weights(file, members, config, job, worker, collector)
        collector.gate()
        digest, size = _digest(file)
    return _result(config or {}, metadata or {}, contents, members, digest, size)


def _check_members(file: BinaryIO, members: dict[str, Member], worker: Worker, collector: Collector) -> None:
    for done, (name, member) in enumerate(members.items()):
        if name not in {CONFIG, METADATA, WEIGHTS} and not name.startswith(ASSETS):
            collector.note(
                "KP016", f"Member '{shown(name)}' is none that Keras writes.", "Leave it out: it ships with the model unchecked.", place=name
            )
        if name not in {CONFIG, METADATA, WEIGHTS} and not member.is_folder:
            _report("members", done, len(members), worker)
            check_member(file, member, collector)
    for name in (CONFIG, METADATA):
        if name not in members:
            collector.refuse("KP004", f"The archive has no {name}.", "Save the model with Keras 3: model.save('model.keras').", place=name)
    if WEIGHTS not in members:
        other = next((shown(name) for name in members if name.startswith("model.weights")), "no weights file at all")
        collector.refuse(
            "KP008", f"The archive has no {WEIGHTS}; it has {other}.", "Save the model with Keras 3: model.save('model.keras').", place=WEIGHTS
        )


def _read_json(file: BinaryIO, members: dict[str, Member], name: str, job: InspectJob, collector: Collector) -> dict[str, Any] | None:
    if name not in members:
        return None
    if members[name].size > job.limits.max_config_bytes:
        cause = f"{name} declares {members[name].size} bytes; at most {job.limits.max_config_bytes} are allowed."
        collector.refuse("KP003", cause, SAVE_AGAIN, place=name, declared=members[name].size)
        return None
    data = read_member(file, members[name], collector)
    return None if data is None else read_json_object(data, name, job.limits.max_json_depth, collector)


def _check_forced_training(layer: Layer, collector: Collector) -> None:
    if layer.forced_training:
        cause = f"Layer '{shown(layer.name)}' ({shown(layer.class_name)}) is called with training=True, whatever the model is called with."
        remedy = "Call it without training, unless it must stay in training mode (then the model may not answer the same twice)."
        collector.note("KP013", cause, remedy, place=layer.name)


def _check_version(metadata: dict[str, Any], collector: Collector) -> None:
    if not metadata:
        return
    text = metadata.get("keras_version")
    saved = re.match(r"(\d{1,6})\.(\d{1,6})", text) if isinstance(text, str) else None
    if saved is None:
        cause = f"metadata.json has keras_version {shown(repr(text))}; a version like '3.12.0' was expected."
        collector.refuse("KP004", cause, "Save the model with Keras 3: model.save('model.keras').", place=METADATA)
        return
    installed = distribution_version("keras")
    have = re.match(r"(\d+)\.(\d+)", installed) if installed else None
    if have and tuple(map(int, saved.groups())) > tuple(map(int, have.groups())):
        cause = f"The model was saved by Keras {shown(text)}; Keras {installed} is installed and may not know all of it."
        collector.note(
            "KP014",
            cause,
            "Validate with the Keras version that production trains with, or newer.",
            place=METADATA,
            saved=shown(text),
            installed=installed,
        )


def _inspect_weights(
    file: BinaryIO, members: dict[str, Member], config: dict[str, Any] | None, job: InspectJob, worker: Worker, collector: Collector
) -> Contents:
    if WEIGHTS not in members:
        return Contents({}, ())
    worker.enter("weights")
    copy = worker.folder / "weights.h5"
    try:
        if not extract_member(file, members[WEIGHTS], copy, collector) or not _is_hdf5(copy, collector):
            return Contents({}, ())
        return _open_weights(copy, config, job, worker, collector)
    finally:
        copy.unlink(missing_ok=True)


def _is_hdf5(path: Path, collector: Collector) -> bool:
    with path.open("rb") as file:
        found = file.read(len(HDF5_SIGNATURE)) == HDF5_SIGNATURE
    if not found:
        collector.refuse("KP001", f"{WEIGHTS} isn't an HDF5 file: it doesn't begin as one.", "Save or copy the model again.", place=WEIGHTS)
    return found


def _open_weights(path: Path, config: dict[str, Any] | None, job: InspectJob, worker: Worker, collector: Collector) -> Contents:
    import h5py

    try:
        weights = h5py.File(path, "r")
    except (OSError, RuntimeError, ValueError) as error:
        collector.refuse("KP001", f"{WEIGHTS} can't be opened: {shown(error)}.", "Save or copy the model again.", place=WEIGHTS)
        return Contents({}, ())
    with weights:
        contents = read_contents(weights, path.stat().st_size, job.limits, collector)
        layers = read_layers(config or {})
        if config is not None and not collector.refused and not refuse_unbuilt(config, contents, collector):
            check_declared_sizes(config, contents, collector)
            check_weights(config, layers, contents, collector)
        _scan(weights, contents, Owners(layers), worker, collector)
        if not collector.refused:
            check_saved_names(layers, read_saved_names(weights, contents, collector), collector)
    return contents


def _scan(weights: Any, contents: Contents, owners: Owners, worker: Worker, collector: Collector) -> None:
    for done, (path, stored) in enumerate(contents.arrays.items()):
        if is_training_state(path):
            continue
        _report("weights", done, len(contents.arrays), worker)
        try:
            found = scan(weights[path], stored)
        except (OSError, RuntimeError, ValueError, MemoryError) as error:
            collector.refuse("KP001", f"Weight '{shown(path)}' can't be read: {shown(error)}.", "Save or copy the model again.", place=path)
            continue
        if found is not None:
            owner = owners.of(path)
            of = f" of layer '{shown(owner.name)}'" if owner is not None else ""
            counts = f"{found.nan} NaN and {found.inf} infinite values of {stored.count}"
            cause = f"Weight '{shown(path)}'{of} holds {counts}; the first at {list(found.first)}."
            remedy = "Don't ship it: train again from the last good checkpoint (some runtimes hide a NaN behind a relu, others don't)."
            where = owner.name if owner is not None else path
            collector.note(
                "KP010", cause, remedy, place=where, path=shown(path), nan=found.nan, inf=found.inf, count=stored.count, first=list(found.first)
            )


def _report(what: str, done: int, total: int, worker: Worker) -> None:
    if done % max(1, total // 50) == 0:
        worker.progress(what, done, total)


def _digest(file: BinaryIO) -> tuple[str, int]:
    file.seek(0)
    digest = hashlib.sha256()
    while block := file.read(2**20):
        digest.update(block)
    return digest.hexdigest(), file.tell()


def _result(
    config: dict[str, Any], metadata: dict[str, Any], contents: Contents, members: dict[str, Member], digest: str, size: int
) -> InspectResult:
    layers = read_layers(config)
    own = {path: stored for path, stored in contents.arrays.items() if not is_training_state(path)}
    counts = _counts(own)
    name = config["config"].get("name")
    signature = read_signature(config, layers)
    inputs, outputs = (tuple(spec.name for spec in specs) for specs in ((signature.inputs, signature.outputs) if signature else ((), ())))
    return InspectResult(
        sha256=digest,
        size=size,
        keras_version=metadata["keras_version"],
        saved_at=str(metadata.get("date_saved", "")),
        model_class=config["class_name"],
        model_name=name if isinstance(name, str) else "",
        layers=tuple(_row(layer, counts) for layer in walk(layers)),
        parameters=sum(stored.count for stored in own.values()),
        weight_bytes=sum(stored.nbytes for stored in own.values()),
        signature=signature,
        members={name: member.size for name, member in members.items()},
        has_optimizer=len(own) < len(contents.arrays),
        activations=output_activations(config, outputs),
        integer_ranges=integer_ranges(config, inputs),
    )


def _counts(arrays: dict[str, Stored]) -> dict[str, int]:
    """Numbers stored below every group."""
    counts = dict[str, int]()
    for path, stored in arrays.items():
        parts = path.split("/")
        for length in range(1, len(parts)):
            group = "/".join(parts[:length])
            counts[group] = counts.get(group, 0) + stored.count
    return counts


def _row(layer: Layer, counts: dict[str, int]) -> LayerRow:
    parameters = counts.get(layer.prefix, 0) if layer.prefix and not layer.shared else None
    return LayerRow(layer.name, layer.class_name, layer.module, layer.registered_name, layer.dtype, parameters, layer.forced_training)

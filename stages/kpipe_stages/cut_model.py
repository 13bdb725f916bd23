"""Write a model that gives the output of every layer (or of some) besides its own outputs: an archive like any other, which every stage can run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe_stages.codec import decode
from kpipe_stages.cutting.opening import Opened, open_model
from kpipe_stages.cutting.orders import CutJob, CutResult, Point
from kpipe_stages.digest import digest
from kpipe_stages.keras_loading import KerasCaller, load_model
from kpipe_stages.lean import without_extras
from kpipe_stages.protocol import StageError
from kpipe_stages.session import check_artifact, fault, telling_line

if TYPE_CHECKING:
    from kpipe_stages.protocol import Job, Trust
    from kpipe_stages.worker import Worker


def run(job: Job, worker: Worker) -> CutResult:
    """Cut the model.

    Raises:
        StageError: KP630 (it can't be cut open), KP210, KP211 (it isn't there, or isn't the one that was run), and what `load_model` raises.
    """
    order = decode(CutJob, job.params)
    worker.distributions = ["tensorflow", "keras", "numpy"]
    check_artifact(order.model, order.sha256)
    bring(worker)
    return _cut(order)


def bring(worker: Worker) -> None:
    """Import Keras on TensorFlow.

    Raises:
        StageError: KP301.
    """
    try:
        with without_extras("tensorflow"):
            worker.timed("import", _import)
    except ImportError as error:
        raise fault("KP301", f"The model can't be cut open: {error}", "Install TensorFlow: pip install 'keras-kpipe[tensorflow]'.") from error


def _import() -> None:
    import keras  # noqa: F401 - loaded here so that its time is the import's


def opened(path: str, trust: Trust) -> tuple[Opened, tuple[Point, ...], dict[str, Any]]:
    """The opened model: graph, points, and point (or input) name to symbolic tensor.

    Opened as deep as can be saved and loaded again; a model that can't be opened so deep is opened at its functional parts only.

    Raises:
        StageError: KP630.
    """
    first: StageError | None = None
    for deep in (True, False):
        try:
            graph = open_model(load_model(path, trust), deep=deep)
            points, tensors = points_of(graph)
            _prove(graph, points, tensors, trust)
        except StageError as error:
            first = first or error
            continue
        return graph, points, tensors
    assert first is not None  # noqa: S101 - both ways have failed
    raise first


def _prove(graph: Opened, points: tuple[Point, ...], tensors: dict[str, Any], trust: Trust) -> None:
    """See that the whole graph can be saved and loaded again."""
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        save(graph, {point.name: tensors[point.name] for point in points}, Path(scratch) / "probe.keras")
        load_model(str(Path(scratch) / "probe.keras"), trust)


def points_of(graph: Opened) -> tuple[tuple[Point, ...], dict[str, Any]]:
    """Every tensor that a call gives, numbered in the order of computation; and name to tensor, the model's inputs among them."""
    tensors: dict[str, Any] = dict(graph.inputs)
    known = {id(tensor): name for name, tensor in graph.inputs.items()}
    points: list[Point] = []

    def number(tensor: Any) -> str:
        name = f"p{len(known):04d}"
        while name in tensors:
            name += "_"  # an input of the model has that name
        known[id(tensor)] = name
        tensors[name] = tensor
        return name

    for call in graph.calls:
        for position, tensor in enumerate(call.node.outputs):
            name = number(tensor)
            if tensor.dtype != "string" and tensor.shape is not None:
                path = call.path if len(call.node.outputs) == 1 else f"{call.path}[{position}]"
                points.append(_point(name, path, call.node, tensor, known))
    for tensor in graph.outputs.values():
        given = known[id(tensor)]
        if given in graph.inputs:  # an output that is an input
            points.append(Point(number(tensor), tensor.name, "InputLayer", {}, (given,), tuple(tensor.shape), str(tensor.dtype)))
    return tuple(points), tensors


def _point(name: str, path: str, node: Any, tensor: Any, known: dict[int, str]) -> Point:
    try:
        config = json.loads(json.dumps(node.operation.get_config(), default=str))
    except Exception:  # noqa: BLE001 - get_config is the layer's own code; the point doesn't need it
        config = {}
    inputs = tuple(dict.fromkeys(known[id(one)] for one in node.input_tensors))
    return Point(name, path, type(node.operation).__name__, config, inputs, tuple(tensor.shape), str(tensor.dtype))


def save(graph: Opened, outputs: dict[str, Any], path: Path) -> Any:
    """Write the flat model with these outputs.

    Raises:
        StageError: KP630, Keras can't save it.
    """
    import keras

    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        model = keras.Model(list(graph.inputs.values()), outputs, name="cut_open")
        model.save(path)
    except Exception as error:  # the layers' own code describes them; it may raise anything
        raise fault("KP630", f"The model can't be saved with its intermediate outputs: {telling_line(error)}", "", place=path.name) from error
    return model


def _cut(order: CutJob) -> CutResult:
    graph, points, tensors = opened(order.model, order.trust)
    names = {id(tensors[point.name]): point.name for point in points}
    if lost := [output for output, tensor in graph.outputs.items() if id(tensor) not in names]:
        raise fault("KP630", f"Output '{lost[0]}' of the model is text; only numbers can be followed through its layers.", "", place=lost[0])
    finals = {output: names[id(tensor)] for output, tensor in graph.outputs.items()}
    wanted = [point.name for point in points if order.expose is None or point.name in {*order.expose, *finals.values()}]
    path = Path(order.out)
    model = save(graph, {name: tensors[name] for name in wanted}, path)
    inputs = {name: tensor.name for name, tensor in graph.inputs.items()}
    return CutResult(digest(path), points, finals, inputs, KerasCaller(model).signature, graph.closed)

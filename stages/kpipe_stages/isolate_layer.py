"""Write a model of one layer alone: with its weights, fed by inputs of the shapes that it gets in the whole model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe_stages.codec import decode
from kpipe_stages.cut_model import bring, opened
from kpipe_stages.cutting.orders import IsolateJob, IsolateResult
from kpipe_stages.digest import digest
from kpipe_stages.keras_loading import KerasCaller
from kpipe_stages.session import check_artifact, fault, telling_line

if TYPE_CHECKING:
    from kpipe_stages.protocol import Job
    from kpipe_stages.worker import Worker

OUTPUT = "answer"


def run(job: Job, worker: Worker) -> IsolateResult:
    """Take the layer out.

    Raises:
        StageError: KP630 (the layer can't stand alone), KP210, KP211, and what `load_model` raises.
    """
    order = decode(IsolateJob, job.params)
    worker.distributions = ["tensorflow", "keras", "numpy"]
    check_artifact(order.model, order.sha256)
    bring(worker)
    return _isolate(order)


def _isolate(order: IsolateJob) -> IsolateResult:
    import keras

    graph, points, tensors = opened(order.model, order.trust)
    wanted = next((point for point in points if point.name == order.point), None)
    call = next((call for call in graph.calls if any(one is tensors.get(order.point) for one in call.node.outputs)), None)
    if wanted is None or call is None:
        raise fault("KP630", f"The model has no layer that makes '{order.point}'.", "", place=order.point)
    names = {id(tensor): name for name, tensor in tensors.items()}
    fresh: dict[int, Any] = {}
    feeds: dict[str, str] = {}
    for tensor in call.node.input_tensors:
        if id(tensor) not in fresh:
            name = f"x{len(fresh)}"
            fresh[id(tensor)] = keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=name)
            feeds[name] = names[id(tensor)]
    position = next(i for i, one in enumerate(call.node.outputs) if one is tensors[order.point])
    try:
        args, kwargs = call.node.arguments.fill_in(fresh)
        outputs = keras.tree.flatten(call.node.operation(*args, **kwargs))
        model = keras.Model(list(fresh.values()), {OUTPUT: outputs[position]}, name="layer_alone")
        path = Path(order.out)
        path.parent.mkdir(parents=True, exist_ok=True)
        model.save(path)
    except Exception as error:  # the layer's own code runs here and may raise anything
        raise fault("KP630", f"Layer '{wanted.layer}' can't be saved alone: {telling_line(error)}", "", place=wanted.layer) from error
    return IsolateResult(digest(path), feeds, OUTPUT, KerasCaller(model).signature)

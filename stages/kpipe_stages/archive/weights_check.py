"""Weights against the config: every weight that a layer must have is there in its shape, and nothing declares more than the file holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kpipe_stages.archive.collecting import shown
from kpipe_stages.archive.keras_names import is_keras
from kpipe_stages.archive.layers import is_keras_model, walk
from kpipe_stages.archive.shapes import expected_weights, largest_declared, variable_dtype

if TYPE_CHECKING:
    from kpipe_stages.archive.collecting import Collector
    from kpipe_stages.archive.hdf5_safety import Contents, Stored
    from kpipe_stages.archive.layers import Layer

TRAINING_GROUPS = (
    "optimizer",
    "_optimizer",
    "loss_tracker",
    "_loss_tracker",
    "metrics",
    "_metrics",
    "compile_metrics",
    "_compile_metrics",
    "_compile_loss",
)
"""Top-level groups of the weights file that belong to training, not to the model."""
LONGEST_AXIS = 2**31 - 1
_KERAS_2_GROUP = "_layer_checkpoint_dependencies"
_SAVE_AGAIN = "Save the model again; config.json and model.weights.h5 of this file don't belong together."


class Owners:
    """Which layer a dataset belongs to."""

    def __init__(self, layers: tuple[Layer, ...]) -> None:
        self._by_prefix = {layer.prefix: layer for layer in walk(layers) if layer.prefix}

    def of(self, path: str) -> Layer | None:
        """The innermost layer whose group holds ``path``."""
        parts = path.split("/")
        return next((self._by_prefix[p] for p in ("/".join(parts[:n]) for n in range(len(parts) - 1, 0, -1)) if p in self._by_prefix), None)


def is_training_state(path: str) -> bool:
    """Whether a dataset is the optimizer's or a metric's, not the model's."""
    return path.split("/", 1)[0] in TRAINING_GROUPS


def refuse_unbuilt(config: dict[str, Any], contents: Contents, collector: Collector) -> bool:
    """KP008, once, for a Sequential that nobody called before it was saved: it knows no shapes and has no weights yet. Whether it is one."""
    own = config.get("config")
    if config.get("class_name") != "Sequential" or not isinstance(own, dict) or contents.arrays or "build_config" in config:
        return False
    layers = own.get("layers")
    if own.get("build_input_shape") or not isinstance(layers, list) or not layers:
        return False
    if any(isinstance(layer, dict) and (layer.get("build_config") or layer.get("class_name") == "InputLayer") for layer in layers):
        return False
    name = shown(own.get("name"))
    cause = f"Model '{name}' was saved before it was built: its {len(layers)} layers know no input shape, and the file holds no weights."
    collector.refuse("KP008", cause, "Call the model once on data (or give it an Input) before model.save(), and save again.", place=name)
    return True


def check_declared_sizes(config: dict[str, Any], contents: Contents, collector: Collector) -> None:
    """KP008 for every Keras layer, wherever it stands in the config, that needs a weight larger than all weights stored together."""
    total = sum(stored.count for stored in contents.arrays.values())
    pending: list[Any] = [{key: value for key, value in config.items() if key != "compile_config"}]
    while pending:
        node = pending.pop()
        pending.extend(child for child in (node.values() if isinstance(node, dict) else node) if isinstance(child, dict | list))
        if not isinstance(node, dict) or not isinstance(node.get("config"), dict) or not is_keras(str(node.get("module"))):
            continue
        _check_axes(node, collector)
        field, size = largest_declared(str(node.get("class_name")), node["config"])
        if size > total:
            name = shown(node["config"].get("name", node.get("class_name")))
            cause = f"Layer '{name}' declares {field} = {size}; all weights in the file together are {total} numbers."
            collector.refuse("KP008", cause, _SAVE_AGAIN, place=name, declared=size, stored=total)


def _check_axes(node: dict[str, Any], collector: Collector) -> None:
    """KP008 for an axis longer than any runtime can index: Keras would allocate weights for it before it failed."""
    pending: list[Any] = [node.get("build_config"), node["config"].get("batch_shape"), node["config"].get("build_input_shape")]
    while pending:
        shape = pending.pop()
        if isinstance(shape, dict | list):
            pending.extend(shape.values() if isinstance(shape, dict) else shape)
        elif isinstance(shape, int | float) and shape > LONGEST_AXIS:
            name = shown(node["config"].get("name", node.get("class_name")))
            cause = f"Layer '{name}' is declared on a tensor with an axis of {shape}; at most {LONGEST_AXIS} can be indexed."
            collector.refuse("KP008", cause, _SAVE_AGAIN, place=name, axis=shape)


def check_saved_names(layers: tuple[Layer, ...], saved_names: dict[str, str], collector: Collector) -> None:
    """KP008 for a group that was saved from another layer than the one that Keras would load it into."""
    for layer in walk(layers):
        saved = saved_names.get(layer.prefix)
        if saved is not None and saved != layer.own_name and not layer.shared:
            cause = (
                f"Group '{layer.prefix}' was saved from layer '{shown(saved)}'; by its position Keras would load it into '{shown(layer.own_name)}'."
            )
            collector.refuse("KP008", cause, _SAVE_AGAIN, place=layer.name, group=layer.prefix, saved=shown(saved))


def check_weights(config: dict[str, Any], layers: tuple[Layer, ...], contents: Contents, collector: Collector) -> None:
    """Missing weights and other shapes (KP008), other dtypes (KP015), weights that nothing loads (KP017)."""
    if any(path.startswith(f"{_KERAS_2_GROUP}/") for path in contents.arrays):
        collector.refuse(
            "KP008", "The weights file has the layout of Keras 2.", "Load it with the Keras that wrote it and save it again with Keras 3."
        )
        return
    owners = Owners(layers)
    known = {layer.prefix: expected_weights(layer) for layer in walk(layers) if layer.prefix}
    for layer in walk(layers):
        if layer.prefix and not layer.shared:
            _check_layer(layer, known[layer.prefix], contents, collector)
    if not is_keras_model(config):
        return
    for path in contents.arrays:
        owner = owners.of(path)
        expected = known[owner.prefix] if owner is not None else ()
        if not (owner is None and is_training_state(path)) and expected is not None and path not in {item.path for item in expected}:
            cause = f"Weight '{shown(path)}' belongs to no layer of config.json: Keras leaves it unread."
            collector.note("KP017", cause, "Save the model again, so that the file holds what the model uses.", place=path)


def _check_layer(layer: Layer, expected: Any, contents: Contents, collector: Collector) -> None:
    if (
        layer.is_keras
        and not layer.is_model
        and layer.build_shape is None
        and any(path.startswith(f"{layer.prefix}/vars/") for path in contents.arrays)
    ):
        cause = (
            f"Layer '{shown(layer.name)}' ({layer.class_name}) has weights but no build_config: nothing declares the shape that it would allocate."
        )
        collector.refuse("KP008", cause, "Save the model again with Keras 3.", place=layer.name, group=layer.prefix)
    for item in expected or ():
        stored = contents.arrays.get(item.path)
        if stored is None:
            cause = (
                f"Layer '{shown(layer.name)}' ({layer.class_name}) needs a weight of shape {_text(item.shape)} at '{item.path}'; the file has none."
            )
            collector.refuse("KP008", cause, _SAVE_AGAIN, place=layer.name, expected=_text(item.shape), path=item.path)
        elif not _fits(stored.shape, item.shape):
            shapes = f"a weight of shape {_text(item.shape)}; '{item.path}' has {_text(stored.shape)}"
            cause = f"Layer '{shown(layer.name)}' ({layer.class_name}) declares {shapes}."
            collector.refuse("KP008", cause, _SAVE_AGAIN, place=layer.name, expected=_text(item.shape), stored=_text(stored.shape), path=item.path)
        else:
            _check_dtype(layer, stored, collector)


def _check_dtype(layer: Layer, stored: Stored, collector: Collector) -> None:
    declared = variable_dtype(layer.dtype)
    if declared is not None and stored.dtype != declared:
        first = f"'{shown(stored.path)}' of layer '{shown(layer.name)}'"
        cause = f"Weights declared {declared} are stored as {stored.dtype} (first: {first}): Keras casts them."
        remedy = "Save the model from the backend and the dtype policy it was trained with, or quantize it with model.quantize()."
        collector.note("KP015", cause, remedy, place=layer.name, key=f"{declared} {stored.dtype}", declared=declared, stored=stored.dtype)


def _fits(stored: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(stored) == len(expected) and all(b is None or a == b for a, b in zip(stored, expected, strict=True))


def _text(shape: tuple[int | None, ...]) -> str:
    return "(" + ", ".join("any" if n is None else str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"

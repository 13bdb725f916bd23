"""What a functional or sequential config suggests about a model's use: how its outputs are activated, how many ids its inputs may name.

Hints only: a contract that says otherwise wins, and a verdict that rests on one says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kpipe_stages.archive.signature import HISTORY
from kpipe_stages.keras_calling import unique_names

if TYPE_CHECKING:
    from collections.abc import Iterator

_ACTIVATIONS = {"Softmax": "softmax", "ReLU": "relu"}
"""Layers that are an activation."""
_KEEPS_VALUES = frozenset({"Flatten", "Reshape", "Dropout", "Identity", "Permute", "RepeatVector", "InputLayer"})
"""Layers that an id passes through on its way to an Embedding."""


def output_activations(config: dict[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    """Output name to the activation of the layer that makes it, where that layer says.

    Args:
        config: the archive's config.json.
        names: the signature's output names, in order.
    """
    makers = list(_makers(config))
    if len(makers) != len(names):
        return {}
    found = {name: _activation(maker) for name, maker in zip(names, makers, strict=True)}
    return {name: activation for name, activation in found.items() if activation}


def _makers(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The layer entries that make the outputs; a nested model stands for the layer that makes its own only output."""
    inner = config.get("config")
    entries = [e for e in inner.get("layers", ()) if isinstance(e, dict)] if isinstance(inner, dict) and isinstance(inner.get("layers"), list) else []
    if not entries or not isinstance(inner, dict):
        return
    if "output_layers" not in inner:
        yield _innermost(entries[-1])
        return
    by_name = {str(entry.get("name")): entry for entry in entries}
    for name in _references(inner["output_layers"]):
        yield _innermost(by_name.get(name, {}))


def _innermost(entry: dict[str, Any]) -> dict[str, Any]:
    makers = list(_makers(entry))
    return makers[0] if len(makers) == 1 else entry


def _references(structure: Any) -> Iterator[str]:
    """Layer names, in the order in which Keras flattens: dicts by sorted key."""
    if isinstance(structure, list) and len(structure) == HISTORY and isinstance(structure[0], str):
        yield structure[0]
    elif isinstance(structure, dict):
        for key in sorted(structure):
            yield from _references(structure[key])
    elif isinstance(structure, list):
        for item in structure:
            yield from _references(item)


def _activation(entry: dict[str, Any]) -> str:
    inner = entry.get("config")
    if not isinstance(inner, dict):
        return ""
    named = inner.get("activation")
    if isinstance(named, dict):
        named = named.get("config") if isinstance(named.get("config"), str) else named.get("class_name")
    if isinstance(named, str):
        return named
    return _ACTIVATIONS.get(str(entry.get("class_name")), "") if inner.get("axis", -1) == -1 else ""  # scores lie along the last axis


def integer_ranges(config: dict[str, Any], names: tuple[str, ...]) -> dict[str, int]:
    """Input name to the size of the smallest Embedding that reads it, directly or through layers that keep values.

    Args:
        config: the archive's config.json.
        names: the signature's input names, in order.
    """
    inner = config.get("config")
    if not isinstance(inner, dict) or not isinstance(inner.get("layers"), list):
        return {}
    entries = [e for e in inner["layers"] if isinstance(e, dict)]
    if "input_layers" not in inner:
        size = _first_embedding(entries)
        return {names[0]: size} if size and len(names) == 1 else {}
    layers = list(_references(inner["input_layers"]))
    named = dict(zip(unique_names(layers), names, strict=True)) if len(layers) == len(names) else {}
    reach = {layer: {layer} for layer in named}
    sizes: dict[str, int] = {}
    for entry in entries:
        sources = set(_sources(entry.get("inbound_nodes")))
        for layer, reached in reach.items():
            if sources & reached:
                _follow(entry, reached, sizes, named[layer])
    return sizes


def _follow(entry: dict[str, Any], reached: set[str], sizes: dict[str, int], name: str) -> None:
    size = _embedding_size(entry)
    if size:
        sizes[name] = min(size, sizes.get(name, size))
    elif str(entry.get("class_name")) in _KEEPS_VALUES:
        reached.add(str(entry.get("name")))


def _first_embedding(entries: list[dict[str, Any]]) -> int:
    for entry in entries:
        if size := _embedding_size(entry):
            return size
        if str(entry.get("class_name")) not in _KEEPS_VALUES:
            return 0
    return 0


def _embedding_size(entry: dict[str, Any]) -> int:
    inner = entry.get("config")
    size = inner.get("input_dim") if entry.get("class_name") == "Embedding" and isinstance(inner, dict) else 0
    return size if isinstance(size, int) and size > 0 else 0


def _sources(node: Any) -> Iterator[str]:
    """Names of the layers whose tensors a call takes."""
    if isinstance(node, dict) and node.get("class_name") == "__keras_tensor__":
        history = node.get("config", {}).get("keras_history") if isinstance(node.get("config"), dict) else None
        if isinstance(history, list) and history:
            yield str(history[0])
    elif isinstance(node, dict):
        for value in node.values():
            yield from _sources(value)
    elif isinstance(node, list):
        for value in node:
            yield from _sources(value)

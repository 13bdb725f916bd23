"""From a loaded Keras model to one flat graph of its layers, nested models opened.

A functional or sequential model inside another is run node by node on symbolic tensors; a model with a ``call`` of its own is called with
symbolic tensors, which leaves the graph of all that it calls. The layers are the very same ones. What can't be opened stays one layer, and is named.
"""

# ruff: noqa: SLF001 - Keras has no public way to a model's graph; a version that changes it fails the tests

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kpipe_stages.keras_calling import KerasCaller, functional_core, unique_names
from kpipe_stages.session import fault, telling_line

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Call:
    """One call of one layer (or operation) in the flat graph."""

    path: str
    node: Any
    """Keras' own: operation, arguments, outputs."""


@dataclass(frozen=True)
class Opened:
    """The flat graph."""

    inputs: dict[str, Any]
    """Input of the model to the new graph's symbolic tensor."""
    outputs: dict[str, Any]
    """Output of the model likewise."""
    calls: tuple[Call, ...]
    """In the order of computation."""
    closed: dict[str, str]
    """Layer that holds others and stayed one, to the reason."""


def open_model(model: Any, *, deep: bool = True) -> Opened:
    """Open a model.

    Args:
        model: a loaded model.
        deep: open models and layers with a ``call`` of their own too, where they have no weights besides those of their layers.

    Raises:
        StageError: KP630, the model itself can't be opened.
    """
    import keras

    caller = KerasCaller(model)
    names = _input_names([spec.name for spec in caller.signature.inputs])
    fresh = [keras.Input(batch_shape=spec.shape, dtype=spec.dtype, name=name) for spec, name in zip(caller.signature.inputs, names, strict=True)]
    opener = _Opener(deep)
    core = functional_core(model)
    if core is not None and not _own_call(model):
        opener.claim(core, "")
        results = opener.run(core, fresh)
    else:
        results = opener.call(model, caller, fresh)
    leaves = [leaf for leaf in keras.tree.flatten(results) if leaf is not None]
    outputs = {spec.name: leaf for spec, leaf in zip(caller.signature.outputs, leaves, strict=True)}
    flat = keras.Model(fresh, leaves)
    nodes = [node for depth in sorted(flat._nodes_by_depth, reverse=True) for node in flat._nodes_by_depth[depth] if not node.is_input]
    paths = _numbered([opener.paths.get(id(node.operation), node.operation.name) for node in nodes])
    inputs = {spec.name: tensor for spec, tensor in zip(caller.signature.inputs, fresh, strict=True)}
    return Opened(inputs, outputs, tuple(Call(path, node) for path, node in zip(paths, nodes, strict=True)), dict(opener.closed))


@dataclass
class _Opener:
    deep: bool
    paths: dict[int, str] = field(default_factory=dict)
    """Operation (by identity) to its path."""
    closed: dict[str, str] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def claim(self, core: Any, prefix: str) -> None:
        """Give each operation of a graph its path, and a name that no other one has: a flat model needs that."""
        for operation in core._operations:
            if id(operation) not in self.paths:
                self.paths[id(operation)] = f"{prefix}{operation.name}"
                if operation.name in self._names:
                    operation.name = unique_names([*self._names, f"{prefix.replace('/', '_')}{operation.name}"])[-1]
                self._names.add(operation.name)

    def run(self, core: Any, inputs: list[Any]) -> Any:
        """The outputs of a functional graph on symbolic tensors."""
        return core._run_through_graph(inputs, operation_fn=self._opened)

    def call(self, model: Any, caller: KerasCaller, inputs: list[Any]) -> Any:
        """The outputs of a model with a ``call`` of its own."""
        reason = _own_weights(model)
        if self.deep and not reason:
            try:
                args, kwargs = caller.pack(inputs)
                results = model.call(*args, **kwargs, **({"training": False} if model._call_has_training_arg else {}))
            except Exception as error:  # noqa: BLE001 - the model's own code meets symbolic tensors and may raise anything; it stays whole, and is named
                reason = f"its call() can't be followed with symbolic tensors ({telling_line(error)})"
            else:
                self._name_parts(model, "")
                return results
        raise _whole(model, reason or "its call() is its own code, and what it calls can't be saved as a graph")

    def _opened(self, operation: Any) -> Callable[..., Any]:
        """What to call in an operation's place."""
        core, path = functional_core(operation), self.paths[id(operation)]
        if core is not None and not _own_call(operation):
            return lambda *args, **kwargs: self._nested(operation, core, path, args, kwargs)
        if self.deep and _composite(operation):
            return lambda *args, **kwargs: self._followed(operation, path, args, kwargs)
        return operation  # type: ignore[no-any-return]

    def _nested(self, operation: Any, core: Any, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        import keras

        given = keras.tree.flatten(args[0]) if len(args) == 1 else []
        odd = [name for name, value in kwargs.items() if value is not None]
        fits = len(given) == len(core.inputs) and all(
            keras.backend.is_keras_tensor(own) and own.dtype == wanted.dtype and len(own.shape) == len(wanted.shape)
            for own, wanted in zip(given, core.inputs, strict=True)
        )
        if odd or not fits:
            self.closed[path] = f"it is called with {', '.join(odd)}" if odd else "it is called with other dtypes or ranks than it was built for"
            return operation(*args, **kwargs)
        self.claim(core, f"{path}/")
        return self.run(core, given)

    def _followed(self, operation: Any, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        reason = _own_weights(operation)
        if not reason:
            try:
                results = operation.call(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - as in `call`: the layer stays whole, and is named
                reason = f"its call() can't be followed with symbolic tensors ({telling_line(error)})"
            else:
                self._name_parts(operation, f"{path}/")
                return results
        self.closed[path] = reason
        return operation(*args, **kwargs)

    def _name_parts(self, owner: Any, prefix: str) -> None:
        for layer in owner._flatten_layers(include_self=False):
            self.paths.setdefault(id(layer), f"{prefix}{layer.name}")


def _own_call(model: Any) -> bool:
    """A functional or sequential model whose class has another ``call``: what that does is in no graph."""
    import keras
    from keras.src.models import Functional

    return type(model).call not in {Functional.call, keras.Sequential.call}


def _composite(operation: Any) -> bool:
    """A layer of the user's that holds layers; Keras' own wrappers and cells are one layer each."""
    import keras

    own = isinstance(operation, keras.layers.Layer) and not type(operation).__module__.startswith("keras.")
    return own and any(True for _ in operation._flatten_layers(include_self=False, recursive=False))


def _own_weights(layer: Any) -> str:
    """Why a layer with weights of its own stays whole: a graph of operations has no place to keep them."""
    names = [variable.name for variable in (*layer._trainable_variables, *layer._non_trainable_variables)]
    return f"it has weights of its own ({', '.join(names[:4])}) besides those of its layers" if names else ""


def _input_names(names: list[str]) -> list[str]:
    """Names that an Input takes: no slash."""
    return unique_names([name.replace("/", "_") for name in names])


def _numbered(paths: list[str]) -> list[str]:
    """The second call of a layer is ``layer#2``."""
    seen: dict[str, int] = {}
    result = []
    for path in paths:
        seen[path] = seen.get(path, 0) + 1
        result.append(path if seen[path] == 1 else f"{path}#{seen[path]}")
    return result


def _whole(model: Any, reason: str) -> Exception:
    return fault(
        "KP630",
        f"Model '{model.name}' ({type(model).__name__}) can't be cut open: {reason}.",
        "Build it as a functional model, or give the layer that you suspect as a model of its own.",
        place=model.name,
    )

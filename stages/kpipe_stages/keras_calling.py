"""A Keras model's own signature, and calls by name: the same names on every backend.

Names. Inputs of a functional or sequential model carry the names of its Input layers. A subclassed model's inputs carry the name of
the argument of ``call`` and the path inside it, ``name_0`` in a list and ``name/key`` in a dict (a lone dict argument gives its keys alone). An output in a dict has
its path, written likewise; else it has the name of the layer that makes it; a subclassed model's other outputs are ``output_0``, ``output_1``, ...
The second of two equal names becomes ``name_2``, the third ``name_3``.
"""

# ruff: noqa: SLF001 - Keras has no public way to the structure that a model was built with; a version that changes it fails the tests

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.protocol import Observation, Signature, StageError, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class _Interface:
    """What has to be known to call a model by name."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    pack: Callable[[Sequence[Any]], tuple[list[Any], dict[str, Any]]]
    """Flat input values in order to the arguments of a call."""
    result: Any
    """The structure of what the model returns, names for leaves."""


class KerasCaller:
    """Calls one model by canonical names, with ``training=False``. Build once, call often."""

    def __init__(self, model: Any) -> None:
        """Read the model's interface.

        Raises:
            StageError: KP012, the model isn't built, or has weights that the archive didn't hold.
        """
        self.model = model
        self._interface = _interface(model)
        self.signature = Signature(
            inputs=self._interface.inputs,
            outputs=self._interface.outputs,
            input_structure=_written(self._interface.pack([spec.name for spec in self._interface.inputs])),
            output_structure=json.dumps(self._interface.result, ensure_ascii=False),
        )

    def __call__(self, feeds: Mapping[str, Any], *, training: bool | None = False) -> dict[str, Any]:
        """Return the model's output tensors (the backend's own type) by canonical name, in the model's order.

        Args:
            feeds: an array or tensor for every input, by canonical name. An array of another dtype is cast only where no value changes.
            training: passed on; None leaves it unset, as a careless caller would.

        Raises:
            ValueError: an input is missing, unknown or would change in the cast; or the outputs aren't the declared ones.
        """
        names = [spec.name for spec in self._interface.inputs]
        if set(feeds) != set(names):
            raise ValueError(f"The model takes the inputs {names}; it was given {sorted(feeds)}.")
        args, kwargs = self.pack([_as_declared(spec, feeds[spec.name]) for spec in self._interface.inputs])
        if training is not None:
            kwargs = {**kwargs, "training": training}
        values = _leaves(self.model(*args, **kwargs))
        if len(values) != len(self._interface.outputs):
            raise ValueError(f"The model gave {len(values)} outputs; it declares {[spec.name for spec in self._interface.outputs]}.")
        return {spec.name: value for spec, value in zip(self._interface.outputs, values, strict=True)}

    def pack(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The positional and keyword arguments of a call, from one value for each input in order."""
        return self._interface.pack(values)


def _written(call: tuple[list[Any], dict[str, Any]]) -> str:
    """The arguments of a call as JSON: the first alone, or all by name behind it."""
    args, kwargs = call
    return json.dumps({"": args[0], **kwargs} if kwargs else args[0], ensure_ascii=False)


def _named_result(result: Any, outputs: Sequence[TensorSpec]) -> Any:
    """The structure of a result with the outputs' names in it; what is None stays None."""
    import keras

    names = iter(spec.name for spec in outputs)
    return keras.tree.pack_sequence_as(result, [None if leaf is None else next(names) for leaf in keras.tree.flatten(result)])


def model_signature(model: Any) -> Signature:
    """The model's own inputs and outputs: canonical names, order, shapes (None for a free axis) and dtypes."""
    return KerasCaller(model).signature


def unique_names(names: Sequence[str]) -> list[str]:
    """Make names unique: the n-th of several equal ones gets ``_n`` (or the next free number), names that are unique keep theirs."""
    taken, seen, result = set(names), set[str](), []
    for name in names:
        candidate, number = name, 1
        while candidate in seen or (candidate != name and candidate in taken):
            number += 1
            candidate = f"{name}_{number}"
        seen.add(candidate)
        result.append(candidate)
    return result


def _interface(model: Any) -> _Interface:
    import keras

    core = functional_core(model)
    if core is not None:
        return _functional_interface(core, model)
    if isinstance(model, keras.Sequential) or not model.built or not getattr(model, "_build_shapes_dict", None):
        raise _unbuilt(model)
    return _subclassed_interface(model)


def functional_core(model: Any) -> Any | None:
    """The functional graph behind a model; None for a subclassed one, and for one whose ``call`` is its own."""
    import keras
    from keras.src.models import Functional

    if isinstance(model, keras.Sequential):
        return model._functional if type(model).call is keras.Sequential.call else None
    return model if isinstance(model, Functional) else None


def _functional_interface(core: Any, model: Any) -> _Interface:
    import keras
    from keras.src import backend
    from keras.src.models import Functional

    inputs = tuple(_spec(name, tensor) for name, tensor in zip(unique_names([t.name for t in core.inputs]), core.inputs, strict=True))
    structure = core._inputs_struct
    if core is model and type(model).call is not Functional.call:  # a functional model with a call of its own may return something else
        result = backend.compute_output_spec(lambda inputs: model.call(inputs, training=False), structure)
        names: list[str | None] = [None] * len(keras.tree.flatten(result))
    else:
        result, names = core._outputs_struct, list(core.output_names)

    def pack(values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        return [keras.tree.pack_sequence_as(structure, list(values))], {}

    outputs = _outputs(result, names, model)
    return _Interface(inputs, outputs, pack, _named_result(result, outputs))


def _subclassed_interface(model: Any) -> _Interface:
    import keras

    arguments = _call_arguments(model)
    structures = {name: _tensors(shape, model) for name, shape in arguments.items()}
    flat = [(path, leaf) for name, tree in structures.items() for path, leaf in _named_leaves(name, tree, alone=len(arguments) == 1)]
    names = unique_names([path for path, _ in flat])
    first = next(iter(structures))

    def pack(values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        packed, position = {}, 0
        for name, tree in structures.items():
            count = len(keras.tree.flatten(tree))
            packed[name] = keras.tree.pack_sequence_as(tree, list(values[position : position + count]))
            position += count
        return [packed.pop(first)], packed

    before = len(model.variables)
    args, kwargs = pack([leaf for _, leaf in flat])
    result = _symbolic_call(model, args, kwargs, names)
    if (grown := len(model.variables) - before) > 0:
        raise StageError(
            Observation(
                "KP012",
                f"The first call of model '{model.name}' made {grown} new weights: the archive doesn't hold them, they would be random.",
                "Build every sub-layer in build() (or call the model once before model.save()), and save again.",
                place=model.name,
                evidence={"loaded": before, "new": grown},
            )
        )
    outputs = _outputs(result, [None] * len(keras.tree.flatten(result)), model)
    return _Interface(tuple(_spec(name, leaf) for name, (_, leaf) in zip(names, flat, strict=True)), outputs, pack, _named_result(result, outputs))


def _symbolic_call(model: Any, args: list[Any], kwargs: dict[str, Any], names: list[str]) -> Any:
    try:
        return model(*args, training=False, **kwargs)
    except Exception as error:  # the model's own code runs here and may raise anything; it ends the stage as one finding
        reason = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())[:300]
        raise StageError(
            Observation(
                "KP012",
                f"Model '{model.name}' can't be called with the inputs that the archive records ({', '.join(names)}): {type(error).__name__}: {reason}",
                "Give the model a build() with one shape per argument of call(), or take all inputs in one dict; then save again.",
                place=model.name,
                evidence={"inputs": names},
            )
        ) from error


def _call_arguments(model: Any) -> dict[str, Any]:
    """Argument of ``call`` to the shapes it was built with, in the order of ``call``."""
    shapes = dict(model._build_shapes_dict)
    parameters = [name for name in model._call_signature.parameters if name not in {"training", "mask"}]
    if len(shapes) == 1:
        return {parameters[0] if parameters else "inputs": next(iter(shapes.values()))}
    plain = {name.removesuffix("_shape"): shape for name, shape in shapes.items()}
    if set(plain) - set(parameters):
        raise _unbuilt(model)
    return {name: plain[name] for name in parameters if name in plain}


def _tensors(shape: Any, model: Any) -> Any:
    """A structure of shapes to the same structure of symbolic tensors with a free batch axis, in the dtype that Keras' own export uses."""
    import keras

    if isinstance(shape, dict):
        return {key: _tensors(value, model) for key, value in shape.items()}
    if all(n is None or isinstance(n, int) for n in shape):
        return keras.KerasTensor((None, *shape[1:]), dtype=model.input_dtype)
    return [_tensors(value, model) for value in shape]


def _named_leaves(name: str, tree: Any, *, alone: bool) -> list[tuple[str, Any]]:
    import keras

    drop = alone and isinstance(tree, dict)
    leaves = keras.tree.flatten_with_path(tree)
    return [(_joined(([] if drop else [name]) + list(path)), leaf) for path, leaf in leaves]


def _joined(path: Sequence[Any]) -> str:
    """Keys after a slash, positions after an underscore."""
    text = ""
    for part in path:
        text += f"_{part}" if isinstance(part, int) and text else f"/{part}" if text else str(part)
    return text


def _outputs(result: Any, layer_names: Sequence[str | None], model: Any) -> tuple[TensorSpec, ...]:
    import keras

    found = []
    for position, ((path, leaf), layer) in enumerate(zip(keras.tree.flatten_with_path(result), layer_names, strict=True)):
        if leaf is None:
            continue
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise StageError(
                Observation(
                    "KP012",
                    f"Model '{model.name}' returns a {type(leaf).__name__} among its outputs; only tensors can be compared.",
                    "Return tensors, or lists, tuples and dicts of tensors, from call().",
                    place=model.name,
                )
            )
        keys = any(isinstance(part, str) for part in path)
        found.append((_joined(path) if keys else layer or f"output_{position}", leaf))
    return tuple(_spec(name, leaf) for name, (_, leaf) in zip(unique_names([name for name, _ in found]), found, strict=True))


def _leaves(structure: Any) -> list[Any]:
    import keras

    return [leaf for leaf in keras.tree.flatten(structure) if leaf is not None]


def _spec(name: str, tensor: Any) -> TensorSpec:
    import keras

    shape = tensor.shape
    return TensorSpec(
        name=name,
        shape=None if shape is None else tuple(None if n is None else int(n) for n in shape),
        dtype=keras.backend.standardize_dtype(tensor.dtype),
    )


def _as_declared(spec: TensorSpec, value: Any) -> Any:
    """The value as Keras takes it; a numpy array of another dtype is cast where that changes nothing."""
    if not isinstance(value, np.ndarray):
        return value
    if spec.dtype == "string":
        import keras

        if keras.backend.backend() != "tensorflow":
            raise ValueError(f"Input '{spec.name}' takes strings; the {keras.backend.backend()} backend has none. Run this model on TensorFlow.")
        return keras.ops.convert_to_tensor(value.astype(object) if value.dtype.kind == "U" else value, dtype="string")
    if spec.dtype in {value.dtype.name, "bfloat16"}:
        return value
    cast = value.astype(spec.dtype)
    if not np.array_equal(cast.astype(value.dtype), value, equal_nan=value.dtype.kind in "fc"):
        raise ValueError(f"Input '{spec.name}' takes {spec.dtype}; the {value.dtype.name} array given changes when cast to it.")
    return cast


def _unbuilt(model: Any) -> StageError:
    return StageError(
        Observation(
            "KP012",
            f"Model '{model.name}' ({type(model).__name__}) doesn't say what inputs it takes: the archive holds no input shapes for it.",
            "Call the model once on data (or give it an Input) before model.save(), and save again.",
            place=model.name,
        )
    )

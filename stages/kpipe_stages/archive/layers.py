"""The layers that ``config.json`` declares, each with the group of the weights file that Keras loads it from.

Keras addresses a layer in the weights file by its class and its position: the second Dense of a model is ``layers/dense_1``, whatever it is
called (keras 3.15, ``saving/saving_lib.py``: ``_save_container_state``, ``naming.to_snake_case``). Operations (``keras.ops``) have no group.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kpipe_stages.archive.keras_names import is_keras

if TYPE_CHECKING:
    from collections.abc import Iterator

_KERAS_MODELS = {"Functional", "Model", "Sequential"}
_WRAPPED = {
    "TimeDistributed": ("layer",),
    "SpectralNormalization": ("layer",),
    "Bidirectional": ("backward_layer", "forward_layer"),
    "RNN": ("cell",),
}
"""Attributes of Keras' wrappers that hold a layer, in the order in which Keras visits them."""

_DEFAULTS = """
AugMix AutoContrast CenterCrop ContrastLimitedAdaptiveHistogramEqualization CutMix Equalization MaxNumBoundingBoxes MixUp Pipeline
RandAugment RandomBrightness RandomColorDegeneration RandomColorJitter RandomContrast RandomCrop RandomElasticTransform RandomErasing
RandomFlip RandomGaussianBlur RandomGrayscale RandomHeight RandomHue RandomInvert RandomPerspective RandomPosterization RandomRotation
RandomSaturation RandomSharpness RandomShear RandomTranslation RandomWidth RandomZoom Resizing Solarization
"""
_TRAINING_BY_DEFAULT = frozenset(_DEFAULTS.split())
"""Keras' layers whose ``call`` has ``training=True`` as its default, which Keras writes down for every call: no choice of the author's."""


@dataclass(frozen=True)
class Layer:
    """One layer or model of the config."""

    name: str
    """Path of names from the outermost model: ``encoder/dense``."""
    class_name: str
    module: str
    registered_name: str | None
    config: dict[str, Any]
    build_shape: Any
    """``input_shape`` of its build_config, a list or a dict of shapes; else what its wrapper passes on; None where neither is declared."""
    prefix: str
    """Its group in the weights file."""
    shared: bool
    """Its weights lie with an earlier layer: the same object."""
    forced_training: bool
    children: tuple[Layer, ...] = field(default=())

    @property
    def own_name(self) -> str:
        """Its name without the models around it."""
        name = self.config.get("name")
        return name if isinstance(name, str) else self.name

    @property
    def is_keras(self) -> bool:
        """One of Keras' own classes."""
        return is_keras(self.module) and self.registered_name in {None, self.class_name}

    @property
    def is_model(self) -> bool:
        """A functional or sequential model."""
        return isinstance(self.config.get("layers"), list)

    @property
    def dtype(self) -> str:
        """Dtype or policy name; empty where none is declared."""
        return policy_name(self.config.get("dtype"))


def policy_name(dtype: Any) -> str:
    """Name of a dtype policy as configs have it: a string, or an object with a name or a class."""
    if isinstance(dtype, str):
        return dtype
    if not isinstance(dtype, dict) or not isinstance(dtype.get("config"), dict):
        return ""
    name = dtype["config"].get("name")
    quantized = str(dtype.get("class_name", "")) not in {"DTypePolicy", "FloatDTypePolicy"}
    return str(dtype.get("class_name")) if quantized or not isinstance(name, str) else name


def to_snake_case(name: str) -> str:
    """A class name as Keras writes it into the weights file: ``Conv2DTranspose`` is ``conv2d_transpose``."""
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def read_layers(config: dict[str, Any]) -> tuple[Layer, ...]:
    """The layers of a model, in the config's order; none for a subclassed model, whose config doesn't list them."""
    return _model_layers(_dict(config.get("config")), "", "", set(), mapped=is_keras_model(config))


def walk(layers: tuple[Layer, ...]) -> Iterator[Layer]:
    """Every layer, the outer ones first."""
    for layer in layers:
        yield layer
        yield from walk(layer.children)


def is_keras_model(entry: dict[str, Any]) -> bool:
    """A functional or sequential model of Keras' own class: only its layers lie in the weights file in a known order."""
    named = str(entry.get("class_name")) in _KERAS_MODELS and is_keras(str(entry.get("module")))
    return named and isinstance(_dict(entry.get("config")).get("layers"), list)


def _model_layers(config: dict[str, Any], path: str, prefix: str, seen: set[int], *, mapped: bool) -> tuple[Layer, ...]:
    entries = [entry for entry in _list(config.get("layers")) if isinstance(entry, dict) and isinstance(entry.get("class_name"), str)]
    skipped = 1 if "input_layers" not in config and entries and entries[0]["class_name"] == "InputLayer" else 0
    layers, used = [], dict[str, int]()
    for position, entry in enumerate(entries):
        group = ""
        if mapped and position >= skipped and not _is_operation(entry):
            group = f"{prefix}layers/{_unique(to_snake_case(entry['class_name']), used)}"
        layers.append(_layer(entry, path, group, seen))
    return tuple(layers)


def _layer(entry: dict[str, Any], path: str, prefix: str, seen: set[int], passed_on: Any = None) -> Layer:
    config = _dict(entry.get("config"))
    class_name = entry["class_name"]
    name = entry.get("name") if isinstance(entry.get("name"), str) else config.get("name")
    full = f"{path}{name if isinstance(name, str) else class_name}"
    built = _build_shape(entry, passed_on)
    number = entry.get("shared_object_id")
    shared = isinstance(number, int) and number in seen
    if isinstance(number, int):
        seen.add(number)
    module = entry.get("module") if isinstance(entry.get("module"), str) else ""
    registered = entry.get("registered_name") if isinstance(entry.get("registered_name"), str) else None
    if isinstance(config.get("layers"), list):
        children = _model_layers(config, f"{full}/", f"{prefix}/", seen, mapped=bool(prefix) and is_keras_model(entry))
    else:
        children = _wrapped_layers(class_name, config, f"{full}/", prefix, seen, built)
    return Layer(full, class_name, module or "", registered, config, built, prefix, shared, _forced_training(entry), children)


def _wrapped_layers(class_name: str, config: dict[str, Any], path: str, prefix: str, seen: set[int], built: Any) -> tuple[Layer, ...]:
    sequence = built.get("sequences_shape") if isinstance(built, dict) else built
    passed_on = sequence
    if class_name in {"TimeDistributed", "RNN"} and isinstance(sequence, list):
        passed_on = [*sequence[:1], *sequence[2:]]  # one step at a time
    layers = []
    for attribute in _WRAPPED.get(class_name, ()):
        key = "layer" if attribute == "forward_layer" else attribute
        entry = config.get(key)
        if isinstance(entry, dict) and isinstance(entry.get("class_name"), str):
            layers.append(_layer(entry, path, f"{prefix}/{attribute}" if prefix else "", seen, passed_on))
    return tuple(layers)


def _is_operation(entry: dict[str, Any]) -> bool:
    module = entry.get("module")
    return isinstance(module, str) and module.startswith("keras.src.ops.")


def _unique(name: str, used: dict[str, int]) -> str:
    if name in used:
        used[name] += 1
        return f"{name}_{used[name]}"
    used[name] = 0
    return name


def _build_shape(entry: dict[str, Any], passed_on: Any) -> Any:
    build = _dict(entry.get("build_config"))
    own = build.get("input_shape", build.get("shapes_dict"))
    return passed_on if own is None else own


def _forced_training(entry: dict[str, Any]) -> bool:
    """A call that passes ``training=True``: by name at any depth of its arguments, or as the second argument of a layer of Keras'."""
    by_default = is_keras(str(entry.get("module"))) and entry.get("class_name") in _TRAINING_BY_DEFAULT
    if _is_operation(entry) or by_default:
        return False
    for node in _list(entry.get("inbound_nodes")):
        if not isinstance(node, dict):
            if _has_true(node):
                return True
            continue
        arguments = _list(node.get("args"))
        second = len(arguments) > 1 and arguments[1] is True and is_keras(str(entry.get("module")))
        if second or _has_true(node.get("kwargs")):
            return True
    return False


def _has_true(tree: Any) -> bool:
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            value = node.get("training")
            if isinstance(value, bool | int | float) and value:
                return True
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
    return False


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

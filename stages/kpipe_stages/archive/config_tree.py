"""Every name of code in ``config.json``, judged before Keras could look one up.

Keras turns any object with ``class_name`` and ``config`` into a Python object, wherever it stands: as a layer, an activation, an argument of a
call. So the whole tree is walked. Only the model's own ``compile_config`` is never loaded; there, what brings code is still refused.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kpipe_stages.archive.collecting import shown
from kpipe_stages.archive.keras_names import (
    ARRAY_DTYPE,
    CODE_CLASSES,
    FILE_FIELDS,
    SPECIAL_CLASSES,
    is_keras,
    is_modelling_class,
    is_modelling_function,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpipe_stages.archive.collecting import Collector
    from kpipe_stages.archive.custom_objects import Provided

_MODELS = {"Functional", "Model", "Sequential"}
HUBS = ("keras_hub", "keras_cv", "keras_nlp")
"""Packages that Keras would import by itself to find a class."""
_GIVE = "Give the Python file that registers it: custom_objects = ['FILE'] under [model] in kpipe.toml, or --custom-objects FILE."
_DONT_LOAD = "Don't load this file unless you know who made it and why."


@dataclass(frozen=True)
class _Place:
    layer: str = ""
    """The innermost layer's name."""
    lambda_judged: bool = False
    """Inside a Lambda layer that was allowed or refused already."""
    compiled: bool = False
    """Inside the model's own compile_config."""


@dataclass(frozen=True)
class _Reference:
    """An object of the config that Keras would turn into a Python object."""

    class_name: str
    module: str | None
    registered: str | None
    config: Any

    @property
    def name(self) -> str:
        """The name that is looked up."""
        return self.config if self.class_name == "function" and isinstance(self.config, str) else self.class_name


class ConfigJudge:
    """Walks a config; what it finds goes to the collector."""

    def __init__(self, provided: Provided, allow_lambda: tuple[str, ...], collector: Collector) -> None:
        self._provided = provided
        self._allow_lambda = allow_lambda
        self._collector = collector

    def judge(self, config: dict[str, Any]) -> None:
        """Refuse everything that isn't Keras' own, allowed or given: KP004, KP005, KP006, KP007."""
        if not isinstance(config.get("class_name"), str) or not isinstance(config.get("config"), dict):
            self._refuse(
                "KP004", "config.json describes no model: it has no class_name or no config.", "Save the model again with Keras 3.", _Place()
            )
        pending: list[tuple[Any, _Place]] = [(config, _Place())]
        while pending:
            node, place = pending.pop()
            if isinstance(node, dict) and "class_name" in node and "config" in node:
                place = self._judge_reference(node, place)
            children = list(_children(node, place))
            if node is config:
                children = [(child, replace(where, compiled=child is config.get("compile_config"))) for child, where in children]
            pending.extend(reversed(children))

    def _judge_reference(self, node: dict[str, Any], place: _Place) -> _Place:
        """Judge one object; return the place that its children are in."""
        reference = _reference(node)
        if reference is None:
            cause = f"An object of class {shown(node['class_name'])} has a class_name, module or registered_name that isn't text."
            self._refuse("KP004", cause, "Save the model again with Keras 3.", place)
            return place
        inner = _inside(node, reference, place)
        self._judge_layers(reference, inner)
        if self._is_allowed_lambda(reference):
            return replace(inner, lambda_judged=True)
        if reference.class_name in SPECIAL_CLASSES and not reference.module:
            self._judge_array(reference, place)
        elif self._judge_code(reference, inner):
            inner = replace(inner, lambda_judged=reference.class_name == "Lambda")
        elif not self._is_given(reference):
            self._judge_name(node, reference, inner)
        return inner

    def _judge_layers(self, reference: _Reference, place: _Place) -> None:
        """Refuse a model whose layers can't be told one by one."""
        layers = reference.config.get("layers", []) if isinstance(reference.config, dict) and reference.class_name in _MODELS else []
        wrong = [layer for layer in layers if not _is_layer(layer)] if isinstance(layers, list) else [layers]
        if wrong:
            name = shown(reference.config.get("name"))
            cause = f"Model '{name}' lists {len(wrong)} layers without a class_name and a config, the first: {shown(wrong[0])}."
            self._refuse("KP004", cause, "Save the model again with Keras 3.", place)

    def _is_allowed_lambda(self, reference: _Reference) -> bool:
        named = isinstance(reference.config, dict) and reference.config.get("name") in self._allow_lambda
        return named and (reference.module, reference.class_name, reference.registered) == ("keras.layers", "Lambda", None)

    def _judge_code(self, reference: _Reference, place: _Place) -> bool:
        """Refuse what brings code; return whether the object is dealt with."""
        name = reference.class_name
        if name == "__lambda__" and place.lambda_judged:
            return True
        if name == "__lambda__":
            where = "the training settings" if place.compiled else f"layer '{shown(place.layer)}'"
            remedy = "Replace the lambda by a registered function, or allow this Lambda layer by name: allow_lambda under [model] in kpipe.toml."
            self._refuse("KP006", f"The config of {where} holds compiled Python code (a lambda).", remedy, place)
            return True
        keras_or_bare = reference.module is None or is_keras(reference.module)
        if name in CODE_CLASSES and keras_or_bare and not self._is_given(reference):
            remedy = "Replace it by a registered layer."
            if name == "Lambda":
                remedy = (
                    f"Replace it by a registered layer, or allow it by name: allow_lambda = ['{shown(place.layer)}'] under [model] in kpipe.toml."
                )
            self._refuse("KP006", f"Layer '{shown(place.layer)}' is a {name}: it {CODE_CLASSES[name]}.", remedy, place)
            return True
        field = FILE_FIELDS.get(name)
        value = reference.config.get(field) if field and isinstance(reference.config, dict) else None
        if isinstance(value, str) and keras_or_bare:
            cause = f"Layer '{shown(place.layer)}' ({name}) would open the file '{shown(value)}' of the machine that loads it."
            self._refuse("KP006", cause, f"Save the model with the {field} itself, not with a path.", place)
            return True
        return False

    def _is_given(self, reference: _Reference) -> bool:
        """Whether a custom-object file or an allowed package has it. Keras looks there first."""
        key = reference.name if reference.class_name == "function" else reference.registered or reference.class_name
        module = reference.module
        if module is not None and is_keras(module):
            return ">" in key and self._provided.has(key)
        if self._provided.has(key):
            return True
        if module is None or module == "builtins":
            return bool(self._provided.modules) and ">" in key
        return self._provided.allows(module)

    def _judge_name(self, node: dict[str, Any], reference: _Reference, place: _Place) -> None:
        module, name = reference.module, reference.name
        function = module == "builtins" and reference.class_name == "function"
        if place.compiled and (function or module is None or not (is_keras(module) or _is_foreign(module))):
            return
        if "module" not in node:
            cause = f"Object '{shown(name)}' has no module: the legacy form, which Keras resolves by other rules."
            self._refuse("KP004", cause, "Save the model again with Keras 3.", place)
        elif function:
            if not is_modelling_function("builtins", name):
                self._refuse_custom("function", reference, place)
        elif module is not None and is_keras(module):
            self._judge_keras(module, reference, place)
        elif module is None or (reference.registered is not None and not _is_foreign(module)):
            self._refuse_custom("class", reference, place)
        else:
            cause = f"config.json names {shown(module)}.{shown(name)}: module '{shown(module)}' is no part of Keras and isn't allowed."
            package = shown(module.split(".", maxsplit=1)[0])
            remedy = f"{_DONT_LOAD} An installed package that registers layers is allowed by allow_modules = ['{package}'] under [model]."
            self._refuse("KP005", cause, remedy, place, module=shown(module), name=shown(name))

    def _judge_keras(self, module: str, reference: _Reference, place: _Place) -> None:
        name = reference.name
        fits = is_modelling_function(module, name) if reference.class_name == "function" else is_modelling_class(module, name)
        if module.startswith("keras.src.engine"):
            cause = f"config.json names {shown(module)}.{shown(name)}: the file was written by Keras 2."
            self._refuse(
                "KP005", cause, "Load it with the Keras that wrote it and save it again with Keras 3.", place, module=shown(module), name=shown(name)
            )
        elif not fits:
            cause = f"config.json reaches for {shown(module)}.{shown(name)}, which isn't anything that models are made of."
            self._refuse("KP006", cause, _DONT_LOAD, place, module=shown(module), name=shown(name))
        elif reference.registered not in {None, "", name, reference.class_name}:
            self._refuse_custom("class", reference, place)

    def _refuse_custom(self, kind: str, reference: _Reference, place: _Place) -> None:
        registered = reference.name if kind == "function" else reference.registered
        label = f"'{shown(reference.name)}'" + (f" (registered as '{shown(registered)}')" if registered not in {None, reference.name} else "")
        where = f" of module '{shown(reference.module)}'" if reference.module not in {None, "builtins"} else ""
        at = f"Layer '{shown(place.layer)}' needs" if place.layer else "The model needs"
        foreign = "which is no part of Keras" if kind == "class" else "which is none of Keras' activations, losses or metrics"
        cause = f"{at} the {kind} {label}{where}, {foreign}; {shown(self._provided.described(), 300)}."
        self._refuse(
            "KP007", cause, _GIVE, place, key=f"{kind} {registered}", class_name=shown(reference.name), registered_name=shown(registered or "")
        )

    def _judge_array(self, reference: _Reference, place: _Place) -> None:
        dtype = reference.config.get("dtype", "float32") if isinstance(reference.config, dict) else "float32"
        if not isinstance(dtype, str) or not ARRAY_DTYPE.match(dtype):
            cause = f"A constant in layer '{shown(place.layer)}' has the dtype '{shown(dtype)}'; a tensor's dtype was expected."
            self._refuse("KP004", cause, "Save the model again with Keras 3.", place)

    def _refuse(self, code: str, cause: str, remedy: str, place: _Place, *, key: str = "", **evidence: Any) -> None:
        self._collector.refuse(
            code, cause, remedy, place.layer or ("compile_config" if place.compiled else "config.json"), key=key or cause, **evidence
        )


def _children(node: Any, place: _Place) -> Iterator[tuple[Any, _Place]]:
    values = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return ((value, place) for value in values if isinstance(value, dict | list))


def _is_layer(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("class_name"), str) and isinstance(entry.get("config"), dict)


def _reference(node: dict[str, Any]) -> _Reference | None:
    class_name, module, registered = node["class_name"], node.get("module"), node.get("registered_name")
    if node["class_name"] == "__typespec__" and isinstance(node.get("spec_name"), str):
        class_name = node["spec_name"]
    if not isinstance(class_name, str) or not isinstance(module, str | None) or not isinstance(registered, str | None):
        return None
    return _Reference(class_name, module, registered, node["config"])


def _inside(node: dict[str, Any], reference: _Reference, place: _Place) -> _Place:
    """The place of an object's children: a layer, a model or a custom object has a name of its own."""
    config = reference.config
    named = isinstance(config, dict) and isinstance(config.get("name"), str)
    layer_like = "inbound_nodes" in node or reference.module in {None, "keras.layers", "keras.models"} or reference.class_name in CODE_CLASSES
    if not (named and layer_like) or place.compiled:
        return place
    return replace(place, layer=config["name"], lambda_judged=False)


def _is_foreign(module: str) -> bool:
    """Modules that can't register a custom object: Python's own, and those that Keras would import by itself."""
    top = module.split(".", maxsplit=1)[0]
    return top in sys.stdlib_module_names or top in HUBS

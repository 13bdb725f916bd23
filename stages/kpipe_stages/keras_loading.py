"""Load a ``.keras`` file on whatever backend this process has, with the code the contract gives and no other.

`load_model` loads; `KerasCaller` (and `model_signature` on top of it) calls the model by canonical input names and
gives back outputs by canonical names, on TensorFlow, JAX and OpenVINO alike (`kpipe_stages.keras_calling`).
"""

from __future__ import annotations

import importlib
import json
import re
import traceback
import types
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe_stages.keras_calling import KerasCaller, model_signature
from kpipe_stages.named_modules import NamedModules
from kpipe_stages.protocol import Observation, StageError, Trust

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["KerasCaller", "load_model", "model_signature", "telling_line"]

_LONGEST = 400


def load_model(path: str, trust: Trust) -> Any:
    """Return the model in ``path``, uncompiled.

    Raises:
        StageError: KP006 (code in the archive that the contract doesn't allow), KP007 (a custom object that is missing, or a file
            or package of custom objects that can't be executed), KP012 (anything else that keeps Keras from reloading it).
    """
    import keras

    config = _read_config(path)
    code = tuple(_lambda_names(config))
    if refused := sorted(set(code) - set(trust.allow_lambda)):
        raise _refused_code(refused[0])
    given = _import_trusted(trust)
    try:
        model = keras.saving.load_model(path, custom_objects=given, compile=False, safe_mode=not code)
    except Exception as error:  # Keras raises anything here, user code included; each becomes one finding with its reason
        raise _explain(error, path, config, given, trust) from error
    if not isinstance(model, keras.Model):
        raise _failed(path, f"it holds a {type(model).__name__}, not a keras.Model", "Save the whole model with model.save().")
    return model


def telling_line(error: BaseException) -> str:
    """The one line of a framework's message that says why: innermost reason, without configs and tracebacks, at most 400 characters."""
    text = str(error) or type(error).__name__
    text = text.rsplit("Exception encountered:", 1)[-1]
    if match := re.search(r"Example error message for object .*?:\s*\n\s*\n(.*?)\n\s*\nList of objects", text, re.DOTALL):
        text = match[1]
    text = re.split(
        r"\s*(?:Full object config|Full config|\n\s*config=|Arguments received by|\n\nCall arguments|You can attempt the following)", text, maxsplit=1
    )[0]
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


# ---------------------------------------------------------------- what the archive asks for


def _read_config(path: str) -> Any:
    if not zipfile.is_zipfile(path):
        raise _failed(path, "it is not a whole zip archive (cut short, empty, or another format renamed)", "Save the model again with model.save().")
    try:
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.read("config.json"))
    except (KeyError, ValueError, RecursionError, zipfile.BadZipFile) as error:
        raise _failed(path, f"its config.json can't be read ({telling_line(error)})", "Save the model again with model.save().") from error


def _walk(value: Any) -> Iterator[dict[str, Any]]:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            yield item
            pending.extend(reversed(item.values()))
        elif isinstance(item, list):
            pending.extend(reversed(item))


def _lambda_names(config: Any) -> Iterator[str]:
    """Names of what carries marshalled code: Lambda layers by name, anything else as ``(unnamed code)``."""
    owned: set[int] = set()
    for node in _walk(config):
        if node.get("class_name") == "Lambda" and isinstance(node.get("config"), dict):
            inside = [child for child in _walk(node["config"]) if child.get("class_name") == "__lambda__"]
            owned.update(id(child) for child in inside)
            if inside:
                yield str(node["config"].get("name"))
        elif node.get("class_name") == "__lambda__" and id(node) not in owned:
            yield "(unnamed code)"


def _custom_names(config: Any) -> list[str]:
    """Registered names of the objects outside Keras that the config mentions (compile settings aside), in order, once each."""
    config = {key: value for key, value in config.items() if key != "compile_config"} if isinstance(config, dict) else config
    names: dict[str, None] = {}
    for node in _walk(config):
        if isinstance(node.get("class_name"), str) and "module" in node and not _is_keras_module(node["module"]):
            is_function = node["class_name"] == "function"
            name = node.get("config") if is_function else node.get("registered_name") or node["class_name"]
            names[str(name)] = None
    return list(names)


def _is_keras_module(module: Any) -> bool:
    return isinstance(module, str) and (module in {"keras", "builtins"} or module.startswith("keras."))


# ---------------------------------------------------------------- code that the contract gives


def _import_trusted(trust: Trust) -> dict[str, Any]:
    for name in trust.allow_modules:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # a package's import may raise anything; it ends the stage as one finding
            raise StageError(
                Observation(
                    "KP007",
                    f"Package '{name}' of allow_modules can't be imported: {type(error).__name__}: {telling_line(error)}.",
                    f"Install '{name}' in this target's interpreter, or take it off allow_modules.",
                    place=name,
                )
            ) from error
    given: dict[str, Any] = {}
    modules = NamedModules(trust.custom_objects)
    modules.install()
    for file in trust.custom_objects:
        given.update(_unregistered(_execute(file, modules)))
    return given


def _execute(file: str, modules: NamedModules) -> types.ModuleType:
    """Run a file of custom objects as a module; the other named files can be imported by it."""
    try:
        return modules.run(file)
    except (Exception, SystemExit) as error:  # the user's code may raise anything; it ends the stage as one finding
        line = _line_in(error, file)
        raise StageError(
            Observation(
                "KP007",
                f"{Path(file).name}{f', line {line}' if line else ''}: {type(error).__name__}: {telling_line(error)}.",
                "Mend the file, or take it off [model] custom_objects. A file there can import others that are named there too, by their names, "
                "and installed packages; name every file that it imports.",
                place=f"{Path(file).name}:{line}" if line else Path(file).name,
            )
        ) from error


def _line_in(error: BaseException, file: str) -> int | None:
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None


def _unregistered(module: types.ModuleType) -> dict[str, Any]:
    """The classes and functions that the file defines without registering them, by name; a name of Keras' own is never shadowed."""
    import keras

    registered = set(map(id, keras.saving.get_custom_objects().values()))
    own = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type | types.FunctionType) and value.__module__ == module.__name__ and id(value) not in registered
    }
    spaces = (keras.activations, keras.losses, keras.metrics, keras.initializers, keras.regularizers, keras.constraints, keras.layers, keras.ops)
    return {name: value for name, value in own.items() if not any(hasattr(space, name) for space in spaces)}


# ---------------------------------------------------------------- why it failed


def _explain(error: Exception, path: str, config: Any, given: dict[str, Any], trust: Trust) -> StageError:
    import keras

    missing = [name for name in _custom_names(config) if keras.saving.get_registered_object(name, custom_objects=given) is None]
    named = [name for name in missing if f"'{name.rsplit('>', 1)[-1]}'" in str(error)]
    if named:
        short = ", ".join(f"'{name}'" for name in missing)
        where = f" It isn't in {', '.join(Path(file).name for file in trust.custom_objects)}." if trust.custom_objects else ""
        return StageError(
            Observation(
                "KP007",
                f"The model needs {short}, which {'is' if len(missing) == 1 else 'are'} not part of Keras and not registered.{where}",
                "Name the Python file that defines it in [model] custom_objects (or its package in allow_modules), "
                "with @keras.saving.register_keras_serializable() on the class.",
                place=missing[0],
                evidence={"missing": missing},
            )
        )
    for file in trust.custom_objects:
        if line := _line_in(error, file):
            reason = f"{Path(file).name}, line {line}: {type(error).__name__}: {telling_line(error)}"
            return _failed(
                path, reason, "Mend the custom object: its get_config and from_config must rebuild what was saved.", f"{Path(file).name}:{line}"
            )
    layer = _object_in(error)
    return _failed(
        path,
        f"{f'{layer}: ' if layer else ''}{type(error).__name__}: {telling_line(error)}",
        "Load it with keras.saving.load_model in this environment to see the whole message; a file from another Keras version may need that version.",
        place=layer.partition("'")[2].partition("'")[0],
    )


def _object_in(error: BaseException | None) -> str:
    """The innermost layer of the config that was being made when it failed: ``layer 'hue' (RandomHue)``; empty where none was."""
    chain: list[BaseException] = []
    while error is not None and error not in chain:  # Keras wraps what went wrong at each level of the config
        chain.append(error)
        error = error.__cause__ or error.__context__
    found = ""
    for one in chain:
        for frame, _ in traceback.walk_tb(one.__traceback__):
            config = frame.f_locals.get("config")
            own = config.get("config") if isinstance(config, dict) else None
            if isinstance(config, dict) and isinstance(own, dict) and isinstance(own.get("name"), str) and isinstance(config.get("class_name"), str):
                found = f"layer '{own['name']}' ({config['class_name']})"
    return found


def _failed(path: str, reason: str, remedy: str, place: str = "") -> StageError:
    return StageError(Observation("KP012", f"Keras can't reload {Path(path).name}: {reason}.", remedy, place=place or Path(path).name))


def _refused_code(name: str) -> StageError:
    return StageError(
        Observation(
            "KP006",
            f"Layer '{name}' is a Lambda that carries Python bytecode in the archive; loading it would run that code.",
            "Replace it with a registered layer (or keras.ops), or name it in [model] allow_lambda if you trust the file.",
            place=name,
        )
    )

"""Which names the contract's custom-object files register, read from their syntax tree: the files aren't run."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe_stages.archive.collecting import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpipe_stages.archive.collecting import Collector
    from kpipe_stages.protocol import Trust

MOST_BYTES = 4 * 2**20
_DECORATOR = "register_keras_serializable"
_DEFAULT_PACKAGE = "Custom"


@dataclass(frozen=True)
class Provided:
    """What may be loaded besides Keras."""

    names: frozenset[str]
    """Class and function names, and ``package>name`` where they are registered."""
    any_package: frozenset[str]
    """Names registered under a package that isn't written out in the file."""
    files: tuple[str, ...]
    modules: tuple[str, ...]

    def has(self, name: str | None) -> bool:
        """Whether a file gives the registered or plain name."""
        return name is not None and (name in self.names or (">" in name and name.split(">", 1)[1] in self.any_package))

    def allows(self, module: str) -> bool:
        """Whether the module lies in an installed package that the contract allows."""
        return any(module == package or module.startswith(f"{package}.") for package in self.modules)

    def described(self) -> str:
        """For a message."""
        if not self.files:
            return "no custom-object files were given"
        return f"{', '.join(self.files)} give {', '.join(sorted(self.names)[:8]) or 'nothing'}"


def read_custom_objects(trust: Trust, collector: Collector) -> Provided:
    """Names in ``trust.custom_objects``; a file that can't be read or parsed is a KP007 refusal."""
    names, free = set[str](), set[str]()
    for path in trust.custom_objects:
        tree = _parse(Path(path), collector)
        if tree is None:
            continue
        constants = dict(_constants(tree))
        names |= {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                _registered(node, constants, names, free)
    files = tuple(Path(path).name for path in trust.custom_objects)
    return Provided(frozenset(names), frozenset(free), files, trust.allow_modules)


def _parse(path: Path, collector: Collector) -> ast.Module | None:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES} bytes")
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or error
        collector.refuse(
            "KP007", f"Custom-object file '{path.name}' can't be read: {shown(reason)}.", "Name Python files that exist and parse.", place=path.name
        )
        return None


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value.value


def _registered(node: ast.ClassDef | ast.FunctionDef, constants: dict[str, str], names: set[str], free: set[str]) -> None:
    for decorator in node.decorator_list:
        if not isinstance(decorator, ast.Call) or not ast.unparse(decorator.func).endswith(_DECORATOR):
            continue
        given = dict(zip(("package", "name")[: len(decorator.args)], decorator.args[:2], strict=True))
        given |= {word.arg: word.value for word in decorator.keywords if word.arg}
        name = _text(given.get("name"), node.name, constants) or node.name
        package = _text(given.get("package"), _DEFAULT_PACKAGE, constants)
        if package is None:
            free.add(name)
        else:
            names.add(f"{package}>{name}")


def _text(node: ast.expr | None, default: str, constants: dict[str, str]) -> str | None:
    """A string argument's value; None where it isn't written out."""
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return default
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return constants.get(node.id) if isinstance(node, ast.Name) else None

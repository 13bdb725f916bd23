"""Files of custom objects that import one another: by their names, by package and name, or relatively; nothing else that lies beside them.

A file of ``[model] custom_objects`` runs once, whoever asks first. Other modules of its name go before it: a ``layers.py`` never hides an
installed package.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

PRIVATE = "_kpipe_custom_"


class NamedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder of the process."""

    def __init__(self, files: Iterable[str]) -> None:
        """Know the files; ``house/layers.py`` is ``layers``, and ``house.layers`` too."""
        self._paths: dict[str, str] = {}
        self._packages: dict[str, str] = {}
        self._modules: dict[str, types.ModuleType] = {}
        self._given: list[importlib.machinery.ModuleSpec] = []
        for file in files:
            path = Path(file)
            package, stem = path.parent.name, path.stem
            if package.isidentifier():
                self._packages.setdefault(package, "")
                self._paths.setdefault(package if stem == "__init__" else f"{package}.{stem}", file)
            if stem != "__init__":
                self._paths.setdefault(stem, file)

    def install(self) -> None:
        """Be the last finder, in the place of an earlier set's: what that one's files are called by is free again, in `sys.modules` as well."""
        for finder in [finder for finder in sys.meta_path if isinstance(finder, NamedModules)]:
            finder.withdraw()
        sys.meta_path.append(self)

    def withdraw(self) -> None:
        """Find nothing any more, and let go of the public names that came of it; modules that have run keep their private names."""
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        for spec in self._given:
            module = sys.modules.get(spec.name)
            if module is not None and (module.__spec__ is spec or any(module is own for own in self._modules.values())):
                del sys.modules[spec.name]
        self._given.clear()

    def run(self, file: str) -> types.ModuleType:
        """The file's module, run from source if it hasn't been: no stale bytecode, no cache file. It may raise anything."""
        if file not in self._modules:
            module = self._made(file)
            try:
                self._execute(module, file)
            except BaseException:
                self._forget(file)
                raise
        return self._modules[file]

    def _made(self, file: str) -> types.ModuleType:
        name = f"{PRIVATE}{hashlib.sha256(file.encode()).hexdigest()[:12]}"
        module = types.ModuleType(name)
        module.__file__ = file
        module.__package__ = Path(file).parent.name if Path(file).parent.name.isidentifier() else ""
        sys.modules[name] = self._modules[file] = module  # pickling, dataclasses and inspect look a class's module up
        return module

    def _execute(self, module: types.ModuleType, file: str) -> None:
        module.__dict__["__kpipe_ran__"] = True  # from here on a file that imports it back gets it as it is, as in any circular import
        exec(compile(Path(file).read_bytes(), file, "exec"), module.__dict__)  # noqa: S102 - the contract names this very file

    def _forget(self, file: str) -> None:
        module = self._modules.pop(file)
        for name in [name for name, known in sys.modules.items() if known is module]:
            del sys.modules[name]

    # ------------------------------------------------------------ the import system's questions

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:  # noqa: ARG002 - its protocol
        """A spec for a named file or for the folder of one."""
        if fullname in self._paths:
            file = self._paths[fullname]
            spec = importlib.machinery.ModuleSpec(fullname, self, origin=file, is_package=Path(file).stem == "__init__")
        elif fullname in self._packages:
            spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        else:
            return None
        self._given.append(spec)
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        """The one module of the file, however it is called."""
        file = str(spec.origin)
        return self._modules.get(file) or self._made(file)

    def exec_module(self, module: types.ModuleType) -> None:
        """Run it, unless it has run."""
        file = str(module.__file__)
        if not module.__dict__.get("__kpipe_ran__"):
            self._execute(module, file)

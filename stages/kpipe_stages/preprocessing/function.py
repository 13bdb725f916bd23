"""The user's own preprocessing, ``decode = "module:function"``: named files are loaded, each held to its digest, and the function is called.

The named ``.py`` files can import one another by their stems, and nothing else that lies beside them: what isn't named isn't hashed.
Files of other kinds (a table of means, say) are hashed only.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import keyword
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.preprocessing.errors import PreprocessError
from kpipe_stages.preprocessing.files import read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from types import ModuleType

    from kpipe_stages.protocol import InputSpec

Array = np.ndarray[Any, np.dtype[Any]]

CODE = "KP112"
"""The finding of preprocessing code, or of a tensor file, that can't be used."""
KINDS = "biufSU"
"""Booleans, integers, floats, strings."""
EXPECTED = "a NumPy array of numbers or strings, without a batch axis"


def is_function(decode: str) -> bool:
    """Whether a ``decode`` names a function of the user's."""
    return ":" in decode


def check_function(decode: str, files: Sequence[str], key: str = "decode", otherwise: str = '"image", "npy" or ') -> str:
    """Say what is wrong with ``module:function`` and its files; empty when nothing is. Pure: no file is read.

    Args:
        decode: the text.
        files: the files that are named beside it.
        key: what the text is the value of.
        otherwise: what else that key could be, for the message.
    """
    module, _, function = decode.partition(":")
    if not all(part.isidentifier() and not keyword.iskeyword(part) for part in (module, function)):
        return f'{key} is {decode!r}; expected {otherwise}"module:function", module being the name of one of files without .py'
    stems = [Path(name).stem for name in files if name.endswith(".py")]
    if module not in stems:
        return f'{key} is {decode!r}, and files = {list(files)} has no {module}.py; expected files = ["{module}.py"], relative to the contract'
    if twice := [stem for stem in stems if stems.count(stem) > 1]:
        return f"files names two modules {twice[0]!r}; expected a name for each"
    if standard := [stem for stem in stems if stem in sys.stdlib_module_names or stem in {"numpy", "PIL", "kpipe", "kpipe_stages"}]:
        return f"files names {standard[0]}.py, and Python or kpipe has a module {standard[0]!r}; rename the file"
    return ""


class UserFunction:
    """A function of the user's, loaded once and called for every raw file."""

    def __init__(self, spec: InputSpec) -> None:
        """Load it; ``spec.files`` maps paths to the SHA-256 that each must have (empty: any).

        Raises:
            PreprocessError: a file is missing or another one, doesn't run, or lacks the function.
        """
        if problem := check_function(spec.decode, list(spec.files)):
            raise PreprocessError("decode", f"input {spec.name!r}: {problem}", "a function in a named file", "Mend the contract.", "KP104")
        module, _, self.name = spec.decode.partition(":")
        self._input = spec.name
        self._files = frozenset(spec.files)
        self.file = next(path for path in spec.files if Path(path).stem == module and path.endswith(".py"))
        try:
            function = getattr(load_module(module, spec.files), self.name, None)
        except PreprocessError:
            raise
        except (Exception, SystemExit) as error:  # the user's code: whatever it raises is a finding about it
            raise self._fault("importing it", error, "a file that imports where it is run") from error
        if not callable(function):
            raise PreprocessError(
                "decode",
                f"{self.file} has no function {self.name!r} (input {spec.name!r})",
                f"def {self.name}(path)",
                "Mend decode or the file.",
                CODE,
            )
        self._function: Callable[[str], Any] = function

    def __call__(self, path: str) -> Array:
        """The array that the function makes of a raw file.

        Raises:
            PreprocessError: it raised, or returned no plain array.
        """
        try:
            value = self._function(path)
        except (Exception, SystemExit) as error:  # as above
            raise self._fault(f"{self.name}({path!r})", error, EXPECTED) from error
        if not hasattr(value, "__array__"):
            raise self._wrong(path, f"a {type(value).__name__}")
        try:
            array = np.asarray(value)
        except Exception as error:  # a framework's tensor that can't leave its device, say
            raise self._fault(f"the array of {self.name}({path!r})", error, EXPECTED) from error
        if array.dtype.kind not in KINDS or array.dtype.hasobject:
            raise self._wrong(path, f"values of dtype {array.dtype}")
        if array.size == 0:
            raise self._wrong(path, f"an empty array of shape {array.shape}")
        return np.array(array, order="C")  # its own: a buffer that the function fills anew each time must not change under us

    def of_bytes(self, data: bytes, where: str) -> Array:
        """The array of a raw file that is only in memory: it gets one, for as long as the call takes, with the suffix of ``where``."""
        import tempfile

        with tempfile.TemporaryDirectory(prefix="kpipe-") as folder:
            path = Path(folder) / f"raw{Path(where).suffix}"
            path.write_bytes(data)
            return self(str(path))

    def _wrong(self, path: str, got: str) -> PreprocessError:
        cause = f"{self.name}() of {self.file} returned {got} for input {self._input!r} from {path}"
        return PreprocessError("decode", cause, EXPECTED, "Return np.asarray(...) of plain numbers.", CODE)

    def _fault(self, doing: str, error: BaseException, expected: str) -> PreprocessError:
        cause = f"{raised_at(error, self._files, self.file)}, input {self._input!r}: {doing} raised {type(error).__name__}: {error}"
        return PreprocessError("decode", cause, expected, "Mend the function; it must run in a process that has its packages.", CODE)


def raised_at(error: BaseException, files: Collection[str], otherwise: str) -> str:
    """File and line of the user's ``files`` that an exception came from; the file ``otherwise`` where it names none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else None
    return f"{frames[-1].filename if frames else otherwise}{f':{line}' if line else ''}"


def load_module(module: str, files: Mapping[str, str]) -> ModuleType:
    """Import ``module`` from the bytes that were hashed; the other files can be imported by it."""
    sources: dict[str, tuple[str, bytes, str]] = {}
    for path, expected in files.items():
        data = _read(path)
        found = hashlib.sha256(data).hexdigest()
        if expected and found != expected:
            raise PreprocessError("read", f"{path} has SHA-256 {found}", f"{expected}, as when the run began", "Run the validation again.", CODE)
        if path.endswith(".py"):
            sources[Path(path).stem] = (path, data, found)
    for name, (path, _, found) in sources.items():
        _check_free(name, path, found)
    finder = next((f for f in sys.meta_path if isinstance(f, _NamedFiles)), None)
    if finder is None:
        finder = _NamedFiles()
        sys.meta_path.insert(0, finder)
    finder.sources |= sources
    return importlib.import_module(module)


def _read(path: str) -> bytes:
    try:
        return read_bytes(path, 512 * 2**20)
    except PreprocessError as error:
        raise PreprocessError("read", error.what, "the file that the contract names", "Restore it, or mend files.", CODE) from error


def _check_free(name: str, path: str, found: str) -> None:
    """Another module of the name would be run instead, or hidden."""
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__kpipe_sha256__", None) == found and known.__file__ == path:
        return
    other = importlib.util.find_spec(name) if known is None else None
    origin = getattr(known, "__file__", None) if known is not None else other.origin if other is not None else None
    if (known is not None or other is not None) and not (known is None and origin is not None and Path(origin).resolve() == Path(path).resolve()):
        raise PreprocessError(
            "read",
            f"{path}: there is another module {name!r} ({origin or 'built in'})",
            "a name of its own",
            "Rename the file, and mend decode.",
            CODE,
        )


class _NamedFiles(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the named files, from memory, before anything else of their names is looked for."""

    def __init__(self) -> None:
        self.sources: dict[str, tuple[str, bytes, str]] = {}

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:  # noqa: ARG002 - the protocol's
        """A spec for a named file, None for all other modules."""
        source = self.sources.get(fullname)
        return None if source is None else importlib.machinery.ModuleSpec(fullname, self, origin=source[0])

    def exec_module(self, module: ModuleType) -> None:
        """Run the file's bytes in the module."""
        path, data, found = self.sources[module.__name__]
        module.__file__ = path
        module.__dict__["__kpipe_sha256__"] = found
        exec(compile(data, path, "exec"), module.__dict__)  # noqa: S102 - the user's own file, named in the contract and hashed

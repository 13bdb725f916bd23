"""``tensors = "file.npz"``: tensors that the serving system itself made, a row a golden input, found by id."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.npz import NpzFile, NpzLimits
from kpipe_stages.preprocessing.errors import PreprocessError
from kpipe_stages.preprocessing.files import read_bytes
from kpipe_stages.preprocessing.function import CODE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe_stages.protocol import InputSpec

Array = np.ndarray[Any, np.dtype[Any]]

IDS = "ids"
"""The array of the ``.npz`` that names the golden input of each row."""


class ServedTensors:
    """The rows of one input, by golden id."""

    def __init__(self, spec: InputSpec, ids: Sequence[str], max_bytes: int) -> None:
        """Read the file and hold its ids against the golden set's: exactly those, each once.

        Raises:
            PreprocessError: no such file, another one than was named, no sound ``.npz``, no array of the input's name, or other ids.
        """
        ((self._path, expected),) = spec.files.items()
        self._name = spec.name
        try:
            data = read_bytes(self._path, max_bytes)
            found = hashlib.sha256(data).hexdigest()
            if expected and found != expected:
                raise self._fault(f"it has SHA-256 {found}", f"{expected}, as when the run began", "Run the validation again.")
            file = NpzFile(data, self._path, NpzLimits(max_bytes=max_bytes))
            named, self._rows = file.array(IDS), file.array(spec.name)
        except PreprocessError as error:
            if error.code == CODE:
                raise
            raise self._fault(
                error.what, f"an .npz with the arrays {IDS!r} and {spec.name!r}", "Write it with numpy.savez(file, ids=..., NAME=...)."
            ) from error
        self._positions = self._checked(named, ids)

    def _checked(self, named: Array, ids: Sequence[str]) -> dict[str, int]:
        if named.ndim != 1 or named.dtype.kind not in "SU" or self._rows.ndim < 1 or len(named) != len(self._rows):
            got = f"{IDS!r} is {named.dtype} of shape {named.shape} and {self._name!r} has shape {self._rows.shape}"
            raise self._fault(got, "a vector of texts, and as many rows", "Write a row and an id for each golden input.")
        texts = [text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text) for text in named.tolist()]
        positions = {text: position for position, text in enumerate(texts)}
        if len(positions) != len(texts):
            twice = next(text for text in texts if texts.count(text) > 1)
            raise self._fault(f"the id {twice!r} stands more than once", "each golden id once", "Write one row for each golden input.")
        missing, foreign = [name for name in ids if name not in positions], [name for name in texts if name not in set(ids)]
        if missing or foreign:
            got = f"{len(missing)} golden inputs have no row ({', '.join(missing[:5])}) and {len(foreign)} rows no golden input ({', '.join(foreign[:5])})"
            raise self._fault(got, f"the {len(ids)} golden ids, each once", "Let the serving system make a row of every golden file.")
        return positions

    def row(self, identity: str) -> Array:
        """The tensor of one golden input, without a batch axis."""
        return np.array(self._rows[self._positions[identity]], order="C")

    def _fault(self, what: str, expected: str, do: str) -> PreprocessError:
        return PreprocessError("read", f"tensors of input {self._name!r}, {self._path}: {what}", expected, do, CODE)

"""Arrays on disk, a row an input: flat values beside the shapes, so that rows may differ in shape and nothing is pickled.

``<prefix>.values.npy`` holds all values one after another, ``<prefix>.shapes.npy`` an int64 row of dimensions per row,
``<prefix>.absent.npy`` the positions of rows that have no array, and ``<prefix>.dtype`` the dtype's name. bfloat16 is kept as its bits
(uint16), strings as fixed-width unicode.
"""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Array = np.ndarray[Any, np.dtype[Any]]

SUFFIXES = (".dtype", ".absent.npy", ".shapes.npy", ".values.npy")
_HEADER_BYTES = 128


def to_storable(array: Any) -> tuple[Array, str]:
    """Return ``array`` in a dtype that ``.npy`` holds without pickling, and the name of its real dtype."""
    array = np.asarray(array)
    if array.dtype.kind in "OSU":
        return decode_strings(array), "string"
    name = _name(array.dtype)
    return (array.view(np.uint16) if name == "bfloat16" else array), name


@functools.cache
def _name(dtype: np.dtype[Any]) -> str:
    """NumPy makes the name anew each time, for several microseconds."""
    return dtype.name


def decode_strings(array: Array) -> Array:
    """Bytes or objects to unicode (UTF-8, undecodable bytes kept as surrogates so that a difference stays one)."""
    flat = [v.decode("utf-8", "surrogateescape") if isinstance(v, bytes) else str(v) for v in array.ravel().tolist()]
    return np.array(flat, dtype=np.str_).reshape(array.shape)


def bfloat16_to_float32(bits: Array) -> Array:
    """Widen bfloat16 bits (uint16) exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


class AbsentRowError(LookupError):
    """A row that was declared absent was read: an input that did not decode has no tensor and must not be run."""


class RowsWriter:
    """Write rows one at a time, so that memory holds one; nothing can be read until the ``with`` block has ended well.

    ``append`` adds an array, ``append_absent`` a row that has none: it keeps its position, `Rows.absent` lists it, and reading it raises.
    Strings are kept in memory until the end, because their width is only known then.
    """

    def __init__(self, prefix: str | Path) -> None:
        """Open the values' file; rows that an earlier writer left there are gone."""
        self._prefix = Path(prefix)
        self._shapes: list[tuple[int, ...] | None] = []
        self._kind: tuple[str, int] | None = None
        self._dtype: np.dtype[Any] | None = None
        self._texts: list[Array] = []
        self._count = 0
        self._prefix.parent.mkdir(parents=True, exist_ok=True)
        for suffix in SUFFIXES:
            Path(f"{self._prefix}{suffix}").unlink(missing_ok=True)
        self._stream = Path(f"{self._prefix}.values.npy").open("wb")  # noqa: SIM115  # `__exit__` closes it
        self._stream.write(bytes(_HEADER_BYTES))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        finished = False
        try:
            if kind is None:
                self._finish()
                finished = True
        finally:
            self._stream.close()
            if not finished:
                Path(f"{self._prefix}.values.npy").unlink(missing_ok=True)

    @property
    def kind(self) -> tuple[str, int] | None:
        """Dtype name and rank of the rows, None before the first."""
        return self._kind

    def append(self, row: Any) -> None:
        """Add one row.

        Raises:
            ValueError: its dtype or rank differs from the first row's.
        """
        array, name = to_storable(row)
        if self._kind is None:
            self._kind, self._dtype = (name, array.ndim), array.dtype.newbyteorder("=")
        elif self._kind != (name, array.ndim):
            known = {self._kind[0], name}, {self._kind[1], array.ndim}
            raise ValueError(f"{self._prefix}: rows differ in dtype or rank: {sorted(known[0])}, ranks {sorted(known[1])}")
        self._shapes.append(array.shape)
        self._count += array.size
        if name == "string":
            self._texts.append(array.ravel())
        else:
            self._stream.write(np.ascontiguousarray(array, dtype=self._dtype).tobytes())

    def append_absent(self) -> None:
        """Add a row that has no array."""
        self._shapes.append(None)

    def _finish(self) -> None:
        if self._kind is None or self._dtype is None:
            raise ValueError(f"{self._prefix}: no rows to write")
        name, rank = self._kind
        self._stream.seek(0)
        if name == "string":
            np.save(self._stream, np.concatenate(self._texts), allow_pickle=False)
        else:
            self._stream.write(_vector_header(self._dtype, self._count))
        self._stream.flush()
        shapes = [shape if shape is not None else (0,) * rank for shape in self._shapes]
        np.save(f"{self._prefix}.shapes.npy", np.array(shapes, dtype=np.int64).reshape(len(shapes), rank), allow_pickle=False)
        absent = [i for i, shape in enumerate(self._shapes) if shape is None]
        np.save(f"{self._prefix}.absent.npy", np.array(absent, dtype=np.int64), allow_pickle=False)
        Path(f"{self._prefix}.dtype").write_text(name, encoding="utf-8")


def _vector_header(dtype: np.dtype[Any], count: int) -> bytes:
    """The ``.npy`` header of a vector, always `_HEADER_BYTES` long (numpy pads it for growth)."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (count,)})
    header = stream.getvalue()
    if len(header) != _HEADER_BYTES:
        raise ValueError(f"numpy wrote an .npy header of {len(header)} bytes; {_HEADER_BYTES} were expected")
    return header


def write_rows(prefix: str | Path, rows: Sequence[Any]) -> str:
    """Write one array per row below ``prefix``; return the dtype's name.

    Raises:
        ValueError: rows of more than one dtype or rank, or no rows at all.
    """
    with RowsWriter(prefix) as writer:
        for row in rows:
            writer.append(row)
    return Path(f"{prefix}.dtype").read_text(encoding="utf-8")


def _load(path: str, mmap_mode: Literal["r"] | None = None) -> Array:
    """Read an ``.npy``; numpy calls an empty one the end of a file, which is neither `OSError` nor `ValueError`."""
    try:
        array: Array = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except EOFError as error:
        raise ValueError(f"{path} is empty") from error
    return array


class Rows:
    """Rows written by `RowsWriter` or `write_rows`, read lazily from a memory map."""

    def __init__(self, prefix: str | Path) -> None:
        """Open the four files.

        Raises:
            OSError: one is missing.
            ValueError: they contradict one another.
        """
        self.dtype = Path(f"{prefix}.dtype").read_text(encoding="utf-8")
        self._values = np.asarray(_load(f"{prefix}.values.npy", mmap_mode="r"))  # still mapped; slices of a plain array are cheaper
        stored = self._values.dtype.name if self._values.dtype.kind != "U" else "string"
        if stored != {"bfloat16": "uint16"}.get(self.dtype, self.dtype):
            raise ValueError(f"{prefix}: the values are {stored}, and {self.dtype} is said")
        self._shapes = _load(f"{prefix}.shapes.npy")
        self.absent = frozenset(_load(f"{prefix}.absent.npy").tolist())
        sizes = np.prod(self._shapes, axis=1, dtype=np.int64)
        sizes[sorted(self.absent)] = 0  # of rank 0, whose empty product is 1
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        if self._starts[-1] != len(self._values):
            raise ValueError(f"{prefix}: shapes add up to {self._starts[-1]} values, the file holds {len(self._values)}")

    def __len__(self) -> int:
        return len(self._shapes)

    def shape(self, index: int) -> tuple[int, ...]:
        """Shape of one row.

        Raises:
            AbsentRowError: the row has no array.
        """
        if index in self.absent:
            raise AbsentRowError(f"row {index} is absent: its input did not decode")
        return tuple(self._shapes[index].tolist())

    def common_shape(self, start: int, stop: int) -> tuple[int, ...] | None:
        """The shape that all these rows have; None where they differ, or one of them is absent."""
        shapes = self._shapes[start:stop]
        if not len(shapes) or (self.absent and any(start <= index < stop for index in self.absent)) or bool((shapes != shapes[0]).any()):
            return None
        return tuple(int(n) for n in shapes[0])

    def block(self, start: int, stop: int) -> Array:
        """Rows of one shape, each raveled: shape (``stop - start``, values of a row). A copy.

        Raises:
            ValueError: the rows differ in shape, or one of them is absent.
        """
        if self.common_shape(start, stop) is None:
            raise ValueError(f"rows {start} to {stop} have no shape in common")
        flat = np.array(self._values[self._starts[start] : self._starts[stop]])
        if self.dtype == "bfloat16":
            flat = bfloat16_to_float32(flat)
        return flat.reshape(stop - start, -1) if flat.size else flat.reshape(stop - start, 0)

    def __getitem__(self, index: int) -> Array:
        if not 0 <= index < len(self):
            raise IndexError(index)
        shape = self.shape(index)
        flat = np.array(self._values[self._starts[index] : self._starts[index + 1]])
        if self.dtype == "bfloat16":
            flat = bfloat16_to_float32(flat)
        return flat.reshape(shape)

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(len(self)))

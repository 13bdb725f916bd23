"""``.npy`` and ``.npz`` read with distrust: headers and declared sizes are checked before a value is read; nothing is ever unpickled."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from kpipe_stages.preprocessing.errors import PreprocessError
from kpipe_stages.preprocessing.files import read_bytes

Array = np.ndarray[Any, np.dtype[Any]]

_KINDS = "biufSU"
"""Booleans, integers, floats, strings; objects, structures, dates, complex and raw bytes (bfloat16 among them) are refused."""
_MAX_HEADER = 16_384
_RATIO_FROM = 64 * 2**20  # a smaller member can't hurt, and a constant mask really compresses a thousandfold


@dataclass(frozen=True)
class NpzLimits:
    """Bounds that hold before anything is inflated."""

    max_bytes: int = 512 * 2**20
    """The file, and also all its members inflated."""
    max_members: int = 4096
    max_ratio: float = 200.0
    """Inflated over stored size, for members above 64 MiB."""


@dataclass(frozen=True)
class NpyHeader:
    """What an ``.npy`` header declares."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    """As stored: it may be big-endian."""
    fortran: bool
    offset: int
    """Bytes before the first value."""

    @property
    def total(self) -> int:
        """Bytes the whole ``.npy`` must have."""
        size = self.dtype.itemsize
        for n in self.shape:
            size *= n
        return self.offset + size


def refuse(where: str, what: str, expected: str, do: str = "Write it with numpy.savez from plain arrays.") -> PreprocessError:
    """An error about a file that is not taken."""
    return PreprocessError("decode", f"{where}: {what}", expected, do)


def npy_header(start: bytes, where: str) -> NpyHeader:
    """Read an ``.npy`` header from the first bytes of a file.

    Raises:
        PreprocessError: no ``.npy``, a header over 16 KiB, or a dtype that needs pickling or has no plain meaning.
    """
    stream = io.BytesIO(start[: _MAX_HEADER + 12])
    try:
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise refuse(where, f".npy format {version[0]}.{version[1]}", "1.0 or 2.0")
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = reader(stream, max_header_size=_MAX_HEADER)
    except PreprocessError:
        raise
    except Exception as error:  # numpy evaluates the header as a literal; hostile text raises any type, and each means the same
        raise refuse(
            where, f"not an .npy array: {str(error).splitlines()[0][:200] if str(error) else type(error).__name__}", "an .npy header"
        ) from error
    if dtype.kind not in _KINDS or dtype.hasobject or dtype.names is not None:
        raise refuse(where, f"dtype {dtype}", "booleans, integers, floats or fixed-width strings")
    if any(n < 0 or isinstance(n, bool) for n in shape):
        raise refuse(where, f"shape {shape}", "no negative size")
    return NpyHeader(tuple(int(n) for n in shape), dtype, bool(fortran), stream.tell())


def npy_array(data: bytes, where: str) -> Array:
    """Turn the bytes of one ``.npy`` into a native-endian, C-contiguous array.

    Raises:
        PreprocessError: as `npy_header`, or the declared shape needs another number of bytes than there are.
    """
    header = npy_header(data, where)
    if header.total != len(data):
        raise refuse(
            where,
            f"shape {header.shape} of {header.dtype} needs {header.total:,} bytes, there are {len(data):,}",
            "exactly as many",
            "Write it anew.",
        )
    if header.dtype.itemsize == 0:
        return np.zeros(header.shape, dtype="<U1")
    flat = np.frombuffer(data, dtype=header.dtype, offset=header.offset)
    array = flat.reshape(header.shape, order="F" if header.fortran else "C")
    return np.ascontiguousarray(array, dtype=header.dtype.newbyteorder("=")).reshape(header.shape)


class NpzFile:
    """An ``.npz`` whose directory and headers have been found sound; members are inflated when asked for."""

    def __init__(self, data: bytes, where: str, limits: NpzLimits = NpzLimits()) -> None:
        """Check the directory and every member's header.

        Raises:
            PreprocessError: not a zip, or anything in it that plain ``numpy.savez`` doesn't write.
        """
        self.where = where
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, struct.error, OSError, ValueError, EOFError, NotImplementedError, OverflowError) as error:
            raise refuse(where, f"not a zip: {error}", "an .npz") from error
        self._infos = self._checked_directory(limits)
        self.headers = {name: self._header(name) for name in self._infos}

    def _checked_directory(self, limits: NpzLimits) -> dict[str, zipfile.ZipInfo]:
        infos = self._zip.infolist()
        if not 0 < len(infos) <= limits.max_members:
            raise refuse(self.where, f"{len(infos)} members", f"1 to {limits.max_members}")
        total = sum(info.file_size for info in infos)
        if total > limits.max_bytes:
            raise refuse(
                self.where, f"members of {total:,} bytes inflated", f"at most {limits.max_bytes:,}", "Split it, or raise max_bytes if it is meant."
            )
        named: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            name = info.filename.removesuffix(".npy")
            if problem := _member_problem(info, limits):
                raise refuse(self.where, f"member {info.filename!r}: {problem}", "a stored or deflated .npy")
            if name in named:
                raise refuse(self.where, f"two members named {name!r}", "each name once")
            named[name] = info
        return named

    def _header(self, name: str) -> NpyHeader:
        where = f"{self.where}: {name}"
        try:
            with self._zip.open(self._infos[name]) as stream:
                header = npy_header(stream.read(_MAX_HEADER + 12), where)
        except (zipfile.BadZipFile, zlib.error, OSError, ValueError, EOFError, NotImplementedError, RuntimeError, struct.error) as error:
            if isinstance(error, PreprocessError):
                raise
            raise refuse(where, f"unreadable: {error}", "a sound member") from error
        if header.total != self._infos[name].file_size:
            raise refuse(
                where,
                f"shape {header.shape} of {header.dtype} needs {header.total:,} bytes, the member has {self._infos[name].file_size:,}",
                "the same",
            )
        return header

    def array(self, name: str) -> Array:
        """Inflate one member (its CRC is checked); native-endian and C-contiguous.

        Raises:
            PreprocessError: there is no such member, or it is damaged.
        """
        if name not in self._infos:
            raise refuse(self.where, f"no member {name!r}", f"one of {', '.join(sorted(self._infos))}", "Name the arrays as the model's inputs.")
        try:
            data = self._zip.read(self._infos[name])
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, struct.error) as error:
            raise refuse(f"{self.where}: {name}", f"unreadable: {error}", "a sound member") from error
        return npy_array(data, f"{self.where}: {name}")


def _member_problem(info: zipfile.ZipInfo, limits: NpzLimits) -> str:
    if not info.filename.endswith(".npy"):
        return "not an .npy"
    if info.flag_bits & 0x1:
        return "encrypted"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"compression method {info.compress_type}"
    if info.file_size > _RATIO_FROM and info.file_size > limits.max_ratio * max(info.compress_size, 1):
        return f"{info.compress_size:,} bytes that inflate to {info.file_size:,}"
    return ""


def npz_header(source: str | Path | BinaryIO, limits: NpzLimits = NpzLimits()) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and dtype of each array of an ``.npz``, from headers alone.

    Raises:
        PreprocessError: as `NpzFile`, or the file is missing or too large.
    """
    where = str(source) if isinstance(source, str | Path) else "npz"
    data = read_bytes(source, limits.max_bytes) if isinstance(source, str | Path) else source.read(limits.max_bytes + 1)
    if len(data) > limits.max_bytes:
        raise refuse(where, f"more than {limits.max_bytes:,} bytes", "a smaller file")
    return {name: (header.shape, header.dtype) for name, header in NpzFile(data, where, limits).headers.items()}


def split_reference(reference: str) -> tuple[str, str, int]:
    """Split ``file.npz#member#row`` (how a golden item names a row of an array) into its parts.

    Raises:
        PreprocessError: it has another form.
    """
    path, _, rest = reference.partition(".npz#")
    member, _, row = rest.rpartition("#")
    if not path or not member or not row.isdecimal():
        raise refuse(reference, "no reference to a row", "file.npz#member#row", "Write the manifest anew.")
    return f"{path}.npz", member, int(row)


def npz_row(file: NpzFile, array: Array, member: str, row: int) -> Array:
    """One row of an inflated member.

    Raises:
        PreprocessError: the member has no such row.
    """
    if array.ndim == 0 or row >= len(array):
        raise refuse(f"{file.where}: {member}", f"no row {row} in shape {array.shape}", "a row for every golden input", "Write the manifest anew.")
    return np.array(array[row])

"""``.npy`` and ``.npz`` read with distrust: hostile headers and archives are refused, sound ones equal what numpy reads."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kpipe_stages.npz import NpzFile, NpzLimits, npy_array, npz_header
from kpipe_stages.preprocess import PreprocessError, Preprocessor
from kpipe_stages.protocol import InputSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def outcome(work: Callable[[], Any]) -> Any:
    """What ``work`` returns, or the `PreprocessError` it raises; any other exception is a fault."""
    try:
        return work()
    except PreprocessError as error:
        return error


# ---------------------------------------------------------------- npy and npz


def npy(array: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def npz(*, compressed: bool = False, **arrays: Any) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


@settings(deadline=None)
@given(
    hnp.arrays(st.sampled_from([np.dtype(d) for d in ("f4", ">f8", "<i2", ">u4", "?", "<U3", "S2", "f2")]), hnp.array_shapes(min_dims=0, max_dims=3)),
    st.booleans(),
)
def test_npy_equals_what_numpy_reads(array: Any, fortran: bool) -> None:
    array = np.asfortranarray(array) if fortran else array
    mine = npy_array(npy(array), "x")
    assert mine.dtype.isnative
    assert mine.flags.c_contiguous
    assert mine.shape == array.shape
    assert np.array_equal(mine, array, equal_nan=array.dtype.kind == "f")


@pytest.mark.parametrize("array", [np.array([{}]), np.zeros(2, "f4,i4"), np.zeros(2, "M8[s]"), np.zeros(2, complex), np.zeros(2, "V2")])
def test_dtypes_that_need_pickling_or_have_no_plain_meaning_are_refused(array: Any) -> None:
    with pytest.raises(PreprocessError, match="dtype"):
        npy_array(npy(array), "x")


def header(text: str, body: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + body


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (100000000000,), }\n"), "needs 400,000,000,"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }\n"), "negative"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", bytes(9)), "there are"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", bytes(7)), "there are"),
        (header("(" * 9000), "not an .npy"),
        (header("__import__('os').abort()\n"), "not an .npy"),
        (b"\x93NUMPY\x01\x00\xff\xff" + b"9" * 70000, "not an .npy"),
        (b"\x93NUMPY\x07\x00", "format 7.0"),
        (b"PK", "not an .npy"),
        (b"", "not an .npy"),
    ],
)
def test_hostile_npy_headers_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(PreprocessError, match=message):
        npy_array(data, "x")


def test_npz_headers_without_reading_values(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(npz(compressed=True, x=np.zeros((3, 4), ">f4"), ids=np.arange(3)))
    assert npz_header(tmp_path / "a.npz") == {"x": ((3, 4), np.dtype(">f4")), "ids": ((3,), np.dtype(np.int64))}
    assert npz_header(io.BytesIO(npz(x=np.zeros(2)))) == {"x": ((2,), np.dtype(np.float64))}


def test_hostile_npz_files_are_refused() -> None:
    import zipfile

    def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", method) as archive:
            for name, data in members:
                archive.writestr(name, data)
        return stream.getvalue()

    small = npy(np.zeros(2))
    bomb = header("{'descr': '|u1', 'fortran_order': False, 'shape': (104857600,), }\n", bytes(100 * 2**20))
    cases = [
        (b"no zip", "not a zip"),
        (zipped(), "0 members"),
        (zipped(("a.txt", b"x")), "not an .npy"),
        (zipped(("a.npy", npy(np.array([{}])))), "dtype"),
        (zipped(("a.npy", header("{'descr': '<f4', 'fortran_order': False, 'shape': (10000000,), }\n"))), "needs 40,000"),
        (zipped(("a.npy", small), method=zipfile.ZIP_LZMA), "compression method"),
        (zipped(("a.npy", bomb)), "that inflate to"),
    ]
    for data, message in cases:
        with pytest.raises(PreprocessError, match=message):
            NpzFile(data, "x")
    with pytest.warns(UserWarning, match="Duplicate name"):
        double = zipped(("a.npy", small), ("a.npy", small))
    with pytest.raises(PreprocessError, match="two members"):
        NpzFile(double, "x")
    with pytest.raises(PreprocessError, match="bytes inflated"):
        NpzFile(npz(x=np.zeros(1000)), "x", NpzLimits(max_bytes=1000))


def test_a_damaged_member_is_noticed_by_its_crc() -> None:
    data = bytearray(npz(x=np.arange(9000, dtype=np.int64)))
    data[data.find(struct.pack("<q", 8000))] ^= 1
    file = NpzFile(bytes(data), "x")
    with pytest.raises(PreprocessError, match="CRC"):
        file.array("x")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4), st.floats(0.2, 1), st.booleans())
def test_damaged_npz_files_end_in_arrays_or_in_our_error(edits: list[tuple[float, int]], keep: float, compressed: bool) -> None:
    data = bytearray(npz(compressed=compressed, x=np.arange(12.0).reshape(3, 4), names=np.array(["a", "b", "c"])))
    for where, value in edits:
        data[int(where * len(data))] = value

    def read() -> list[Any]:
        file = NpzFile(bytes(data[: int(keep * len(data))]), "x", NpzLimits(max_bytes=10_000))
        return [file.array(name) for name in file.headers]

    found = outcome(read)
    assert found.code == "KP103" if isinstance(found, PreprocessError) else all(isinstance(array, np.ndarray) for array in found)


def test_a_row_of_an_npz_by_reference(tmp_path: Path) -> None:
    (tmp_path / "a#b.npz").write_bytes(npz(x=np.arange(6, dtype=np.float32).reshape(3, 2)))
    reader = Preprocessor(InputSpec("x", "array"))
    assert reader.read(f"{tmp_path}/a#b.npz#x#2").tolist() == [4, 5]
    for wrong, message in (("x#3", "no row 3"), ("y#0", "no member"), ("x", "no reference"), ("x#-1", "no reference")):
        with pytest.raises(PreprocessError, match=message):
            reader.read(f"{tmp_path}/a#b.npz#{wrong}")

"""Rows on disk come back bit for bit, at their own positions, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kpipe_stages.rows import SUFFIXES, AbsentRowError, Rows, RowsWriter, bfloat16_to_float32, decode_strings, write_rows

ON_DISK = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
DTYPES = [np.float16, np.float32, np.float64, np.int8, np.int64, np.uint8, np.uint64, np.bool_]


def arrays(dtype: Any, rank: int) -> st.SearchStrategy[Any]:
    return hnp.arrays(dtype, hnp.array_shapes(min_dims=rank, max_dims=rank, min_side=0, max_side=4))


@given(data=st.data(), dtype=st.sampled_from(DTYPES), rank=st.integers(0, 3))
@ON_DISK
def test_rows_of_any_shapes_come_back_bit_for_bit(tmp_path: Path, data: st.DataObject, dtype: Any, rank: int) -> None:
    rows = data.draw(st.lists(st.none() | arrays(dtype, rank), min_size=1, max_size=5).filter(lambda r: any(x is not None for x in r)))
    with RowsWriter(tmp_path / "y") as writer:
        for row in rows:
            writer.append_absent() if row is None else writer.append(row)
    read = Rows(tmp_path / "y")
    assert len(read) == len(rows)
    assert read.absent == {i for i, row in enumerate(rows) if row is None}
    assert read.dtype == np.dtype(dtype).name
    for i, row in enumerate(rows):
        if row is None:
            with pytest.raises(AbsentRowError, match=f"row {i} is absent"):
                read[i]
        else:
            assert (read[i].dtype, read[i].shape, read.shape(i)) == (row.dtype, row.shape, row.shape)
            assert read[i].tobytes() == row.tobytes()


def test_byte_order_and_layout_are_the_machines(tmp_path: Path) -> None:
    row = np.arange(6, dtype=">f4").reshape(2, 3)
    write_rows(tmp_path / "y", [row, np.asfortranarray(row.astype("<f4"))[::-1]])
    assert [r.tolist() for r in Rows(tmp_path / "y")] == [row.tolist(), row[::-1].tolist()]


@given(st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=8))
def test_bfloat16_bits_are_the_high_half_of_float32(bits: list[int]) -> None:
    wide = bfloat16_to_float32(np.array(bits, np.uint16))
    assert (wide.view(np.uint32) >> 16).tolist() == bits
    assert not (wide.view(np.uint32) & 0xFFFF).any()


def test_bfloat16_rows_are_kept_as_bits_and_read_as_float32(tmp_path: Path) -> None:
    import ml_dtypes

    row = np.array([1.0, -2.5, np.nan, np.inf, 1e-40], ml_dtypes.bfloat16)
    assert write_rows(tmp_path / "y", [row]) == "bfloat16"
    back = Rows(tmp_path / "y")[0]
    assert back.dtype == np.float32
    assert np.array_equal(back, row.astype(np.float32), equal_nan=True)


def test_strings_of_any_width_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    rows = [np.array([b"cat", b"\xff\xfe"], object), np.array(["é", "a much longer one"], object)]
    assert write_rows(tmp_path / "y", rows) == "string"
    read = Rows(tmp_path / "y")
    assert read[1].tolist() == ["é", "a much longer one"]
    assert read[0].tolist() == ["cat", "\udcff\udcfe"]
    assert decode_strings(np.array([b"\xff"], object)) != decode_strings(np.array([b"\xfe"], object))


@pytest.mark.parametrize("second", [np.ones((2, 2), np.float32), np.ones(2, np.float64), np.array(["a", "b"])])
def test_rows_of_another_dtype_or_rank_are_refused(tmp_path: Path, second: Any) -> None:
    with pytest.raises(ValueError, match="rows differ in dtype or rank"):
        write_rows(tmp_path / "y", [np.ones(2, np.float32), second])


def test_nothing_can_be_read_where_writing_ended_badly(tmp_path: Path) -> None:
    write_rows(tmp_path / "y", [np.ones(2, np.float32)] * 3)
    with pytest.raises(ValueError, match="differ in dtype"):
        write_rows(tmp_path / "y", [np.zeros(2, np.float32), np.zeros(2, np.int32)])
    with pytest.raises(FileNotFoundError):
        Rows(tmp_path / "y")


def test_no_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no rows to write"):
        write_rows(tmp_path / "y", [])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_missing_file_is_an_error(tmp_path: Path, suffix: str) -> None:
    write_rows(tmp_path / "y", [np.ones(2, np.float32)])
    Path(f"{tmp_path / 'y'}{suffix}").unlink()
    with pytest.raises(FileNotFoundError):
        Rows(tmp_path / "y")


@pytest.mark.parametrize("count", [1, 3])
def test_values_that_contradict_the_shapes_are_an_error(tmp_path: Path, count: int) -> None:
    write_rows(tmp_path / "y", [np.ones(2, np.float32)])
    np.save(f"{tmp_path / 'y'}.values.npy", np.ones(count, np.float32))
    with pytest.raises(ValueError, match=f"add up to 2 values, the file holds {count}"):
        Rows(tmp_path / "y")


def test_values_of_another_dtype_than_said_are_an_error(tmp_path: Path) -> None:
    write_rows(tmp_path / "y", [np.ones(2, np.float32)])
    for other in (np.ones(2, np.float64), np.ones(2, np.int32), np.array(["a", "b"])):
        np.save(f"{tmp_path / 'y'}.values.npy", other)
        with pytest.raises(ValueError, match="values are"):
            Rows(tmp_path / "y")


@pytest.mark.parametrize("index", [-1, 1, 99])
def test_there_are_no_rows_beyond_the_ends(tmp_path: Path, index: int) -> None:
    write_rows(tmp_path / "y", [np.ones(2, np.float32)])
    with pytest.raises(IndexError):
        Rows(tmp_path / "y")[index]

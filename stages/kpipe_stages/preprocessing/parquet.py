"""One row of a Parquet file: only the row group that holds it, and only the contract's columns, are read."""

from __future__ import annotations

import decimal
import io
from collections import Counter
from typing import TYPE_CHECKING, Any

from kpipe_stages.preprocessing.columns import MAX_COLUMNS
from kpipe_stages.preprocessing.errors import PreprocessError
from kpipe_stages.preprocessing.libraries import library
from kpipe_stages.preprocessing.table import row_number, table_error

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_GROUP = 2**30
"""Bytes of a row group, inflated."""


def read_parquet_row(data: bytes, where: str, row: int | None, names: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """All column names, and the values of the named columns in one row; None where a value is null.

    Raises:
        PreprocessError: KP113 without pyarrow; no Parquet file, no such row, too large, or a column of no plain type.
    """
    parquet = library("pyarrow.parquet", "parquet", 'format = "parquet"')
    try:
        file = parquet.ParquetFile(io.BytesIO(data))
        header = list(file.schema_arrow.names)
        if len(header) > MAX_COLUMNS:
            raise table_error(where, f"{len(header):,} columns", f"at most {MAX_COLUMNS:,}", "Drop the columns that the model doesn't take.")
        wanted = row_number(file.metadata.num_rows, row, where)
        counts = Counter(header)
        here = [name for name in names if counts[name] == 1]
        group, offset = _group(file, wanted, where)
        table = file.read_row_group(group, columns=here).slice(offset, 1) if here else None
        values = {name: _plain(table.column(name)[0].as_py(), name, where) for name in here} if table is not None else {}
    except PreprocessError:
        raise
    except Exception as error:  # pyarrow meets hostile bytes with any exception type; each means: this file does not decode
        raise table_error(where, f"{len(data):,} bytes starting {data[:8]!r} are no Parquet file: {str(error)[:200]}", "a whole one") from error
    return header, values


def _group(file: Any, row: int, where: str) -> tuple[int, int]:
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        if row < group.num_rows:
            if group.total_byte_size > MAX_GROUP:
                raise table_error(where, f"a row group of {group.total_byte_size:,} bytes", f"at most {MAX_GROUP:,}", "Write smaller row groups.")
            return number, row
        row -= group.num_rows
    raise table_error(where, "fewer rows than its footer declares", "a whole file")


def _plain(value: Any, name: str, where: str) -> Any:
    if isinstance(value, decimal.Decimal):
        return str(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise table_error(where, f"column {name!r} holds a {type(value).__name__}", "numbers, texts, truth values or null", "Convert the column.")

"""Decode one row of a table, CSV or Parquet, to the vector that the contract's columns describe."""

from __future__ import annotations

import csv
import io
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.preprocessing.checks import one_of
from kpipe_stages.preprocessing.columns import MAX_COLUMNS, MISSING_VALUES, Column, check_columns, encode_row
from kpipe_stages.preprocessing.errors import PreprocessError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from kpipe_stages.preprocessing.checks import Check

Array = np.ndarray[Any, np.dtype[Any]]

MAX_HEADER = 2**22
"""Bytes of the header line."""
MAX_CELL = 2**20
ROW = "#row="
"""What stands between a file and the number of its row, from 0."""


def _columns(value: Any) -> str:
    return "; ".join(check_columns(value))


def _texts(value: Any) -> str:
    return "" if isinstance(value, list | tuple) and all(isinstance(v, str) for v in value) else "a list of texts"


OPTIONS: dict[str, tuple[Check, Any]] = {
    "columns": (_columns, None),
    "format": (one_of("csv", "parquet"), "csv"),
    "delimiter": (one_of(",", ";", "\t", "|"), ","),
    "decimal": (one_of(".", ","), "."),
    "missing_values": (_texts, MISSING_VALUES),
    "bom": (one_of("drop", "refuse"), "drop"),
    "extra": (one_of("ignore", "refuse"), "ignore"),
}


def split_row(path: str) -> tuple[str, int | None]:
    """A golden file's path and the row that the manifest names; None for the only one."""
    file, mark, row = path.rpartition(ROW)
    return (file, int(row)) if mark and row.isdecimal() else (path, None)


def decode_table(data: bytes, where: str, row: int | None, columns: Sequence[Column], options: Mapping[str, Any]) -> Array:
    """One row, encoded (`kpipe_stages.preprocessing.columns`).

    Args:
        data: the file's bytes.
        where: names it in messages.
        row: data row, from 0; None where the file has one only.
        columns: the contract's.
        options: as `OPTIONS`, complete.

    Raises:
        PreprocessError: no such table, no such row, a column that is missing, or a value that can't be encoded.
    """
    names = [column.name for column in columns]
    if options["format"] == "parquet":
        from kpipe_stages.preprocessing.parquet import read_parquet_row

        header, values = read_parquet_row(data, where, row, names)
    else:
        header, values = _csv_row(data, where, row, options)
    _check_header(header, names, where, options["extra"])
    try:
        return encode_row(columns, values, frozenset(options["missing_values"]), options["decimal"])
    except PreprocessError as error:
        at = f"{where}, row {row}" if row is not None else where
        raise PreprocessError(error.step, f"{at}: {error.what}", error.expected, error.do, error.code) from error


def _check_header(header: Sequence[str], names: Sequence[str], where: str, extra: str) -> None:
    known = set(header)
    if lacking := [name for name in names if name not in known]:
        import difflib

        close = difflib.get_close_matches(lacking[0], header[:1000], n=1)
        like = f"; it has {close[0]!r}" if close else f"; it has {', '.join(map(repr, header[:8]))}"
        raise table_error(where, f"no column {lacking[0]!r}{like} ({len(lacking)} of {len(names)} are missing)", "every column of the contract")
    counts = Counter(header)
    if twice := next((name for name in names if counts[name] > 1), None):
        raise table_error(where, f"two columns named {twice!r}", "each once", "Rename one.")
    if extra == "refuse" and (more := [name for name in header if name not in set(names)]):
        raise table_error(where, f"the column {more[0]!r}, which the contract doesn't name", "the contract's columns and no more")


def row_number(count: int, row: int | None, where: str) -> int:
    """Which row is meant.

    Raises:
        PreprocessError: there is no such one, or several and none is named.
    """
    if row is None and count != 1:
        raise table_error(where, f"{count:,} rows", "one", "Name the row in the manifest: row = 0 is the first.")
    if row is not None and row >= count:
        raise table_error(where, f"no row {row} among {count:,}", "a row that is there, from 0", "Mend row in the manifest.")
    return row or 0


def _csv_row(data: bytes, where: str, row: int | None, options: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    try:
        words = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise table_error(where, f"byte 0x{data[error.start]:02x} at position {error.start} is no UTF-8", "UTF-8", "Save it as UTF-8.") from error
    if words.startswith("\ufeff"):
        if options["bom"] == "refuse":
            raise table_error(where, "a byte order mark", "none", 'Save it without, or leave bom = "drop".')
        words = words[1:]
    if "\0" in words:
        raise table_error(where, "a NUL character", "text", "Save it as UTF-8.")
    if max(words.find("\n"), words.find("\r"), 0) > MAX_HEADER or (len(words) > MAX_HEADER and "\n" not in words and "\r" not in words):
        raise table_error(where, f"a header line of more than {MAX_HEADER:,} characters", "fewer", "Mend the file.")
    header, cells = _cells(words, where, row, options["delimiter"])
    return header, dict(zip(header, cells, strict=True))


def _cells(words: str, where: str, row: int | None, delimiter: str) -> tuple[list[str], list[str]]:
    """The header's cells and those of the row; quoting is that of RFC 4180, empty lines are no rows."""
    with closing(_lines(words, where, delimiter)) as lines:
        header = next(lines, None)
        if header is None:
            raise table_error(where, "no header line", "the names of the columns in the first line", "Write them.")
        if len(header) > MAX_COLUMNS:
            raise table_error(where, f"{len(header):,} columns", f"at most {MAX_COLUMNS:,}", "Drop the columns that the model doesn't take.")
        found, count = _row(lines, len(header), row, where)
    if found is None or row is None:
        row_number(count, row, where)
    return header, found or []


def _row(lines: Iterator[list[str]], width: int, row: int | None, where: str) -> tuple[list[str] | None, int]:
    """The row's cells, None where there is no such row; and how many rows were read: all of them where none is named."""
    found: list[str] | None = None
    count = 0
    for cells in lines:
        if len(cells) != width:
            raise table_error(where, f"row {count} has {len(cells)} cells, the header {width}", "as many", "Quote cells that hold delimiters.")
        if count == (row or 0):
            found = cells
        count += 1
        if found is not None and row is not None:
            break
    return found, count


def _lines(words: str, where: str, delimiter: str) -> Generator[list[str], None, None]:
    reader = csv.reader(io.StringIO(words, newline=""), delimiter=delimiter, strict=True)
    before = csv.field_size_limit(MAX_CELL)
    try:
        yield from (cells for cells in reader if cells)
    except csv.Error as error:
        raise table_error(where, f"line {reader.line_num}: {error}", "CSV as RFC 4180 describes it", "Quote cells that hold quotes.") from error
    finally:
        csv.field_size_limit(before)


def table_error(where: str, what: str, expected: str, do: str = "Replace the file, or mend the columns of the contract.") -> PreprocessError:
    """An error about a table."""
    return PreprocessError("decode", f"{where}: {what}", expected, do)

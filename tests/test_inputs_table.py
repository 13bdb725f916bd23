"""Rows of tables: by name and never by place, scikit-learn's numbers, pandas' missing values, and every row that can't be encoded refused by name."""

from __future__ import annotations

import csv
import io
import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet as pq

from kpipe_stages.preprocess import PreprocessError, Preprocessor
from kpipe_stages.preprocessing import parquet, table
from kpipe_stages.preprocessing.columns import MISSING_VALUES
from kpipe_stages.preprocessing.decoders import check_read
from kpipe_stages.protocol import InputSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

A, B = {"name": "a"}, {"name": "b"}
COLOUR = {"name": "colour", "categories": ["red", "green", "NA"]}


def reader(*columns: dict[str, Any], **read: Any) -> Preprocessor:
    return Preprocessor(InputSpec("x", "table", read={"columns": list(columns), **read}))


def row(text: str, *columns: dict[str, Any], at: int | None = None, **read: Any) -> list[Any]:
    where = "t.csv" if at is None else f"t.csv#row={at}"
    values: list[Any] = reader(*columns, **read).from_bytes(text.encode(), where).tolist()
    return values


def outcome(work: Callable[[], Any]) -> Any:
    """What ``work`` returns, or the `PreprocessError` it raises; any other exception is a fault."""
    try:
        return work()
    except PreprocessError as error:
        return error


def parquet_of(columns: dict[str, Any], **options: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream, **options)
    return stream.getvalue()


# ---------------------------------------------------------------- names, numbers, statistics


def test_columns_are_found_by_name_whatever_their_order() -> None:
    assert row("b,more,a\n2,x,1\n", A, B) == [1.0, 2.0]
    assert row("a,b\n1,2\n", B, A) == [2.0, 1.0]
    assert reader(A).from_bytes(b"a\n1\n", "t.csv").dtype == np.float32


def test_standardising_is_scikit_learns() -> None:
    from sklearn.preprocessing import StandardScaler

    values = np.random.default_rng(0).normal(17, 4, (50, 3))
    scaler = StandardScaler().fit(values)
    columns = [{"name": f"c{i}", "mean": float(scaler.mean_[i]), "std": float(scaler.scale_[i])} for i in range(3)]
    known = scaler.transform(values).astype(np.float32)
    text = "c0,c1,c2\n" + "\n".join(",".join(map(repr, map(float, line))) for line in values)
    mine = reader(*columns)
    for at in range(50):
        assert np.array_equal(mine.from_bytes(text.encode(), f"t.csv#row={at}"), known[at])
        assert np.array_equal(mine.from_row({f"c{i}": values[at, i] for i in range(3)}), known[at])


def test_training_gets_a_row_as_the_file_would_give_it() -> None:
    columns = ({"name": "a", "mean": 1.0, "std": 3.0, "missing": 4.0, "indicator": True}, {**COLOUR, "encode": "one_hot", "unknown": "zeros"})
    mine = reader(*columns)
    assert mine.from_row({"a": "7", "colour": "blue"}).tolist() == mine.from_bytes(b"a,colour\n7,blue\n", "t.csv").tolist() == [2, 0, 0, 0, 0]
    assert mine.from_row({"a": None, "colour": "red"}).tolist() == [1, 1, 1, 0, 0]
    with pytest.raises(PreprocessError, match="input 'x': no column 'colour'"):
        mine.from_row({"a": 1})
    with pytest.raises(PreprocessError, match="decode = 'npy'"):
        Preprocessor(InputSpec("x", "npy")).from_row({"a": 1})


@pytest.mark.parametrize(("word", "number"), [("1", 1), (" 1.5 ", 1.5), ("-.5e1", -5), ("+2.", 2), ("1E-3", 0.001)])
def test_numbers_are_read_as_they_are_written(word: str, number: float) -> None:
    assert row(f"a\n{word}\n", A, decimal=".") == [np.float32(number)]


@pytest.mark.parametrize("word", ["1_000", "0x10", "1,5", "1.5.2", "inf", "-Infinity", "1e400", "one", "٣", "True"])
def test_what_is_no_number_is_refused(word: str) -> None:
    with pytest.raises(PreprocessError, match=r"t\.csv: column 'a': the value") as caught:
        row(f'a\n"{word}"\n', A)
    assert caught.value.step == "columns"


def test_a_decimal_comma_is_said_and_then_a_point_is_none() -> None:
    assert row("a;b\n1,5;-2,25\n", A, B, delimiter=";", decimal=",") == [1.5, -2.25]
    with pytest.raises(PreprocessError, match="a number with decimal mark ','"):
        row("a;b\n1.5;2\n", A, B, delimiter=";", decimal=",")


# ---------------------------------------------------------------- missing values and categories


@pytest.mark.parametrize("word", MISSING_VALUES)
def test_pandas_missing_values_are_missing(word: str) -> None:
    pandas_like = f'a,b\n"{word}",1\n'
    with pytest.raises(PreprocessError, match="column 'a': no value"):
        row(pandas_like, A, B)
    assert row(pandas_like, {**A, "missing": 5, "mean": 3.0, "std": 2.0}, B) == [1.0, 1.0]
    assert row(pandas_like, {**A, "missing": 0, "indicator": True}, B) == [0.0, 1.0, 1.0]


def test_missing_values_can_be_named() -> None:
    assert row("a\n-999\n", {**A, "missing": 1}, missing_values=["-999"]) == [1.0]
    with pytest.raises(PreprocessError, match="the value 'NA'"):
        row("a\nNA\n", {**A, "missing": 1}, missing_values=["-999"])


@pytest.mark.parametrize(
    ("more", "word", "encoded"),
    [
        ({}, "green", [1]),
        ({"first": 1}, "red", [1]),
        ({"encode": "one_hot"}, "green", [0, 1, 0]),
        ({"unknown": -1}, "blue", [-1]),
        ({"encode": "one_hot", "unknown": "zeros"}, "blue", [0, 0, 0]),
        ({}, "NA", [2]),
        ({"missing": "red"}, "", [0]),
        ({"missing": "unknown", "unknown": 9}, "", [9]),
    ],
)
def test_categories_become_what_the_contract_says(more: dict[str, Any], word: str, encoded: list[int]) -> None:
    assert row(f"colour,a\n{word},1\n", {**COLOUR, **more}) == encoded


def test_an_unknown_or_missing_category_is_refused_unless_something_is_said() -> None:
    with pytest.raises(PreprocessError, match=r"column 'colour': the category 'blue' .expected one of 'red', 'green', 'NA'"):
        row("colour\nblue\n", COLOUR)
    with pytest.raises(PreprocessError, match="column 'colour': no value"):
        row("colour,a\n,1\n", COLOUR)


def test_categories_are_scikit_learns_ordinals_and_one_hots() -> None:
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

    names = ["red", "green", "NA"]
    values = np.array([["green"], ["NA"], ["red"]], dtype=object)
    ordinal = OrdinalEncoder(categories=[names]).fit(values).transform(values)
    one_hot = OneHotEncoder(categories=[names], sparse_output=False).fit(values).transform(values)
    for at, (word,) in enumerate(values):
        assert row(f"colour\n{word}\n", COLOUR) == ordinal[at].tolist()
        assert row(f"colour\n{word}\n", {**COLOUR, "encode": "one_hot"}) == one_hot[at].tolist()


def test_text_columns_stay_text() -> None:
    text = {"name": "t", "as": "text"}
    assert row("t,a\nNA,1\n", text) == ["NA"]
    assert row("t,a\n,1\n", {**text, "missing": "-"}) == ["-"]
    with pytest.raises(PreprocessError, match="column 't': no value"):
        row("t,a\n,1\n", text)


# ---------------------------------------------------------------- CSV


def test_quotes_line_breaks_and_byte_order_marks_are_rfc_4180s() -> None:
    text = {"name": "t, x", "as": "text"}
    assert row('\ufeff"t, x",a\r\n"two\nlines, ""quoted""",1\r\n', text) == ['two\nlines, "quoted"']
    with pytest.raises(PreprocessError, match="a byte order mark"):
        row("\ufeffa\n1\n", A, bom="refuse")


def test_one_row_is_one_golden_input() -> None:
    text = "a\n1\n\n2\n3\n"
    assert [row(text, A, at=at) for at in range(3)] == [[1], [2], [3]]
    with pytest.raises(PreprocessError, match=r"t\.csv: 3 rows .expected one\). Name the row in the manifest"):
        row(text, A)
    with pytest.raises(PreprocessError, match="no row 3 among 3"):
        row(text, A, at=3)


HOSTILE: dict[str, tuple[str, str]] = {
    "empty": ("", "no header line"),
    "a header alone": ("a,b\n", "0 rows"),
    "no such column": ("aa,b\n1,2\n", "no column 'a'; it has 'aa'"),
    "a column twice": ("a,b,a\n1,2,3\n", "two columns named 'a'"),
    "too many cells": ("a,b\n1,2,3\n", "row 0 has 3 cells, the header 2"),
    "too few cells": ("a,b\n1\n", "row 0 has 1 cells, the header 2"),
    "an open quote": ('a,b\n"1,2\n', "line 2: unexpected end of data"),
    "a quote inside": ('a,b\n"1"2,3\n', "line 2: "),
    "NUL": ("a\n1\0\n", "a NUL character"),
    "a million columns": (",".join(map(str, range(10**6))) + "\n", "header line of more than|1,000,000 columns"),
    "a long header": ("a" * (2**22 + 1), "header line of more than"),
    "20,000 columns": (",".join(map(str, range(20_000))) + "\n", r"20,000 columns .expected at most 16,384"),
    "a large cell": ("a\n" + "9" * (2**20 + 1) + "\n", "field larger than field limit"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_no_such_table_is_refused_by_name(name: str) -> None:
    text, words = HOSTILE[name]
    with pytest.raises(PreprocessError, match=words) as caught:
        row(text, A)
    assert "t.csv" in str(caught.value)
    assert csv.field_size_limit() == 131_072, "the module's own limit is what it was"


def test_what_is_no_utf_8_is_refused() -> None:
    with pytest.raises(PreprocessError, match="byte 0xe9 at position 2 is no UTF-8"):
        reader(A).from_bytes("a\né\n".encode("latin-1"), "t.csv")


def test_more_columns_than_the_contract_has_can_be_refused() -> None:
    with pytest.raises(PreprocessError, match="the column 'c', which the contract doesn't name"):
        row("a,b,c\n1,2,3\n", A, B, extra="refuse")


@given(st.lists(st.tuples(st.text(max_size=8), st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=5))
def test_what_pythons_own_writer_writes_comes_back(rows: Sequence[tuple[str, float]]) -> None:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
    writer.writerow(["text", "number"])
    writer.writerows((text, repr(number)) for text, number in rows)
    mine = Preprocessor(InputSpec("x", "table", dtype="float64", read={"columns": [{"name": "number"}]}))
    try:
        data = stream.getvalue().encode()
    except UnicodeEncodeError:
        return
    for at, (text, number) in enumerate(rows):
        if not any("\0" in other for other, _ in rows):
            assert mine.from_bytes(data, f"t.csv#row={at}").tolist() == [number], text


@given(st.binary(max_size=200))
def test_any_bytes_are_a_row_or_the_named_error(data: bytes) -> None:
    for kind in ("csv", "parquet"):
        made = outcome(lambda kind=kind: reader(A, format=kind).from_bytes(data, "t"))
        assert made.code == "KP103" if isinstance(made, PreprocessError) else made.shape == (1,)


# ---------------------------------------------------------------- Parquet


def test_a_parquet_row_is_the_csv_row(tmp_path: Path) -> None:
    columns = ({"name": "a", "missing": 7.0}, COLOUR, {"name": "b", "mean": 1.0, "std": 2.0})
    data = parquet_of(
        {"b": [5, 3, 1], "other": [[1], [2], [3]], "a": [1.5, None, float("nan")], "colour": pa.array(["red", "NA", "green"]).dictionary_encode()},
        row_group_size=2,
    )
    mine = reader(*columns, format="parquet")
    (tmp_path / "t.parquet").write_bytes(data)
    made = [mine.from_path(f"{tmp_path / 't.parquet'}#row={at}").tolist() for at in range(3)]
    assert made == [[1.5, 0, 2], [7, 2, 1], [7, 1, 0]]
    with pytest.raises(PreprocessError, match="3 rows"):
        mine.from_path(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: b"", "no Parquet file"),
        (lambda: b"PAR1" + bytes(100) + b"PAR1", "no Parquet file"),
        (lambda: parquet_of({"a": [1.0]})[:-20], "no Parquet file"),
        (lambda: parquet_of({"b": [1.0]}), "no column 'a'"),
        (lambda: parquet_of({"a": [[1.0]]}), "column 'a' holds a list"),
        (lambda: parquet_of({"a": pa.array([0], pa.timestamp("s"))}), "column 'a' holds a datetime"),
        (lambda: parquet_of({"a": ["x"]}), "the value 'x'"),
        (lambda: parquet_of({"a": pa.array([], pa.float64())}), "0 rows"),
    ],
)
def test_a_parquet_file_that_does_not_fit_is_refused_by_name(make: Callable[[], bytes], words: str) -> None:
    with pytest.raises(PreprocessError, match=words):
        reader(A, format="parquet").from_bytes(make(), "t.parquet")


def test_the_row_group_is_bounded_by_the_footer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_GROUP", 100)
    with pytest.raises(PreprocessError, match="a row group of"):
        reader(A, format="parquet").from_bytes(parquet_of({"a": np.arange(1000.0)}), "t.parquet#row=3")


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(PreprocessError, match=r"pip install 'keras-kpipe\[parquet\]'") as caught:
        reader(A, format="parquet")
    assert caught.value.code == "KP113"
    assert reader(A)


# ---------------------------------------------------------------- what the contract says wrong


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ({}, "is no column"),
        ({"name": ""}, "is no column"),
        ({**A, "mean": 1.0}, "one of mean and std"),
        ({**A, "mean": 1.0, "std": 0.0}, "std above 0"),
        ({**A, "missing": "mean"}, "missing = 'mean'"),
        ({**A, "indicator": True}, "missing beside it"),
        ({**A, "categorys": ["x"]}, "unknown key 'categorys' of a number column"),
        ({**A, "as": "date"}, "one of number, category, text"),
        ({**A, "categories": ["x", "x"]}, "a list of different texts"),
        ({**A, "categories": [1]}, "a list of different texts"),
        ({**COLOUR, "encode": "hot"}, "index or one_hot"),
        ({**COLOUR, "encode": "one_hot", "first": 1}, "with encode = 'index'"),
        ({**COLOUR, "unknown": "zeros"}, "the index of unknown ones"),
        ({**COLOUR, "unknown": 2}, "the index of 'NA'"),
        ({**COLOUR, "encode": "one_hot", "unknown": -1}, "or zeros"),
        ({**COLOUR, "missing": "blue"}, "one of the categories, or 'unknown'"),
        ({**COLOUR, "missing": "unknown"}, "an unknown that says what it is"),
        ({"name": "t", "as": "text", "missing": 3}, "expected a text"),
    ],
)
def test_a_wrong_column_is_named(column: dict[str, Any], words: str) -> None:
    (problem,) = check_read("table", {"columns": [column]})
    assert problem.startswith("read.columns: columns[0]: ")
    assert words in problem


@pytest.mark.parametrize(
    ("read", "words"),
    [
        ({}, "read lacks 'columns'"),
        ({"columns": []}, "a list of tables"),
        ({"columns": "columns.toml"}, "a .json file"),
        ({"columns": [A, A]}, "names 'a' twice"),
        ({"columns": [A, {"name": "t", "as": "text"}]}, "text and numbers"),
        ({"columns": [A], "delimiter": " "}, "delimiter = ' '"),
        ({"columns": [A], "format": "xlsx"}, "one of csv, parquet"),
        ({"columns": [A], "missing_values": "NA"}, "a list of texts"),
        ({"columns": [A], "header": 0}, "read.header: unknown"),
    ],
)
def test_a_wrong_read_is_named(read: dict[str, Any], words: str) -> None:
    assert words in check_read("table", read)[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [("[", "is no JSON"), ('"a"', "no list"), ("[{}]", r"columns\.json: columns\[0\]"), ("[" * 10**5, "is no JSON"), ("{}", "a list of tables")],
)
def test_a_columns_file_that_is_none_is_refused(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "columns.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(PreprocessError, match=words) as caught:
        Preprocessor(InputSpec("x", "table", files={str(path): ""}, read={"columns": "columns.json"}))
    assert caught.value.code == "KP104"


def test_columns_from_a_file_are_those_of_the_contract(tmp_path: Path) -> None:
    path = tmp_path / "columns.json"
    path.write_text(json.dumps([A, COLOUR]), encoding="utf-8")
    spec = InputSpec("x", "table", files={str(path): ""}, read={"columns": "columns.json"})
    assert Preprocessor(spec).from_bytes(b"colour,a\ngreen,4\n", "t.csv").tolist() == [4, 1]


def test_a_row_is_told_by_the_path_and_no_file_is_mistaken() -> None:
    assert table.split_row("a/b#row=12") == ("a/b", 12)
    assert table.split_row("a/b#row=x") == ("a/b#row=x", None)
    assert table.split_row("a/b.csv") == ("a/b.csv", None)


def test_one_array_of_an_npz_is_an_input(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(3.0), y=np.ones(2))
    mine = Preprocessor(InputSpec("x", "npz", read={"array": "y"}))
    assert mine.from_path(tmp_path / "a.npz").tolist() == [1, 1]
    with pytest.raises(PreprocessError, match="no member 'z'"):
        Preprocessor(InputSpec("x", "npz", read={"array": "z"})).from_path(tmp_path / "a.npz")
    assert "read lacks 'array'" in check_read("npz", {})[0]
    assert "takes no options" in check_read("npy", {"array": "x"})[0]

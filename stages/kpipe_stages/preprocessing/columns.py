"""What becomes of each column of a row: numbers standardised by stated statistics, categories by a stated vocabulary, by name and never by place."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.preprocessing.assets import file_text
from kpipe_stages.preprocessing.checks import is_number
from kpipe_stages.preprocessing.errors import PreprocessError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Array = np.ndarray[Any, np.dtype[Any]]

MISSING_VALUES = (
    "",
    "#N/A",
    "#N/A N/A",
    "#NA",
    "-1.#IND",
    "-1.#QNAN",
    "-NaN",
    "-nan",
    "1.#IND",
    "1.#QNAN",
    "<NA>",
    "N/A",
    "NA",
    "NULL",
    "NaN",
    "None",
    "n/a",
    "nan",
    "null",
)
"""What pandas.read_csv takes for a missing value."""
MAX_COLUMNS = 16_384
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
KEYS = {
    "number": {"name", "as", "mean", "std", "missing", "indicator"},
    "category": {"name", "as", "categories", "encode", "first", "unknown", "missing"},
    "text": {"name", "as", "missing"},
}


@dataclass(frozen=True)
class Column:
    """One column of the contract."""

    name: str
    kind: str
    """``number``, ``category`` or ``text``."""
    mean: float = 0.0
    std: float = 1.0
    missing: float | str | None = None
    """What stands in for a missing value (before standardising); None refuses one."""
    indicator: bool = False
    """A number more: 1 where the value was missing, else 0."""
    categories: tuple[str, ...] = ()
    encode: str = "index"
    """``index`` or ``one_hot``."""
    first: int = 0
    """The index of the first category."""
    unknown: int | str = "refuse"
    """``refuse``, ``zeros`` for a one-hot without a one, or the index of an unknown category."""


def check_columns(given: Any) -> list[str]:
    """What is wrong with a list of columns; empty where nothing is. A text is the name of a JSON file that holds the list."""
    if isinstance(given, str) and given.endswith(".json"):
        return []
    if not isinstance(given, list | tuple) or not given:
        return [f"columns = {given!r} (expected a list of tables, or the name of a .json file of them). Mend it."]
    if len(given) > MAX_COLUMNS:
        return [f"{len(given):,} columns (expected at most {MAX_COLUMNS:,})."]
    problems = [f"columns[{at}]: {problem}" for at, column in enumerate(given) if (problem := _column_problem(column))]
    if problems:
        return problems
    names = [column["name"] for column in given]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    kinds = {_kind(column) == "text" for column in given}
    return [
        *(f"columns names {name!r} twice (expected each once)." for name in twice),
        *(
            ["columns has text and numbers (expected one of them: an input has one dtype). Give the text an input of its own."]
            if len(kinds) > 1
            else []
        ),
    ]


def _kind(column: Mapping[str, Any]) -> str:
    return str(column.get("as") or ("category" if "categories" in column else "number"))


def _column_problem(column: Any) -> str:
    if not isinstance(column, dict) or not isinstance(column.get("name"), str) or not column["name"]:
        return f"{column!r} is no column (expected a table with a name, such as {{ name = 'age' }})."
    kind = _kind(column)
    if kind not in KEYS:
        return f"as = {kind!r} (expected one of {', '.join(KEYS)})."
    if odd := sorted(set(column) - KEYS[kind]):
        return f"unknown key {odd[0]!r} of a {kind} column (expected {', '.join(sorted(KEYS[kind]))})."
    return {"number": _number_problem, "category": _category_problem, "text": _text_problem}[kind](column)


def _number_problem(column: Mapping[str, Any]) -> str:
    if ("mean" in column) != ("std" in column):
        return f"column {column['name']!r} has one of mean and std (expected both or neither)."
    if not is_number(column.get("mean", 0.0)) or not is_number(column.get("std", 1.0)) or column.get("std", 1.0) <= 0:
        return f"mean = {column.get('mean')!r}, std = {column.get('std')!r} (expected finite numbers, std above 0)."
    if "missing" in column and not is_number(column["missing"]):
        return f"missing = {column['missing']!r} (expected the number that stands in for a missing one; leave it out to refuse them)."
    if not isinstance(column.get("indicator", False), bool) or (column.get("indicator") and "missing" not in column):
        return f"indicator = {column.get('indicator')!r} of {column['name']!r} (expected true or false, and missing beside it)."
    return ""


def _category_problem(column: Mapping[str, Any]) -> str:
    names = column.get("categories")
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        return f"categories = {names!r} (expected a list of different texts)."
    return _policy_problem(column, names)


def _policy_problem(column: Mapping[str, Any], names: Sequence[str]) -> str:
    """What is wrong with the way categories are encoded; the first problem."""
    encode, unknown, first, missing = column.get("encode", "index"), column.get("unknown", "refuse"), column.get("first", 0), column.get("missing")
    whole = isinstance(unknown, int) and not isinstance(unknown, bool)
    known_words = ("refuse", "zeros") if encode == "one_hot" else ("refuse",)
    problems = [
        (encode not in ("index", "one_hot"), f"encode = {encode!r} (expected index or one_hot)."),
        (
            not isinstance(first, int) or isinstance(first, bool) or (bool(first) and encode == "one_hot"),
            f"first = {first!r} (expected a whole number, with encode = 'index').",
        ),
        (
            unknown not in known_words and not (whole and encode == "index"),
            f"unknown = {unknown!r} (expected 'refuse', or {'zeros' if encode == 'one_hot' else 'the index of unknown ones'}).",
        ),
        (
            "missing" in column and missing != "unknown" and missing not in names,
            f"missing = {missing!r} (expected one of the categories, or 'unknown').",
        ),
        (
            missing == "unknown" and unknown == "refuse" and "unknown" not in names,
            f"missing = 'unknown' of {column['name']!r} with unknown = 'refuse' (expected an unknown that says what it is).",
        ),
    ]
    if found := [words for wrong, words in problems if wrong]:
        return found[0]
    if whole and first <= unknown < first + len(names):
        return f"unknown = {unknown} is the index of {names[unknown - first]!r} (expected one that no category has)."
    return ""


def _text_problem(column: Mapping[str, Any]) -> str:
    return "" if isinstance(column.get("missing", ""), str) else f"missing = {column['missing']!r} (expected a text)."


def read_columns(given: Any, files: Mapping[str, bytes]) -> tuple[Column, ...]:
    """The contract's columns, from its list or from a JSON file of it.

    Raises:
        PreprocessError: KP104, the file or a column is wrong.
    """
    if isinstance(given, str):
        try:
            given, name = json.loads(file_text(given, files, "columns", 2**26)), given
        except (ValueError, RecursionError) as error:
            if isinstance(error, PreprocessError):
                raise
            raise PreprocessError(
                "columns", f"{given} is no JSON: {str(error)[:120]}", "a JSON list of columns", "Mend the file.", "KP104"
            ) from error
        problems = [f"{name}: no list"] if isinstance(given, str) else [f"{name}: {problem}" for problem in check_columns(given)]
    else:
        problems = check_columns(given)
    if problems:
        raise PreprocessError("columns", problems[0], "sound columns", "Mend them.", "KP104")
    return tuple(_column(column) for column in given)


def _column(given: Mapping[str, Any]) -> Column:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items() if key != "as"}
    return Column(kind=_kind(given), **values)


def encode_row(columns: Sequence[Column], row: Mapping[str, Any], missing: frozenset[str], decimal: str) -> Array:
    """One row as the contract describes it: float64 ``(n,)``, or strings. A number is ``(v - mean) / std``, as scikit-learn's StandardScaler.

    Args:
        columns: the contract's, in the order of the tensor.
        row: column name to text (CSV), or to text, a number, a truth value or None (Parquet).
        missing: texts that stand for a missing value.
        decimal: the decimal mark.

    Raises:
        PreprocessError: a value is missing, no number, or no known category, and nothing says what it becomes.
    """
    if columns[0].kind == "text":
        return np.array([_text(column, row[column.name], missing) for column in columns], dtype=np.str_)
    values: list[float] = []
    for column in columns:
        encode = _number if column.kind == "number" else _category
        values += encode(column, row[column.name], missing, decimal)
    return np.array(values, dtype=np.float64)


def _is_missing(value: Any, missing: frozenset[str]) -> bool:
    return value is None or (isinstance(value, str) and value in missing) or (isinstance(value, float) and math.isnan(value))


def _refuse(column: Column, what: str, expected: str, do: str) -> PreprocessError:
    return PreprocessError("columns", f"column {column.name!r}: {what}", expected, do)


def _text(column: Column, value: Any, missing: frozenset[str]) -> str:
    if value is None or value == "" or (column.missing is not None and value in missing):  # "NA" is a text where nothing says otherwise
        if column.missing is None:
            raise _refuse(column, "no value", "a text", "Replace the row, or say what missing ones become.")
        return str(column.missing)
    if not isinstance(value, str) or "\0" in value:
        raise _refuse(column, f"the value {value!r:.60}", "a text without NUL", "Mend the row.")
    return value


def _number(column: Column, value: Any, missing: frozenset[str], decimal: str) -> list[float]:
    gone = _is_missing(value.strip() if isinstance(value, str) else value, missing)
    if gone and column.missing is None:
        raise _refuse(column, f"no value ({value!r})", "a number", "Replace the row, or say missing = a number, as training did.")
    number = float(column.missing) if gone and column.missing is not None else _parsed(column, value, decimal)
    scaled = (number - column.mean) / column.std
    return [scaled, float(gone)] if column.indicator else [scaled]


def _parsed(column: Column, value: Any, decimal: str) -> float:
    if isinstance(value, bool | int | float):
        number = float(value)
    else:
        words = str(value).strip(" \t")
        plain = words.replace(decimal, ".") if decimal != "." and "." not in words else words
        if (decimal != "." and "." in words) or not _NUMBER.fullmatch(plain):
            raise _refuse(column, f"the value {value!r:.60}", f"a number with decimal mark {decimal!r}", "Mend the row, or say decimal in read.")
        number = float(plain)
    if not math.isfinite(number):
        raise _refuse(column, f"the value {value!r:.60}", "a finite number", "Mend the row.")
    return number


def _category(column: Column, value: Any, missing: frozenset[str], _: str) -> list[float]:
    known: Any = value if isinstance(value, str) else None if value is None else str(value)
    if known not in column.categories and _is_missing(value, missing):
        if column.missing is None:
            raise _refuse(column, f"no value ({value!r})", "a category", "Replace the row, or say missing = a category, as training did.")
        known = column.missing
    count = len(column.categories)
    if known in column.categories:
        at = column.categories.index(known)
        return [float(at + column.first)] if column.encode == "index" else [float(i == at) for i in range(count)]
    if column.unknown == "refuse":
        listed = ", ".join(repr(name) for name in column.categories[:10])
        raise _refuse(column, f"the category {known!r:.60}", f"one of {listed}", "Mend the row, or say what unknown ones become.")
    return [0.0] * count if column.encode == "one_hot" else [float(column.unknown)]

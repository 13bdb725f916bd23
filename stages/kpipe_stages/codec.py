"""Frozen dataclasses to JSON and back, strictly: an unknown field, a missing field or a wrong type is an error, never a default.

NaN and infinities are written as the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"`` and read back where a float is declared.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import os
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class CodecError(ValueError):
    """A document does not have the declared form."""


def encode(value: Any) -> Any:
    """Turn dataclasses, tuples, enums, paths and non-finite floats into plain JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        if len({str(k) for k in value}) != len(value):
            raise CodecError(f"cannot write keys that are one in JSON: {list(value)!r}")
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [encode(v) for v in value]
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise CodecError(f"cannot write a {type(value).__name__} as JSON: {value!r}")


def decode(kind: type[T], data: Any, where: str = "") -> T:
    """Build a ``kind`` from plain JSON values; raise `CodecError` naming the place that is off."""
    return typing.cast("T", _decode(kind, data, where or getattr(kind, "__name__", str(kind))))


def _decode(kind: Any, data: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if kind is Any:
        return data
    if origin in (types.UnionType, typing.Union):
        return _decode_union(kind, data, where)
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, data, where)
    if origin is tuple:
        return _decode_tuple(typing.get_args(kind), data, where)
    if origin is dict:
        if not isinstance(data, dict):
            raise CodecError(f"{where}: expected an object, got {data!r}")
        item = typing.get_args(kind)[1]
        return {k: _decode(item, v, f"{where}.{k}") for k, v in data.items()}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(data)
        except ValueError as error:
            raise CodecError(f"{where}: {error}") from error
    return _decode_scalar(kind, data, where)


def _decode_tuple(items: tuple[Any, ...], data: Any, where: str) -> Any:
    if not isinstance(data, list):
        raise CodecError(f"{where}: expected a list, got {data!r}")
    kinds = items[:1] * len(data) if items[1:] == (...,) else items
    if len(kinds) != len(data):
        raise CodecError(f"{where}: expected {len(kinds)} values, got {len(data)}")
    return tuple(_decode(item, v, f"{where}[{i}]") for i, (item, v) in enumerate(zip(kinds, data, strict=True)))


def _decode_union(kind: Any, data: Any, where: str) -> Any:
    options = typing.get_args(kind)
    if data is None and type(None) in options:
        return None
    errors = []
    for option in options:
        if option is type(None):
            continue
        try:
            return _decode(option, data, where)
        except CodecError as error:
            errors.append(str(error))
    raise CodecError("; ".join(errors) or f"{where}: {data!r} fits none of {kind}")


def _decode_dataclass(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise CodecError(f"{where}: expected an object, got {data!r}")
    hints, required = _fields(kind)
    names = set(hints)
    if unknown := sorted(set(data) - names):
        raise CodecError(f"{where}: unknown field {unknown[0]!r}")
    values = {name: _decode(hints[name], data[name], f"{where}.{name}") for name in names if name in data}
    if missing := sorted(required - set(values)):
        raise CodecError(f"{where}: missing field {missing[0]!r}")
    return kind(**values)


@functools.cache
def _fields(kind: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """A dataclass's fields with their types, and the ones without a default; worked out once a class."""
    fields = dataclasses.fields(kind)
    hints = typing.get_type_hints(kind)
    required = {f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING}
    return {f.name: hints[f.name] for f in fields}, frozenset(required)


def _decode_scalar(kind: Any, data: Any, where: str) -> Any:
    if kind is float and isinstance(data, str) and data in _SPECIAL:
        return _SPECIAL[data]
    if kind is float and isinstance(data, int | float) and not isinstance(data, bool):
        return _finite(data, where)
    if isinstance(data, bool) and kind is not bool:
        raise CodecError(f"{where}: expected {kind.__name__}, got {data!r}")
    if not isinstance(data, kind):
        raise CodecError(f"{where}: expected {kind.__name__}, got {data!r}")
    return data


def _finite(data: float, where: str) -> float:
    try:
        value = float(data)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise CodecError(f"{where}: a number beyond float64, which is written as a word")
    return value


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write ``value`` to ``path`` atomically (a reader sees the old file or the new one, whole)."""
    path = Path(path)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    text = json.dumps(encode(value), ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    # a lone surrogate (an undecodable byte of a file name) becomes JSON's own escape
    scratch.write_text(text, encoding="utf-8", errors="backslashreplace")
    scratch.replace(path)


def read_json(kind: type[T], path: str | os.PathLike[str]) -> T:
    """Read ``path`` as a ``kind``; raise `CodecError` when it is not one, `OSError` when it can't be read."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError among them
        raise CodecError(f"{path}: not JSON: {error}") from error
    return decode(kind, data, str(path))

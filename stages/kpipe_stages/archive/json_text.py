"""JSON from an untrusted file: depth and number of containers are bounded before anything is parsed."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from kpipe_stages.archive.collecting import shown

if TYPE_CHECKING:
    from kpipe_stages.archive.collecting import Collector

MOST_CONTAINERS = 1_000_000
"""Lists and objects in one document; the largest of Keras' own applications need some 50,000. Each costs up to 232 bytes of memory."""
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_REMEDY = "Save the model again with model.save('model.keras')."


class _MalformedError(Exception):
    """The text isn't JSON that every reader takes the same way."""


def read_json_object(data: bytes, name: str, max_depth: int, collector: Collector) -> dict[str, Any] | None:
    """The object in ``data``; None (and a KP004 refusal) where it isn't one, is nested too deep, or has a key twice."""
    try:
        _bound(data, max_depth)
        value = _parse(data)
    except _MalformedError as error:
        collector.refuse("KP004", f"{name} {error}.", _REMEDY, place=name)
        return None
    if not isinstance(value, dict):
        collector.refuse("KP004", f"{name} holds a {type(value).__name__}; an object was expected.", _REMEDY, place=name)
        return None
    return value


def _bound(data: bytes, max_depth: int) -> None:
    depth, containers = 0, 0
    for token in _TOKENS.finditer(data):
        first = data[token.start()]
        if first in b"[{":
            depth += 1
            containers += 1
            if depth > max_depth:
                raise _MalformedError(f"is nested more than {max_depth} levels deep")
            if containers > MOST_CONTAINERS:
                raise _MalformedError(f"holds more than {MOST_CONTAINERS} lists and objects")
        elif first in b"]}":
            depth -= 1


def _parse(data: bytes) -> Any:
    if b"\0" in data or data.startswith(b"\xef\xbb\xbf"):
        raise _MalformedError("isn't plain UTF-8: it has a byte order mark or NUL bytes")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
        if _SURROGATE.search(data):  # half a character can't be written anywhere again
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeError as error:
        raise _MalformedError(f"isn't UTF-8 text: {shown(error)}") from None
    except (ValueError, RecursionError) as error:
        raise _MalformedError(f"isn't JSON: {shown(error)}") from None
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _MalformedError(f"has the key '{shown(key)}' twice in one object: readers differ in which one they take")
        found[key] = value
    return found

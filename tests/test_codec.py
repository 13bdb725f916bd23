"""What is written is read back the same, and anything else is refused by name."""

from __future__ import annotations

import enum
import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.record import RunRecord
from kpipe_stages.codec import CodecError, decode, encode, read_json, write_json
from kpipe_stages.protocol import Job, Observation, Result, RunJob, Status, TensorSpec

from .sample_record import failing

if TYPE_CHECKING:
    from pathlib import Path


class Color(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    name: str
    weight: float = 0.0


@dataclass(frozen=True)
class Outer:
    count: int
    sure: bool
    ratio: float
    color: Color
    inner: Inner | None
    pair: tuple[float, float]
    many: tuple[Inner, ...]
    shape: tuple[int | None, ...] | None
    table: dict[str, tuple[int, ...]]
    free: Any
    notes: dict[str, Any] = field(default_factory=dict)


texts = st.text(max_size=8)
numbers = st.floats(width=64) | st.integers(-(2**53), 2**53).map(float)
inners = st.builds(Inner, name=texts, weight=numbers)
plain = st.recursive(st.none() | st.booleans() | st.integers() | texts, lambda x: st.lists(x, max_size=3) | st.dictionaries(texts, x, max_size=3))
outers = st.builds(
    Outer,
    count=st.integers(),
    sure=st.booleans(),
    ratio=numbers,
    color=st.sampled_from(Color),
    inner=st.none() | inners,
    pair=st.tuples(numbers, numbers),
    many=st.lists(inners, max_size=3).map(tuple),
    shape=st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3).map(tuple),
    table=st.dictionaries(texts, st.lists(st.integers(), max_size=3).map(tuple), max_size=3),
    free=plain,
    notes=st.dictionaries(texts, plain, max_size=2),
)
SAMPLE = Outer(1, sure=True, ratio=0.5, color=Color.RED, inner=None, pair=(1.0, 2.0), many=(), shape=(None, 3), table={}, free=None)


@given(outers)
def test_what_is_written_is_read_back(value: Outer) -> None:
    text = json.dumps(encode(value), allow_nan=False)
    assert repr(decode(Outer, json.loads(text))) == repr(value)  # NaN is NaN in words


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_numbers_travel_as_words(tmp_path: Path, value: float) -> None:
    write_json(tmp_path / "x.json", Inner("w", value))
    assert '"weight": "' in (tmp_path / "x.json").read_text()
    assert repr(read_json(Inner, tmp_path / "x.json").weight) == repr(value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": 1}, "Outer: unknown field 'extra'"),
        ({"count": "1"}, "Outer.count: expected int, got '1'"),
        ({"count": True}, "Outer.count: expected int, got True"),
        ({"count": 1.0}, "Outer.count: expected int"),
        ({"count": None}, "Outer.count"),
        ({"sure": 1}, "Outer.sure: expected bool"),
        ({"ratio": "0.5"}, "Outer.ratio: expected float"),
        ({"ratio": "nan"}, "Outer.ratio: expected float"),
        ({"ratio": True}, "Outer.ratio: expected float"),
        ({"ratio": 10**400}, "Outer.ratio: a number beyond float64"),
        ({"color": "green"}, "Outer.color: 'green' is not a valid Color"),
        ({"inner": []}, "Outer.inner: expected an object"),
        ({"inner": {"weight": 1.0}}, "Outer.inner: missing field 'name'"),
        ({"inner": {"name": "a", "age": 1}}, "Outer.inner: unknown field 'age'"),
        ({"pair": [1.0]}, "Outer.pair: expected 2 values, got 1"),
        ({"pair": [1.0, 2.0, 3.0]}, "Outer.pair: expected 2 values, got 3"),
        ({"many": [{"name": "a"}, {"name": 1}]}, r"Outer.many\[1\].name: expected str"),
        ({"many": {}}, "Outer.many: expected a list"),
        ({"shape": [None, "3"]}, r"Outer.shape\[1\]"),
        ({"table": {"a": 1}}, "Outer.table.a: expected a list"),
        ({"table": []}, "Outer.table: expected an object"),
    ],
)
def test_anything_else_is_refused_with_its_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CodecError, match=message):
        decode(Outer, encode(SAMPLE) | change)


@pytest.mark.parametrize("name", [f for f in encode(SAMPLE) if f != "notes"])
def test_a_field_without_a_default_is_never_made_up(name: str) -> None:
    data = encode(SAMPLE)
    del data[name]
    with pytest.raises(CodecError, match=f"missing field '{name}'"):
        decode(Outer, data)


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, np.float32(1.0), np.bool_(1), object(), 1j, {1: "a", "1": "b"}])
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(CodecError, match="cannot write"):
        encode({"x": value})


@pytest.mark.parametrize(
    "text", ["", "{", "[1, 2", '{"name": "a", "weight": NaN}', '{"name": "a", "weight": 1e999}', "null", "[]", "3", "[" * 100_000, '{"name": "\xff"}']
)
def test_a_file_that_is_none_is_refused_as_such(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text, encoding="latin-1")
    with pytest.raises(CodecError):
        read_json(Inner, tmp_path / "x.json")


def test_undecodable_names_survive(tmp_path: Path) -> None:
    cause = "no file b\udcffd.png, only \U0001f600 and é"
    write_json(tmp_path / "x.json", Observation("KP101", cause, "do", evidence={"b\udcff": 1}))
    assert read_json(Observation, tmp_path / "x.json") == Observation("KP101", cause, "do", evidence={"b\udcff": 1})


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", Inner("old"))
    with pytest.raises(CodecError):
        write_json(tmp_path / "x.json", {"x": object()})
    assert read_json(Inner, tmp_path / "x.json") == Inner("old")
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize("kind", [Job, Result, RunJob, TensorSpec])
def test_documents_of_the_protocol_refuse_what_they_do_not_know(kind: type) -> None:
    with pytest.raises(CodecError, match="unknown field 'later'"):
        decode(kind, {"later": 1})


def test_a_status_of_tomorrow_is_refused() -> None:
    with pytest.raises(CodecError, match="status"):
        decode(Result, {"status": "half"})
    assert decode(Status, "ok") is Status.OK


def test_a_whole_record_is_read_back() -> None:
    record = decode(RunRecord, json.loads(json.dumps(encode(failing(12)))))
    assert repr(decode(RunRecord, json.loads(json.dumps(encode(record))))) == repr(record)
    assert encode(record) == encode(failing(12))

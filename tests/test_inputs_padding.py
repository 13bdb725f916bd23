"""Rows of unequal length in one batch: filled, run, and cut back to what belongs to the row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.contract import parse_contract
from kpipe.judging.company import only_padded
from kpipe_stages.feeds import Golden, Span, without_padding
from kpipe_stages.preprocessing.errors import PreprocessError
from kpipe_stages.preprocessing.lengths import pad_first_axis
from kpipe_stages.protocol import BatchPadding

lengths = st.lists(st.integers(1, 9), min_size=1, max_size=6)


class Held:
    """Rows as `kpipe_stages.rows.Rows` gives them."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows
        self.dtype = rows[0].dtype.name

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]

    def shape(self, index: int) -> tuple[int, ...]:
        return tuple(self.rows[index].shape)


def golden(rows: dict[str, list[Any]], padding: dict[str, BatchPadding]) -> Golden:
    """A golden set without the files and the session that it is checked against."""
    made = object.__new__(Golden)
    made.names = tuple(rows)
    made.present = tuple(range(len(next(iter(rows.values())))))
    made._rows = {name: Held(values) for name, values in rows.items()}  # type: ignore[misc]
    made._padding = padding
    return made


@given(lengths, st.sampled_from(["start", "end"]), st.integers(-3, 3))
def test_a_batch_holds_every_row_and_nothing_but_the_filler_beside_it(sizes: list[int], at: str, value: int) -> None:
    rows = [np.arange(1, n + 1, dtype=np.int32) * 10 for n in sizes]
    made = golden({"x": rows}, {"x": BatchPadding(at, value)})
    batch = made.batch(range(len(rows)))["x"]
    assert batch.shape == (len(rows), max(sizes))
    assert batch.dtype == np.int32
    for index, row in enumerate(rows):
        own = batch[index, -len(row) :] if at == "start" else batch[index, : len(row)]
        assert np.array_equal(own, row)
        assert np.count_nonzero(batch[index] == value) == max(sizes) - len(row)
        spans = made.spans(range(len(rows)), index)
        assert bool(spans) == (len(row) < max(sizes))


@given(lengths, st.sampled_from(["start", "end"]))
def test_what_is_as_long_as_the_batch_is_cut_to_the_row_and_the_rest_is_left(sizes: list[int], at: str) -> None:
    rows = [np.arange(n, dtype=np.float32)[:, np.newaxis] for n in sizes]
    made = golden({"x": rows}, {"x": BatchPadding(at)})
    batch = made.batch(range(len(rows)))["x"]
    axes: dict[str, Any] = {"steps": (None, None, 1), "fixed": (None, max(sizes), 1), "score": (None, 2), "unknown": None, "whole": (None, None)}
    for index, row in enumerate(rows):
        answer = {
            "steps": batch[index],
            "fixed": batch[index],
            "score": np.zeros(2),
            "unknown": batch[index],
            "whole": np.zeros(max(sizes)),
        }
        cut = without_padding(answer, axes, made.spans(range(len(rows)), index), ("whole",))
        assert np.array_equal(cut["steps"], row)
        assert all(cut[name] is answer[name] for name in ("score", "unknown", "whole"))
        assert cut["fixed"].shape == answer["fixed"].shape


def test_two_inputs_that_are_padded_differently_cut_nothing() -> None:
    answer = {"steps": np.zeros((5, 1))}
    spans = frozenset({Span(0, 3, 5), Span(0, 2, 5)})
    assert without_padding(answer, {"steps": (None, None, 1)}, spans, ())["steps"].shape == (5, 1)
    assert without_padding(answer, {"steps": (None, None, 1)}, frozenset(), ())["steps"].shape == (5, 1)


def test_rows_share_a_batch_where_only_the_padded_axis_differs() -> None:
    short, long, other = np.zeros((2, 3)), np.zeros((5, 3)), np.zeros((5, 4))
    kinds = golden({"x": [short, long, other]}, {"x": BatchPadding("end")}).kinds
    assert kinds[0] == kinds[1] != kinds[2]
    assert len(set(golden({"x": [short, long, other]}, {}).kinds.values())) == 3


def test_what_can_not_be_filled_is_refused() -> None:
    with pytest.raises(PreprocessError, match=r"value = 0\.5 among int32"):
        pad_first_axis(np.zeros(2, np.int32), 4, 0.5, "end")
    with pytest.raises(PreprocessError, match="expected numbers"):
        pad_first_axis(np.array(["a"]), 4, 0, "end")
    with pytest.raises(PreprocessError, match="at most 2 on the first axis"):
        pad_first_axis(np.zeros(3), 2, 0, "end")


def test_padding_is_named_only_where_every_row_that_differs_was_padded() -> None:
    answers: Any = SimpleNamespace(result=SimpleNamespace(padded_rows={"batch_3": (1, 2)}))
    drift: Any = SimpleNamespace(index=1)
    assert only_padded(answers, "batch_3", [drift])
    assert not only_padded(answers, "batch_3", [drift, SimpleNamespace(index=0)])
    assert not only_padded(answers, "batch_8", [drift])


def test_the_contract_says_side_and_value() -> None:
    table = parse_contract('[inputs.x]\ndecode = "npy"\npad_batches = { at = "start", value = -1.5 }\n', "k").inputs["x"].pad_batches
    assert table is not None
    assert (table.at, table.value) == ("start", -1.5)
    whole = parse_contract('[inputs.x]\ndecode = "npy"\npad_batches = { at = "end" }\n', "k").inputs["x"].pad_batches
    assert whole is not None
    assert (whole.value, type(whole.value)) == (0, int)

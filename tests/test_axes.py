"""Which shapes a contract and a model promise: a pure function of both."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.axes import EMPTY, free_axes, placed_axes, shape_cases, unpromised
from kpipe.contract import Contract, parse_contract
from kpipe.errors import ContractError
from kpipe_stages.protocol import AxisSize, ShapeCase, Signature, TensorSpec

SEQ = Signature((TensorSpec("seq", (None, None, 3), "float32"), TensorSpec("mask", (None, None), "bool")), (TensorSpec("y", (None, 2), "float32"),))
IMAGE = Signature((TensorSpec("image", (None, None, None, 3), "float32"),), (TensorSpec("y", (None, 2), "float32"),))
FIXED = Signature((TensorSpec("x", (4, 3), "float32"),), (TensorSpec("y", (4, 2), "float32"),))
PLAIN = Signature((TensorSpec("x", (None, 3), "float32"),), (TensorSpec("y", (None, 2), "float32"),))
TIME = "[axes]\ntime = { min = 1, typical = 20, max = 300 }\n"


def contract(text: str) -> Contract:
    return parse_contract(text, "kpipe.toml")


def names(cases: tuple[ShapeCase, ...]) -> dict[str, bool]:
    return {case.name: case.owed for case in cases}


def refused(text: str, signature: Signature) -> str:
    with pytest.raises(ContractError) as caught:
        placed_axes(contract(text), signature, "kpipe.toml")
    return str(caught.value)


def test_without_ranges_batches_are_owed_and_the_empty_one_is_only_tried() -> None:
    cases = shape_cases(Contract(), PLAIN, "")
    assert names(cases) == {"batch 1": True, "batch 5 (a partial one)": True, "batch 8": True, EMPTY: False}
    assert [case.batch for case in cases] == [1, 5, 8, 0]


def test_an_axis_is_tried_at_its_ends_and_every_batch_at_its_typical_size() -> None:
    cases = shape_cases(contract(TIME), SEQ, "")
    sizes = {case.name: {(one.input, one.axis): one.size for one in case.axes} for case in cases}
    assert sizes["time 1"] == {("seq", 1): 1, ("mask", 1): 1}  # one name, one size, in every input that has it
    assert sizes["time 300"] == {("seq", 1): 300, ("mask", 1): 300}
    assert sizes["typical, batch 8"] == {("seq", 1): 20, ("mask", 1): 20}
    assert cases[-1].name == EMPTY


def test_a_batch_range_owes_its_own_sizes_and_the_empty_batch_where_it_begins_at_none() -> None:
    cases = shape_cases(contract(TIME + "batch = { min = 0, typical = 6, max = 12 }\n"), SEQ, "")
    assert names(cases) == {
        "time 1": True, "time 300": True, "typical, batch 1": True, "typical, batch 4 (a partial one)": True, "typical, batch 6": True,
        "typical, batch 12": True, EMPTY: True,
    }  # fmt: skip
    from_two = shape_cases(contract("[axes]\nbatch = { min = 2, typical = 4, max = 4 }\n"), PLAIN, "")
    assert names(from_two) == {"batch 2": True, "batch 3 (a partial one)": True, "batch 4": True, EMPTY: False}


def test_a_model_with_one_batch_size_owes_no_other() -> None:
    assert shape_cases(Contract(), FIXED, "") == ()


def test_several_axes_are_tried_one_by_one_and_together() -> None:
    text = """
[axes.height]
min = 8
typical = 16
max = 32
inputs = { image = 1 }
[axes.width]
min = 4
typical = 10
max = 20
inputs = { image = 2 }
"""
    cases = {case.name: case.axes for case in shape_cases(contract(text), IMAGE, "")}
    assert set(cases["height 8"]) == {AxisSize("image", 1, 8), AxisSize("image", 2, 10)}
    assert set(cases["all largest"]) == {AxisSize("image", 1, 32), AxisSize("image", 2, 20)}


def test_what_nobody_promises_is_known() -> None:
    assert free_axes(IMAGE) == {"image": (1, 2)}
    assert unpromised(Contract(), IMAGE) == {"image": (1, 2)}
    one = "[axes.width]\nmin = 4\ntypical = 10\nmax = 20\ninputs = { image = 2 }\n"
    assert unpromised(contract(one), IMAGE) == {"image": (1,)}


@pytest.mark.parametrize(
    ("text", "signature", "words"),
    [
        (TIME, PLAIN, "the model has no free axis besides the batch axis; drop it"),
        (TIME, IMAGE, "an input has several free axes image: [1, 2]; say which"),
        (TIME.replace("300", "300, inputs = { sek = 1 }"), SEQ, "the model has no input 'sek'. Did you mean 'seq'?"),
        (TIME.replace("300", "300, inputs = { seq = 2 }"), SEQ, "which the model fixes at 3; expected one of its free axes [1]"),
        (TIME.replace("300", "300, inputs = { seq = 7 }"), SEQ, "expected an axis of its shape (None, None, 3)"),
    ],
)
def test_an_axis_that_the_model_does_not_leave_free_is_refused(text: str, signature: Signature, words: str) -> None:
    assert words.split(". Did", maxsplit=1)[0] in refused(text, signature)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[axes]\ntime = { min = 5, typical = 2, max = 9 }\n", "min, typical and max are 5, 2 and 9"),
        ("[axes]\nbatch = { min = 0, typical = 2, max = 9, inputs = { x = 1 } }\n", "the batch axis is axis 0 of every input"),
        ("[axes]\na = { min = 1, typical = 2, max = 9 }\nb = { min = 1, typical = 2, max = 9 }\n", "both name no inputs"),
        ("[axes]\na = { min = 1, typical = 0, max = 9 }\n", "axes.a.typical is 0"),
    ],
)
def test_a_range_that_is_none_is_refused(text: str, words: str) -> None:
    with pytest.raises(ContractError, match="can't be used") as caught:
        contract(text)
    assert words in str(caught.value)


@given(st.lists(st.integers(0, 50), min_size=3, max_size=3).map(sorted))
def test_every_owed_size_lies_in_its_range_and_both_ends_are_there(sizes: list[int]) -> None:
    least, typical, most = sizes[0], max(1, sizes[1]), max(1, sizes[2])
    text = f"[axes]\ntime = {{ min = {least}, typical = {typical}, max = {most} }}\n"
    cases = shape_cases(contract(text), SEQ, "")
    seen = {one.size for case in cases for one in case.axes}
    assert {least, typical, most} == seen
    assert len({(case.batch, case.axes) for case in cases}) == len(cases)
    assert [case.batch for case in cases][-1] == 0

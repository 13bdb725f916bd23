"""The rows of the permutation probe, and what the judge makes of the answers: pure, over made-up models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.judging.bindings import Proof, _inputs, _outputs
from kpipe_stages.permuting import ROWS, make_probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe_stages.permuting import Row

Array = np.ndarray[Any, np.dtype[Any]]


class Rows:
    """Golden rows without files."""

    def __init__(self, **columns: Array) -> None:
        self.columns = columns
        self.kinds = {i: tuple(c[i].shape for c in columns.values()) for i in range(len(next(iter(columns.values()))))}

    def row(self, index: int) -> Row:
        return {name: np.array(column[index]) for name, column in self.columns.items()}


def probe(**columns: Array) -> Any:
    return make_probe(Rows(**columns), tuple(columns))  # type: ignore[arg-type]


VALUES = st.lists(st.integers(-3, 3), min_size=6, max_size=6)


@given(left=VALUES, right=VALUES)
def test_inputs_of_one_kind_get_different_values_or_are_said_to_be_alike(left: list[int], right: list[int]) -> None:
    a, b = (np.array(v, np.int32).reshape(3, 2) for v in (left, right))
    made = probe(a=a, b=b)
    assert len(made.rows) == ROWS
    alike = all(row["a"].tobytes() == row["b"].tobytes() for row in made.rows)
    assert made.same == ((("a", "b"),) if alike else ())
    assert {*np.unique([row["b"] for row in made.rows])} <= {*np.unique(b)}  # ids stay within what the golden set has
    if made.same:
        assert len({*a.ravel(), *b.ravel()}) <= 2  # nearly nothing to draw from


def test_equal_golden_inputs_are_shifted_against_each_other() -> None:
    same = np.arange(12, dtype=np.float32).reshape(4, 3)
    made = probe(a=same, b=same)
    assert made.same == ()
    assert made.pairs == [("a", "b")]


def test_floats_with_one_value_are_varied_and_integers_are_not() -> None:
    assert probe(a=np.zeros((2, 3), np.float32), b=np.zeros((2, 3), np.float32)).same == ()
    assert probe(a=np.ones((2, 3), np.int32), b=np.ones((2, 3), np.int32)).same == (("a", "b"),)


def test_inputs_of_other_shapes_or_dtypes_are_no_pair() -> None:
    assert probe(a=np.ones((2, 3), np.int32), b=np.ones((2, 3), np.float32), c=np.ones((2, 4), np.int32)).groups == ()


def test_the_same_rows_are_made_again() -> None:
    first, second = (probe(a=np.ones((3, 4), np.float32), b=np.ones((3, 4), np.float32)) for _ in range(2))
    assert first.sha256() == second.sha256()


# ------------------------------------------------------------ the proof

MODELS: dict[str, Callable[[float, float], dict[str, float]]] = {
    "subtract": lambda a, b: {"y": a - b},
    "add": lambda a, b: {"y": a + b},
    "one of two": lambda a, b: {"y": a + b, "z": a},
}


def column(**values: float) -> dict[str, list[Array]]:
    return {name: [np.array([value], np.float32)] for name, value in values.items()}


@pytest.mark.parametrize(
    ("model", "target", "expected"),
    [
        ("subtract", (2.0, 1.0), "proved"),
        ("subtract", (1.0, 2.0), "exchanged"),
        ("subtract", (1.5, 1.5), "unproved"),  # it lies between the two
        ("add", (1.0, 2.0), "alike"),
        ("one of two", (2.0, 1.0), "proved"),
        ("one of two", (1.0, 2.0), "exchanged"),
    ],
)
def test_a_target_is_where_it_is_much_nearer(model: str, target: tuple[float, float], expected: str) -> None:
    answer, proof = MODELS[model], Proof()
    _inputs(proof, ("a", "b"), column(**answer(*target)), column(**answer(2.0, 1.0)), column(**answer(1.0, 2.0)), unvaried=False)
    found = {"proved": proof.proved, "exchanged": len(proof.exchanged), "unproved": len(proof.unproved), "alike": len(proof.alike)}
    assert found == {**dict.fromkeys(found, 0), expected: 1}


def test_a_coarse_target_is_proved_and_values_that_could_not_differ_prove_nothing() -> None:
    straight, other = column(y=1.0), column(y=-1.0)
    coarse, nothing = Proof(), Proof()
    _inputs(coarse, ("a", "b"), column(y=0.9), straight, other, unvaried=False)
    _inputs(nothing, ("a", "b"), straight, straight, straight, unvaried=True)
    assert (coarse.proved, nothing.proved, len(nothing.unproved)) == (1, 0, 1)


@pytest.mark.parametrize(
    ("near", "far", "expected"), [(1.0, 5.0, "proved"), (5.0, 1.0, "exchanged"), (3.0, 3.0, "unproved"), (np.nan, 5.0, "unproved")]
)
def test_outputs_are_held_against_each_others_names(near: float, far: float, expected: str) -> None:
    proof = Proof()
    _outputs(proof, ("near", "far"), column(near=near, far=far), column(near=1.0, far=5.0))
    found = {"proved": proof.proved, "exchanged": len(proof.exchanged), "unproved": len(proof.unproved)}
    assert found == {**dict.fromkeys(found, 0), expected: 1}

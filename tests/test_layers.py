"""Layers judged by saved outputs, the search for what hides a fault, and what is concluded: pure, no runtime."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpipe.diagnosis.bisect import smallest_hiding
from kpipe.diagnosis.subject import MOST_BYTES, Choice, fitting
from kpipe.judging.answers import Answers
from kpipe.judging.floor import K
from kpipe.judging.layers import Output, Sides, Standing, coarsest, drift_of, first_to_leave, judge_layers, reference_leaves, relative_rows
from kpipe_stages.cutting.orders import Point
from kpipe_stages.digest import digest
from kpipe_stages.protocol import Signature, TensorSpec
from kpipe_stages.rows import write_rows

from .sample_run import run_result

if TYPE_CHECKING:
    from pathlib import Path

Rows = dict[str, list[Any]]
NOISE = 1e-7


def point(name: str, *inputs: str, dtype: str = "float32") -> Point:
    return Point(name, f"layer_{name}", "Dense", {}, inputs, (None, 2), dtype)


CHAIN = (point("a", "x"), point("b", "a"), point("c", "b"))


def written(folder: Path, rows: Rows, mode: str = "alone", **changes: Any) -> Answers:
    """Answers as a worker leaves them."""
    for position, values in enumerate(rows.values()):
        write_rows(folder / "outputs" / mode / str(position), [np.asarray(value) for value in values])
    signature = Signature((), tuple(TensorSpec(name, None, "float32") for name in rows))
    digests = {mode: digest(folder / "outputs" / mode)}
    return Answers(run_result(**{"signature": signature, "modes": (mode,), "digests": digests} | changes), folder)


def floats(*rows: tuple[float, ...]) -> list[Any]:
    return [np.array(row, np.float32) for row in rows]


def sides(folder: Path, reference: Rows, truth: Rows | None, target: Rows, mode: str = "alone") -> Sides:
    true = written(folder / "truth", truth) if truth is not None else None
    return Sides(written(folder / "reference", reference), true, written(folder / "target", target, mode), mode)


def around(rows: Rows, off: float) -> Rows:
    """The same numbers, each off by ``off`` of itself; in float64, as the truth is."""
    return {name: [np.asarray(row, np.float64) * (1 + off) for row in values] for name, values in rows.items()}


GOOD: Rows = {"a": floats((1, 2), (3, 4)), "b": floats((5, 6), (7, 8)), "c": floats((9, 1), (2, 3))}


def test_the_first_layer_that_is_off_leaves_and_those_behind_it_are_downstream(tmp_path: Path) -> None:
    target = {**GOOD, "b": floats((5, 6), (7, 8.1)), "c": floats((9, 1), (2.5, 3))}
    rows = judge_layers(CHAIN, ("x",), sides(tmp_path, GOOD, around(GOOD, NOISE), target))
    assert [row.standing for row in rows] == [Standing.AGREES, Standing.LEAVES, Standing.DOWNSTREAM]
    first = first_to_leave(rows)
    assert first is not None
    assert first.drift is not None
    assert (first.layer, first.drift.row, first.drift.element) == ("layer_b", 1, (1,))
    assert first.drift.target == pytest.approx(8.1)


@settings(max_examples=25)
@given(st.floats(1.0, 100.0))
def test_a_layer_leaves_at_sixteen_floors_and_not_below(times: float) -> None:
    import tempfile
    from pathlib import Path as Folder

    reference: Rows = {"a": [np.array([1.0]), np.array([1.0])]}
    error = 2.0**-20
    with tempfile.TemporaryDirectory() as folder:
        truth: Rows = {"a": [np.array([1.0 + error])] * 2}
        target: Rows = {"a": [np.array([1.0 + times * error]), np.array([1.0])]}
        row = judge_layers((point("a", "x", dtype="float64"),), ("x",), sides(Folder(folder), reference, truth, target))[0]
    assert row.drift is not None
    assert row.drift.floors == pytest.approx(times, rel=1e-6)
    assert (row.standing is Standing.LEAVES) is (row.drift.floors >= K)


def test_a_layer_that_cannot_be_compared_lets_nobody_behind_it_be_the_first(tmp_path: Path) -> None:
    target = {**GOOD, "a": floats((1, 2)), "b": floats((5, 6), (7, 80))}
    rows = judge_layers(CHAIN, ("x",), sides(tmp_path, GOOD, around(GOOD, NOISE), target))
    assert [row.standing for row in rows] == [Standing.UNKNOWN, Standing.DOWNSTREAM, Standing.AGREES]
    assert "1 answers of the target against 2" in rows[0].why
    assert first_to_leave(rows) is None


def test_what_is_made_of_text_may_be_off_by_anything(tmp_path: Path) -> None:
    points = (replace(CHAIN[0], inputs=("words",)), *CHAIN[1:])
    rows = judge_layers(points, ("x",), sides(tmp_path, GOOD, around(GOOD, NOISE), {**GOOD, "a": floats((1, 2), (3, 40))}))
    assert rows[0].standing is Standing.DOWNSTREAM
    assert math.isinf(rows[0].before)


def test_a_point_that_is_not_given_is_as_far_off_as_what_it_is_made_of(tmp_path: Path) -> None:
    some = {name: GOOD[name] for name in ("a", "c")}
    target = {"a": floats((1, 2), (3, 40)), "c": floats((9, 1), (2, 30))}
    rows = judge_layers(CHAIN, ("x",), sides(tmp_path, some, around(some, NOISE), target))
    assert [(row.point, row.standing) for row in rows] == [("a", Standing.LEAVES), ("c", Standing.DOWNSTREAM)]
    assert rows[1].before == rows[0].drift.floors  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (floats((1, math.nan), (3, 4)), "nonfinite"),
        (floats((1, math.inf), (3, 4)), "nonfinite"),
        ([np.ones((1, 2), np.float32)] * 2, "shape"),
        (floats((1,), (3,)), "shape"),
    ],
)
def test_a_nan_or_another_shape_is_beyond_all_floors(tmp_path: Path, values: list[Any], problem: str) -> None:
    row = judge_layers(CHAIN[:1], ("x",), sides(tmp_path, {"a": GOOD["a"]}, None, {"a": values}))[0]
    assert row.drift is not None
    assert (row.drift.problem, row.drift.floors, row.standing) == (problem, math.inf, Standing.LEAVES)


def test_the_same_nan_on_both_sides_agrees(tmp_path: Path) -> None:
    both: Rows = {"a": floats((1, math.nan), (-math.inf, 4))}
    row = judge_layers(CHAIN[:1], ("x",), sides(tmp_path, both, around(both, 0), both))[0]
    assert row.standing is Standing.AGREES


def test_whole_numbers_have_to_be_equal_and_a_wrong_reference_is_told_from_a_wrong_target(tmp_path: Path) -> None:
    ours: Rows = {"a": [np.array([1, -2])]}
    theirs: Rows = {"a": [np.array([1, -3])]}
    points = (point("a", "x", dtype="int32"),)
    wrong_target = judge_layers(points, ("x",), sides(tmp_path / "1", ours, ours, theirs))
    assert (wrong_target[0].standing, reference_leaves(wrong_target)) == (Standing.LEAVES, None)
    wrong_reference = judge_layers(points, ("x",), sides(tmp_path / "2", ours, theirs, theirs))
    assert reference_leaves(wrong_reference) == wrong_reference[0]


def test_a_reference_that_leaves_float64_is_named(tmp_path: Path) -> None:
    truth = {**around(GOOD, NOISE), "b": [row * 1.5 for row in around(GOOD, 0)["b"]]}
    found = reference_leaves(judge_layers(CHAIN, ("x",), sides(tmp_path, GOOD, truth, GOOD)))
    assert found is not None
    assert found.layer == "layer_b"


def test_without_float64_the_default_tolerance_counts(tmp_path: Path) -> None:
    near, far = around(GOOD, 5e-5), around(GOOD, 5e-4)
    assert first_to_leave(judge_layers(CHAIN, ("x",), sides(tmp_path / "near", GOOD, None, near))) is None
    assert first_to_leave(judge_layers(CHAIN, ("x",), sides(tmp_path / "far", GOOD, None, far))) is not None


def test_another_way_of_running_is_compared_with_the_reference_alone(tmp_path: Path) -> None:
    target = {"a": floats((1, 2), (3, 9))}
    both = sides(tmp_path, {"a": GOOD["a"]}, None, target, "batch_2")
    assert judge_layers(CHAIN[:1], ("x",), both)[0].standing is Standing.LEAVES
    missing = judge_layers(CHAIN[:1], ("x",), replace(both, mode="batch_9"))[0]
    assert (missing.standing, "batch_9" in missing.why) == (Standing.UNKNOWN, True)


def test_answers_that_were_altered_are_not_compared(tmp_path: Path) -> None:
    answers = written(tmp_path, {"a": GOOD["a"]})
    write_rows(tmp_path / "outputs" / "alone" / "0", floats((1, 2), (3, 5)))
    with pytest.raises(ValueError, match="altered"):
        drift_of(Output(answers, "a"), Output(answers, "a"), None, "float32")


def test_relative_rows_say_which_input_is_furthest(tmp_path: Path) -> None:
    found = relative_rows(written(tmp_path / "1", {"a": GOOD["a"]}), written(tmp_path / "2", {"a": floats((1, 2), (3, 5))}), "alone")
    assert found == [0, pytest.approx(0.25)]


def test_the_coarsest_dtype_is_the_model_s_class() -> None:
    assert coarsest(["int32", "float32", "float16"]) == "float16"
    assert coarsest(["int32", "bool"]) == "float32"


# ---------------------------------------------------------------- the smallest set that hides a fault


def search(items: tuple[str, ...], needed: frozenset[str], budget: int = 10_000) -> tuple[tuple[str, ...], bool, int]:
    """The fault hides where all of ``needed`` are exposed."""
    asked = 0

    async def hides(some: tuple[str, ...]) -> bool | None:
        nonlocal asked
        asked += 1
        return needed <= set(some)

    kept, complete = asyncio.run(smallest_hiding(items, hides, lambda: asked < budget))
    return kept, complete, asked


@settings(max_examples=50)
@given(st.integers(1, 40), st.data())
def test_the_smallest_set_is_found_whatever_it_is(count: int, data: st.DataObject) -> None:
    items = tuple(f"p{i:02d}" for i in range(count))
    needed = frozenset(data.draw(st.sets(st.sampled_from(items), min_size=1, max_size=min(4, count))))
    kept, complete, _ = search(items, needed)
    assert (set(kept), complete) == (needed, True)
    assert list(kept) == sorted(kept)


@settings(max_examples=40)
@given(st.integers(2, 400), st.data())
def test_one_layer_takes_as_many_trials_as_halvings(count: int, data: st.DataObject) -> None:
    items = tuple(map(str, range(count)))
    needed = data.draw(st.sampled_from(items))
    kept, _, asked = search(items, frozenset({needed}))
    assert kept == (needed,)
    assert asked <= 2 * math.ceil(math.log2(count))


def test_when_time_runs_out_what_is_known_to_hide_it_is_kept_and_said_not_to_be_the_smallest() -> None:
    items = tuple(map(str, range(64)))
    kept, complete, asked = search(items, frozenset({"9"}), budget=3)
    assert (complete, asked) == (False, 3)
    assert "9" in kept
    assert 1 < len(kept) < 64


def test_an_answer_that_cannot_be_told_is_not_taken_for_hiding() -> None:
    async def broken(_some: tuple[str, ...]) -> bool | None:
        return None

    assert asyncio.run(smallest_hiding(("a", "b", "c"), broken, lambda: True)) == (("a", "b", "c"), True)


# ---------------------------------------------------------------- which inputs


def test_fewer_inputs_are_taken_where_the_disk_would_fill_and_a_batch_is_never_cut() -> None:
    choice = Choice((4, 1, 2), "alone")
    assert fitting(choice, 1000) == choice
    less = fitting(choice, MOST_BYTES // 2)
    assert less.rows == (4, 1)
    assert "2 of 3 inputs" in less.note
    assert fitting(choice, 3 * MOST_BYTES).rows == (4,)
    assert fitting(Choice((4, 1, 2), "batch_3"), 3 * MOST_BYTES).rows == (4, 1, 2)
    assert Choice((4, 1, 2), "batch_3").batches == (3,)


def test_every_runtime_has_words_for_the_script_that_reproduces() -> None:
    from pathlib import Path

    import kpipe
    from kpipe.diagnosis.script import SAME
    from kpipe_stages.catalog import RUNTIMES

    folder = Path(kpipe.__file__).parent / "diagnosis" / "templates"
    assert {path.name for path in folder.iterdir()} == {"reproduce.py.j2", *(f"target_{SAME.get(name, name)}.py.j2" for name in RUNTIMES)}


def test_a_runtime_without_words_is_named() -> None:
    from kpipe.diagnosis.script import _render

    with pytest.raises(LookupError, match=r"no script is known for the runtime other; add target_other\.py\.j2"):
        _render("other")

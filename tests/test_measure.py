from __future__ import annotations

import gc
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kpipe.running.launch import MEMORY_SIGNS
from kpipe_stages.answers import ModeWriter, difference, same_bits
from kpipe_stages.feeds import Golden, as_fed, lonely_rows, plan_batches, split_answer, stack
from kpipe_stages.openvino_facts import same
from kpipe_stages.protocol import Binding, RunJob, Signature, StageError, TensorSpec, Trust
from kpipe_stages.rows import AbsentRowError, Rows, RowsWriter, write_rows
from kpipe_stages.run_saved_model import tf_precision
from kpipe_stages.session import bound, check_count, check_settings, check_value, load_refused, owned, raise_if_out_of_memory, telling_line
from kpipe_stages.timing import STABLE, WINDOW, collector_off, is_stable, relative

if TYPE_CHECKING:
    from pathlib import Path

floats = hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=4), elements=st.floats(width=32))


# ---------------------------------------------------------------- batches


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=40), st.integers(1, 9))
def test_batches_are_full_of_one_kind_and_hold_every_row(kinds: list[str], size: int) -> None:
    rows = {3 * index + 1: kind for index, kind in enumerate(kinds)}
    batches = plan_batches(rows, size)
    assert all(len(batch) == size for batch in batches)
    assert all(len({rows[row] for row in batch}) == 1 for batch in batches)
    assert {row for batch in batches for row in batch} == set(rows)
    assert len(batches) == sum(math.ceil(kinds.count(kind) / size) for kind in set(kinds))


def test_a_lone_row_fills_its_batch_and_a_short_end_is_filled_from_the_start() -> None:
    assert plan_batches({0: "a"}, 3) == [(0, 0, 0)]
    assert plan_batches({0: "a", 1: "a", 2: "b", 3: "a", 4: "a"}, 3) == [(0, 1, 3), (4, 0, 1), (2, 2, 2)]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=20), st.integers(2, 5))
def test_a_row_is_lonely_where_its_answer_comes_from_copies_of_itself(contents: list[int], size: int) -> None:
    tensors = dict(enumerate(contents))
    batches = plan_batches(dict.fromkeys(tensors, "one shape"), size)
    lonely = lonely_rows(batches, tensors)
    for row, own in tensors.items():
        mates = next(batch for batch in batches if row in batch)
        assert (row in lonely) == all(tensors[mate] == own for mate in mates)


def test_a_different_neighbour_counts_only_in_the_batch_that_the_answer_comes_from() -> None:
    assert lonely_rows([(0, 0, 0)], {0: "a"}) == (0,)
    assert lonely_rows([(0, 1), (2, 0)], {0: "a", 1: "b", 2: "c"}) == ()
    assert lonely_rows([(0, 1), (2, 0)], {0: "a", 1: "a", 2: "c"}) == (0, 1)  # row 0's second answer, beside row 2, is dropped
    assert lonely_rows([(0, 2), (1, 1)], {0: "a", 1: "b", 2: "c"}) == (1,)


@given(st.integers(1, 5), st.integers(1, 4))
def test_an_answer_is_cut_along_the_batch_axis(size: int, width: int) -> None:
    values = np.arange(size * width, dtype=np.float32).reshape(size, width)
    whole = np.zeros((size + 1, 2), dtype=np.float32)
    rows, unbatched = split_answer({"a": values, "b": whole, "c": np.float32(3.0).reshape(())}, size, ())
    assert unbatched == {"b", "c"}
    assert [row["a"].tolist() for row in rows] == values.tolist()
    assert all(row["b"].shape == whole.shape and row["c"].shape == () for row in rows)


def test_an_output_known_to_have_no_batch_axis_is_not_cut_where_its_size_happens_to_fit() -> None:
    table = np.arange(6.0).reshape(3, 2)
    _, alone = split_answer({"table": table}, 1, ())
    rows, unbatched = split_answer({"table": table}, 3, alone)
    assert unbatched == {"table"}
    assert all(np.array_equal(row["table"], table) for row in rows)


@given(hnp.arrays(st.sampled_from([">f4", "<i8", ">u2", "|b1"]), hnp.array_shapes(max_dims=3, max_side=3)))
def test_feeds_are_native_and_contiguous_and_keep_their_values_and_shape(row: np.ndarray) -> None:
    transposed = row.T
    fed = as_fed(transposed, transposed.dtype.name)
    assert fed.dtype.isnative
    assert fed.flags.c_contiguous
    assert fed.shape == transposed.shape
    np.testing.assert_array_equal(fed, transposed)


def test_a_scalar_row_stays_a_scalar_and_stacks_to_a_vector() -> None:
    fed = as_fed(np.array(2.5, dtype=np.float32), "float32")
    assert fed.shape == ()
    assert stack([{"x": fed}, {"x": fed}])["x"].shape == (2,)


# ---------------------------------------------------------------- answers


def test_answers_come_back_in_order_whatever_order_they_came_in(tmp_path: Path) -> None:
    writer = ModeWriter(tmp_path / "outputs", ["a"], 4, [0, 1, 3])
    with writer:
        for row in (3, 1, 0, 1):
            writer.add(row, {"a": np.full(row + 1, row, dtype=np.float32)})
        writer.add(0, {"a": np.full(1, 99, dtype=np.float32)})  # the first answer counts
        writer.finish()
    rows = Rows(tmp_path / "outputs" / "0")
    assert rows.dtype == "float32"
    assert rows.absent == {2}
    assert [rows[row].tolist() for row in (0, 1, 3)] == [[0], [1, 1], [3, 3, 3, 3]]
    with pytest.raises(AbsentRowError):
        rows[2]


def test_a_row_without_an_answer_leaves_nothing_to_be_read(tmp_path: Path) -> None:
    writer = ModeWriter(tmp_path, ["a"], 3, [0, 1, 2])

    def incomplete() -> None:
        with writer:
            writer.add(0, {"a": np.zeros(1)})
            writer.add(2, {"a": np.zeros(1)})
            writer.finish()

    with pytest.raises(ValueError, match="golden input 1 of 3 has no answer"):
        incomplete()
    with pytest.raises(OSError, match="0"):
        Rows(tmp_path / "0")


@given(floats)
def test_an_array_has_its_own_bits(array: np.ndarray) -> None:
    assert same_bits(array, array.copy())
    assert difference(array, array.copy()) == 0.0


@given(floats, st.data())
def test_one_changed_value_is_seen(array: np.ndarray, data: st.DataObject) -> None:
    changed = array.copy()
    index = data.draw(st.integers(0, array.size - 1))
    changed.flat[index] = 1.0 if math.isnan(array.flat[index]) else math.nan
    assert not same_bits(array, changed)
    assert difference(array, changed) == math.inf


def test_bits_tell_zeros_and_dtypes_apart_and_take_any_nan_for_nan() -> None:
    payload = np.array([0x7FC00001], dtype=np.uint32).view(np.float32)
    assert same_bits(payload, np.array([np.nan], dtype=np.float32))
    assert not same_bits(np.float32([0.0]), np.float32([-0.0]))
    assert not same_bits(np.float32([1.0]), np.float64([1.0]))
    assert not same_bits(np.array(["a"]), np.array(["b"]))
    assert same_bits(np.array([b"a"], dtype=object), np.array(["a"]))


def test_differences_that_floats_would_hide() -> None:
    assert difference(np.int64([2**60 + 1]), np.int64([2**60])) == 1.0
    assert difference(np.float32([np.inf]), np.float32([np.inf])) == 0.0
    assert difference(np.float32([np.inf]), np.float32([-np.inf])) == math.inf
    assert difference(np.zeros(2), np.zeros(3)) == math.inf
    assert difference(np.array(["a"]), np.array(["b"])) == math.inf
    assert difference(np.uint8([1]), np.uint8([2])) == 1.0
    assert difference(np.array([True]), np.array([False])) == 1.0


def test_owned_copies_what_someone_else_holds() -> None:
    own = np.zeros(3)
    assert owned(own) is own
    view = own[:2]
    assert owned(view).base is None
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    assert owned(frozen) is not frozen


# ---------------------------------------------------------------- golden rows against signatures


class Sheet:
    """The part of a session that golden rows are checked against."""

    def __init__(self, *inputs: TensorSpec, takes: dict[str, str] | None = None) -> None:
        self.signature = Signature(inputs=inputs, outputs=())
        self.takes = takes or {spec.name: spec.dtype for spec in inputs}


def order(folder: Path, rows: int, *names: str) -> RunJob:
    return RunJob("onnxruntime", "model.onnx", Trust(), None, None, str(folder), names, rows, ())


def refusal(folder: Path, rows: int, sheet: Sheet, *names: str) -> tuple[str, str]:
    with pytest.raises(StageError) as caught:
        Golden(order(folder, rows, *names), sheet)
    return caught.value.observation.code, caught.value.observation.cause


def test_rows_that_fit_are_stacked_by_name(tmp_path: Path) -> None:
    write_rows(tmp_path / "0", [np.full((2, 3), n, dtype=np.float32) for n in range(3)])
    write_rows(tmp_path / "1", [np.int64(n) for n in range(3)])
    golden = Golden(order(tmp_path, 3, "b", "a"), Sheet(TensorSpec("a", (None,), "int64"), TensorSpec("b", (None, 2, None), "float32")))
    batch = golden.batch([2, 0])
    assert batch["b"].shape == (2, 2, 3)
    assert batch["a"].tolist() == [2, 0]
    assert golden.plan(2) == [(0, 1), (2, 0)]


def test_rows_are_the_same_where_every_input_is_byte_by_byte(tmp_path: Path) -> None:
    write_rows(tmp_path / "0", [np.float32([1, 0]), np.float32([1, 0]), np.float32([1, -0.0]), np.float32([1, 0])])
    write_rows(tmp_path / "1", [np.int64(7), np.int64(7), np.int64(7), np.int64(8)])
    golden = Golden(order(tmp_path, 4, "x", "n"), Sheet(TensorSpec("x", (None, 2), "float32"), TensorSpec("n", (None,), "int64")))
    first, same, signed, other = (golden.contents[row] for row in range(4))
    assert first == same
    assert len({first, signed, other}) == 3


def test_rows_of_different_shapes_do_not_share_a_batch(tmp_path: Path) -> None:
    write_rows(tmp_path / "0", [np.zeros(length, dtype=np.float32) for length in (2, 3, 2)])
    golden = Golden(order(tmp_path, 3, "x"), Sheet(TensorSpec("x", (None, None), "float32")))
    assert golden.plan(2) == [(0, 2), (1, 1)]


def test_an_absent_row_is_in_no_batch(tmp_path: Path) -> None:
    with RowsWriter(tmp_path / "0") as writer:
        writer.append(np.zeros(2, dtype=np.float32))
        writer.append_absent()
        writer.append(np.ones(2, dtype=np.float32))
    golden = Golden(order(tmp_path, 3, "x"), Sheet(TensorSpec("x", (None, 2), "float32")))
    assert golden.present == (0, 2)
    assert golden.plan(2) == [(0, 2)]


def test_tensors_that_do_not_fit_are_refused_before_a_runtime_sees_them(tmp_path: Path) -> None:
    write_rows(tmp_path / "0", [np.zeros((2, 3), dtype=np.float32), np.zeros((2, 3), dtype=np.float32)])
    fits = TensorSpec("x", (None, 2, 3), "float32")
    assert refusal(tmp_path, 0, Sheet(fits), "x")[0] == "KP101"
    for sheet, telling in (
        (Sheet(TensorSpec("y", (None, 2, 3), "float32")), "takes ['y']"),
        (Sheet(TensorSpec("x", (None, 2, 3), "float64")), "float64"),
        (Sheet(TensorSpec("x", (None, 3, 2), "float32")), "(3, 2)"),
        (Sheet(TensorSpec("x", (None, 2), "float32")), "(2)"),
        (Sheet(fits, takes={"x": "uint8"}), "kpipe doesn't cast"),
    ):
        code, cause = refusal(tmp_path, 2, sheet, "x")
        assert code == "KP104"
        assert telling in cause
    assert "2 prepared rows; the job says 3" in refusal(tmp_path, 3, Sheet(fits), "x")[1]


def test_whole_numbers_that_a_smaller_dtype_cannot_hold_are_found(tmp_path: Path) -> None:
    write_rows(tmp_path / "0", [np.int64([1, 2]), np.int64([2**31 - 1, 2**31 + 5])])
    golden = Golden(order(tmp_path, 2, "ids"), Sheet(TensorSpec("ids", (None, 2), "int64")))
    assert golden.narrowed({"uint64": "uint32"}) is None
    found = golden.narrowed({"int64": "int32"})
    assert found is not None
    assert (found.row, found.value, found.becomes) == (1, 2**31 + 5, -(2**31) + 5)


# ---------------------------------------------------------------- names and settings


def run_job(inputs: dict[str, str], outputs: dict[str, str]) -> RunJob:
    signature = Signature((TensorSpec("x", (None, 2), "float32"),), (TensorSpec("p", (None, 2), "float32"), TensorSpec("q", (None, 2), "float32")))
    return RunJob("litert", "m", Trust(), signature, Binding(inputs, outputs), "t", ("x",), 1, ())


GOOD = {"p": "out:0", "q": "out:1"}


def test_names_are_bound_where_both_sides_have_exactly_them() -> None:
    signature, binding = bound(run_job({"x": "in"}, GOOD), ["in"], ["out:1", "out:0"])
    assert [spec.name for spec in signature.outputs] == ["p", "q"]
    assert binding.outputs == GOOD


@pytest.mark.parametrize(
    ("inputs", "outputs", "artifact_inputs", "artifact_outputs", "code", "telling"),
    [
        ({"x": "in"}, GOOD, ["in"], ["out:0"], "KP407", "no output 'out:1'"),
        ({"x": "in"}, GOOD, ["in"], ["out:0", "out:1", "out:2"], "KP407", "'out:2', which the model doesn't have"),
        ({"x": "in"}, {"p": "out:0", "q": "out:0"}, ["in"], ["out:0"], "KP407", "Two outputs"),
        ({"x": "in"}, {"p": "out:0"}, ["in"], ["out:0"], "KP407", "the model has ['p', 'q']"),
        ({"x": "in"}, GOOD, ["in", "mean"], ["out:0", "out:1"], "KP207", "'mean', which the model doesn't have"),
        ({"x": "in"}, GOOD, [], ["out:0", "out:1"], "KP207", "no input 'in'"),
    ],
)
def test_a_name_too_few_or_too_many_is_refused(
    inputs: dict[str, str], outputs: dict[str, str], artifact_inputs: list[str], artifact_outputs: list[str], code: str, telling: str
) -> None:
    with pytest.raises(StageError) as caught:
        bound(run_job(inputs, outputs), artifact_inputs, artifact_outputs)
    assert caught.value.observation.code == code
    assert telling in caught.value.observation.cause


def test_an_unknown_setting_is_refused_with_the_nearest_known_one() -> None:
    check_settings("R", {"threads": 1}, ("threads", "delegate"))
    with pytest.raises(StageError) as caught:
        check_settings("R", {"treads": 1}, ("threads", "delegate"))
    assert caught.value.observation.code == "KP303"
    assert "'treads'" in caught.value.observation.cause
    assert "'threads'" in caught.value.observation.remedy


@pytest.mark.parametrize("value", [0, -1, True, "2", 1.5, None])
def test_a_count_is_a_whole_number_above_zero(value: object) -> None:
    with pytest.raises(StageError, match="whole number"):
        check_count("R", "threads", value)


def test_a_switch_is_not_a_number() -> None:
    assert check_value("R", "delegate", value=True, allowed=(True, False)) is True
    with pytest.raises(StageError, match="1"):
        check_value("R", "delegate", 1, (True, False))


def test_a_message_is_shown_without_source_lines() -> None:
    message = "Exception from src/inference/src/cpp/core.cpp:117:\nCheck 'a' failed at x\nNotFound: Unsupported\n\n"
    assert telling_line(RuntimeError(message)) == "NotFound: Unsupported"
    assert telling_line(RuntimeError("Load model from /home/me/model.onnx failed:Bad opset")) == "Bad opset"
    assert telling_line(RuntimeError("")) == "RuntimeError"
    assert len(telling_line(RuntimeError("x" * 5000))) == 400


def test_openvino_values_are_compared_as_openvino_reads_them() -> None:
    assert same(asked="YES", effective=True)
    assert same("2", 2)
    assert same("f32", "F32")
    assert not same("f16", "bf16")


def test_the_precision_of_a_graph_is_that_of_its_floats() -> None:
    assert tf_precision(["int32", "float32", "float16"]) == "float16, float32 (declared)"
    assert tf_precision(["int32", "bool"]) == "bool, int32 (declared)"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("std::bad_alloc"),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 562949953421312 bytes."),
        RuntimeError("OOM when allocating tensor with shape[16777216,8388608]"),
        RuntimeError(f"{'x' * 500} Failed to allocate memory for requested buffer of size 9"),
    ],
)
def test_a_want_of_memory_stays_one_that_the_orchestrator_knows(error: Exception) -> None:
    for ends in (raise_if_out_of_memory, lambda e: load_refused("R", e)):
        with pytest.raises(MemoryError) as caught:
            ends(error)
        assert any(sign in f"{type(caught.value).__name__}: {caught.value}" for sign in MEMORY_SIGNS)
        assert caught.value is error or caught.value.__cause__ is error


def test_a_refusal_is_not_taken_for_a_want_of_memory() -> None:
    refusal = ValueError("Got: 2 Expected: 1")
    raise_if_out_of_memory(refusal)
    assert load_refused("R", refusal).observation.code == "KP303"


# ---------------------------------------------------------------- the clock's rules


def test_a_gap_is_taken_relative_to_the_largest_magnitude_of_the_answer() -> None:
    answer = np.float32([1, -4, np.inf, np.nan])
    assert relative(0.0, answer) == 0.0
    assert relative(1.0, answer) == 0.25
    assert relative(math.inf, answer) == math.inf
    assert relative(1e-30, np.float32([0, 0])) == math.inf
    assert relative(1.0, np.int64([100])) == math.inf


@given(st.lists(st.floats(1e-6, 1.0), max_size=2 * WINDOW - 1))
def test_no_verdict_on_stability_before_two_windows(seconds: list[float]) -> None:
    assert not is_stable(seconds)


@given(st.floats(1e-6, 10.0), st.floats(0.0, 0.2), st.lists(st.floats(1e-6, 10.0), max_size=30))
def test_stable_where_the_last_two_medians_agree_within_the_bound(level: float, gap: float, before: list[float]) -> None:
    seconds = before + [level] * WINDOW + [level * (1 - gap)] * WINDOW
    if abs(gap - STABLE) > 1e-9:
        assert is_stable(seconds) == (gap < STABLE)


@given(st.lists(st.floats(1e-6, 1.0), min_size=2 * WINDOW, max_size=40), st.floats(0.5, 2.0))
def test_stability_has_no_unit(seconds: list[float], factor: float) -> None:
    before, now = sorted(seconds[-2 * WINDOW : -WINDOW]), sorted(seconds[-WINDOW:])
    a, b = sum(before[4:6]) / 2, sum(now[4:6]) / 2
    if abs(abs(a - b) / max(a, b) - STABLE) > 1e-6:
        assert is_stable(seconds) == is_stable([value * factor for value in seconds])


def test_one_slow_call_does_not_make_a_window_unstable() -> None:
    assert is_stable([1.0] * WINDOW + [1.0] * (WINDOW - 1) + [50.0])


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_off_inside_and_as_it_was_afterwards(enabled: bool) -> None:
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(KeyError), collector_off():
            {True: "still on"}[gc.isenabled()]
        assert gc.isenabled() == enabled
        assert gc.get_freeze_count() == 0
    finally:
        (gc.enable if was else gc.disable)()

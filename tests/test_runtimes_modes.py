"""The ways of running, on artifacts made by hand to go wrong in one way each, on the real ONNX Runtime and OpenVINO."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kpipe_stages.protocol import Binding, RunJob, Signature, Status, TensorSpec, TimingPlan, Trust
from kpipe_stages.rows import AbsentRowError, RowsWriter, write_rows

from .sample_worker import Told, python, tell

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.runtimes

X = TensorSpec("x", (None, 3), "float32")
Y = TensorSpec("why", (None, 3), "float32")
Z = TensorSpec("total", None, "float32")
INPUTS = np.arange(15, dtype=np.float32).reshape(5, 3)

HANDMADE = """
import sys, numpy as np, onnx, openvino as ov
import openvino.opset13 as op
from onnx import TensorProto as T, helper as h
folder = sys.argv[1]

def save(name, nodes, outputs, batch="n"):
    x = h.make_tensor_value_info("x", T.FLOAT, [batch, 3])
    values = [h.make_tensor_value_info(o, T.FLOAT, shape) for o, shape in outputs]
    graph = h.make_graph(nodes, "g", [x], values)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9), f"{folder}/{name}.onnx")

double = h.make_node("Add", ["x", "x"], ["y"])
save("double", [double], [("y", ["n", 3])])
save("static", [double], [("y", [1, 3])], batch=1)
save("two", [double, h.make_node("Neg", ["x"], ["z"])], [("y", ["n", 3]), ("z", ["n", 3])])
save("total", [double, h.make_node("ReduceSum", ["x"], ["z"], keepdims=0)], [("y", ["n", 3]), ("z", [])])
save("random", [h.make_node("RandomNormalLike", ["x"], ["r"]), h.make_node("Add", ["x", "r"], ["y"])], [("y", ["n", 3])])
save("erfc", [h.make_node("Erfc", ["x"], ["y"])], [("y", ["n", 3])])
save("mixing", [h.make_node("CumSum", ["x", "axis"], ["y"])], [("y", ["n", 3])])
hungry = [
    h.make_node("Shape", ["x"], ["n"], end=1),
    h.make_node("Sub", ["n", "one"], ["more"]),
    h.make_node("Mul", ["more", "huge"], ["size"]),
    h.make_node("ConstantOfShape", ["size"], ["zeros"]),
    h.make_node("ReduceSum", ["zeros"], ["zero"], keepdims=0),
    h.make_node("Add", ["x", "zero"], ["y"]),
]
save("hungry", hungry, [("y", ["n", 3])])
graph = onnx.load(f"{folder}/hungry.onnx")
graph.graph.initializer.extend([h.make_tensor("one", T.INT64, [1], [1]), h.make_tensor("huge", T.INT64, [1], [2**47])])
onnx.save(graph, f"{folder}/hungry.onnx")
graph = onnx.load(f"{folder}/mixing.onnx")
graph.graph.initializer.append(h.make_tensor("axis", T.INT64, [], [0]))
onnx.save(graph, f"{folder}/mixing.onnx")

x = op.parameter([-1, 3], ov.Type.f32, name="x")
y = op.convert(x, "bf16")
y.output(0).tensor.set_names({"y"})
x.output(0).tensor.set_names({"x"})
ov.save_model(ov.Model([op.result(y)], [x]), f"{folder}/bf16.xml", compress_to_fp16=False)
"""


class Shelf:
    """The handmade artifacts and the tensors for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def tell(self, name: str, *outputs: TensorSpec, runtime: str = "onnxruntime", time: bool = False, path: str = "", **changes: Any) -> Told:
        self.count += 1
        suffix = "onnx" if runtime == "onnxruntime" else "xml"
        names = {"why": "y", "total": "z"}
        order = RunJob(
            runtime=runtime,
            artifact=str(self.folder / f"{name}.{suffix}"),
            trust=Trust(),
            signature=Signature((X,), outputs),
            binding=Binding({"x": "x"}, {spec.name: names[spec.name] for spec in outputs}),
            tensors=str(self.folder / "tensors"),
            names=("x",),
            rows=len(INPUTS),
            batches=(2, 3),
            timing=TimingPlan(calls=5, end_to_end_calls=0, max_warmup=3),
        )
        return tell(
            f"run_{runtime}", replace(order, **changes), self.folder / "runs" / str(self.count), self.folder / "home", time=time, first_on_path=path
        )


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    folder = tmp_path_factory.mktemp("shelf")
    python(HANDMADE, folder)
    write_rows(folder / "tensors" / "0", list(INPUTS))
    return Shelf(folder)


def test_a_refused_batch_is_a_failed_mode_and_the_rest_goes_on(shelf: Shelf) -> None:
    told = shelf.tell("static", Y, time=True)
    assert told.run.modes == ("alone",)
    assert set(told.run.failed) == {"batch_2", "batch_3"}
    assert (told.run.fixed_batch, told.run.lonely_rows) == (None, {})
    assert "Got: 2 Expected: 1" in told.run.failed["batch_2"]
    assert told.run.repeats_equal is True
    assert told.timed.model_only is not None
    assert not (told.folder / "outputs" / "batch_2" / "0.values.npy").exists()


def test_a_fixed_batch_of_one_offers_no_batches(shelf: Shelf) -> None:
    run = shelf.tell("static", Y, fixed_batch=1).run
    assert (run.modes, run.not_offered, run.failed) == (("alone",), ("batch_2", "batch_3"), {})
    assert (run.fixed_batch, run.lonely_rows) == (1, {})


def test_a_fixed_batch_is_filled_with_the_row_and_also_run_on_different_rows(shelf: Shelf) -> None:
    told = shelf.tell("double", Y, fixed_batch=4)
    assert told.run.modes == ("alone", "batch_4")
    assert told.run.not_offered == ("batch_2", "batch_3")
    assert (told.run.fixed_batch, told.run.lonely_rows) == (4, {"batch_4": ()})
    for mode in told.run.modes:
        np.testing.assert_array_equal(np.stack(list(told.rows(mode, "why"))), INPUTS + INPUTS)


def test_rows_that_never_had_another_beside_them_are_told_by_mode(shelf: Shelf) -> None:
    write_rows(shelf.folder / "alike" / "0", [INPUTS[0], INPUTS[0], INPUTS[1]])
    assert shelf.tell("double", Y, tensors=str(shelf.folder / "alike"), rows=3).run.lonely_rows == {"batch_2": (0, 1), "batch_3": ()}
    write_rows(shelf.folder / "single" / "0", [INPUTS[0]])
    assert shelf.tell("double", Y, tensors=str(shelf.folder / "single"), rows=1).run.lonely_rows == {"batch_2": (0,), "batch_3": (0,)}


def test_too_little_memory_is_not_the_artifact_s_refusal(shelf: Shelf) -> None:
    assert shelf.tell("hungry", Y, batches=()).run.modes == ("alone",)
    told = shelf.tell("hungry", Y)  # two rows take 2**49 bytes
    assert told.result.status is Status.FAILED
    assert told.result.observations == ()
    assert told.result.failure is not None
    assert told.result.failure.type == "MemoryError"
    assert "Failed to allocate memory" in told.result.failure.message


def test_rows_that_leak_into_one_another_show_only_in_batches(shelf: Shelf) -> None:
    told = shelf.tell("mixing", Y)
    np.testing.assert_array_equal(np.stack(list(told.rows("alone", "why"))), INPUTS)
    batch = np.stack(list(told.rows("batch_2", "why")))
    np.testing.assert_array_equal(batch[[0, 2, 4]], INPUTS[[0, 2, 4]])
    np.testing.assert_array_equal(batch[[1, 3]], INPUTS[[0, 2]] + INPUTS[[1, 3]])


def test_an_output_without_a_batch_axis_is_every_row_s_answer(shelf: Shelf) -> None:
    told = shelf.tell("total", Y, Z, batches=(2,), time=True)
    assert told.run.unbatched == {"alone": ("total",), "batch_2": ("total",)}
    assert [float(value) for value in told.rows("alone", "total")] == INPUTS.sum(axis=1).tolist()
    assert float(told.rows("batch_2", "total")[1]) == INPUTS[:2].sum()
    latency = told.timed.model_only
    assert latency is not None
    assert latency.worst_difference == 0.0


def test_a_random_artifact_is_not_repeatable_and_its_timed_answers_differ(shelf: Shelf) -> None:
    told = shelf.tell("random", Y, batches=(), time=True)
    assert told.run.repeats_equal is False
    assert told.run.repeat_difference > 0
    latency = told.timed.model_only
    assert latency is not None
    assert latency.worst_difference > 0


def test_nothing_is_said_of_repeats_where_none_were_run(shelf: Shelf) -> None:
    assert shelf.tell("double", Y, batches=(), repeat=0).run.repeats_equal is None


def test_an_op_that_the_runtime_does_not_have_is_named(shelf: Shelf) -> None:
    told = shelf.tell("erfc", Y)
    assert told.code == "KP202"
    assert told.result.observations[-1].place == "Erfc"


def test_an_output_that_the_model_does_not_have_is_not_dropped(shelf: Shelf) -> None:
    told = shelf.tell("two", Y)
    assert told.code == "KP407"
    assert "'z'" in told.result.observations[-1].cause


def test_absent_golden_inputs_are_not_run_and_stay_absent(shelf: Shelf) -> None:
    folder = shelf.folder / "gaps"
    with RowsWriter(folder / "0") as writer:
        for row in (INPUTS[0], None, INPUTS[2]):
            writer.append_absent() if row is None else writer.append(row)
    told = shelf.tell("double", Y, tensors=str(folder), rows=3, time=True)
    for mode in ("alone", "batch_2", "batch_3"):
        rows = told.rows(mode, "why")
        assert len(rows) == 3
        assert rows.absent == {1}
        np.testing.assert_array_equal(rows[2], INPUTS[2] * 2)
        with pytest.raises(AbsentRowError):
            rows[1]
    assert told.timed.model_only is not None


def test_a_batch_larger_than_the_golden_set_is_filled_up(shelf: Shelf) -> None:
    told = shelf.tell("double", Y, batches=(2, 7))
    assert told.run.modes == ("alone", "batch_2", "batch_7")
    np.testing.assert_array_equal(np.stack(list(told.rows("batch_7", "why"))), INPUTS * 2)


def test_a_bfloat16_output_is_read_as_bfloat16(shelf: Shelf) -> None:
    bfloat16 = replace(Y, dtype="bfloat16")
    told = shelf.tell("bf16", bfloat16, runtime="openvino_ir", chosen={"INFERENCE_PRECISION_HINT": "f32"})
    assert told.rows("alone", "why").dtype == "bfloat16"
    np.testing.assert_array_equal(np.stack(list(told.rows("batch_3", "why"))), INPUTS)  # small whole numbers are exact in bfloat16


def test_settings_take_effect_and_wrong_values_are_refused_by_name(shelf: Shelf) -> None:
    run = shelf.tell("double", Y, batches=(), settings={"graph_optimization_level": "basic", "intra_op_num_threads": 1}).run
    assert run.facts["effective_settings"]["graph_optimization_level"] == "ORT_ENABLE_BASIC"
    assert run.facts["effective_settings"]["intra_op_num_threads"] == 1
    told = shelf.tell("double", Y, settings={"graph_optimization_level": "bsic"})
    assert told.code == "KP303"
    assert "'basic'" in told.result.observations[-1].cause
    told = shelf.tell("bf16", replace(Y, dtype="bfloat16"), runtime="openvino_ir", settings={"INFERENCE_PRECISION_HINT": "f31"})
    assert told.code == "KP303"
    assert "f31" in told.result.observations[-1].cause


def test_threads_are_passed_on(shelf: Shelf) -> None:
    assert shelf.tell("double", Y, batches=(), threads=1).run.facts["effective_settings"]["intra_op_num_threads"] == 1
    told = shelf.tell("bf16", replace(Y, dtype="bfloat16"), runtime="openvino_ir", batches=(), threads=1)
    assert told.run.facts["effective_settings"]["INFERENCE_NUM_THREADS"] == 1


def test_progress_is_told(shelf: Shelf) -> None:
    events = shelf.tell("double", Y).events
    assert [event["phase"] for event in events if event["event"] == "phase"] == ["import", "load", "run"]
    assert any(event["event"] == "progress" and event["total"] == len(INPUTS) for event in events)


def test_a_runtime_that_does_not_import_is_not_installed(shelf: Shelf) -> None:
    broken = shelf.folder / "broken" / "onnxruntime"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('libgomp.so.1: cannot open shared object file')")
    told = shelf.tell("double", Y, path=str(broken.parent))
    assert told.code == "KP301"
    assert "libgomp" in told.result.observations[-1].cause


def test_a_framework_that_could_lend_its_ops_is_not_let_in(shelf: Shelf) -> None:
    lender = shelf.folder / "lender"
    (lender / "tensorflow").mkdir(parents=True)
    (lender / "tensorflow" / "__init__.py").touch()
    (lender / "sitecustomize.py").write_text("import tensorflow")
    told = shelf.tell("double", Y, path=str(lender))
    assert told.code == "KP310"
    assert told.result.observations[-1].place == "tensorflow"

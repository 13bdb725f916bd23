"""Every runtime for real: one Keras model, exported once, run through the worker protocol."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import decode
from kpipe_stages.decisions import decide_rows
from kpipe_stages.preprocess import Preprocessor
from kpipe_stages.protocol import (
    Artifact,
    ArtifactResult,
    DecisionSpec,
    ExportJob,
    ExportOpenvinoJob,
    ExportResult,
    GoldenItem,
    InputSpec,
    RunJob,
    Signature,
    Status,
    TimingPlan,
    Trust,
)
from kpipe_stages.rows import write_rows

from .sample_worker import Told, python, tell

pytestmark = pytest.mark.runtimes

ROWS = 5
SEED = 20
STATIC_BATCH = 4

BUILD = """
import sys, numpy as np, keras
from keras import layers
folder = sys.argv[1]
keras.utils.set_random_seed(7)
picture = keras.Input((6, 6, 1), name="zebra")
code = keras.Input((3,), dtype="int64", name="apple")
features = layers.Flatten()(layers.Conv2D(4, 3, activation="relu")(picture))
words = layers.Flatten()(layers.Embedding(16, 4)(code))
joined = layers.BatchNormalization()(layers.Concatenate()([features, words]))
late = layers.Dense(4, activation="softmax", name="late")(layers.Dropout(0.5)(joined))
early = layers.Dense(2, name="early")(joined)
model = keras.Model([picture, code], [late, early])
model.save(folder + "/model.keras")
tensors = np.load(folder + "/tensors.npz")
answers = model([tensors["zebra"], tensors["apple"]], training=False)
np.savez(folder + "/expected.npz", late=answers[0], early=answers[1])

sys.path.insert(0, folder)
import noisy
x = keras.Input((3,), name="x")
keras.Model(x, layers.Dense(2, name="y")(noisy.Noisy()(x))).save(folder + "/noisy.keras")
keras.Model(x, noisy.Branching(name="y")(x)).save(folder + "/branching.keras")
x = keras.Input(batch_shape=(4, 3), name="x")
keras.Model(x, layers.Dense(2, name="y")(x)).save(folder + "/static.keras")
"""

NOISY = """
import keras

@keras.saving.register_keras_serializable("tests")
class Noisy(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.generator = keras.random.SeedGenerator(3)

    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x), seed=self.generator)

@keras.saving.register_keras_serializable("tests")
class Branching(keras.layers.Layer):
    def call(self, x):
        return x * 2 if float(keras.ops.convert_to_numpy(x).sum()) > 0 else x

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, x.dtype)
"""

IMAGE = InputSpec("zebra", "image", ({"channels": "gray"}, {"scale": 1 / 255}))
CODE = InputSpec("apple", "npy")
DECISION = DecisionSpec(rule="argmax", output="late", labels=("n", "e", "s", "w"))


@dataclass
class Product:
    """A model, its artifacts, its golden inputs and the answers that Keras gives on TensorFlow."""

    folder: Path
    signature: Signature
    artifacts: dict[str, Artifact]
    items: tuple[GoldenItem, ...]
    expected: dict[str, np.ndarray]
    count: int = 0

    def order(self, runtime: str, **changes: Any) -> RunJob:
        row = RUNTIMES[runtime]
        order = RunJob(
            runtime=runtime,
            artifact=str(self.folder / "model.keras"),
            trust=Trust(),
            signature=None,
            binding=None,
            tensors=str(self.folder / "tensors"),
            names=("zebra", "apple"),
            rows=ROWS,
            batches=(2, 3),
            chosen=dict(row.float32_settings),
            items=self.items,
            inputs=(IMAGE, CODE),
            decisions=(DECISION,),
            timing=TimingPlan(calls=12, end_to_end_calls=11, max_warmup=25, max_seconds=20.0),
            cache=str(self.folder / "cache"),
        )
        if row.artifact != "keras":
            artifact = self.artifacts[row.artifact]
            order = replace(
                order,
                artifact=artifact.path,
                sha256=artifact.sha256,
                companions=artifact.companions,
                signature=self.signature,
                binding=artifact.binding,
                fixed_batch=row.only_batch(artifact.batch),
            )
        return replace(order, **changes)

    def tell(self, order: RunJob, *, time: bool = False, backend: str | None = None, path: str = "") -> Told:
        self.count += 1
        folder = self.folder / "runs" / f"{order.runtime}_{self.count}"
        backend = backend or RUNTIMES[order.runtime].keras_backend
        return tell(f"run_{order.runtime}", order, folder, self.folder / "home", backend, time=time, first_on_path=path)


def golden_files(folder: Path) -> tuple[GoldenItem, ...]:
    """Raw files, and their tensors below ``tensors`` and in ``tensors.npz``."""
    random = np.random.default_rng(SEED)
    items, tensors = [], {"zebra": [], "apple": []}
    for index in range(ROWS):
        files = {"zebra": str(folder / f"{index}.png"), "apple": str(folder / f"{index}.npy")}
        Image.fromarray(random.integers(0, 256, (6, 6), dtype=np.uint8)).save(files["zebra"])
        np.save(files["apple"], random.integers(0, 16, 3))
        items.append(GoldenItem(f"item-{index}", files, {}))
        for spec in (IMAGE, CODE):
            tensors[spec.name].append(Preprocessor(spec).from_path(files[spec.name]))
    for position, name in enumerate(("zebra", "apple")):
        write_rows(folder / "tensors" / str(position), tensors[name])
    np.savez(folder / "tensors.npz", **{name: np.stack(rows) for name, rows in tensors.items()})
    return tuple(items)


@pytest.fixture(scope="session")
def product(tmp_path_factory: pytest.TempPathFactory) -> Product:
    folder = tmp_path_factory.mktemp("product")
    items = golden_files(folder)
    (folder / "noisy.py").write_text(NOISY)
    python(BUILD, folder, "tensorflow")
    job = ExportJob(str(folder / "model.keras"), Trust(), ("saved_model", "litert", "onnx"), str(folder / "artifacts"))
    told = tell("export", job, folder / "export", folder / "home", "tensorflow")
    exported = decode(ExportResult, told.result.data)
    artifacts = {artifact.format: artifact for artifact in exported.artifacts}
    assert set(artifacts) == {"saved_model", "litert", "onnx"}, told.result.observations
    saved = artifacts["saved_model"]
    told = tell(
        "export_openvino", ExportOpenvinoJob(saved.path, exported.signature, saved.binding, str(folder / "ir")), folder / "export_ov", folder / "home"
    )
    ir = decode(ArtifactResult, told.result.data).artifact
    assert ir is not None, told.result.observations
    with np.load(folder / "expected.npz") as expected:
        return Product(folder, exported.signature, artifacts | {"openvino_ir": ir}, items, dict(expected))


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize("runtime", [name for name in RUNTIMES if name != "litert_compiled"])  # it takes no int64; see test_variants_runs
def test_a_runtime_answers_by_name_alone_and_in_batches_and_is_timed(product: Product, runtime: str) -> None:
    row = RUNTIMES[runtime]
    order = product.order(runtime, probe_default=bool(row.float32_settings), probe_training_unset=row.artifact == "keras")
    told = product.tell(order, time=True)
    run, timed = told.run, told.timed
    expected_modes = ("alone", "batch_2", "batch_3", *(("machine_default",) if row.float32_settings else ()))
    assert run.modes == expected_modes
    assert (run.not_offered, run.failed, run.unbatched) == ((), {}, {})
    assert [spec.name for spec in run.signature.inputs] == ["zebra", "apple"]
    assert [spec.name for spec in run.signature.outputs] == ["late", "early"]
    for mode in ("alone", "batch_2", "batch_3"):
        for name, expected in product.expected.items():
            rows = told.rows(mode, name)
            assert len(rows) == ROWS
            np.testing.assert_allclose(np.stack(list(rows)), expected, rtol=1e-5, atol=1e-6, err_msg=f"{mode} {name}")
    assert {told.rows("alone", name).dtype for name in product.expected} == {"float32"}
    assert (run.lonely_rows, run.fixed_batch) == ({"batch_2": (), "batch_3": ()}, None)
    assert (run.decoded_here, run.tensor_mismatches) == (True, ())
    assert (run.repeats_equal, run.repeat_difference) == (True, 0.0)
    assert run.training_unset_repeats is (True if row.artifact == "keras" else None)
    assert run.effective_precision in {"float32", "float32 (declared)"}
    assert min(run.load.import_s, run.load.load_s, run.load.first_s) > 0
    assert run.devices
    identity = told.result.identity
    assert identity is not None
    assert row.distributions[0] in identity.versions
    assert identity.backend == (row.keras_backend if row.artifact == "keras" else identity.backend)
    assert told.result.observations == ()
    for latency, calls in ((timed.model_only, 12), (timed.end_to_end, 11)):
        assert latency is not None
        assert (len(latency.seconds), latency.compared) == (calls, calls)
        assert min(latency.seconds) > 0
        assert max(latency.worst_difference, latency.worst_relative) < 1e-5
        assert latency.decision_changes == 0
        assert 1 <= latency.warmup_calls <= 25


@pytest.mark.parametrize("runtime", ["litert", "onnxruntime", "openvino", "openvino_ir"])
def test_a_light_runtime_runs_without_tensorflow_and_refuses_settings_it_does_not_know(product: Product, runtime: str) -> None:
    told = product.tell(product.order(runtime, load_only=True))
    assert told.run.modes == ()
    assert told.run.decoded_here is None
    assert told.run.facts["tensorflow_loaded"] is False
    assert not (told.folder / "outputs").exists()
    refused = product.tell(product.order(runtime, settings={"INFERENCE_PRECISION": "f32"}))
    assert refused.code == "KP303"
    assert "INFERENCE_PRECISION" in refused.result.observations[-1].cause


def test_the_compiled_model_api_names_what_it_has_no_buffers_for(product: Product) -> None:
    refused = product.tell(product.order("litert_compiled", load_only=True))
    assert (refused.code, refused.result.observations[-1].place) == ("KP303", "apple")
    assert "has no buffers of int64, which 'apple' is" in refused.result.observations[-1].cause


# ---------------------------------------------------------------- Keras


def noisy_order(product: Product, runtime: str, **changes: Any) -> RunJob:
    write_rows(product.folder / "ones" / "0", [np.ones(3, dtype=np.float32)] * 3)
    trust = Trust(custom_objects=(str(product.folder / "noisy.py"),))
    order = product.order(runtime, artifact=str(product.folder / "noisy.keras"), trust=trust, tensors=str(product.folder / "ones"), names=("x",))
    return replace(order, rows=3, items=(), inputs=(), decisions=(), **changes)


def test_compiling_the_reference_does_not_hide_that_it_is_random(product: Product) -> None:
    run = product.tell(noisy_order(product, "jax", probe_training_unset=True)).run
    assert run.repeats_equal is False
    assert run.repeat_difference > 0.01
    assert run.training_unset_repeats is False
    assert run.facts["execution"].startswith("jax.jit")


def test_a_model_that_cannot_be_traced_is_called_operator_by_operator_and_it_is_said(product: Product) -> None:
    write_rows(product.folder / "signs" / "0", [np.full(3, sign, dtype=np.float32) for sign in (1, -1, 2)])
    order = noisy_order(product, "jax", batches=(2,))
    told = product.tell(replace(order, artifact=str(product.folder / "branching.keras"), tensors=str(product.folder / "signs")))
    assert told.run.facts["execution"].startswith("operator by operator (can't be traced: ")
    assert [row.tolist() for row in told.rows("alone", "y")] == [[2.0] * 3, [-1.0] * 3, [4.0] * 3]
    assert told.rows("batch_2", "y")[0].tolist() == [1.0] * 3  # 1 and -1 add up to 0: the batch decides otherwise, and that is kept


def test_a_keras_worker_on_another_backend_stops(product: Product) -> None:
    told = product.tell(product.order("jax"), backend="openvino")
    assert told.code == "KP310"
    assert "openvino" in told.result.observations[-1].cause


def test_whole_numbers_that_jax_would_wrap_stop_the_reference(product: Product) -> None:
    folder = product.folder / "large"
    write_rows(folder / "0", [np.zeros((6, 6, 1), dtype=np.float32)])
    write_rows(folder / "1", [np.int64([1, 2, 2**31 + 5])])
    told = product.tell(product.order("jax", tensors=str(folder), rows=1, items=()))
    assert told.code == "KP110"
    assert str(2**31 + 5) in told.result.observations[-1].cause


def test_a_batch_axis_that_the_model_fixes_is_kept(product: Product) -> None:
    write_rows(product.folder / "three" / "0", [np.arange(3, dtype=np.float32) + n for n in range(3)])
    order = product.order("keras_openvino", artifact=str(product.folder / "static.keras"), tensors=str(product.folder / "three"), names=("x",))
    told = product.tell(replace(order, rows=3, items=(), inputs=(), decisions=()))
    assert told.run.modes == ("alone", f"batch_{STATIC_BATCH}")
    assert told.run.not_offered == ("batch_2", "batch_3")
    assert (told.run.fixed_batch, told.run.decoded_here) == (STATIC_BATCH, None)
    np.testing.assert_allclose(np.stack(list(told.rows("alone", "y"))), np.stack(list(told.rows(f"batch_{STATIC_BATCH}", "y"))), rtol=1e-5)


# ---------------------------------------------------------------- raw files and timing

NOTHING_TIMED = TimingPlan(calls=0, end_to_end_calls=0)
RANKED = replace(DECISION, rule="top_k", k=4)
LENIENT = replace(DECISION, rule="tolerance", atol=1e6, name="lenient")
"""Never decides otherwise."""


def test_a_tensor_that_differs_in_this_process_is_named_and_so_are_the_decisions_it_changes(product: Product) -> None:
    ranks = [decision.value for decision in decide_rows(RANKED, product.expected["late"])]
    one, other = next((i, j) for i in range(ROWS) for j in range(ROWS) if ranks[i] != ranks[j])
    items = list(product.items)
    items[one] = replace(items[one], files=product.items[other].files)
    told = product.tell(product.order("litert", items=tuple(items), decisions=(LENIENT, RANKED)), time=True)
    assert (told.run.decoded_here, told.run.tensor_mismatches) == (True, (f"item-{one}",))
    latency = told.timed.end_to_end
    assert latency is not None
    assert min(latency.worst_difference, latency.worst_relative) > 1e-3
    assert latency.decision_changes == sum(call % ROWS == one for call in range(len(latency.seconds)))
    assert told.timed.model_only is not None
    assert told.timed.model_only.decision_changes == 0


def test_tensors_are_compared_where_nothing_is_timed(product: Product) -> None:
    items = (replace(product.items[1], id="item-0"), *product.items[1:])
    run = product.tell(product.order("onnxruntime", items=items, timing=NOTHING_TIMED)).run
    assert (run.decoded_here, run.tensor_mismatches) == (True, ("item-0",))


def test_a_raw_file_that_no_longer_decodes_is_named_and_nothing_is_timed_from_it(product: Product) -> None:
    broken = product.folder / "broken.png"
    broken.write_bytes(b"not a picture")
    items = (replace(product.items[0], files=product.items[0].files | {"zebra": str(broken)}), *product.items[1:])
    told = product.tell(product.order("litert", items=items), time=True)
    assert (told.run.decoded_here, told.run.tensor_mismatches) == (True, ("item-0",))
    assert told.timed.end_to_end is None
    assert told.timed.model_only is not None


def test_an_interpreter_that_cannot_decode_says_so(product: Product) -> None:
    without = product.folder / "without_pillow"
    (without / "PIL").mkdir(parents=True)
    (without / "PIL" / "__init__.py").write_text("raise ImportError('libjpeg.so.62: cannot open shared object file')")
    told = product.tell(product.order("onnxruntime"), path=str(without), time=True)
    assert (told.run.decoded_here, told.run.tensor_mismatches) == (False, ())
    assert told.timed.end_to_end is None
    assert told.timed.model_only is not None


def test_time_stops_at_its_bound_after_one_call_at_least(product: Product) -> None:
    plan = TimingPlan(calls=100_000, end_to_end_calls=0, max_warmup=1, max_seconds=0.01)
    latency = product.tell(product.order("onnxruntime", timing=plan), time=True).timed.model_only
    assert latency is not None
    assert 1 <= len(latency.seconds) < 100_000
    assert latency.compared == len(latency.seconds)
    assert not latency.stable
    assert latency.warmup_calls == 1


# ---------------------------------------------------------------- artifacts and names


def test_an_artifact_that_is_gone_or_another_is_refused(product: Product) -> None:
    order = product.order("onnxruntime")
    assert product.tell(replace(order, artifact=str(product.folder / "none.onnx"))).code == "KP210"
    assert product.tell(replace(order, sha256="0" * 64)).code == "KP211"


def test_the_wrong_file_is_a_load_failure_with_the_runtime_s_reason(product: Product) -> None:
    text = product.folder / "noisy.py"
    for runtime, telling in (("onnxruntime", "Protobuf"), ("litert", "Flatbuffer"), ("openvino_ir", "")):
        told = product.tell(product.order(runtime, artifact=str(text), sha256=""))
        assert told.code == "KP303"
        assert telling in told.result.observations[-1].cause


def test_no_golden_inputs_is_never_a_pass(product: Product) -> None:
    assert product.tell(product.order("onnxruntime", rows=0)).code == "KP101"


@pytest.mark.parametrize("runtime", ["litert", "onnxruntime", "openvino_ir"])
def test_tensors_of_another_dtype_are_refused(product: Product, runtime: str) -> None:
    folder = product.folder / f"wide_{runtime}"
    write_rows(folder / "0", [np.zeros((6, 6, 1), dtype=np.float64)])
    write_rows(folder / "1", [np.zeros(3, dtype=np.int64)])
    told = product.tell(product.order(runtime, tensors=str(folder), rows=1, items=()))
    assert told.code == "KP104"
    assert "float64" in told.result.observations[-1].cause


def test_int64_values_beyond_int32_are_noted_where_openvino_may_wrap_them(product: Product) -> None:
    folder = product.folder / "beyond"
    write_rows(folder / "0", [np.zeros((6, 6, 1), dtype=np.float32)])
    write_rows(folder / "1", [np.int64([1, 2, 2**33])])
    told = product.tell(product.order("openvino_ir", tensors=str(folder), rows=1, items=()))
    assert "KP108" in [observation.code for observation in told.result.observations]
    assert told.result.status is Status.OK


@pytest.mark.parametrize("runtime", ["litert", "onnxruntime", "openvino"])
def test_outputs_bound_the_wrong_way_round_give_the_other_output_not_the_same_position(product: Product, runtime: str) -> None:
    order = product.order(runtime)
    assert order.binding is not None
    names = order.binding.outputs
    told = product.tell(replace(order, batches=(), binding=replace(order.binding, outputs={"late": names["early"], "early": names["late"]})))
    np.testing.assert_allclose(np.stack(list(told.rows("alone", "late"))), product.expected["early"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.stack(list(told.rows("alone", "early"))), product.expected["late"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("runtime", "missing"), [("litert", "late"), ("onnxruntime", "late"), ("openvino_ir", "early")])
def test_an_output_that_the_artifact_does_not_have_is_never_skipped(product: Product, runtime: str, missing: str) -> None:
    order = product.order(runtime)
    assert order.binding is not None
    told = product.tell(replace(order, binding=replace(order.binding, outputs=order.binding.outputs | {missing: "nowhere"})))
    assert told.code == "KP407"
    assert "nowhere" in told.result.observations[-1].cause

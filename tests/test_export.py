"""Export for real: models that are hard to convert, each reloaded, traced, written in four formats, opened again and run.

Run as a program, this file does the work of one process (TensorFlow's, then the light runtimes'); the tests start each once and read what it found.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kpipe_stages.codec import decode, encode, write_json
from kpipe_stages.protocol import (
    Artifact,
    ExportJob,
    ExportOpenvinoJob,
    ExportResult,
    Job,
    Observation,
    OpenArtifactJob,
    StageError,
    Trust,
)
from kpipe_stages.worker import Worker

pytestmark = pytest.mark.runtimes

FORMATS = ("saved_model", "litert", "onnx")
LIGHT = ("litert", "onnx", "openvino_ir")
CUSTOM = """
import keras
from keras import layers

@keras.saving.register_keras_serializable("tests")
class Pair(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.left, self.right = layers.Dense(3), layers.Dense(3)

    def build(self, zeta_shape, alpha_shape):
        self.left.build(zeta_shape)
        self.right.build(alpha_shape)

    def call(self, zeta, alpha, training=None):
        return {"sum": self.left(zeta) + self.right(alpha), "parts": [self.left(zeta), self.right(alpha)]}

@keras.saving.register_keras_serializable("tests")
class Late(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = layers.Dense(3)

    def build(self, input_shape):
        pass

    def call(self, inputs):
        return self.inner(inputs)

class Scale(layers.Layer):  # not registered: known by its name alone
    def __init__(self, factor=2.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, inputs):
        return inputs * self.factor

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}
"""


# ---------------------------------------------------------------- the TensorFlow process


def build_models(folder: Path) -> dict[str, dict[str, np.ndarray[Any, Any]]]:
    """Save every model; return its inputs by name."""
    import keras
    from keras import layers, ops

    keras.utils.set_random_seed(3)
    rng = np.random.default_rng(3)
    (folder / "custom.py").write_text(CUSTOM)
    scope: dict[str, Any] = {"__name__": "custom"}
    exec(compile(CUSTOM, "custom.py", "exec"), scope)  # noqa: S102 - the file above, to build from

    def floats(*shape: int) -> np.ndarray[Any, Any]:
        return rng.normal(size=shape).astype(np.float32)

    age, img = keras.Input((3,), name="age (years)"), keras.Input((6, 6, 4), name="img")
    flat = layers.Flatten()(layers.Conv2D(8, 3, groups=2, name="grouped")(img))
    probs = layers.Dense(4, activation="softmax", name="out.put 1")(
        layers.Dense(5, activation="gelu", name="hidden")(layers.Concatenate()([flat, age]))
    )
    tokens = keras.Input((6,), dtype="int32", name="tokens")
    small = keras.Input((5,), name="x")
    text = keras.Input((1,), dtype="string", name="colour")
    sized = keras.Input((None, None, 1), name="img")
    fixed = keras.Input(batch_shape=(1, 4, 3), name="seq")
    custom = {name: value for name, value in scope.items() if isinstance(value, type)}
    pair, late = custom["Pair"](name="pair"), custom["Late"](name="late")
    models = {
        "odd": (
            keras.Model([img, age], [probs, ops.argmax(probs, axis=-1), age, probs], name="my model"),
            {"img": floats(5, 6, 6, 4), "age (years)": floats(5, 3)},
        ),
        "rnn": (
            keras.Model(tokens, layers.Dense(3)(layers.LSTM(4)(layers.Embedding(9, 3, mask_zero=True)(tokens)))),
            {"tokens": rng.integers(0, 9, (5, 6)).astype(np.int32)},
        ),
        "foreign": (keras.Model(small, ops.erfinv(ops.tanh(layers.Dense(2)(small)))), {"x": floats(5, 5)}),
        "lookup": (
            keras.Model(text, layers.Dense(2)(layers.Flatten()(layers.Embedding(5, 30)(layers.StringLookup(vocabulary=["red", "green"])(text))))),
            {"colour": np.array([["red"], ["green"], ["pink"]])},
        ),
        "pair": (pair, {"zeta": floats(5, 4), "alpha": floats(5, 2)}),
        "scaled": (keras.Model(small, custom["Scale"](name="scale")(small)), {"x": floats(5, 5)}),
        "sized": (keras.Model(sized, layers.UpSampling2D(2, interpolation="bilinear", name="up")(sized)), {"img": floats(2, 4, 4, 1)}),
        "stateful": (keras.Model(fixed, layers.LSTM(2, stateful=True, name="memory")(fixed)), {"seq": floats(1, 4, 3)}),
        "dropping": (keras.Model(small, layers.Dropout(0.5)(layers.BatchNormalization()(small))), {"x": floats(5, 5)}),
        "silu": (keras.Model(small, layers.Dense(3, activation="silu")(small)), {"x": floats(5, 5)}),
        "lambda": (keras.Model(small, layers.Lambda(lambda t: t + 1.0, name="plus", output_shape=(5,))(small)), {"x": floats(5, 5)}),
        "late": (late, {"x": floats(5, 5)}),
    }
    pair(models["pair"][1]["zeta"], models["pair"][1]["alpha"])
    late(models["late"][1]["x"])
    for name, (model, _) in models.items():
        model.save(folder / f"{name}.keras")
    return {name: inputs for name, (_, inputs) in models.items()}


def export(folder: Path, name: str, label: str = "", **options: Any) -> ExportResult | None:
    """Run the stage in this process and leave result and observations in ``<label>.json``."""
    from kpipe_stages import export_tensorflow

    label = label or name
    trust = options.pop("trust", Trust(custom_objects=(str(folder / "custom.py"),)))
    params = ExportJob(str(folder / f"{name}.keras"), trust, FORMATS, str(folder / label), **options)
    result: ExportResult | None = perform(folder, label, export_tensorflow.run, params)
    return result


def export_without(folder: Path, module: str, label: str) -> None:
    """Export where a library can't be imported."""
    names = [name for name in sys.modules if name.partition(".")[0] == module]
    kept = {name: sys.modules.pop(name) for name in names}
    sys.modules[module] = None  # type: ignore[assignment]  # Python's own way to say that there is no such module
    try:
        export(folder, "scaled", label)
    finally:
        del sys.modules[module]
        sys.modules.update(kept)


def perform(folder: Path, label: str, stage: Any, params: Any) -> Any:
    """Run any stage on ``params``; its events go to ``<label>.events``."""
    channel = os.open(folder / f"{label}.events", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    worker = Worker("test", folder, channel)
    result = None
    try:
        result = stage(Job(1, "test", "x", str(folder), encode(params)), worker)
    except StageError as error:
        worker.observations.append(error.observation)
    finally:
        os.close(channel)
    write_json(folder / f"{label}.json", {"result": encode(result), "observations": encode(worker.observations)})
    return result


def saved_model_answers(folder: Path, name: str, result: ExportResult, inputs: dict[str, Any]) -> None:
    """What Keras says, and what the SavedModel says to batches and to rows one by one."""
    import tensorflow as tf

    from kpipe_stages.keras_loading import KerasCaller, load_model

    caller = KerasCaller(load_model(str(folder / f"{name}.keras"), Trust(custom_objects=(str(folder / "custom.py"),))))
    save(folder / f"{name}.expected.npz", **{f"o{i}": np.asarray(v) for i, v in enumerate(caller(inputs).values())})
    artifact = next(a for a in result.artifacts if a.format == "saved_model")
    loaded = tf.saved_model.load(artifact.path)
    serve = loaded.signatures["serving_default"]

    def call(feeds: dict[str, Any]) -> dict[str, Any]:
        values = serve(**{artifact.binding.inputs[key]: tf.constant(value) for key, value in feeds.items()})
        return {key: np.asarray(values[other]) for key, other in artifact.binding.outputs.items()}

    save_answers(folder, f"{name}.saved_model", call, inputs, artifact)


def save_answers(folder: Path, label: str, call: Any, inputs: dict[str, Any], artifact: Artifact) -> None:
    """Answers to the whole batch (unless the artifact takes one row only) and to each row."""
    rows = len(next(iter(inputs.values())))
    alone = [call({key: value[i : i + 1] for key, value in inputs.items()}) for i in range(rows)]
    answers = {f"alone_{i}": np.concatenate([row[key] for row in alone]) for i, key in enumerate(artifact.binding.outputs)}
    if artifact.batch != 1:
        answers.update({f"batch_{i}": value for i, value in enumerate(call(inputs).values())})
    save(folder / f"{label}.npz", **answers)


def save(path: Path, **arrays: Any) -> None:
    np.savez(path, **arrays)


def tensorflow_process(folder: Path) -> None:
    """Build, export, and answer."""
    from kpipe_stages import open_artifact

    models = build_models(folder)
    for name in ("odd", "rnn", "foreign", "lookup", "pair", "scaled", "dropping", "silu"):
        result = export(folder, name)
        assert result is not None, f"{name}: {(folder / f'{name}.json').read_text()}"
        save(folder / f"{name}.inputs.npz", **models[name])
        saved_model_answers(folder, name, result, models[name])
    for name in ("sized", "stateful", "late"):
        export(folder, name)
    (folder / "broken.py").write_text("x = 1\n\nraise RuntimeError('no luck')\n")
    export(folder, "odd", "odd_as_is", repairs=False)
    export(folder, "rnn", "rnn_as_is", repairs=False)
    export(folder, "rnn", "rnn_select", allow_select_tf=True)
    export(folder, "scaled", "not_given", trust=Trust())
    export(folder, "scaled", "broken_file", trust=Trust(custom_objects=(str(folder / "broken.py"),)))
    export(folder, "scaled", "no_package", trust=Trust(allow_modules=("no_such_package_here",)))
    export(folder, "lambda", "lambda_refused")
    export(folder, "lambda", "lambda_allowed", trust=Trust(allow_lambda=("plus",)))
    export(folder, "scaled", "altered", sha256="0" * 64)
    export(folder, "scaled", "inspected", sha256=hashlib.sha256((folder / "scaled.keras").read_bytes()).hexdigest())
    export(folder, "none", "gone", sha256="0" * 64)
    export_without(folder, "tf2onnx", "no_converter")
    (folder / "cut.keras").write_bytes((folder / "odd.keras").read_bytes()[:-500])
    export(folder, "cut")
    signature = read(folder, "odd")[0].signature
    perform(folder, "open_saved_model", open_artifact.run, OpenArtifactJob("saved_model", str(folder / "odd" / "saved_model"), signature))
    perform(folder, "open_other", open_artifact.run, OpenArtifactJob("saved_model", str(folder / "rnn" / "saved_model"), signature))


# ---------------------------------------------------------------- the light runtimes' process


def light_process(folder: Path) -> None:
    """Convert to OpenVINO, open every file as if it had been handed in, run it."""
    from kpipe_stages import export_openvino, open_artifact

    for name in ("odd", "rnn", "foreign", "pair", "scaled", "dropping", "silu"):
        result, _ = read(folder, name)
        saved = next(a for a in result.artifacts if a.format == "saved_model")
        job = ExportOpenvinoJob(saved.path, result.signature, saved.binding, str(folder / name), parameters=1, repairs=saved.repairs)
        converted = perform(folder, f"{name}.openvino_ir", export_openvino.run, job)
        artifacts = [*result.artifacts, *([converted.artifact] if converted else [])]
        inputs = dict(np.load(folder / f"{name}.inputs.npz"))
        for artifact in artifacts:
            if artifact.format in LIGHT and not artifact.foreign_ops:
                handed_in = OpenArtifactJob(artifact.format, artifact.path, result.signature)
                perform(folder, f"{name}.{artifact.format}.opened", open_artifact.run, handed_in)
                save_answers(folder, f"{name}.{artifact.format}", CALLS[artifact.format](artifact), inputs, artifact)
    hand_in_wrong_files(folder)
    export_without(folder, "tensorflow", "no_tensorflow")


def hand_in_wrong_files(folder: Path) -> None:
    """Files that are not what they are said to be."""
    from kpipe_stages import open_artifact

    signature = read(folder, "odd")[0].signature
    for label, kind, data in (
        ("cut_onnx", "onnx", (folder / "odd" / "onnx" / "model.onnx").read_bytes()[:-100]),
        ("cut_litert", "litert", (folder / "odd" / "litert" / "model.tflite").read_bytes()[:60]),
        ("not_litert", "litert", (folder / "odd" / "onnx" / "model.onnx").read_bytes()),
        ("empty_onnx", "onnx", b""),
        ("other_onnx", "onnx", (folder / "rnn" / "onnx" / "model.onnx").read_bytes()),
    ):
        path = folder / f"{label}.bin"
        path.write_bytes(data)
        perform(folder, label, open_artifact.run, OpenArtifactJob(kind, str(path), signature))
    perform(folder, "missing", open_artifact.run, OpenArtifactJob("onnx", str(folder / "none.onnx"), signature))
    heavy = OpenArtifactJob("onnx", str(folder / "odd" / "onnx" / "model.onnx"), signature, parameters=10**9)
    perform(folder, "light_onnx", open_artifact.run, heavy)
    swapped = replace(signature, inputs=tuple(replace(spec, dtype="float64", shape=(None, 7)) for spec in signature.inputs))
    perform(folder, "other_signature", open_artifact.run, OpenArtifactJob("onnx", str(folder / "odd" / "onnx" / "model.onnx"), swapped))


def call_onnx(artifact: Artifact) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(artifact.path, providers=["CPUExecutionProvider"])
    binding = artifact.binding

    def call(feeds: dict[str, Any]) -> dict[str, Any]:
        values = session.run(list(binding.outputs.values()), {binding.inputs[key]: value for key, value in feeds.items()})
        return dict(zip(binding.outputs, values, strict=True))

    return call


def call_litert(artifact: Artifact) -> Any:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=artifact.path)
    runner = interpreter.get_signature_runner("serving_default")

    def call(feeds: dict[str, Any]) -> dict[str, Any]:
        values = runner(**{artifact.binding.inputs[key]: value for key, value in feeds.items()})
        return {key: values[other].copy() for key, other in artifact.binding.outputs.items()}

    call.keep = interpreter  # type: ignore[attr-defined]
    return call


def call_openvino(artifact: Artifact) -> Any:
    import openvino

    compiled = openvino.Core().compile_model(artifact.path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def call(feeds: dict[str, Any]) -> dict[str, Any]:
        request = compiled.create_infer_request()
        request.infer({artifact.binding.inputs[key]: value for key, value in feeds.items()})
        return {key: request.get_tensor(other).data.copy() for key, other in artifact.binding.outputs.items()}

    return call


CALLS = {"onnx": call_onnx, "litert": call_litert, "openvino_ir": call_openvino}


# ---------------------------------------------------------------- what the tests read


def read(folder: Path, label: str) -> tuple[ExportResult, list[Observation]]:
    """An export's result and observations."""
    data = json.loads((folder / f"{label}.json").read_text())
    assert data["result"] is not None, data["observations"]
    return decode(ExportResult, data["result"]), observations(folder, label)


def observations(folder: Path, label: str) -> list[Observation]:
    data = json.loads((folder / f"{label}.json").read_text())
    return [decode(Observation, item) for item in data["observations"]]


def codes(seen: list[Observation], kind: str) -> list[str]:
    return sorted({o.code for o in seen if o.evidence.get("format") == kind})


def only(folder: Path, label: str) -> Observation:
    """What a stage stopped for; whatever else it saw is of the same kind."""
    data = json.loads((folder / f"{label}.json").read_text())
    assert data["result"] is None
    found = observations(folder, label)
    assert len({o.code for o in found}) == 1
    return found[-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything, made once: two processes."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "home" / "intel").mkdir(parents=True)
    (folder / "home" / "intel" / "openvino_telemetry").write_text("0")
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "HOME": str(folder / "home")}
    environment["KERAS_HOME"] = str(folder / "home")
    for part in ("tensorflow", "light"):
        done = subprocess.run(
            [sys.executable, __file__, part, str(folder)], env=environment, capture_output=True, text=True, check=False, timeout=900
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return folder


@pytest.mark.parametrize("name", ["odd", "rnn", "pair", "scaled", "dropping", "silu", "lookup", "foreign"])
def test_saved_model_says_what_keras_says(folder: Path, name: str) -> None:
    assert_equal(folder, name, "saved_model", 2e-7)


@pytest.mark.parametrize("kind", LIGHT)
@pytest.mark.parametrize("name", ["odd", "rnn", "pair", "scaled", "dropping", "silu"])
def test_light_runtimes_say_what_keras_says(folder: Path, name: str, kind: str) -> None:
    assert_equal(folder, name, kind, 5e-6)


def assert_equal(folder: Path, name: str, kind: str, tolerance: float) -> None:
    expected, found = np.load(folder / f"{name}.expected.npz"), np.load(folder / f"{name}.{kind}.npz")
    modes = {key.split("_")[0] for key in found.files}
    assert modes == ({"alone"} if (name, kind) == ("rnn", "litert") else {"alone", "batch"})
    for mode in modes:
        for i in range(len(expected.files)):
            assert found[f"{mode}_{i}"].dtype == expected[f"o{i}"].dtype
            np.testing.assert_allclose(found[f"{mode}_{i}"], expected[f"o{i}"], rtol=0, atol=tolerance)


def test_every_repair_is_named_with_its_layer(folder: Path) -> None:
    result, seen = read(folder, "odd")
    artifacts = {a.format: a for a in result.artifacts}
    assert set(artifacts) == set(FORMATS)
    onnx = " ".join(artifacts["onnx"].repairs)
    for part in ("'my model'", "argmax", "Erfc in layer 'hidden'", "in layer 'grouped' is inlined"):
        assert part in onnx
    assert len(artifacts["onnx"].repairs) == 4
    assert len(artifacts["saved_model"].repairs) == len(artifacts["litert"].repairs) == 2
    for kind in FORMATS:
        assert [o.cause for o in seen if o.code == "KP209" and o.evidence["format"] == kind] == list(artifacts[kind].repairs)
    ir = json.loads((folder / "odd.openvino_ir.json").read_text())["result"]["artifact"]
    assert tuple(ir["repairs"]) == artifacts["saved_model"].repairs


def test_without_repairs_the_model_with_odd_names_is_left_as_tensorflow_leaves_it(folder: Path) -> None:
    result, seen = read(folder, "odd_as_is")
    assert result.artifacts == ()
    assert [o.code for o in seen] == ["KP201"] * 3
    assert {o.evidence["format"] for o in seen} == set(FORMATS)


def test_names_are_kept_where_a_format_can_hold_them(folder: Path) -> None:
    result, seen = read(folder, "odd")
    assert [spec.name for spec in result.signature.inputs] == ["img", "age (years)"]
    assert [spec.name for spec in result.signature.outputs] == ["out.put 1", "argmax", "age (years)", "out.put 1_2"]
    bindings = {a.format: a.binding for a in result.artifacts}
    assert bindings["onnx"].inputs == {"img": "img", "age (years)": "age (years)"}
    assert bindings["onnx"].outputs["age (years)"] == "age (years)_out"
    assert bindings["saved_model"].inputs["age (years)"] == "age__years_"
    assert bindings["saved_model"].outputs == {spec.name: spec.name for spec in result.signature.outputs}
    renamed = {o.evidence["format"]: o.evidence["names"] for o in seen if o.code == "KP203" and o.evidence["side"] == "input"}
    assert renamed == {"saved_model": {"age (years)": "age__years_"}, "litert": {"age (years)": "age__years_"}}


def test_onnx_and_openvino_keep_the_models_order(folder: Path) -> None:
    result, _ = read(folder, "odd")
    onnx = next(a for a in result.artifacts if a.format == "onnx")
    ir = decode(Artifact, json.loads((folder / "odd.openvino_ir.json").read_text())["result"]["artifact"])
    for artifact in (onnx, ir):
        assert [spec.name for spec in artifact.signature.inputs] == list(artifact.binding.inputs.values())
        assert [spec.name for spec in artifact.signature.outputs] == list(artifact.binding.outputs.values())


def test_recurrent_layers_cost_litert_its_batch_axis(folder: Path) -> None:
    result, seen = read(folder, "rnn")
    litert = next(a for a in result.artifacts if a.format == "litert")
    assert litert.batch == 1
    assert litert.foreign_ops == ()
    assert "'lstm'" in litert.repairs[0]
    assert codes(seen, "litert") == ["KP209", "KP212"]
    assert all(a.batch is None for a in result.artifacts if a.format != "litert")
    assert not list((folder / "rnn").glob(".*"))


@pytest.mark.parametrize("label", ["rnn_as_is", "rnn_select"])
def test_recurrent_layers_need_select_tf_ops_otherwise(folder: Path, label: str) -> None:
    result, seen = read(folder, label)
    litert = next(a for a in result.artifacts if a.format == "litert")
    assert any(op.startswith("FlexTensorList") for op in litert.foreign_ops)
    assert litert.batch is None
    named = [o for o in seen if o.code == "KP202"]
    assert (not named) if label == "rnn_select" else named[0].place == "lstm"


def test_ops_that_no_runtime_has_are_named(folder: Path) -> None:
    result, seen = read(folder, "foreign")
    assert {a.format for a in result.artifacts} == {"saved_model", "onnx"}
    assert next(a for a in result.artifacts if a.format == "onnx").foreign_ops == ("Erfinv",)
    assert codes(seen, "onnx") == ["KP202"]
    assert codes(seen, "litert") == ["KP201"]
    assert "Erfinv" in next(o for o in seen if o.code == "KP201").cause
    refused = only(folder, "foreign.openvino_ir")
    assert (refused.code, refused.place) == ("KP201", "Erfinv")


def test_a_table_does_not_cost_the_other_weights(folder: Path) -> None:
    result, seen = read(folder, "lookup")
    assert {a.format for a in result.artifacts} == set(FORMATS)
    assert not [o for o in seen if o.code == "KP208"]
    assert all(a.parameters_bytes >= 4 * 150 for a in result.artifacts)


def test_a_layer_that_does_not_trace_is_named_for_every_format(folder: Path) -> None:
    result, seen = read(folder, "sized")
    assert result.artifacts == ()
    assert [(o.code, o.place) for o in seen] == [("KP201", "up")] * 3
    assert all("UpSampling2D" in o.cause for o in seen)


def test_state_that_changes_is_told(folder: Path) -> None:
    _, seen = read(folder, "stateful")
    told = next(o for o in seen if o.code == "KP214")
    assert told.place == "memory"
    assert "AssignVariableOp" in told.evidence["ops"]


def test_layers_for_training_stay_out(folder: Path) -> None:
    result, seen = read(folder, "dropping")
    assert seen == []
    assert not [op for a in result.artifacts for op in a.ops if "Random" in op]


def test_a_model_that_is_not_the_inspected_one_is_not_loaded(folder: Path) -> None:
    altered = only(folder, "altered")
    assert (altered.code, altered.place) == ("KP211", "scaled.keras")
    assert altered.evidence["expected"] == "0" * 64
    assert only(folder, "gone").code == "KP210"
    assert {artifact.format for artifact in read(folder, "inspected")[0].artifacts} == set(FORMATS)


def test_a_converter_that_is_not_installed_is_the_machine_s_lack_and_the_other_formats_go_on(folder: Path) -> None:
    result, seen = read(folder, "no_converter")
    assert {artifact.format for artifact in result.artifacts} == {"saved_model", "litert"}
    (lack,) = seen
    assert (lack.code, lack.place, lack.evidence["format"]) == ("KP301", "tf2onnx", "onnx")
    assert "keras-kpipe[onnx_export]" in lack.remedy


def test_without_tensorflow_the_export_says_what_to_install(folder: Path) -> None:
    lack = only(folder, "no_tensorflow")
    assert (lack.code, lack.place) == ("KP301", "tensorflow")
    assert "keras-kpipe[tensorflow]" in lack.remedy


def test_events_come_in_time_for_the_targets_that_wait(folder: Path) -> None:
    events = [json.loads(line) for line in (folder / "odd.events").read_text().splitlines()]
    made = [e["artifact"]["format"] for e in events if e["event"] == "artifact"]
    assert made[0] == "saved_model"
    assert sorted(made) == sorted(FORMATS)
    first = next(i for i, e in enumerate(events) if e["event"] == "artifact")
    assert any(e["event"] == "signature" for e in events[:first])
    assert any(e.get("phase") == "onnx" for e in events[first:]), "the SavedModel must be announced before the next format is begun"


def test_subclassed_model_with_two_arguments(folder: Path) -> None:
    result, _ = read(folder, "pair")
    assert [(s.name, s.shape) for s in result.signature.inputs] == [("zeta", (None, 4)), ("alpha", (None, 2))]
    assert [s.name for s in result.signature.outputs] == ["parts_0", "parts_1", "sum"]


@pytest.mark.parametrize(
    ("label", "code", "place", "words"),
    [
        ("not_given", "KP007", "Scale", "custom_objects"),
        ("broken_file", "KP007", "broken.py:3", "no luck"),
        ("no_package", "KP007", "no_such_package_here", "allow_modules"),
        ("lambda_refused", "KP006", "plus", "Lambda"),
        ("cut", "KP012", "cut.keras", "zip"),
        ("late", "KP012", None, ""),
        ("open_other", "KP207", "saved_model", "SavedModel"),
        ("cut_onnx", "KP303", "onnx", "protobuf"),
        ("cut_litert", "KP303", "litert", "cut short"),
        ("not_litert", "KP303", "litert", "LiteRT"),
        ("empty_onnx", "KP303", "onnx", "no graph"),
        ("other_onnx", "KP207", "onnx", "ONNX"),
        ("missing", "KP210", "onnx", "doesn't exist"),
    ],
)
def test_what_is_refused(folder: Path, label: str, code: str, place: str | None, words: str) -> None:
    found = only(folder, label)
    assert found.code == code
    assert place is None or found.place == place
    assert words in f"{found.cause} {found.remedy}"
    assert "Traceback" not in found.cause


def test_a_lambda_named_in_the_contract_loads(folder: Path) -> None:
    result, _ = read(folder, "lambda_allowed")
    assert {a.format for a in result.artifacts} == set(FORMATS)


@pytest.mark.parametrize("kind", LIGHT)
@pytest.mark.parametrize("name", ["odd", "pair"])
def test_a_file_handed_in_is_bound_like_the_one_exported(folder: Path, name: str, kind: str) -> None:
    data = json.loads((folder / f"{name}.{kind}.opened.json").read_text())
    handed_in = decode(Artifact, data["result"]["artifact"])
    made = {a.format: a for a in read(folder, name)[0].artifacts}
    made["openvino_ir"] = decode(Artifact, json.loads((folder / f"{name}.openvino_ir.json").read_text())["result"]["artifact"])
    assert (handed_in.sha256, handed_in.size, handed_in.ops) == (made[kind].sha256, made[kind].size, made[kind].ops)
    assert handed_in.binding == made[kind].binding


def test_the_highest_version_of_a_saved_model_is_opened(folder: Path) -> None:
    data = json.loads((folder / "open_saved_model.json").read_text())
    assert Path(data["result"]["artifact"]["path"]).name == "1"


def test_a_file_without_the_weights_is_noticed(folder: Path) -> None:
    (told,) = [o for o in observations(folder, "light_onnx") if o.code == "KP208"]
    assert told.evidence["model"] == 10**9
    assert 0 < told.evidence["found"] < 10**4


def test_dtype_and_rank_are_compared(folder: Path) -> None:
    seen = observations(folder, "other_signature")
    assert {o.code for o in seen} >= {"KP205", "KP206"}
    assert sorted(o.place for o in seen if o.code == "KP205") == ["age (years)", "img"]
    assert sorted(o.place for o in seen if o.code == "KP206") == ["age (years)", "img"]


if __name__ == "__main__":
    {"tensorflow": tensorflow_process, "light": light_process}[sys.argv[1]](Path(sys.argv[2]))

"""``kpipe diagnose`` on real runtimes: faults that these versions have are named by their layer, and the layer alone shows them again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kpipe.api import validate
from kpipe.diagnosis.diagnose import DiagnoseRequest, diagnose
from kpipe.diagnosis.result import Diagnosis, Outcome
from kpipe.errors import RunFolderError, UsageError
from kpipe.judging.layers import Standing

from .cases.gate import QUIET, command
from .sample_worker import python

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CODE = '''
@keras.saving.register_keras_serializable("odd")
class Gate(keras.layers.Layer):
    """Floor division of negative whole numbers, which ONNX Runtime truncates."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        return keras.ops.cast(keras.ops.floor_divide(keras.ops.cast(x * 7, "int32"), 2), "float32") * self.scale


@keras.saving.register_keras_serializable("odd")
class Centre(keras.layers.Layer):
    """Takes the batch's mean away: another answer in a batch than alone."""

    def call(self, x):
        return x - keras.ops.mean(x, axis=0, keepdims=True) * 0.5


@keras.saving.register_keras_serializable("odd")
class Own(keras.Model):
    """Keeps a weight of its own besides its layers'."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.gate = Gate(name="gate")
        self.factor = self.add_weight(shape=(5,), name="factor", initializer="ones")

    def call(self, x, training=False):
        return self.gate(x) * self.factor
'''
MODELS = f"""
import sys
from pathlib import Path

import keras
import numpy as np

folder = Path(sys.argv[1])
keras.utils.set_random_seed(5)
random = np.random.default_rng(5)
layers = keras.layers
{CODE}

def save(name, model, **inputs):
    model.save(folder / f"{{name}}.keras")
    np.savez(folder / f"{{name}}.npz", **{{key: value.astype("float32") for key, value in inputs.items()}})


x = keras.Input((5,), name="x")
rows = random.normal(size=(8, 5))
inner = keras.Sequential([keras.Input((4,)), Gate(name="gate"), layers.Dense(4, name="out")], name="enc")
save("gated", keras.Model(x, layers.Dense(3, name="y")(inner(layers.Dense(4, name="first")(x)))), x=rows)
save("centred", keras.Model(x, Centre(name="centre")(layers.Dense(4, name="first")(x))), x=rows)
own = Own(name="own")
own(rows.astype("float32"))
save("own", own, x=rows)

image = keras.Input((12, 12, 3), name="image")
pictures = random.normal(size=(6, 12, 12, 3))
hidden = layers.Conv2D(3, 3, padding="same", name="first")(image)
save("smaller", keras.Model(image, layers.Resizing(4, 3, interpolation="nearest", name="smaller")(hidden)), image=pictures)
hidden = layers.Conv2D(3, 3, padding="same", name="first")(image)
save("other", keras.Model(image, layers.Resizing(4, 3, interpolation="nearest", name="smaller")(hidden)), image=pictures)

steps = keras.Input((None, 3), name="steps")
each = layers.TimeDistributed(layers.Dense(4, name="inner"), name="each")
save("steps", keras.Model(steps, each(layers.Dense(3, name="first")(steps))), steps=random.normal(size=(6, 5, 3)))

# 1e45 in the convolution is infinite in float32; a runtime that folds the scale into its weights never sees it
hidden = layers.Conv2D(3, 3, use_bias=False, kernel_initializer=keras.initializers.Constant(1e25), name="conv")(layers.Activation("relu")(image))
hidden = layers.Activation("relu", name="act")(layers.Rescaling(1e-22, name="scale")(hidden))
save("folded", keras.Model(image, layers.Rescaling(1e-22, name="y")(hidden)), image=random.uniform(1, 2, size=pictures.shape) * 1e20)
"""

pytestmark = pytest.mark.runtimes


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diagnose")
    python(MODELS, folder, "tensorflow")
    (folder / "layers.py").write_text("import keras\n" + CODE, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(models: Path) -> Callable[..., Path]:
    """Validate a model for some targets, once; the run's folder."""

    def ran(name: str, targets: str, tag: str = "", golden: str = "batches = [3, 4]\n") -> Path:
        out = models / f"run-{name}{tag}"
        if not out.exists():
            contract = models / f"{name}{tag}.toml"
            head = '[model]\ncustom_objects = ["layers.py"]\n[agreement]\ntolerance = "auto"\n[golden]\n'
            contract.write_text(head + golden + QUIET + targets, encoding="utf-8")
            validate(models / f"{name}.keras", contract=contract, golden=models / f"{name}.npz", out=out)
        return out

    return ran


@pytest.fixture(scope="module")
def gated(run: Callable[..., Path]) -> Path:
    return run("gated", "[targets.onnxruntime]\n[targets.openvino]\n")


@pytest.fixture(scope="module")
def smaller(run: Callable[..., Path]) -> Path:
    return run("smaller", '[targets.keras_openvino]\n[targets.openvino_default]\nruntime = "openvino"\nprecision = "default"\n')


def standings(found: Diagnosis) -> dict[str, str]:
    return {row.layer: row.standing.value for row in found.layers}


def named(found: Diagnosis) -> str:
    assert found.outcome is Outcome.NAMED, found.sentence
    assert found.layer is not None
    return found.layer.layer


def again(folder: Path) -> tuple[int, str]:
    """The script, as somebody who was sent the folder runs it."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "reproduce.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


# ---------------------------------------------------------------- a layer of one's own in a model inside the model


def test_a_custom_layer_inside_a_nested_model_is_named_and_shows_the_fault_alone(gated: Path, tmp_path: Path) -> None:
    answer = command("diagnose", gated, "--target", "onnxruntime", "--out", tmp_path / "out", folder=tmp_path)
    assert answer.exit_code == 0, answer.stderr
    assert "Layer 'enc/gate' (Gate) is the first whose output leaves the reference on onnxruntime" in " ".join(answer.stdout.split())
    assert "the layer alone differs too" in " ".join(answer.stdout.split())
    found = json.loads((tmp_path / "out" / "diagnosis.json").read_text(encoding="utf-8"))
    assert [row["standing"] for row in found["layers"]] == ["agrees", "leaves", "downstream", "downstream"]
    assert found["layer"]["config"]["name"] == "gate"
    drift = found["layer"]["drift"]
    assert drift["reference"] == drift["target"] - 1, "truncated where the reference rounds down"
    shutil.copytree(tmp_path / "out" / "reproducer", tmp_path / "sent")
    code, said = again(tmp_path / "sent")
    assert code == 3
    assert "largest difference 1.0 where" in said
    assert {"model.keras", "input.npy", "model.onnx", "custom_0.py", "reproduce.py"} <= {file.name for file in (tmp_path / "sent").iterdir()}


def test_nothing_differs_on_a_runtime_that_rounds_down(gated: Path) -> None:
    found = diagnose(DiagnoseRequest(gated, "openvino"))
    assert found.outcome is Outcome.NOTHING
    assert set(standings(found).values()) == {"agrees"}
    assert found.sentence.startswith("Nothing differs: all 4 outputs")
    assert found.reproducer is None
    assert (gated / "diagnose" / "openvino" / "diagnosis.json").is_file()
    assert len(found.inputs) >= 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--target", "onnxruntim"), "did you mean 'onnxruntime'?"),
        (("--target", "onnxruntime", "--input", "row-99"), "--input row-99: no such golden input"),
        (("--target", "onnxruntime", "--out", "."), "is not empty"),
    ],
)
def test_a_wrong_command_is_refused_before_anything_runs(gated: Path, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    (tmp_path / "mine.txt").write_text("kept", encoding="utf-8")
    answer = command("diagnose", gated, *words, folder=tmp_path)
    assert (answer.exit_code, "Traceback" in answer.stderr) == (2, False)
    assert message in answer.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_no_run_and_a_run_without_its_tensors_are_refused(gated: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="holds no finished run"):
        diagnose(DiagnoseRequest(tmp_path, "onnxruntime"))
    copy = tmp_path / "copy"
    shutil.copytree(gated, copy)
    shutil.rmtree(copy / "stages" / "prepare" / "tensors")
    with pytest.raises(RunFolderError, match="prepared tensors"):
        diagnose(DiagnoseRequest(copy, "onnxruntime"))


# ---------------------------------------------------------------- Keras' own layers


def test_nearest_downsampling_on_keras_openvino_is_named(smaller: Path) -> None:
    found = diagnose(DiagnoseRequest(smaller, "keras_openvino", input="row-2"))
    assert named(found) == "smaller"
    assert standings(found) == {"first": "agrees", "smaller": "leaves"}
    assert found.inputs[0] == "row-2"
    assert found.reproducer is not None
    assert found.reproducer.reproduces is True


def test_a_default_of_bfloat16_leaves_at_the_first_layer(smaller: Path) -> None:
    found = diagnose(DiagnoseRequest(smaller, "openvino_default"))
    record = json.loads((smaller / "run.json").read_text(encoding="utf-8"))
    precision = next(target["effective_precision"] for target in record["targets"] if target["name"] == "openvino_default")
    if precision != "bfloat16":
        assert found.outcome is Outcome.NOTHING
        return
    assert named(found) == "first"
    assert found.layer is not None
    assert found.layer.drift is not None
    assert 16 < found.layer.drift.floors < 1e6
    assert standings(found) == {"first": "leaves", "smaller": "downstream"}


def test_time_distributed_with_a_free_axis_is_named_by_its_shape(run: Callable[..., Path]) -> None:
    found = diagnose(DiagnoseRequest(run("steps", "[targets.openvino]\n"), "openvino"))
    assert named(found) == "each"
    assert found.layer is not None
    assert found.layer.drift is not None
    assert found.layer.drift.detail == "shape [1, 4] instead of [5, 4]"
    assert found.reproducer is not None
    assert found.reproducer.reproduces is True


# ---------------------------------------------------------------- what no layer does alone


def test_a_fault_that_hides_when_outputs_are_exposed_is_bisected_to_the_folded_layer(run: Callable[..., Path]) -> None:
    found = diagnose(DiagnoseRequest(run("folded", "[targets.onnxruntime]\n"), "onnxruntime"))
    assert found.outcome is Outcome.FUSION, found.sentence
    assert found.fusion is not None
    assert found.fusion.hides == ("conv",)
    assert found.fusion.complete
    assert found.before_cut == float("inf")
    assert found.after_cut == 0
    assert {row.standing for row in found.layers} == {Standing.AGREES}


def test_a_difference_in_a_batch_is_looked_at_in_a_batch_and_the_layer_alone_is_said_not_to_differ(run: Callable[..., Path]) -> None:
    found = diagnose(DiagnoseRequest(run("centred", "[targets.onnxruntime]\n"), "onnxruntime"))
    assert found.mode == "batch_3"
    assert named(found) == "centre"
    assert "in mode 'batch_3'" in found.sentence
    assert found.reproducer is not None
    assert found.reproducer.reproduces is False, "in the script Keras gets the whole batch too"


# ---------------------------------------------------------------- what can't be looked into


def test_a_model_with_weights_of_its_own_is_said_to_stay_closed(run: Callable[..., Path], tmp_path: Path) -> None:
    answer = command("diagnose", run("own", "[targets.onnxruntime]\n"), "--target", "onnxruntime", folder=tmp_path)
    assert answer.exit_code == 1
    assert "Model 'own' (Own) can't be cut open: it has weights of its own (factor)" in " ".join(answer.stdout.split())


def test_of_a_handed_in_artifact_and_kpipes_own_export_the_one_that_differs_is_named(run: Callable[..., Path], models: Path) -> None:
    other = run("other", "[targets.onnxruntime]\n")
    shutil.copy2(other / "artifacts" / "onnx" / "model.onnx", models / "shipped.onnx")
    found = diagnose(DiagnoseRequest(run("smaller", '[targets.onnxruntime]\nartifact = "shipped.onnx"\n', "-shipped"), "onnxruntime"))
    assert found.outcome is Outcome.HANDED_IN, found.sentence
    assert "shipped.onnx" in found.sentence
    assert "and the one that kpipe exports of the same candidate doesn't" in found.sentence


def test_a_run_without_the_target_says_why(run: Callable[..., Path], models: Path) -> None:
    copy: Any = models / "without"
    if not copy.exists():
        shutil.copytree(run("other", "[targets.onnxruntime]\n"), copy)
    shutil.rmtree(copy / "stages" / "run.onnxruntime")
    with pytest.raises(UsageError, match="never started onnxruntime"):
        diagnose(DiagnoseRequest(copy, "onnxruntime"))

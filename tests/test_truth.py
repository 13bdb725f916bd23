"""The float64 run on the real TensorFlow: what is raised, what stays and is named, and what can't be had."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kpipe_stages.archive.raising import raise_archive, raise_config
from kpipe_stages.protocol import RunJob, TimingPlan, Trust
from kpipe_stages.rows import write_rows

from .sample_worker import Told, python, tell

if TYPE_CHECKING:
    from pathlib import Path

MODELS = '''\
"""Small models: run with the folder to write to."""

import sys
from pathlib import Path

import keras
import numpy as np

folder = Path(sys.argv[1])
keras.utils.set_random_seed(11)


@keras.saving.register_keras_serializable("odd")
class Stubborn(keras.layers.Layer):
    """Computes in float32 whatever its policy says."""

    def call(self, x):
        return keras.ops.cast(keras.ops.tanh(keras.ops.cast(x, "float32")), x.dtype)


@keras.saving.register_keras_serializable("odd")
class Refusing(keras.layers.Layer):
    """Has no float64."""

    def call(self, x):
        if keras.backend.standardize_dtype(x.dtype) == "float64":
            raise NotImplementedError("no kernel for float64")
        return x * 2


def save(name, inputs, outputs):
    keras.Model(inputs, outputs, name=name).save(folder / f"{name}.keras")


x = keras.Input((6,), name="x")
dense = keras.layers.Dense(8, activation="gelu", name="first")(x)
save("plain", x, keras.layers.Dense(3, activation="softmax", name="y")(keras.layers.BatchNormalization(name="norm")(dense)))
save("stubborn", x, keras.layers.Dense(3, name="y")(Stubborn(name="odd_one")(dense)))
save("refusing", x, keras.layers.Dense(3, name="y")(Refusing(name="old_op")(dense)))
normalization = keras.layers.Normalization(mean=np.arange(6.0), variance=np.arange(6.0) + 1, name="stats")
save("table", x, keras.layers.Dense(3, name="y")(normalization(x)))
volume = keras.Input((4, 4, 4, 1), name="x")
save("volume", volume, keras.layers.Dense(2, name="y")(keras.layers.Flatten()(keras.layers.AveragePooling3D(2, name="pool")(volume))))
ids = keras.Input((5,), dtype="int32", name="x")
save("text", ids, keras.layers.Dense(2, name="y")(keras.layers.LSTM(4, name="rnn")(keras.layers.Embedding(9, 3, mask_zero=True, name="words")(ids))))
half = keras.Input((6,), name="x")
keras.config.set_dtype_policy("mixed_float16")
hidden = keras.layers.Dense(8, activation="relu", name="first")(half)
save("mixed", half, keras.layers.Dense(3, name="y", dtype="float32")(hidden))
'''
CODE = MODELS.split("def save", maxsplit=1)[0].split("keras.utils.set_random_seed(11)")[1]
SHAPES: dict[str, tuple[int, ...]] = {"volume": (4, 4, 4, 1)}

pytestmark = pytest.mark.runtimes


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("truth")
    python(MODELS, folder, "tensorflow")
    (folder / "layers.py").write_text("import keras\n" + CODE, encoding="utf-8")
    return folder


def told(models: Path, name: str, folder: Path) -> Told:
    """The float64 run of one model on four rows."""
    random = np.random.default_rng(4)
    rows: Any = random.normal(size=(4, *SHAPES.get(name, (6,)))).astype(np.float32)
    if name == "text":
        rows = random.integers(0, 9, (4, 5)).astype(np.int32)
    write_rows(folder / "tensors" / "0", list(rows))
    trust = Trust(custom_objects=(str(models / "layers.py"),)) if name in {"stubborn", "refusing"} else Trust()
    order = RunJob(
        "tensorflow", str(models / f"{name}.keras"), trust, None, None, str(folder / "tensors"), ("x",), 4, (), repeat=0, timing=TimingPlan(0, 0)
    )
    return tell("truth", order, folder / "run", folder / "home", "tensorflow")


def by_hand(models: Path, rows: Any) -> Any:
    """The plain model in numpy's float64."""
    import h5py

    with zipfile.ZipFile(models / "plain.keras") as archive, archive.open("model.weights.h5") as stream:
        import io

        weights = h5py.File(io.BytesIO(stream.read()))["layers"]
        names = {
            name: [np.array(weights[name]["vars"][str(i)], np.float64) for i in range(len(weights[name]["vars"]))]
            for name in weights
            if "vars" in weights[name]
        }
    from math import erf, sqrt

    kernel, bias = names["dense"]
    hidden = rows.astype(np.float64) @ kernel + bias
    hidden = hidden * 0.5 * (1 + np.vectorize(erf)(hidden / sqrt(2)))
    gamma, beta, mean, variance = names["batch_normalization"]
    hidden = gamma * (hidden - mean) / np.sqrt(variance + 1e-3) + beta
    kernel, bias = names["dense_1"]
    scores = np.exp(hidden @ kernel + bias)
    return scores / scores.sum(axis=1, keepdims=True)


def test_a_model_that_follows_its_policies_is_run_in_float64(models: Path, tmp_path: Path) -> None:
    done = told(models, "plain", tmp_path)
    assert done.run.effective_precision == "float64"
    assert done.run.facts["kept"] == done.run.facts["computes_in_less"] == {}
    rows = done.rows("alone", "y")
    assert rows.dtype == "float64"
    given = np.random.default_rng(4).normal(size=(4, 6)).astype(np.float32)
    np.testing.assert_allclose(np.stack(list(rows)), by_hand(models, given), rtol=2e-8)  # the root of 2 in TensorFlow's gelu is a float32
    assert not list(done.folder.glob("*.keras"))


@pytest.mark.parametrize("name", ["table", "text", "mixed"])
def test_statistics_masks_and_mixed_policies_are_raised_too(models: Path, tmp_path: Path, name: str) -> None:
    done = told(models, name, tmp_path)
    assert done.run.effective_precision == "float64"
    assert done.rows("alone", "y").dtype == "float64"


def test_a_layer_that_casts_by_itself_is_named(models: Path, tmp_path: Path) -> None:
    done = told(models, "stubborn", tmp_path)
    assert done.run.facts["kept"] == {}
    assert done.run.facts["computes_in_less"] == {"odd_one": ["float32"]}
    assert done.run.effective_precision == "float64, float32"


@pytest.mark.parametrize(("name", "layer", "why"), [("refusing", "old_op", "no kernel for float64"), ("volume", "pool", "float64|double|DOUBLE")])
def test_a_layer_without_float64_keeps_its_own_dtype_and_is_named(models: Path, tmp_path: Path, name: str, layer: str, why: str) -> None:
    import re

    done = told(models, name, tmp_path)
    assert list(done.run.facts["kept"]) == [layer]
    assert re.search(why, done.run.facts["kept"][layer])
    assert done.rows("alone", "y").dtype == "float64"


def test_what_can_not_be_loaded_says_so(models: Path, tmp_path: Path) -> None:
    broken = tmp_path / "models"
    broken.mkdir()
    (broken / "plain.keras").write_bytes((models / "plain.keras").read_bytes())
    raise_archive(models / "plain.keras", broken / "plain.keras")
    with zipfile.ZipFile(broken / "plain.keras", "w") as archive:
        archive.writestr("config.json", "{}")
    assert told(broken, "plain", tmp_path).code == "KP617"


def test_only_policies_are_raised() -> None:
    layer = {
        "class_name": "Dense",
        "config": {"name": "a", "dtype": {"class_name": "DTypePolicy", "config": {"name": "mixed_float16"}}, "units": 3, "note": "float32"},
        "build_config": {"input_shape": [None, 2]},
    }
    config = {
        "class_name": "Sequential",
        "config": {"dtype": "float32", "layers": [layer, {"class_name": "E", "config": {"dtype": "int32"}}]},
        "compile_config": {"dtype": "float32"},
    }
    raised = raise_config(config)
    assert raised["config"]["dtype"] == "float64"
    assert raised["config"]["layers"][0]["config"]["dtype"]["config"]["name"] == "float64"
    assert raised["config"]["layers"][0]["config"]["note"] == "float32"
    assert raised["config"]["layers"][1]["config"]["dtype"] == "int32"
    assert raised["compile_config"] == {"dtype": "float32"}
    assert raise_config(config, {"a"})["config"]["layers"][0] == layer
    assert json.loads(json.dumps(config)) == config

"""The train stage: a recipe's data passes the contract's preprocessing, a model is written whole or not at all, faults name their line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import zipfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from kpipe_stages.codec import decode, encode, read_json, write_json
from kpipe_stages.digest import digest
from kpipe_stages.protocol import PROTOCOL, Job, Result, StageError, Status, TrainJob, TrainResult
from kpipe_stages.recipe import load_recipe

CONTRACT = """
[inputs.x]
decode = "npy"
dtype = "float32"
steps = [{ scale = 0.5 }]
"""

RECIPE = """
import io
import keras
import numpy as np
from beside import Double

EPOCHS = 2
BATCH_SIZE = 8


def build_model():
    x = keras.Input((4,), name="x")
    model = keras.Model(x, keras.layers.Dense(1, name="y")(Double(name="double")(x)))
    model.compile("sgd", "mse", metrics=["mae"])
    return model


def raw(rng):
    file = io.BytesIO()
    np.save(file, rng.normal(size=4))
    return file.getvalue()


def load_data(preprocess):
    rng = np.random.default_rng(0)
    x = np.stack([preprocess["x"].from_bytes(raw(rng)) for _ in range(20)])
    assert x.dtype == np.float32
    return (x[:16], x[:16].sum(axis=1)), (x[16:], x[16:].sum(axis=1))
"""

BESIDE = """
import keras


@keras.saving.register_keras_serializable("test_train")
class Double(keras.layers.Layer):
    def call(self, x):
        return 2 * x
"""


def write_recipe(folder: Path, recipe: str = RECIPE, contract: str = CONTRACT, beside: str = BESIDE) -> Path:
    folder.mkdir(parents=True)
    (folder / "recipe.py").write_text(textwrap.dedent(recipe))
    (folder / "kpipe.toml").write_text(contract)
    (folder / "beside.py").write_text(textwrap.dedent(beside))
    return folder


@dataclass(frozen=True)
class Trained:
    result: Result
    events: list[dict[str, Any]]
    out: Path

    @property
    def data(self) -> TrainResult:
        return decode(TrainResult, self.result.data)

    def weights(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        with zipfile.ZipFile(self.out) as archive, h5py.File(BytesIO(archive.read("model.weights.h5"))) as file:
            file.visititems(lambda name, node: found.update({name: node[()]}) if isinstance(node, h5py.Dataset) else None)
        return found


def train(folder: Path, recipe: Path, seed: int = 3, backend: str = "jax", environment_backend: str = "jax", calibration: int = 0) -> Trained:
    """Run the stage as the orchestrator does."""
    folder.mkdir(parents=True)
    out = folder / "out" / "model.keras"
    job = Job(PROTOCOL, "train", "token", str(folder), encode(TrainJob(str(recipe), str(out), seed, backend, calibration=calibration)))
    write_json(folder / "job.json", job)
    environment = {**os.environ, "KERAS_BACKEND": environment_backend, "KERAS_HOME": str(folder / "home")}
    command = [sys.executable, "-P", "-m", "kpipe_stages", "train", str(folder / "job.json")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        assert process.stdout is not None
        events = [json.loads(line) for line in process.stdout]
        assert process.wait() == 0
    return Trained(read_json(Result, folder / "result.json"), events, out)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trained, Trained]:
    """The same recipe, twice, with the same seed; the second leaves a calibration set."""
    top = tmp_path_factory.mktemp("train")
    recipe = write_recipe(top / "recipe")
    return train(top / "a", recipe), train(top / "b", recipe, calibration=5)


def test_the_result_says_what_the_run_was(trained: tuple[Trained, Trained]) -> None:
    run = trained[0]
    assert run.result.status is Status.OK, run.result
    assert run.data.model_sha256 == digest(run.out)
    assert read_json(TrainResult, f"{run.out}.train.json") == run.data
    assert [epoch.epoch for epoch in run.data.epochs] == [1, 2]
    assert {"loss", "mae", "val_loss", "val_mae"} <= set(run.data.epochs[0].metrics)
    assert run.data.compile_s > 0
    assert run.data.save_s > 0
    assert run.data.compile_s + run.data.steps_s + run.data.save_s < run.data.total_s
    assert sorted(path.name for path in run.out.parent.iterdir()) == ["model.keras", "model.keras.train.json"]
    assert run.result.identity is not None
    assert run.result.identity.backend == "jax"


def test_a_calibration_set_is_left_where_one_is_asked_for(trained: tuple[Trained, Trained]) -> None:
    run = trained[1]
    path = run.out.with_suffix(".calibration.npz")
    assert (trained[0].data.calibration, run.data.calibration, run.data.calibration_sha256) == ("", str(path), digest(path))
    with np.load(path) as left:
        assert {name: (array.shape, array.dtype.name) for name, array in left.items()} == {"x": ((5, 4), "float32")}
        assert len(np.unique(left["x"], axis=0)) == 5


def test_progress_is_told_batch_by_batch(trained: tuple[Trained, Trained]) -> None:
    told = [(event["what"], event["done"], event["total"]) for event in trained[0].events if event["event"] == "progress"]
    assert told == [("epoch 1/2", 1, 2), ("epoch 1/2", 2, 2), ("epoch 2/2", 1, 2), ("epoch 2/2", 2, 2)]


def test_the_seed_decides_the_weights(trained: tuple[Trained, Trained]) -> None:
    first, second = (run.weights() for run in trained)
    assert first.keys() == second.keys()
    assert len(first) > 0
    assert all(np.array_equal(first[name], second[name]) for name in first)


FAULTS = {
    "build": ("    return model", "    return 'a model'", "build_model() returned a str"),
    "loss": ('    model.compile("sgd", "mse", metrics=["mae"])', "    pass", "without a loss"),
    "data": ("    return (x[:16]", "    return x, (x[:16]", "load_data() returned a tuple of another form"),
    "nan": ('"sgd"', "keras.optimizers.SGD(1e30)", "Lower the learning rate"),
    "raises": ("    assert x.dtype == np.float32", "    {}['missing']", "raised KeyError at"),
    "input": ('preprocess["x"].from_bytes(raw(rng))', 'preprocess["x"].from_bytes(b"")', "raised PreprocessError at"),
    "save": (
        "from beside import Double",
        "from beside import Double\nDouble.get_config = lambda self: 1 / 0",
        "saving the model of the recipe raised ZeroDivisionError at",
    ),
}

DRIVER = """
import json, os, sys
from kpipe_stages import train
from kpipe_stages.codec import encode
from kpipe_stages.protocol import Job, StageError, TrainJob
from kpipe_stages.worker import Worker
from pathlib import Path

answers = {}
for name in sys.argv[2:]:
    folder = Path(sys.argv[1]) / name
    out = folder / "out" / "model.keras"
    out.parent.mkdir()
    out.write_bytes(b"the model before")
    params = TrainJob(str(folder), str(out), 1, "tensorflow" if name == "backend" else "jax")
    try:
        train.run(Job(1, "train", "t", str(folder), encode(params)), Worker("train", folder, os.open(os.devnull, os.O_WRONLY)))
        answers[name] = "no fault"
    except StageError as error:
        answers[name] = [error.observation.code, error.observation.cause + error.observation.remedy, error.observation.place]
    for module in ("beside", "kpipe_recipe"):
        sys.modules.pop(module, None)
    sys.path.remove(str(folder)) if str(folder) in sys.path else None
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Every faulty recipe run in one process."""
    top = tmp_path_factory.mktemp("faults")
    for name, (old, new, _) in FAULTS.items():
        assert old in RECIPE
        write_recipe(top / name, RECIPE.replace(old, new))
    write_recipe(top / "backend")
    environment = {**os.environ, "KERAS_BACKEND": "jax", "KERAS_HOME": str(top / "home")}
    command = [sys.executable, "-P", "-c", DRIVER, str(top), *FAULTS, "backend"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return top, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_recipe_is_a_finding_and_leaves_the_old_model(faults: tuple[Path, dict[str, Any]], name: str) -> None:
    top, answers = faults
    code, message, place = answers[name]
    assert code == "KP018"
    assert FAULTS[name][2] in message
    assert place.startswith(str(top / name / "recipe.py"))
    out = top / name / "out"
    kept = ["model.keras.checkpoints"] if name == "save" else []  # what was trained and can't be saved isn't lost
    assert sorted(path.name for path in out.iterdir()) == ["model.keras", *kept]
    assert (out / "model.keras").read_bytes() == b"the model before"


def test_an_exception_names_the_line(faults: tuple[Path, dict[str, Any]]) -> None:
    top, answers = faults
    line = (top / "raises" / "recipe.py").read_text().splitlines().index("    {}['missing']") + 1
    assert answers["raises"][2] == f"{top}/raises/recipe.py:{line}"


def test_another_backend_than_the_jobs_stops(faults: tuple[Path, dict[str, Any]]) -> None:
    assert faults[1]["backend"][:2] == [
        "KP310",
        "the process runs on jax; the job wants tensorflowSet KERAS_BACKEND for this stage, and no keras.json.",
    ]


PLAIN = """
EPOCHS = 1
BATCH_SIZE = 1
def build_model(): ...
def load_data(preprocess): ...
"""


@pytest.mark.parametrize(
    ("recipe", "contract", "message", "place"),
    [
        (PLAIN.replace("def build_model(): ...", ""), CONTRACT, "no function 'build_model'", "recipe.py"),
        (PLAIN.replace("def load_data(preprocess): ...", ""), CONTRACT, "no function 'load_data'", "recipe.py"),
        (PLAIN.replace("EPOCHS = 1", "EPOCHS = 0"), CONTRACT, "EPOCHS = 0", "recipe.py"),
        (PLAIN.replace("BATCH_SIZE = 1", ""), CONTRACT, "BATCH_SIZE = None", "recipe.py"),
        ("x = 1\ny = x.z\n", CONTRACT, "AttributeError at", "recipe.py:2"),
        ("def f(:\n", CONTRACT, "SyntaxError at", "recipe.py:1"),
        ("import sys\nsys.exit(0)\n", CONTRACT, "SystemExit at", "recipe.py:2"),
        (PLAIN, "[inputs.x]\n", "missing field 'decode'", "kpipe.toml"),
        (PLAIN, '[inputs.x]\ndecode = "npy"\nstep = []\n', "unknown field 'step'", "kpipe.toml"),
        (PLAIN, '[inputs.x]\ndecode = "npy"\nsteps = [{ scal = 1 }]\n', "Did you mean 'scale'", "kpipe.toml"),
        (PLAIN, "[inputs", "kpipe.toml", "kpipe.toml"),
        (PLAIN, "inputs = 3", "kpipe.toml", "kpipe.toml"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_a_finding(tmp_path: Path, recipe: str, contract: str, message: str, place: str) -> None:
    folder = write_recipe(tmp_path / "recipe", recipe, contract)
    before = list(sys.path)
    try:
        with pytest.raises(StageError) as fault:
            load_recipe(folder)
    finally:
        sys.path[:] = before
        sys.modules.pop("kpipe_recipe", None)
    assert fault.value.observation.code == "KP018"
    assert message in fault.value.observation.cause
    assert fault.value.observation.place == str(folder / place)


def test_a_missing_recipe_is_a_finding(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="there is no"):
        load_recipe(tmp_path)

"""A small training with everything that a checkpoint has to preserve: dropout, noise, batch statistics, momenta, a schedule, averaged weights, a short last batch."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py

from kpipe_stages.codec import encode, read_json, write_json
from kpipe_stages.protocol import PROTOCOL, Cadence, Job, Result, Status, TrainJob

CONTRACT = '[inputs.x]\ndecode = "npy"\ndtype = "float32"\n'

RECIPE = """
import keras
import numpy as np
from beside import Jitter

EPOCHS = 4
BATCH_SIZE = 8


def build_model():
    x = keras.Input((6,), name="x")
    h = keras.layers.Dense(12, activation="relu", name="hidden")(x)
    h = keras.layers.BatchNormalization(name="norm")(h)
    h = Jitter(name="jitter")(h)
    h = keras.layers.Dropout(0.4, name="drop")(h)
    model = keras.Model(x, keras.layers.Dense(3, activation="softmax", name="y")(h))
    schedule = keras.optimizers.schedules.CosineDecay(3e-2, 60)
    optimizer = keras.optimizers.Adam(schedule, use_ema=True, ema_momentum=0.9)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def load_data(preprocess):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(140, 6))
    y = np.argmax(x[:, :3] + np.random.normal(size=(140, 3)) * 0.1, axis=1)
    return (x[:101], y[:101]), (x[101:], y[101:])
"""

BESIDE = """
import keras


@keras.saving.register_keras_serializable("sample_training")
class Jitter(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seeds = keras.random.SeedGenerator(11)

    def call(self, x, training=None):
        return x + keras.random.normal(keras.ops.shape(x), stddev=0.05, seed=self.seeds) if training else x
"""

BATCHES = 13
STEPS = 4 * BATCHES


def write_recipe(folder: Path, recipe: str = RECIPE, beside: str = BESIDE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.py").write_text(recipe)
    (folder / "kpipe.toml").write_text(CONTRACT)
    (folder / "beside.py").write_text(beside)
    return folder


def start(folder: Path, recipe: Path, out: Path, *, every: Cadence, resume: bool, backend: str = "jax") -> subprocess.Popen[bytes]:
    """Start the stage as the orchestrator does."""
    folder.mkdir(parents=True)
    params = TrainJob(str(recipe), str(out), 3, backend, None, every, resume)
    write_json(folder / "job.json", Job(PROTOCOL, "train", "token", str(folder), encode(params)))
    environment = {**os.environ, "KERAS_BACKEND": backend, "KERAS_HOME": str(folder / "home"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-P", "-m", "kpipe_stages", "train", str(folder / "job.json")]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)


def finish(folder: Path, process: subprocess.Popen[bytes]) -> Result:
    assert process.stdout is not None
    with process:
        process.stdout.read()  # until it has ended: its stdin stays open, or it would take the orchestrator for gone
    result = read_json(Result, folder / "result.json")
    assert result.status is Status.OK, result
    return result


def kill_after(process: subprocess.Popen[bytes], batches: int, seconds: float) -> bool:
    """SIGKILL once so many batches were told of and some time more has gone; False where it had ended before."""
    assert process.stdout is not None
    told = 0
    for line in process.stdout:
        told += json.loads(line)["event"] == "progress"
        if told >= batches:
            break
    time.sleep(seconds)
    with process:
        alive = process.poll() is None
        process.send_signal(signal.SIGKILL)
    return alive and process.returncode == -signal.SIGKILL


def content(model: Path) -> dict[str, Any]:
    """Everything in a .keras file but when it was saved and where objects lay in memory: weights, optimizer, configuration, bit for bit."""
    found: dict[str, Any] = {}
    with zipfile.ZipFile(model) as archive:
        for name in archive.namelist():
            if name == "model.weights.h5":
                with h5py.File(BytesIO(archive.read(name))) as file:
                    file.visititems(
                        lambda key, node: (
                            found.update({key: (node.dtype.str, node.shape, node[()].tobytes())}) if isinstance(node, h5py.Dataset) else None
                        )
                    )
            elif name == "metadata.json":
                found[name] = {key: value for key, value in json.loads(archive.read(name)).items() if key != "date_saved"}
            else:  # objects that are met twice are numbered by their place in memory
                found[name] = re.sub(r'"shared_object_id": \d+', "", archive.read(name).decode())
    return found


def metrics(out: Path) -> list[tuple[int, dict[str, float]]]:
    """Losses and metrics of every epoch."""
    return [(epoch["epoch"], epoch["metrics"]) for epoch in json.loads(Path(f"{out}.train.json").read_text())["epochs"]]

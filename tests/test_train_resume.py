"""A training that is killed goes on to the very bits that it would have had; what can't be preserved is said, never passed over."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from kpipe_stages.checkpointing.files import checkpoints, folder_of, newest
from kpipe_stages.codec import decode, read_json
from kpipe_stages.protocol import Cadence, TrainResult

from .sample_training import BATCHES, BESIDE, RECIPE, STEPS, content, finish, kill_after, metrics, start, write_recipe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.runtimes
KILLS = 2


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe") / "recipe")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, recipe: Path) -> Path:
    """Without any checkpoint: what comes of it owes nothing to them."""
    top = tmp_path_factory.mktemp("whole")
    out = top / "model.keras"
    result = finish(top / "a", start(top / "a", recipe, out, every=Cadence("off"), resume=False))
    assert decode(TrainResult, result.data).no_checkpoints == "they were turned off"
    return out


def kpipe(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "kpipe", *map(str, words)]


def told(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(kpipe(*words), capture_output=True, text=True, check=False)


def kill_the_command(command: list[str], folder: Path, known: set[Path]) -> None:
    """SIGKILL kpipe itself as soon as there is a checkpoint that wasn't there; its worker ends by itself."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 300
        while set(checkpoints(folder)) <= known:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)


def test_killed_at_random_moments_it_ends_in_the_same_bits(tmp_path: Path, recipe: Path, uninterrupted: Path) -> None:
    """Twice the worker is killed, once the command; then the command goes on to the end."""
    rng = random.Random(os.environ.get("KPIPE_TEST_SEED", "kill"))  # noqa: S311 - moments, not secrets
    out = tmp_path / "model.keras"
    folder, places = folder_of(out), list[int]()
    for kill in range(KILLS):
        process = start(tmp_path / f"{kill}", recipe, out, every=Cadence("steps", 1), resume=bool(places))
        assert kill_after(process, rng.randint(2, STEPS // (KILLS + 2)), rng.uniform(0, 0.02))
        places.append(int(checkpoints(folder)[0].name))
        assert not out.exists()
    command = kpipe("train", recipe, "--out", out, "--seed", 3)
    kill_the_command([*command, "--resume", "--checkpoint-every", "2 steps"], folder, set(checkpoints(folder)))
    table = told("checkpoint", out)
    assert "CosineDecay, by the optimizer's count of steps" in table.stdout
    assert "the first 2 steps, taken twice from one state, gave the same bits" in table.stdout
    refused = told(*command[3:])
    assert refused.returncode == 2
    assert "holds checkpoints of a training that did not end" in refused.stderr
    done = told(*command[3:], "--resume")
    assert done.returncode == 0, done.stderr
    assert "kpipe: resumed after epoch" in done.stderr
    assert "bit for bit an uninterrupted run" in done.stdout
    data = read_json(TrainResult, f"{out}.train.json")
    assert data.notes == ()
    resumed = [int(at.checkpoint) for at in data.resumed]
    assert resumed[:KILLS] == places
    assert len(resumed) == KILLS + 1
    assert resumed[KILLS] > places[-1]
    assert any(place % BATCHES for place in resumed), "no kill fell inside an epoch"
    assert content(out) == content(uninterrupted)
    assert metrics(out) == metrics(uninterrupted)
    assert sorted(path.name for path in out.parent.iterdir() if path.name.startswith("model")) == ["model.keras", "model.keras.train.json"]
    gone = told("checkpoint", out)
    assert gone.returncode == 2
    assert "there is no checkpoint" in gone.stderr


DRIVER = """
import json, os, resource, shutil, sys
from pathlib import Path
import keras
from kpipe_stages import train
from kpipe_stages.checkpointing import subject
from kpipe_stages.codec import encode
from kpipe_stages.protocol import Cadence, Job, StageError, TrainJob
from kpipe_stages.worker import Worker

top = Path(sys.argv[1])
answers = {}


class Stop(BaseException):
    pass


class Stopping(Worker):
    left = None
    stop_at = ""

    def enter(self, phase):
        if phase == self.stop_at:
            raise Stop

    def progress(self, what, done=0, total=0):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Stop


def attempt(recipe, out, every=("steps", 4), resume=False, stop=None, backend="jax", stop_at=""):
    worker = Stopping("train", top, os.open(os.devnull, os.O_WRONLY))
    worker.left, worker.stop_at = stop, stop_at
    keras.backend.clear_session()  # names are numbered from the start, as in a process of its own
    params = TrainJob(str(recipe), str(out), 3, backend, None, Cadence(*every), resume)
    try:
        return encode(train.run(Job(1, "train", "t", str(top), encode(params)), worker))
    except Stop:
        return "stopped"
    except StageError as error:
        return [error.observation.code, error.observation.cause, error.observation.remedy]
    finally:
        for module in ("beside", "kpipe_recipe"):
            sys.modules.pop(module, None)
        sys.path[:] = [path for path in sys.path if not path.startswith(str(top))]


def flip(path, at=-40):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def resumed(name, spoil, recipe=top / "recipe", **more):
    out = top / name / "model.keras"
    shutil.copytree(top / "stopped", top / name)
    spoil(Path(f"{out}.checkpoints"))
    answers[name] = attempt(recipe, out, resume=True, **more)
    answers[name + " left"] = sorted(p.name for p in (top / name).rglob("*"))


answers["stopped"] = attempt(top / "recipe", top / "stopped" / "model.keras", stop=18)
answers["stopped left"] = sorted(p.name for p in Path(f"{top}/stopped/model.keras.checkpoints").iterdir())
resumed("damaged state", lambda folder: flip(folder / "000000000016" / "state.npz"))
resumed("both damaged", lambda folder: [flip(place / "state.npz") for place in folder.iterdir() if place.is_dir()])
resumed("none", lambda folder: shutil.rmtree(folder))
resumed("another recipe", lambda folder: None, recipe=top / "recipe 2")
resumed("another file", lambda folder: None, recipe=top / "recipe 3")
resumed("another datum", lambda folder: None, recipe=top / "recipe 4")


def newer(folder):
    import hashlib
    place = folder / "000000000016"
    text = (place / "checkpoint.json").read_text().replace('"version": 1', '"version": 2', 1)
    (place / "checkpoint.json").write_text(text)
    sums = [f"{hashlib.sha256((place / name).read_bytes()).hexdigest()}  {name}" for name in ("state.npz", "checkpoint.json")]
    (place / "SHA256SUMS").write_text("\\n".join(sums) + "\\n")


resumed("newer version", newer)
own = subject.cpu_model
subject.cpu_model = lambda: "another processor"
resumed("another processor", lambda folder: None)
subject.cpu_model = own

shutil.copytree(top / "stopped", top / "full")
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
answers["full"] = attempt(top / "recipe", top / "full" / "model.keras", resume=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
answers["full left"] = sorted(p.name for p in Path(f"{top}/full/model.keras.checkpoints").iterdir())
answers["full after"] = attempt(top / "recipe", top / "full" / "model.keras", resume=True)

for name in ("generator", "own fit", "hidden"):
    answers[name] = attempt(top / name, top / name / "model.keras", every=("auto", 0))
    answers[name + " asked"] = attempt(top / name, top / name / "asked.keras", every=("epochs", 1))
answers["at the end"] = attempt(top / "recipe", top / "end" / "model.keras", stop_at="save")
answers["after the end"] = attempt(top / "recipe", top / "end" / "model.keras", resume=True)
answers["unsaved"] = attempt(top / "unsaved", top / "unsaved" / "model.keras")
print(json.dumps(answers))
"""

GENERATOR = """
def endless(x, y):
    while True:
        yield x[:8], y[:8]

def data(preprocess):
    (x, y), held_out = load_data_0(preprocess)
    class Some(keras.utils.PyDataset):
        def __len__(self):
            return 13
        def __getitem__(self, i):
            return x[:8], y[:8]
    return (Some(), None), held_out

load_data_0, load_data = load_data, data
"""

OWN_FIT = """
class Own(keras.Model):
    def fit(self, *args, **kwargs):
        return super().fit(*args, **kwargs)

def build():
    inner = build_model_0()
    model = Own(inner.inputs, inner.outputs)
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model

build_model_0, build_model = build_model, build
"""

GROWING = """
import tensorflow as tf

class Growing(keras.Model):
    def train_step(self, data):
        told = super().train_step(data)
        self.other.apply([tf.zeros_like(v) for v in self.trainable_variables], self.trainable_variables)
        return told

def build():
    inner = build_model_0()
    model = Growing(inner.inputs, inner.outputs)
    model.other = keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model

EPOCHS = 1
build_model_0, build_model = build_model, build
"""

HIDDEN = """
class Hidden(keras.Model):
    def train_step(self, state, data):
        self.own = getattr(self, "own", np.random.default_rng(0))
        x, y = data
        return super().train_step(state, (x + self.own.normal() * 0.01, y))

def build():
    inner = build_model_0()
    model = Hidden(inner.inputs, inner.outputs)
    model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
    return model

EPOCHS = 1
build_model_0, build_model = build_model, build
"""

UNSAVED = """
import beside
beside.Jitter.get_config = lambda self: 1 / 0
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every case in one process: a training that was stopped after 18 batches, taken up again in every state of disrepair."""
    top = tmp_path_factory.mktemp("resume")
    write_recipe(top / "recipe")
    write_recipe(top / "recipe 2", RECIPE.replace("Dropout(0.4", "Dropout(0.5"))
    write_recipe(top / "recipe 3", beside=BESIDE.replace("stddev=0.05", "stddev=0.06"))
    write_recipe(top / "recipe 4", RECIPE.replace("default_rng(5)", "default_rng(6)"))
    for name, more in (("generator", GENERATOR), ("own fit", OWN_FIT), ("hidden", HIDDEN), ("unsaved", UNSAVED)):
        write_recipe(top / name, RECIPE + more)
    cache = {"JAX_COMPILATION_CACHE_DIR": str(top / "cache"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    environment = {**os.environ, "KERAS_BACKEND": "jax", "KERAS_HOME": str(top / "home"), **cache}
    done = subprocess.run([sys.executable, "-P", "-c", DRIVER, str(top)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "top": top}


def test_two_checkpoints_are_kept(answers: dict[str, Any]) -> None:
    assert answers["stopped"] == "stopped"
    assert [name for name in answers["stopped left"] if name != ".lock"] == ["000000000012", "000000000016"]


def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(answers: dict[str, Any], uninterrupted: Path) -> None:
    (at,) = answers["damaged state"]["resumed"]
    assert at["checkpoint"] == "000000000012"
    assert (at["epoch"], at["batch"]) == (0, 12)
    (line,) = at["damaged"]
    assert line.startswith("000000000016: state.npz has SHA-256")
    assert content(answers["top"] / "damaged state" / "model.keras") == content(uninterrupted)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a bit of the record": (
        lambda place: (place / "checkpoint.json").write_text((place / "checkpoint.json").read_text().replace("3", "4", 1)),
        "checkpoint.json has",
    ),
    "cut short": (lambda place: (place / "state.npz").write_bytes((place / "state.npz").read_bytes()[:-1]), "state.npz has SHA-256"),
    "empty": (lambda place: (place / "state.npz").write_bytes(b""), "state.npz has SHA-256"),
    "no sums": (lambda place: (place / "SHA256SUMS").unlink(), "No such file"),
    "sums of nothing": (lambda place: (place / "SHA256SUMS").write_text(""), "isn't what SHA256SUMS says"),
    "sums that are none": (lambda place: (place / "SHA256SUMS").write_bytes(b"\xff\n"), "isn't what SHA256SUMS says"),
    "an empty folder": (lambda place: [file.unlink() for file in place.iterdir()], "it can't be read"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_every_damage_is_found_before_anything_is_read(tmp_path: Path, answers: dict[str, Any], damage: str) -> None:
    folder = tmp_path / "model.keras.checkpoints"
    shutil.copytree(answers["top"] / "stopped" / "model.keras.checkpoints", folder)
    spoil, said = DAMAGE[damage]
    spoil(folder / "000000000016")
    found = newest(folder)
    assert found.folder.name == "000000000012"
    (line,) = found.damaged
    assert line.startswith("000000000016: ")
    assert said in line


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("both damaged", "is damaged (000000000016: state.npz has SHA-256"),
        ("none", "there is no checkpoint in"),
        ("another recipe", "is of another training: recipe file recipe.py changed from"),
        ("another file", "is of another training: recipe file beside.py changed from"),
        ("another datum", "data validation [0] changed from float32 (39, 6)"),
        ("newer version", "is of version 2; this kpipe knows version 1"),
    ],
)
def test_what_cannot_be_gone_on_from_is_refused(answers: dict[str, Any], case: str, said: str) -> None:
    code, cause, remedy = answers[case]
    assert code == "KP019"
    assert said in cause
    assert remedy
    assert "model.keras" not in answers[f"{case} left"]
    if case != "none":
        assert {"000000000012", "000000000016"} <= set(answers[f"{case} left"])


def test_another_processor_is_said_and_goes_on(answers: dict[str, Any], uninterrupted: Path) -> None:
    assert any("processor changed from" in note and note.endswith("to another processor") for note in answers["another processor"]["notes"])
    assert answers["another processor"]["resumed"][0]["notes"] == answers["another processor"]["notes"]
    assert content(answers["top"] / "another processor" / "model.keras") == content(uninterrupted)


def test_a_full_disk_is_an_error_and_what_was_kept_is_whole(answers: dict[str, Any], uninterrupted: Path) -> None:
    code, cause, remedy = answers["full"]
    assert code == "KP019"
    assert "a checkpoint can't be written to" in cause
    assert "File too large" in cause
    assert "Make room" in remedy
    assert [name for name in answers["full left"] if name != ".lock"] == ["000000000012", "000000000016"]
    assert answers["full after"]["resumed"][0]["damaged"] == []
    assert content(answers["top"] / "full" / "model.keras") == content(uninterrupted)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("generator", "Some, whose order isn't known"),
        ("own fit", "Own has a fit() of its own"),
    ],
)
def test_a_training_that_cannot_be_entered_says_so(answers: dict[str, Any], case: str, said: str) -> None:
    assert said in answers[case]["no_checkpoints"]
    assert answers[case]["checkpoints"]["written"] == 0
    code, cause, _ = answers[f"{case} asked"]
    assert code == "KP019"
    assert said in cause


def test_what_hides_from_a_checkpoint_is_seen_by_taking_the_first_steps_twice(answers: dict[str, Any]) -> None:
    assert answers["hidden"]["no_checkpoints"] == ""
    (note,) = answers["hidden"]["notes"]
    assert note.startswith("the first 2 steps, taken twice from one state, differ: ")
    last = answers["hidden"]["preserved"][-1]
    assert last["preserved"] == "no"
    assert "DIFFERED" in last["detail"]


def test_stopped_between_training_and_saving_only_saving_is_left(answers: dict[str, Any], uninterrupted: Path) -> None:
    assert answers["at the end"] == "stopped"
    (at,) = answers["after the end"]["resumed"]
    assert (at["epoch"], at["batch"], int(at["checkpoint"])) == (4, 0, STEPS)
    assert content(answers["top"] / "end" / "model.keras") == content(uninterrupted)
    assert metrics(answers["top"] / "end" / "model.keras") == metrics(uninterrupted)


def test_a_model_that_cannot_be_saved_keeps_its_training(answers: dict[str, Any]) -> None:
    assert answers["unsaved"][0] == "KP018"
    kept = checkpoints(answers["top"] / "unsaved" / "model.keras.checkpoints")
    assert int(kept[0].name) == STEPS


ON_TENSORFLOW = """
answers["whole"] = attempt(top / "recipe", top / "whole.keras", every=("off", 0), backend="tensorflow")
answers["stopped"] = attempt(top / "recipe", top / "model.keras", every=("steps", 3), stop=20, backend="tensorflow")
answers["resumed"] = attempt(top / "recipe", top / "model.keras", every=("auto", 0), resume=True, backend="tensorflow")
answers["growing"] = attempt(top / "growing", top / "growing.keras", every=("auto", 0), backend="tensorflow")
answers["growing asked"] = attempt(top / "growing", top / "asked.keras", backend="tensorflow")
answers["growing off"] = attempt(top / "growing", top / "off.keras", every=("off", 0), backend="tensorflow")
print(json.dumps(answers))
"""


def test_on_tensorflow_too(tmp_path: Path) -> None:
    write_recipe(tmp_path / "recipe")
    write_recipe(tmp_path / "growing", RECIPE + GROWING)
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "KERAS_HOME": str(tmp_path / "home"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    driver = DRIVER.split('answers["stopped"] =', maxsplit=1)[0] + ON_TENSORFLOW
    done = subprocess.run([sys.executable, "-P", "-c", driver, str(tmp_path)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    assert answers["stopped"] == "stopped"
    assert [(at["epoch"], at["batch"]) for at in answers["resumed"]["resumed"]] == [(1, 5)]
    assert answers["resumed"]["notes"] == []
    whole, out = tmp_path / "whole.keras", tmp_path / "model.keras"
    assert content(out) == content(whole)
    assert metrics(out) == metrics(whole)
    assert "the model makes variables while it trains (" in answers["growing"]["no_checkpoints"]
    assert answers["growing asked"][0] == "KP019"
    assert content(tmp_path / "growing.keras") == content(tmp_path / "off.keras")


def test_the_copy_of_a_checkpoint_is_checked_by_sha256sum(answers: dict[str, Any]) -> None:
    if shutil.which("sha256sum") is None:
        pytest.skip("no sha256sum here")
    place = answers["top"] / "both damaged" / "model.keras.checkpoints" / "000000000016"
    done = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "state.npz: FAILED" in done.stdout
    assert "checkpoint.json: OK" in done.stdout

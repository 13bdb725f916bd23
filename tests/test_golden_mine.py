"""``kpipe golden mine`` on the shipped example and a pool drawn by a seed, held against scores computed apart from kpipe."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kpipe.contract import load_contract
from kpipe.curating import decoding
from kpipe.curating.manifest import STAGING
from kpipe.curating.mine import MineRequest, mine_pool
from kpipe.curating.selection import By
from kpipe.curating.verify import verify_set
from kpipe.golden import sha256_of
from kpipe.running.plan import input_specs
from kpipe_stages.preprocess import Preprocessor

from .cases.gate import command
from .sample_gate import GOLDEN, LAYERS, MODEL, Started, copy_golden, flat, manifest, shipped
from .sample_pool import make_pool
from .test_golden_placing import snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from .cases.gate import Command

pytestmark = pytest.mark.runtimes

POOL = 120
SCORES = """
import json, sys
import numpy as np
import keras
from layers import RMSNorm
model = keras.saving.load_model(sys.argv[2], custom_objects={"RMSNorm": RMSNorm}, compile=False)
print(json.dumps(np.asarray(model(np.load(sys.argv[1]), training=False)).tolist()))
"""
NEAREST = """
[targets.litert]
[targets.other_steps]
runtime = "litert"
[targets.other_steps.inputs.image]
decode = "image"
dtype = "float32"
steps = [{ alpha = "composite" }, { channels = "gray" }, { resize = [16, 16] }, { scale = 0.00392156862745098 }]
"""
"""A target whose production forgot to invert: it has to be what disagrees."""

TINY = """
import sys
import keras
scores = keras.Input((3,), name="x")
keras.Model(scores, keras.layers.Softmax(name="class")(scores)).save(sys.argv[1] + "/classes.keras")
keras.Model(scores, keras.layers.Dense(1, name="price")(scores)).save(sys.argv[1] + "/price.keras")
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits, three files that can't be inputs, one that the set holds, one that stands twice."""
    folder = tmp_path_factory.mktemp("pools") / "camera"
    made = make_pool(folder, POOL)
    (folder / "notes.txt").write_text("hello", encoding="utf-8")
    (folder / "gray" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    os.mkfifo(folder / "pipe.png")
    (folder / "linked").symlink_to(GOLDEN / "files", target_is_directory=True)
    (folder / ".hidden.png").write_bytes(b"hidden")
    shutil.copyfile(GOLDEN / manifest(GOLDEN)[0]["file"], folder / "known.png")
    (folder / "zz-copy").mkdir()
    shutil.copyfile(folder / next(iter(made)), folder / "zz-copy" / "again.png")
    return folder


@pytest.fixture(scope="module")
def oracle(pool: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, float]]:
    """Name in the pool to decision and margin, by Keras alone."""
    names = sorted(p.relative_to(pool).as_posix() for p in pool.rglob("*-[0-9].*"))
    assert len(names) == POOL
    return dict(zip(names, scored([pool / name for name in names], tmp_path_factory.mktemp("oracle")), strict=True))


def scored(files: list[Path], folder: Path) -> list[tuple[str, float]]:
    """Decision and margin of each file."""
    [spec] = input_specs(load_contract(MODEL.parent / "kpipe.toml").contract.inputs)
    np.save(folder / "tensors.npy", np.stack([Preprocessor(spec).from_path(file) for file in files]))
    environment = {**os.environ, "KERAS_BACKEND": "jax", "KERAS_HOME": str(folder), "PYTHONPATH": str(LAYERS.parent)}
    words = [sys.executable, "-c", SCORES, str(folder / "tensors.npy"), str(MODEL)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    scores = np.array(json.loads(done.stdout.splitlines()[-1]))
    best = np.sort(scores, axis=1)
    return [(str(row.argmax()), float(top[-1] - top[-2])) for row, top in zip(scores, best, strict=True)]


def contract(folder: Path, targets: str = "[targets.litert]\n") -> Path:
    path = folder / "kpipe.toml"
    path.write_text(shipped(folder / "golden").split("[targets.", 1)[0] + targets, encoding="utf-8")
    return path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A copy of the shipped set, ``golden``, and its contract."""
    copy_golden(tmp_path)
    contract(tmp_path)
    return tmp_path


def mine(*words: str | Path, folder: Path) -> Command:
    return command("golden", "mine", "golden", "--model", MODEL, "--contract", "kpipe.toml", *words, folder=folder)


def request(place: Path, pool: Path, count: int, **more: Any) -> MineRequest:
    return MineRequest(place / "golden", pool, count, MODEL, place / "kpipe.toml", **more)


# ------------------------------------------------------------ what is chosen


def test_the_default_mix_is_added_as_mined_with_reasons_and_nothing_approved(place: Path, pool: Path, oracle: dict[str, tuple[str, float]]) -> None:
    old = (place / "golden" / "manifest.toml").read_text(encoding="utf-8")
    answer = mine("--from", pool, "-n", "8", "--target", "litert", "--json", folder=place)
    assert answer.exit_code == 0, answer
    report = json.loads(answer.stdout)
    assert report["shares"] == {"margin": 4, "disagreement": 2, "coverage": 2}
    assert Counter(item["by"] for item in report["added"]) == {"margin": 4, "disagreement": 2, "coverage": 2}
    assert (report["pool"], report["in_set"], report["twice"]) == (POOL + 6, 1, 1)
    assert set(report["rejected"]) == {"notes.txt", "gray/broken.png", "pipe.png", "linked"}
    assert "KP103" in report["rejected"]["notes.txt"]
    assert "not a regular file" in report["rejected"]["pipe.png"]

    rows = manifest(place / "golden")
    assert (place / "golden" / "manifest.toml").read_text(encoding="utf-8").startswith(old)
    assert len(rows) == 78 + 8
    assert report["manifest_sha256"] == sha256_of(place / "golden" / "manifest.toml")
    for row, item in zip(rows[78:], report["added"], strict=True):
        name = row["origin"].removeprefix("camera/")
        assert row["chosen"] == "mined"
        assert not {"expected", "label"} & set(row)
        assert row["how"] == item["how"]
        assert row["slice"] == name.split("/")[0]
        assert row["sha256"] == sha256_of(pool / name) == sha256_of(place / "golden" / row["file"])
        assert item["decision"] == oracle[name][0]
        assert row["margin"] == pytest.approx(oracle[name][1], abs=1e-4)
    smallest = sorted(oracle, key=lambda name: oracle[name][1])[:4]
    assert [row["origin"] for row in rows[78:82]] == [f"camera/{name}" for name in smallest]
    assert rows[78]["how"] == f"smallest margin {report['added'][0]['margin']:.4g} of {POOL} in camera"
    assert "on litert" in rows[82]["how"]
    assert verify_set(place / "golden").ok


def test_the_same_seed_gives_the_same_choice_in_chunks_too_and_what_is_known_is_not_mined_again(
    place: Path, pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = mine_pool(request(place, pool, 6, seed=3, targets=("litert",)))
    assert first.shares == {"margin": 3, "disagreement": 2, "coverage": 1}
    other = place / "other"
    shutil.copytree(GOLDEN, other / "golden")
    contract(other)
    monkeypatch.setattr(decoding, "CHUNK", 70)  # the set's own 78 and the pool's files share chunks
    again = mine_pool(request(other, pool, 6, seed=3, targets=("litert",)))
    assert again.added == first.added
    assert (other / "golden" / "manifest.toml").read_bytes() == (place / "golden" / "manifest.toml").read_bytes()
    assert set(again.rejected) == {"notes.txt", "gray/broken.png", "pipe.png", "linked"}
    third = mine_pool(request(place, pool, 6, seed=3))
    assert third.in_set == 7
    assert not {item.origin for item in third.added} & {item.origin for item in first.added}


def test_coverage_brings_the_classes_that_the_set_has_fewest_of(
    place: Path, pool: Path, oracle: dict[str, tuple[str, float]], tmp_path: Path
) -> None:
    report = mine_pool(request(place, pool, 200, by=(By.COVERAGE,)))
    assert len(report.added) == POOL < report.wanted, "all there are, and said to be fewer"
    assert {item.origin.removeprefix("camera/") for item in report.added} == set(oracle)
    held = Counter(decision for decision, _ in scored([GOLDEN / row["file"] for row in manifest(GOLDEN)], tmp_path))
    left = Counter(decision for decision, _ in oracle.values())
    for item in report.added:
        assert item.decision is not None
        assert held[item.decision] == min(held[decision] for decision, count in left.items() if count)
        held[item.decision] += 1
        left[item.decision] -= 1
    assert report.missing == ()


def test_a_target_with_other_steps_is_what_disagrees(place: Path, pool: Path) -> None:
    contract(place, NEAREST)
    answer = mine("--from", pool, "-n", "3", "--by", "disagreement", "--target", "litert", "--target", "other_steps", folder=place)
    assert answer.exit_code == 0, answer
    for row in manifest(place / "golden")[-3:]:
        assert "decided otherwise by other_steps; drift" in row["how"]
        assert row["how"] in answer.stdout


def test_fewer_than_asked_for_end_with_1(place: Path, tmp_path: Path) -> None:
    make_pool(tmp_path / "small", 3)
    answer = mine("--from", "small", "-n", "5", folder=place)
    assert answer.exit_code == 1, answer
    assert "3 of 5 added as mined" in answer.stdout
    assert len(manifest(place / "golden")) == 81


# ------------------------------------------------------------ small models: ties, NaN, sizes, no rule


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Softmax of its three inputs, a regression, and a pool of ``.npy`` files."""
    folder = tmp_path_factory.mktemp("tiny")
    environment = {**os.environ, "KERAS_BACKEND": "jax", "KERAS_HOME": str(folder)}
    done = subprocess.run([sys.executable, "-c", TINY, str(folder)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "kpipe.toml").write_text('[inputs.x]\ndecode = "npy"\n', encoding="utf-8")
    rows = {"tied": [1, 1, 0], "nan": [np.nan, 0, 1], "long": [1, 2, 3, 4], "close": [1, 1.1, 0], "clear": [9, 0, 0]}
    (folder / "pool").mkdir()
    for name, values in rows.items():
        np.save(folder / "pool" / f"{name}.npy", np.array(values, np.float32))
    return folder


def test_what_proves_nothing_is_counted_and_never_mined(tiny: Path, tmp_path: Path) -> None:
    report = mine_pool(MineRequest(tmp_path / "golden", tiny / "pool", 5, tiny / "classes.keras"))
    assert [item.id for item in report.added] == ["close", "clear"]
    assert report.unusable == 2
    assert set(report.rejected) == {"long.npy"}
    assert "becomes [4] for input 'x'; the model takes [3]" in report.rejected["long.npy"]
    assert verify_set(tmp_path / "golden", tiny / "kpipe.toml").ok


def test_a_model_without_a_rule_has_no_margins_and_can_be_covered(tiny: Path, tmp_path: Path) -> None:
    words = ("golden", "mine", tmp_path / "golden", "--from", tiny / "pool", "-n", "2", "--model", tiny / "price.keras")
    answer = command(*words, folder=tmp_path)
    assert answer.exit_code == 2
    assert "has no decision rule, and none can be inferred, so there are no margins" in flat(answer.stderr)
    assert not (tmp_path / "golden").exists()
    assert command(*words, "--by", "coverage", folder=tmp_path).exit_code == 0
    assert len(manifest(tmp_path / "golden")) == 2


def test_the_model_does_not_approve_what_it_does_not_decide(tiny: Path, tmp_path: Path) -> None:
    for name in ("tied", "nan"):
        words = ("golden", "add", "golden", tiny / "pool" / f"{name}.npy", "--model", tiny / "classes.keras", "--expected-from-model")
        answer = command(*words, folder=tmp_path)
        assert answer.exit_code == 2, answer
        assert "the model does not decide on" in answer.stderr
    assert not (tmp_path / "golden").exists()


# ------------------------------------------------------------ refusals


def broken_set(place: Path) -> None:
    (place / "golden" / manifest(GOLDEN)[0]["file"]).write_bytes(b"altered")


def broken_model(place: Path) -> None:
    (place / "broken.keras").write_bytes(b"not a zip")


def other_model(place: Path) -> None:
    text = (place / "kpipe.toml").read_text(encoding="utf-8")
    (place / "kpipe.toml").write_text(text.replace("[model]", f'[model]\nsha256 = "{"0" * 64}"'), encoding="utf-8")


def other_rule(place: Path) -> None:
    text = (place / "kpipe.toml").read_text(encoding="utf-8")
    (place / "kpipe.toml").write_text(text.replace('labels = ["0", "1", ', 'labels = ["0", '), encoding="utf-8")


def other_output(place: Path) -> None:
    text = (place / "kpipe.toml").read_text(encoding="utf-8")
    (place / "kpipe.toml").write_text(text.replace('output = "digit"', 'output = "digits"'), encoding="utf-8")


def other_artifact(place: Path) -> None:
    (place / "model.tflite").write_bytes(b"no flatbuffer")
    contract(place, '[targets.litert]\nartifact = "model.tflite"\n')


def variant(place: Path) -> None:
    contract(place, '[targets.litert]\nquantize = "float16"\n')


def wrong_step(place: Path) -> None:
    text = (place / "kpipe.toml").read_text(encoding="utf-8")
    (place / "kpipe.toml").write_text(text.replace("{ resize = [16, 16]", "{ resize = [15, 16]"), encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "prepare", "expected"),
    [
        (("-n", "0"), None, "Invalid value for '-n'"),
        (("--from", "none"), None, "--from none is no folder"),
        (("--from", "golden/files"), None, "lies in the golden set itself"),
        (("--from", "empty"), lambda place: (place / "empty").mkdir(), "holds no file"),
        (("--from", "known"), lambda place: shutil.copytree(GOLDEN / "files", place / "known"), "has nothing to add: of 78 files 78 are in the set"),
        (("--from", "dead"), lambda place: (place / "dead").symlink_to("nowhere"), "--from dead is no folder"),
        (("--by", "disagreement"), None, "--by disagreement needs --target"),
        (("--by", "hardness"), None, "hardness"),
        (("--target", "litert3"), None, "no such target"),
        (("--target", "litert"), other_artifact, "--target litert: there is no artifact to run"),
        (("--target", "litert"), variant, "it is a precision variant, and mining makes none"),
        (("--model", "none.keras"), None, "none.keras does not exist"),
        (("--model", "broken.keras"), broken_model, "is refused, so it was not asked: KP0"),
        ((), other_model, "the contract names 0000"),
        ((), broken_set, "its own inputs can't be used"),
        ((), wrong_step, "its own inputs can't be used"),
        ((), other_rule, "the decision rule can't be used on the model's outputs"),
        ((), other_output, "decision.output is 'digits'"),
    ],
)
def test_a_refusal_says_why_and_adds_nothing(words: tuple[str, ...], prepare: Any, expected: str, place: Path, tmp_path: Path) -> None:
    if prepare:
        prepare(place)
    make_pool(tmp_path / "little", 2)
    before = snapshot(place / "golden")
    given = ["--from", "little", "-n", "2", *words]
    answer = mine(*given, folder=place)
    assert (answer.exit_code, answer.stdout) == (2, ""), answer
    assert expected in flat(answer.stderr)
    assert "Traceback" not in answer.stderr
    assert snapshot(place / "golden") == before


def test_stopped_in_the_middle_it_leaves_the_set_as_it_was(place: Path, pool: Path) -> None:
    before = snapshot(place)
    started = Started(place, ["golden", "mine", "golden", "--from", str(pool), "-n", "4", "--model", str(MODEL), "--contract", "kpipe.toml"])
    started.wait_for("inspect: ok")
    started.send(signal.SIGTERM)
    code, stdout = started.end()
    assert (code, stdout) == (143, "")
    assert {name: data for name, data in snapshot(place).items() if not name.startswith("stderr-")} == before
    assert not (place / "golden" / STAGING).exists()

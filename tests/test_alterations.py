"""Everything that can be altered: each alteration ends in FAIL or INCOMPLETE with a finding that names it, never in PASS."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kpipe
from kpipe.golden import sha256_of
from kpipe_stages.digest import digest

from .cases.gate import command
from .sample_gate import (
    GOLDEN,
    LAYERS,
    MODEL,
    QUIET,
    artifact,
    change_weights,
    codes,
    copy_golden,
    digits_contract,
    findings,
    flat,
    manifest,
    states,
    without_targets,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe.record import RunRecord

pytestmark = pytest.mark.runtimes

LITERT = "[targets.litert]\n"


def outcome(run: kpipe.Run) -> tuple[str, int]:
    return str(run.verdict), int(run.exit_code)


# ------------------------------------------------------------ what is refused before anything runs


def refused(folder: Path, contract: Path, model: Path = MODEL) -> RunRecord:
    """FAIL, and no framework was started."""
    run = kpipe.validate(model, contract=contract, out=folder / "out")
    assert outcome(run) == ("FAIL", 1)
    assert {stage.name for stage in run.record.stages} <= {"inspect", "prepare"}
    assert {t.cells.passed for t in run.record.targets} == {0}
    return run.record


@pytest.mark.parametrize("position", [0, 41, -1])
@pytest.mark.parametrize("byte", [0, -1])
def test_one_byte_of_a_golden_file(tmp_path: Path, position: int, byte: int) -> None:
    golden = copy_golden(tmp_path)
    entry = manifest(golden)[position]
    path = golden / entry["file"]
    data = bytearray(path.read_bytes())
    data[byte] ^= 0x10
    path.write_bytes(data)
    record = refused(tmp_path, digits_contract(tmp_path, LITERT, golden=golden))
    (found,) = findings(record, "KP102")
    assert found.place == entry["id"]
    assert entry["sha256"] in found.cause
    assert hashlib.sha256(data).hexdigest() in found.cause


def test_a_golden_file_that_was_deleted(tmp_path: Path) -> None:
    golden = copy_golden(tmp_path)
    entry = manifest(golden)[7]
    (golden / entry["file"]).unlink()
    record = refused(tmp_path, digits_contract(tmp_path, LITERT, golden=golden))
    (found,) = findings(record, "KP101")
    assert found.place == entry["id"]


def test_two_golden_files_that_were_exchanged(tmp_path: Path) -> None:
    golden = copy_golden(tmp_path)
    one, other = (golden / entry["file"] for entry in manifest(golden)[:2])
    left, right = one.read_bytes(), other.read_bytes()
    one.write_bytes(right)
    other.write_bytes(left)
    record = refused(tmp_path, digits_contract(tmp_path, LITERT, golden=golden))
    assert {f.place for f in findings(record, "KP102")} == {entry["id"] for entry in manifest(golden)[:2]}


def guarded(folder: Path, golden: Path) -> Path:
    """A contract that names its manifest by digest."""
    text = (without_targets(golden) + LITERT).replace("[golden]\n", f'[golden]\nmanifest_sha256 = "{sha256_of(GOLDEN / "manifest.toml")}"\n')
    path = folder / "kpipe.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_manifest_that_was_edited(tmp_path: Path) -> None:
    """A hard input dropped: without its digest nobody would miss it."""
    golden = copy_golden(tmp_path)
    path = golden / "manifest.toml"
    head, *entries = path.read_text(encoding="utf-8").split("[[golden]]")
    path.write_text("[[golden]]".join([head, *entries[1:]]), encoding="utf-8")
    record = refused(tmp_path, guarded(tmp_path, golden))
    (found,) = findings(record, "KP105")
    assert sha256_of(path) in found.cause


def test_a_guarded_golden_set_that_is_replaced_on_the_command_line(tmp_path: Path) -> None:
    contract = guarded(tmp_path, GOLDEN)
    np.savez(tmp_path / "easy.npz", image=np.zeros((2, 16, 16, 1), np.float32))
    run = kpipe.validate(MODEL, contract=contract, golden=tmp_path / "easy.npz", out=tmp_path / "out")
    assert outcome(run) == ("FAIL", 1)
    assert codes(run.record) >= {"KP105"}


def test_a_candidate_that_is_not_the_file_that_the_contract_names(tmp_path: Path) -> None:
    """One weight by its smallest step: no decision would notice."""

    def touch(values: np.ndarray) -> None:
        values[0] = np.nextafter(values[0], np.inf)

    altered = change_weights(MODEL, tmp_path / "model.keras", "layers/dense_1/vars/1", touch)
    text = (without_targets() + LITERT).replace("[model]\n", f'[model]\nsha256 = "{sha256_of(MODEL)}"\n')
    contract = tmp_path / "kpipe.toml"
    contract.write_text(text, encoding="utf-8")
    record = refused(tmp_path, contract, altered)
    (found,) = findings(record, "KP011")
    assert sha256_of(altered) in found.cause
    assert sha256_of(MODEL) in found.cause


# ------------------------------------------------------------ what only the model's answers can tell


def test_one_expected_label(tmp_path: Path) -> None:
    golden = copy_golden(tmp_path)
    entry = next(e for e in manifest(golden) if e.get("expected") == "8")
    path = golden / "manifest.toml"
    before, after = path.read_text(encoding="utf-8").split(f'id = "{entry["id"]}"')
    path.write_text(f'{before}id = "{entry["id"]}"{after.replace(chr(34) + "8" + chr(34), chr(34) + "3" + chr(34), 2)}', encoding="utf-8")
    assert next(e for e in manifest(golden) if e["id"] == entry["id"])["expected"] == "3"
    run = kpipe.validate(MODEL, contract=digits_contract(tmp_path, LITERT, golden=golden), out=tmp_path / "out")
    assert outcome(run) == ("FAIL", 1)
    (found,) = findings(run.record, "KP410")
    assert found.place == entry["id"]
    assert "decides '8'" in found.cause
    assert "'3' was approved" in found.cause
    assert states(run.record) == {"litert": "pass"}
    assert run.record.reference is not None
    assert str(run.record.reference.status) == "fail"


def test_one_weight_of_the_candidate(tmp_path: Path) -> None:
    """No digest in the contract: every target agrees with the altered model, and the approved decisions give it away."""

    def spoil(values: np.ndarray) -> None:
        values[4] += 8.0

    altered = change_weights(MODEL, tmp_path / "model.keras", "layers/dense_1/vars/1", spoil)
    run = kpipe.validate(altered, contract=digits_contract(tmp_path, LITERT), out=tmp_path / "out")
    assert outcome(run) == ("FAIL", 1)
    named = {f.place for f in findings(run.record, "KP410")}
    approved = {e["id"] for e in manifest(GOLDEN) if "expected" in e}
    assert named
    assert named <= approved
    assert all("decides '4'" in f.cause for f in findings(run.record, "KP410"))
    assert states(run.record) == {"litert": "pass"}


# ------------------------------------------------------------ during the run


DURING = """
[targets.first]
runtime = "litert"
artifact = "release/first.tflite"

[targets.altered]
runtime = "litert"
artifact = "release/altered.tflite"

[targets.deleted]
runtime = "onnxruntime"
artifact = "release/deleted.onnx"

[targets.weights_gone]
runtime = "openvino_ir"
artifact = "release/gone.xml"
settings = { INFERENCE_PRECISION_HINT = "f32" }

[targets.after]
runtime = "litert"
artifact = "release/after.tflite"

[targets.served]
runtime = "saved_model"

[targets.onnxruntime]
"""


@pytest.fixture(scope="module")
def during(digits_run: kpipe.Run, tmp_path_factory: pytest.TempPathFactory) -> kpipe.Run:
    """One run, one worker at a time; as soon as the first target has answered, the files of others are altered or deleted, and its own when all is done."""
    folder = tmp_path_factory.mktemp("during")
    files, exported = folder / "release", folder / "run" / "artifacts"
    files.mkdir()
    for name in ("first", "altered", "after"):
        shutil.copy(artifact(digits_run, "litert"), files / f"{name}.tflite")
    shutil.copy(artifact(digits_run, "onnxruntime"), files / "deleted.onnx")
    shutil.copy(artifact(digits_run, "openvino_ir"), files / "gone.xml")
    shutil.copy(artifact(digits_run, "openvino_ir").with_suffix(".bin"), files / "gone.bin")
    (folder / "extra.py").touch()
    done: set[str] = set()

    def meddle(stage: str, event: dict[str, Any]) -> None:
        if event["event"] != "result":
            return
        done.add(stage)
        if stage == "run.first":
            flip(files / "altered.tflite")
            (files / "deleted.onnx").unlink()
            (files / "gone.bin").unlink()
        if stage == "run.after":
            flip(files / "after.tflite")
            (folder / "extra.py").write_text("other = 1", encoding="utf-8")
        if stage == "run.onnxruntime":
            next(exported.rglob("model.onnx")).unlink()
        if stage == "run.served":
            flip(next(exported.rglob("saved_model.pb")))

    run = kpipe.validate(
        MODEL, contract=digits_contract(folder, DURING), out=folder / "run", jobs=1, custom_objects=(folder / "extra.py",), on_event=meddle
    )
    assert {"run.first", "run.after", "run.onnxruntime", "run.served"} <= done
    return run


def flip(path: Path) -> None:
    """Change one byte in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "code", "word"),
    [
        ("altered", "KP211", "altered.tflite"),
        ("deleted", "KP210", "deleted.onnx"),
        ("weights_gone", "KP210", "gone."),
        ("after", "KP211", "after.tflite"),
        ("onnxruntime", "KP210", "model.onnx"),
        ("served", "KP211", "saved_model"),
    ],
)
def test_an_artifact_that_changes_during_the_run(during: kpipe.Run, name: str, code: str, word: str) -> None:
    assert states(during.record)[name] == "fail"
    found = findings(during.record, code, name)
    assert found
    assert any(word in f.cause or word in f.place for f in found)
    assert all(f.required for f in found)


def test_code_that_changes_during_the_run(during: kpipe.Run) -> None:
    """Each worker has read it for itself: nobody knows any more which of them ran what."""
    (found,) = findings(during.record, "KP011")
    assert found.place == "extra.py"


def test_the_other_targets_are_judged_all_the_same(during: kpipe.Run) -> None:
    assert outcome(during) == ("FAIL", 1)
    assert states(during.record)["first"] == "pass"
    assert not codes(during.record, "first") - {"KP209"}


# ------------------------------------------------------------ a target's own preprocessing, and its precision


RGB = '''\
"""A tiny model that sees colours, and pictures for it: run with the folder to write to."""

import hashlib
import sys

import keras
import numpy as np
from PIL import Image

folder = sys.argv[1]
keras.utils.set_random_seed(3)
image = keras.Input((8, 8, 3), name="photo")
x = keras.layers.Conv2D(6, 3, activation="relu", name="conv")(image)
x = keras.layers.Dense(4, activation="softmax", name="kind")(keras.layers.Flatten()(x))
keras.Model(image, x).save(f"{folder}/colour.keras")
random = np.random.default_rng(11)
lines = ["version = 1"]
for i in range(9):
    path = f"{folder}/golden/p{i}.png"
    Image.fromarray(random.integers(0, 256, (19, 23, 3), dtype=np.uint8)).save(path)
    digest = hashlib.sha256(open(path, "rb").read()).hexdigest()
    lines.append(f'[[golden]]\\nid = "p{i}"\\nfile = "p{i}.png"\\nsha256 = "{digest}"\\nchosen = "sampled"')
open(f"{folder}/golden/manifest.toml", "w").write("\\n".join(lines))
'''

STEPS = '{{ resize = [8, 8], method = "{method}", antialias = {antialias} }}, {{ channels = "{channels}" }}, {{ scale = {scale} }}'


def steps(method: str = "bilinear", antialias: str = "true", channels: str = "rgb", scale: float = 1 / 255) -> str:
    return f'decode = "image"\nsteps = [{STEPS.format(method=method, antialias=antialias, channels=channels, scale=scale)}]\n'


OWN_STEPS = {
    "same": steps(),
    "channel_order": steps(channels="bgr"),
    "resize_method": steps(method="nearest", antialias="false"),
    "antialias": steps(antialias="false"),
    "scale": steps(scale=1 / 256),
}


@pytest.fixture(scope="module")
def colour(tmp_path_factory: pytest.TempPathFactory) -> kpipe.Run:
    """One artifact, preprocessed in five ways, and one runtime told to be coarse."""
    folder = tmp_path_factory.mktemp("colour")
    (folder / "golden").mkdir()
    (folder / "make.py").write_text(RGB, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "make.py", str(folder)], cwd=folder, env={"KERAS_BACKEND": "jax"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    text = QUIET + f'[golden]\npath = "golden"\n[inputs.photo]\n{steps()}[decision]\nrule = "argmax"\n'
    for name, own in OWN_STEPS.items():
        text += f'[targets.{name}]\nruntime = "litert"\n[targets.{name}.inputs.photo]\n{own}'
    text += '[targets.coarse]\nruntime = "openvino"\nprecision = "f32"\nsettings = { INFERENCE_PRECISION_HINT = "bf16" }\n'
    (folder / "kpipe.toml").write_text(text, encoding="utf-8")
    return kpipe.validate(folder / "colour.keras", contract=folder / "kpipe.toml", out=folder / "run")


@pytest.mark.parametrize(
    ("name", "suspect"),
    [("channel_order", "BGR for RGB"), ("resize_method", "nearest"), ("antialias", "bilinear without antialias"), ("scale", "divided by 256")],
)
def test_another_preprocessing_of_one_target(colour: kpipe.Run, name: str, suspect: str) -> None:
    assert outcome(colour) == ("FAIL", 1)
    assert states(colour.record)[name] == "fail"
    (found,) = findings(colour.record, "KP106", name)
    assert found.place == "photo"
    assert found.required
    assert "9 of 9 inputs" in found.cause
    assert found.evidence["worst_input"] in {f"p{i}" for i in range(9)}
    assert (found.evidence["suspect"], found.evidence["explained"]) == (suspect, 9)
    assert f"This is {suspect}, where the reference has" in found.cause
    assert "[inputs.photo] with steps = [" in found.remedy


def test_the_same_preprocessing_written_twice_is_no_difference(colour: kpipe.Run) -> None:
    assert states(colour.record)["same"] == "pass"
    assert not codes(colour.record, "same")
    assert not (colour.folder / "stages" / "fingerprint.same").exists()


def test_a_setting_that_is_coarser_than_the_contract_asks_for(colour: kpipe.Run) -> None:
    """``precision = "f32"`` is written beside it: whatever the CPU makes of the setting, the target can't pass."""
    assert states(colour.record)["coarse"] == "fail"
    (found, *_) = findings(colour.record, "KP307", "coarse")
    assert "float32" in found.cause
    assert "bfloat16" in found.cause


# ------------------------------------------------------------ sabotage in kpipe's own chain: a copy of a finished run, judged again


@pytest.fixture
def copy(digits_run: kpipe.Run, tmp_path: Path) -> Path:
    """The shipped example's run to spoil."""
    return Path(shutil.copytree(digits_run.folder, tmp_path / "run", ignore=shutil.ignore_patterns("home", "cache")))


def target_status(run: kpipe.Run, name: str) -> str:
    return states(run.record)[name]


def test_an_untouched_copy_is_judged_as_the_run_was(copy: Path, digits_run: kpipe.Run) -> None:
    run = kpipe.judge(copy)
    assert outcome(run) == ("PASS", 0)
    assert run.record.targets == digits_run.record.targets
    assert run.record.findings == digits_run.record.findings


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def delete(path: Path) -> None:
    path.unlink()


def shorten(path: Path) -> None:
    """Fewer rows, files sound in themselves."""
    prefix = path.name.removesuffix(".values.npy")
    shapes = np.load(path.with_name(f"{prefix}.shapes.npy"))[:-5]
    np.save(path.with_name(f"{prefix}.shapes.npy"), shapes)
    np.save(path, np.load(path)[: int(np.prod(shapes, axis=1).sum())])


@pytest.mark.parametrize("spoil", [truncate, empty, delete, shorten])
@pytest.mark.parametrize("mode", ["alone", "batch_8"])
def test_outputs_of_a_target_that_cannot_be_read_back_are_not_passed(copy: Path, spoil: Callable[[Path], None], mode: str) -> None:
    spoil(copy / "stages" / "run.litert" / "outputs" / mode / "0.values.npy")
    run = kpipe.judge(copy)
    assert str(run.verdict) != "PASS"
    assert target_status(run, "litert") != "pass"
    row = next(t for t in run.record.targets if t.name == "litert")
    assert row.cells.unchecked + row.cells.failed >= run.record.golden.count
    assert codes(run.record, "litert") & {"KP314", "KP403"}
    assert {target_status(run, name) for name in ("tensorflow", "onnxruntime", "openvino")} == {"pass"}


@pytest.mark.parametrize("spoil", [truncate, empty, delete, shorten])
@pytest.mark.parametrize("mode", ["alone", "batch_3"])
def test_outputs_of_the_reference_that_cannot_be_read_back_pass_nothing(copy: Path, spoil: Callable[[Path], None], mode: str) -> None:
    spoil(copy / "stages" / "reference" / "outputs" / mode / "0.values.npy")
    answer = command("judge", copy, folder=copy.parent)
    assert answer.exit_code in {1, 3}, answer
    assert "fault of kpipe" not in answer.stderr
    assert any(f.target == "reference" for f in kpipe.load_run(copy).record.findings)


def test_outputs_that_were_exchanged_between_inputs_fail(copy: Path) -> None:
    path = copy / "stages" / "run.onnxruntime" / "outputs" / "batch_3" / "0.values.npy"
    values = np.load(path).reshape(-1, 10)
    np.save(path, values[::-1].ravel())
    digest_anew(copy, "onnxruntime")
    run = kpipe.judge(copy)
    assert outcome(run) == ("FAIL", 1)
    assert target_status(run, "onnxruntime") == "fail"
    assert {"KP401", "KP404", "KP408"} <= codes(run.record, "onnxruntime")


def test_outputs_of_another_target_fail(copy: Path) -> None:
    """bfloat16's outputs in float32's place; the CPU has to be one where they differ."""
    theirs, ours = (copy / "stages" / f"run.{name}" / "outputs" for name in ("openvino_default", "openvino"))
    if (theirs / "alone" / "0.values.npy").read_bytes() == (ours / "alone" / "0.values.npy").read_bytes():
        values = np.load(theirs / "alone" / "0.values.npy")
        np.save(theirs / "alone" / "0.values.npy", (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32))
    shutil.rmtree(ours)
    shutil.copytree(theirs, ours)
    digest_anew(copy, "openvino")
    run = kpipe.judge(copy)
    assert outcome(run) == ("FAIL", 1)
    assert target_status(run, "openvino") == "fail"


def test_one_number_that_became_nan_fails(copy: Path) -> None:
    path = copy / "stages" / "run.saved_model" / "outputs" / "alone" / "0.values.npy"
    values = np.load(path)
    values[123] = np.nan
    np.save(path, values)
    digest_anew(copy, "saved_model")
    run = kpipe.judge(copy)
    assert outcome(run) == ("FAIL", 1)
    (found,) = findings(run.record, "KP402", "saved_model")
    assert run.record.golden.rows[12].id in found.cause
    row = next(t for t in run.record.targets if t.name == "saved_model")
    assert row.cells.failed >= 1
    assert row.cells.unchecked == 0


@pytest.mark.parametrize(("theirs", "ours", "place"), [("run.saved_model", "run.litert", "litert"), ("run.litert", "reference", "reference")])
def test_outputs_that_are_not_the_ones_that_the_worker_wrote_are_not_judged(copy: Path, theirs: str, ours: str, place: str) -> None:
    """Another healthy target's would pass."""
    shutil.rmtree(copy / "stages" / ours / "outputs")
    shutil.copytree(copy / "stages" / theirs / "outputs", copy / "stages" / ours / "outputs")
    run = kpipe.judge(copy)
    assert outcome(run) == ("INCOMPLETE", 3)
    assert any("were altered" in f.cause for f in findings(run.record, "KP314", place))
    assert {t.status for t in run.record.targets if place in {t.name, "reference"}} == {"unchecked"}


@pytest.mark.parametrize("what", ["outputs", ""])
def test_a_target_folder_that_was_removed_is_not_passed(copy: Path, what: str) -> None:
    shutil.rmtree(copy / "stages" / "run.openvino_ir" / what)
    answer = command("judge", copy, folder=copy.parent)
    assert answer.exit_code in {1, 3}, answer
    run = kpipe.load_run(copy)
    assert target_status(run, "openvino_ir") != "pass"
    assert codes(run.record, "openvino_ir") & {"KP314"}


def test_the_prepared_tensors_are_not_needed_to_judge(copy: Path) -> None:
    shutil.rmtree(copy / "stages" / "prepare")
    assert outcome(kpipe.judge(copy)) == ("PASS", 0)


def test_the_prepared_tensors_are_needed_where_a_target_has_its_own(colour: kpipe.Run, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(colour.folder, tmp_path / "run"))
    shutil.rmtree(folder / "stages" / "prepare.same")
    answer = command("judge", folder, folder=tmp_path)
    assert answer.exit_code == 1
    assert "fault of kpipe" not in answer.stderr
    assert states(kpipe.load_run(folder).record)["same"] != "pass"


def digest_anew(copy: Path, name: str) -> None:
    """Make the evidence say of altered outputs what it would if the worker had written them."""
    folder = copy / "stages" / f"run.{name}" / "outputs"

    def change(document: dict[str, Any]) -> None:
        stage = next(stage for stage in document["stages"] if stage["name"] == f"run.{name}")
        digests = stage["result"]["data"]["digests"]
        anew = {mode: digest(folder / mode) for mode in digests}
        assert digests != anew
        digests.update(anew)

    edit(copy / "evidence.json", change)


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")


def add_field(document: dict[str, Any]) -> None:
    document["targets"][0]["passed"] = True


def other_version(document: dict[str, Any]) -> None:
    document["version"] = 99


def wrong_type(document: dict[str, Any]) -> None:
    document["wall_s"] = "long"


def no_targets(document: dict[str, Any]) -> None:
    del document["targets"]


def other_answer(document: dict[str, Any]) -> None:
    stage = next(stage for stage in document["stages"] if stage["name"] == "run.litert")
    stage["result"]["data"]["verdict"] = "PASS"


@pytest.mark.parametrize("change", [add_field, other_version, wrong_type, no_targets, other_answer])
def test_evidence_that_was_edited_is_refused(copy: Path, change: Callable[[dict[str, Any]], None]) -> None:
    edit(copy / "evidence.json", change)
    before = (copy / "run.json").read_bytes()
    answer = command("judge", copy, folder=copy.parent)
    assert answer.exit_code == 2, answer
    assert str(copy) in answer.stderr
    assert "this kpipe" in flat(answer.stderr)
    assert (copy / "run.json").read_bytes() == before


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_evidence_that_is_none_is_refused(copy: Path, text: str) -> None:
    (copy / "evidence.json").write_text(text, encoding="utf-8")
    answer = command("judge", copy, folder=copy.parent)
    assert answer.exit_code == 2, answer
    assert "Traceback" not in answer.stderr


def drop_target(document: dict[str, Any]) -> None:
    document["targets"] = document["targets"][:1]


def drop_stage(document: dict[str, Any]) -> None:
    document["stages"] = [stage for stage in document["stages"] if stage["name"] != "run.litert"]


def drop_mode(document: dict[str, Any]) -> None:
    for stage in document["stages"]:
        if stage["name"] == "run.litert":
            stage["result"]["data"]["modes"].remove("batch_8")


def drop_input(document: dict[str, Any]) -> None:
    document["golden"]["inputs"] = document["golden"]["inputs"][:-1]


@pytest.mark.parametrize("change", [drop_target, drop_stage, drop_mode, drop_input])
def test_evidence_that_lost_something_does_not_pass(copy: Path, change: Callable[[dict[str, Any]], None]) -> None:
    edit(copy / "evidence.json", change)
    answer = command("judge", copy, folder=copy.parent)
    assert answer.exit_code in {1, 3}, answer
    assert "fault of kpipe" not in answer.stderr


def test_a_contract_copy_that_was_lost_is_missed(copy: Path) -> None:
    (copy / "contract.toml").unlink()
    answer = command("judge", copy, folder=copy.parent)
    assert answer.exit_code == 2
    assert "has lost its contract.toml" in answer.stderr


# ------------------------------------------------------------ a resumed run


def test_outputs_that_were_spoiled_before_a_run_is_resumed_are_not_passed(copy: Path, digits_run: kpipe.Run) -> None:
    """Resuming a finished run takes every stage as it is: what is broken in it shows."""
    home = digits_run.folder
    assert home.is_dir()
    truncate(copy / "stages" / "run.litert" / "outputs" / "alone" / "0.values.npy")
    os.utime(copy)
    run = kpipe.judge(copy)
    assert str(run.verdict) != "PASS"


def test_the_files_that_these_tests_alter_are_whole(tmp_path: Path) -> None:
    """The tests work on copies: the shipped example is as it was."""
    assert LAYERS.is_file()
    assert all(sha256_of(GOLDEN / e["file"]) == e["sha256"] for e in manifest(GOLDEN))
    assert not any(tmp_path.iterdir())

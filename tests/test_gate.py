"""The gate end to end: the shipped example by its shipped contract, models of one's own without any, files that were handed in, and targets that can't be checked."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import tomllib
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import numpy as np
import pytest

import kpipe
import kpipe.store
from kpipe_stages.digest import digest
from kpipe_stages.rows import Rows

from .sample_gate import GOLDEN, MODEL, QUIET, REQUIRED, ROOT, change_weights, codes, digits_contract, findings, manifest, shipped, states, workers_of

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe.record import TargetRecord

pytestmark = pytest.mark.runtimes


def target(run: kpipe.Run, name: str) -> TargetRecord:
    return next(t for t in run.record.targets if t.name == name)


# ------------------------------------------------------------ the shipped example


def test_the_shipped_example_passes_on_seven_required_targets(digits_run: kpipe.Run) -> None:
    record = digits_run.record
    assert isinstance(digits_run, kpipe.Run)
    assert (digits_run.verdict, int(digits_run.exit_code)) == (kpipe.Verdict.PASS, 0), record.headline
    assert tuple(t.name for t in record.targets if t.required) == REQUIRED
    assert {states(record)[name] for name in REQUIRED} == {"pass"}
    assert not codes(record) - {"KP209", "KP401", "KP404", "KP307", "KP308", "KP507"}


def test_every_golden_input_is_checked_on_every_target_in_every_way_of_running(digits_run: kpipe.Run) -> None:
    count = len(manifest(GOLDEN))
    assert count >= 64
    assert digits_run.record.golden.count == count
    for name in REQUIRED:
        cells = target(digits_run, name).cells
        assert (cells.passed, cells.failed, cells.unchecked) == (count * 3, 0, 0), name
        assert target(digits_run, name).modes == ("alone", "batch_3", "batch_8"), name
        for mode in ("alone", "batch_3", "batch_8"):
            rows = Rows(digits_run.folder / "stages" / f"run.{name}" / "outputs" / mode / "0")
            assert len(rows) == count
            assert not rows.absent
        against_reference = {d.mode: d.cells for d in target(digits_run, name).drift if d.output == "digit"}
        assert all(cells.passed == count for cells in against_reference.values())
        assert {"alone", "batch_3", "batch_8", "batch_3 vs alone", "batch_8 vs alone"} == set(against_reference)


def test_what_openvino_does_by_itself_is_shown_and_decides_nothing(digits_run: kpipe.Run) -> None:
    default = target(digits_run, "openvino_default")
    assert not default.required
    assert default.runtime == "openvino"
    assert default.cells.passed + default.cells.failed == 3 * digits_run.record.golden.count
    assert any("openvino_default" in caveat for caveat in digits_run.record.caveats)
    assert not any(f.required for f in digits_run.record.findings if f.target == "openvino_default")


def test_the_reference_decides_what_was_approved(digits_run: kpipe.Run) -> None:
    rows = {row.id: row for row in digits_run.record.golden.rows}
    approved = {entry["id"]: entry["expected"] for entry in manifest(GOLDEN) if "expected" in entry}
    assert len(approved) > 60
    assert {name: rows[name].decision for name in approved} == approved
    assert set(digits_run.record.golden.classes) == set("0123456789")


def test_each_float32_target_says_what_it_computes_in(digits_run: kpipe.Run) -> None:
    for name in REQUIRED:
        assert target(digits_run, name).effective_precision.startswith("float32"), name
        identity = target(digits_run, name).identity
        assert identity is not None
        assert identity.versions, name
    assert "tensorflow" not in target(digits_run, "litert").identity.versions  # type: ignore[union-attr]
    pids = [t.identity.pid for t in digits_run.record.targets if t.identity]
    assert len(set(pids)) == len(pids) == 8


def test_the_record_fits_its_schema(digits_run: kpipe.Run) -> None:
    from jsonschema import Draft202012Validator

    schema = json.loads((ROOT / "docs" / "schema" / "run.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    record = json.loads((digits_run.folder / "run.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(record)
    assert record["verdict"] == "PASS"
    assert kpipe.load_run(digits_run.folder).record == digits_run.record


def test_the_reports_are_there_and_well_formed(digits_run: kpipe.Run) -> None:
    suite = ET.parse(digits_run.folder / "junit.xml").getroot()  # noqa: S314 - kpipe's own file
    assert {case.get("name") for case in suite.iter("testcase")}
    sarif = json.loads((digits_run.folder / "results.sarif").read_text(encoding="utf-8"))
    assert sarif["version"] == "2.1.0"
    assert "PASS" in (digits_run.folder / "report.md").read_text(encoding="utf-8")[:400]
    page = digits_run.report.read_text(encoding="utf-8")
    assert "PASS" in page
    assert all(name in page for name in (*REQUIRED, "openvino_default"))


def test_the_page_fetches_nothing(digits_run: kpipe.Run) -> None:
    page = digits_run.report.read_text(encoding="utf-8")
    fetched = re.findall(r"""(?:src|href|srcset|action|data|poster)\s*=\s*["']?([^"'\s>]+)""", page, re.IGNORECASE)
    assert not [address for address in fetched if not address.startswith(("data:", "#"))]
    assert not re.search(r"@import|url\(\s*['\"]?(?!data:|#)", page)
    assert not re.search(r"<(script|iframe|link|object|embed)\b[^>]*(?:src|href)=(?![\"']?data:)", page, re.IGNORECASE)


def test_what_is_described_beside_an_artifact_is_that_artifact(digits_run: kpipe.Run) -> None:
    described = 0
    for path in (digits_run.folder / "artifacts").rglob("deploy.toml"):
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        artifact = document["artifact"]
        place = MODEL if artifact["format"] == "keras" else digits_run.folder / artifact["path"]
        assert digest(place, [digits_run.folder / name for name in artifact.get("companions", [])]) == artifact["sha256"], path
        assert document["run"]["verdict"] == "PASS"
        for name, facts in document["targets"].items():
            assert facts["status"] == states(digits_run.record)[name]
            described += 1
    assert described == 8


def test_times_are_there_for_every_target_and_measured_alone(digits_run: kpipe.Run) -> None:
    record = digits_run.record
    begun = {stage.name: stage.begin_s for stage in record.stages}
    for name in REQUIRED:
        row = target(digits_run, name)
        assert row.load is not None
        assert row.latency is not None
        assert row.end_to_end is not None
        assert row.latency.calls == 20
        assert row.end_to_end.calls == 12
        assert row.peak_rss_bytes
        assert [p.p for p in row.latency.percentiles] == [50]
    for name in ("litert", "onnxruntime", "openvino", "openvino_ir"):
        load = target(digits_run, name).load
        assert load is not None
        assert not load.shared
        assert begun[f"load.{name}"] >= max(begun[f"run.{other}"] for other in REQUIRED)


def test_tensorflow_is_imported_once_and_never_for_a_cold_start(digits_run: kpipe.Run) -> None:
    inherited = {
        stage.name: set(stage.result.identity.inherited)
        for stage in kpipe.store.load_evidence(digits_run.folder).stages
        if stage.result is not None and stage.result.identity is not None
    }
    assert {name for name, modules in inherited.items() if modules} == {"export", "truth", "run.tensorflow", "run.saved_model"}
    assert inherited["load.litert"] == set()
    for name in ("tensorflow", "saved_model"):
        load = target(digits_run, name).load
        assert load is not None
        assert (load.shared, load.lean) == (True, True)
        assert load.import_s > 0.5


def test_a_limit_on_memory_or_load_is_held_against_a_process_of_its_own_with_all_that_is_installed(tmp_path: Path) -> None:
    contract = digits_contract(tmp_path, "[targets.saved_model]\nlimits = { peak_mib = 5000, load_s = 100 }\n")
    run = kpipe.validate(MODEL, contract=contract, out=tmp_path / "run")
    stages = {stage.name: stage for stage in kpipe.store.load_evidence(run.folder).stages}
    for name in ("run.saved_model", "load.saved_model"):
        result = stages[name].result
        assert result is not None
        assert result.identity is not None
        assert result.identity.inherited == {}
        assert not result.data["load"]["lean"]
    row = target(run, "saved_model")
    assert {(limit.name, limit.ok) for limit in row.limits} == {("peak_mib", True), ("load_s", True)}


def test_no_worker_outlives_its_run(digits_run: kpipe.Run) -> None:
    assert not workers_of(digits_run.folder)


# ------------------------------------------------------------ models of one's own, no contract


OWN_MODELS = '''\
"""Two models that are nobody's example: run with the folder to write to."""

import sys

import keras
import numpy as np
from twist import Twist

keras.utils.set_random_seed(7)
folder = sys.argv[1]
tokens = keras.Input((9,), dtype="int32", name="tokens")
price = keras.Input((3,), name="price")
x = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(40, 6)(tokens))
x = Twist(name="twist")(keras.layers.Concatenate()([x, price]))
rating = keras.layers.Dense(1, name="rating")(x)
kind = keras.layers.Dense(4, activation="softmax", name="kind", kernel_initializer="normal")(keras.layers.Dense(16, activation="relu")(x))
model = keras.Model({"tokens": tokens, "price": price}, {"rating": rating, "kind": kind})
model.save(f"{folder}/shop.keras")
random = np.random.default_rng(5)
np.savez(f"{folder}/shop.npz", tokens=random.integers(0, 40, (11, 9)).astype(np.int32), price=random.standard_normal((11, 3)).astype(np.float32))


@keras.saving.register_keras_serializable()
class Net(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden = keras.layers.Dense(8, activation="tanh")
        self.out = keras.layers.Dense(3, activation="softmax")

    def call(self, x):
        return self.out(self.hidden(x))


net = Net()
net(np.zeros((1, 5), np.float32))
net.save(f"{folder}/net.keras")
'''

TWIST = """\
import keras


@keras.saving.register_keras_serializable()
class Twist(keras.layers.Layer):
    def call(self, x):
        return keras.ops.concatenate([keras.ops.sin(x), keras.ops.flip(x, axis=-1)], axis=-1)
"""

NET = """\
import keras


@keras.saving.register_keras_serializable()
class Net(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden = keras.layers.Dense(8, activation="tanh")
        self.out = keras.layers.Dense(3, activation="softmax")

    def call(self, x):
        return self.out(self.hidden(x))
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``shop.keras`` (two inputs, dict outputs, a custom layer) with arrays, and ``net.keras`` (subclassed)."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "twist.py").write_text(TWIST, encoding="utf-8")
    (folder / "net.py").write_text(NET, encoding="utf-8")
    (folder / "make.py").write_text(OWN_MODELS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "make.py", str(folder)], cwd=folder, env={"KERAS_BACKEND": "jax"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_a_model_of_ones_own_passes_on_arrays_and_says_what_that_does_not_prove(own: Path) -> None:
    run = kpipe.validate(own / "shop.keras", golden=own / "shop.npz", custom_objects=(own / "twist.py",), out=own / "shop-run")
    record = run.record
    assert (str(run.verdict), int(run.exit_code)) == ("PASS", 0), record.headline
    assert "Preprocessing was not checked" in record.caveats[0]
    first_lines = (run.folder / "report.md").read_text(encoding="utf-8").splitlines()[:6]
    assert any("Preprocessing was not checked" in line for line in first_lines)
    assert {t.name: str(t.status) for t in record.targets if t.required} == dict.fromkeys(REQUIRED[:-1], "pass")
    assert "keras_openvino" in states(record)
    assert record.golden.count == 11
    assert record.decision is not None
    assert (record.decision.rule, record.decision.output, record.decision.inferred) == ("argmax", "kind", True)
    assert {"KP602", "KP606"} <= codes(record)
    assert {d.output for d in target(run, "litert").drift} == {"rating", "kind"}
    assert target(run, "litert").cells.passed == 11 * 2 * 3
    assert target(run, "litert").latency is not None


def test_synthetic_inputs_alone_never_pass(own: Path) -> None:
    run = kpipe.validate(own / "net.keras", custom_objects=(own / "net.py",), out=own / "net-run")
    record = run.record
    assert (str(run.verdict), int(run.exit_code)) == ("INCOMPLETE", 3), record.headline
    assert "synthetic inputs" in record.headline
    assert "Synthetic inputs" in record.caveats[0]
    assert findings(record, "KP601")[0].cause.startswith("No golden set: 16 seeded random inputs")
    assert {t.name: str(t.status) for t in record.targets if t.required} == dict.fromkeys(REQUIRED[:-1], "pass")
    assert record.candidate.signature is not None
    assert [s.shape for s in record.candidate.signature.inputs] == [(None, 5)]


# ------------------------------------------------------------ targets in all their ways; one run, judged by several contracts


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter as production has it: the runtime is there, kpipe is not; and one that holds nothing."""
    folder = tmp_path_factory.mktemp("pythons")
    for name in ("full", "bare"):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / name], check=True)
    packages = next((folder / "full" / "lib").glob("python3*")) / "site-packages"
    (packages / "runtimes.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    done = subprocess.run([folder / "full" / "bin" / "python", "-I", "-c", "import kpipe_stages"], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError" in done.stderr
    return folder


TARGETS = """
[targets.plain]
runtime = "litert"

[targets.foreign]
runtime = "litert"
python = "{full}"
version = ">=1"

[targets.old]
runtime = "onnxruntime"
version = "==0.1"

[targets.nowhere]
runtime = "onnxruntime"
python = "{full}-gone"

[targets.bare]
runtime = "litert"
python = "{bare}"

[targets.slow_to_load]
runtime = "litert"
limits = {{ load_s = 1e-6 }}

[targets.quick]
runtime = "litert"
limits = {{ load_s = 1000.0, p99_ms = 10000.0, size_mib = 5.0 }}

[targets.unlikely]
runtime = "litert"
limits = {{ p50_ms = 1e-9, peak_mib = 1.0, size_mib = 1e-3 }}

[targets.onnxruntime]
"""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, production: Path) -> kpipe.Run:
    """Every kind of target in one run; ``onnxruntime`` is left out on the command line."""
    folder = tmp_path_factory.mktemp("many")
    text = TARGETS.format(full=production / "full" / "bin" / "python", bare=production / "bare" / "bin" / "python")
    contract = digits_contract(folder, text)
    names = tuple(re.findall(r"\[targets\.(\w+)\]", text))
    return kpipe.validate(MODEL, contract=contract, targets=names[:-1], out=folder / "run")


def judged(run: kpipe.Run, *names: str, extra: str = "") -> kpipe.Run:
    """The run judged by a contract of these targets alone, as it would have been validated by."""
    text = (run.folder / "contract.toml").read_text(encoding="utf-8")
    head, *tables = text.split("[targets.")
    kept = "".join(f"[targets.{table}" for table in tables if table.split("]")[0] in names)
    path = run.folder.parent / f"{'-'.join(names)}.toml"
    path.write_text(head + kept + extra, encoding="utf-8")
    return kpipe.judge(run.folder, path, write=False)


def outcome(run: kpipe.Run) -> tuple[str, int]:
    return str(run.verdict), int(run.exit_code)


def test_a_target_runs_in_the_interpreter_that_production_has(many: kpipe.Run) -> None:
    assert outcome(judged(many, "foreign")) == ("PASS", 0)
    assert (many.folder / "stages" / "workers" / "kpipe_stages" / "run_litert.py").is_file()
    answer = json.loads((many.folder / "stages" / "run.foreign" / "result.json").read_text(encoding="utf-8"))
    assert answer["identity"]["versions"]["ai-edge-litert"]


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("old", "KP302", ("asks for onnxruntime ==0.1", "holds")),
        ("nowhere", "KP301", ("python-gone of target 'nowhere' can't be used: no such file",)),
        ("bare", "KP301", ("needs ai-edge-litert", "does not have")),
        ("onnxruntime", "KP312", ("was left out by --target",)),
    ],
)
def test_a_target_that_cannot_be_checked_is_never_passed(many: kpipe.Run, name: str, code: str, words: tuple[str, ...]) -> None:
    run = judged(many, "plain", name)
    assert outcome(run) == ("INCOMPLETE", 3)
    assert states(run.record) == {"plain": "pass", name: "unchecked"}
    assert code in codes(run.record, name)
    (found,) = findings(run.record, code, name)
    assert all(word in found.cause for word in words)
    assert target(run, name).cells.unchecked == 3 * run.record.golden.count
    assert name in run.record.headline


def test_a_target_that_is_not_required_leaves_the_verdict_alone(many: kpipe.Run) -> None:
    text = (many.folder / "contract.toml").read_text(encoding="utf-8").replace('version = "==0.1"', 'version = "==0.1"\nrequired = false')
    path = many.folder.parent / "optional.toml"
    head, *tables = text.split("[targets.")
    path.write_text(head + "".join(f"[targets.{t}" for t in tables if t.startswith(("plain", "old"))), encoding="utf-8")
    run = kpipe.judge(many.folder, path, write=False)
    assert outcome(run) == ("PASS", 0)
    assert any("old" in caveat for caveat in run.record.caveats)
    only_optional = many.folder.parent / "only-optional.toml"
    only_optional.write_text(head + "".join(f"[targets.{t}" for t in tables if t.startswith("old")), encoding="utf-8")
    assert outcome(kpipe.judge(many.folder, only_optional, write=False)) == ("INCOMPLETE", 3)


def test_a_load_limit_that_nothing_meets_fails(many: kpipe.Run) -> None:
    run = judged(many, "slow_to_load")
    assert outcome(run) == ("FAIL", 1)
    (found,) = findings(run.record, "KP501", "slow_to_load")
    assert found.place == "load_s"
    assert "1e-06" in found.cause
    assert {s.name for s in run.record.stages} >= {"load.slow_to_load"}


def test_a_limit_on_p99_raises_the_calls_to_what_it_needs(many: kpipe.Run) -> None:
    run = judged(many, "quick")
    assert outcome(run) == ("PASS", 0), run.record.headline
    row = target(run, "quick")
    assert row.latency is not None
    assert row.latency.calls >= 662
    assert [p.p for p in row.latency.percentiles] == [50, 90, 95, 99]
    assert {check.name: check.ok for check in row.limits} == {"load_s": True, "p99_ms": True, "size_mib": True}


def test_every_limit_that_is_missed_is_named(many: kpipe.Run) -> None:
    run = judged(many, "unlikely")
    assert outcome(run) == ("FAIL", 1)
    assert {(f.code, f.place) for f in run.record.findings if f.target == "unlikely" and f.code != "KP507"} == {
        ("KP502", "p50_ms"),
        ("KP503", "peak_mib"),
        ("KP504", "size_mib"),
    }


def test_a_limit_that_was_not_measured_is_not_met(many: kpipe.Run) -> None:
    """The run timed nothing for this target; a contract that asks for a percentile afterwards finds nothing to check it by."""
    text = (many.folder / "contract.toml").read_text(encoding="utf-8").split("[targets.")[0]
    path = many.folder.parent / "later.toml"
    path.write_text(text + "[targets.plain]\nruntime = 'litert'\nlimits = { p99_ms = 1000.0 }\n", encoding="utf-8")
    run = kpipe.judge(many.folder, path, write=False)
    assert outcome(run) == ("INCOMPLETE", 3)
    assert codes(run.record, "plain") == {"KP505"}


def test_all_of_it_together_fails_and_names_each(many: kpipe.Run) -> None:
    assert outcome(many) == ("FAIL", 1)
    assert states(many.record) == {
        "plain": "pass",
        "foreign": "pass",
        "old": "unchecked",
        "nowhere": "unchecked",
        "bare": "unchecked",
        "slow_to_load": "fail",
        "quick": "pass",
        "unlikely": "fail",
        "onnxruntime": "unchecked",
    }


# ------------------------------------------------------------ files that were handed in


def spoil_constant(source: Path, copy: Path, values: np.ndarray) -> Path:
    """Copy a file with one weight of it changed: the largest of ``values``, found by the bytes around it, becomes 0."""
    data = bytearray(source.read_bytes())
    flat = np.ascontiguousarray(values, dtype="<f4").ravel()
    place = bytes(data).find(flat.tobytes())
    assert place >= 0, "the weights don't lie in the file as they are in the model"
    worst = int(np.argmax(np.abs(flat)))
    data[place + 4 * worst : place + 4 * worst + 4] = np.float32(-100.0).tobytes()
    copy.write_bytes(data)
    return copy


HANDED_IN = """
[targets.right]
runtime = "litert"
artifact = "release/model.tflite"

[targets.other_model]
runtime = "litert"
artifact = "release/other.tflite"

[targets.weight_tflite]
runtime = "litert"
artifact = "release/weight.tflite"

[targets.weight_onnx]
runtime = "onnxruntime"
artifact = "release/weight.onnx"

[targets.weight_ir]
runtime = "openvino_ir"
artifact = "release/weight.xml"
settings = {{ INFERENCE_PRECISION_HINT = "f32" }}

[targets.cut]
runtime = "litert"
artifact = "release/cut.tflite"

[targets.gone]
runtime = "onnxruntime"
artifact = "release/gone.onnx"

[targets.served]
runtime = "saved_model"
artifact = "{saved_model}"
"""


@pytest.fixture(scope="module")
def release(digits_run: kpipe.Run, tmp_path_factory: pytest.TempPathFactory) -> kpipe.Run:
    """The run's own files handed in: as they are, and each spoiled in its own way."""
    import zipfile

    import h5py

    folder = tmp_path_factory.mktemp("release")
    files, made = folder / "release", digits_run.folder / "artifacts"
    files.mkdir()
    with zipfile.ZipFile(MODEL) as archive, archive.open("model.weights.h5") as member, h5py.File(member) as weights:
        bias = weights["layers/dense_1/vars/1"][()]
    (files / "model.tflite").write_bytes((made / "litert" / "model.tflite").read_bytes())
    spoil_constant(made / "litert" / "model.tflite", files / "weight.tflite", bias)
    spoil_constant(made / "onnx" / "model.onnx", files / "weight.onnx", bias)
    spoil_constant(made / "openvino_ir" / "model.bin", files / "weight.bin", bias)
    (files / "weight.xml").write_bytes((made / "openvino_ir" / "model.xml").read_bytes())
    (files / "cut.tflite").write_bytes((made / "litert" / "model.tflite").read_bytes()[:100_000])
    (files / "other.tflite").write_bytes((other_model(folder) / "artifacts" / "litert" / "model.tflite").read_bytes())
    contract = digits_contract(folder, HANDED_IN.format(saved_model=made / "saved_model" / "1"))
    return kpipe.validate(MODEL, contract=contract, out=folder / "run")


def other_model(folder: Path) -> Path:
    """The run of another training of the same architecture: every weight of its first layer turned round."""

    def turn(values: np.ndarray) -> None:
        values *= -1.0

    other = change_weights(MODEL, folder / "other.keras", "layers/conv2d/vars/0", turn)
    run = kpipe.validate(other, contract=digits_contract(folder, "[targets.litert]\n", name="other.toml"), out=folder / "other")
    assert outcome(run) == ("FAIL", 1)
    assert "KP410" in codes(run.record)
    assert states(run.record) == {"litert": "pass"}
    return run.folder


def test_the_file_that_ships_is_judged_by_its_digest_and_not_exported(release: kpipe.Run) -> None:
    run = judged(release, "right", "served")
    assert outcome(run) == ("PASS", 0), run.record.headline
    for name, path in (("right", release.folder.parent / "release" / "model.tflite"),):
        artifact = target(run, name).artifact
        assert artifact is not None
        assert (artifact.provided, artifact.sha256, artifact.path) == (True, digest(path), str(path))
        document = tomllib.loads((release.folder / "artifacts" / "provided" / name / "deploy.toml").read_text(encoding="utf-8"))
        assert document["artifact"]["sha256"] == digest(path)
    assert sorted(p.name for p in (release.folder / "artifacts").iterdir()) == ["provided"]


def test_the_file_of_another_model_fails(release: kpipe.Run) -> None:
    run = judged(release, "right", "other_model")
    assert outcome(run) == ("FAIL", 1)
    assert states(run.record) == {"right": "pass", "other_model": "fail"}
    assert {"KP401", "KP404"} <= codes(run.record, "other_model")


@pytest.mark.parametrize("name", ["weight_tflite", "weight_onnx", "weight_ir"])
def test_one_weight_inside_one_artifact_fails_that_target_alone(release: kpipe.Run, name: str) -> None:
    run = judged(release, "right", name)
    assert outcome(run) == ("FAIL", 1)
    assert states(run.record) == {"right": "pass", name: "fail"}
    assert {"KP401", "KP404"} <= codes(run.record, name)
    assert codes(run.record) - codes(run.record, name) == set()


def test_a_truncated_artifact_fails(release: kpipe.Run) -> None:
    run = judged(release, "right", "cut")
    assert outcome(run) == ("FAIL", 1)
    assert states(run.record) == {"right": "pass", "cut": "fail"}
    assert codes(run.record, "cut")


def test_an_artifact_that_is_not_there_fails_and_is_named(release: kpipe.Run) -> None:
    run = judged(release, "right", "gone")
    assert outcome(run) == ("FAIL", 1)
    (found,) = findings(run.record, "KP210", "gone")
    assert "release/gone.onnx" in found.cause


def test_the_shipped_contract_is_the_one_that_was_tested() -> None:
    assert set(tomllib.loads(shipped())["targets"]) == {*REQUIRED, "openvino_default"}
    assert "calls = 0" in QUIET

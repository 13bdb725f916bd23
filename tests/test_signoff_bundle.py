"""Sign-off of real runs: what can be approved, what a bundle holds, what of it can't be altered unseen."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tomlkit
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import kpipe
from kpipe.__main__ import run as command
from kpipe.errors import BundleError, Exit
from kpipe.signoff import Bundle, open_bundle
from kpipe.signoff.eligible import refusals
from kpipe.signoff.files import compare
from kpipe.signoff.manifest import MANIFEST, SIGNATURE, document
from kpipe.signoff.store import Located, Store, find_bundle, open_store
from kpipe.signoff.verify import verify
from kpipe_stages.codec import encode, write_json
from kpipe_stages.digest import digest
from kpipe_stages.protocol import PROTOCOL, Job

from .sample_gate import GOLDEN, LAYERS, MODEL, ROOT, codes, eventually, flat, manifest, without_targets
from .sample_run import Bench

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.runtimes

TARGETS = "[targets.saved_model]\n[targets.litert]\n[targets.onnxruntime]\n"
LIMITED = """[targets.litert]
limits = { size_mib = 0.01 }
[targets.given]
runtime = "onnxruntime"
artifact = "given.onnx"
inputs.image = { decode = "serving_code:faithful", files = ["serving_code.py"] }
required = false
"""
RULE = """import numpy as np

def decide(outputs):
    scores = np.sort(outputs["digit"])
    return str(int(np.argmax(outputs["digit"]))), float(scores[-1] - scores[-2])
"""
KEPT = 10
"""Golden inputs."""


@dataclass(frozen=True)
class Signed:
    """A sign-off run of files of its own, and the bundle made of it."""

    home: Path
    run: Path
    store: Path
    bundle: Path
    private: Path
    public: Path

    def words(self, *more: str, run: Path | None = None) -> list[str]:
        """An approval."""
        return ["approve", str(run or self.run), "--by", "approvers", "--reason", "it is good", "--product", "digits", *more]


def small_golden(folder: Path) -> None:
    """The first few golden inputs."""
    folder.mkdir()
    entries = manifest(GOLDEN)[:KEPT]
    document = tomlkit.document()
    document["version"] = 1
    document["golden"] = entries
    (folder / "manifest.toml").write_text(tomlkit.dumps(document), encoding="utf-8")
    for entry in entries:
        (folder / entry["file"]).parent.mkdir(exist_ok=True)
        shutil.copy(GOLDEN / entry["file"], folder / entry["file"])


def keys(folder: Path) -> tuple[Path, Path]:
    """A private and a public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = folder / "private.pem", folder / "public.pem"
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
    return private, public


def contract_of(home: Path, targets: str, name: str = "kpipe.toml") -> Path:
    """As the example's, without a product: a test gives it where it matters."""
    path = home / name
    text = without_targets(home / "golden").replace(str(LAYERS), str(home / "layers.py")).replace('[product]\nname = "digits"\n', "")
    assert "[product]" not in text
    path.write_text(text + targets, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    """Made once; a test that changes something takes a copy."""
    home = tmp_path_factory.mktemp("signed")
    shutil.copy(MODEL, home / "model.keras")
    shutil.copy(LAYERS, home / "layers.py")
    small_golden(home / "golden")
    run = kpipe.validate(home / "model.keras", contract=contract_of(home, TARGETS), out=home / "run", profile="signoff")
    assert run.verdict == "PASS", run.record.findings
    private, public = keys(home)
    store = home / "store"
    whole = Signed(home, home / "run", store, Path(), private, public)
    assert command(whole.words("--store", str(store), "--key", str(private))) == 0
    return replace(whole, bundle=next(p for p in (store / "bundles").iterdir()))


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory, signed: Signed) -> Path:
    """A sign-off run that fails: its artifact is larger than the contract allows. Beside it an artifact that was handed in, and code of one's own."""
    shutil.copy(signed.run / "artifacts" / "onnx" / "model.onnx", signed.home / "given.onnx")
    shutil.copy(ROOT / "tests" / "serving_code.py", signed.home / "serving_code.py")
    (signed.home / "rule.py").write_text(RULE)
    contract = contract_of(signed.home, LIMITED, "limited.toml")
    text = contract.read_text()
    decision = text[text.index("[decision]") : text.index("[agreement]")]
    contract.write_text(
        '[product]\nname = "digits"\n' + text.replace(decision, '[decision]\nrule = "rule:decide"\nfiles = ["rule.py"]\noutput = "digit"\n')
    )
    out = tmp_path_factory.mktemp("limited") / "run"
    run = kpipe.validate(signed.home / "model.keras", contract=contract, out=out, profile="signoff")
    assert run.verdict == "FAIL"
    return out


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, signed: Signed) -> Path:
    """A run without a contract, on synthetic inputs, in the default profile."""
    out = tmp_path_factory.mktemp("plain") / "run"
    model = shutil.copy(signed.home / "model.keras", out.parent / "model.keras")
    run = kpipe.validate(model, targets=("litert",), custom_objects=(signed.home / "layers.py",), out=out)
    assert run.verdict == "INCOMPLETE"
    return out


def copied(source: Path, into: Path) -> Path:
    """A copy that may be written to."""
    target = Path(shutil.copytree(source, into / source.name))
    for path in target.rglob("*"):
        path.chmod(0o755)
    return target


def told(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return flat(out + err)


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


# ---------------------------------------------------------------- what a bundle holds


def test_a_bundle_is_intact_signed_and_current(signed: Signed, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["verify", "digits", "--store", str(signed.store), "--key", str(signed.public)]) == 0
    assert "signature: valid approvals log: checked" in told(capsys)
    assert command(["verify", str(signed.bundle), "--key", str(signed.public)]) == 0
    assert command(["verify", "digits", "--store", str(signed.store)]) == Exit.INCOMPLETE  # nobody has looked at its signature
    capsys.readouterr()
    assert command(["history", "--store", str(signed.store), "--json"]) == 0
    entry = json.loads(capsys.readouterr().out)["history"]["releases"][0]
    assert (entry["entry"]["bundle"], entry["entry"]["by"], entry["current"]) == (signed.bundle.name, "approvers", True)
    assert entry["entry"]["signature_sha256"] == digest(signed.bundle / SIGNATURE)


def test_a_bundle_holds_all_that_the_verdict_is_about(signed: Signed) -> None:
    bundle = open_bundle(signed.bundle)
    assert bundle.id == signed.bundle.name
    assert (bundle.contents.approval.by, bundle.contents.approval.reason, bundle.contents.approval.product) == ("approvers", "it is good", "digits")
    assert digest(bundle.path / "model.keras") == bundle.contents.candidate_sha256 == digest(MODEL)
    assert [t.name for t in bundle.contents.targets] == ["saved_model", "litert", "onnxruntime"]
    for target in bundle.contents.targets:
        assert digest(bundle.artifact(target.name), [bundle.path / c for c in target.companions]) == target.sha256
        assert target.versions
    assert (bundle.path / bundle.contents.sources[str(signed.home / "layers.py")]).read_bytes() == LAYERS.read_bytes()
    golden = bundle.golden_set()
    assert len(golden.inputs) == KEPT
    assert all(digest(g.files["image"]) == g.sha256["image"] and Path(g.files["image"]).is_relative_to(signed.bundle) for g in golden.inputs)
    assert bundle.record.verdict == "PASS"
    held = bundle.environment.interpreters["python"]
    assert {"keras==3.15.1", "numpy==2.4.6"} <= set(held.requirements)
    assert held.requirements == tuple(sorted(held.requirements))
    assert (bundle.path / "requirements" / "python.txt").read_text().splitlines()[1] == held.requirements[0]
    assert bundle.environment.worker_settings["PYTHONHASHSEED"] == "0"
    assert not any("/" in value for value in bundle.environment.worker_settings.values())
    decisions = json.loads((bundle.path / "decisions.json").read_text())["decision"]
    assert len(decisions) == KEPT
    assert all(set(who) == {"reference", "saved_model", "litert", "onnxruntime"} and len(set(who.values())) == 1 for who in decisions.values())
    reference, target = bundle.answers("reference"), bundle.answers("litert")
    rule = bundle.rules[0]
    assert [d.value for d in reference.decisions(rule, "alone")] == [d.value for d in target.decisions(rule, "alone")]


def test_the_bill_of_materials_is_valid_cyclonedx(signed: Signed) -> None:
    text = (signed.bundle / "sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    assert document["metadata"]["component"]["type"] == "machine-learning-model"
    assert "pkg:pypi/numpy@2.4.6" in {c.get("purl") for c in document["components"]}


def test_the_sealed_run_can_be_judged_again_and_is_never_written_to(signed: Signed, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = open_bundle(signed.bundle)
    again = kpipe.judge(bundle.run)
    assert (again.verdict, codes(again.record)) == ("PASS", codes(bundle.record))
    assert document(bundle.judge()) == document(bundle.record)
    for words in (
        ["report", str(bundle.run)],
        ["diagnose", str(bundle.run), "--target", "litert"],
        ["validate", str(MODEL), "--out", str(bundle.run)],
    ):
        assert command(words) == Exit.USAGE
        assert "is part of the sealed bundle" in told(capsys)
    assert verify(find_bundle(str(signed.bundle)), signed.public).exit_code == 0


def test_the_sealed_artifact_runs_from_the_bundle_alone(signed: Signed, tmp_path: Path) -> None:
    """What re-check needs: the bundle copied elsewhere, nothing else; another home, no network; the same bits."""
    bundle = open_bundle(copied(signed.bundle, tmp_path))
    job = replace(bundle.job("litert"), timing=replace(bundle.job("litert").timing, calls=0, end_to_end_calls=0))
    folder = tmp_path / "again"
    folder.mkdir()
    assert str(signed.home) not in json.dumps(encode(job))
    write_json(folder / "job.json", Job(PROTOCOL, "run_litert", "attempt", str(folder), encode(job)))
    environment = {**bundle.environment.worker_settings, "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    words = [sys.executable, "-P", "-m", "kpipe_stages", "run_litert", str(folder / "job.json")]
    with subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as worker:
        eventually(lambda: (folder / "result.json").exists() or worker.poll() is not None, "an answer")
        _, err = worker.communicate("stop\n")
    result = json.loads((folder / "result.json").read_text())
    assert result["status"] == "ok", err
    assert digest(folder / "outputs" / "alone") == digest(bundle.outputs("litert") / "alone")
    assert set(result["data"]["modes"]) == {p.name for p in bundle.outputs("litert").iterdir()}


def test_hashes_instead_of_golden_files(signed: Signed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(signed.words("--store", str(tmp_path / "store"), "--goldens", "hashes")) == 0
    capsys.readouterr()
    bundle = open_bundle(find_bundle("digits", str(tmp_path / "store")).path)
    names = set(bundle.manifest.files)
    raw = {digest(path) for path in (signed.home / "golden" / "files").iterdir()}
    assert not raw & {entry.sha256 for entry in bundle.manifest.files.values()}
    assert not {name for name in names if "tensors" in name or name.endswith("stage.log")}
    assert "data:image" not in (bundle.run / "report.html").read_text()
    assert "data:image" in (signed.bundle / "run" / "report.html").read_text()  # or the line above says nothing
    with pytest.raises(BundleError, match="hashes of its golden inputs only"):
        bundle.golden_set()
    with pytest.raises(BundleError, match="hashes of its golden inputs only"):
        bundle.job("litert")
    supplied = bundle.golden_set(signed.home / "golden")
    assert [digest(g.files["image"]) for g in supplied.inputs] == [g.sha256["image"] for g in supplied.inputs]
    prepare = bundle.prepare_job("prepare", signed.home / "golden")
    assert Path(prepare.items[0].files["image"]).is_file()
    job = bundle.job("litert", signed.home / "golden", tmp_path / "tensors")
    assert job.tensors == str(tmp_path / "tensors")
    assert kpipe.judge(bundle.run, write=False).verdict == "PASS"
    assert verify(find_bundle("digits", str(tmp_path / "store"))).exit_code == 0


def test_the_inventory_names_everything(signed: Signed, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["inventory", "digits", "--store", str(signed.store)]) == 0
    text = told(capsys)
    for what in (
        "model.keras",
        "layers.py",
        "resize = [16, 16]",
        "target 'onnxruntime'",
        "onnxruntime 1.32.0",
        f"{KEPT} raw inputs",
        "approvers",
        "sbom.cdx.json",
    ):
        assert what in text, what
    assert command(["inventory", str(signed.bundle), "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)["parts"]
    assert {i["path"] for part in parts for i in part["items"] if i["path"]} <= {
        *open_bundle(signed.bundle).manifest.files,
        "golden",
        "run/stages",
        "run/artifacts/saved_model/1",
        "requirements/python.txt",
    }


# ---------------------------------------------------------------- tampering


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[len(data) // 2] ^= 1
    else:
        data += b"\0"
    path.write_bytes(data)


def one_byte_more(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\n")


def remove(path: Path) -> None:
    path.unlink()


def link_to_a_copy(path: Path) -> None:
    twin = path.parents[len(path.parents) - 1 - path.parts.index("bundles")].parent / "twin"
    shutil.copyfile(path, twin)
    path.unlink()
    path.symlink_to(twin)


def a_folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


TAMPERINGS = (flip_a_bit, one_byte_more, remove, link_to_a_copy, a_folder_instead)


def restore(path: Path, content: bytes) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def blamed(bundle: Bundle) -> set[str]:
    return {fault.path.rstrip("/") for fault in compare(bundle.path, bundle.manifest)}


def test_tampering_with_any_file_is_found_and_named(signed: Signed, tmp_path: Path) -> None:
    """Each file of the bundle in turn, the manifest and the signature among them, the ways of tampering by turns; nothing else is blamed."""
    root = copied(signed.store, tmp_path)
    located = Located(root / "bundles" / signed.bundle.name, open_store(str(root)), signed.bundle.name)
    bundle = open_bundle(located.path)
    files = sorted(p for p in bundle.path.rglob("*") if p.is_file())
    assert len(files) > 100
    for number, file in enumerate(files):
        name, before = file.relative_to(bundle.path).as_posix(), file.read_bytes()
        TAMPERINGS[number % len(TAMPERINGS)](file)
        if name not in {MANIFEST, SIGNATURE}:
            assert blamed(bundle) == {name}
        restore(file, before)
    for name in (MANIFEST, SIGNATURE, "contents.json", "model.keras", "environment.json", "run/evidence.json"):
        before = (bundle.path / name).read_bytes()
        for tamper in TAMPERINGS:
            tamper(bundle.path / name)
            assert_found(located, signed, name)
            restore(bundle.path / name, before)
    assert verify(located, signed.public).exit_code == 0


@pytest.mark.parametrize("tamper", TAMPERINGS, ids=lambda tamper: tamper.__name__)
def test_tampering_with_all_files_at_once_is_found_for_each(signed: Signed, tmp_path: Path, tamper: Callable[[Path], None]) -> None:
    root = copied(signed.store, tmp_path)
    bundle = open_bundle(root / "bundles" / signed.bundle.name)
    for name in bundle.manifest.files:
        tamper(bundle.path / name)
    assert blamed(bundle) == set(bundle.manifest.files)


def assert_found(located: Located, signed: Signed, name: str) -> None:
    """By the whole command's code, with a key and, since the log has the signature's digest, without."""
    for key in (signed.public, None):
        found = verify(located, key)
        assert found.exit_code == 1, name
        assert name in {f.place for f in found.findings}, name


@pytest.mark.parametrize(
    "name", ["extra.txt", "run/artifacts/extra", "golden/.hidden", "new/deep/file", "run/stages/run.litert/outputs/alone/1.values.npy"]
)
def test_added_files_are_found(signed: Signed, tmp_path: Path, name: str) -> None:
    path = copied(signed.bundle, tmp_path)
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_text("x")
    found = verify(find_bundle(str(path)), signed.public)
    assert found.exit_code == 1
    assert name in {f.place for f in found.findings}


@pytest.mark.parametrize("what", ["folder", "link", "link to a folder", "fifo", "empty folder gone"])
def test_what_is_no_file_is_found(signed: Signed, tmp_path: Path, what: str) -> None:
    path = copied(signed.bundle, tmp_path)
    odd = path / "run" / "odd"
    if what == "folder":
        odd.mkdir()
    elif what == "link":
        odd.symlink_to(path / "model.keras")
    elif what == "link to a folder":
        odd.symlink_to(tmp_path)
    elif what == "fifo":
        os.mkfifo(odd)
    else:
        (path / open_bundle(path).manifest.folders[0]).rmdir()
    assert verify(find_bundle(str(path)), signed.public).exit_code == 1


def test_another_bundle_under_the_same_name_is_found(signed: Signed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Altered consistently, manifest and all: only the id, the log and the signature can tell."""
    root = copied(signed.store, tmp_path)
    path = root / "bundles" / signed.bundle.name
    flip_a_bit(path / "model.keras")
    reseal(path)
    assert command(["verify", "digits", "--store", str(root)]) == 1
    assert "the bundle's id is" in told(capsys)
    away = Path(shutil.move(path, tmp_path / "away"))
    (away / SIGNATURE).unlink()
    assert command(["verify", str(away)]) == 0  # nothing outside says which bundle it should be, and that is told
    assert "compare the id" in told(capsys)
    assert command(["verify", str(away), "--key", str(signed.public)]) == 1


def reseal(path: Path) -> None:
    from kpipe.signoff.files import take_stock

    (path / MANIFEST).write_bytes(document(take_stock(path)))


def test_another_key_is_found(signed: Signed, tmp_path: Path) -> None:
    _, stranger = keys(tmp_path)
    found = verify(find_bundle(str(signed.bundle)), stranger)
    assert (found.exit_code, found.signature) == (1, "not valid")


def test_a_folder_that_is_no_bundle_is_said(signed: Signed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["verify", str(tmp_path)]) == Exit.USAGE
    assert "is no bundle" in told(capsys)
    assert command(["verify", str(signed.bundle), "--key", str(signed.private)]) == Exit.USAGE
    assert "Expected a public key" in told(capsys)


def test_editing_a_waiver_after_the_approval_is_found(signed: Signed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    waivers = write_waiver(tmp_path / "waivers.toml")
    assert command(signed.words("--store", str(tmp_path / "store"), "--waivers", str(waivers))) == 0
    bundle = find_bundle("digits", str(tmp_path / "store"))
    assert (bundle.path / "run" / "waivers.toml").read_text() == waivers.read_text()
    assert kpipe.judge(bundle.path / "run").record.waivers[0].state == "unused"  # the sealed ones; and nothing is written
    assert bundle.store is not None
    assert bundle.store.log()[0].entry.notes[0].startswith("Waiver unused: KP504 on litert at size_mib")
    assert codes(open_bundle(bundle.path).record) >= {"KP702"}
    assert verify(bundle).exit_code == 0
    sealed = bundle.path / "run" / "waivers.toml"
    sealed.chmod(0o644)
    sealed.write_text(sealed.read_text().replace("2099-01-01", "2199-01-01"))
    capsys.readouterr()
    assert command(["verify", "digits", "--store", str(tmp_path / "store")]) == 1
    assert "KP710 run/waivers.toml was altered" in told(capsys)


# ---------------------------------------------------------------- what can't be approved


def refused(words: list[str], code: Exit, capsys: pytest.CaptureFixture[str], *messages: str) -> None:
    store = Path(words[words.index("--store") + 1])
    assert command(words) == code
    text = told(capsys)
    for message in messages:
        assert message in text, text
    assert not (store / "approvals").exists()
    assert not list((store / "bundles").glob("*")) if (store / "bundles").exists() else True


def test_a_failed_run_is_refused_whatever_its_record_says(limited: Path, signed: Signed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(
        signed.words("--store", str(tmp_path / "s"), run=limited), Exit.FAIL, capsys, "its verdict is FAIL", "KP504", "Only a PASS can be approved"
    )
    forged = copied(limited, tmp_path)
    edit(forged / "run.json", lambda record: record.update(verdict="PASS", headline="all is well", findings=[]))
    refused(signed.words("--store", str(tmp_path / "s"), run=forged), Exit.FAIL, capsys, "its verdict is FAIL", "its run.json says PASS")


def test_a_run_without_contract_goldens_and_profile_is_refused_for_each(
    plain: Path, signed: Signed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = ("it had no contract", "in the profile 'default'", "synthetic inputs", "its verdict is INCOMPLETE")
    refused(signed.words("--store", str(tmp_path / "s"), run=plain), Exit.INCOMPLETE, capsys, *messages)


def forged_outputs(run: Path) -> None:
    flip_a_bit(run / "stages" / "run.litert" / "outputs" / "alone" / "0.values.npy")


def lost_outputs(run: Path) -> None:
    shutil.rmtree(run / "stages" / "reference" / "outputs")


def other_contract(run: Path) -> None:
    one_byte_more(run / "contract.toml")


def forged_artifact(run: Path) -> None:
    flip_a_bit(run / "artifacts" / "litert" / "model.tflite")


def lost_artifact(run: Path) -> None:
    shutil.rmtree(run / "artifacts" / "saved_model" / "1" / "variables")


def default_profile(run: Path) -> None:
    edit(run / "evidence.json", lambda evidence: evidence.update(profile="default"))


def no_environment(run: Path) -> None:
    edit(run / "evidence.json", lambda evidence: evidence.update(installed={}))


def no_record(run: Path) -> None:
    (run / "run.json").write_text("{}")


def judged_otherwise(run: Path) -> None:
    edit(run / "run.json", lambda record: record.update(verdict="FAIL"))


def lost_job(run: Path) -> None:
    (run / "stages" / "run.litert" / "job.json").unlink()


CHANGED = {
    forged_outputs: (Exit.INCOMPLETE, "its verdict is INCOMPLETE"),
    lost_outputs: (Exit.INCOMPLETE, "its verdict is INCOMPLETE"),
    other_contract: (Exit.USAGE, "is not the contract that the run was made with"),
    forged_artifact: (Exit.USAGE, "the artifact model.tflite of target 'litert' is not the one that was judged"),
    lost_artifact: (Exit.USAGE, "of target 'saved_model'"),
    default_profile: (Exit.USAGE, "it was run in the profile 'default'"),
    no_environment: (Exit.USAGE, "it doesn't say what its interpreters held"),
    no_record: (Exit.USAGE, "its run.json can't be read"),
    judged_otherwise: (Exit.USAGE, "its run.json says FAIL"),
    lost_job: (Exit.USAGE, "what stage 'run.litert' was told can't be read"),
}


@pytest.mark.parametrize("change", CHANGED, ids=lambda change: change.__name__)
def test_a_run_that_was_changed_is_refused(
    signed: Signed, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Path], None]
) -> None:
    run = copied(signed.run, tmp_path)
    change(run)
    code, message = CHANGED[change]
    refused(signed.words("--store", str(tmp_path / "s"), run=run), code, capsys, message)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.keras", "the candidate"),
        ("layers.py", "your own file"),
        ("golden/manifest.toml", "the golden set's manifest"),
        ("golden/files/d0069-rgba-20.png", "golden input 'd0069-rgba-20'"),
    ],
)
@pytest.mark.parametrize("how", [flip_a_bit, remove])
def test_a_file_that_changed_since_the_run_is_refused(
    signed: Signed, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str, how: Callable[[Path], None]
) -> None:
    path = signed.home / name
    before = path.read_bytes()
    how(path)
    try:
        refused(
            signed.words("--store", str(tmp_path / "s")),
            Exit.USAGE,
            capsys,
            message,
            "is not the file of the run" if path.exists() else "can't be read",
        )
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--by", " "], "--by is empty"),
        (["--reason", ""], "--reason is empty"),
        (["--channel", "a/b"], "--channel is 'a/b'"),
        (["--product", "a b"], "--product is 'a b'"),
        (["--key", "nothing.pem"], "can't sign"),
        (["--waivers", "nothing.toml"], "nothing.toml can't be used"),
        (["--goldens", "some"], "Invalid value"),
    ],
)
def test_words_that_are_off(signed: Signed, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    refused(signed.words("--store", str(tmp_path / "s"), *words), Exit.USAGE, capsys, message)


def test_a_run_with_arrays_and_one_with_unchecked_cells_of_an_optional_target(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path, kind="arrays", text="decision = { rule = 'argmax', output = 'y' }\n[targets.litert]\n[targets.openvino]\nrequired = false\n"
    )
    record = bench.judge()
    assert record.verdict == "PASS"
    found = refusals(record, bench.evidence(), bench.loaded(), record.verdict)
    assert any("arrays that were already preprocessed" in problem for problem in found)
    assert any("target 'openvino' are unchecked" in problem for problem in found)


def test_without_a_product_nothing_is_sealed(signed: Signed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["approve", str(signed.run), "--by", "approvers", "--reason", "good", "--store", str(tmp_path / "s")]
    refused(words, Exit.USAGE, capsys, "names no product")


# ---------------------------------------------------------------- two at once, full


def started(words: list[str], limit: int | None = None) -> subprocess.Popen[str]:
    def confine() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.Popen(
        [sys.executable, "-m", "kpipe", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=confine,  # noqa: PLW1509 - two system calls, and the parent has no lock that the child needs
    )


def test_two_approvals_at_the_same_moment_are_both_kept(signed: Signed, tmp_path: Path) -> None:
    both = [started([*signed.words("--store", str(tmp_path / "s")), "--by", who]) for who in ("approvers", "on-call")]
    said = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    store = open_store(str(tmp_path / "s"))
    assert {one.entry.by for one in store.log()} == {"approvers", "on-call"}
    assert store.current("digits", "production").bundle == store.log()[1].entry.bundle
    assert len(store.bundle_names()) == 2
    assert store.problems() == []
    for process, (out, _) in zip(both, said, strict=True):
        assert process.returncode == 0
        assert any(f"entry {one.entry.number} of the log" in out and one.entry.bundle[:12] in out for one in store.log())


def test_a_full_store_is_said_and_left_as_it_was(signed: Signed, tmp_path: Path) -> None:
    process = started(signed.words("--store", str(tmp_path / "s")), limit=100_000)
    _, err = process.communicate()
    assert process.returncode == Exit.USAGE, err
    assert "it is full" in err
    assert "Traceback" not in err
    assert [p for p in (tmp_path / "s").rglob("*") if p.is_file() and p.name != ".lock"] == []


# ---------------------------------------------------------------- waivers, on a real run


def write_waiver(path: Path, **changes: Any) -> Path:
    facts = {
        "code": "KP504",
        "target": "litert",
        "place": "size_mib",
        "artifact": "ab" * 32,
        "observed": 0.15,
        "allowed": [0.0, 0.2],
        "owner": "approvers",
        "reason": "the device has room",
        "expires": datetime(2099, 1, 1, tzinfo=UTC).date(),
    }
    path.write_text(tomlkit.dumps({"version": 1, "waiver": [facts | changes]}), encoding="utf-8")
    return path


def test_a_waived_run_passes_says_so_first_and_can_be_approved(
    limited: Path, signed: Signed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(limited, tmp_path)
    assert command(["judge", str(run)]) == 1
    sha256 = digest(run / "artifacts" / "litert" / "model.tflite")
    waivers = write_waiver(tmp_path / "w.toml", artifact=sha256)
    capsys.readouterr()
    assert command(["judge", str(run), "--waivers", str(waivers)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0].startswith("PASS")
    said = next(i for i, line in enumerate(lines) if line.strip().startswith("!"))  # the headline may take two lines
    assert lines[said].strip().startswith("! Waived: KP504 on litert at size_mib")
    assert said < next(i for i, line in enumerate(lines) if "status" in line)
    assert any("litert" in line and "WAIVED" in line for line in lines)
    assert (run / "report.md").read_text().splitlines()[4].startswith("> - Waived: KP504 on litert")
    assert "<skipped" in (run / "junit.xml").read_text()
    assert "<failure" not in (run / "junit.xml").read_text()
    sarif = json.loads((run / "results.sarif").read_text())["runs"][0]
    assert sarif["results"][0]["ruleId"] == "KP504"
    assert sarif["results"][0]["suppressions"][0]["justification"].startswith("approvers until 2099-01-01")
    assert "Waived: KP504" in (run / "report.html").read_text()
    assert command(signed.words("--store", str(tmp_path / "s"), "--waivers", str(waivers), run=run)) == 0
    store = Store(open_store(str(tmp_path / "s")).place)
    assert store.log()[0].entry.notes[0].startswith("Waived: KP504")
    bundle: Bundle = open_bundle(store.fetch(store.log()[0].entry.bundle))
    assert bundle.record.waivers[0].state == "used"
    assert_holds_what_was_handed_in(bundle, signed)
    assert bundle.contents.judged_on == datetime.now(UTC).date().isoformat()


def assert_holds_what_was_handed_in(bundle: Bundle, signed: Signed) -> None:
    """The artifact, the preprocessing and the decision code of the user's, in the bundle and in the orders that it keeps."""
    assert bundle.artifact("given").read_bytes() == (signed.home / "given.onnx").read_bytes()
    assert bundle.target("given").artifact == "provided/given/given.onnx"
    assert (bundle.target("given").prepare, bundle.target("litert").prepare) == ("prepare.given", "prepare")
    ((path, sha256),) = bundle.job("given").inputs[0].files.items()
    assert Path(path).is_relative_to(bundle.path)
    assert digest(path) == sha256 == digest(signed.home / "serving_code.py")
    ((path, sha256),) = bundle.decision_code[""].items()
    assert (Path(path).read_text(), digest(path)) == (RULE, sha256)
    assert len(bundle.answers("given").decisions(bundle.rules[0], "alone")) == KEPT


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"artifact": "cd" * 32}, "KP703"),
        ({"allowed": [0.0, 0.151], "observed": 0.1505}, "KP703"),
        ({"expires": datetime(2020, 1, 1, tzinfo=UTC).date()}, "KP701"),
        ({"place": "load_s"}, "KP702"),
        ({"target": "onnxruntime"}, "KP702"),
        ({"code": "KP502"}, "KP702"),
    ],
)
def test_a_waiver_that_does_not_fit_covers_nothing(
    limited: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], code: str
) -> None:
    run = copied(limited, tmp_path)
    sha256 = digest(run / "artifacts" / "litert" / "model.tflite")
    waivers = write_waiver(tmp_path / "w.toml", **({"artifact": sha256} | changes))
    assert command(["judge", str(run), "--waivers", str(waivers)]) == 1
    assert code in told(capsys)
    assert code in codes(kpipe.load_run(run).record)


# ---------------------------------------------------------------- run again


def rechecked(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """A re-check: exit code, answer, messages."""
    capsys.readouterr()
    code = command(["recheck", *(str(word) for word in words), "--no-times"])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_bundle_with_hashes_only_is_run_again_on_the_files_that_are_supplied(
    signed: Signed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    assert command(signed.words("--store", str(store), "--goldens", "hashes")) == 0
    code, _, told = rechecked(capsys, "digits", "--store", store, "--target", "litert")
    assert (code, "hashes of its golden inputs only" in told) == (2, True)
    supplied = tmp_path / "golden"
    shutil.copytree(signed.home / "golden", supplied)
    code, table, told = rechecked(capsys, "digits", "--store", store, "--target", "litert", "--goldens", supplied)
    assert (code, "same bits" in table) == (0, True), table + told
    next(supplied.rglob("*.png")).write_bytes(b"not the file")
    code, table, told = rechecked(capsys, "digits", "--store", store, "--target", "litert", "--goldens", supplied)
    assert code in {1, 3}, table + told
    assert "same bits" not in table


def test_an_altered_bundle_is_not_run_again(signed: Signed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(signed.bundle, copy)
    for path in copy.rglob("*"):
        path.chmod(0o700)
    model = next(copy.rglob("model.tflite"))
    model.write_bytes(model.read_bytes()[:-1] + b"\0")
    code, table, told = rechecked(capsys, copy, "--target", "litert", "--out", tmp_path / "out")
    assert code == 1
    assert "ALTERED" in table
    assert "environment" not in told
    assert not (tmp_path / "out").exists()


def test_the_sealed_model_is_exported_anew_beside_what_was_sealed(signed: Signed, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, told = rechecked(capsys, signed.bundle, "--target", "onnxruntime", "--python", sys.executable, "--export-anew", "--json")
    assert code == 0, told
    cells = {(o["target"], o["column"]): o for o in json.loads(out)["outcomes"]}
    assert set(cells) == {(name, column) for name in ("onnxruntime", "onnxruntime, exported anew") for column in ("signed off", sys.executable)}
    assert {o["status"] for o in cells.values()} == {"pass"}
    assert not any(o["against"]["changed"] or o["against"]["missing"] for o in cells.values())


def test_an_environment_that_can_not_be_had_leaves_what_it_is_about_unchecked(signed: Signed, capsys: pytest.CaptureFixture[str]) -> None:
    code, table, _ = rechecked(capsys, signed.bundle, "--target", "onnxruntime", "--with", "onnxruntime==0.0.1")
    assert code == 3
    assert "UNCHECKED" in table
    assert "no environment: it could not be installed" in table
    assert "pass, same bits" in table, "as it was signed off it runs all the same"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--target", "litret"], "did you mean 'litert'"),
        (["--with", "onnxruntime"], "says no version"),
        (["--with", "nothing-of-the-kind==1"], "doesn't have"),
        (["--target", "litert", "--with", "ai-edge-litert==2.2.0", "--with", "onnxruntime==1.31.1"], "reaches none of the targets"),
    ],
)
def test_a_re_check_that_asks_for_what_is_not_there_runs_nothing(
    signed: Signed, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    code, table, told = rechecked(capsys, signed.bundle, *words)
    assert (code, table, said in told) == (2, "", True), told


def test_there_is_no_way_back_to_what_was_never_approved(signed: Signed, capsys: pytest.CaptureFixture[str]) -> None:
    back = ["rollback", "--to", signed.bundle.name, "--store", str(signed.store), "--by", "approvers", "--reason", "it broke"]
    for words, said in (
        ([*back, "--channel", "beta"], "was never approved for digits@beta"),
        (back, "there is nothing to roll back"),
        ([*back[:-4], "--by", " ", "--reason", "it broke"], "--by is empty"),
    ):
        capsys.readouterr()
        assert command(words) == 2
        assert said in flat(capsys.readouterr().err)

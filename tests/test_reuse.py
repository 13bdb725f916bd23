"""Artifacts of earlier runs: the same bytes again, or made anew; never anything else."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kpipe
from kpipe.running import reuse_key
from kpipe.running.launch import Order
from kpipe.running.reuse import ACCOUNT, Places, Shelf
from kpipe.running.reuse_key import key_of, key_or_none
from kpipe.running.system import this_interpreter
from kpipe_stages.codec import decode, encode
from kpipe_stages.digest import digest, size
from kpipe_stages.protocol import (
    PROTOCOL,
    Artifact,
    Binding,
    ExportJob,
    ExportOpenvinoJob,
    ExportResult,
    Observation,
    QuantizeJob,
    Result,
    Signature,
    Status,
    TensorSpec,
    Trust,
)

from . import sample_gate

SIGNATURE = Signature((TensorSpec("x", (None, 2), "float32"),), (TensorSpec("y", (None, 1), "float32"),))
KEY = "a" * 64


def export_job(**changes: Any) -> ExportJob:
    return replace(ExportJob("/somewhere/model.keras", Trust(), ("litert",), "/somewhere/out", sha256="1" * 64), **changes)


def order(params: Any, **changes: Any) -> Order:
    return replace(Order("export", "export", params, this_interpreter().path, {"HOME": "/one", "LANG": "C"}, 60.0), **changes)


def made(places: Places, *, source: bool = False) -> Result:
    """A stage's answer with a file, a file with a companion and a folder."""
    (places.out / "litert").mkdir(parents=True)
    (places.out / "litert" / "model.tflite").write_bytes(b"litert" * 100)
    (places.out / "openvino_ir").mkdir()
    (places.out / "openvino_ir" / "model.xml").write_text("<net/>")
    (places.out / "openvino_ir" / "model.bin").write_bytes(b"weights")
    (places.out / "saved_model" / "1" / "variables").mkdir(parents=True)
    (places.out / "saved_model" / "1" / "saved_model.pb").write_bytes(b"graph")
    (places.out / "saved_model" / "1" / "variables" / "data").write_bytes(b"numbers")
    if source:
        (places.stage / "litert_batch_1").mkdir(parents=True)
        (places.stage / "litert_batch_1" / "saved_model.pb").write_bytes(b"twin")
    files = {"litert": "litert/model.tflite", "openvino_ir": "openvino_ir/model.xml", "saved_model": "saved_model/1"}
    companions = {"openvino_ir": (str(places.out / "openvino_ir" / "model.bin"),)}
    artifacts = tuple(
        Artifact(
            format=kind,
            path=str(places.out / name),
            sha256=digest(places.out / name, companions.get(kind, ())),
            size=size(places.out / name, companions.get(kind, ())),
            signature=SIGNATURE,
            binding=Binding({"x": "x"}, {"y": "y"}),
            ops={},
            foreign_ops=(),
            parameters_bytes=0,
            companions=companions.get(kind, ()),
            source=str(places.stage / "litert_batch_1") if source and kind == "litert" else "",
        )
        for kind, name in files.items()
    )
    data = encode(ExportResult(SIGNATURE, artifacts, {}))
    return Result(PROTOCOL, "export", "first", Status.OK, None, (), None, data, 1.0, 1)


@pytest.fixture
def first(tmp_path: Path) -> Places:
    return Places(tmp_path / "first" / "artifacts", tmp_path / "first" / "stages" / "export")


@pytest.fixture
def second(tmp_path: Path) -> Places:
    (tmp_path / "second" / "artifacts").mkdir(parents=True)
    return Places(tmp_path / "second" / "artifacts", tmp_path / "second" / "stages" / "export")


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "cache" / "exports")


def below(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_entry_brings_the_same_bytes_and_the_paths_of_the_new_run(shelf: Shelf, first: Places, second: Places) -> None:
    answer = made(first, source=True)
    shelf.keep(KEY, answer, first)
    found = shelf.take(KEY, order(export_job()), second)
    assert found is not None
    assert below(second.out) == below(first.out)
    artifacts = decode(ExportResult, found.data).artifacts
    assert [a.format for a in artifacts] == ["litert", "openvino_ir", "saved_model"]
    for artifact, before in zip(artifacts, decode(ExportResult, answer.data).artifacts, strict=True):
        assert artifact.reused == KEY
        assert not before.reused
        assert artifact.sha256 == before.sha256 == digest(artifact.path, artifact.companions)
        assert Path(artifact.path).is_relative_to(second.out)
    assert below(Path(artifacts[0].source)) == {"saved_model.pb": b"twin"}
    written = json.loads((second.stage / "result.json").read_text())
    assert written["attempt"] == found.attempt == json.loads((second.stage / "job.json").read_text())["attempt"] != "first"


@pytest.mark.parametrize("name", ["litert/model.tflite", "openvino_ir/model.bin", "openvino_ir/model.xml", "saved_model/1/variables/data"])
def test_a_flipped_bit_of_any_file_is_found_and_the_entry_goes(shelf: Shelf, first: Places, second: Places, name: str) -> None:
    shelf.keep(KEY, made(first), first)
    file = shelf.folder / KEY / "files" / "out" / name
    data = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(bytes(data))
    assert shelf.take(KEY, order(export_job()), second) is None
    assert not (shelf.folder / KEY).exists()
    assert below(second.out) == {}
    assert not second.stage.exists()


def _account(entry: Path, change: Any) -> None:
    whole = json.loads((entry / ACCOUNT).read_text())
    change(whole)
    (entry / ACCOUNT).write_text(json.dumps(whole))


def _lead_out(whole: Any) -> None:
    from kpipe.running.reuse import _sha256

    whole["account"]["result"]["data"]["artifacts"][0]["path"] = "out/../../../../outside.tflite"
    whole["sha256"] = _sha256(whole["account"])


DAMAGES = {
    "a missing file": lambda entry: (entry / "files" / "out" / "litert" / "model.tflite").unlink(),
    "a cut file": lambda entry: (entry / "files" / "out" / "saved_model" / "1" / "saved_model.pb").write_bytes(b"gr"),
    "another file in a folder": lambda entry: (entry / "files" / "out" / "saved_model" / "1" / "more").write_bytes(b"x"),
    "a link": lambda entry: (entry / "files" / "out" / "saved_model" / "1" / "link").symlink_to("/etc/passwd"),
    "an altered twin": lambda entry: (entry / "files" / "stage" / "litert_batch_1" / "saved_model.pb").write_bytes(b"else"),
    "no account": lambda entry: (entry / ACCOUNT).unlink(),
    "half an account": lambda entry: (entry / ACCOUNT).write_text((entry / ACCOUNT).read_text()[:200]),
    "an account of another form": lambda entry: (entry / ACCOUNT).write_text("[]"),
    "an altered account": lambda entry: _account(entry, lambda whole: whole["account"]["result"].update(seconds=2.0)),
    "an account of another key": lambda entry: _account(entry, lambda whole: whole["account"].update(key="b" * 64)),
    "a path that leads out": lambda entry: _account(entry, _lead_out),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_made_anew(shelf: Shelf, first: Places, second: Places, damage: str) -> None:
    answer = made(first, source=True)
    shelf.keep(KEY, answer, first)
    DAMAGES[damage](shelf.folder / KEY)
    assert shelf.take(KEY, order(export_job()), second) is None
    assert below(second.out) == {}
    assert not second.stage.exists()
    shelf.keep(KEY, answer, first)
    assert shelf.take(KEY, order(export_job()), second) is not None


def test_a_file_that_nobody_accounts_for_reaches_no_run(shelf: Shelf, first: Places, second: Places) -> None:
    shelf.keep(KEY, made(first), first)
    (shelf.folder / KEY / "files" / "out" / "litert" / "more.so").write_bytes(b"x")
    assert shelf.take(KEY, order(export_job()), second) is not None
    assert "litert/more.so" not in below(second.out)


def test_a_cache_that_others_can_write_is_not_used(shelf: Shelf, first: Places, second: Places) -> None:
    shelf.keep(KEY, made(first), first)
    shelf.folder.chmod(0o777)
    assert shelf.take(KEY, order(export_job()), second) is None
    assert below(second.out) == {}


def test_no_cache_is_no_fault(tmp_path: Path, first: Places, second: Places) -> None:
    (tmp_path / "file").write_text("in the way")
    shelf = Shelf(tmp_path / "file" / "exports")
    shelf.keep(KEY, made(first), first)
    assert shelf.take(KEY, order(export_job()), second) is None


def test_what_failed_and_what_was_altered_since_is_not_kept(shelf: Shelf, first: Places, second: Places) -> None:
    answer = made(first)
    shelf.keep(KEY, replace(answer, status=Status.FAILED), first)
    poor = Observation("KP306", "The conversion to ONNX ran out of memory.", "", "onnx")
    shelf.keep(KEY, replace(answer, observations=(poor,)), first)
    assert not (shelf.folder / KEY).exists()
    (first.out / "litert" / "model.tflite").write_bytes(b"something else")
    shelf.keep(KEY, answer, first)
    assert shelf.take(KEY, order(export_job()), second) is None


def test_the_cache_is_held_to_its_size_and_the_oldest_go(tmp_path: Path, first: Places) -> None:
    answer = made(first)
    one = Shelf(tmp_path / "one")
    one.keep(KEY, answer, first)
    shelf = Shelf(tmp_path / "cache", most_bytes=int(2.5 * size(one.folder / KEY)))
    for number, key in enumerate(("a" * 64, "b" * 64, "c" * 64)):
        shelf.keep(key, answer, first)
        os.utime(shelf.folder / key, (number, number))
    assert sorted(path.name[0] for path in shelf.folder.iterdir()) == ["b", "c"]
    small = Shelf(tmp_path / "small", most_bytes=1000)
    small.keep(KEY, answer, first)
    assert not (small.folder / KEY).exists()


def test_many_at_once_leave_one_whole_entry(shelf: Shelf, first: Places, tmp_path: Path) -> None:
    answer = made(first)

    def both(number: int) -> bool:
        shelf.keep(KEY, answer, first)
        places = Places(tmp_path / str(number) / "artifacts", tmp_path / str(number) / "stages" / "export")
        places.out.mkdir(parents=True)
        return shelf.take(KEY, order(export_job()), places) is not None

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(both, range(16)))
    assert [path.name for path in shelf.folder.iterdir()] == [KEY]


# ------------------------------------------------------------ the key


def test_the_key_is_of_content_and_not_of_places(tmp_path: Path) -> None:
    code = [tmp_path / side / "house" / "layers.py" for side in ("one", "other")]
    for path in code:
        path.parent.mkdir(parents=True)
        path.write_text("X = 1\n")
    jobs = [export_job(model=f"/{i}/m.keras", out=f"/{i}", trust=Trust(custom_objects=(str(path),))) for i, path in enumerate(code)]
    keys = [key_of(order(job, environment={"HOME": f"/{i}", "LANG": "C"})) for i, job in enumerate(jobs)]
    assert keys[0] == keys[1] is not None
    code[1].write_text("X = 2\n")
    assert key_of(order(jobs[1])) != keys[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"sha256": "2" * 64},
        {"formats": ("litert", "onnx")},
        {"repairs": False},
        {"allow_select_tf": True},
        {"trust": Trust(allow_lambda=("l",))},
        {"trust": Trust(allow_modules=("p",))},
    ],
    ids=str,
)
def test_the_key_changes_with_all_that_an_export_depends_on(changes: dict[str, Any]) -> None:
    assert key_of(order(export_job(**changes))) != key_of(order(export_job()))


def test_the_key_changes_with_versions_source_and_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    known = key_of(order(export_job()))
    assert known == key_of(order(export_job()))
    assert known != key_of(order(export_job(), environment={"HOME": "/one", "LANG": "C", "TF_X": "1"}))
    for name, value in {
        "own_source": lambda: "other",
        "distributions": lambda: (("tensorflow-0",), ()),
        "cpu_model": lambda: "another",
        "cpu_features": lambda: ("amx_bf16",),
    }.items():
        with monkeypatch.context() as patch:
            patch.setattr(reuse_key, name, value)
            assert key_of(order(export_job())) != known


def test_what_cannot_be_told_has_no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text("import house\n")
    coded = export_job(trust=Trust(custom_objects=(str(tmp_path / "layers.py"),)))
    assert key_of(order(export_job(sha256=""))) is None
    assert key_of(order(export_job(formats=()))) is None
    assert key_of(order(export_job(), python="/another/python")) is None
    assert key_of(order({"anything": "else"})) is None
    assert key_of(order(coded)) is not None
    monkeypatch.setattr(reuse_key, "distributions", lambda: ((), ("house-1",)))
    assert key_of(order(coded)) is None
    assert key_or_none(order(export_job(trust=Trust(custom_objects=("/nowhere/layers.py",))))) is None


def test_later_steps_are_keyed_by_what_they_read(first: Places) -> None:
    artifacts = decode(ExportResult, made(first).data).artifacts
    convert = ExportOpenvinoJob("/a", SIGNATURE, artifacts[2].binding, "/out")
    keys = {key_of(order(convert, stage="export_openvino"), (source,)) for source in (artifacts[2], replace(artifacts[2], sha256="0" * 64))}
    assert len(keys) == 2
    tensors = first.stage / "tensors"
    tensors.mkdir(parents=True)
    (tensors / "0.values.npy").write_bytes(b"1")
    job = QuantizeJob("int8", artifacts[0], artifacts[2], SIGNATURE, "/out", Trust(), str(tensors), ("x",), 1)
    known = key_of(order(job, stage="quantize_litert"))
    elsewhere = replace(job, out="/else", source=replace(artifacts[0], path="/else", reused=KEY))
    assert key_of(order(elsewhere, stage="quantize_litert")) == known is not None
    (tensors / "0.values.npy").write_bytes(b"2")
    assert key_of(order(job, stage="quantize_litert")) != known


# ------------------------------------------------------------ the gate


@pytest.mark.runtimes
def test_a_second_run_takes_the_exports_and_runs_everything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KPIPE_CACHE_DIR", str(tmp_path / "cache"))
    contract = tmp_path / "kpipe.toml"
    contract.write_text(sample_gate.shipped() + sample_gate.FEW_CALLS, encoding="utf-8")

    def run(name: str, **words: Any) -> kpipe.Run:
        targets = ("litert", "onnxruntime")
        return kpipe.validate(sample_gate.MODEL, contract=contract, targets=targets, out=tmp_path / name, **{"reuse": True, **words})

    def outcome(of: kpipe.Run) -> dict[str, str]:
        return {stage.name: stage.outcome for stage in of.record.stages}

    before, after = run("before"), run("after")
    assert outcome(before)["export"] == "ok"
    assert outcome(after) == {**outcome(before), "export": "reused"}
    for one, other in zip(before.record.targets, after.record.targets, strict=True):
        if one.artifact is None:
            continue
        assert other.artifact is not None
        assert (one.artifact.sha256, one.artifact.reused) == (other.artifact.sha256, "")
        assert len(other.artifact.reused) == 64
        assert (one.status, one.cells, one.modes) == (other.status, other.cells, other.modes)
        assert other.latency is not None
    assert after.record.verdict == before.record.verdict
    assert [f.code for f in after.record.findings] == [f.code for f in before.record.findings]
    deploy = (after.folder / "artifacts" / "litert" / "deploy.toml").read_text()
    assert "reused = " in deploy
    file = next((tmp_path / "cache" / "exports").glob("*/files/out/litert/model.tflite"))
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    again = run("again")
    assert outcome(again)["export"] == "ok"
    assert again.record.verdict == before.record.verdict
    shutil.rmtree(tmp_path / "cache" / "exports")
    assert outcome(run("off", reuse=False))["export"] == "ok"
    assert not (tmp_path / "cache" / "exports").exists()

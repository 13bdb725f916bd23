"""Golden inputs that don't fit, lie about their size, or would fill the memory: said before any framework starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kpipe

from .cases.build_inputs import golden_folder, misfits, pictures, unusable
from .cases.gate import QUIET, Command, Gate, check_answers, check_refused, command, loud, named, only, statuses

IMAGE = np.random.default_rng(56).normal(size=(5, 16, 16, 3)).astype(np.float32)
MISFITS = misfits(IMAGE)
UNUSABLE = tuple(unusable(IMAGE[:2], Path()))

AS_PICTURES = """
[golden]
path = "golden"

[inputs.image]
decode = "image"
steps = [{ resize = [16, 16] }, { channels = "rgb" }, { scale = 0.00392156862745098 }]

[targets.litert]
"""


@pytest.fixture(scope="module")
def model(cases: Path) -> Path:
    """A model with one float32 input of 16 x 16 x 3."""
    return cases / "00_control_cnn" / "model.keras"


@pytest.mark.parametrize("misfit", MISFITS)
def test_arrays_that_do_not_fit_are_refused(misfit: str, model: Path, tmp_path: Path) -> None:
    arrays, word = MISFITS[misfit]
    golden = tmp_path / "golden.npz"
    np.savez(golden, **arrays)
    run = kpipe.validate(model, golden=golden, out=tmp_path / "run")
    check_refused(run.record, "preprocess")
    causes = [f.cause for f in run.record.findings if f.code == "KP104"]
    assert any(word in cause for cause in causes), causes
    assert int(run.exit_code) == 1


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_file_without_a_golden_set_is_a_wrong_command(name: str, model: Path, tmp_path: Path) -> None:
    data, word = unusable(IMAGE[:2], tmp_path)[name]
    golden = tmp_path / "golden.npz"
    golden.write_bytes(data)
    with pytest.raises(kpipe.GoldenError, match=word) as refused:
        kpipe.validate(model, golden=golden, out=tmp_path / "run")
    assert refused.value.exit_code == 2
    assert "golden.npz" in str(refused.value)
    assert not (tmp_path / "run").exists(), "nothing was judged, so there is no run"
    assert not (tmp_path / "MARKER_unpickled").exists()


def test_an_empty_golden_set_ends_the_command_with_2(cases: Path, tmp_path: Path) -> None:
    case = cases / "29_empty_batch"
    answer = command("validate", case / "model.keras", "--golden", case / "inputs.npz", "--out", "run", folder=tmp_path)
    assert answer.exit_code == 2
    assert "no row" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("manifest", ["version = 1\n", "version = 1\n[set]\nname = 'none yet'\n", ""])
def test_a_manifest_without_entries_is_a_wrong_command(manifest: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden" / "manifest.toml").write_text(manifest, encoding="utf-8")
    contract = tmp_path / "kpipe.toml"
    contract.write_text(AS_PICTURES, encoding="utf-8")
    with pytest.raises(kpipe.GoldenError, match=r"manifest\.toml"):
        kpipe.validate(model, contract=contract, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.runtimes
def test_byte_order_and_memory_layout_are_settled_before_a_runtime_sees_them(gate: Gate, tmp_path: Path) -> None:
    """Big-endian bytes are garbage to ONNX Runtime and LiteRT; the values are what counts."""
    with np.load(gate.cases / "18_multi_input_order" / "inputs.npz") as file:
        arrays = dict(file)
    odd: dict[str, Any] = {**arrays, "k": arrays["k"].astype(">f4"), "b": np.asfortranarray(arrays["b"]), "m": arrays["m"][::-1][::-1]}
    golden = tmp_path / "odd.npz"
    np.savez(golden, **odd)
    run = gate.run("18_multi_input_order", only("litert", "onnxruntime"), golden=golden)
    assert statuses(run.record) == {"litert": "pass", "onnxruntime": "pass"}
    check_answers(run, gate.cases / "18_multi_input_order")


# ------------------------------------------------------------ pictures


@pytest.fixture(scope="module")
def bombed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Command, kpipe.Run]:
    """One run over sound pictures, bombs and fragments."""
    folder = tmp_path_factory.mktemp("pictures")
    golden_folder(folder / "golden", pictures())
    (folder / "kpipe.toml").write_text(QUIET + AS_PICTURES, encoding="utf-8")
    answer = command("validate", model, "--contract", "kpipe.toml", "--out", "run", folder=folder)
    return answer, kpipe.load_run(folder / "run")


def test_picture_bombs_are_refused_by_what_their_headers_say(bombed: tuple[Command, kpipe.Run]) -> None:
    answer, run = bombed
    check_refused(run.record, "decode")
    assert named(run.record, "KP103") == sorted(set(pictures()) - {"good.png"})
    assert answer.exit_code == 1
    assert "Traceback" not in answer.stderr


def test_picture_bombs_fill_no_memory(bombed: tuple[Command, kpipe.Run]) -> None:
    stages = bombed[1].record.stages
    assert {stage.name for stage in stages} >= {"prepare"}
    assert all(0 < stage.peak_rss_bytes < 2**29 for stage in stages)


def test_no_warning_of_a_library_reaches_the_user(bombed: tuple[Command, kpipe.Run]) -> None:
    assert "Warning" not in bombed[0].stderr


def test_one_altered_picture_stops_the_run(model: Path, tmp_path: Path) -> None:
    golden_folder(tmp_path / "golden", {"a.png": pictures()["good.png"]})
    with (tmp_path / "golden" / "a.png").open("ab") as file:
        file.write(b"\0")
    contract = tmp_path / "kpipe.toml"
    contract.write_text(QUIET + AS_PICTURES, encoding="utf-8")
    run = kpipe.validate(model, contract=contract, out=tmp_path / "run")
    check_refused(run.record, "golden")
    assert ("KP102", "", "a.png") in loud(run.record)

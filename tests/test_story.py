"""The whole life of a release, on real runtimes: train, validate, approve, train again, compare, approve, upgrade two runtimes, re-check, roll back, restore."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kpipe.__main__ import run as command

from .sample_gate import GOLDEN, LAYERS, ROOT, without_targets

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.runtimes

TARGETS = """
[targets.litert]
[targets.onnxruntime]
[targets.openvino]
settings = { INFERENCE_PRECISION_HINT = "f32" }

[compare]
max_changed = 0.1
"""
OTHERS = ("onnxruntime==1.31.1", "openvino==2026.3.1")
"""Versions that were released before the installed ones."""


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run a command of kpipe: its exit code, and what it printed."""

    def run(*words: object) -> tuple[int, str]:
        code = command([str(word) for word in words])
        told = capsys.readouterr()
        return code, told.out or told.err

    return run


def test_the_life_of_a_release(tmp_path: Path, say: Callable[..., tuple[int, str]]) -> None:
    store = tmp_path / "releases"
    shutil.copy(LAYERS, tmp_path / "layers.py")
    contract = tmp_path / "kpipe.toml"
    contract.write_text(without_targets(GOLDEN).replace(str(LAYERS), str(tmp_path / "layers.py")) + TARGETS, encoding="utf-8")
    bundles = []
    for seed in (1, 2):
        model, run = tmp_path / f"model-{seed}.keras", tmp_path / f"run-{seed}"
        assert say("train", ROOT / "examples" / "digits", "--out", model, "--seed", seed)[0] == 0
        code, told = say("validate", model, "--contract", contract, "--profile", "signoff", "--out", run)
        assert (code, told.split()[0]) == (0, "PASS"), told
        if seed > 1:
            code, told = say("compare", bundles[0], run, "--contract", contract)
            assert code == 0, told
            assert "McNemar" in told or "decided otherwise" in told
        code, told = say("approve", run, "--by", "Release Team", "--reason", f"release {seed}", "--store", store)
        assert code == 0, told
        bundles.append(_current(store))
    first, second = (bundle.name for bundle in bundles)
    assert first != second

    found = _rechecked(say, store, first, second)
    _rolled_back(say, store, first, second)
    assert found["verdict"] == "PASS"


def _current(store: Path) -> Path:
    pointer = json.loads((store / "current" / "digits" / "production.json").read_text(encoding="utf-8"))
    return store / "bundles" / str(pointer["bundle"])


def _rechecked(say: Callable[..., tuple[int, str]], store: Path, first: str, second: str) -> Any:
    """Both models under two upgrades that are really installed, side by side with what was signed off."""
    words = [word for change in OTHERS for word in ("--with", change)]
    code, told = say("recheck", first, second, "--store", store, *words, "--target", "onnxruntime", "--target", "openvino", "--json")
    found = json.loads(told)
    assert code == 0, found["outcomes"]
    cells = {(o["bundle"], o["target"], o["column"]): o for o in found["outcomes"]}
    for bundle in (first, second):
        for target, column in zip(("onnxruntime", "openvino"), OTHERS, strict=True):
            new, signed = cells[bundle, target, column], cells[bundle, target, "signed off"]
            assert (new["status"], signed["status"]) == ("pass", "pass")
            assert new["versions"][target] == column.partition("==")[2] != signed["versions"][target]
            assert new["against"]["changed"] == signed["against"]["changed"] == []
            assert signed["against"]["same_bits"]
            assert found["changed"][bundle][column] == {target: [signed["versions"][target], new["versions"][target]]}
        assert (bundle, "openvino", OTHERS[0]) not in cells, "an upgrade of ONNX Runtime doesn't concern it"
    return found


def _rolled_back(say: Callable[..., tuple[int, str]], store: Path, first: str, second: str) -> None:
    """A rehearsal moves nothing; the rollback does; what it says to restore is what runs."""
    code, told = say("rollback", "--to", first[:12], "--store", store, "--dry-run")
    assert (code, _current(store).name) == (0, second), told
    assert "Rehearsal" in told
    code, told = say("rollback", "--to", first[:12], "--store", store, "--by", "On Call", "--reason", "complaints about sevens")
    assert (code, _current(store).name) == (0, first), told
    restored = [line.split()[-1] for line in told.splitlines() if "SHA-256" in line]
    assert restored
    assert all(Path(path).exists() for path in restored)
    code, told = say("recheck", "digits", "--store", store, "--target", "litert", "--no-times")
    assert code == 0, told
    assert "same bits" in told
    code, told = say("history", "--store", store, "--json")
    line = [(r["entry"]["action"], r["entry"]["bundle"], r["current"]) for r in json.loads(told)["history"]["releases"]]
    assert line == [("approve", first, False), ("approve", second, False), ("rollback", first, True)]
    assert say("verify", first, "--store", store)[0] == 0

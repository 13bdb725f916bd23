"""Fixtures that several files share: model cases, built once, and the gate that validates them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

import kpipe

from . import sample_gate
from .cases.gate import Gate

hypothesis.settings.register_profile("kpipe", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("kpipe")

LONG_FIRST = (
    "test_story",
    "test_selftest_gate",
    "test_diagnose",
    "test_cases_models",
    "test_shapes",
    "test_train_resume",
    "test_golden_set",
    "test_decide",
)
"""Files that take minutes: begun last, one of them would be waited for alone (`make test` runs two files at a time, in this order)."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with `LONG_FIRST`; the others keep their order."""
    items.sort(key=lambda item: LONG_FIRST.index(item.path.stem) if item.path.stem in LONG_FIRST else len(LONG_FIRST))


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every model case, from one TensorFlow process."""
    folder = tmp_path_factory.mktemp("cases")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-m", "tests.cases.build_models", str(folder)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="session")
def gate(cases: Path, tmp_path_factory: pytest.TempPathFactory) -> Gate:
    """Kpipe over the model cases; each pair of case and contract is run once."""
    return Gate(cases, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> kpipe.Run:
    """The shipped example by its shipped contract, with few timed calls: run once; a test that changes it takes a copy."""
    folder = tmp_path_factory.mktemp("digits")
    contract = folder / "kpipe.toml"
    contract.write_text(sample_gate.shipped() + sample_gate.FEW_CALLS, encoding="utf-8")
    return kpipe.validate(sample_gate.MODEL, contract=contract, out=folder / "run")

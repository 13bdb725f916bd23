"""Which of the baseline's recorded things can be held against the candidate's, and when it isn't timed at all."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kpipe.comparing.opponents import _known, _Untimed, same_code
from kpipe.contract import parse_contract
from kpipe.evidence import Ending
from kpipe.running.race import run_races
from kpipe.store import RunFolder
from kpipe_stages.codec import encode

from . import sample_run

if TYPE_CHECKING:
    from pathlib import Path


def subject(*, lean: bool = False, inherited: dict[str, float] | None = None) -> Any:
    ran = sample_run.run_result()
    made = sample_run.result("run_tensorflow", encode(replace(ran, load=replace(ran.load, lean=lean))))
    assert made.identity is not None
    made = replace(made, identity=replace(made.identity, inherited=inherited or {}))
    evidence = SimpleNamespace(candidate_size=500, stages=(sample_run.stage("run.t", made),))
    return SimpleNamespace(evidence=evidence, side=SimpleNamespace(candidate_sha256="cd"))


def row(runtime: str, size: int | None = None, variant: str = "") -> Any:
    artifact = SimpleNamespace(size=size, sha256="ab") if size else None
    return SimpleNamespace(name="t", runtime=runtime, artifact=artifact, variant=variant, peak_rss_bytes=900, load=None)


def test_size_is_the_candidates_only_where_that_is_what_runs() -> None:
    assert _known(row("tensorflow"), subject(), "tensorflow").size == 500
    assert _known(row("tensorflow", variant="int8"), subject(), "tensorflow").size is None
    assert _known(row("litert"), subject(), "litert").size is None
    assert _known(row("litert", 70), subject(), "litert").size == 70


def test_another_runtime_has_neither_size_nor_peak_to_hold_against() -> None:
    found = _known(row("litert", 70), subject(), "onnxruntime")
    assert (found.size, found.peak_bytes) == (None, None)


def test_a_peak_counts_only_where_its_worker_imported_everything_itself() -> None:
    assert _known(row("litert", 70), subject(), "litert").peak_bytes == 900
    assert _known(row("litert", 70), subject(lean=True), "litert").peak_bytes is None
    assert _known(row("litert", 70), subject(inherited={"tensorflow": 2.0}), "litert").peak_bytes is None


def test_custom_objects_that_were_altered_since_are_named(tmp_path: Path) -> None:
    file = tmp_path / "layers.py"
    file.write_text("SLOPE = 1\n", encoding="utf-8")
    known = {str(file): hashlib.sha256(file.read_bytes()).hexdigest()}
    same_code([str(file)], [str(file)], known, "the baseline's")
    with pytest.raises(_Untimed, match="nothing says what"):
        same_code([str(file)], [str(file)], {}, "the baseline's")
    file.write_text("SLOPE = 2\n", encoding="utf-8")
    with pytest.raises(_Untimed, match=r"layers\.py were altered"):
        same_code([str(file)], [str(file)], known, "the baseline's")
    file.unlink()
    with pytest.raises(_Untimed, match="can't be read"):
        same_code([str(file)], [str(file)], known, "the baseline's")


def test_a_race_that_the_runs_time_did_not_reach_leaves_it_incomplete(tmp_path: Path) -> None:
    from .test_race import file, job, order

    told = order(*[job(tmp_path, file(tmp_path / "a.onnx", 1))] * 2)
    contract = parse_contract("[run]\ntotal_s = 60\n", "kpipe.toml")
    folder = RunFolder(tmp_path / "run")
    folder.stages.mkdir(parents=True)
    evidence: Any = SimpleNamespace(wall_s=100.0)
    plan: Any = SimpleNamespace(runtime="onnxruntime", python="python", threads=1)
    stages, incomplete = asyncio.run(run_races({"t": (plan, told)}, contract, folder, evidence, lambda *_: None))
    assert [stage.ending for stage in stages] == [Ending.NOT_STARTED]
    assert "60 s was reached" in incomplete

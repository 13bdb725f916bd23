"""Settings that are tried where a target differs, and what is said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from kpipe.evidence import Ending
from kpipe_stages.catalog import RUNTIMES

from .sample_run import CONTRACT, SCORES, Answers, Bench, answers, row, stage

if TYPE_CHECKING:
    from pathlib import Path

    import kpipe
    from kpipe.record import RunRecord

OFF = (SCORES + np.array([0.05, -0.05, 0.0])).astype(np.float32)


def tried(folder: Path, *knobs: Answers | None) -> RunRecord:
    """ONNX Runtime differs; ``knobs`` are its answers with the first, second, ... setting changed, None for one that crashed."""
    made = Bench(folder, CONTRACT + "[targets.tensorflow]\n[targets.saved_model]\n[targets.onnxruntime]\n")
    made.targets = {"tensorflow": answers(), "saved_model": answers(), "onnxruntime": answers(OFF)}
    made.artifacts = {"onnxruntime": {"sha256": "cd" * 32}}
    for position, ones in enumerate(knobs):
        name = f"knob.onnxruntime.{position}"
        made.replaced[name] = made._ran(name, ones) if ones else stage(name, None, Ending.CRASHED)
    return made.judge()


def test_the_setting_that_removes_a_difference_names_the_border(tmp_path: Path) -> None:
    record = tried(tmp_path, answers(), answers(OFF))
    found = row(record, "onnxruntime")
    assert [(knob.title, knob.removes) for knob in found.knobs] == [("without graph optimisation", True), ("on one thread", False)]
    assert found.edge is not None
    assert found.edge.name == "runtime"
    assert "without graph optimisation (graph_optimization_level = disable)" in found.edge.sentence
    assert str(found.status) == "fail"


def test_numbers_that_agree_and_a_decision_that_does_not_is_no_removal(tmp_path: Path) -> None:
    almost = SCORES.copy()
    almost[3] = [0.45, 0.45000005, 0.1]
    assert [knob.removes for knob in row(tried(tmp_path, answers(almost)), "onnxruntime").knobs] == [False]


def test_a_setting_that_is_right_alone_only_removes_nothing(tmp_path: Path) -> None:
    assert [knob.removes for knob in row(tried(tmp_path, answers(modes=("alone",))), "onnxruntime").knobs] == [False]


def test_a_setting_that_could_not_be_tried_says_nothing(tmp_path: Path) -> None:
    found = row(tried(tmp_path, None, answers()), "onnxruntime")
    assert [(knob.removes, bool(knob.why)) for knob in found.knobs] == [(None, True), (True, False)]
    assert found.edge is not None
    assert "on one thread" in found.edge.sentence


def test_no_knob_is_a_setting_that_its_runtime_would_refuse_or_that_changes_nothing() -> None:
    titles = [(name, knob.title) for name, runtime in RUNTIMES.items() for knob in runtime.knobs]
    assert len(titles) == len(set(titles))
    assert {name for name, _ in titles} >= {"tensorflow", "litert", "onnxruntime", "openvino", "openvino_ir", "keras_openvino"}


@pytest.mark.runtimes
def test_the_machine_s_default_precision_is_removed_by_asking_for_float32(digits_run: kpipe.Run) -> None:
    """On a CPU that computes in bfloat16 by itself; elsewhere the target passes and nothing is tried."""
    found = next(t for t in digits_run.record.targets if t.name == "openvino_default")
    if str(found.status) == "pass":
        assert found.knobs == ()
        return
    assert found.edge is not None
    assert found.edge.name == "precision"
    assert {knob.title: knob.removes for knob in found.knobs}["in float32"] is True
    assert {knob.title: knob.removes for knob in found.knobs}["on one thread"] is False

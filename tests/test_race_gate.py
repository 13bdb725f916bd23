"""A tenth more work planted in one target's file, caught by ``kpipe validate --baseline``: two validations of the digits example over real runtimes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import kpipe
from kpipe.comparing.opponents import opponents
from kpipe.comparing.subject import open_subject
from kpipe.contract import load_contract
from kpipe.record import RaceRecord, TargetRecord, Verdict
from kpipe.store import load_evidence

from . import sample_gate

onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.runtimes

WIDE = 512
PRODUCTS = 40
SLOWER = 44
"""A tenth more."""

NO_LIMIT = "\n[baseline]\nmax_seconds = 60\n[targets.litert]\n[targets.onnxruntime]\nartifact = {file}\nthreads = 1\n"
LIMIT = NO_LIMIT + 'limits = {{ p50_ms = "1.05x baseline" }}\n'


def laden(source: Path, target: Path, products: int) -> Path:
    """The exported file with so many products by the identity behind its output, exact and at their full cost."""
    helper, from_array = onnx.helper, onnx.numpy_helper.from_array
    model = onnx.load(source)
    graph = model.graph
    (output,) = graph.output
    digits = output.type.tensor_type.shape.dim[1].dim_value
    for node in graph.node:
        node.output[:] = ["bare" if name == output.name else name for name in node.output]
    graph.initializer.extend(
        [
            from_array(np.eye(digits, WIDE, dtype=np.float32), "widen"),
            from_array(np.eye(WIDE, dtype=np.float32), "square"),
            from_array(np.eye(WIDE, digits, dtype=np.float32), "narrow"),
        ]
    )
    names = ["wide", *(f"laden{i}" for i in range(products))]
    graph.node.append(helper.make_node("MatMul", ["bare", "widen"], ["wide"]))
    graph.node.extend(helper.make_node("MatMul", [names[i], "square"], [names[i + 1]]) for i in range(products))
    graph.node.append(helper.make_node("MatMul", [names[-1], "narrow"], [output.name]))
    onnx.save(model, target)
    return target


@dataclass(frozen=True)
class Gate:
    before: kpipe.Run
    now: kpipe.Run
    top: Path
    laxer: Path


def contract(folder: Path, name: str, text: str, file: Path) -> Path:
    quiet = sample_gate.without_targets().replace('tolerance = "auto"', 'tolerance = "default"')
    path = folder / name
    path.write_text(quiet + text.format(file=json.dumps(str(file))), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Gate:
    top = tmp_path_factory.mktemp("race")
    exported = kpipe.validate(sample_gate.MODEL, contract=sample_gate.digits_contract(top, "[targets.onnxruntime]\n"), out=top / "exported")
    source = sample_gate.artifact(exported, "onnxruntime")
    files = [laden(source, top / f"{products}.onnx", products) for products in (PRODUCTS, SLOWER)]
    before = kpipe.validate(sample_gate.MODEL, contract=contract(top, "before.toml", NO_LIMIT, files[0]), out=top / "before")
    now = kpipe.validate(sample_gate.MODEL, contract=contract(top, "now.toml", LIMIT, files[1]), baseline=before.folder, out=top / "now")
    return Gate(before, now, top, contract(top, "laxer.toml", NO_LIMIT, files[1]))


def row(run: kpipe.Run, name: str) -> TargetRecord:
    return next(t for t in run.record.targets if t.name == name)


def race(run: kpipe.Run, name: str) -> RaceRecord:
    found = row(run, name).race
    assert found is not None, sample_gate.codes(run.record, name)
    return found


def test_the_files_agree_so_that_only_time_is_left(gate: Gate) -> None:
    assert gate.before.verdict is Verdict.PASS, gate.before.record.headline
    assert not sample_gate.codes(gate.now.record) & {"KP401", "KP402", "KP412"}


def test_a_tenth_is_caught_on_the_target_where_it_was_planted(gate: Gate) -> None:
    assert race(gate.now, "onnxruntime").told == "slower"
    (finding,) = sample_gate.findings(gate.now.record, "KP502")
    assert finding.target == "onnxruntime"
    assert finding.place == "p50_ms"
    assert 1.05 < finding.evidence["value"] < 1.3
    assert gate.now.verdict is Verdict.FAIL
    assert sample_gate.states(gate.now.record)["onnxruntime"] == "fail"


def test_the_other_target_raises_nothing(gate: Gate) -> None:
    assert race(gate.now, "litert").told in {"same", "can't tell yet"}
    assert sample_gate.states(gate.now.record)["litert"] == "pass"
    assert not sample_gate.codes(gate.now.record, "litert") & {"KP502", "KP505", "KP520", "KP521"}


def test_judged_without_the_limit_it_is_a_warning(gate: Gate) -> None:
    judged = kpipe.judge(gate.now.folder, gate.laxer, write=False)
    assert [f.target for f in sample_gate.findings(judged.record, "KP520")] == ["onnxruntime"]
    assert judged.verdict is Verdict.PASS, judged.record.headline


def test_the_comparison_tells_the_times_in_words(gate: Gate) -> None:
    comparison = gate.now.record.baseline
    assert comparison is not None
    assert comparison.interleaved
    told = {(t.target, n.name): n.told for t in comparison.targets for n in t.numbers}
    assert told["onnxruntime", "p50"].startswith("slower (+")
    assert told["litert", "p50"].startswith(("same within 0.02", "can't tell yet"))
    text = (gate.now.folder / "report.md").read_text(encoding="utf-8")
    assert "slower (+" in text


def test_finished_runs_are_timed_where_that_is_asked_for(gate: Gate) -> None:
    exported = gate.top / "exported"
    quiet = kpipe.compare(exported, gate.before.folder)
    assert not quiet.interleaved
    timed = kpipe.compare(exported, gate.before.folder, time=True)
    assert timed.interleaved
    told = {(t.target, n.name): n.told for t in timed.targets for n in t.numbers}
    assert told["onnxruntime", "p50"].startswith("slower (+")
    assert not (gate.before.folder / "stages" / "race.onnxruntime").exists()


def test_an_artifact_that_is_gone_is_said(gate: Gate) -> None:
    before = open_subject(gate.before.folder)
    evidence = load_evidence(gate.now.folder)
    file = gate.top / f"{PRODUCTS}.onnx"
    aside = file.rename(file.with_suffix(".aside"))
    try:
        found, orders = opponents(before, load_contract(gate.top / "now.toml").contract, evidence, gate.now.folder, timed=True)
    finally:
        aside.rename(file)
    assert "is not there any more" in found["onnxruntime"].problem
    assert set(orders) == {"litert"}
    _, unasked = opponents(before, load_contract(gate.top / "now.toml").contract, evidence, gate.now.folder, timed=False)
    assert not unasked

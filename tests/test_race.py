"""Two ONNX files timed in turns by the worker itself, on ONNX Runtime."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kpipe_stages.codec import decode
from kpipe_stages.digest import digest
from kpipe_stages.protocol import Binding, RaceJob, RaceResult, RunJob, Signature, TensorSpec, Trust
from kpipe_stages.race import MOST_FOURS
from kpipe_stages.racing import P50, measured
from kpipe_stages.ratio import Told
from kpipe_stages.rows import write_rows

from .sample_worker import Told as Answered
from .sample_worker import tell

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.runtimes

ROWS = 6
WIDE = 256


def file(path: Path, layers: int, *, batch: int | None = None, noisy: bool = False) -> Path:
    """So many matrix products by the identity, one after another."""
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    square = numpy_helper.from_array(np.eye(WIDE, dtype=np.float32), "square")
    names = ["x", *(f"h{i}" for i in range(layers)), "y"]
    nodes = [helper.make_node("MatMul", [a, "square"], [b]) for a, b in itertools.pairwise(names[:-1])]
    if noisy:
        nodes += [helper.make_node("RandomUniformLike", [names[-2]], ["r"]), helper.make_node("Add", [names[-2], "r"], ["y"])]
    else:
        nodes.append(helper.make_node("Relu", [names[-2]], ["y"]))
    shape: list[Any] = ["n" if batch is None else batch, WIDE]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [square])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def job(folder: Path, path: Path, *, batch: int | None = None) -> RunJob:
    if not (folder / "tensors").exists():
        rows = np.random.default_rng(3).random((ROWS, WIDE), dtype=np.float32)
        write_rows(folder / "tensors" / "0", [*rows])
    specs = [(TensorSpec(name, (None, WIDE), "float32"),) for name in ("x", "y")]
    return RunJob(
        runtime="onnxruntime",
        artifact=str(path),
        trust=Trust(),
        signature=Signature(*specs),
        binding=Binding({"x": "x"}, {"y": "y"}),
        tensors=str(folder / "tensors"),
        names=("x",),
        rows=ROWS,
        batches=(),
        fixed_batch=batch,
        threads=1,
        sha256=digest(path, ()),
    )


def order(before: RunJob, now: RunJob, seconds: float = 3.0, **changes: Any) -> RaceJob:
    return RaceJob(before, now, tuple((row, row) for row in range(ROWS)), seconds, 0.02, **changes)


def raced(told: Answered) -> RaceResult:
    assert told.result.failure is None, told.result.failure
    return decode(RaceResult, told.result.data)


def test_calls_of_both_come_in_turns_and_every_output_is_compared(tmp_path: Path) -> None:
    one = job(tmp_path, file(tmp_path / "a.onnx", 3))
    found = raced(tell("race", order(one, one, 1.0, calls=64), tmp_path / "race", tmp_path / "home"))
    assert len(found.rounds) >= 3
    assert found.looks >= 1
    assert found.rows == ROWS
    assert {r.before_first for r in found.rounds} == {True, False} or len(found.rounds) < 8
    for one_round in found.rounds:
        assert len(one_round.before_ns) == len(one_round.now_ns) <= 2 * MOST_FOURS
        assert min(one_round.before_ns + one_round.now_ns) > 0
        assert min(one_round.load_before_ns, one_round.load_now_ns) > max(one_round.before_ns[0], one_round.now_ns[0]) / 100
    assert all(one_round.windows and sum(w.calls for w in one_round.windows) >= 2 * len(one_round.now_ns) for one_round in found.rounds)
    assert found.compared == found.called > 2 * sum(len(r.now_ns) for r in found.rounds), "warm-ups too"
    assert (found.worst_before, found.worst_now) == (0.0, 0.0)
    ratio = measured(P50, found.rounds, found.looks)
    assert ratio is not None
    assert ratio.told(0.02) in {Told.SAME, Told.UNKNOWN}


def test_twice_the_work_is_slower_and_half_of_it_faster(tmp_path: Path) -> None:
    small, large = (job(tmp_path, file(tmp_path / f"{n}.onnx", n)) for n in (8, 16))
    for sides, answer in (((small, large), Told.SLOWER), ((large, small), Told.FASTER)):
        found = raced(tell("race", order(*sides, 20.0), tmp_path / answer, tmp_path / "home"))
        ratio = measured(P50, found.rounds, found.looks)
        assert ratio is not None
        assert ratio.told(0.02) is answer
        assert found.seconds < 15, "it ends when it knows"


def test_a_limit_keeps_the_calls_going_until_it_is_known(tmp_path: Path) -> None:
    one = job(tmp_path, file(tmp_path / "a.onnx", 3))
    found = raced(tell("race", order(one, one, 20.0, limits={"p90_ms": 3.0}, calls=64), tmp_path / "race", tmp_path / "home"))
    ratio = measured("p90_ms", found.rounds, found.looks)
    assert ratio is not None
    assert ratio.within(3.0) is True
    assert sum(len(r.now_ns) for r in found.rounds) >= 64


def test_an_output_that_moves_is_seen(tmp_path: Path) -> None:
    steady, noisy = job(tmp_path, file(tmp_path / "a.onnx", 1)), job(tmp_path, file(tmp_path / "b.onnx", 1, noisy=True))
    found = raced(tell("race", order(steady, noisy, 0.5), tmp_path / "race", tmp_path / "home"))
    assert found.worst_before == 0.0
    assert found.worst_now > 0.01


def test_other_batch_sizes_cannot_be_compared(tmp_path: Path) -> None:
    one, four = job(tmp_path, file(tmp_path / "a.onnx", 1)), job(tmp_path, file(tmp_path / "b.onnx", 1, batch=4), batch=4)
    told = tell("race", order(one, four), tmp_path / "race", tmp_path / "home")
    assert told.code == "KP521"
    assert "takes 1 rows, one of the candidate's 4" in told.result.observations[-1].cause


def test_an_artifact_that_was_altered_or_is_gone_is_not_timed(tmp_path: Path) -> None:
    one = job(tmp_path, file(tmp_path / "a.onnx", 1))
    for number, (before, code) in enumerate([(replace(one, sha256="0" * 64), "KP211"), (replace(one, artifact=str(tmp_path / "x")), "KP210")]):
        assert tell("race", order(before, one), tmp_path / f"race{number}", tmp_path / "home").code == code

"""Which border a failed target breaks at, drift border by border, and what drift says of inputs that nobody has seen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.codes import CODES
from kpipe.evidence import Ending
from kpipe.findings import Severity
from kpipe.judging.claims import excludes, flip_rate_upper, predicted_flip_rate
from kpipe.judging.edges import BORDER_OF, FIRST, NUMBERS
from kpipe.report.reach_plot import reach_plot
from kpipe_stages.protocol import Observation, Signature, TensorSpec

from .sample_run import CONTRACT, SCORES, SIGNATURE, Answers, Bench, answers, failure, row, run_result, stage

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe.record import Edge, RunRecord

CHAIN = ("tensorflow", "saved_model", "litert", "onnxruntime")
OFF = (SCORES + np.array([0.05, -0.05, 0.0])).astype(np.float32)


def chain(folder: Path, wrong: tuple[str, ...], *, text: str = "", names: tuple[str, ...] = CHAIN, **changed: Answers) -> RunRecord:
    """Targets of which some give other numbers."""
    made = Bench(folder, CONTRACT + "".join(f"[targets.{name}]\n" for name in names) + text)
    made.targets = {name: answers(OFF) if name in wrong else answers() for name in names} | changed
    made.artifacts = {name: {"sha256": f"{number:064x}"} for number, name in enumerate(names)}
    return made.judge()


def edge(record: RunRecord, name: str) -> Edge:
    found = row(record, name).edge
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("wrong", "target", "border", "word"),
    [
        (CHAIN, "litert", "backend", "'tensorflow'"),
        (CHAIN, "tensorflow", "backend", "backend that trained it"),
        (("saved_model", "litert", "onnxruntime"), "saved_model", "export", "'tensorflow' agrees"),
        (("saved_model", "litert", "onnxruntime"), "onnxruntime", "export", "'saved_model'"),
        (("litert",), "litert", "export", "conversion to this format"),
    ],
)
def test_the_first_station_that_leaves_the_reference_names_the_border(
    tmp_path: Path, wrong: tuple[str, ...], target: str, border: str, word: str
) -> None:
    found = edge(chain(tmp_path, wrong), target)
    assert (found.name, word in found.sentence) == (border, True), found


def test_who_agrees_has_no_broken_edge(tmp_path: Path) -> None:
    record = chain(tmp_path, ("litert",))
    assert row(record, "litert").edge is not None
    assert {row(record, name).edge for name in CHAIN if name != "litert"} == {None}


def test_what_nobody_stands_before_is_not_told_apart_and_that_is_said(tmp_path: Path) -> None:
    found = edge(chain(tmp_path, ("litert",), names=("litert",)), "litert")
    assert "not told apart" in found.sentence
    assert "no target tensorflow and no target saved_model" in found.sentence


def test_a_sibling_on_the_same_file_tells_the_runtime(tmp_path: Path) -> None:
    made = Bench(
        tmp_path, CONTRACT + "[targets.saved_model]\n[targets.tensorflow]\n[targets.openvino]\nsettings = { INFERENCE_PRECISION_HINT = 'f32' }\n"
    )
    made.targets = {"saved_model": answers(), "tensorflow": answers(), "openvino": answers(OFF)}
    found = edge(made.judge(), "openvino")
    assert (found.name, "'saved_model' runs the same file" in found.sentence) == ("runtime", True)


def test_a_sibling_in_float32_tells_the_precision(tmp_path: Path) -> None:
    text = (
        CONTRACT
        + "[targets.openvino]\nsettings = { INFERENCE_PRECISION_HINT = 'f32' }\n[targets.coarse]\nruntime = 'openvino'\nprecision = 'default'\n"
    )
    made = Bench(tmp_path, text)
    made.targets = {"openvino": answers(), "coarse": answers(OFF, effective_precision="bfloat16")}
    record = made.judge()
    found = edge(record, "coarse")
    assert (found.name, "'openvino' agrees in float32" in found.sentence) == ("precision", True)
    assert {d.edge for d in row(record, "coarse").edge_drifts} >= {"runtime", "precision", "batch"}


def test_a_file_that_was_handed_in_and_computes_something_else(tmp_path: Path) -> None:
    record = chain(tmp_path, ("litert",), names=("litert",), text="artifact = 'mine.tflite'\n")
    assert edge(record, "litert") is not None
    assert (edge(record, "litert").name, "handed in" in edge(record, "litert").sentence) == ("export", True)


def test_right_alone_and_wrong_in_company(tmp_path: Path) -> None:
    wrong = answers()
    wrong.modes["batch_3"] = {"y": list(OFF)}
    found = edge(chain(tmp_path, (), litert=wrong), "litert")
    assert found.name == "batch"


@pytest.mark.parametrize(("share", "border"), [(0.001, "batch"), (1.0, "runtime")])
def test_what_moves_as_much_from_call_to_call_is_not_the_batch(tmp_path: Path, share: float, border: str) -> None:
    moved = share * float(np.abs(OFF - SCORES).max())
    wrong = answers(repeats_equal=False, repeat_difference=moved, repeat_differences={"y": moved})
    wrong.modes["batch_3"] = {"y": list(OFF)}
    found = edge(chain(tmp_path, (), litert=wrong), "litert")
    assert (found.name, "Asked again" in found.sentence) == (border, border == "runtime")


def test_a_finding_that_names_its_border_comes_before_numbers(tmp_path: Path) -> None:
    wrong = answers(OFF)
    made = Bench(tmp_path, CONTRACT + "[targets.litert]\n", targets={"litert": wrong})
    made.problems = {"litert": (Observation("KP211", "altered", "", "litert"),)}
    assert edge(made.judge(), "litert").name == "export"


@pytest.mark.parametrize(("name", "border"), [("tensorflow", "backend"), ("litert", "runtime")])
def test_what_a_runtime_cannot_run_is_the_backend_s_where_there_is_no_file_in_between(tmp_path: Path, name: str, border: str) -> None:
    made = Bench(tmp_path, CONTRACT + f"[targets.{name}]\n", targets={name: None})
    made.replaced = {f"run.{name}": stage(f"run.{name}", failure("run"), Ending.FAILED)}
    found = edge(made.judge(), name)
    assert (found.name, found.sentence.startswith("KP311 names it")) == (border, True)


# ---------------------------------------------------------------- exchanged


def test_outputs_under_each_other_s_names_are_a_matter_of_the_signature(tmp_path: Path) -> None:
    signature = Signature(SIGNATURE.inputs, (TensorSpec("y", (None, 3), "float32"), TensorSpec("z", (None, 3), "float32")))
    other = SCORES[:, ::-1] * 3

    def both(first: Any, second: Any) -> Answers:
        modes = {mode: {"y": list(first), "z": list(second)} for mode in ("alone", "batch_3", "batch_8")}
        return Answers(modes, run_result(signature=signature))

    made = Bench(tmp_path, CONTRACT + "[targets.litert]\n", reference=both(SCORES, other), targets={"litert": both(other, SCORES)})
    found = edge(made.judge(), "litert")
    assert found.name == "signature"
    assert "'y' gives what the model calls 'z'" in found.sentence


def test_classes_in_another_order_are_named(tmp_path: Path) -> None:
    found = edge(chain(tmp_path, (), litert=answers(SCORES[:, [1, 2, 0]])), "litert")
    assert found.name == "signature"
    assert "position 0 holds element 1, 1 holds element 2, 2 holds element 0" in found.sentence


# ---------------------------------------------------------------- all codes, bounds, predictions


def test_every_error_of_a_target_has_a_border_or_is_one_of_numbers_or_times() -> None:
    from kpipe.codes import UNCHECKED_CODES

    errors = {code for code, row in CODES.items() if row.severity is Severity.ERROR} - UNCHECKED_CODES
    left = {
        code
        for code in errors
        if code not in BORDER_OF and code not in NUMBERS and not code.startswith(("KP5", "KP6", "KP7")) and code not in {"KP408", "KP420"}
    }
    assert left == set()
    assert set(BORDER_OF.values()) <= set(FIRST)


@given(st.integers(1, 400), st.data(), st.sampled_from([0.9, 0.95, 0.99]))
def test_the_upper_bound_is_where_exclusion_begins(n: int, data: st.DataObject, confidence: float) -> None:
    flips = data.draw(st.integers(0, n))
    bound = flip_rate_upper(flips, n, confidence)
    assert bound is not None
    assert flips / n <= bound <= 1
    if flips < n:
        assert excludes(min(bound * (1 + 1e-6) + 1e-8, 1 - 1e-12), confidence, n, flips)
        assert not excludes(max(bound - 1e-6, 1e-12), confidence, n, flips)


def test_no_flip_in_n_is_the_rule_of_three() -> None:
    bound = flip_rate_upper(0, 300, 0.95)
    assert bound == pytest.approx(1 - 0.05 ** (1 / 300), abs=1e-8)
    assert flip_rate_upper(0, 0, 0.95) is None
    assert flip_rate_upper(5, 5, 0.95) == 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.lists(st.floats(0, 1), min_size=1, max_size=30), st.sampled_from([0.5, 1.0]))
def test_a_predicted_rate_counts_the_pairs_in_which_drift_exceeds_what_a_margin_bears(margins: list[float], drifts: list[float], safe: float) -> None:
    counted = sum(d >= safe * m for m in margins for d in drifts) / (len(margins) * len(drifts))
    assert predicted_flip_rate(margins, drifts, safe) == pytest.approx(counted)


def test_every_target_says_what_its_flips_leave_possible(tmp_path: Path) -> None:
    record = chain(tmp_path, ("litert",))
    good, bad = row(record, "onnxruntime"), row(record, "litert")
    assert good.flip_rate_bound == pytest.approx(1 - 0.05 ** (1 / len(SCORES)), abs=1e-6)
    assert good.predicted_flip_rate == 0
    assert bad.predicted_flip_rate is not None
    assert bad.predicted_flip_rate > 0
    assert {r.drift_target for r in record.golden.rows} == {"litert"}
    assert all(r.drift == pytest.approx(0.05, rel=1e-4) for r in record.golden.rows)
    drawing = reach_plot(record)
    assert drawing.startswith("<svg")
    assert f"{len(SCORES)} inputs; 1 within reach of a flip" in drawing


def test_nothing_compared_draws_nothing(tmp_path: Path) -> None:
    record = Bench(tmp_path, CONTRACT + "[targets.litert]\n", targets={"litert": None}).judge()
    assert all(math.isnan(r.drift) for r in record.golden.rows)
    assert reach_plot(record) == ""
    assert row(record).flip_rate_bound is None

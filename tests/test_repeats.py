"""A process held to itself: repeated and timed answers, under tolerances written down and derived ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.judging.floor import Floor, K, widths
from kpipe.judging.repeats import relative_allowance, repeats_itself
from kpipe.judging.tolerance import derived_tolerance
from kpipe.record import Tolerance
from kpipe_stages.protocol import Latency, TimingResult

from .sample_run import CONTRACT, SCORES, Bench, answers, codes, result, run_result

if TYPE_CHECKING:
    from pathlib import Path

AUTO = CONTRACT.replace("decision", "agreement = { tolerance = 'auto' }\ndecision") + "[targets.litert]\n"
COARSE = AUTO + "precision = 'default'\n"
NOISE = 1e-6
DERIVED, WRITTEN, DEFAULT = AUTO, AUTO + "tolerance = { atol = 0.5, rtol = 0.0 }\n", CONTRACT + "[targets.litert]\n"
positive = st.floats(1e-6, 1e6)


def bench(folder: Path, text: str, *, whose: str = "litert", timings: Any = None, **said: Any) -> Bench:
    """A healthy run whose ``whose`` says this of itself; the reference is `NOISE` from the truth."""
    made = Bench(folder, text, timings=timings or {})
    told = answers(**({"effective_precision": "bfloat16"} if "default" in text else {}), **said)
    if whose == "reference":
        made.reference = told
    else:
        made.targets = {"litert": told}
    made.truth = answers(SCORES.astype(np.float64) + NOISE, modes=("alone",))
    return made


@pytest.mark.parametrize(("whose", "code"), [("litert", "KP416"), ("reference", "KP409")])
@pytest.mark.parametrize(
    ("text", "difference", "wrong"),
    [
        (DERIVED, 0.5 * K * NOISE, False),
        (DERIVED, 2 * K * NOISE, True),
        (DEFAULT, 2 * K * NOISE, False),
        (DEFAULT, 1e-2, True),
        (DERIVED, math.inf, True),
        (DERIVED, math.nan, True),
    ],
)
def test_repeats_may_differ_by_rounding(tmp_path: Path, whose: str, code: str, text: str, difference: float, *, wrong: bool) -> None:
    record = bench(tmp_path, text, whose=whose, repeats_equal=False, repeat_difference=difference, repeat_differences={"y": difference}).judge()
    assert (code in codes(record)) == wrong


def test_a_coarse_target_is_held_to_itself_as_before(tmp_path: Path) -> None:
    """Its own spacing would excuse an eighth of the scale."""
    for difference, wrong in ((2 * K * NOISE, False), (1e-2, True)):
        record = bench(tmp_path / str(wrong), COARSE, repeats_equal=False, repeat_difference=difference).judge()
        assert ("KP416" in codes(record)) == wrong


def test_a_tolerance_in_numbers_holds_for_repeats_too(tmp_path: Path) -> None:
    assert "KP416" not in codes(bench(tmp_path, WRITTEN, repeats_equal=False, repeat_difference=0.2).judge())


@pytest.mark.parametrize(("factor", "wrong"), [(0.5, False), (2.0, True)])
def test_timed_answers_may_differ_by_rounding(tmp_path: Path, factor: float, *, wrong: bool) -> None:
    share = factor * K * NOISE / float(np.abs(SCORES).max(axis=1).min())
    late = Latency((1e-3,) * 200, 20, stable=True, worst_difference=share, worst_relative=share, decision_changes=0, compared=200)
    record = bench(tmp_path, AUTO, timings={"litert": result("run_litert", TimingResult(late, None))}).judge()
    assert ("KP412" in codes(record)) == wrong


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=8))
def test_a_timed_answer_is_never_held_tighter_than_the_answer_it_repeats(rows: list[tuple[float, float]]) -> None:
    errors, scales = np.array(rows).T
    floor = Floor(errors, scales, widths(errors, scales, "float32"))
    tolerance = derived_tolerance("y", "float32", "float32", {"y": floor})
    assert tolerance is not None
    allowed = relative_allowance({"y": tolerance}, {"y": floor})
    assert (allowed * scales >= K * floor.widths * (1 - 1e-12)).all()


@given(st.dictionaries(st.sampled_from("abc"), st.floats(0, 10), min_size=1), st.floats(0, 10))
def test_every_output_is_held_to_its_own(differences: dict[str, float], allowed: float) -> None:
    said = run_result(repeats_equal=False, repeat_difference=max(differences.values()), repeat_differences=differences)
    limits = dict.fromkeys("abc", allowed)
    assert repeats_itself(said, limits) == all(d <= allowed for d in differences.values())
    assert repeats_itself(said, limits | {"a": math.inf}) == all(d <= allowed for name, d in differences.items() if name != "a")


def test_an_output_that_nobody_knows_is_held_to_the_strictest() -> None:
    said = run_result(repeats_equal=False, repeat_difference=1.0, repeat_differences={"stranger": 1.0})
    assert not repeats_itself(said, {"y": 2.0, "z": 0.5})
    assert repeats_itself(said, {"y": 2.0, "z": 1.5})
    assert not repeats_itself(said, {})


def test_an_output_of_zeros_has_no_share() -> None:
    floor = Floor(np.zeros(2), np.zeros(2), np.zeros(2))
    assert relative_allowance({"y": Tolerance(0.0, K, "auto", unit="floor")}, {"y": floor}) == 0.0

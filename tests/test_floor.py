"""Noise floors and the tolerances that are derived from them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.evidence import Ending
from kpipe.judging.floor import SUSPECT, Floor, K, widths
from kpipe_stages.protocol import Observation, Status

from .sample_run import CONTRACT, SCORES, Bench, answers, codes, failure, found, result, row, stage

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe.record import RunRecord

AUTO = CONTRACT.replace("decision", "agreement = { tolerance = 'auto' }\ndecision") + "[targets.litert]\n"
positive = st.floats(1e-6, 1e6)


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=20), positive)
def test_a_floor_grows_with_the_unit_of_its_output(rows: list[tuple[float, float]], factor: float) -> None:
    errors, scales = np.array(rows).T
    np.testing.assert_allclose(widths(factor * errors, factor * scales, "float32"), factor * widths(errors, scales, "float32"), rtol=1e-12)


@given(st.lists(st.tuples(st.floats(0, 1), positive), min_size=1, max_size=20))
def test_a_floor_is_never_below_an_input_s_own_error_or_one_spacing(rows: list[tuple[float, float]]) -> None:
    errors, scales = np.array(rows).T
    found = widths(errors, scales, "float32")
    assert (found >= np.minimum(errors, SUSPECT["float32"] * scales)).all()
    assert (found >= 2.0**-23 * scales).all()


def test_one_noisy_input_decides_for_itself_alone() -> None:
    errors, scales = np.full(9, 1e-7), np.ones(9)
    calm = widths(errors, scales, "float32")
    errors[4] = 1e-4
    noisy = widths(errors, scales, "float32")
    assert noisy[4] == 1e-4
    np.testing.assert_array_equal(np.delete(noisy, 4), np.delete(calm, 4))


def test_an_error_that_is_no_rounding_widens_nothing_beyond_what_rounding_could() -> None:
    found = widths(np.array([1e-7, 1e-7, 0.3]), np.ones(3), "float32")
    assert found[2] == SUSPECT["float32"]


def test_a_lucky_zero_is_no_floor() -> None:
    found = widths(np.array([0.0, 2e-7, 3e-7]), np.array([1.0, 1.0, 1.0]), "float32")
    assert found[0] == 2e-7


def test_an_output_that_crosses_zero_keeps_the_error_of_what_cancelled() -> None:
    found = widths(np.array([1e-6, 1e-6, 1e-9]), np.array([1.0, 1.0, 1e-9]), "float32")
    assert found[2] == 1e-6


@pytest.mark.parametrize(("precision", "spacing"), [("float32", 2.0**-23), ("float64", 2.0**-23), ("float16", 2.0**-10), ("bfloat16", 2.0**-7)])
def test_a_coarser_target_may_drift_by_its_own_spacing(precision: str, spacing: float) -> None:
    errors, scales = np.array([1e-9, 0.5]), np.array([1.0, 2.0])
    floor = Floor(errors, scales, widths(errors, scales, "float32"))
    np.testing.assert_array_equal(floor.allowed(precision), np.maximum(floor.widths, spacing * scales))


def test_a_coarse_target_is_held_to_its_numbers_where_no_rule_decides(tmp_path: Path) -> None:
    """bfloat16 excuses an eighth of the scale, not anything."""
    for drift, status in ((0.05, "pass"), (0.2, "fail")):
        target = answers((SCORES + np.float32(drift)).astype(np.float32), effective_precision="bfloat16")
        text = "agreement = { tolerance = 'auto' }\n[targets.litert]\nprecision = 'default'\n"
        made = Bench(tmp_path / status, text, targets={"litert": target})
        made.truth = answers(SCORES.astype(np.float64) + 1e-7, modes=("alone",))
        record = made.judge()
        assert str(row(record).status) == status
        assert "bfloat16" in row(record).drift[0].tolerance.source


# ---------------------------------------------------------------- judged


def bench(folder: Path, noise: float, drift: float, text: str = AUTO) -> Bench:
    """A reference ``noise`` from the truth on every input, a target ``drift`` from the reference."""
    target = answers((SCORES + np.float32(drift)).astype(np.float32))
    made = Bench(folder, text, targets={"litert": target})
    made.truth = answers(SCORES.astype(np.float64) + noise, modes=("alone",))
    return made


def judged(folder: Path, noise: float, drift: float) -> RunRecord:
    return bench(folder, noise, drift).judge()


@pytest.mark.parametrize(("share", "status"), [(0.5, "pass"), (2.0, "fail")])
def test_a_target_may_drift_by_a_multiple_of_the_floor(tmp_path: Path, share: float, status: str) -> None:
    noise = 2e-6
    record = judged(tmp_path, noise, share * K * noise)
    assert str(row(record).status) == status
    (drift, *_) = row(record).drift
    assert (drift.tolerance.unit, drift.tolerance.atol, drift.tolerance.rtol) == ("floor", K, 0.0)
    assert drift.smallest_factor == pytest.approx(share, rel=0.1)
    assert record.truth is not None
    (floor,) = record.truth.floors
    assert floor.used
    assert floor.largest == pytest.approx(noise, rel=0.1)
    assert ("KP401" in codes(record, "litert")) == (status == "fail")


def test_a_floor_too_high_to_be_rounding_excuses_nobody(tmp_path: Path) -> None:
    record = judged(tmp_path, 0.01, 0.003)
    assert str(row(record).status) == "fail"
    assert "KP619" in codes(record, "reference")
    assert row(record).drift[0].tolerance.source == "default for float32"
    assert record.truth is not None
    assert [floor.used for floor in record.truth.floors] == [False]


@pytest.mark.parametrize(
    "lost",
    [
        None,
        stage("truth", None, Ending.CRASHED),
        stage("truth", None, Ending.TIMED_OUT),
        stage("truth", failure("load"), Ending.FAILED),
        stage("truth", result("truth", None, status=Status.FAILED, observations=(Observation("KP617", "it can't", ""),)), Ending.FAILED),
    ],
)
def test_without_a_float64_run_the_default_stands_and_is_said_to(tmp_path: Path, lost: Any) -> None:
    made = replace(bench(tmp_path, 1e-7, 0.0), truth=None, replaced={"truth": lost} if lost else {})
    record = made.judge()
    assert "KP617" in codes(record, "reference")
    assert "defaults" in found(record, "KP617").cause
    assert row(record).drift[0].tolerance.source == "default for float32"
    assert record.truth is None


def test_float64_answers_that_were_altered_are_not_used(tmp_path: Path) -> None:
    made = bench(tmp_path, 1e-7, 0.0)
    evidence = made.evidence()
    values = tmp_path / "stages" / "truth" / "outputs" / "alone" / "0.values.npy"
    np.save(values, np.load(values) + 1)
    from kpipe.judging.judge import judge

    record = judge(tmp_path, made.loaded(), evidence)
    assert "altered" in found(record, "KP617").cause
    assert row(record).drift[0].tolerance.unit == "scale"


def test_what_stayed_in_float32_is_named(tmp_path: Path) -> None:
    made = bench(tmp_path, 1e-7, 0.0)
    assert made.truth is not None
    made.truth.result = replace(
        made.truth.result, facts={"kept": {"pool": "no kernel"}, "computes_in_less": {"pool": ["float32"], "odd": ["float32"]}}
    )
    record = made.judge()
    cause = found(record, "KP618").cause
    assert "'pool' kept its own dtype (no kernel)" in cause
    assert "'odd' computes in float32" in cause
    assert record.truth is not None
    assert record.truth.computes_in_less == {"pool": ("float32",), "odd": ("float32",)}


def test_numbers_in_the_contract_come_before_derived_ones(tmp_path: Path) -> None:
    text = AUTO + "tolerance = { atol = 0.5, rtol = 0.0 }\n"
    record = bench(tmp_path, 1e-7, 0.01, text).judge()
    assert row(record).drift[0].tolerance.source == "contract: tolerance"
    assert row(record).drift[0].tolerance.unit == "scale"


@pytest.mark.parametrize(("policy", "status", "code"), [("report", "pass", "KP405"), ("count", "fail", "KP404")])
def test_a_flip_below_the_noise_floor_is_a_tie_and_the_contract_says_what_ties_are(tmp_path: Path, policy: str, status: str, code: str) -> None:
    """The margin is 4e-6: far above float32's own resolution, below a floor of 1e-5."""
    ours, theirs = SCORES.copy(), SCORES.copy()
    ours[0] = [0.400004, 0.4, 0.199996]
    theirs[0] = [0.4, 0.400004, 0.199996]
    made = Bench(tmp_path, AUTO.replace("'auto'", f"'auto', ties = '{policy}'"), reference=answers(ours), targets={"litert": answers(theirs)})
    made.truth = answers(ours.astype(np.float64) + 1e-5, modes=("alone",))
    record = made.judge()
    assert str(row(record).status) == status
    assert code in codes(record, "litert")
    assert {flip.tie for flip in record.flips} == {policy == "report"}
    assert ("KP414" in codes(record, "reference")) is True


def test_without_a_floor_the_same_flip_is_real(tmp_path: Path) -> None:
    ours, theirs = SCORES.copy(), SCORES.copy()
    ours[0] = [0.400004, 0.4, 0.199996]
    theirs[0] = [0.4, 0.400004, 0.199996]
    record = Bench(tmp_path, reference=answers(ours), targets={"litert": answers(theirs)}).judge()
    assert str(row(record).status) == "fail"


@pytest.mark.parametrize(("noise", "used"), [(0.01, True), (0.03, False)])
def test_a_coarse_model_does_not_excuse_a_reference_that_is_wrong(tmp_path: Path, noise: float, used: bool) -> None:
    """float16 rounds to a thousandth: three per cent of the output is no rounding."""
    floors, _ = usable(tmp_path, noise, "float16")
    assert (floors != {}) is used


def usable(folder: Path, noise: float, precision: str) -> tuple[Any, Any]:
    from kpipe.judging.answers import open_answers
    from kpipe.judging.truth import judge_truth

    made = bench(folder, 0.0, 0.0)
    made.truth = answers(SCORES.astype(np.float64) * (1 + noise), modes=("alone",))
    evidence = made.evidence()
    stages = {one.name: one for one in evidence.stages}
    reference = open_answers(stages["reference"], folder / "stages" / "reference")
    assert reference is not None
    floors, _, findings = judge_truth(folder, evidence, stages["truth"], reference, precision)
    return floors, findings

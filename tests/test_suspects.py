"""The pure parts of the search: formulas against their sources, steps that are written out, comparisons, lines, what is kept between variations."""

from __future__ import annotations

import tomllib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kpipe_stages.preprocess import Preprocessor, check_steps
from kpipe_stages.preprocessing.resample import resize
from kpipe_stages.protocol import InputSpec
from kpipe_stages.suspects.gap import gap
from kpipe_stages.suspects.resampling import KERNELS, apply_taps, exact_area, half_pixel, opencv_bilinear_8bit
from kpipe_stages.suspects.search import Question, line_through, search, suspects_for
from kpipe_stages.suspects.variation import Kitchen, Special, Variation

Array = np.ndarray[Any, np.dtype[Any]]

SIZES = st.integers(1, 40)
STEPS: tuple[dict[str, Any], ...] = (
    {"alpha": "composite", "background": [255, 255, 255]},
    {"channels": "rgb"},
    {"shorter": 20, "method": "bilinear", "antialias": True},
    {"crop": "center", "size": [16, 16]},
    {"resize": [8, 8], "method": "bilinear", "antialias": True},
    {"scale": 1 / 255},
    {"normalize": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}},
)
BASE = Variation(STEPS, "float32")


def photo(seed: int = 0, height: int = 24, width: int = 31, channels: int = 3) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


# ---------------------------------------------------------------- resampling


@given(SIZES, SIZES, st.sampled_from(KERNELS))
def test_weights_of_every_filter_add_up_to_one_and_stay_inside(size: int, wanted: int, kernel: Any) -> None:
    indices, weights = kernel.taps(size, wanted)
    assert indices.shape == weights.shape
    assert indices.shape[1] == wanted
    assert indices.min() >= 0
    assert indices.max() < size
    assert np.allclose(weights.sum(axis=0), 1)


@given(SIZES, SIZES, SIZES, SIZES, st.integers(0, 255))
def test_a_flat_image_stays_flat_in_all_arithmetics(height: int, width: int, tall: int, wide: int, level: int) -> None:
    image = np.full((height, width, 3), level, np.uint8)
    for kernel in KERNELS:
        assert np.allclose(apply_taps(image, kernel.taps(height, tall), kernel.taps(width, wide)), level)
    assert np.array_equal(opencv_bilinear_8bit(image, tall, wide), np.full((tall, wide, 3), level, np.uint8))


@given(st.integers(0, 99), SIZES, SIZES)
def test_half_pixel_bilinear_is_the_contracts_own_without_antialias(seed: int, height: int, width: int) -> None:
    image = photo(seed)
    ours = apply_taps(image, half_pixel(24, height), half_pixel(31, width))
    assert np.allclose(ours, resize(image, height, width, "bilinear", antialias=False), atol=1e-4)
    assert np.abs(opencv_bilinear_8bit(image, height, width) - ours).max() <= 1.01


OPENCV = [[15, 79, 144, 209], [20, 85, 149, 214], [25, 89, 154, 219]]


def test_opencvs_eight_bits_are_opencvs() -> None:
    """Numbers of OpenCV 5.0's ``resize`` with ``INTER_LINEAR``, of a 5 x 7 image to 3 x 4."""
    image = (np.arange(35, dtype=np.int64) * 37 % 256).astype(np.uint8).reshape(5, 7, 1)
    assert opencv_bilinear_8bit(image, 3, 4)[:, :, 0].tolist() == OPENCV


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_exact_areas_of_whole_factors_are_block_means(factor: int) -> None:
    image = photo(1, 8 * factor, 6 * factor)
    blocks = image.reshape(8, factor, 6, factor, 3).mean((1, 3))
    assert np.allclose(apply_taps(image, exact_area(8 * factor, 8), exact_area(6 * factor, 6)), blocks)


# ---------------------------------------------------------------- variations


def kitchen(count: int = 4, *, kept: bool = True) -> Kitchen:
    made = Kitchen(lambda case, _, __: photo(case))
    if not kept:
        made._keep = lambda *_: None  # type: ignore[method-assign]
    assert count
    return made


def tensors_of(variation: Variation, *cases: int) -> list[Array] | None:
    """None where the variation doesn't apply to these images: such as a crop of what is smaller."""
    cook = kitchen()
    try:
        return [cook.tensor(variation, case) for case in cases]
    except Exception:  # noqa: BLE001 - of any type, as `Question` takes them
        return None


def test_the_base_is_the_contracts_own_preprocessing() -> None:
    preprocess = Preprocessor(InputSpec("x", "image", STEPS, "float32"))
    assert np.array_equal(kitchen().tensor(BASE, 2), preprocess.apply(photo(2)))


def test_what_is_kept_between_variations_changes_nothing() -> None:
    warm, cold = kitchen(), kitchen(kept=False)
    compared = 0
    for suspect in suspects_for(BASE):
        variation = suspect.edit(BASE)
        if variation is None:
            continue
        for case in (0, 1, 0):
            try:
                expected = cold.tensor(variation, case)
            except Exception:  # noqa: BLE001 - a variation that doesn't apply: then neither does the kept one
                with pytest.raises(Exception):  # noqa: B017, PT011
                    warm.tensor(variation, case)
                continue
            assert np.array_equal(warm.tensor(variation, case), expected, equal_nan=True), suspect.does
            compared += 1
    assert compared > 300


def test_steps_that_are_written_out_are_steps_and_give_that_very_tensor() -> None:
    written = 0
    for suspect in suspects_for(BASE):
        variation = suspect.edit(BASE)
        if variation is None or not (text := variation.written()):
            continue
        steps = tuple(tomllib.loads(text)["steps"])
        assert check_steps(steps) == []
        if (made := tensors_of(variation, 3)) is None:
            continue
        assert np.array_equal(Preprocessor(InputSpec("x", "image", steps, "float32")).apply(photo(3)), made[0]), suspect.does
        written += 1
    assert written >= 20


def test_what_a_contract_can_not_say_is_not_written_out() -> None:
    special = Special("special", lambda array: array)
    for variation in (
        Variation((*STEPS, special), None),
        Variation(STEPS, None, upright=False),
        Variation(STEPS, None, sixteen=special),
        Variation(STEPS, None, after=(special,)),
        Variation(({"scale": 0.5}, {"channels": "gray"}), None),
    ):
        assert variation.written() == ""


def test_suspects_have_different_names_and_do_something_each() -> None:
    names = [(suspect.group, suspect.does, suspect.instead) for suspect in suspects_for(BASE)]
    assert len(names) == len(set(names))
    assert len(names) > 100
    assert all(does and instead for _, does, instead in names)


# ---------------------------------------------------------------- comparing


FLOATS = hnp.arrays(np.float64, 6, elements=st.floats(-1e6, 1e6, width=32))


@given(FLOATS)
def test_a_tensor_equals_itself_whatever_its_dtype(values: Array) -> None:
    for dtype in (np.float64, np.float32):
        found = gap(values.astype(dtype), values, rtol=1e-4, atol=1e-5)
        assert found.equal
    assert gap(values, values, rtol=0, atol=0).residual == 0


@given(FLOATS, st.integers(0, 5), st.floats(1e-3, 1e3))
def test_a_change_beyond_the_tolerance_is_never_equal(values: Array, place: int, by: float) -> None:
    other = values.copy()
    other[place] += by * (np.abs(values).max() + 1)
    found = gap(other, values, rtol=1e-4, atol=1e-5)
    assert not found.equal
    assert found.residual == pytest.approx(abs(other[place] - values[place]))
    assert 0 < found.rms <= found.residual


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ([np.nan, 1.0], [np.nan, 1.0], True),
        ([np.nan, 1.0], [0.0, 1.0], False),
        ([np.inf, 1.0], [np.inf, 1.0], True),
        ([np.inf, 1.0], [-np.inf, 1.0], False),
        ([1.0], [1.0, 1.0], False),
        ([[1.0]], [1.0], False),
        (["a"], ["a"], True),
        (["a"], ["b"], False),
        (["1"], [1.0], False),
        ([], [], True),
    ],
)
def test_special_values_shapes_and_texts(left: Any, right: Any, equal: bool) -> None:
    assert gap(np.array(left), np.array(right), rtol=1e-4, atol=1e-5).equal is equal


@given(st.floats(-50, 50).filter(lambda n: abs(n) > 0.01), st.floats(-50, 50), st.integers(0, 50))
def test_a_line_is_found_again(factor: float, shift: float, seed: int) -> None:
    values = np.random.default_rng(seed).random((8, 8, 3))
    found = line_through(values, values * factor + shift)
    assert found is not None
    assert found[0] == pytest.approx(factor, rel=1e-5)
    assert found[1] == pytest.approx(shift, abs=1e-4)


def test_no_line_through_what_is_flat_or_not_finite() -> None:
    assert line_through(np.ones(4), np.arange(4)) is None
    assert line_through(np.array([0.0, np.nan]), np.arange(2)) is None


# ---------------------------------------------------------------- the search itself


def question(change: Any, *, equal: tuple[int, ...] = (), differing: tuple[int, ...] = (0, 1, 2), **others: Any) -> Question:
    cook = kitchen()
    facts: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5, "in_time": lambda: True} | others
    return Question(BASE, cook.tensor, lambda case: change(cook.tensor(BASE, case), case), differing, equal, **facts)


def test_every_suspect_is_found_by_its_own_tensors() -> None:
    """Whatever is planted is explained; by its own name, or by one that gives the same tensors."""
    cook, planted = kitchen(), 0
    for suspect in suspects_for(BASE):
        variation = suspect.edit(BASE)
        if variation is None:
            continue
        if (made := tensors_of(variation, 0, 1, 2)) is None:
            continue
        tensors = dict(enumerate(made))
        if any(gap(cook.tensor(BASE, case), tensors[case], rtol=1e-4, atol=1e-5).equal for case in tensors):
            continue
        found = search(Question(BASE, cook.tensor, tensors.__getitem__, (0, 1, 2), (), 1e-4, 1e-5, lambda: True))
        assert found.matched, suspect.does
        assert found.best is not None
        names = {found.best.does, *(other.does for other in found.also)}
        assert suspect.does in names, (suspect.does, names)
        assert found.best.residual < 1e-3
        planted += 1
    assert planted > 90


def test_a_match_must_leave_equal_inputs_alone() -> None:
    cook = kitchen()
    mirrored = question(lambda tensor, case: tensor[:, ::-1] if case < 3 else tensor)
    assert search(mirrored).matched
    spoiled = question(lambda tensor, case: tensor[:, ::-1] if case < 3 else tensor, equal=(3,), in_time=counting(400))
    assert not search(spoiled).matched
    assert cook.tensor(BASE, 0).shape == (8, 8, 3)


def counting(most: int) -> Any:
    """In time so many times."""
    left = iter(range(most))
    return lambda: next(left, None) is not None


@pytest.mark.parametrize("most", [0, 5, 200])
def test_a_search_that_runs_out_of_time_says_so_and_names_nothing(most: int) -> None:
    found = search(question(lambda tensor, _: np.tanh(tensor), in_time=counting(most)))
    assert not found.complete
    assert not found.matched
    assert found.tried <= most

"""Steps that equal Pillow's own arithmetic, wrong ones named, casts that say what they changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from kpipe_stages.preprocess import PreprocessError, Preprocessor, check_steps, tensor_from
from kpipe_stages.preprocessing.cast import CastNote, cast
from kpipe_stages.preprocessing.steps import luma
from kpipe_stages.protocol import InputSpec

if TYPE_CHECKING:
    from pathlib import Path


def image_spec(*steps: dict[str, Any], dtype: str | None = None) -> InputSpec:
    return InputSpec("image", "image", steps, dtype)


def noise(*shape: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


# ---------------------------------------------------------------- steps


@pytest.mark.parametrize(
    ("method", "pillow"),
    [
        ("nearest", Image.Resampling.NEAREST),
        ("bilinear", Image.Resampling.BILINEAR),
        ("bicubic", Image.Resampling.BICUBIC),
        ("area", Image.Resampling.BOX),
        ("lanczos", Image.Resampling.LANCZOS),
    ],
)
@pytest.mark.parametrize("shape", [(40, 30, 3), (5, 9, 3), (17, 16, 1), (12, 20, 4)])
def test_resize_is_pillows_own(method: str, pillow: Image.Resampling, shape: tuple[int, ...]) -> None:
    array = noise(*shape)
    image = Image.fromarray(array[:, :, 0] if shape[2] == 1 else array)
    mine = Preprocessor(image_spec({"resize": [16, 12], "method": method}, dtype="uint8")).apply(array)
    theirs = np.asarray(image.resize((12, 16), pillow))
    assert np.array_equal(mine.reshape(theirs.shape), theirs)


def test_float_images_are_resized_without_rounding() -> None:
    array = noise(40, 30, 3).astype(np.float32) / 7
    mine = Preprocessor(image_spec({"resize": [16, 12]})).apply(array)
    theirs = [np.asarray(Image.fromarray(array[:, :, i]).resize((12, 16), Image.Resampling.BILINEAR)) for i in range(3)]
    assert np.array_equal(mine, np.dstack(theirs))


def test_plain_bilinear_interpolates_two_points_at_half_pixel_centres() -> None:
    step = {"resize": [1, 2], "antialias": False}
    ramp = np.arange(8, dtype=np.float32).reshape(1, 8, 1)
    assert Preprocessor(image_spec(step)).apply(ramp).ravel().tolist() == [1.5, 5.5]
    wide = Preprocessor(image_spec({"resize": [1, 4], "antialias": False})).apply(np.array([[[0.0], [4.0]]], np.float32))
    assert wide.ravel().tolist() == [0.0, 1.0, 3.0, 4.0]


@settings(deadline=None)
@given(hnp.arrays(np.uint8, (4, 5, 3)))
def test_gray_is_pillows_luma(array: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    assert np.array_equal(luma(array)[:, :, 0], np.asarray(Image.fromarray(array).convert("L")))


def test_channels() -> None:
    rgb = noise(2, 3, 3)
    apply = lambda value, array: Preprocessor(image_spec({"channels": value}, dtype="uint8")).apply(array)  # noqa: E731
    assert np.array_equal(apply("bgr", rgb), rgb[:, :, ::-1])
    assert np.array_equal(apply("rgba", rgb)[:, :, 3], np.full((2, 3), 255))
    assert apply("rgb", rgb[:, :, :1]).shape == (2, 3, 3)
    assert apply("gray", rgb[:, :, 0]).shape == (2, 3, 1)


def test_transparency_needs_a_word_from_the_contract() -> None:
    rgba = np.dstack([noise(2, 2, 3), np.array([[255, 255], [255, 128]], np.uint8)])
    with pytest.raises(PreprocessError, match="no step says what lies behind"):
        Preprocessor(image_spec({"channels": "rgb"})).apply(rgba)
    opaque = np.dstack([rgba[:, :, :3], np.full((2, 2), 255, np.uint8)])
    assert np.array_equal(Preprocessor(image_spec({"channels": "rgb"})).apply(opaque), opaque[:, :, :3])


@settings(deadline=None)
@given(hnp.arrays(np.uint8, (3, 3, 4)), st.integers(0, 255))
def test_compositing_rounds_to_the_nearest_level(rgba: np.ndarray[Any, np.dtype[np.uint8]], background: int) -> None:
    mine = Preprocessor(image_spec({"alpha": "composite", "background": background}, dtype="uint8")).apply(rgba)
    colour, alpha = rgba[:, :, :3].astype(int), rgba[:, :, 3:].astype(int)
    assert np.array_equal(mine, (2 * (colour * alpha + background * (255 - alpha)) + 255) // 510)


def test_a_coloured_background_colours_a_gray_image() -> None:
    clear = np.zeros((1, 1, 2), np.uint8)
    mine = Preprocessor(image_spec({"alpha": "composite", "background": [10, 20, 30]}, dtype="uint8")).apply(clear)
    assert mine.ravel().tolist() == [10, 20, 30]
    white = Preprocessor(image_spec({"alpha": "composite"}, dtype="uint8")).apply(clear)
    assert white.ravel().tolist() == [255]


def test_arithmetic_layout_crop_and_pad() -> None:
    array = noise(4, 6, 3)
    spec = image_spec(
        {"crop": "center", "size": [2, 4]},
        {"pad": [4, 4], "value": 7},
        {"invert": True},
        {"scale": 0.5},
        {"offset": -1},
        {"layout": "chw"},
        {"normalize": {"mean": [1, 2, 3], "std": [2, 4, 8]}},
    )
    mine = Preprocessor(spec).apply(array)
    padded = np.full((4, 4, 3), 7, np.uint8)
    padded[1:3] = array[1:3, 1:5]
    expected = ((255 - padded.astype(np.float32)) * np.float32(0.5) - 1 - np.array([1, 2, 3], np.float32)) / np.array([2, 4, 8], np.float32)
    assert mine.dtype == np.float32
    assert mine.flags.c_contiguous
    assert np.array_equal(mine, expected.transpose(2, 0, 1))


def test_letterbox_and_shorter_side() -> None:
    box = Preprocessor(image_spec({"fit": [8, 8]}, {"pad": [8, 8]})).apply(noise(40, 10, 3))
    assert box.shape == (8, 8, 3)
    assert not box[:, :3].any()
    assert not box[:, 5:].any()
    assert Preprocessor(image_spec({"shorter": 8})).apply(noise(40, 10, 3)).shape == (32, 8, 3)


def test_flatten_and_npy_without_steps(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6, dtype=">i4").reshape(2, 3))
    plain = tensor_from(InputSpec("x", "npy"), tmp_path / "a.npy")
    assert plain.dtype == np.int32
    assert plain.dtype.isnative
    assert plain.tolist() == [[0, 1, 2], [3, 4, 5]]
    flat = tensor_from(InputSpec("x", "npy", ({"flatten": True}, {"scale": 0.5}), "float32"), tmp_path / "a.npy")
    assert flat.dtype == np.float32
    assert flat.tolist() == [0, 0.5, 1, 1.5, 2, 2.5]


def test_an_image_without_dtype_is_float32_and_the_order_of_steps_counts() -> None:
    array = noise(9, 9, 3)
    one = Preprocessor(image_spec({"channels": "gray"}, {"resize": [4, 4]})).apply(array)
    other = Preprocessor(image_spec({"resize": [4, 4]}, {"channels": "gray"})).apply(array)
    assert one.dtype == np.float32
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"resiz": [4, 4]}, "Did you mean 'resize'"),
        ({"resize": [4, 4], "metod": "area"}, "Did you mean 'method'"),
        ({"resize": [4]}, "height, width"),
        ({"resize": [0, 4]}, "height, width"),
        ({"resize": [True, 4]}, "height, width"),
        ({"resize": [30_000, 30_000]}, "pixels"),
        ({"resize": [4, 4], "method": "cubic"}, "one of nearest"),
        ({"resize": [4, 4], "antialias": 1}, "true or false"),
        ({"resize": [4, 4], "method": "area", "antialias": False}, "Leave antialias on"),
        ({"resize": [4, 4], "scale": 2}, "Write a step for each"),
        ({"channels": "grey"}, "one of gray"),
        ({"scale": float("nan")}, "finite"),
        ({"scale": "2"}, "finite"),
        ({"normalize": {"mean": [0], "std": [0]}}, "above zero"),
        ({"normalize": {"mean": [0, 1], "std": [1]}}, "equally many"),
        ({"normalize": [0, 1]}, "mean = "),
        ({"crop": "center"}, "lacks 'size'"),
        ({"crop": "top", "size": [1, 1]}, '"center" with size'),
        ({"alpha": "composite", "background": [1, 2]}, "level from 0 to 255"),
        ({"invert": False}, "leave the step out"),
        ({"cast": "float"}, "one of bool"),
        ({}, "no step"),
        ("gray", "no step"),
    ],
)
def test_a_wrong_step_is_named_with_what_would_be_right(step: Any, message: str) -> None:
    problems = check_steps([{"channels": "rgb"}, step])
    assert len(problems) == 1
    assert problems[0].startswith("steps[1]: ")
    assert message in problems[0]
    with pytest.raises(PreprocessError, match=r"steps\[1\]"):
        Preprocessor(InputSpec("image", "image", ({"channels": "rgb"}, step)))


@pytest.mark.parametrize("late", [{"alpha": "drop"}, {"channels": "gray"}, {"invert": True}])
def test_steps_on_levels_come_before_arithmetic(late: dict[str, Any]) -> None:
    assert "comes after 'scale'" in check_steps([{"scale": 0.5}, late])[0]


def test_steps_on_images_come_before_layout() -> None:
    assert "comes after 'layout'" in check_steps([{"layout": "chw"}, {"resize": [2, 2]}])[0]
    assert check_steps([{"layout": "hwc"}, {"resize": [2, 2]}]) == []


def test_an_unknown_decoder_is_refused() -> None:
    with pytest.raises(PreprocessError, match="one of image, audio, text, table, npy, npz, array"):
        Preprocessor(InputSpec("x", "jpg"))


# ---------------------------------------------------------------- casts


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_a_cast_is_noted_exactly_when_a_value_changed(data: st.DataObject) -> None:
    numbers = st.sampled_from(["bool", "int8", "int16", "int32", "int64", "uint8", "uint64", "float16", "float32", "float64"])
    source, target = data.draw(numbers), data.draw(numbers)
    array = data.draw(hnp.arrays(np.dtype(source), 4))
    notes: list[CastNote] = []
    result = cast(array, target, notes)
    changed = sum(not same(before, after) for before, after in zip(array.tolist(), result.tolist(), strict=True))
    if source.startswith("float") and target.startswith("float"):
        assert sum(n.changed for n in notes) <= changed  # the nearest float is no change; that one is tested below
    else:
        assert sum(n.changed for n in notes) == changed


def same(before: Any, after: Any) -> bool:
    """Equal as numbers, in Python's exact arithmetic; a float never equals NaN's integer."""
    return before == after or bool(np.isnan(before) and np.isnan(after))


@pytest.mark.parametrize(
    ("value", "source", "target"),
    [
        (1.5, "float32", "uint8"),
        (-1.0, "float32", "uint8"),
        (256.0, "float32", "uint8"),
        (float("nan"), "float32", "int32"),
        (float("inf"), "float64", "int64"),
        (2**31, "int64", "int32"),
        (-1, "int64", "uint64"),
        (2**24 + 1, "int32", "float32"),
        (2**53 + 1, "int64", "float64"),
        (2**63 - 1, "int64", "float64"),
        (1e39, "float64", "float32"),
        (1e-46, "float64", "float32"),
        (70000.0, "float32", "float16"),
        (-(2**31), "int32", "float16"),
        (2, "int32", "bool"),
    ],
)
def test_known_losses_are_noted(value: float, source: str, target: str) -> None:
    notes: list[CastNote] = []
    cast(np.array([0, value], dtype=source), target, notes)
    assert [note.changed for note in notes] == [1]
    assert source in notes[0].sentence()
    assert target in notes[0].sentence()


@pytest.mark.parametrize(
    ("value", "source", "target"),
    [(0.1, "float64", "float32"), (float("inf"), "float64", "float32"), (3.0, "float32", "int64"), (1, "uint8", "bool")],
)
def test_what_is_no_loss_is_not_noted(value: float, source: str, target: str) -> None:
    notes: list[CastNote] = []
    cast(np.array([value], dtype=source), target, notes)
    assert notes == []


def test_numbers_and_strings_are_not_cast_into_each_other() -> None:
    with pytest.raises(PreprocessError, match="numbers for numbers"):
        cast(np.array(["1"]), "float32")
    with pytest.raises(PreprocessError, match="numbers for numbers"):
        cast(np.array([1.0]), "string")
    assert cast(np.array(["a"]), "string").tolist() == ["a"]


def test_a_cast_among_the_steps_is_noted_too() -> None:
    notes: list[CastNote] = []
    Preprocessor(InputSpec("x", "npy", ({"scale": 0.5}, {"cast": "uint8"}))).apply(np.array([1, 2], np.uint8), notes)
    assert notes[0].before == 0.5
    assert notes[0].after == 0

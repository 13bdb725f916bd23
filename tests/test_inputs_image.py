"""Images of every mode, orientation and policy: each pixel is what a formula, Pillow or the standard says, or the file is refused by name."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from kpipe_stages.preprocess import PreprocessError, Preprocessor, check_steps
from kpipe_stages.preprocessing.decoders import check_read
from kpipe_stages.preprocessing.image import _to_array, decode_image, scaled_to_255
from kpipe_stages.preprocessing.light import to_levels, to_light
from kpipe_stages.protocol import InputSpec

if TYPE_CHECKING:
    from pathlib import Path

Array = np.ndarray[Any, np.dtype[Any]]
PIXELS = 1_000_000


def noise(*shape: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def decoded(data: bytes, **options: Any) -> Array:
    return decode_image(data, PIXELS, options=options)


def steps(*given: dict[str, Any], read: dict[str, Any] | None = None, dtype: str | None = None) -> Preprocessor:
    return Preprocessor(InputSpec("image", "image", given, dtype, read=read or {}))


# ---------------------------------------------------------------- modes


MODES = {
    "1": ("PNG", 1),
    "L": ("PNG", 1),
    "LA": ("PNG", 2),
    "P": ("PNG", 3),
    "RGB": ("PNG", 3),
    "RGBA": ("PNG", 4),
    "CMYK": ("JPEG", 3),
    "YCbCr": ("TIFF", 3),
    "LAB": ("TIFF", 3),
    "I;16": ("PNG", 1),
    "F": ("TIFF", 1),
}


def made(mode: str) -> Image.Image:
    if mode == "F":
        return Image.fromarray(noise(6, 5).astype(np.float32) / 7)
    if mode == "I;16":
        return Image.fromarray(noise(6, 5).astype(np.uint16) * 257)
    colours = Image.fromarray(noise(6, 5, 4), "RGBA") if mode in ("LA", "RGBA") else Image.fromarray(noise(6, 5, 3), "RGB")
    if mode == "LAB":
        from PIL import ImageCms

        lab = ImageCms.profileToProfile(colours, ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"), outputMode="LAB")
        assert lab is not None
        return lab
    return colours.convert("L").convert("1") if mode == "1" else colours.convert(mode)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_that_a_file_can_have_becomes_levels_by_pillows_own_conversion(mode: str) -> None:
    kind, channels = MODES[mode]
    data = encoded(made(mode), kind)
    mine = decoded(data)
    image = Image.open(io.BytesIO(data))
    assert mine.shape == (6, 5, channels)
    if mode in ("I;16", "F"):
        assert np.array_equal(mine[:, :, 0], np.array(image) / (257.0 if mode == "I;16" else 1))
    elif mode != "LAB":
        wanted = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[channels]
        assert np.array_equal(mine, np.atleast_3d(np.array(image.convert(wanted))))


def lab_to_srgb(lab: Array) -> Array:
    """CIE 1976 L*a*b* under D50 to sRGB by the formulas of CIE 15 and IEC 61966-2-1, Bradford-adapted, float64."""
    lightness, a, b = lab[..., 0].astype(float) * 100 / 255, lab[..., 1].astype(float) - 128, lab[..., 2].astype(float) - 128
    fy = (lightness + 16) / 116
    f = np.stack([fy + a / 500, fy, fy - b / 200], axis=-1)
    xyz = np.where(f > 6 / 29, f**3, 3 * (6 / 29) ** 2 * (f - 4 / 29)) * np.array([0.9642, 1.0, 0.8249])
    to_rgb = np.array([[3.1338561, -1.6168667, -0.4906146], [-0.9787684, 1.9161415, 0.0334540], [0.0719453, -0.2289914, 1.4052427]])
    return to_levels(xyz @ to_rgb.T)


def test_lab_is_cielab_under_d50() -> None:
    planes = np.stack([np.full((8, 8), 160), 118 + np.arange(64).reshape(8, 8) % 24, 120 + np.arange(64).reshape(8, 8) // 4], axis=-1).astype(
        np.uint8
    )
    image = Image.fromarray(planes[..., 0]).convert("L")
    lab = Image.merge("LAB", [image, Image.fromarray(planes[..., 1]), Image.fromarray(planes[..., 2])])
    mine = decoded(encoded(lab, "TIFF"))
    assert np.abs(mine.astype(float) - lab_to_srgb(planes)).max() <= 2.0


@pytest.mark.parametrize(("mode", "channels"), [("HSV", 3), ("PA", 4), ("RGBX", 3), ("La", 2), ("RGBa", 4)])
def test_modes_that_only_pillow_itself_makes_are_read_too(mode: str, channels: int) -> None:
    source = Image.fromarray(noise(4, 4, 4), "RGBA")
    image = {
        "PA": lambda: source.convert("RGB").convert("P").convert("PA"),
        "La": lambda: source.convert("LA").convert("La"),
        "RGBX": lambda: source.convert("RGB").convert("RGBX"),
        "HSV": lambda: source.convert("RGB").convert("HSV"),
        "RGBa": lambda: source.convert("RGBa"),
    }[mode]()
    assert _to_array(image, scaled_to_255, "scale").shape == (4, 4, channels)


def test_whole_numbers_of_32_bits_need_a_word(tmp_path: Path) -> None:
    values = np.array([[0, 70_000], [-5, 2**31 - 1]], np.int32)
    data = encoded(Image.fromarray(values), "TIFF")
    with pytest.raises(PreprocessError, match="pixel mode I: 32-bit whole numbers without a scale"):
        decoded(data)
    assert np.array_equal(decoded(data, deep="keep")[:, :, 0], values)
    (tmp_path / "deep.tif").write_bytes(data)
    tensor = steps({"scale": 0.5}, read={"deep": "keep"}, dtype="float64").from_path(tmp_path / "deep.tif")
    assert np.array_equal(tensor[:, :, 0], values / 2)


def test_sixteen_bits_are_scaled_kept_or_refused() -> None:
    data = encoded(Image.fromarray(np.array([[0, 257, 65535]], np.uint16)))
    assert decoded(data).ravel().tolist() == [0, 1, 255]
    assert decoded(data, deep="keep").ravel().tolist() == [0, 257, 65535]
    with pytest.raises(PreprocessError, match="16 bits a channel"):
        decoded(data, deep="refuse")


def test_levels_that_are_kept_can_not_be_inverted_or_composited() -> None:
    for step in ({"invert": True}, {"alpha": "drop"}, {"resize": [2, 2], "light": "linear"}):
        (problem,) = check_steps([step], "image", {"deep": "keep"})
        assert "expected levels from 0 to 255" in problem


# ---------------------------------------------------------------- orientation and frames


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_is_applied_or_ignored(orientation: int) -> None:
    image = Image.fromarray(noise(4, 6, 3))
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(image, "PNG", exif=exif)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert np.array_equal(decoded(data), np.array(upright))
    assert np.array_equal(decoded(data, orientation="ignore"), np.array(image))
    assert (decoded(data).shape[:2] == (6, 4)) is (orientation >= 5)


@pytest.mark.parametrize("kind", ["GIF", "TIFF", "WEBP", "PNG"])
def test_a_file_of_several_frames_is_refused_or_one_is_named(kind: str) -> None:
    frames = [Image.fromarray(np.full((4, 4, 3), level, np.uint8)) for level in (10, 90, 200)]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    with pytest.raises(PreprocessError, match=r"more than one frame.*frame = 0"):
        decoded(data)
    assert [int(decoded(data, frame=number)[0, 0, 0]) for number in range(3)] == [10, 90, 200]
    with pytest.raises(PreprocessError, match="no frame 3 among 3"):
        decoded(data, frame=3)


def test_a_still_image_is_its_own_frame_0() -> None:
    data = encoded(Image.fromarray(noise(2, 2, 3)))
    assert np.array_equal(decoded(data, frame=0), decoded(data))


def test_the_bound_on_pixels_holds_for_every_frame() -> None:
    frames = [Image.fromarray(noise(4, 4)), Image.fromarray(noise(40, 40))]
    data = encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    with pytest.raises(PreprocessError, match="the header declares 40 x 40 pixels"):
        decode_image(data, 100, options={"frame": 1})


@pytest.mark.parametrize(
    ("read", "words"),
    [
        ({"frame": -1}, "frame = -1"),
        ({"frame": True}, "frame = True"),
        ({"deep": "16"}, "one of scale, keep, refuse"),
        ({"orientation": 6}, "one of exif, ignore"),
        ({"frames": 1}, "Did you mean 'frame'?"),
    ],
)
def test_a_wrong_read_is_named(read: dict[str, Any], words: str) -> None:
    assert words in check_read("image", read)[0]


# ---------------------------------------------------------------- light


def test_the_transfer_function_is_that_of_srgb_and_goes_back() -> None:
    levels = np.arange(256, dtype=np.uint8)
    assert to_light(np.array([0, 255])).tolist() == [0, 1]
    assert to_light(np.array([188])) == pytest.approx(0.5029, abs=1e-4)  # the level of half the light
    assert np.abs(to_levels(to_light(levels)) - levels).max() < 1e-4


def test_a_checkerboard_shrinks_to_half_its_light_and_not_to_half_its_level() -> None:
    board = (np.indices((8, 8)).sum(axis=0) % 2 * 255).astype(np.uint8)[:, :, np.newaxis]
    gamma = steps({"resize": [1, 1], "method": "area"}).apply(board)
    linear = steps({"resize": [1, 1], "method": "area", "light": "linear"}).apply(board)
    assert gamma.item() == pytest.approx(127.5, abs=0.5)
    assert linear.item() == pytest.approx(float(to_levels(np.array(0.5))), abs=1e-2)


def test_what_is_transparent_lends_no_colour_in_linear_light() -> None:
    image = np.zeros((2, 2, 4), np.uint8)
    image[:, 0] = (200, 100, 50, 255)
    image[:, 1] = (0, 255, 0, 0)
    made = steps({"resize": [1, 1], "method": "area", "light": "linear"}).apply(image)
    assert np.abs(made[0, 0] - (200, 100, 50, 127.5)).max() < 0.05


# ---------------------------------------------------------------- crop and letterbox


def test_a_box_is_cut_where_it_says() -> None:
    image = noise(10, 12, 3)
    assert np.array_equal(steps({"crop": [2, 3, 5, 6]}, dtype="uint8").apply(image), image[2:7, 3:9])
    with pytest.raises(PreprocessError, match=r"expected one that holds the box \[6, 3, 5, 6\]"):
        steps({"crop": [6, 3, 5, 6]}).apply(image)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"crop": "center"}, "lacks 'size'"),
        ({"crop": [0, 0, 4, 4], "size": [4, 4]}, "size beside a box"),
        ({"crop": [0, -1, 4, 4]}, "[top, left, height, width]"),
        ({"crop": "left"}, "[top, left, height, width]"),
        ({"pad": [4, 4], "position": "middle"}, "one of center"),
        ({"pad": [4, 4], "value": []}, "one for each channel"),
    ],
)
def test_a_wrong_crop_or_pad_is_named(step: dict[str, Any], words: str) -> None:
    assert words in check_steps([step])[0]


@pytest.mark.parametrize(
    ("position", "top", "left"),
    [("center", 2, 1), ("top", 0, 1), ("bottom", 5, 1), ("left", 2, 0), ("right", 2, 3), ("top_left", 0, 0), ("bottom_right", 5, 3)],
)
def test_a_letterbox_has_its_colour_and_position(position: str, top: int, left: int) -> None:
    image = noise(3, 4, 3)
    made = steps({"pad": [8, 7], "value": [114, 115, 116], "position": position}, dtype="uint8").apply(image)
    assert np.array_equal(made[top : top + 3, left : left + 4], image)
    around = np.ones((8, 7), bool)
    around[top : top + 3, left : left + 4] = False
    assert (made[around] == (114, 115, 116)).all()


def test_a_colour_that_the_image_can_not_hold_is_refused() -> None:
    for value, words in (
        (300, "expected a value that they can hold"),
        (0.5, "expected a value that they can hold"),
        ([1, 2], "2 values for 3 channels"),
    ):
        with pytest.raises(PreprocessError, match=words):
            steps({"pad": [8, 8], "value": value}).apply(noise(3, 4, 3))


def test_alpha_can_be_kept_on_purpose() -> None:
    image = noise(4, 4, 4)
    assert np.array_equal(steps({"alpha": "keep"}, {"channels": "rgba"}, dtype="uint8").apply(image), image)

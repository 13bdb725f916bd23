"""From raw files to tensors: decoding within bounds, steps that equal Pillow's own arithmetic, casts that say what they changed."""

from __future__ import annotations

import io
import os
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from kpipe_stages.npz import NpzFile, NpzLimits, npy_array, npz_header
from kpipe_stages.preprocess import Limits, PreprocessError, Preprocessor, check_steps, read_raw, tensor_from
from kpipe_stages.preprocessing.cast import CastNote, cast
from kpipe_stages.preprocessing.image import decode_image
from kpipe_stages.preprocessing.steps import luma
from kpipe_stages.protocol import InputSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PIXELS = 1_000_000


def image_spec(*steps: dict[str, Any], dtype: str | None = None) -> InputSpec:
    return InputSpec("image", "image", steps, dtype)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def noise(*shape: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def png(width: int, height: int, depth: int, colour: int, rows: bytes) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def outcome(work: Callable[[], Any]) -> Any:
    """What ``work`` returns, or the `PreprocessError` it raises; any other exception is a fault."""
    try:
        return work()
    except PreprocessError as error:
        return error


# ---------------------------------------------------------------- decoding


def test_gray_rgb_and_palette_keep_every_level() -> None:
    gray, rgb = noise(5, 7), noise(5, 7, 3)
    assert np.array_equal(decode_image(encoded(Image.fromarray(gray)), PIXELS)[:, :, 0], gray)
    assert np.array_equal(decode_image(encoded(Image.fromarray(rgb)), PIXELS), rgb)
    palette = Image.fromarray(rgb).quantize(16)
    assert np.array_equal(decode_image(encoded(palette), PIXELS), np.asarray(palette.convert("RGB")))


def test_one_bit_becomes_black_and_white() -> None:
    image = Image.fromarray(np.eye(4, dtype=np.uint8) * 255).convert("1")
    assert np.array_equal(decode_image(encoded(image), PIXELS)[:, :, 0], np.eye(4) * 255)


def test_a_transparent_palette_colour_becomes_alpha() -> None:
    image = Image.fromarray(noise(4, 4)).quantize(4)
    array = decode_image(encoded(image, transparency=0), PIXELS)
    assert array.shape == (4, 4, 4)
    assert np.array_equal(array[:, :, 3] == 0, np.asarray(image) == 0)


def test_a_transparent_level_of_one_bit_or_colour_becomes_alpha() -> None:
    one = Image.fromarray(np.eye(3, dtype=np.uint8) * 255).convert("1")
    assert np.array_equal(decode_image(encoded(one, transparency=0), PIXELS)[:, :, 1], np.eye(3) * 255)
    rgb = np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8)
    assert decode_image(encoded(Image.fromarray(rgb), transparency=(4, 5, 6)), PIXELS)[:, :, 3].tolist() == [[255, 0]]


def test_a_transparent_gray_level_becomes_alpha() -> None:
    gray = np.array([[0, 9], [9, 200]], np.uint8)
    array = decode_image(encoded(Image.fromarray(gray), transparency=9), PIXELS)
    assert array[:, :, 1].tolist() == [[255, 0], [0, 255]]


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bit_gray_is_scaled_and_never_clipped(kind: str) -> None:
    values = np.array([[0, 1, 255, 256], [257, 32768, 65534, 65535]], np.uint16)
    array = decode_image(encoded(Image.fromarray(values), kind), PIXELS)
    assert array.dtype == np.float32
    assert np.array_equal(array[:, :, 0], (values.astype(np.float64) * 255 / 65535).astype(np.float32))
    assert array.max() == 255


def test_sixteen_bit_gray_is_turned_upright_too_and_its_transparency_refused() -> None:
    values = np.arange(6, dtype=np.uint16).reshape(2, 3) * 257
    exif = Image.Exif()
    exif[0x0112] = 3
    assert decode_image(encoded(Image.fromarray(values), exif=exif), PIXELS)[:, :, 0].tolist() == [[5, 4, 3], [2, 1, 0]]
    with pytest.raises(PreprocessError, match="transparent colour"):
        decode_image(encoded(Image.fromarray(values), transparency=257), PIXELS)


def test_sixteen_bit_colour_is_refused_because_pillow_reads_half_of_it() -> None:
    data = png(2, 1, 16, 2, b"\0" + bytes(range(12)))
    assert Image.open(io.BytesIO(data)).mode == "RGB"
    with pytest.raises(PreprocessError, match="16 bits a channel"):
        decode_image(data, PIXELS)


def test_float_images_keep_their_values() -> None:
    values = np.array([[-1.5, 0.25], [300.0, 1e-9]], np.float32)
    assert np.array_equal(decode_image(encoded(Image.fromarray(values), "TIFF"), PIXELS)[:, :, 0], values)


def test_cmyk_becomes_rgb_by_pillows_conversion() -> None:
    image = Image.fromarray(noise(3, 4, 4), "CMYK")
    assert np.array_equal(decode_image(encoded(image, "TIFF"), PIXELS), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("mode", ["LAB", "I"])
def test_modes_without_one_meaning_are_refused_by_name(mode: str) -> None:
    with pytest.raises(PreprocessError, match=f"pixel mode {mode}"):
        decode_image(encoded(Image.new(mode, (3, 3)), "TIFF"), PIXELS)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation: int) -> None:
    turns = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }
    stored = Image.fromarray(noise(4, 6))
    exif = Image.Exif()
    exif[0x0112] = orientation
    shown = stored.transpose(turns[orientation]) if orientation in turns else stored
    assert np.array_equal(decode_image(encoded(stored, exif=exif), PIXELS)[:, :, 0], np.asarray(shown))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP", "BMP"])
def test_a_truncated_file_is_refused(kind: str) -> None:
    data = encoded(Image.fromarray(noise(32, 32, 3)), kind)
    with pytest.raises(PreprocessError, match=r"does not decode|are no image"):
        decode_image(data[: len(data) * 2 // 3], PIXELS)


@pytest.mark.parametrize("kind", ["GIF", "PNG", "TIFF", "WEBP"])
def test_a_file_of_two_frames_is_refused(kind: str) -> None:
    frames = [Image.fromarray(noise(8, 8, 3, seed=i)) for i in range(2)]
    with pytest.raises(PreprocessError, match="more than one frame"):
        decode_image(encoded(frames[0], kind, save_all=True, append_images=frames[1:]), PIXELS)


def test_a_gif_of_one_frame_is_read() -> None:
    assert decode_image(encoded(Image.fromarray(noise(8, 8)), "GIF"), PIXELS).shape[:2] == (8, 8)


@pytest.mark.parametrize("side", [9_000, 13_000, 30_000])
def test_a_pixel_bomb_is_refused_by_its_header(side: int) -> None:
    """Below, between and above Pillow's own warning and error limits; a warning would be an error here."""
    with pytest.raises(PreprocessError, match="header declares"):
        decode_image(png(side, side, 8, 0, b""), 64_000_000)


@pytest.mark.parametrize("data", [b"", b"hello", b"%!PS-Adobe-3.0", b"\x89PNG\r\n\x1a\n", b"<svg/>"])
def test_what_is_no_image_is_refused(data: bytes) -> None:
    with pytest.raises(PreprocessError, match=r"are no image|does not decode"):
        decode_image(data, PIXELS)


SEEDS = [encoded(Image.fromarray(noise(9, 9, 3)), kind) for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(SEEDS), st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6), st.floats(0, 1))
def test_damaged_images_end_in_an_image_or_in_our_error(seed: bytes, edits: list[tuple[float, int]], keep: float) -> None:
    data = bytearray(seed)
    for where, value in edits:
        data[int(where * len(data))] = value
    found = outcome(lambda: decode_image(bytes(data[: max(1, int(keep * len(data)))]), PIXELS))
    if isinstance(found, PreprocessError):
        assert all((found.what, found.expected, found.do))
    else:
        assert found.ndim == 3
        assert found.dtype in (np.uint8, np.float32)


# ---------------------------------------------------------------- files


def test_missing_large_and_special_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PreprocessError, match="does not exist") as missing:
        tensor_from(image_spec(), tmp_path / "a.png")
    assert missing.value.code == "KP101"
    (tmp_path / "b.png").write_bytes(bytes(101))
    with pytest.raises(PreprocessError, match="larger than 100 bytes"):
        tensor_from(image_spec(), tmp_path / "b.png", Limits(max_bytes=100))
    os.mkfifo(tmp_path / "c.png")
    with pytest.raises(PreprocessError, match="not a regular file"):
        tensor_from(image_spec(), tmp_path / "c.png")
    with pytest.raises(PreprocessError, match=r"can't be opened|not a regular file"):
        tensor_from(image_spec(), tmp_path)


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
        ({"crop": "top", "size": [1, 1]}, "one of center"),
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
    with pytest.raises(PreprocessError, match="one of image, npy, array"):
        Preprocessor(InputSpec("x", "jpg"))


# ---------------------------------------------------------------- casts


@settings(max_examples=300)
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


# ---------------------------------------------------------------- npy and npz


def npy(array: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def npz(*, compressed: bool = False, **arrays: Any) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


@settings(deadline=None)
@given(
    hnp.arrays(st.sampled_from([np.dtype(d) for d in ("f4", ">f8", "<i2", ">u4", "?", "<U3", "S2", "f2")]), hnp.array_shapes(min_dims=0, max_dims=3)),
    st.booleans(),
)
def test_npy_equals_what_numpy_reads(array: Any, fortran: bool) -> None:
    array = np.asfortranarray(array) if fortran else array
    mine = npy_array(npy(array), "x")
    assert mine.dtype.isnative
    assert mine.flags.c_contiguous
    assert mine.shape == array.shape
    assert np.array_equal(mine, array, equal_nan=array.dtype.kind == "f")


@pytest.mark.parametrize("array", [np.array([{}]), np.zeros(2, "f4,i4"), np.zeros(2, "M8[s]"), np.zeros(2, complex), np.zeros(2, "V2")])
def test_dtypes_that_need_pickling_or_have_no_plain_meaning_are_refused(array: Any) -> None:
    with pytest.raises(PreprocessError, match="dtype"):
        npy_array(npy(array), "x")


def header(text: str, body: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + body


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (100000000000,), }\n"), "needs 400,000,000,"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }\n"), "negative"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", bytes(9)), "there are"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", bytes(7)), "there are"),
        (header("(" * 9000), "not an .npy"),
        (header("__import__('os').abort()\n"), "not an .npy"),
        (b"\x93NUMPY\x01\x00\xff\xff" + b"9" * 70000, "not an .npy"),
        (b"\x93NUMPY\x07\x00", "format 7.0"),
        (b"PK", "not an .npy"),
        (b"", "not an .npy"),
    ],
)
def test_hostile_npy_headers_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(PreprocessError, match=message):
        npy_array(data, "x")


def test_npz_headers_without_reading_values(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(npz(compressed=True, x=np.zeros((3, 4), ">f4"), ids=np.arange(3)))
    assert npz_header(tmp_path / "a.npz") == {"x": ((3, 4), np.dtype(">f4")), "ids": ((3,), np.dtype(np.int64))}
    assert npz_header(io.BytesIO(npz(x=np.zeros(2)))) == {"x": ((2,), np.dtype(np.float64))}


def test_hostile_npz_files_are_refused() -> None:
    import zipfile

    def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", method) as archive:
            for name, data in members:
                archive.writestr(name, data)
        return stream.getvalue()

    small = npy(np.zeros(2))
    bomb = header("{'descr': '|u1', 'fortran_order': False, 'shape': (104857600,), }\n", bytes(100 * 2**20))
    cases = [
        (b"no zip", "not a zip"),
        (zipped(), "0 members"),
        (zipped(("a.txt", b"x")), "not an .npy"),
        (zipped(("a.npy", npy(np.array([{}])))), "dtype"),
        (zipped(("a.npy", header("{'descr': '<f4', 'fortran_order': False, 'shape': (10000000,), }\n"))), "needs 40,000"),
        (zipped(("a.npy", small), method=zipfile.ZIP_LZMA), "compression method"),
        (zipped(("a.npy", bomb)), "that inflate to"),
    ]
    for data, message in cases:
        with pytest.raises(PreprocessError, match=message):
            NpzFile(data, "x")
    with pytest.warns(UserWarning, match="Duplicate name"):
        double = zipped(("a.npy", small), ("a.npy", small))
    with pytest.raises(PreprocessError, match="two members"):
        NpzFile(double, "x")
    with pytest.raises(PreprocessError, match="bytes inflated"):
        NpzFile(npz(x=np.zeros(1000)), "x", NpzLimits(max_bytes=1000))


def test_a_damaged_member_is_noticed_by_its_crc() -> None:
    data = bytearray(npz(x=np.arange(9000, dtype=np.int64)))
    data[data.find(struct.pack("<q", 8000))] ^= 1
    file = NpzFile(bytes(data), "x")
    with pytest.raises(PreprocessError, match="CRC"):
        file.array("x")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4), st.floats(0.2, 1), st.booleans())
def test_damaged_npz_files_end_in_arrays_or_in_our_error(edits: list[tuple[float, int]], keep: float, compressed: bool) -> None:
    data = bytearray(npz(compressed=compressed, x=np.arange(12.0).reshape(3, 4), names=np.array(["a", "b", "c"])))
    for where, value in edits:
        data[int(where * len(data))] = value

    def read() -> list[Any]:
        file = NpzFile(bytes(data[: int(keep * len(data))]), "x", NpzLimits(max_bytes=10_000))
        return [file.array(name) for name in file.headers]

    found = outcome(read)
    assert found.code == "KP103" if isinstance(found, PreprocessError) else all(isinstance(array, np.ndarray) for array in found)


def test_a_row_of_an_npz_by_reference(tmp_path: Path) -> None:
    (tmp_path / "a#b.npz").write_bytes(npz(x=np.arange(6, dtype=np.float32).reshape(3, 2)))
    spec = InputSpec("x", "array")
    assert read_raw(spec, f"{tmp_path}/a#b.npz#x#2").tolist() == [4, 5]
    for wrong, message in (("x#3", "no row 3"), ("y#0", "no member"), ("x", "no reference"), ("x#-1", "no reference")):
        with pytest.raises(PreprocessError, match=message):
            read_raw(spec, f"{tmp_path}/a#b.npz#{wrong}")

"""Raw files decoded within bounds: every mode and format either keeps its values or is refused by name."""

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
from PIL import Image

from kpipe_stages.preprocess import Limits, PreprocessError, tensor_from
from kpipe_stages.preprocessing.image import decode_image
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


@pytest.mark.parametrize("mode", ["I"])
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

"""Decode an image file to numbers: what Pillow reads, on the 0 to 255 scale, nothing lost without a word.

Colour profiles and PNG gamma are ignored, as Pillow ignores them. CMYK and YCbCr become RGB by Pillow's own conversion.
"""

from __future__ import annotations

import io
import warnings
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.preprocessing.checks import one_of
from kpipe_stages.preprocessing.errors import PreprocessError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from PIL.Image import Image as PilImage

    from kpipe_stages.preprocessing.checks import Check

Array = np.ndarray[Any, np.dtype[Any]]

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""Other formats are refused: each decoder more is a decoder more to attack, and to differ by version."""

MAX_FRAME = 4096


def _frame(value: Any) -> str:
    number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_FRAME
    return "" if value == "refuse" or number else f'"refuse", or the number of a frame from 0 to {MAX_FRAME}'


OPTIONS: dict[str, tuple[Check, Any]] = {
    "frame": (_frame, "refuse"),
    "orientation": (one_of("exif", "ignore"), "exif"),
    "deep": (one_of("scale", "keep", "refuse"), "scale"),
}

_CONVERT = {"1": "L", "HSV": "RGB", "PA": "RGBA", "La": "LA", "RGBa": "RGBA", "RGBX": "RGB", "CMYK": "RGB", "YCbCr": "RGB"}
_CONVERT_TRANSPARENT = {"1": "LA", "L": "LA", "RGB": "RGBA"}
_SIXTEEN_BIT = ("I;16", "I;16L", "I;16B", "I;16N")
_FULL_SCALE_RATIO = 257.0  # 65535 / 255


def scaled_to_255(values: Array) -> Array:
    """16-bit levels on the 0 to 255 scale: ``v * 255 / 65535``, rounded once to float32."""
    return (values.astype(np.float64) / _FULL_SCALE_RATIO).astype(np.float32)


def decode_image(
    data: bytes,
    max_pixels: int,
    *,
    upright: bool | None = None,
    sixteen: Callable[[Array], Array] = scaled_to_255,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Array:
    """Decode one image.

    EXIF orientation is applied. A palette becomes RGB, or RGBA where it has transparency; 1-bit becomes 0 and 255; 16-bit gray becomes
    ``v * 255 / 65535`` (exact, then rounded once to float32); float images keep their values. Options say otherwise.

    Args:
        data: the file's bytes.
        max_pixels: the largest width times height, checked before any pixel is decoded.
        upright: apply the EXIF orientation, whatever the options say. Only `kpipe_stages.suspects` asks, as for the next one.
        sixteen: what 16-bit levels become where ``deep`` is ``scale``.
        options: those of `OPTIONS` that aren't the default.

    Returns:
        ``(height, width, channels)``, uint8 or float32; 1 channel gray, 2 gray and alpha, 3 RGB, 4 RGBA.

    Raises:
        PreprocessError: not an image of `FORMATS`, truncated, broken, too large, more than one frame, or a mode that has no one meaning.
    """
    chosen = {name: options.get(name, default) for name, (_, default) in OPTIONS.items()}
    turn = chosen["orientation"] == "exif" if upright is None else upright
    try:
        image = _open(data)
        _check_header(image, max_pixels)
        _go_to_frame(image, chosen["frame"], max_pixels)
        image.load()
        image = _upright(image) if turn else image
        return _to_array(image, sixteen, chosen["deep"])
    except PreprocessError:
        raise
    except Exception as error:  # decoders meet hostile bytes with any exception type; each means: this file does not decode
        raise PreprocessError(
            "decode",
            f"the image does not decode: {type(error).__name__}: {error}",
            "a whole image file",
            "Replace the file; it may be cut off or damaged.",
        ) from error


def _open(data: bytes) -> PilImage:
    from PIL import Image, UnidentifiedImageError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # `_check_header` holds the contract's own bound
        try:
            return Image.open(io.BytesIO(data), formats=FORMATS)
        except UnidentifiedImageError as error:
            raise PreprocessError(
                "decode", f"{len(data)} bytes starting {data[:8]!r} are no image", f"one of {', '.join(FORMATS)}", "Convert the file, or mend decode."
            ) from error
        except Image.DecompressionBombError as error:
            raise PreprocessError("decode", f"the header declares too many pixels: {error}", "a smaller image", "Replace the file.") from error


def _check_header(image: PilImage, max_pixels: int) -> None:
    width, height = image.size
    if width * height > max_pixels:
        raise PreprocessError(
            "decode",
            f"the header declares {width} x {height} pixels",
            f"at most {max_pixels:,}",
            "Replace the file, or raise max_pixels if it is meant.",
        )
    if (
        image.format in ("PNG", "TIFF")
        and image.mode not in (*_SIXTEEN_BIT, "I")
        and any(";16" in str(tile[3]) for tile in getattr(image, "tile", ()))
    ):
        raise PreprocessError(
            "decode",
            f"16 bits a channel in mode {image.mode}, of which Pillow reads 8",
            "16-bit gray or 8-bit channels",
            "Store it with 8 bits a channel.",
        )


def _go_to_frame(image: PilImage, frame: Any, max_pixels: int) -> None:
    """The frame that is meant of a file with several; a still image has frame 0 alone."""
    if frame == "refuse":
        if getattr(image, "is_animated", False):
            raise PreprocessError(
                "decode",
                f"{image.format} file with more than one frame",
                "a still image",
                "Store the frame that is meant as its own file, or say read = { frame = 0 }.",
            )
        return
    count = getattr(image, "n_frames", 1)
    if frame >= count:
        raise PreprocessError("decode", f"no frame {frame} among {count}", "a frame that is there, from 0", "Mend frame, or replace the file.")
    image.seek(frame)
    _check_header(image, max_pixels)


def _upright(image: PilImage) -> PilImage:
    from PIL import ImageOps

    kind = image.format
    ImageOps.exif_transpose(image, in_place=True)
    image.format = kind
    return image


def _to_array(image: PilImage, sixteen: Callable[[Array], Array], deep: str) -> Array:
    if image.mode in _SIXTEEN_BIT or (image.mode == "I" and image.format == "PNG"):
        return _sixteen_bit(image, sixteen, deep)
    if image.mode == "I":
        return _whole_numbers(image, deep)
    if image.mode == "F":
        return np.array(image, dtype=np.float32)[:, :, np.newaxis]
    transparent = image.has_transparency_data
    if image.mode == "P":
        image = image.convert("RGBA" if transparent else "RGB")
    elif transparent and image.mode in _CONVERT_TRANSPARENT:
        image = image.convert(_CONVERT_TRANSPARENT[image.mode])
    elif image.mode == "LAB":
        image = _from_lab(image)
    elif image.mode in _CONVERT:
        image = image.convert(_CONVERT[image.mode])
    if image.mode not in ("L", "LA", "RGB", "RGBA"):
        raise PreprocessError(
            "decode",
            f"pixel mode {image.mode}",
            "gray, RGB, RGBA, palette, 1-bit, CMYK, YCbCr, LAB, HSV, 16-bit gray, 32-bit or float",
            "Store it as 8-bit RGB or gray.",
        )
    return np.atleast_3d(np.array(image))


def _from_lab(image: PilImage) -> PilImage:
    """CIE L*a*b* (white point D50) to sRGB, perceptual intent, by the colour engine that Pillow carries."""
    from PIL import ImageCms

    made = ImageCms.profileToProfile(image, ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), outputMode="RGB")
    if made is None:
        raise PreprocessError("decode", "a LAB image that can't be converted", "an RGB image", "Store it as 8-bit RGB.")
    return made


def _whole_numbers(image: PilImage, deep: str) -> Array:
    """32-bit whole numbers have no scale that a file could declare: they are kept as they are, if that is asked for."""
    if deep != "keep":
        raise PreprocessError(
            "decode", "pixel mode I: 32-bit whole numbers without a scale", "8 or 16 bits", 'Store it so, or say read = { deep = "keep" } and scale.'
        )
    return np.array(image, dtype=np.int32)[:, :, np.newaxis]


def _sixteen_bit(image: PilImage, sixteen: Callable[[Array], Array], deep: str) -> Array:
    if "transparency" in image.info:
        raise PreprocessError("decode", "16-bit gray with a transparent colour", "no transparency, or 8 bits", "Store it without the tRNS chunk.")
    if deep == "refuse":
        raise PreprocessError("decode", "16 bits a channel", "8", 'Store it with 8, or say read = { deep = "scale" } or "keep".')
    values = np.array(image)
    return (values.astype(np.float32) if deep == "keep" else sixteen(values))[:, :, np.newaxis]

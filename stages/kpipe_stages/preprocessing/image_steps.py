"""What the image steps do, on ``(height, width, channels)``."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.preprocessing.checks import (
    MAX_AREA,
    PLANE,
    POSITIONS,
    RGB,
    WHITE,
    colour,
    fill,
    one_of,
    region,
    side,
    size,
    switch,
)
from kpipe_stages.preprocessing.errors import PreprocessError
from kpipe_stages.preprocessing.kinds import Kind
from kpipe_stages.preprocessing.light import resize_linear
from kpipe_stages.preprocessing.resample import METHODS, resize

if TYPE_CHECKING:
    from kpipe_stages.preprocessing.checks import Check
    from kpipe_stages.preprocessing.kinds import Options

Array = np.ndarray[Any, np.dtype[Any]]

WITH_ALPHA = (2, 4)
"""Channels of gray and of colour images that have alpha; the last one is it."""


def image_of(array: Array, step: str) -> Array:
    """The array as ``(h, w, c)``; a gray ``(h, w)`` gets its channel.

    Raises:
        PreprocessError: it isn't an image.
    """
    if array.ndim == PLANE:
        return array[:, :, np.newaxis]
    if array.ndim != PLANE + 1 or 0 in array.shape or array.dtype.kind not in "uif":
        raise PreprocessError(
            step, f"values of shape {array.shape} and dtype {array.dtype.name}", "height x width x channels", f"Leave {step!r} out."
        )
    return array


def wanted_size(name: str, value: Any, height: int, width: int) -> tuple[int, int]:
    """Height and width that ``resize``, ``fit`` or ``shorter`` makes of an image.

    Raises:
        PreprocessError: it would become too large.
    """
    if name == "resize":
        return value[0], value[1]
    if name == "fit":
        ratio = min(value[0] / height, value[1] / width)
        fitted = [min(limit, max(1, math.floor(n * ratio + 0.5))) for n, limit in zip((height, width), value, strict=True)]
        return fitted[0], fitted[1]
    tall, wide = height * value // min(height, width), width * value // min(height, width)
    if tall * wide > MAX_AREA:
        raise PreprocessError("shorter", f"{(height, width)} would become {tall} x {wide}", f"at most {MAX_AREA:,} pixels", "Replace the file.")
    return tall, wide


def _sized(array: Array, value: Any, options: Options, name: str) -> Array:
    image = image_of(array, name)
    height, width = wanted_size(name, value, image.shape[0], image.shape[1])
    if options["light"] == "linear":
        return resize_linear(image, height, width, options["method"], options["antialias"])
    return resize(image, height, width, options["method"], options["antialias"])


def _crop(array: Array, value: Any, options: Options) -> Array:
    image = image_of(array, "crop")
    if value == "center":
        height, width = options["size"]
        top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    else:
        top, left, height, width = value
    if top < 0 or left < 0 or top + height > image.shape[0] or left + width > image.shape[1]:
        wanted = f"at least {height} x {width}" if value == "center" else f"one that holds the box {list(value)}"
        raise PreprocessError("crop", f"an image of {image.shape[:2]}", wanted, "Resize before the crop.")
    return image[top : top + height, left : left + width]


def _crop_size(value: Any, options: Options) -> str:
    if value == "center":
        return "" if options["size"] else "'crop' lacks 'size' (expected it beside). Add it."
    return "size beside a box (expected the box alone: it has its own height and width). Drop size." if options["size"] else ""


def _pad(array: Array, value: Any, options: Options) -> Array:
    image = image_of(array, "pad")
    spare = [wanted - n for wanted, n in zip(value, image.shape[:2], strict=True)]
    if min(spare) < 0:
        raise PreprocessError("pad", f"an image of {image.shape[:2]}", f"at most {value[0]} x {value[1]}", "Fit or resize before the pad.")
    around = np.asarray(options["value"], dtype=np.float64).reshape(-1)
    if len(around) not in (1, image.shape[2]):
        raise PreprocessError("pad", f"{len(around)} values for {image.shape[2]} channels", "one, or one a channel", "Mend value, or pad later.")
    filled = around.astype(image.dtype)
    if not np.array_equal(filled, around.astype(np.float32) if image.dtype.kind == "f" else around):
        raise PreprocessError("pad", f"value = {options['value']} on {image.dtype.name} levels", "a value that they can hold", "Mend value.")
    result = np.empty((*value, image.shape[2]), dtype=image.dtype)
    result[:] = filled
    top, left = _placed(options["position"], spare)
    result[top : top + image.shape[0], left : left + image.shape[1]] = image
    return result


def _placed(position: str, spare: list[int]) -> tuple[int, int]:
    """Rows above and columns left of an image; an odd one left over goes below and to the right."""
    top = 0 if "top" in position else spare[0] if "bottom" in position else spare[0] // 2
    left = 0 if "left" in position else spare[1] if "right" in position else spare[1] // 2
    return top, left


def composite(image: Array, background: Any) -> Array:
    """Lay an image with alpha over a background: ``(c * a + b * (255 - a)) / 255``; uint8 is rounded to the nearest level."""
    colours, alpha = image[:, :, :-1], image[:, :, -1:]
    levels = np.asarray(background, dtype=np.float64).reshape(-1)
    if len(levels) == RGB and colours.shape[2] == 1 and len(set(levels.tolist())) > 1:
        colours = np.repeat(colours, RGB, axis=2)
    elif colours.shape[2] == 1:
        levels = levels[:1]
    if image.dtype != np.uint8:
        return ((colours.astype(np.float64) * alpha + levels * (255.0 - alpha)) / 255.0).astype(np.float32)
    mixed = colours.astype(np.float64) * alpha + levels * (255.0 - alpha.astype(np.float64))
    return np.floor(mixed / 255.0 + 0.5).astype(np.uint8)


def _alpha(array: Array, value: Any, options: Options) -> Array:
    image = image_of(array, "alpha")
    if image.shape[2] not in WITH_ALPHA:
        return image
    if value == "keep":
        return image
    return composite(image, options["background"]) if value == "composite" else np.asarray(image[:, :, :-1])


def luma(image: Array) -> Array:
    """Gray by ITU-R BT.601-2 weights; on uint8 Pillow's fixed-point form of them, bit for bit.

    ``(19595 R + 38470 G + 7471 B + 32768) >> 16`` for uint8, ``(299 R + 587 G + 114 B) / 1000`` otherwise.
    """
    if image.dtype == np.uint8:
        gray = (image.astype(np.uint32) @ np.array([19595, 38470, 7471], np.uint32) + 0x8000) >> 16
    else:
        gray = image.astype(np.float64) @ np.array([0.299, 0.587, 0.114])
    return np.asarray(gray.astype(image.dtype)[:, :, np.newaxis])


def _channels(array: Array, value: Any, _: Options) -> Array:
    image = image_of(array, "channels")
    alpha = None
    if image.shape[2] in WITH_ALPHA:
        image, alpha = image[:, :, :-1], image[:, :, -1:]
        if value != "rgba" and not np.all(alpha == WHITE):
            raise PreprocessError(
                "channels",
                "the image has transparent pixels and no step says what lies behind them",
                "an alpha step before channels",
                'Add { alpha = "composite", background = [255, 255, 255] } or { alpha = "drop" }, whichever the product does.',
            )
    if image.shape[2] not in (1, RGB):
        raise PreprocessError("channels", f"{image.shape[2]} channels", "gray or RGB", "Leave the step out.")
    if value == "gray":
        return image if image.shape[2] == 1 else luma(image)
    image = np.repeat(image, RGB, axis=2) if image.shape[2] == 1 else image
    if value == "bgr":
        return image[:, :, ::-1]
    if value == "rgb":
        return image
    return np.concatenate([image, np.full_like(image[:, :, :1], WHITE) if alpha is None else alpha], axis=2)


def _layout(array: Array, value: Any, _: Options) -> Array:
    image = image_of(array, "layout")
    return image if value == "hwc" else np.transpose(image, (2, 0, 1))


_RESAMPLING: dict[str, tuple[Check, Any]] = {
    "method": (one_of(*METHODS), "bilinear"),
    "antialias": (switch, True),
    "light": (one_of("gamma", "linear"), "gamma"),
}

IMAGE_KINDS: dict[str, Kind] = {
    "resize": Kind(size, partial(_sized, name="resize"), _RESAMPLING, needs_image=True),
    "fit": Kind(size, partial(_sized, name="fit"), _RESAMPLING, needs_image=True),
    "shorter": Kind(side, partial(_sized, name="shorter"), _RESAMPLING, needs_image=True),
    "crop": Kind(region, _crop, {"size": (size, ())}, needs_image=True, also=_crop_size),
    "pad": Kind(size, _pad, {"value": (fill, 0), "position": (one_of(*POSITIONS), "center")}, needs_image=True),
    "alpha": Kind(one_of("composite", "drop", "keep"), _alpha, {"background": (colour, (255, 255, 255))}, needs_image=True, needs_levels=True),
    "channels": Kind(one_of("gray", "rgb", "bgr", "rgba"), _channels, needs_image=True, needs_levels=True),
    "layout": Kind(one_of("hwc", "chw"), _layout, needs_image=True),
}

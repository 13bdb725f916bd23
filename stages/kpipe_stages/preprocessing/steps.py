"""The steps between a decoded file and the tensor: what each takes, and what it does.

A step is a table with one key that names it and its options beside it: ``{ resize = [16, 16], method = "bilinear" }``. Images are
``(height, width, channels)`` until ``layout`` or ``flatten``. Arithmetic is float32, each operation rounded once; float64 where the
decoded values are float64 or integers of more than 16 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.preprocessing.cast import DTYPES
from kpipe_stages.preprocessing.errors import PreprocessError
from kpipe_stages.preprocessing.resample import METHODS, resize

if TYPE_CHECKING:
    from collections.abc import Mapping

    Options = Mapping[str, Any]

Array = np.ndarray[Any, np.dtype[Any]]

MAX_SIDE = 32_768
MAX_AREA = 64_000_000
WHITE = 255
PLANE = 2
"""Axes of one channel."""
RGB = 3
WITH_ALPHA = (2, 4)
"""Channels of gray and of colour images that have alpha; the last one is it."""


# ---------------------------------------------------------------- what a value may be: each returns the expectation it breaks, or ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def number(value: Any) -> str:
    """Any finite number."""
    return "" if _is_number(value) else "a finite number"


def side(value: Any) -> str:
    """A length in pixels."""
    return "" if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SIDE else f"a whole number from 1 to {MAX_SIDE}"


def size(value: Any) -> str:
    """Height and width."""
    fits = isinstance(value, list | tuple) and len(value) == PLANE and not any(side(v) for v in value) and value[0] * value[1] <= MAX_AREA
    return "" if fits else f"[height, width], each from 1 to {MAX_SIDE} and together at most {MAX_AREA:,} pixels"


def true(value: Any) -> str:
    """A switch that can only be on: leave the step out otherwise."""
    return "" if value is True else "true (leave the step out otherwise)"


def switch(value: Any) -> str:
    """On or off."""
    return "" if isinstance(value, bool) else "true or false"


def colour(value: Any) -> str:
    """One level, or red, green and blue, from 0 to 255."""
    levels = value if isinstance(value, list | tuple) else [value]
    fits = len(levels) in (1, RGB) and all(_is_number(v) and 0 <= v <= WHITE for v in levels)
    return "" if fits else "a level from 0 to 255, or three of them"


def statistics(value: Any) -> str:
    """``{ mean = [..], std = [..] }``."""
    if not isinstance(value, dict) or set(value) != {"mean", "std"}:
        return "{ mean = [..], std = [..] }"
    lists = [v if isinstance(v, list | tuple) else [v] for v in (value["mean"], value["std"])]
    if not all(v and all(_is_number(n) for n in v) for v in lists) or len(lists[0]) != len(lists[1]):
        return "mean and std as finite numbers, one each or one a channel, equally many"
    return "" if all(n > 0 for n in lists[1]) else "a std above zero"


def one_of(*names: str) -> Callable[[Any], str]:
    """One of some words."""
    return lambda value: "" if isinstance(value, str) and value in names else f"one of {', '.join(names)}"


# ---------------------------------------------------------------- what a step does


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
    return resize(image, height, width, options["method"], options["antialias"])


def _crop(array: Array, _: Any, options: Options) -> Array:
    image = image_of(array, "crop")
    height, width = options["size"]
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    if top < 0 or left < 0:
        raise PreprocessError("crop", f"an image of {image.shape[:2]}", f"at least {height} x {width}", "Resize before the crop.")
    return image[top : top + height, left : left + width]


def _pad(array: Array, value: Any, options: Options) -> Array:
    image = image_of(array, "pad")
    spare = [wanted - n for wanted, n in zip(value, image.shape[:2], strict=True)]
    if min(spare) < 0:
        raise PreprocessError("pad", f"an image of {image.shape[:2]}", f"at most {value[0]} x {value[1]}", "Fit or resize before the pad.")
    result = np.full((*value, image.shape[2]), options["value"], dtype=image.dtype)
    top, left = spare[0] // 2, spare[1] // 2
    result[top : top + image.shape[0], left : left + image.shape[1]] = image
    return result


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


def real(array: Array) -> Array:
    """The array in the dtype that arithmetic is done in."""
    if array.dtype.kind not in "biuf":
        raise PreprocessError("steps", f"arithmetic on {array.dtype.name} values", "numbers", "Leave the step out.", "KP104")
    wide = array.dtype == np.float64 or (array.dtype.name in ("int32", "int64", "uint32", "uint64"))
    return array.astype(np.float64 if wide else np.float32, copy=False)


def _scale(array: Array, value: Any, _: Options) -> Array:
    values = real(array)
    return np.asarray(values * values.dtype.type(value))


def _offset(array: Array, value: Any, _: Options) -> Array:
    values = real(array)
    return np.asarray(values + values.dtype.type(value))


def _normalize(array: Array, value: Any, options: Options) -> Array:
    values = real(array)
    axis = options["channel_axis"]
    mean, std = (np.asarray(value[key], dtype=values.dtype).reshape(-1) for key in ("mean", "std"))
    if len(mean) > 1:
        if axis is None or values.ndim == 0 or values.shape[axis] != len(mean):
            raise PreprocessError("normalize", f"{len(mean)} means for values of shape {values.shape}", "one, or one a channel", "Mend mean and std.")
        form = [1] * values.ndim
        form[axis] = -1
        mean, std = mean.reshape(form), std.reshape(form)
    return np.asarray((values - mean) / std)


def _invert(array: Array, _: Any, __: Options) -> Array:
    return (np.uint8(WHITE) - array) if array.dtype == np.uint8 else np.float32(WHITE) - real(array)


def _layout(array: Array, value: Any, _: Options) -> Array:
    image = image_of(array, "layout")
    return image if value == "hwc" else np.transpose(image, (2, 0, 1))


def _flatten(array: Array, _: Any, __: Options) -> Array:
    return np.ascontiguousarray(array).reshape(-1)


@dataclass(frozen=True)
class Kind:
    """A step: how its value is checked, its options, what it does."""

    check: Callable[[Any], str]
    apply: Callable[[Array, Any, Options], Array] | None
    """None for ``cast``, which `kpipe_stages.preprocess` does so that a changed value is noted."""
    options: dict[str, tuple[Callable[[Any], str], Any]] = field(default_factory=dict)
    """Name to check and default; a default of None makes it required."""
    needs_image: bool = False
    """Only before ``layout = "chw"`` and ``flatten``."""
    needs_levels: bool = False
    """Only on the 0 to 255 scale: before scale, offset, normalize and cast."""
    changes_scale: bool = False


_RESAMPLING: dict[str, tuple[Callable[[Any], str], Any]] = {"method": (one_of(*METHODS), "bilinear"), "antialias": (switch, True)}

KINDS: dict[str, Kind] = {
    "resize": Kind(size, partial(_sized, name="resize"), _RESAMPLING, needs_image=True),
    "fit": Kind(size, partial(_sized, name="fit"), _RESAMPLING, needs_image=True),
    "shorter": Kind(side, partial(_sized, name="shorter"), _RESAMPLING, needs_image=True),
    "crop": Kind(one_of("center"), _crop, {"size": (size, None)}, needs_image=True),
    "pad": Kind(size, _pad, {"value": (number, 0)}, needs_image=True),
    "alpha": Kind(one_of("composite", "drop"), _alpha, {"background": (colour, (255, 255, 255))}, needs_image=True, needs_levels=True),
    "channels": Kind(one_of("gray", "rgb", "bgr", "rgba"), _channels, needs_image=True, needs_levels=True),
    "invert": Kind(true, _invert, needs_levels=True),
    "scale": Kind(number, _scale, changes_scale=True),
    "offset": Kind(number, _offset, changes_scale=True),
    "normalize": Kind(statistics, _normalize, changes_scale=True),
    "layout": Kind(one_of("hwc", "chw"), _layout, needs_image=True),
    "flatten": Kind(true, _flatten),
    "cast": Kind(one_of(*DTYPES), None, changes_scale=True),
}

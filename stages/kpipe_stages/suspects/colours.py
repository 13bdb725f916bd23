"""Suspects of what a pixel is: orientation tag, bit depth, alpha, the order of channels, gray."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.preprocessing.steps import RGB, image_of
from kpipe_stages.suspects.suspect import Edit, Suspect, exchanged, finished_by, named
from kpipe_stages.suspects.variation import Special, Variation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Array = np.ndarray[Any, np.dtype[Any]]

BT601 = (0.299, 0.587, 0.114)
BT709 = (0.2126, 0.7152, 0.0722)
"""Weights of red, green and blue in ITU-R BT.601-7 and BT.709-6."""
GRAYS: tuple[tuple[str, tuple[float, float, float]], ...] = (
    ("gray as the mean of red, green and blue", (1 / 3, 1 / 3, 1 / 3)),
    ("gray by BT.709 weights", BT709),
    ("gray by BT.601 weights of BGR taken for RGB", (BT601[2], BT601[1], BT601[0])),
    ("gray by BT.601 weights", BT601),
    ("the red channel for gray", (1.0, 0.0, 0.0)),
    ("the green channel for gray", (0.0, 1.0, 0.0)),
    ("the blue channel for gray", (0.0, 0.0, 1.0)),
)
OPENCV_GRAY = (9798, 19235, 3735)
"""BT.601 weights in units of 2^-15, as OpenCV rounds them for 8-bit levels."""


def colours(base: Variation) -> Iterator[Suspect]:
    """All of them, for the reference's own steps."""
    yield Suspect("orientation", "EXIF orientation ignored", "EXIF orientation applied", _as_stored)
    for words, apply in _DEPTHS:
        yield Suspect("depth", words, "16-bit levels scaled by 255 / 65535", _deep(Special(words, apply)))
    yield from _alpha(base)
    yield from _channels(base)


_DEPTHS: tuple[tuple[str, Callable[[Array], Array]], ...] = (
    ("16-bit levels cut to their upper 8 bits (>> 8)", lambda v: (v.astype(np.int64) >> 8).astype(np.uint8)),
    ("16-bit levels clipped at 255", lambda v: np.clip(v, 0, 255).astype(np.uint8)),
    ("16-bit levels cut to their lower 8 bits", lambda v: (v.astype(np.int64) & 255).astype(np.uint8)),
    ("16-bit levels not scaled", lambda v: v.astype(np.float32)),
    ("16-bit levels divided by 256", lambda v: (v.astype(np.float64) / 256).astype(np.float32)),
    ("16-bit levels rounded to 8 bits", lambda v: np.rint(v.astype(np.float64) / 257).astype(np.uint8)),
)


def _alpha(base: Variation) -> Iterator[Suspect]:
    for step in named(base.steps, "alpha"):
        background = list(step.get("background", (255, 255, 255)))
        here = "alpha dropped" if step["alpha"] == "drop" else f"alpha composed on {background}"
        if step["alpha"] != "drop":
            yield Suspect("alpha", "alpha ignored", here, exchanged(step, {"alpha": "drop"}))
        for words, levels in (("black", [0, 0, 0]), ("white", [255, 255, 255])):
            if step["alpha"] == "drop" or background != levels:
                yield Suspect("alpha", f"alpha composed on {words}", here, exchanged(step, {"alpha": "composite", "background": levels}))


def _channels(base: Variation) -> Iterator[Suspect]:
    for step in named(base.steps, "channels"):
        if step["channels"] == "rgb":
            yield Suspect("colour", "BGR for RGB", "RGB", exchanged(step, {"channels": "bgr"}))
            yield Suspect("colour", "gray in all three channels", "RGB", exchanged(step, {"channels": "gray"}, {"channels": "rgb"}))
        if step["channels"] == "bgr":
            yield Suspect("colour", "RGB for BGR", "BGR", exchanged(step, {"channels": "rgb"}))
        if step["channels"] == "gray":
            for words, weights in GRAYS:
                for rounding, finish in _FINISHES:
                    special = Special(f"{words} {rounding}", _gray(weights, finish))
                    yield Suspect("colour", f"{words}, {rounding}", "gray by BT.601 weights as Pillow rounds them", exchanged(step, special))
            special = Special("opencv gray", _opencv_gray)
            yield Suspect("colour", "gray by BT.601 weights as OpenCV rounds them", "as Pillow rounds them", exchanged(step, special))
    yield Suspect("colour", "channels in reverse order (BGR for RGB) in the finished tensor", "RGB", finished_by(Special("reversed", _reversed)))


_FINISHES: tuple[tuple[str, Callable[[Array], Array]], ...] = (
    ("rounded to 8 bits", lambda v: np.clip(np.rint(v), 0, 255).astype(np.uint8)),
    ("cut to 8 bits", lambda v: np.clip(v + 1e-9, 0, 255).astype(np.uint8)),
    ("not rounded", lambda v: v.astype(np.float32)),
)


def _as_stored(variation: Variation) -> Variation | None:
    return replace(variation, upright=False) if variation.upright else None


def _deep(special: Special) -> Edit:
    return lambda variation: replace(variation, sixteen=special) if variation.sixteen is None else None


def _gray(weights: tuple[float, float, float], finish: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda image: finish(_weighted(image, weights))


def _weighted(array: Array, weights: tuple[float, float, float]) -> Array:
    """Gray of an opaque image; one that is gray already stays. What lies behind transparent pixels is the ``alpha`` step's."""
    image = _opaque(array)
    return image.astype(np.float64) if image.shape[2] == 1 else (image.astype(np.float64) @ np.array(weights))[:, :, np.newaxis]


def _opencv_gray(array: Array) -> Array:
    """Whole numbers on 8-bit levels, and floating point on others."""
    image = _opaque(array)
    if image.shape[2] == 1:
        return image
    if image.dtype != np.uint8:
        return _weighted(image, BT601).astype(np.float32)
    return np.asarray((image.astype(np.int64) @ np.array(OPENCV_GRAY) + (1 << 14)) >> 15, dtype=np.uint8)[:, :, np.newaxis]


def _opaque(array: Array) -> Array:
    image = image_of(array, "channels")
    image = image[:, :, :-1] if image.shape[2] in (2, RGB + 1) else image
    if image.shape[2] not in (1, RGB):
        raise ValueError(f"{image.shape[2]} channels")
    return image


def _reversed(tensor: Array) -> Array:
    if tensor.ndim == RGB and tensor.shape[-1] == RGB:
        return tensor[:, :, ::-1]
    if tensor.ndim == RGB and tensor.shape[0] == RGB:
        return tensor[::-1]
    raise ValueError(f"no three channels in shape {tensor.shape}")

"""Resizing in linear light: levels are decoded from sRGB, averaged as light, and coded again."""

from __future__ import annotations

from typing import Any

import numpy as np

from kpipe_stages.preprocessing.resample import resize

Array = np.ndarray[Any, np.dtype[Any]]

WITH_ALPHA = (2, 4)
TOE_CODED, TOE_LIGHT = 0.04045, 0.0031308
"""Where the straight piece of the transfer function ends."""


def to_light(levels: Array) -> Array:
    """Levels from 0 to 255 to linear light from 0 to 1, by the transfer function of IEC 61966-2-1 (sRGB), float64."""
    coded = levels.astype(np.float64) / 255.0
    return np.where(coded <= TOE_CODED, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)


def to_levels(light: Array) -> Array:
    """The inverse of `to_light`; float32, not rounded to whole levels."""
    clipped = np.clip(light.astype(np.float64), 0.0, 1.0)
    coded = np.where(clipped <= TOE_LIGHT, clipped * 12.92, 1.055 * clipped ** (1 / 2.4) - 0.055)
    return (coded * 255.0).astype(np.float32)


def resize_linear(image: Array, height: int, width: int, method: str, antialias: bool) -> Array:
    """Resize ``(h, w, c)`` with levels from 0 to 255 as light; float32. Colours are weighed by alpha where there is one, which stays linear."""
    alpha = image.shape[2] in WITH_ALPHA
    light = to_light(image[:, :, :-1] if alpha else image)
    if not alpha:
        return to_levels(resize(light.astype(np.float32), height, width, method, antialias))
    share = image[:, :, -1:].astype(np.float64) / 255.0
    premultiplied = np.concatenate([light * share, share], axis=2).astype(np.float32)
    made = resize(premultiplied, height, width, method, antialias).astype(np.float64)
    share = np.clip(made[:, :, -1:], 0.0, 1.0)
    colours = np.divide(made[:, :, :-1], share, out=np.zeros_like(made[:, :, :-1]), where=share > 0)
    return np.concatenate([to_levels(colours), (share * 255.0).astype(np.float32)], axis=2)

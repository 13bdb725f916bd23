"""What a product could run in place of the contract's steps, one fault a function. Tests copy this file beside a contract; it needs Pillow and NumPy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

Array = np.ndarray[Any, np.dtype[Any]]

SIDE = 16


def opened(path: str, *, upright: bool = True, background: int = 255) -> Image.Image:
    """A gray image, 8-bit or float; upright, opaque."""
    with Image.open(path) as file:
        file.load()
        image = ImageOps.exif_transpose(file) if upright else file.copy()
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image).astype(np.float64) / 257).astype(np.float32))
    if image.mode in ("P", "RGBA", "LA") or "transparency" in image.info:
        canvas = Image.new("RGBA", image.size, (background, background, background, 255))
        image = Image.alpha_composite(canvas, image.convert("RGBA"))
    return image if image.mode == "L" else image.convert("L")


def ink(levels: Any) -> Array:
    """From 0 (paper) to 1 (ink), as the model has learned it."""
    return np.asarray((255 - np.asarray(levels).astype(np.float32)) / np.float32(255), np.float32)[:, :, np.newaxis]


def faithful(path: str) -> Array:
    return ink(opened(path).resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def nearest(path: str) -> Array:
    return ink(opened(path).resize((SIDE, SIDE), Image.Resampling.NEAREST))


def plain(path: str) -> Array:
    """Two-point interpolation, as OpenCV and TensorFlow resize by default."""
    gray = np.asarray(opened(path)).astype(np.float64)
    rows, columns = ((np.arange(SIDE) + 0.5) * size / SIDE - 0.5 for size in gray.shape)
    across = np.stack([np.interp(columns, np.arange(gray.shape[1]), row) for row in gray])
    return ink(np.stack([np.interp(rows, np.arange(gray.shape[0]), column) for column in across.T]).T)


def sideways(path: str) -> Array:
    return ink(opened(path, upright=False).resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def on_black(path: str) -> Array:
    return ink(opened(path, background=0).resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def paper_is_one(path: str) -> Array:
    return np.float32(1) - faithful(path)


def darkened(path: str) -> Array:
    """A fault that is in no list."""
    return np.asarray(faithful(path) ** np.float32(1.8), np.float32)


def by_tensorflow(path: str) -> Array:
    import tensorflow as tf

    return ink(tf.image.resize(np.asarray(opened(path))[:, :, np.newaxis], (SIDE, SIDE), method="bilinear").numpy()[:, :, 0])


def flat(path: str) -> Array:
    return faithful(path).reshape(-1)


def torn(path: str) -> Array:
    if "d0119" in path:
        raise ValueError("the reader gave up")
    return faithful(path)


def unsteady(path: str) -> Array:
    """The same to seven digits, and never the same bits in two processes."""
    return np.asarray(faithful(path) + np.float32(1e-6) * (os.getpid() % 97 + 1), np.float32)


def counted(path: str) -> Array:
    with (Path(__file__).parent / "processes.txt").open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    return faithful(path)

"""Turn an 8 x 8 digit into the kind of file that a product receives: dark ink on white paper, in many formats and sizes.

Used twice: for the training data (in memory) and for the golden inputs (on disk).
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

Array = np.ndarray[Any, np.dtype[Any]]

KINDS = ("gray", "rgb", "rgba", "palette", "gray16", "jpeg", "jpeg_rgb", "jpeg_rotated")
SIZES = (8, 12, 16, 20, 28, 40, 64)
INK = (24, 32, 72)
"""Of the coloured renderings: a dark blue pen."""

_ORIENTATION = 0x0112
_ROTATED = 6  # the camera was turned: show it turned by 90 degrees clockwise


@dataclass(frozen=True)
class Rendering:
    """A way to store a digit."""

    kind: str
    """Of `KINDS`."""
    size: int
    """Height and width in pixels."""

    @property
    def suffix(self) -> str:
        """File name suffix."""
        return ".jpg" if self.kind.startswith("jpeg") else ".png"


def render(ink: Array, how: Rendering) -> bytes:
    """Return the file's bytes.

    Args:
        ink: ``(8, 8)``, 0 for paper to 16 for full ink.
        how: format and size.
    """
    amount = np.clip(_enlarged(ink, how.size) / 16.0, 0.0, 1.0)
    image, options = _drawn(amount, how.kind)
    stream = io.BytesIO()
    image.save(stream, "JPEG" if how.suffix == ".jpg" else "PNG", **options)
    return stream.getvalue()


def _enlarged(ink: Array, size: int) -> Array:
    return np.asarray(Image.fromarray(ink.astype(np.float32)).resize((size, size), Image.Resampling.BICUBIC))


def _drawn(amount: Array, kind: str) -> tuple[Image.Image, dict[str, Any]]:
    if kind.startswith("jpeg"):
        return _photographed(amount, kind)
    if kind == "gray16":
        return Image.fromarray(np.rint((1.0 - amount) * 65535.0).astype(np.uint16)), {}
    if kind == "rgba":  # black ink of varying density on nothing: what lies behind it is the product's choice
        ink = np.rint(amount * 255.0).astype(np.uint8)
        return Image.fromarray(np.dstack([np.zeros((*ink.shape, 3), np.uint8), ink])), {}
    if kind == "gray":
        return _gray(amount), {}
    return _coloured(amount).quantize(32) if kind == "palette" else _coloured(amount), {}


def _photographed(amount: Array, kind: str) -> tuple[Image.Image, dict[str, Any]]:
    if kind != "jpeg_rotated":
        return _coloured(amount) if kind == "jpeg_rgb" else _gray(amount), {"quality": 90}
    exif = Image.Exif()
    exif[_ORIENTATION] = _ROTATED
    return _gray(amount).transpose(Image.Transpose.ROTATE_90), {"quality": 90, "exif": exif}


def _gray(amount: Array) -> Image.Image:
    return Image.fromarray(_levels(amount, 0))


def _coloured(amount: Array) -> Image.Image:
    return Image.fromarray(np.dstack([_levels(amount, level) for level in INK]))


def _levels(amount: Array, ink: int) -> Array:
    """Levels from 255 (paper) to ``ink``."""
    return np.rint(255.0 - amount * (255.0 - ink)).astype(np.uint8)

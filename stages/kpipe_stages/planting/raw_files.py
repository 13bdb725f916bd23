"""Faults in raw image files: what a collector, an upload or another decoder makes of them. A whole golden folder is written anew."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.planting import ImpossibleError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

IMAGES = frozenset({".png", ".jpg", ".jpeg"})
ORIENTATION = 0x0112
"""EXIF's tag."""
SIXTEEN = ("I;16", "I;16L", "I;16B", "I;16N")


def _unturned(path: Path, image: Any) -> bool:
    """EXIF is lost: the picture lies as the sensor saw it."""
    if image.getexif().get(ORIENTATION, 1) == 1:
        return False
    image.load()
    image.save(path, quality=95, exif=b"")
    return True


def _eight_bit(path: Path, image: Any, byte: Callable[[Any], Any]) -> bool:
    from PIL import Image

    if image.mode not in SIXTEEN:
        return False
    Image.fromarray(byte(np.asarray(image).astype(np.uint16)).astype(np.uint8)).save(path)
    return True


def _high_byte(path: Path, image: Any) -> bool:
    """16 bits become their upper 8."""
    return _eight_bit(path, image, lambda values: values >> 8)


def _low_byte(path: Path, image: Any) -> bool:
    """16 bits become their lower 8, as a cast without a shift does."""
    return _eight_bit(path, image, lambda values: values & 0xFF)


EDITS: dict[str, Callable[[Path, Any], bool]] = {"unturned": _unturned, "high_byte": _high_byte, "low_byte": _low_byte}


def rewrite(golden: Path, target: Path, kind: str) -> None:
    """Copy a golden folder with every image that the fault is about written anew.

    Raises:
        ImpossibleError: there is none.
    """
    from PIL import Image

    shutil.copytree(golden, target, dirs_exist_ok=True)
    changed = 0
    for path in sorted(target.rglob("*")):
        if path.suffix.lower() in IMAGES:
            with Image.open(path) as image:
                changed += EDITS[kind](path, image)
    if not changed:
        raise ImpossibleError("no golden file is of that kind")

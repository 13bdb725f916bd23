"""What a value in a contract may be: each check returns the expectation that the value breaks, or ""."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from kpipe_stages.preprocessing.cast import DTYPES

Check = Callable[[Any], str]

MAX_SIDE = 32_768
MAX_AREA = 64_000_000
MAX_LENGTH = 64_000_000
"""Positions on one axis."""
WHITE = 255
PLANE = 2
"""Axes of one channel."""
RGB = 3
BOX = 4
POSITIONS = ("center", "top", "bottom", "left", "right", "top_left", "top_right", "bottom_left", "bottom_right")


def is_number(value: Any) -> bool:
    """A finite number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def number(value: Any) -> str:
    """Any finite number."""
    return "" if is_number(value) else "a finite number"


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
    fits = len(levels) in (1, RGB) and all(is_number(v) and 0 <= v <= WHITE for v in levels)
    return "" if fits else "a level from 0 to 255, or three of them"


def statistics(value: Any) -> str:
    """``{ mean = [..], std = [..] }``."""
    if not isinstance(value, dict) or set(value) != {"mean", "std"}:
        return "{ mean = [..], std = [..] }"
    lists = [v if isinstance(v, list | tuple) else [v] for v in (value["mean"], value["std"])]
    if not all(v and all(is_number(n) for n in v) for v in lists) or len(lists[0]) != len(lists[1]):
        return "mean and std as finite numbers, one each or one a channel, equally many"
    return "" if all(n > 0 for n in lists[1]) else "a std above zero"


def one_of(*names: str) -> Callable[[Any], str]:
    """One of some words."""
    return lambda value: "" if isinstance(value, str) and value in names else f"one of {', '.join(names)}"


def natural(value: Any) -> str:
    """A length, or a number of something."""
    return "" if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_LENGTH else f"a whole number from 1 to {MAX_LENGTH:,}"


def whole(value: Any) -> str:
    """Any whole number that 64 bits hold."""
    return "" if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63 else "a whole number"


def not_negative(value: Any) -> str:
    """Zero or more."""
    return "" if is_number(value) and value >= 0 else "a finite number, 0 or more"


def positive(value: Any) -> str:
    """More than zero."""
    return "" if is_number(value) and value > 0 else "a finite number above 0"


def text(value: Any) -> str:
    """Words."""
    return "" if isinstance(value, str) and value else "a text"


def fill(value: Any) -> str:
    """What a pad is filled with: one number, or one a channel."""
    values = value if isinstance(value, list | tuple) else [value]
    return "" if values and all(is_number(v) for v in values) else "a finite number, or one for each channel"


def region(value: Any) -> str:
    """``"center"``, or ``[top, left, height, width]``."""
    if value == "center":
        return ""
    numbers = isinstance(value, list | tuple) and len(value) == BOX and all(isinstance(v, int) and not isinstance(v, bool) for v in value)
    fits = numbers and value[0] >= 0 and value[1] >= 0 and not size(list(value[2:]))
    return "" if fits else '"center" with size = [height, width], or [top, left, height, width] in pixels'


def shape(value: Any) -> str:
    """Axes; one of them may be -1."""
    listed = isinstance(value, list | tuple) and len(value) <= 8 and all(isinstance(v, int) and not isinstance(v, bool) for v in value)  # noqa: PLR2004
    fits = listed and all(v >= 1 or v == -1 for v in value) and list(value).count(-1) <= 1
    return "" if fits else "sizes of axes, of which one may be -1, such as [1]"


def shape_of_frames(value: Any) -> str:
    """Length and hop."""
    fits = isinstance(value, list | tuple) and len(value) == PLANE and not any(natural(v) for v in value)
    return "" if fits else "[length, hop], whole numbers above 0"


def one_of_dtypes(value: Any) -> str:
    """A dtype that tensors may have."""
    return one_of(*DTYPES)(value)

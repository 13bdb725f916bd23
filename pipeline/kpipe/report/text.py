"""Words and numbers as every report writes them: what is not finite stays visible, what is hostile becomes harmless."""

from __future__ import annotations

import math
import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ABSENT = "-"
"""Stands for what was not measured; never for zero."""

_GROUPED = (1e3, 1e6)
"""Between these a number is written with its digits in groups."""
_MINUTES_FROM = 99.5
"""Seconds."""
_BARELY_OVER = 1.01
"""Three digits would print 1.0003 as ``1 x``, which reads as passed."""
_HARDLY_USED = 1e-3

_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def _visible(char: str, *, multiline: bool) -> str:
    if char == "\t" or (char == "\n" and not multiline):
        return " "
    if char == "\n" or unicodedata.category(char) not in _ESCAPED_CATEGORIES:
        return char
    return char.encode("unicode_escape").decode("ascii")


def clean(text: object, *, multiline: bool = False) -> str:
    r"""Text that is legal in XML, encodable as UTF-8 and unable to steer a terminal or the direction of writing.

    Control, format, surrogate and unassigned characters become visible escapes (``\x1b``).

    Args:
        text: anything with a ``str``.
        multiline: keep line feeds; otherwise they become spaces.
    """
    raw = str(text)
    if raw.isascii() and raw.isprintable():
        return raw
    return "".join(_visible(char, multiline=multiline) for char in raw.replace("\r\n", "\n"))


def shorten(text: object, limit: int) -> str:
    """``text`` cleaned and at most ``limit`` characters long; what was cut is in the middle, where names differ least."""
    whole = clean(text)
    if len(whole) <= limit:
        return whole
    tail = (limit - 3) // 3
    return f"{whole[: limit - 3 - tail]}...{whole[len(whole) - tail :]}"


def number(value: float | None) -> str:
    """Three significant digits; ``NaN``, ``inf`` and ``-inf`` by name."""
    if value is None:
        return ABSENT
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return f"{value:,.0f}" if _GROUPED[0] <= abs(value) < _GROUPED[1] else f"{value:.3g}"


def score(value: float) -> str:
    """A score with enough digits to tell a near tie: ``repr`` of a float32 has nine."""
    return f"{value:.7g}" if math.isfinite(value) else number(value)


def seconds(value: float | None) -> str:
    """A duration in the unit that suits it."""
    if value is None or not math.isfinite(value):
        return number(value)
    if value >= _MINUTES_FROM:
        return f"{int(value + 0.5) // 60} min {int(value + 0.5) % 60:02d} s"
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if value >= scale * 0.9995:
            return f"{value / scale:.3g} {unit}"
    return f"{value * 1e6:.3g} us"


def size(value: float | None) -> str:
    """Bytes in decimal units."""
    if value is None or not math.isfinite(value):
        return number(value)
    for scale, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= scale * 0.9995:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f} B"


def portion(value: float) -> str:
    """A part of a whole: ``12.5 %``."""
    return f"{value * 100:.3g} %" if math.isfinite(value) else number(value)


def share(factor: float) -> str:
    """How much of the tolerance a difference used up: ``3.1 %``, ``4.2 x``."""
    if not math.isfinite(factor):
        return number(factor)
    if factor == 0:
        return "exact"
    if factor > 1:
        return f"{factor:.3g} x" if factor >= _BARELY_OVER else f"{factor:.6g} x"
    return f"{factor * 100:.2g} %" if factor >= _HARDLY_USED else "< 0.1 %"


def count(amount: int, one: str, many: str = "") -> str:
    """``1 target``, ``7 targets``."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"


def utc(stamp: str) -> str:
    """An ISO 8601 time as ``2026-03-02T10:15:00Z``; empty where it is none. A time without an offset counts as UTC."""
    try:
        parsed = datetime.fromisoformat(stamp)
    except ValueError:
        return ""
    parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    return parsed.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def badness(value: float) -> float:
    """A key to sort by: NaN is worse than any number."""
    return math.inf if math.isnan(value) else value


def listing(words: Iterable[object]) -> str:
    """Words joined by commas."""
    return ", ".join(str(w) for w in words)

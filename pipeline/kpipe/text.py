"""Others' words made fit to be shown."""

from __future__ import annotations


def first_line(text: str) -> str:
    """The first line that says something, shortened."""
    return next((line.strip()[:400] for line in text.splitlines() if line.strip()), "no message")


def printable(text: str) -> str:
    """Others' words, such as names of files, without what commands a terminal or isn't UTF-8."""
    return "".join(c if c.isprintable() else "?" for c in text)

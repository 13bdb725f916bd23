"""Shortening what frameworks say."""

from __future__ import annotations


def first_line(text: str) -> str:
    """The first line that says something, shortened."""
    return next((line.strip()[:400] for line in text.splitlines() if line.strip()), "no message")

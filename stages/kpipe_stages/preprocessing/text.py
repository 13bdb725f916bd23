"""Decode a text file: strict UTF-8, one string."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.preprocessing.checks import one_of
from kpipe_stages.preprocessing.errors import PreprocessError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe_stages.preprocessing.checks import Check

Array = np.ndarray[Any, np.dtype[Any]]

MAX_BYTES = 2**20
BOM = "\ufeff"
OPTIONS: dict[str, tuple[Check, Any]] = {"bom": (one_of("refuse", "drop", "keep"), "refuse"), "final_newline": (one_of("keep", "drop"), "keep")}


def decode_text(data: bytes, where: str, options: Mapping[str, Any]) -> Array:
    """The text of a file as a single string, shape ``()``. Line breaks are kept as they are.

    Raises:
        PreprocessError: not UTF-8, a byte order mark that nothing is said of, a NUL character, or more than 1 MiB.
    """
    if len(data) > MAX_BYTES:
        raise PreprocessError("decode", f"{where}: {len(data):,} bytes of text", f"at most {MAX_BYTES:,}", "Cut the text.")
    try:
        words = data.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{data[error.start]:02x} at position {error.start}"
        raise PreprocessError("decode", f"{where}: {found} is no UTF-8: {error.reason}", "UTF-8 text", "Save it as UTF-8.") from error
    if words.startswith(BOM) and options["bom"] != "keep":
        if options["bom"] == "refuse":
            raise PreprocessError(
                "decode", f"{where} begins with a byte order mark", "none", 'Save it without, or say read = { bom = "drop" } or "keep".'
            )
        words = words.removeprefix(BOM)
    if "\0" in words:
        raise PreprocessError("decode", f"{where} has a NUL character at position {words.index(chr(0))}", "text", "Save it as UTF-8.")
    if options["final_newline"] == "drop":
        words = words.removesuffix("\n").removesuffix("\r")
    return np.array(words, dtype=np.str_)

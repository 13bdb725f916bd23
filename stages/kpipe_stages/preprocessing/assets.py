"""Files that an input table names beside its code or for its decoder: a vocabulary, a tokenizer, columns with their statistics."""

from __future__ import annotations

import hashlib
from pathlib import PurePath
from typing import TYPE_CHECKING

from kpipe_stages.preprocessing.errors import PreprocessError
from kpipe_stages.preprocessing.files import read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CODE = "KP112"
"""The finding of a file of the contract's that can't be used."""
MAX_BYTES = 512 * 2**20


def load_files(files: Mapping[str, str], input_name: str) -> dict[str, bytes]:
    """Read named files once, each held to its digest where one is given.

    Args:
        files: absolute path to SHA-256, empty for any.
        input_name: for messages.

    Returns:
        Name without folder to content.

    Raises:
        PreprocessError: a file is missing, or another one than when the run began.
    """
    found = {}
    for path, expected in files.items():
        try:
            data = read_bytes(path, MAX_BYTES)
        except PreprocessError as error:
            what = f"input {input_name!r}: {error.what}"
            raise PreprocessError("read", what, "the file that the contract names", "Restore it, or mend files.", CODE) from error
        digest = hashlib.sha256(data).hexdigest()
        if expected and digest != expected:
            raise PreprocessError("read", f"{path} has SHA-256 {digest}", f"{expected}, as when the run began", "Run the validation again.", CODE)
        found[PurePath(path).name] = data
    return found


def file_text(name: str, files: Mapping[str, bytes], step: str, max_bytes: int) -> str:
    """The UTF-8 text of a named file.

    Raises:
        PreprocessError: it isn't among them, isn't UTF-8, has a byte order mark, or is too large.
    """
    data = files.get(PurePath(name).name)
    if data is None:
        raise PreprocessError(step, f"{name!r} is none of the input's files ({', '.join(files) or 'none'})", "one of files", "Mend files.", "KP104")
    if len(data) > max_bytes:
        raise PreprocessError(step, f"{name} has {len(data):,} bytes", f"at most {max_bytes:,}", "Name the right file.", "KP104")
    try:
        words = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PreprocessError(step, f"{name} isn't UTF-8 at byte {error.start}", "UTF-8 text", "Save it as UTF-8.", "KP104") from error
    if words.startswith("\ufeff"):
        raise PreprocessError(
            step, f"{name} begins with a byte order mark", "UTF-8 without one", "Save it without: it would be part of a token.", "KP104"
        )
    return words


def twice_named(files: Sequence[str]) -> str:
    """A name that two files share; empty where none do."""
    names = [PurePath(file.replace("\\", "/")).name for file in files]
    return next((name for name in names if names.count(name) > 1), "")

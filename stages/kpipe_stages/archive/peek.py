"""What kind of file this is, by its first bytes."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe_stages.archive.collecting import shown

if TYPE_CHECKING:
    import os
    from typing import BinaryIO

    from kpipe_stages.archive.collecting import Collector

ZIP = "a zip file"
HDF5 = "an HDF5 file"
EMPTY = "an empty file"
FOLDER = "a folder"
MISSING = "missing"
OTHER = "not a file of a known kind"

HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MAGIC = (
    (0, b"PK\x03\x04", ZIP),
    (0, b"PK\x05\x06", ZIP),
    (0, b"PK\x07\x08", "one part of a split zip file"),
    (0, HDF5_SIGNATURE, HDF5),
    (4, b"TFL3", "a LiteRT model"),
    (0, b"\x1f\x8b", "a gzip file"),
    (257, b"ustar", "a tar file"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z file"),
    (0, b"BZh", "a bzip2 file"),
    (0, b"\xfd7zXZ\x00", "an xz file"),
    (0, b"\x28\xb5\x2f\xfd", "a Zstandard file"),
    (0, b"\x93NUMPY", "a numpy array"),
    (0, b"\x89PNG", "a PNG image"),
    (0, b"version https://git-lfs", "a Git LFS pointer, not the file it points to"),
    *((0, b"\x80" + bytes([version]), "a Python pickle") for version in (2, 3, 4, 5)),
)


def peek(path: str | os.PathLike[str]) -> str:
    """Say what ``path`` is: ``a zip file`` for what may be a ``.keras`` file, else what it looks like. Reads 512 bytes at most."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return MISSING
    if stat.S_ISDIR(mode):
        return FOLDER
    if not stat.S_ISREG(mode):
        return "not a regular file"
    try:
        with Path(path).open("rb") as file:
            return kind(file.read(512))
    except OSError as error:
        return f"unreadable ({error.strerror})"


def kind(head: bytes) -> str:
    """The kind of file that begins with ``head``."""
    if not head:
        return EMPTY
    return next((name for offset, magic, name in _MAGIC if head[offset : offset + len(magic)] == magic), OTHER)


_REMEDIES = {
    HDF5: "Load it with keras.models.load_model where you trust it, and save it again with model.save('model.keras').",
    FOLDER: "Name the .keras file itself; a SavedModel folder can't be validated as a candidate.",
    MISSING: "Check the path.",
    EMPTY: "Save the model again; the disk may have been full.",
}


def open_candidate(path: str, collector: Collector) -> BinaryIO:
    """Open what may be a ``.keras`` file.

    Raises:
        StageError: KP001, it is something else.
    """
    found = peek(path)
    if found == ZIP:
        return Path(path).open("rb")
    renamed = " renamed to .keras" if found == HDF5 and str(path).endswith(".keras") else ""
    cause = f"The candidate is {found}{renamed}; a .keras file is a zip file."
    if found == MISSING:
        cause = f"There is no file '{shown(Path(path).name)}'."
    remedy = _REMEDIES.get(found, "Name a file that Keras 3 wrote with model.save('model.keras').")
    raise collector.stop("KP001", cause, remedy, place=Path(path).name, found=found)

"""SHA-256 of a file or of a folder. Standard library only."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence


def digest(path: str | os.PathLike[str], companions: Sequence[str | os.PathLike[str]] = ()) -> str:
    """Return the SHA-256 (hex) of ``path`` and of the files that belong to it.

    A file's alone is that of its bytes. A folder's, or that of a file with ``companions`` (the ``.bin`` of an OpenVINO ``.xml``, the external
    data of an ONNX file), is that of one line per file, ``<digest> <bytes of the name> <name>``, sorted by the name relative to the folder
    with ``/`` between the parts; empty folders don't count.

    Raises:
        OSError: nothing is there, or it can't be read.
        ValueError: the folder holds a link or something else that is neither a file nor a folder.
    """
    path = Path(path)
    if not path.is_dir() and not companions:
        return _file_digest(path)
    total = hashlib.sha256()
    for name, file in _parts(path, companions):
        total.update(f"{_file_digest(file)} {len(name.encode())} {name}\n".encode())
    return total.hexdigest()


def size(path: str | os.PathLike[str], companions: Sequence[str | os.PathLike[str]] = ()) -> int:
    """Bytes of a file and its companions, or of all files below a folder."""
    return sum(file.stat().st_size for _, file in _parts(Path(path), companions))


def _parts(path: Path, companions: Sequence[str | os.PathLike[str]]) -> list[tuple[str, Path]]:
    if path.is_dir():
        return files_below(path)
    return sorted((file.relative_to(path.parent).as_posix(), file) for file in (path, *map(Path, companions)))


def files_below(folder: Path) -> list[tuple[str, Path]]:
    """Every file below ``folder`` with its relative name, sorted by name.

    Raises:
        ValueError: there is a link or a special file: what it stands for isn't part of the folder.
    """
    found = []
    for file in folder.rglob("*"):
        if file.is_symlink() or not (file.is_file() or file.is_dir()):
            raise ValueError(f"{file} is neither a plain file nor a folder. Copy what it stands for in its place.")
        if file.is_file():
            found.append((file.relative_to(folder).as_posix(), file))
    return sorted(found)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

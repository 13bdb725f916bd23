"""The files of a bundle as they lie there, against its manifest."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpipe.golden import sha256_of
from kpipe.signoff.manifest import KIND, MANIFEST, SIGNATURE, VERSION, FileEntry, Manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """One file that is not as it was sealed."""

    path: str
    what: str
    """``altered``, ``missing``, ``added``, ``a link``, ``neither a file nor a folder``, ``unreadable``."""
    detail: str = ""


@dataclass(frozen=True)
class Found:
    """One thing below a folder."""

    name: str
    kind: str
    """``file``, ``folder``, ``link`` or ``other``; links are never followed."""


def below(folder: Path, prefix: str = "") -> Iterator[Found]:
    """Everything below a folder, links as links.

    Raises:
        OSError: a folder can't be listed.
    """
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            name = f"{prefix}{entry.name}"
            if entry.is_symlink():
                yield Found(name, "link")
            elif entry.is_dir():
                yield Found(name, "folder")
                yield from below(folder / entry.name, f"{name}/")
            else:
                yield Found(name, "file" if entry.is_file() else "other")


def take_stock(folder: Path) -> Manifest:
    """The manifest of what lies in a folder.

    Raises:
        OSError: a file can't be read.
        ValueError: there is a link or a special file.
    """
    found = list(below(folder))
    if odd := [f.name for f in found if f.kind in {"link", "other"}]:
        raise ValueError(f"{odd[0]} is neither a plain file nor a folder")
    files = {f.name: _entry(folder / f.name) for f in found if f.kind == "file" and f.name not in {MANIFEST, SIGNATURE}}
    return Manifest(KIND, VERSION, files, tuple(sorted(_empty(found))))


def _entry(path: Path) -> FileEntry:
    return FileEntry(sha256_of(path), path.stat().st_size)


def _empty(found: list[Found]) -> set[str]:
    """Folders that nothing lies in."""
    parents = {f.name.rpartition("/")[0] for f in found}
    return {f.name for f in found if f.kind == "folder" and f.name not in parents}


def compare(folder: Path, manifest: Manifest) -> list[Fault]:
    """What of a folder isn't as its manifest says, each by name."""
    try:
        found = {f.name: f for f in below(folder)}
    except OSError as error:
        return [Fault(str(error.filename or folder), "unreadable", error.strerror or "")]
    faults = [fault for name, entry in manifest.files.items() if (fault := _file_fault(folder, name, entry, found.get(name)))]
    faults += [Fault(f"{name}/", "missing") for name in manifest.folders if name not in found or found[name].kind != "folder"]
    return sorted([*faults, *_added(manifest, found)], key=lambda fault: fault.path)


def _file_fault(folder: Path, name: str, entry: FileEntry, found: Found | None) -> Fault | None:
    if found is None:
        return Fault(name, "missing")
    if found.kind != "file":
        return Fault(name, {"link": "a link", "folder": "a folder"}.get(found.kind, "neither a file nor a folder"), "a file was sealed")
    try:
        now = _entry(folder / name)
    except OSError as error:
        return Fault(name, "unreadable", error.strerror or "")
    return Fault(name, "altered", f"SHA-256 {entry.sha256}, now {now.sha256}") if now != entry else None


def _added(manifest: Manifest, found: dict[str, Found]) -> Iterator[Fault]:
    """What no entry speaks of: files, links, folders that were not there."""
    known = {MANIFEST, SIGNATURE, *manifest.files, *manifest.folders}
    parents = {parent for name in known for parent in _parents(name)}
    for name, one in found.items():
        if one.kind == "folder" and name not in known | parents:
            yield Fault(f"{name}/", "added")
        elif one.kind != "folder" and (name not in known or name in manifest.folders or (name in {MANIFEST, SIGNATURE} and one.kind != "file")):
            yield Fault(name, "added" if one.kind == "file" else "a link" if one.kind == "link" else "neither a file nor a folder")


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]

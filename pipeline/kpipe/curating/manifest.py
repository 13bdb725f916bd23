"""The manifest as a file that people keep by hand: read whole, added to at its end, its comments left alone. Pure but for reading."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT

from kpipe.errors import GoldenError, UsageError
from kpipe.golden import MANIFEST, MANIFEST_VERSION, Manifest, parse_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kpipe.golden import Entry

STAGING = ".kpipe-adding"
"""Folder inside a set where files wait until they belong to it (`kpipe.curating.placing`)."""

LONGEST_NAME = 100
"""Characters of a file's name or an id; the manifest takes 200."""


@dataclass(frozen=True)
class ManifestFile:
    """A set's manifest as it lies there."""

    folder: Path
    """Absolute."""
    data: bytes | None
    """Its bytes; None where the set is new."""
    manifest: Manifest

    @property
    def path(self) -> Path:
        """Where it lies, or will."""
        return self.folder / MANIFEST

    @property
    def sha256(self) -> str:
        """What ``[golden] manifest_sha256`` would hold; empty where the set is new."""
        return hashlib.sha256(self.data).hexdigest() if self.data is not None else ""

    @property
    def text(self) -> str:
        """Its text; for a new set the least that is a manifest."""
        return self.data.decode("utf-8") if self.data is not None else f"version = {MANIFEST_VERSION}\n"

    def owners(self) -> dict[str, str]:
        """SHA-256 of every listed file to the id that lists it (the first, where several do)."""
        found: dict[str, str] = {}
        for entry in self.manifest.golden:
            for digest in digests_of(entry):
                found.setdefault(digest, entry.id)
        return found

    def listed(self) -> set[str]:
        """The files of all entries, relative to the folder."""
        return {name for entry in self.manifest.golden for name in files_of(entry)}


def files_of(entry: Entry) -> tuple[str, ...]:
    """The files that an entry names."""
    return tuple((entry.files or {}).values()) + ((entry.file,) if entry.file is not None else ())


def digests_of(entry: Entry) -> tuple[str, ...]:
    """The SHA-256 of each of its files, by input name."""
    return (entry.sha256,) if isinstance(entry.sha256, str) else tuple(entry.sha256[name] for name in sorted(entry.sha256))


def read_manifest(folder: Path, *, new: bool = False) -> ManifestFile:
    """Read a set's manifest.

    Args:
        folder: the set.
        new: a folder that isn't there, has no file, or holds what an addition that was killed left, is a set without an entry.

    Raises:
        UsageError: there is no such folder, or a file in its place.
        GoldenError: the folder has no manifest, or one that can't be read.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"golden set {folder} is a file. Expected the folder that holds {MANIFEST}.")
    path = folder.resolve() / MANIFEST
    try:
        data = path.read_bytes()
    except OSError as error:
        if new and not path.exists() and ((folder / STAGING).is_dir() or not any(item.is_file() for item in folder.rglob("*"))):
            return ManifestFile(folder.resolve(), None, Manifest(version=1))
        if not folder.exists():
            raise UsageError(
                f"golden set {folder} does not exist. Check the path; 'kpipe golden add' or 'kpipe init --raw DIR' makes one."
            ) from error
        raise GoldenError(
            f"golden set {folder}: {MANIFEST} can't be read ({error.strerror}). Expected a folder with a manifest, or a new or empty one to add to."
        ) from error
    return ManifestFile(folder.resolve(), data, parse_manifest(data, path))


def walk(top: Path, *, leave_out: Path | None = None) -> Iterator[Path]:
    """Everything below a folder that isn't a folder of its own, by name; hidden things are left out, and links to folders aren't followed.

    Raises:
        GoldenError: a folder can't be read, so what lies in it is not known.
    """

    def stop(error: OSError) -> None:
        raise GoldenError(f"{error.filename} can't be read ({error.strerror}), so what lies in it is not known. See to its permissions.") from error

    for place, folders, files in os.walk(top, onerror=stop):
        here = Path(place)
        linked = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in linked and here / name != leave_out)
        yield from (here / name for name in sorted([*files, *linked]) if not name.startswith("."))


def with_entries(before: ManifestFile, entries: Sequence[Mapping[str, Any]]) -> str:
    """The manifest's text with more entries at its end, everything else as it stands.

    Raises:
        GoldenError: the text is written in a way that can't be added to; what the edit would give was read again, and isn't what it should be.
    """
    try:
        document = tomlkit.parse(before.text)
        known = document.get("golden")
        if known is None or (not isinstance(known, AoT) and not known):
            document["golden"] = tomlkit.aot()
        for values in entries:
            _append(document["golden"], values)
        text = tomlkit.dumps(document)
        after = parse_manifest(text.encode("utf-8"), before.path)
    except (TOMLKitError, AttributeError, TypeError) as error:
        raise GoldenError(f"{before.path} can't be added to: {error}. Write its entries as [[golden]] tables.") from error
    wanted = {"version": MANIFEST_VERSION, "golden": [dict(values) for values in entries]}
    added = parse_manifest(tomlkit.dumps(wanted).encode("utf-8"), before.path).golden
    if after != before.manifest.model_copy(update={"golden": (*before.manifest.golden, *added)}):
        raise GoldenError(f"{before.path} is written in a way that can't be added to. Write its entries as [[golden]] tables at its end.")
    return text


def _append(golden: Any, values: Mapping[str, Any]) -> None:
    table = tomlkit.table() if isinstance(golden, AoT) else tomlkit.inline_table()
    for key, value in values.items():
        table[key] = value
    if isinstance(golden, AoT):
        table.trivia.indent = "\n"  # an empty line before each, as people write them
    golden.append(table)


def plain_name(name: str) -> str:
    """A file's name without what a shell, a TOML file or another system would trip over; its suffix is kept."""
    plain = re.sub(r"[^\w.+-]", "_", name, flags=re.ASCII).lstrip(".-") or "input"
    stem, suffix = Path(plain).stem, Path(plain).suffix[:20]
    return stem[: LONGEST_NAME - len(suffix)] + suffix


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """``wanted``, or with a number before its suffix where that is taken, on systems that don't tell cases apart too."""
    known = {name.casefold() for name in taken}
    if wanted.casefold() not in known:
        return wanted
    path = Path(wanted)
    number = 2
    while f"{path.stem}-{number}{path.suffix}".casefold() in known:
        number += 1
    return f"{path.stem}-{number}{path.suffix}"

"""``bundle.json``: every file of a bundle with its digest. The digest of these bytes is the bundle's id. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import PurePosixPath

from kpipe.errors import BundleError
from kpipe_stages.codec import CodecError, decode, encode

MANIFEST = "bundle.json"
SIGNATURE = "signature.json"
"""Lies beside the manifest and is listed in none: it is made of the manifest."""

BUNDLES = "bundles"
"""The folder of a store that holds them."""

KIND = "kpipe bundle"
VERSION = 1


@dataclass(frozen=True)
class FileEntry:
    """One file."""

    sha256: str
    size: int
    """Bytes."""


@dataclass(frozen=True)
class Manifest:
    """All that a bundle holds."""

    kind: str
    version: int
    files: dict[str, FileEntry]
    """Path below the bundle, with ``/`` between the parts."""
    folders: tuple[str, ...]
    """Folders that hold no file."""


def document(value: object) -> bytes:
    """A value as the one text that stands for it: sorted keys, a line feed at the end."""
    return (json.dumps(encode(value), ensure_ascii=False, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


def id_of(data: bytes) -> str:
    """A bundle's id: SHA-256 of its manifest, 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def parse(data: bytes, where: str) -> Manifest:
    """Read a manifest.

    Raises:
        BundleError: it is none, of another version, not in its own form, or names a path outside the bundle.
    """
    try:
        manifest = decode(Manifest, json.loads(data))
    except (CodecError, ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise BundleError(f"{where}: {MANIFEST} can't be read: {error}. It was altered, or this is no bundle of kpipe.") from error
    if manifest.kind != KIND or manifest.version != VERSION:
        raise BundleError(
            f"{where}: {MANIFEST} says {manifest.kind!r} of version {manifest.version}; this kpipe reads {KIND!r} of version {VERSION}. Use the kpipe that sealed it."
        )
    if document(manifest) != data:
        raise BundleError(f"{where}: {MANIFEST} was altered: it isn't in the form that kpipe writes.")
    if outside := [name for name in (*manifest.files, *manifest.folders) if not is_inside(name)]:
        raise BundleError(f"{where}: {MANIFEST} names {outside[0]!r}, which is no path below the bundle. It was altered.")
    return manifest


def is_inside(name: str) -> bool:
    """Whether a name is a plain relative path, and not the manifest's own or the signature's."""
    path = PurePosixPath(name)
    return name == str(path) and not path.is_absolute() and bool(path.parts) and ".." not in path.parts and name not in {MANIFEST, SIGNATURE, "."}

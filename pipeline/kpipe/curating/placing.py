"""New files and their entries put into a golden set: all of them or none.

Files are copied into a staging folder inside the set, checked there, given their names as hard links, and then the manifest is replaced in one
step: that step is the moment at which they belong to the set. Whatever fails before it is taken back. A kill leaves the set and its manifest
whole; the staging folder that it leaves behind says which files were under way, and the next command that adds takes them back.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kpipe.curating.manifest import STAGING, ManifestFile
from kpipe.errors import GoldenError
from kpipe.golden import MANIFEST, sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def held_set(folder: Path) -> Iterator[None]:
    """Make the folder if it isn't there, and keep every other kpipe from adding to it. A folder that stays empty is gone afterwards.

    Raises:
        GoldenError: it can't be written, or another kpipe is adding to it.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        _lock(handle, folder)
        yield
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):  # it holds the new set
            for path in made:
                path.rmdir()


def _lock(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise GoldenError(f"golden set {folder}: another kpipe is adding to it. Wait for its end; nothing was changed.") from error
    except OSError as error:
        raise GoldenError(f"golden set {folder} can't be locked: {error.strerror}. Copy it to a file system that has locks.") from error


def take_back(before: ManifestFile) -> list[str]:
    """Remove what an addition that was killed left behind; the files that are gone, relative to the set. Needs `held_set`."""
    staging = before.folder / STAGING
    gone = []
    try:
        for staged in sorted(path for path in staging.rglob("*") if path.is_file()):
            name = staged.relative_to(staging).as_posix()
            placed = before.folder / name
            if name not in before.listed() and placed.is_file() and sha256_of(placed) == sha256_of(staged):
                placed.unlink()
                gone.append(name)
        if staging.exists():
            shutil.rmtree(staging)
    except OSError as error:
        raise _unwritable(before.folder, error) from error
    return gone


@dataclass
class Staging:
    """Files on their way into a set."""

    before: ManifestFile
    names: list[str] = field(default_factory=list)
    """Relative to the set, as they will be."""

    @property
    def folder(self) -> Path:
        """Where they wait, laid out as the set is."""
        return self.before.folder / STAGING

    def path(self, name: str) -> Path:
        """Where one of them waits."""
        return self.folder / name

    def take(self, source: Path, name: str) -> str:
        """Copy a file in; the SHA-256 of the copy.

        Raises:
            GoldenError: it can't be read or copied.
        """
        target = self.path(name)
        digest = hashlib.sha256()
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with source.open("rb") as old, target.open("xb") as new:
                while block := old.read(2**20):
                    digest.update(block)
                    new.write(block)
                new.flush()
                os.fsync(new.fileno())
        except OSError as error:
            raise GoldenError(f"{source} can't be copied into {self.before.folder}: {error.strerror}. Nothing was changed.") from error
        self.names.append(name)
        return digest.hexdigest()

    def leave(self, name: str) -> None:
        """Take a file out again: the set holds its bytes already."""
        self.path(name).unlink()
        self.names.remove(name)

    def commit(self, text: str) -> str:
        """Give the files their names and replace the manifest; its new SHA-256.

        Raises:
            GoldenError: a name is taken, the manifest changed meanwhile, or the folder can't be written; nothing was changed.
        """
        data = text.encode("utf-8")
        placed: list[Path] = []
        try:
            for name in self.names:
                target = self.before.folder / name
                placed += _with_parents(target, self.before.folder)
                _place(self.path(name), target)
                placed.append(target)  # a link that was made but isn't here yet is known by its inode
            self._replace_manifest(data)
        except BaseException as error:  # Ctrl-C too: all or nothing, and the error goes on
            if not _holds(self.before.path, data):
                linked = [self.before.folder / name for name in self.names if _same(self.path(name), self.before.folder / name)]
                _remove([*placed, *linked])
            if isinstance(error, OSError):
                raise _unwritable(self.before.folder, error) from error
            raise
        return hashlib.sha256(data).hexdigest()

    def _replace_manifest(self, data: bytes) -> None:
        path = self.before.path
        scratch = self.folder / f"{MANIFEST}.new"
        scratch.parent.mkdir(exist_ok=True)
        with scratch.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists() != (self.before.data is not None) or (self.before.data is not None and not _holds(path, self.before.data)):
            raise GoldenError(f"{path} was changed by somebody else meanwhile. Nothing was added; run the command again.")
        if path.exists():
            shutil.copymode(path, scratch)
        scratch.replace(path)


@contextlib.contextmanager
def staging(before: ManifestFile) -> Iterator[Staging]:
    """A staging folder for as long as it is needed."""
    shelf = Staging(before)
    try:
        yield shelf
    finally:
        shutil.rmtree(shelf.folder, ignore_errors=True)


def _place(staged: Path, target: Path) -> None:
    try:
        os.link(staged, target)
    except FileExistsError as error:
        raise GoldenError(f"{target} is there already and was not overwritten. Nothing was added; run the command again.") from error
    except OSError:  # a file system without hard links: a copy that overwrites nothing either
        with staged.open("rb") as old, target.open("xb") as new:
            try:
                shutil.copyfileobj(old, new)
            except BaseException:
                target.unlink()
                raise


def _with_parents(target: Path, top: Path) -> list[Path]:
    """Make the folders below ``top`` that a file needs; those that had to be made, outermost first."""
    made = [path for path in reversed(target.parents) if path.is_relative_to(top) and not path.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    return made


def _remove(placed: list[Path]) -> None:
    for path in reversed(placed):
        with contextlib.suppress(OSError):  # the first fault is the one to tell
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink()


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False


def _unwritable(folder: Path, error: OSError) -> GoldenError:
    return GoldenError(f"golden set {folder} can't be written: {error.strerror}. Nothing was changed; see to its place and permissions.")

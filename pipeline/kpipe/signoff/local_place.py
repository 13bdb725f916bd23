"""A store in a folder of this machine: every step is a hard link or a rename of a finished file, flushed to the disk."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.errors import StoreError
from kpipe.signoff.manifest import BUNDLES

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK_PATIENCE_S = 60.0
INCOMING = ".incoming-"


@dataclass(frozen=True)
class LocalPlace:
    """A folder of this machine."""

    root: Path

    @property
    def name(self) -> str:
        """The path."""
        return str(self.root)

    def read(self, path: str) -> bytes:
        """A file."""
        return (self.root / path).read_bytes()

    def names(self, folder: str) -> list[str]:
        """Names in a folder; scratch files aside."""
        try:
            return sorted(path.name for path in (self.root / folder).iterdir() if not path.name.startswith("."))
        except FileNotFoundError:
            return []

    def create(self, path: str, data: bytes) -> None:
        """By a hard link to a finished file: the name is there with all of its content, or not."""
        with self._scratch(path, data) as scratch:
            os.link(scratch, self.root / path)
        _sync_folder((self.root / path).parent)

    def replace(self, path: str, data: bytes) -> None:
        """By a rename over the old one."""
        with self._scratch(path, data) as scratch:
            scratch.replace(self.root / path)
        _sync_folder((self.root / path).parent)

    @contextlib.contextmanager
    def _scratch(self, path: str, data: bytes) -> Iterator[Path]:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            with scratch.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield scratch
        finally:
            scratch.unlink(missing_ok=True)

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """By ``flock``: it ends with the process that holds it."""
        self.root.mkdir(parents=True, exist_ok=True)
        return self._locked(os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT, 0o666))

    @contextlib.contextmanager
    def _locked(self, handle: int) -> Iterator[None]:
        """Hold an open file or folder, and close it."""
        try:
            end = time.monotonic() + LOCK_PATIENCE_S
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise StoreError(
                            f"store {self.root}: another kpipe has held it for {LOCK_PATIENCE_S:g} s. Wait for its end, and try again."
                        ) from None
                    time.sleep(0.05)
            yield
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def incoming(self) -> Iterator[Path]:
        """Beside the bundles, so that taking it in is a rename; what a killed kpipe left there is swept out."""
        home = self.root / BUNDLES
        home.mkdir(parents=True, exist_ok=True)
        with self._locked(os.open(home, os.O_RDONLY)):  # another one's sweep would take a folder that nobody holds yet
            _sweep(home)
            folder = Path(tempfile.mkdtemp(prefix=INCOMING, dir=home))
            handle = os.open(folder, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield folder
        finally:
            os.close(handle)
            shutil.rmtree(folder, ignore_errors=True)

    def keep(self, folder: Path, bundle: str) -> bool:
        """Flushed to the disk, made read-only, renamed."""
        target = self.root / BUNDLES / bundle
        if target.exists():
            return False
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_dir():
                _sync_folder(path)
            else:
                path.chmod(0o444)
                _sync_file(path)
        folder.chmod(0o755)
        _sync_folder(folder)
        try:
            folder.rename(target)
        except OSError:
            if target.exists():  # another kpipe sealed the same at the same time
                return False
            raise
        _sync_folder(target.parent)
        return True

    def drop(self, bundle: str) -> None:
        """Delete its folder."""
        shutil.rmtree(self.root / BUNDLES / bundle, ignore_errors=True)

    def fetch(self, bundle: str) -> Path:
        """The folder itself."""
        return self.root / BUNDLES / bundle


def _sweep(home: Path) -> None:
    """Delete what kpipes that were killed have left unfinished: nobody holds it."""
    for left in home.glob(f"{INCOMING}*"):
        with contextlib.suppress(OSError):
            handle = os.open(left, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(handle)


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

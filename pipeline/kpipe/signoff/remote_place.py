"""A store at a location of fsspec: an object store, or whatever else it knows."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe.errors import StoreError
from kpipe.signoff.manifest import BUNDLES, MANIFEST, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

TRIALS = "trials"
"""Folder of files that were created to see whether the service does it exclusively, and deleted."""


@dataclass(frozen=True)
class RemotePlace:
    """A location of fsspec: object stores and the like. There is no lock: an entry's file is created exclusively, by the service itself."""

    url: str
    system: Any
    root: str
    cache: Path
    """Local folder for bundles that were fetched."""

    @property
    def name(self) -> str:
        """The URL."""
        return self.url

    def read(self, path: str) -> bytes:
        """A file."""
        data: bytes = self.system.cat_file(f"{self.root}/{path}")
        return data

    def names(self, folder: str) -> list[str]:
        """Names in a folder."""
        self.system.invalidate_cache()
        try:
            found = self.system.ls(f"{self.root}/{folder}", detail=False)
        except FileNotFoundError:
            return []
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)

    def create(self, path: str, data: bytes) -> None:
        """By the service's own exclusive creation, which is tried out first: some take the word for it and overwrite."""
        self._try_out()
        self._make(path, data)

    def _make(self, path: str, data: bytes) -> None:
        self.system.makedirs(f"{self.root}/{path}".rpartition("/")[0], exist_ok=True)
        try:
            self.system.pipe_file(f"{self.root}/{path}", data, mode="create")
        except (NotImplementedError, TypeError, ValueError) as error:
            raise self._unfit(str(error)) from error

    def _try_out(self) -> None:
        """Create the same file twice: the second time has to be refused."""
        trial = f"{TRIALS}/{uuid.uuid4().hex}"
        self._make(trial, b"1")
        try:
            self._make(trial, b"2")
        except FileExistsError:
            return
        finally:
            self.system.rm(f"{self.root}/{trial}")
        raise self._unfit("it overwrites the file")

    def _unfit(self, why: str) -> StoreError:
        return StoreError(
            f"store {self.url}: fsspec can't create a file there only if there is none ({why}), so two approvals could overwrite one another. Use a folder or another service."
        )

    def replace(self, path: str, data: bytes) -> None:
        """By writing it whole."""
        self.system.makedirs(f"{self.root}/{path}".rpartition("/")[0], exist_ok=True)
        self.system.pipe_file(f"{self.root}/{path}", data)

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """None."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def incoming(self) -> Iterator[Path]:
        """A temporary folder of this machine."""
        with tempfile.TemporaryDirectory(prefix="kpipe-bundle-") as folder:
            yield Path(folder)

    def keep(self, folder: Path, bundle: str) -> bool:
        """File by file, the manifest last: without it there is no bundle."""
        home = f"{self.root}/{BUNDLES}/{bundle}"
        if self.system.exists(f"{home}/{MANIFEST}"):
            return False
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)
        try:
            for path in [*files, folder / MANIFEST]:
                target = f"{home}/{path.relative_to(folder).as_posix()}"
                self.system.makedirs(target.rpartition("/")[0], exist_ok=True)
                self.system.put_file(str(path), target)
        except BaseException:
            with contextlib.suppress(Exception):
                self.system.rm(home, recursive=True)
            raise
        return True

    def drop(self, bundle: str) -> None:
        """Delete its files."""
        with contextlib.suppress(FileNotFoundError):
            self.system.rm(f"{self.root}/{BUNDLES}/{bundle}", recursive=True)

    def fetch(self, bundle: str) -> Path:
        """A copy in the cache; folders that hold nothing are made anew, since such services don't keep them."""
        target = self.cache / bundle
        home = f"{self.root}/{BUNDLES}/{bundle}"
        shutil.rmtree(target, ignore_errors=True)
        data = self.read(f"{BUNDLES}/{bundle}/{MANIFEST}")
        for remote in self.system.find(home):
            local = target / str(remote)[len(home.rstrip("/")) + 1 :]
            local.parent.mkdir(parents=True, exist_ok=True)
            self.system.get_file(remote, str(local))
        for name in parse(data, self.url).folders:
            (target / name).mkdir(parents=True, exist_ok=True)
        return target

"""Where a store lies: a local folder, or any fsspec location. Atomic steps, and nothing else is known of here.

Every method may raise `OSError`; who calls says what was being done.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kpipe.errors import StoreError
from kpipe.signoff.local_place import LocalPlace
from kpipe.signoff.remote_place import RemotePlace

if TYPE_CHECKING:
    import contextlib


class Place(Protocol):
    """What a store needs of the system that it lies on."""

    @property
    def name(self) -> str:
        """As the user gave it."""

    def read(self, path: str) -> bytes:
        """A file; `FileNotFoundError` where there is none."""

    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted; none where it isn't there."""

    def create(self, path: str, data: bytes) -> None:
        """Write a new file, whole or not at all; `FileExistsError` where there is one."""

    def replace(self, path: str, data: bytes) -> None:
        """Write a file, old or new for every reader."""

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Keep others out, where the system can."""

    def incoming(self) -> contextlib.AbstractContextManager[Path]:
        """A local folder to seal a bundle in; it is gone afterwards."""

    def keep(self, folder: Path, bundle: str) -> bool:
        """Take a sealed folder in, whole or not at all; False where the bundle is there already."""

    def drop(self, bundle: str) -> None:
        """Take back a bundle that nothing names."""

    def fetch(self, bundle: str) -> Path:
        """A local folder that holds the bundle."""


def open_place(location: str, cache: Path) -> Place:
    """A folder, or what fsspec makes of a URL.

    Raises:
        StoreError: the URL can't be used here.
    """
    if "://" not in location:
        return LocalPlace(Path(location).resolve())
    if location.startswith("file://"):
        return LocalPlace(Path(location.removeprefix("file://")).resolve())
    try:
        import fsspec

        system, root = fsspec.core.url_to_fs(location)
    except ImportError as error:
        raise StoreError(f"store {location}: {error}. Install it: pip install 'keras-kpipe[remote]', and what the service needs.") from error
    except ValueError as error:
        raise StoreError(f"store {location} can't be used: {error}. Give a folder, or a URL that fsspec knows.") from error
    return RemotePlace(location, system, str(root).rstrip("/"), cache)

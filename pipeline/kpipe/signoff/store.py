"""The store: immutable bundles by id, the approvals log, what is current per product and channel."""

from __future__ import annotations

import contextlib
import errno
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.errors import BundleError, StoreError
from kpipe.signoff.local_place import LocalPlace
from kpipe.signoff.log import (
    Entry,
    Logged,
    Pointer,
    PointerProblem,
    chained,
    currents,
    file_of,
    pointer_file,
    pointer_problems,
    pointer_to,
    read_log,
    read_pointer,
)
from kpipe.signoff.manifest import BUNDLES, MANIFEST, document
from kpipe.signoff.places import Place, open_place
from kpipe_stages.codec import CodecError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

APPROVALS = "approvals"
DEFAULT_STORE = "releases"
TRIES = 100
"""How often an entry is put after the newest one, where others write at the same time."""

SETTLED_S = 2.0
"""How long a pointer may be behind the log before that is a problem."""

_ID = re.compile(r"[0-9a-f]{64}")
_PREFIX = re.compile(r"[0-9a-f]{6,64}")


@dataclass(frozen=True)
class Store:
    """One store."""

    place: Place

    def log(self) -> list[Logged]:
        """Every entry, oldest first.

        Raises:
            StoreError: the log is damaged.
        """
        log, problems = self.read_log()
        if problems:
            raise StoreError(f"store {self.place.name}: {problems[0]}. Restore the log from a backup: kpipe verify says what else is wrong.")
        return log

    def read_log(self) -> tuple[list[Logged], list[str]]:
        """The entries that follow from one another, and what is wrong with the rest."""
        with self._telling("read"):
            return read_log({name: self.place.read(f"{APPROVALS}/{name}") for name in self.place.names(APPROVALS)})

    def current(self, product: str, channel: str) -> Pointer:
        """What is current.

        Raises:
            StoreError: nothing is, or the log says otherwise.
        """
        log = self.log()
        known = currents(log)
        if (product, channel) not in known:
            there = ", ".join(sorted(f"{p}@{c}" for p, c in known)) or "nothing"
            raise StoreError(f"store {self.place.name} has nothing approved for {product}@{channel}; it has {there}.")
        if problems := self._settled_problems(log):
            raise StoreError(f"store {self.place.name}: {problems[0]}. Find out who wrote to it; nothing of it is used until then.")
        return pointer_to(known[product, channel])

    def _settled_problems(self, log: list[Logged]) -> list[str]:
        """What is wrong with the pointers, once an approval that may be under way has had its time."""
        end = time.monotonic() + SETTLED_S
        while True:
            problems = self._pointer_problems(log)
            if time.monotonic() > end or not all(problem.pending for problem in problems) or not problems:
                return [problem.message for problem in problems]
            time.sleep(0.1)

    def bundle_names(self) -> list[str]:
        """Ids of the bundles that lie there."""
        with self._telling("read"):
            return [name for name in self.place.names(BUNDLES) if _ID.fullmatch(name)]

    def fetch(self, bundle: str) -> Path:
        """A local folder with a bundle, by its id or the first digits of it.

        Raises:
            StoreError: there is none, or several.
        """
        found = [name for name in self.bundle_names() if name.startswith(bundle)]
        if len(found) != 1:
            what = f"{len(found)} bundles begin with" if found else "no bundle begins with"
            raise StoreError(f"store {self.place.name}: {what} {bundle}. 'kpipe history --store {self.place.name}' lists them.")
        with self._telling("read"):
            return self.place.fetch(found[0])

    def problems(self) -> list[str]:
        """All that is wrong with log and pointers, and bundles that nobody approved or that are gone; a message each."""
        log, problems = self.read_log()
        if not problems:
            problems = self._settled_problems(log)
        named = {logged.entry.bundle for logged in log}
        there = set(self.bundle_names())
        problems += [f"bundle {name} is named by entry {_first(log, name)} and isn't there" for name in sorted(named - there)]
        problems += [
            f"bundle {name} is there and no entry names it: entries were dropped, or an approval was interrupted" for name in sorted(there - named)
        ]
        return problems

    def _pointer_problems(self, log: list[Logged]) -> list[PointerProblem]:
        pointers: dict[str, Pointer] = {}
        with self._telling("read"):
            for product in self.place.names("current"):
                for name in self.place.names(f"current/{product}"):
                    path = f"current/{product}/{name}"
                    try:
                        pointers[path] = read_pointer(self.place.read(path))
                    except CodecError as error:
                        return [PointerProblem(f"{path} can't be read: {error}")]
        return pointer_problems(log, pointers)

    # ------------------------------------------------------------ writing

    def seal(self, write: Callable[[Path], str]) -> tuple[str, bool]:
        """Take in a bundle that ``write`` makes in a folder and gives the id of; return the id, and whether it is new.

        Raises:
            StoreError: the store can't be written; nothing is left there.
        """
        self.log()  # a damaged store takes nothing in
        with self._telling("written"), self.place.incoming() as folder:
            bundle = write(folder)
            return bundle, self.place.keep(folder, bundle)

    def append(self, entry: Entry, *, fresh: bool = False) -> Logged:
        """Put an entry after the newest one and move what is current to its bundle.

        Args:
            entry: its number and the digest of the one before are filled in here.
            fresh: the bundle was only taken in for it, and goes again where the entry can't be written.

        Raises:
            StoreError: the log is damaged, or can't be written; nothing was changed then.
        """
        try:
            with self._telling("written"), self.place.lock():
                logged = self._append(entry)
                self._point(logged)
                return logged
        except BaseException:
            if fresh and not self._names(entry.bundle):
                self.place.drop(entry.bundle)
            raise

    def _names(self, bundle: str) -> bool:
        """Whether the log names a bundle; a log that can't be read may."""
        try:
            return any(logged.entry.bundle == bundle for logged in self.read_log()[0])
        except StoreError:
            return True

    def _append(self, entry: Entry) -> Logged:
        for _ in range(TRIES):
            log = self.log()
            if problems := [p for p in self._pointer_problems(log) if not p.pending]:
                raise StoreError(f"store {self.place.name}: {problems[0].message}. Find out who wrote to it; nothing was added.")
            logged, data = chained(entry, log)
            with contextlib.suppress(FileExistsError):  # another one was faster: this one comes after it
                self.place.create(f"{APPROVALS}/{file_of(logged.entry.number)}", data)
                return logged
        raise StoreError(f"store {self.place.name}: others kept writing to it. Try again; nothing was added.")

    def _point(self, logged: Logged) -> None:
        """Move what is current to the newest entry: where there is no lock, another one may have come since."""
        key = (logged.entry.product, logged.entry.channel)
        newest = logged
        while True:
            self.place.replace(pointer_file(*key), document(pointer_to(newest)))
            latest = currents(self.log()).get(key, newest)
            if latest.entry.number <= newest.entry.number:
                return
            newest = latest

    @contextlib.contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        """The system's faults in the user's words."""
        try:
            yield
        except OSError as error:
            raise StoreError(f"store {self.place.name} can't be {what}: {_why(error)}") from error


def _first(log: list[Logged], bundle: str) -> int:
    return next(logged.entry.number for logged in log if logged.entry.bundle == bundle)


def _why(error: OSError) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return f"it is full ({error.strerror}). Make room and try again; nothing was left there."
    if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}:
        return f"it is read-only for you ({error.strerror}). Give a store that you may write to; nothing was changed."
    return f"{error.strerror or error}. Nothing was changed."


@dataclass(frozen=True)
class Located:
    """A bundle, and the store that it lies in."""

    path: Path
    store: Store | None
    expected: str
    """The id that it must have: by its place in the store, or by what was asked for; empty where nothing says."""


def open_store(location: str | None = None) -> Store:
    """A store by its folder or URL, ``releases`` where none is given; it need not be there yet.

    Raises:
        StoreError: the URL can't be used here.
    """
    from kpipe.running.system import cache_folder

    return Store(open_place(location or DEFAULT_STORE, cache_folder(None, Path(".kpipe-cache")) / "bundles"))


def find_bundle(word: str, location: str | None = None) -> Located:
    """A bundle by the path of its folder, by its id or the first digits of it, or by ``product`` or ``product@channel`` for what is current.

    Raises:
        BundleError, StoreError: there is none.
    """
    path = Path(word)
    if (path / MANIFEST).is_file() or (path.is_dir() and location is None):
        path = path.resolve()
        in_store = path.parent.name == BUNDLES and (path.parent.parent / APPROVALS).is_dir()
        store = Store(LocalPlace(path.parent.parent)) if in_store else None
        return Located(path, store, path.name if in_store or _ID.fullmatch(path.name) else "")
    store = open_store(location)
    if _PREFIX.fullmatch(word):
        found = store.fetch(word)
        return Located(found, store, found.name)
    product, _, channel = word.partition("@")
    if not store.log():
        raise BundleError(
            f"{word} is no folder of a bundle, and the store {store.place.name} has no approvals. Give a folder, or the store with --store."
        )
    pointer = store.current(product, channel or "production")
    return Located(store.fetch(pointer.bundle), store, pointer.bundle)

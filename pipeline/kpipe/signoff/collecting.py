"""Files into a bundle: each is copied, and what was copied is held to the digest that the run knows."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.golden import sha256_of
from kpipe_stages.digest import digest

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass
class Collector:
    """One bundle under way."""

    into: Path
    exact: dict[str, str] = field(default_factory=dict)
    """Path as the run knows it, to the path below the bundle; of a folder, for all that is below it."""
    problems: list[str] = field(default_factory=list)
    """Why the run can't be sealed: a message each."""

    def moved(self, path: str) -> str:
        """Where a path of the run lies in the bundle.

        Raises:
            KeyError: nothing was collected from there.
        """
        for known in (path, *(str(parent) for parent in Path(path).parents)):
            if known in self.exact:
                return "/".join(filter(None, (self.exact[known], path[len(known) :].lstrip("/"))))
        raise KeyError(path)

    def file(self, source: Path, name: str, known: str, what: str) -> None:
        """Copy one file.

        Args:
            source: where it lies.
            name: where it goes, below the bundle.
            known: SHA-256 that it must have; empty for any.
            what: what it is, for a message.
        """
        target = self.into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(source, target)
        except OSError as error:
            if _full(error, target):
                raise
            self.problems.append(f"{what} {source} can't be read ({error.strerror}). Restore it: a bundle holds all that the verdict is about.")
            return
        if known and (found := sha256_of(target)) != known:
            self.problems.append(
                f"{what} {source} is not the file of the run: SHA-256 {known}, now {found}. Restore it, or run 'kpipe validate' again."
            )

    def tree(self, source: Path, name: str, *, without: Iterable[str] = ()) -> None:
        """Copy a folder; names at any depth in ``without`` stay behind. A link is copied as what it stands for."""
        skipped = set(without)
        for path in sorted(source.iterdir()):
            if path.name in skipped:
                continue
            if path.is_dir():
                (self.into / name / path.name).mkdir(parents=True, exist_ok=True)
                self.tree(path, f"{name}/{path.name}", without=skipped)
            else:
                self.file(path, f"{name}/{path.name}", "", "the run's file")

    def hold(self, name: str, companions: Iterable[str], known: str, what: str) -> None:
        """Hold a copied artifact to its digest."""
        try:
            found = digest(self.into / name, [self.into / other for other in companions])
        except (OSError, ValueError) as error:
            self.problems.append(f"{what} can't be read back: {error}. Run 'kpipe validate' again.")
            return
        if found != known:
            self.problems.append(f"{what} is not the one that was judged: SHA-256 {known}, now {found}. Run 'kpipe validate' again.")

    def write(self, name: str, data: bytes) -> None:
        """Write a file of the bundle's own."""
        target = self.into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def _full(error: OSError, target: Path) -> bool:
    """Whether the fault is the bundle's place and not the source: full, over a quota, read-only."""
    import errno

    return error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG} or error.filename == str(target)

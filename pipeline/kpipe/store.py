"""The run folder: made, found again, written atomically."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kpipe.errors import RunFolderError
from kpipe.evidence import EVIDENCE_VERSION, Evidence
from kpipe.record import SCHEMA_VERSION, RunRecord
from kpipe_stages.codec import CodecError, read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

Loaded = TypeVar("Loaded", Evidence, RunRecord)

MARKER = "order.json"
"""What the run is of: written first, so that a folder is known as a run's and a resumed run is of the same things."""


SEALED_BY = ("bundle.json", "contents.json", "sbom.cdx.json")
"""Lie together in a sign-off bundle (`kpipe.signoff.manifest`), and hardly anywhere else."""


@dataclass(frozen=True)
class RunFolder:
    """One run's folder. The paths are absolute."""

    path: Path
    made: tuple[Path, ...] = ()
    """The folders that had to be made for it, innermost first; empty where it was there."""

    @property
    def stages(self) -> Path:
        """A folder a worker."""
        return self.path / "stages"

    @property
    def artifacts(self) -> Path:
        """A folder a format."""
        return self.path / "artifacts"

    def write_text(self, name: str, text: str) -> Path:
        """Write a file of the run atomically; return its path."""
        path = self.path / name
        scratch = path.with_name(f".{path.name}.tmp")
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(path)
        return path


def sealed_in(path: Path) -> Path | None:
    """The bundle that a folder is part of; None for none. Nothing is ever written there."""
    return next((folder for folder in (path, *path.parents) if all((folder / name).is_file() for name in SEALED_BY)), None)


def refuse_sealed(path: Path, what: str) -> None:
    """Raise `RunFolderError` where ``what`` would be written into a bundle."""
    if (bundle := sealed_in(path)) is not None:
        raise RunFolderError(
            f"{path} is part of the sealed bundle {bundle}, and {what} would alter it. Copy the run out of the bundle first; nothing was changed."
        )


def new_run_path(model: Path) -> Path:
    """``runs/<UTC time>-<model>`` below the working directory."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    return Path("runs") / f"{now}-{model.stem}"


def open_run_folder(path: Path, order: dict[str, str], *, resume: bool) -> RunFolder:
    """Make a run's folder, or take up one that was interrupted.

    Args:
        path: the folder; it must not exist, be empty, or (with ``resume``) hold a run of the same order.
        order: what the run is of: digests and versions.
        resume: continue what is there.

    Raises:
        RunFolderError: it can't be written, holds something else, or holds a run of other things.
    """
    path = Path.cwd() / path
    refuse_sealed(path, "a run")
    try:
        made = tuple(folder for folder in (path, *path.parents) if not folder.exists())
        path.mkdir(parents=True, exist_ok=True)
        occupied = any(path.iterdir())
    except OSError as error:
        raise RunFolderError(f"--out {path} can't be used: {error.strerror}. Name a folder that can be written.") from error
    if occupied:
        _check_occupied(path, order, resume=resume)
    folder = RunFolder(path, made)
    try:
        folder.stages.mkdir(exist_ok=True)
        folder.artifacts.mkdir(exist_ok=True)
        write_json(path / MARKER, order)
    except OSError as error:
        raise RunFolderError(f"--out {path} can't be written: {error.strerror}. Name a folder that can be written.") from error
    return folder


@contextlib.contextmanager
def held(folder: RunFolder) -> Iterator[None]:
    """Keep every other kpipe out of the folder.

    Raises:
        RunFolderError: another one is at work in it.
    """
    handle = os.open(folder.path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise RunFolderError(f"--out {folder.path}: another kpipe is at work in it. Wait for its end, or name a new folder.") from error
    try:
        yield
    finally:
        os.close(handle)


def _check_occupied(path: Path, order: dict[str, str], *, resume: bool) -> None:
    try:
        known = json.loads((path / MARKER).read_text(encoding="utf-8"))
        if not isinstance(known, dict):
            raise TypeError
    except (OSError, ValueError, TypeError):
        raise RunFolderError(f"--out {path} is not empty and holds no run of kpipe. Name a new folder; nothing was changed.") from None
    if not resume:
        raise RunFolderError(f"--out {path} already holds a run. Name a new folder, or continue it with --resume; nothing was changed.")
    if different := [key for key in order if known.get(key) != order[key]]:
        raise RunFolderError(
            f"--resume {path}: the run there is of other things: {', '.join(different)} changed. Start a new run; nothing was changed."
        )


def discard(folder: RunFolder) -> None:
    """Leave the place of a refused command as it was found: nothing but its first steps happened there."""
    for item in folder.path.iterdir():
        if item.is_dir():
            shutil.rmtree(item, ignore_errors=True)
        else:
            item.unlink()
    with contextlib.suppress(OSError):  # somebody else's files are in it by now
        for made in folder.made:
            made.rmdir()


def save_evidence(folder: RunFolder, evidence: Evidence) -> None:
    """Write ``evidence.json``."""
    write_json(folder.path / "evidence.json", evidence)


def load_evidence(path: Path) -> Evidence:
    """Read a run's evidence.

    Raises:
        RunFolderError: there is none, or it is of another version.
    """
    return _load(Evidence, path, "evidence.json", EVIDENCE_VERSION)


def load_record(path: Path) -> RunRecord:
    """Read a run's record.

    Raises:
        RunFolderError: there is none, or it is of another version.
    """
    return _load(RunRecord, path, "run.json", SCHEMA_VERSION)


def _load(kind: type[Loaded], path: Path, name: str, version: int) -> Loaded:
    try:
        loaded = read_json(kind, path / name)
    except OSError as error:
        raise RunFolderError(
            f"{path} holds no finished run: {name} can't be read ({error.strerror}). Continue it with 'kpipe validate ... --out {path} --resume'."
        ) from error
    except CodecError as error:
        raise RunFolderError(f"{path / name} can't be read by this kpipe (it knows version {version}): {error}.") from error
    found = loaded.version if isinstance(loaded, Evidence) else loaded.schema_version
    if found != version:
        raise RunFolderError(f"{path / name} is of version {found}; this kpipe knows version {version}. Use the kpipe that wrote it.")
    return loaded

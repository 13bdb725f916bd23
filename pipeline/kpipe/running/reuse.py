"""Artifacts of earlier runs, kept by content in kpipe's cache: the same model, order, versions and machine give the same files.

An entry is never trusted: its own account is held against its digest, every file that is copied out of it against the digest that the export
found. What doesn't fit is thrown away and made anew. Where the cache can't be used, everything is made anew too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe.codes import UNCHECKED_CODES
from kpipe.running.launch import set_aside
from kpipe.running.reuse_key import VERSION
from kpipe_stages.codec import decode, encode, write_json
from kpipe_stages.digest import digest, size
from kpipe_stages.protocol import PROTOCOL, Artifact, Job, Result, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kpipe.running.launch import Order

ACCOUNT = "entry.json"
MOST_BYTES = 4 * 2**30
"""Of all entries together; the ones that were used longest ago go first."""
PLACES = ("out", "stage")
"""Where an entry's files lie in a run: below its ``artifacts``, or below the stage's own folder."""


@dataclass(frozen=True)
class Places:
    """The two folders of a run that artifacts of one stage lie in."""

    out: Path
    stage: Path


@dataclass(frozen=True)
class Shelf:
    """The cache's folder of exports."""

    folder: Path
    most_bytes: int = MOST_BYTES

    def holds(self, key: str) -> bool:
        """Whether there is an entry, sound or not."""
        return (self.folder / key).is_dir()

    def take(self, key: str, order: Order, places: Places) -> Result | None:
        """Bring an entry's artifacts into a run.

        Args:
            key: of the order (`kpipe.running.reuse_key.key_of`).
            order: what would be run otherwise.
            places: where the files go.

        Returns:
            The stage's answer with the paths of this run; None where there is no sound entry, and then nothing is left in the run.
        """
        entry = self.folder / key
        if not _own(self.folder) or not entry.is_dir() or entry.is_symlink():
            return None
        scratch = places.out / f".reuse-{uuid.uuid4().hex}"
        try:
            result, sources = _account(entry, key)
            for name in _names(result):
                _copy(_within(entry / "files", name), _within(scratch, name))
            result = _relocated(result, lambda name: str(_within(scratch, name)), key)
            _verify(result, sources)
            set_aside(places.stage)
            _place(scratch, places)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, shutil.Error):  # gone, cut short, altered, or of another kpipe
            self._drop(entry)
            return None
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.utime(entry)
        result = _relocated(result, lambda path: str(_home_of(Path(path).relative_to(scratch), places)), key)
        job = Job(PROTOCOL, order.stage, uuid.uuid4().hex, str(places.stage), encode(order.params))
        result = replace(result, attempt=job.attempt)
        write_json(places.stage / "job.json", job)
        write_json(places.stage / "result.json", result)
        (places.stage / "stage.log").write_text(f"Nothing was run: the answer and its artifacts are those of {ACCOUNT} {key}.\n", encoding="utf-8")
        return result

    def keep(self, key: str, result: Result, places: Places) -> None:
        """Keep what a stage made; where that can't be done nothing is kept, and nothing is said: the run has its files."""
        if result.status is not Status.OK or not result.data or any(seen.code in UNCHECKED_CODES for seen in result.observations):
            return
        scratch = self.folder / f".making-{uuid.uuid4().hex}"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _own(self.folder) or (self.folder / key).exists():
                return
            kept = _relocated(result, lambda path: _name_of(Path(path), places), "")
            if sum(_size(artifact) for artifact in _artifacts(result.data)) > self.most_bytes // 2:
                return
            for path in _names(result):
                _copy(Path(path), scratch / "files" / _name_of(Path(path), places))
            sources = [[digest(folder) for folder in _beside(artifact)] for artifact in _artifacts(result.data)]
            account = encode({"version": VERSION, "key": key, "result": kept, "sources": sources})
            write_json(scratch / ACCOUNT, {"sha256": _sha256(account), "account": account})
            scratch.rename(self.folder / key)  # atomic; another run that was as fast has put the same there
            self._trim()
        except (OSError, ValueError, shutil.Error):
            return
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _trim(self) -> None:
        """Hold the cache to its size."""
        entries = []
        for entry in self.folder.iterdir():
            with contextlib.suppress(OSError, ValueError):
                entries.append((entry.stat().st_mtime, size(entry), entry))
        held = sum(bytes_ for _, bytes_, _ in entries)
        for _, bytes_, entry in sorted(entries, key=lambda one: one[0])[:-1]:
            if held <= self.most_bytes:
                return
            self._drop(entry)
            held -= bytes_

    def _drop(self, entry: Path) -> None:
        """Move an entry out of the way before it is removed: nobody finds half of one."""
        aside = entry.with_name(f".dropped-{uuid.uuid4().hex}")
        with contextlib.suppress(OSError):
            entry.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _own(folder: Path) -> bool:
    """Whether nobody but this user can have written there."""
    try:
        facts = folder.stat()
    except OSError:
        return False
    return not hasattr(os, "getuid") or (facts.st_uid == os.getuid() and not facts.st_mode & 0o022)


def _account(entry: Path, key: str) -> tuple[Result, list[list[str]]]:
    """What an entry says of itself: the stage's answer, and the digests of what was kept beside each artifact.

    Raises:
        ValueError: that isn't what was written, or is of another key or version.
    """
    whole = json.loads((entry / ACCOUNT).read_text(encoding="utf-8"))
    account = whole["account"]
    if whole["sha256"] != _sha256(account) or account["key"] != key or account["version"] != VERSION:
        raise ValueError(f"{entry} isn't what was written")
    return decode(Result, account["result"]), account["sources"]


def _sha256(account: Any) -> str:
    return hashlib.sha256(json.dumps(account, sort_keys=True).encode()).hexdigest()


def _verify(result: Result, sources: list[list[str]]) -> None:
    """Every artifact is, byte for byte, the one that the export has looked at.

    Raises:
        ValueError: one isn't, or there is none.
        OSError: one isn't there.
    """
    artifacts = _artifacts(result.data)
    if not artifacts:
        raise ValueError("it holds no artifact")
    for artifact, source in zip(artifacts, sources, strict=True):
        if digest(artifact.path, artifact.companions) != artifact.sha256 or [digest(folder) for folder in _beside(artifact)] != source:
            raise ValueError(f"{artifact.path} was altered")


def _artifacts(data: dict[str, Any]) -> list[Artifact]:
    """Of an `ExportResult` or an `ArtifactResult`, encoded."""
    return [decode(Artifact, found) for found in _found(data)]


def _found(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from data["artifacts"] if "artifacts" in data else [data["artifact"]]


def _names(result: Result) -> list[str]:
    """Every file or folder that the artifacts are made of."""
    return [name for a in _artifacts(result.data) for name in (a.path, *a.companions, *_beside(a))]


def _size(artifact: Artifact) -> int:
    return artifact.size + sum(size(folder) for folder in _beside(artifact))


def _beside(artifact: Artifact) -> list[str]:
    """The SavedModels that an artifact, or a variant of it, is converted from, where they aren't the run's own."""
    return [folder for folder in (artifact.source, artifact.unrolled.path if artifact.unrolled else "") if folder]


def _relocated(result: Result, place: Callable[[str], str], key: str) -> Result:
    """The answer with every path in it given to ``place``, and the entry that it comes from."""

    def moved(found: dict[str, Any]) -> dict[str, Any]:
        artifact = decode(Artifact, found)
        companions = tuple(place(path) for path in artifact.companions)
        source = place(artifact.source) if artifact.source else ""
        unrolled = replace(artifact.unrolled, path=place(artifact.unrolled.path)) if artifact.unrolled else None
        path = place(artifact.path)
        return dict(encode(replace(artifact, path=path, companions=companions, source=source, unrolled=unrolled, reused=key)))

    data = dict(result.data)
    if "artifacts" in data:
        data["artifacts"] = [moved(found) for found in data["artifacts"]]
    else:
        data["artifact"] = moved(data["artifact"])
    return replace(result, data=data)


def _name_of(path: Path, places: Places) -> str:
    """``out/litert/model.tflite``: where a file lies in an entry.

    Raises:
        ValueError: it lies in neither of the run's folders.
    """
    return f"out/{path.relative_to(places.out)}" if path.is_relative_to(places.out) else f"stage/{path.relative_to(places.stage)}"


def _home_of(name: Path, places: Places) -> Path:
    return (places.out if name.parts[0] == "out" else places.stage) / Path(*name.parts[1:])


def _within(folder: Path, name: str) -> Path:
    """A file of an entry.

    Raises:
        ValueError: the name leads elsewhere.
    """
    parts = Path(name).parts
    if len(parts) < 2 or parts[0] not in PLACES or ".." in parts or Path(name).is_absolute():  # noqa: PLR2004 - a place and a name in it
        raise ValueError(f"{name} is no file of an entry")
    return folder / name


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copyfile(source, target)


def _place(scratch: Path, places: Places) -> None:
    """Move what was verified to where the run looks for it; all of it is on the run's own disk by now."""
    for place, home in (("out", places.out), ("stage", places.stage)):
        for item in sorted((scratch / place).iterdir()) if (scratch / place).is_dir() else ():
            target = home / item.name
            shutil.rmtree(target, ignore_errors=True)
            home.mkdir(parents=True, exist_ok=True)
            shutil.move(item, target)

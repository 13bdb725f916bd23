"""Checkpoints on the disk: written whole or not at all, read only where every byte is as it was written.

A checkpoint is a folder ``<steps>`` with ``state.npz``, ``checkpoint.json`` and ``SHA256SUMS`` (as ``sha256sum -c`` reads it). It is made under
another name, every file and the folder are flushed to the disk, and then it is renamed. numpy and the standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import shutil
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.checkpointing.record import CHECKPOINT_VERSION, CheckpointRecord
from kpipe_stages.codec import CodecError, decode, encode
from kpipe_stages.digest import digest
from kpipe_stages.protocol import Observation, StageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CODE = "KP019"
"""The finding of a checkpoint that can't be written or used."""

KEPT = 2
"""The newest, and the one before it in case the newest is damaged."""

STATE, RECORD, SUMS = "state.npz", "checkpoint.json", "SHA256SUMS"
LOCK = ".lock"
LOCK_WAIT_S = 10.0
"""A worker that was left alone ends by itself within moments."""

Array = np.ndarray[Any, np.dtype[Any]]


class DamagedError(Exception):
    """A checkpoint isn't as it was written."""


@dataclass(frozen=True)
class Found:
    """The newest checkpoint that is whole."""

    folder: Path
    record: CheckpointRecord
    arrays: tuple[Array, ...]
    damaged: tuple[str, ...]
    """Newer ones that are not, and why."""


def folder_of(out: str | Path) -> Path:
    """Where the checkpoints of a training lie: beside the model that it makes."""
    return Path(f"{out}.checkpoints")


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep every other training out of the folder.

    Raises:
        StageError: another one is at work in it, or it can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise unwritable(folder, error) from error
    deadline = time.monotonic() + LOCK_WAIT_S
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise _refused(folder, f"{folder}: another training is at work in it", "Wait for its end, or give another --out.") from None
                time.sleep(0.1)
        yield
    finally:
        if not checkpoints(folder):
            remove(folder)
        os.close(handle)


def checkpoints(folder: Path) -> list[Path]:
    """Every checkpoint of a folder, newest first, whole or not."""
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if path.is_dir() and path.name.isdigit()), key=lambda path: int(path.name), reverse=True)


def write(folder: Path, steps: int, record: CheckpointRecord, arrays: Sequence[Array]) -> int:
    """Write a checkpoint and let the oldest go; its size in bytes.

    Raises:
        StageError: the disk is full or refuses; the checkpoints before are untouched.
    """
    scratch = folder / f".{steps}.{os.getpid()}.tmp"
    place = folder / f"{steps:012d}"
    try:
        _clear(folder)
        scratch.mkdir()
        state = io.BytesIO()
        np.savez(state, allow_pickle=False, **{f"a{i}": _bytes(array) for i, array in enumerate(arrays)})
        text = json.dumps(encode(record), ensure_ascii=True, allow_nan=False, indent=1) + "\n"
        for name, content in ((STATE, state.getbuffer()), (RECORD, text.encode())):
            _put(scratch / name, content)
        _put(scratch / SUMS, _sums({name: digest(scratch / name) for name in (STATE, RECORD)}))
        flush(scratch)
        if place.exists():  # a damaged one of the same step: the training has come there again
            shutil.rmtree(place)
        scratch.rename(place)
        flush(folder)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise unwritable(folder, error) from error
    for old in checkpoints(folder)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return sum(file.stat().st_size for file in place.iterdir())


def newest(folder: Path) -> Found:
    """The newest checkpoint that is whole.

    Raises:
        StageError: there is none; or the newest whole one is of another version.
    """
    damaged = []
    for place in checkpoints(folder):
        try:
            record, arrays = read(place)
        except DamagedError as error:
            damaged.append(f"{place.name}: {error}")
            continue
        return Found(place, record, arrays, tuple(damaged))
    what = f"every checkpoint in {folder} is damaged ({'; '.join(damaged)})" if damaged else f"there is no checkpoint in {folder}"
    raise _refused(folder, what, "Start the training anew, without --resume" + (", after moving that folder away." if damaged else "."))


def read(place: Path) -> tuple[CheckpointRecord, tuple[Array, ...]]:
    """One checkpoint.

    Raises:
        DamagedError: a byte isn't what was written.
        StageError: it is whole, and of a version that this kpipe doesn't know.
    """
    record = read_record(place)
    try:
        with np.load(place / STATE, allow_pickle=False) as state:
            arrays = tuple(_array(state[f"a{i}"], row.dtype, row.shape) for i, row in enumerate(record.arrays))
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise DamagedError(f"{STATE} can't be read: {error}") from error
    return record, arrays


def read_record(place: Path) -> CheckpointRecord:
    """What a checkpoint says of itself, after every byte of it was compared with its digest.

    Raises:
        DamagedError: a byte isn't what was written.
        StageError: it is whole, and of a version that this kpipe doesn't know.
    """
    try:
        written = (place / SUMS).read_bytes()
        found = {name: digest(place / name) for name in (STATE, RECORD)}
        for name, sha256 in found.items():
            if _sums({name: sha256}) not in written:
                raise DamagedError(f"{name} has SHA-256 {sha256[:12]}..., which isn't what {SUMS} says of it")
        if written != _sums(found):
            raise DamagedError(f"{SUMS} holds other bytes than the two lines of {STATE} and {RECORD}")
        data = json.loads((place / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedError(f"it can't be read: {error}") from error
    if (version := data.get("version") if isinstance(data, dict) else None) != CHECKPOINT_VERSION:
        raise _refused(place, f"{place} is of version {version}; this kpipe knows version {CHECKPOINT_VERSION}", "Use the kpipe that wrote it.")
    try:
        return decode(CheckpointRecord, data, str(place / RECORD))
    except CodecError as error:
        raise DamagedError(str(error)) from error


def _sums(digests: Mapping[str, str]) -> bytes:
    """What `SUMS` holds: it is compared byte by byte, for a lenient reader would pass a changed one."""
    return "".join(f"{sha256}  {name}\n" for name, sha256 in digests.items()).encode()


def remove(folder: Path) -> None:
    """Let a finished training's checkpoints go; what isn't kpipe's stays."""
    _clear(folder)
    for place in checkpoints(folder):
        shutil.rmtree(place, ignore_errors=True)
    (folder / LOCK).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # somebody else's files are in it
        folder.rmdir()


def unwritable(folder: Path, error: OSError) -> StageError:
    """The disk refuses."""
    cause = f"a checkpoint can't be written to {folder}: {error.strerror or error}"
    remedy = "Make room or name another --out, then go on with --resume: the checkpoints before this one are whole. Without checkpoints: --checkpoint-every off."
    return _refused(folder, cause, remedy)


def _refused(place: Path, cause: str, remedy: str) -> StageError:
    return StageError(Observation(CODE, cause, remedy, place=str(place)))


def _bytes(array: Array) -> Array:
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


def _array(data: Array, dtype: str, shape: tuple[int, ...]) -> Array:
    return np.frombuffer(data.tobytes(), _dtype(dtype)).reshape(shape)


def _dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found


def _put(path: Path, content: bytes | memoryview) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def flush(path: Path) -> None:
    """Have the disk keep a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _clear(folder: Path) -> None:
    """Remove what a killed training left half done."""
    for path in folder.glob(".*.tmp"):
        shutil.rmtree(path, ignore_errors=True)

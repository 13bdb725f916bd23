"""The approvals log: one document an entry, each with the digest of the one before, so that none can be dropped, altered or put back. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kpipe.signoff.manifest import document
from kpipe_stages.codec import CodecError, decode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LOG_VERSION = 1

APPROVE, ROLLBACK = "approve", "rollback"


@dataclass(frozen=True)
class Entry:
    """One line of the log."""

    version: int
    number: int
    """From 1, without gaps."""
    previous: str
    """SHA-256 of the entry before; empty in the first."""
    action: str
    """``approve`` or ``rollback``: what made ``bundle`` the current one."""
    at: str
    """ISO 8601, UTC."""
    by: str
    reason: str
    product: str
    channel: str
    bundle: str
    """Its id."""
    verdict: str
    run_id: str
    candidate_sha256: str
    signature_sha256: str = ""
    """Of the bundle's signature; empty where it isn't signed."""
    notes: tuple[str, ...] = ()
    """What else has to be known: waivers in force, findings that were accepted."""


@dataclass(frozen=True)
class Logged:
    """An entry as it lies in the store."""

    entry: Entry
    sha256: str


@dataclass(frozen=True)
class Pointer:
    """What is current for one product and channel, and the entry that says so."""

    version: int
    product: str
    channel: str
    bundle: str
    number: int
    entry: str
    """SHA-256 of the entry."""


def chained(entry: Entry, log: Sequence[Logged]) -> tuple[Logged, bytes]:
    """The entry as the next one of a log, and its document."""
    placed = replace(entry, number=len(log) + 1, previous=log[-1].sha256 if log else "")
    data = document(placed)
    return Logged(placed, hashlib.sha256(data).hexdigest()), data


def pointer_to(logged: Logged) -> Pointer:
    """The pointer that an entry moves."""
    entry = logged.entry
    return Pointer(LOG_VERSION, entry.product, entry.channel, entry.bundle, entry.number, logged.sha256)


def file_of(number: int) -> str:
    """Name of an entry's file."""
    return f"{number:08d}.json"


def read_log(files: Mapping[str, bytes]) -> tuple[list[Logged], list[str]]:
    """The entries in order, and what is wrong with them.

    Args:
        files: name to content, of all that lies in the log's folder.

    Returns:
        The entries up to the first that doesn't follow from the one before, and a message for each problem.
    """
    log: list[Logged] = []
    wanted = [file_of(number) for number in range(1, len(files) + 1)]
    if strange := sorted(set(files) - set(wanted)):
        gap = next((name for name in wanted if name not in files), "")
        return log, [f"the approvals log has {strange[0]} and lacks {gap}: an entry was dropped, or a file put there"]
    for number, name in enumerate(wanted, start=1):
        try:
            entry = decode(Entry, json.loads(files[name]))
        except (CodecError, ValueError, RecursionError) as error:
            return log, [f"approvals/{name} can't be read: {error}"]
        if document(entry) != files[name] or entry.version != LOG_VERSION:
            return log, [f"approvals/{name} is not in the form that this kpipe writes: it was altered, or another kpipe wrote it"]
        before = log[-1].sha256 if log else ""
        if entry.number != number or entry.previous != before:
            return log, [
                f"approvals/{name} does not follow from the entry before: it names {entry.previous[:12] or 'none'}, and that one is {before[:12] or 'none'}. An entry was altered, dropped or put back"
            ]
        log.append(Logged(entry, hashlib.sha256(files[name]).hexdigest()))
    return log, []


def currents(log: Sequence[Logged]) -> dict[tuple[str, str], Logged]:
    """Product and channel to the last entry about them."""
    return {(logged.entry.product, logged.entry.channel): logged for logged in log}


def read_pointer(data: bytes) -> Pointer:
    """Read a pointer.

    Raises:
        CodecError: it isn't one.
    """
    try:
        return decode(Pointer, json.loads(data))
    except (ValueError, RecursionError) as error:
        raise CodecError(str(error)) from error


@dataclass(frozen=True)
class PointerProblem:
    """A pointer that contradicts the log."""

    message: str
    pending: bool = False
    """The entry is written and the pointer isn't yet: an approval is under way, or was interrupted, or an old pointer was put back."""


def pointer_problems(log: Sequence[Logged], pointers: Mapping[str, Pointer]) -> list[PointerProblem]:
    """Where what is current contradicts the log.

    Args:
        log: the whole log.
        pointers: file name to pointer.
    """
    known = {logged.entry.number: logged for logged in log}
    last = currents(log)
    problems = []
    for name, pointer in pointers.items():
        logged = known.get(pointer.number)
        if logged is None or logged.sha256 != pointer.entry:
            told = f"{name} names entry {pointer.number} ({pointer.entry[:12]}), which the log doesn't have"
            problems.append(PointerProblem(f"{told}: an old log was put back, or entries were dropped"))
        elif pointer != pointer_to(logged) or name != pointer_file(pointer.product, pointer.channel):
            problems.append(PointerProblem(f"{name} says otherwise than entry {pointer.number} that it names: it was altered"))
        elif last[pointer.product, pointer.channel] != logged:
            newer = last[pointer.product, pointer.channel].entry.number
            told = f"{name} names entry {pointer.number}, and entry {newer} is newer"
            problems.append(PointerProblem(f"{told}: an old pointer was put back, or an approval was interrupted", pending=True))
    present = set(pointers)
    problems += [
        PointerProblem(f"{product}@{channel} has entries in the log and no pointer: {pointer_file(product, channel)} is missing", pending=True)
        for product, channel in last
        if pointer_file(product, channel) not in present
    ]
    return problems


def pointer_file(product: str, channel: str) -> str:
    """Where a pointer lies in the store."""
    return f"current/{product}/{channel}.json"

"""Reading members: what really comes out is counted, never the declared size trusted."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from kpipe_stages.archive.collecting import shown
from kpipe_stages.archive.zip_structure import SAVE_AGAIN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from kpipe_stages.archive.collecting import Collector
    from kpipe_stages.archive.zip_structure import Member

BLOCK = 2**20


class _DamagedError(Exception):
    """The member isn't what its header declares."""


def read_member(file: BinaryIO, member: Member, collector: Collector) -> bytes | None:
    """The member's bytes; None (and a refusal) where they aren't what the archive declares."""
    try:
        return b"".join(_checked(file, member))
    except _DamagedError as damage:
        _refuse(member, damage, collector)
        return None


def extract_member(file: BinaryIO, member: Member, path: Path, collector: Collector) -> bool:
    """Write the member to ``path``; False (and a refusal) where its bytes aren't what the archive declares."""
    try:
        with path.open("wb") as out:
            for block in _checked(file, member):
                out.write(block)
    except _DamagedError as damage:
        _refuse(member, damage, collector)
        return False
    return True


def check_member(file: BinaryIO, member: Member, collector: Collector) -> None:
    """Read the member through; a refusal where its bytes aren't what the archive declares."""
    try:
        for _ in _checked(file, member):
            pass
    except _DamagedError as damage:
        _refuse(member, damage, collector)


def _refuse(member: Member, damage: _DamagedError, collector: Collector) -> None:
    collector.refuse("KP001", f"Member '{shown(member.name)}' is damaged: {damage}.", f"Copy the file again. {SAVE_AGAIN}", place=member.name)


def _checked(file: BinaryIO, member: Member) -> Iterator[bytes]:
    """Blocks of at most a MiB.

    Raises:
        _DamagedError: more or fewer bytes than declared, or another checksum.
    """
    crc, size = 0, 0
    for block in _inflated(file, member) if member.deflated else _stored(file, member):
        size += len(block)
        if size > member.size:
            raise _DamagedError(f"more than the declared {member.size} bytes come out")
        crc = zlib.crc32(block, crc)
        yield block
    if size != member.size:
        raise _DamagedError(f"{size} bytes come out, {member.size} are declared")
    if crc != member.crc:
        raise _DamagedError(f"its checksum is {crc:08x}, the archive says {member.crc:08x}")


def _stored(file: BinaryIO, member: Member) -> Iterator[bytes]:
    file.seek(member.start)
    left = member.stored
    while left:
        block = file.read(min(BLOCK, left))
        if not block:
            raise _DamagedError("the file ends inside it")
        left -= len(block)
        yield block


def _inflated(file: BinaryIO, member: Member) -> Iterator[bytes]:
    machine = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for block in _stored(file, member):
            pending = block
            while pending:
                yield machine.decompress(pending, BLOCK)
                pending = machine.unconsumed_tail
            if machine.unused_data:
                raise _DamagedError("bytes follow its compressed data")
        while rest := machine.decompress(b"", BLOCK):
            yield rest
    except zlib.error as error:
        raise _DamagedError(shown(error)) from None
    if not machine.eof:
        raise _DamagedError("its compressed data isn't complete")

"""The zip container, byte for byte: every byte of the file belongs to exactly one thing, and every member has one name and one size.

Two readers of a sloppy zip can see two different archives: what an inspection reads is then not what Keras loads.
Layout: PKWARE's APPNOTE 6.3.10, sections 4.3.7 (local header), 4.3.12 (central directory), 4.3.14 to 4.3.16 (end records).
"""

from __future__ import annotations

import re
import stat
import struct
import unicodedata
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpipe_stages.archive.collecting import shown

if TYPE_CHECKING:
    from typing import BinaryIO

    from kpipe_stages.archive.collecting import Collector
    from kpipe_stages.protocol import ArchiveLimits

SAVE_AGAIN = "Save the model again with model.save('model.keras'); don't load this file."
SMALL = 2**20
METHODS = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflated"}
_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCAL = struct.Struct("<4s5H3L2H")
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_DESCRIPTOR = 0x8
_UTF8 = 0x800
_SEE_64 = (0xFFFF, 0xFFFFFFFF)
"""In a 16-bit or 32-bit field: the value stands in the 64-bit record."""
SEE_64_OF = (_SEE_64[0], _SEE_64[0], _SEE_64[1], _SEE_64[1])
"""What says so in each of the end record's fields: members here, members, length and offset of the directory."""
_UNICODE_PATH = 0x7075


@dataclass(frozen=True)
class Member:
    """One member whose bytes may be read."""

    name: str
    size: int
    """Declared, inflated."""
    stored: int
    deflated: bool
    crc: int
    start: int
    """Offset of its bytes in the file."""

    @property
    def is_folder(self) -> bool:
        """An entry that only names a folder."""
        return self.name.endswith("/")


@dataclass(frozen=True)
class _Ends:
    entries: int
    directory: int
    """Offset of the central directory."""


def read_structure(file: BinaryIO, limits: ArchiveLimits, collector: Collector) -> dict[str, Member]:
    """Members by name, in the order of the file.

    Raises:
        StageError: KP001 not a whole zip file, KP002 a structure that readers may take differently, KP003 over the limits.
    """
    ends = _find_ends(file, collector)
    if ends.entries > limits.max_members:
        raise collector.stop(
            "KP003", f"The archive has {ends.entries} members; at most {limits.max_members} are allowed.", SAVE_AGAIN, members=ends.entries
        )
    infos = _central_directory(file, ends, collector)
    for info in infos:
        _check_name(info, collector)
        _check_kind(info, collector)
    _check_duplicates(infos, collector)
    collector.gate()
    members = _local_members(file, infos, ends, collector)
    _check_sizes(members, file.seek(0, 2), limits, collector)
    collector.gate()
    return {member.name: member for member in members}


def _find_ends(file: BinaryIO, collector: Collector) -> _Ends:
    size = file.seek(0, 2)
    tail_start = max(0, size - _END.size - 0xFFFF)
    file.seek(tail_start)
    tail = file.read()
    position = tail.rfind(b"PK\x05\x06")
    if position < 0 or len(tail) - position < _END.size:
        cause = f"The file is cut short: it begins as a zip file but has no end record in its {size} bytes."
        raise collector.stop("KP001", cause, "Copy or download the file again, completely.", bytes=size)
    _, disk, directory_disk, here, entries, length, offset, comment = _END.unpack_from(tail, position)
    end = tail_start + position
    if end + _END.size + comment != size:
        cause = f"{size - end - _END.size - comment} bytes follow the end of the archive."
        raise collector.stop("KP002", cause, SAVE_AGAIN, end=end, bytes=size)
    if comment:
        raise collector.stop("KP002", f"The archive carries a comment of {comment} bytes; Keras writes none.", SAVE_AGAIN, comment=comment)
    if _SEE_64[0] in {here, entries} or _SEE_64[1] in {length, offset} or _located(file, offset + length, end):
        small = (here, entries, length, offset)
        here, entries, length, offset, end = _zip64_ends(file, end, collector)
        if any(a not in {b, limit} for a, b, limit in zip(small, (here, entries, length, offset), SEE_64_OF, strict=True)):
            cause = f"The end record says {small}, its 64-bit record {(here, entries, length, offset)}: one reader takes the one, another the other."
            raise collector.stop("KP002", cause, SAVE_AGAIN, small=list(small), large=[here, entries, length, offset])
    if disk or directory_disk or here != entries or offset + length != end:
        cause = f"The end record places a directory of {length} bytes at {offset}; it should end at {end}, where the end record begins."
        raise collector.stop("KP002", cause, SAVE_AGAIN, offset=offset, length=length, end=end)
    return _Ends(entries, offset)


def _located(file: BinaryIO, directory_end: int, end: int) -> bool:
    """Whether a 64-bit record stands between the directory and its end record: from 2 GiB on Python writes one and fills in both."""
    room = _END64.size + _LOCATOR.size
    return end - directory_end >= room and _read_at(file, end - _LOCATOR.size, 4) == b"PK\x06\x07"


def _zip64_ends(file: BinaryIO, end: int, collector: Collector) -> tuple[int, int, int, int, int]:
    locator = _read_at(file, end - _LOCATOR.size, _LOCATOR.size) if end >= _LOCATOR.size else b""
    start = _LOCATOR.unpack(locator)[2] if locator[:4] == b"PK\x06\x07" else -1
    record = _read_at(file, start, _END64.size) if 0 <= start <= end - _LOCATOR.size - _END64.size else b""
    if record[:4] != b"PK\x06\x06":
        raise collector.stop("KP002", "The end record points to a 64-bit end record that isn't there.", SAVE_AGAIN, end=end)
    _, length, _, _, disk, directory_disk, here, entries, directory_length, offset = _END64.unpack(record)
    if start + 12 + length != end - _LOCATOR.size or disk or directory_disk:
        raise collector.stop("KP002", "The 64-bit end record doesn't end where its locator begins.", SAVE_AGAIN, start=start, length=length)
    return here, entries, directory_length, offset, start


def _central_directory(file: BinaryIO, ends: _Ends, collector: Collector) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, OSError, ValueError, struct.error, OverflowError, EOFError) as error:
        raise collector.stop(
            "KP001", f"The archive's directory can't be read: {shown(error)}.", "Copy the file again, or save the model again."
        ) from None
    if len(infos) != ends.entries:
        cause = f"The end record counts {ends.entries} members, the directory holds {len(infos)}."
        raise collector.stop("KP002", cause, SAVE_AGAIN, declared=ends.entries, found=len(infos))
    return infos


def _check_name(info: zipfile.ZipInfo, collector: Collector) -> None:
    name = info.orig_filename
    fault = ""
    if not name or "\0" in name:
        fault = "is empty or holds a NUL character"
    elif name.startswith("/") or re.match(r"[A-Za-z]:", name):
        fault = "is an absolute path"
    elif ".." in re.split(r"[/\\]", name):
        fault = "leaves the archive through '..'"
    elif "\\" in name or any(part in {"", "."} for part in name.removesuffix("/").split("/")):
        fault = "isn't a plain relative path"
    elif _UNICODE_PATH in _extra_ids(info.extra):
        fault = "has a second name in a Unicode path field"
    if fault:
        collector.refuse("KP002", f"Member '{shown(name)}' {fault}.", SAVE_AGAIN, place=name)


def _extra_ids(extra: bytes) -> set[int]:
    found, position = set(), 0
    while position + 4 <= len(extra):
        number, length = struct.unpack_from("<HH", extra, position)
        found.add(number)
        position += 4 + length
    return found


def _check_kind(info: zipfile.ZipInfo, collector: Collector) -> None:
    mode = info.external_attr >> 16
    fault = ""
    if info.flag_bits & _ENCRYPTED:
        fault = "is encrypted"
    elif info.compress_type not in METHODS:
        fault = f"is compressed by method {info.compress_type}; Keras stores its members, or deflates them"
    elif mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_IFMT(mode) == 0):
        fault = "is a symbolic link" if stat.S_ISLNK(mode) else f"is no plain file (mode {mode:o})"
    elif info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
        fault = f"is stored in {info.compress_size} bytes but declares {info.file_size}"
    elif info.is_dir() and info.file_size:
        fault = f"is named as a folder but holds {info.file_size} bytes"
    if fault:
        collector.refuse("KP002", f"Member '{shown(info.orig_filename)}' {fault}.", SAVE_AGAIN, place=info.orig_filename)


def _check_duplicates(infos: list[zipfile.ZipInfo], collector: Collector) -> None:
    seen: dict[str, str] = {}
    for info in infos:
        plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", info.filename).casefold()).removesuffix("/")
        if plain in seen:
            how = "twice" if seen[plain] == info.filename else f"beside '{shown(seen[plain])}', the same name on many systems"
            collector.refuse(
                "KP002",
                f"Member '{shown(info.filename)}' is there {how}: one reader takes the first, another the last.",
                SAVE_AGAIN,
                place=info.filename,
            )
        seen[plain] = info.filename


def _local_members(file: BinaryIO, infos: list[zipfile.ZipInfo], ends: _Ends, collector: Collector) -> list[Member]:
    members: list[Member] = []
    expected = 0
    for info in sorted(infos, key=lambda item: item.header_offset):
        if info.header_offset != expected and not _is_descriptor(members, infos, info.header_offset - expected):
            raise _misplaced(info.orig_filename, info.header_offset, expected, collector)
        member = _local_member(file, info, ends, collector)
        members.append(member)
        expected = member.start + member.stored
    if expected != ends.directory and not _is_descriptor(members, infos, ends.directory - expected):
        raise _misplaced("the central directory", ends.directory, expected, collector)
    return members


def _is_descriptor(members: list[Member], infos: list[zipfile.ZipInfo], gap: int) -> bool:
    """Whether the gap after the last member is its data descriptor (written where the sizes weren't known beforehand)."""
    last = members[-1].name if members else ""
    return any(info.filename == last and info.flag_bits & _DESCRIPTOR for info in infos) and gap in {12, 16, 20, 24}


def _misplaced(what: str, found: int, expected: int, collector: Collector) -> Exception:
    how = (
        f"overlaps the one before it by {expected - found} bytes"
        if found < expected
        else f"comes after {found - expected} bytes that belong to nothing"
    )
    return collector.stop("KP002", f"'{shown(what)}' begins at byte {found} and {how}.", SAVE_AGAIN, place=what, found=found, expected=expected)


def _local_member(file: BinaryIO, info: zipfile.ZipInfo, ends: _Ends, collector: Collector) -> Member:
    header = _read_at(file, info.header_offset, _LOCAL.size)
    if len(header) < _LOCAL.size or header[:4] != b"PK\x03\x04":
        raise collector.stop(
            "KP001",
            f"Member '{shown(info.filename)}' has no header at byte {info.header_offset}.",
            "Copy the file again, completely.",
            place=info.filename,
        )
    _, _, flags, method, _, _, crc, stored, size, name_length, extra_length = _LOCAL.unpack(header)
    name = _read_at(file, info.header_offset + _LOCAL.size, name_length)
    plain = info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437", "replace")
    known = not flags & _DESCRIPTOR
    differs = name != plain or method != info.compress_type or flags != info.flag_bits
    differs |= known and (crc != info.CRC or stored not in {info.compress_size, _SEE_64[1]} or size not in {info.file_size, _SEE_64[1]})
    if differs:
        here = f"'{shown(name.decode('cp437'))}' ({size} bytes)"
        cause = (
            f"The directory calls a member '{shown(info.orig_filename)}' ({info.file_size} bytes); its own header says {here}, or differs in kind."
        )
        raise collector.stop("KP002", cause, SAVE_AGAIN, place=info.filename)
    start = info.header_offset + _LOCAL.size + name_length + extra_length
    if start + info.compress_size > ends.directory:
        cause = f"Member '{shown(info.filename)}' would end at byte {start + info.compress_size}, inside the directory at {ends.directory}."
        raise collector.stop("KP002", cause, SAVE_AGAIN, place=info.filename)
    return Member(info.filename, info.file_size, info.compress_size, method == zipfile.ZIP_DEFLATED, info.CRC, start)


def _check_sizes(members: list[Member], file_size: int, limits: ArchiveLimits, collector: Collector) -> None:
    for member in members:
        if member.size > SMALL and member.size > limits.max_ratio * member.stored:
            ratio = member.size // max(member.stored, 1)
            cause = f"Member '{shown(member.name)}' declares {member.size} bytes in {member.stored} stored ones ({ratio} to 1)."
            remedy = f"Save the model again: Keras doesn't compress; up to {limits.max_ratio:g} to 1 is allowed."
            collector.refuse("KP003", cause, remedy, place=member.name, declared=member.size, stored=member.stored)
    total = sum(member.size for member in members)
    if total > limits.max_total_bytes or (total > SMALL and total > limits.max_ratio * file_size):
        cause = f"The members declare {total} bytes together; the file has {file_size}."
        remedy = (
            f"Up to {limits.max_total_bytes} bytes and {limits.max_ratio:g} times the file are allowed; save the model again, or raise the limit."
        )
        collector.refuse("KP003", cause, remedy, declared=total, stored=file_size)


def _read_at(file: BinaryIO, offset: int, length: int) -> bytes:
    file.seek(offset)
    return file.read(length)

"""A segment: one file of the commit log, a header and then records.

    log/00000000000000000001.log      named by the number of its first record
    log/00000000000000004711.log      the last one is written to; the others never change

The header is on disk before the first record is written behind it. So a file with anything behind a bad header is
damaged, and one with nothing behind it never held a record.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from hullcast.broker.log.private import open_private, sync_directory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MAGIC = b"HULLLOG\n"
VERSION = 1
_HEADER = Struct("<8sI16sQQ8sI")  # magic, version, identity, first record, seq before it, salt, checksum
HEADER_BYTES = _HEADER.size
_DIGITS = 20


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What a segment says about itself.

    `seq` is the sequence number of the last update before it. The salt is random: it seeds the checksums of the
    records, so that bytes which belong to another file never look like records of this one.
    """

    identity: bytes
    number: int
    seq: int
    salt: bytes
    version: int = VERSION

    @property
    def seed(self) -> int:
        """Where the checksums of this segment's records begin."""
        return crc32(self.salt, self.number & 0xFFFFFFFF)

    def encode(self) -> bytes:
        """The header's bytes."""
        fields = (MAGIC, self.version, self.identity, self.number, self.seq, self.salt)
        return _HEADER.pack(*fields, crc32(_HEADER.pack(*fields, 0)))


def decode_header(content: bytes) -> SegmentHeader | None:
    """The header at the beginning of a file, or None if there is no good one."""
    if len(content) < HEADER_BYTES:
        return None
    _, version, identity, number, seq, salt, _ = _HEADER.unpack_from(content)
    header = SegmentHeader(identity, number, seq, salt, version)
    return header if content[:HEADER_BYTES] == header.encode() else None


def read_header(path: Path) -> SegmentHeader | None:
    """The header of a file, or None if there is no good one, or no file."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        return decode_header(file.read(HEADER_BYTES))
    return None


def segments(log_directory: Path) -> list[tuple[int, Path]]:
    """The segments of a log by the number of their first record, ascending."""
    found = [(int(path.stem), path) for path in log_directory.glob("*.log") if _is_name(path.stem)]
    return sorted(found)


def _is_name(stem: str) -> bool:
    return len(stem) == _DIGITS and stem.isascii() and stem.isdigit()


class SegmentWriter:
    """The end of a segment, to be written to. Everything blocks, and raises OSError."""

    def __init__(
        self, path: Path, header: SegmentHeader, descriptor: int, size_bytes: int, durable: bool = True
    ) -> None:
        self.path, self.header, self.size_bytes = path, header, size_bytes
        self._descriptor, self._durable = descriptor, durable
        self._synced_bytes = size_bytes
        self._unsynced: list[bytes] = []  # what was written since, in order
        self._owed = b""  # it was written once, and must be written again before anything else is
        self._torn = False  # behind `size_bytes` there may be something that must be cut off first

    @classmethod
    def create(cls, log_directory: Path, identity: bytes, number: int, seq: int, durable: bool = True) -> SegmentWriter:
        """A new segment; its name and header are on disk when this returns. If it is not `durable`, nothing is ever
        synced: other processes can read what was written, and that is all."""
        path = log_directory / f"{number:0{_DIGITS}}.log"
        header = SegmentHeader(identity, number, seq, os.urandom(8))
        writer = cls(path, header, open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), 0, durable)
        try:
            writer.write([header.encode()])
            if durable:
                os.fsync(writer._descriptor)
                sync_directory(log_directory)
        except BaseException:
            writer.close()
            path.unlink()  # so that it can be made when there is room
            raise
        writer._synced()
        return writer

    @classmethod
    def resume(cls, path: Path, header: SegmentHeader, end: int) -> SegmentWriter:
        """Go on behind `end`; whatever stands there is cut off. What stands before it is on disk when this returns:
        recovery may have read it from memory, where a process that was killed had left it."""
        writer = cls(path, header, os.open(path, os.O_WRONLY), end)
        try:
            writer._cut()
            os.fsync(writer._descriptor)
        except BaseException:
            writer.close()
            raise
        return writer

    def write(self, parts: Sequence[bytes]) -> None:
        """Append bytes. If this raises, none of them are part of the file: what was written of them is cut off, at the
        latest before something else is written."""
        if self._torn:
            self._cut()
        data = b"".join((self._owed, *parts))
        done = 0
        try:
            while done < len(data):
                done += os.write(self._descriptor, memoryview(data)[done:])
        except OSError:
            self._cut_if_possible()
            raise
        self._owed = b""
        self._unsynced.append(data)
        self.size_bytes += len(data)

    def sync(self) -> None:
        """Return when all that was written is on disk."""
        if self._durable:
            os.fdatasync(self._descriptor)
        self._synced()

    def write_and_sync(self, parts: Sequence[bytes]) -> None:
        """Append bytes and return when they are on disk. If this raises, they are not part of the file.

        The kernel may have dropped any page that was not synced before, and say nothing the next time. So all of these
        are cut off, and what was there before these bytes is written again with the next ones.
        """
        kept = self.size_bytes - self._synced_bytes + len(self._owed)
        self.write(parts)
        try:
            self.sync()
        except OSError:
            self._owed = b"".join(self._unsynced)[:kept]
            self._unsynced, self.size_bytes = [], self._synced_bytes
            self._cut_if_possible()
            raise

    def _synced(self) -> None:
        self._synced_bytes, self._unsynced = self.size_bytes, []

    def _cut(self) -> None:
        os.ftruncate(self._descriptor, self.size_bytes)
        os.lseek(self._descriptor, self.size_bytes, os.SEEK_SET)
        self._torn = False

    def _cut_if_possible(self) -> None:
        self._torn = True
        with suppress(OSError):  # the next write tries again
            self._cut()

    def close(self) -> None:
        """Close the file, without syncing it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

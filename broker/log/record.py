"""A record of the commit log: its bytes and what they mean. Pure: bytes in, values out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import NamedTuple
from zlib import crc32

#: Every record begins with it, so that records can be found again behind damage. Not UTF-8, so in no TEXT.
MAGIC = b"\xf5Hc\xf6"
#: magic, checksum of the header, payload's length, payload's checksum, kind, number, synced, first, count, publisher,
#: publisher's number. LOG.md has the picture.
_HEADER = Struct("<4sIIIIQQQI16sQ")
_CHECKED = 8  # the header's checksum covers the header from here on
HEADER_BYTES = _HEADER.size
LONGEST_PAYLOAD = 1 << 30

NOBODY = bytes(16)  # the publisher of what nobody will send again


class Kind(IntEnum):
    """What a record is."""

    MARK = 0  # nothing new; all records up to `synced` were on disk when it was written
    BATCH = 1  # rows: the encoded request, opaque to the log
    STATEMENT = 2  # CREATE TABLE or DROP TABLE, as text


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that changed the tables.

    `number` counts records from 1 without a gap; `first` is the sequence number of its first update, and `count` how
    many updates it has (none for a statement, which therefore needs a number of its own). A mark has the
    number of the record before it.
    """

    kind: Kind
    number: int
    first: int
    count: int
    publisher: bytes = NOBODY
    publisher_number: int = 0
    payload: bytes = b""

    @property
    def last(self) -> int:
        """The sequence number of its last update, or of the update before it if it has none."""
        return self.first + self.count - 1


class Header(NamedTuple):
    """The fields of a header whose own checksum is right; the payload is not looked at yet."""

    payload_bytes: int
    payload_checksum: int
    kind: Kind
    number: int
    synced: int
    first: int
    updates: int
    publisher: bytes
    publisher_number: int


def encode_header(record: Record, synced: int, seed: int) -> bytes:
    """The bytes that stand before the payload.

    `synced` is the largest record number known to be on disk at this moment: what recovery may never cut (LOG.md).
    `seed` is the segment's own, so that bytes of another file are not taken for records of this one.
    """
    header = _HEADER.pack(
        MAGIC,
        0,
        len(record.payload),
        crc32(record.payload, seed),
        record.kind,
        record.number,
        synced,
        record.first,
        record.count,
        record.publisher,
        record.publisher_number,
    )
    return b"".join((MAGIC, crc32(header[_CHECKED:], seed).to_bytes(4, "little"), header[_CHECKED:]))


def read_header(buffer: bytes | memoryview, offset: int, seed: int) -> Header | None:
    """The header at an offset, or None if there is none, or none whose checksum is right."""
    if offset + HEADER_BYTES > len(buffer):
        return None
    magic, checksum, *_ = fields = _HEADER.unpack_from(buffer, offset)
    if magic != MAGIC or checksum != crc32(buffer[offset + _CHECKED : offset + HEADER_BYTES], seed):
        return None
    payload_bytes, payload_checksum, kind, *rest = fields[2:]
    if kind not in _KINDS:
        return None
    return Header(payload_bytes, payload_checksum, Kind(kind), *rest)


_KINDS = frozenset(map(int, Kind))

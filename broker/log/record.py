"""The records of a segment as bytes: written, read again, and judged where they cannot be read. Pure.

A record that is not right is either *torn* (its write was never finished, so it was never acknowledged)
or *damaged* (it was on disk once, and no longer is). The first is normal after a power cut and is cut off; the
second is never passed over. What tells them apart is `synced` in the headers behind it; see LOG.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Every record begins with it, so that records can be found again behind damage. Not UTF-8, so in no TEXT.
MAGIC = b"\xf5Hc\xf6"
#: magic, checksum of the header, payload's length, payload's checksum, kind, number, synced, first, count, publisher,
#: publisher's number. LOG.md has the picture.
_HEADER = Struct("<4sIIIIQQQI16sQ")
_CHECKED = 8  # the header's checksum covers the header from here on
HEADER_BYTES = _HEADER.size
LONGEST_PAYLOAD = 1 << 30

NOBODY = bytes(16)  # the publisher of changes that are never sent again


class RecordKind(IntEnum):
    """What a record is."""

    MARK = 0  # nothing new; all records up to `synced` were on disk when it was written
    BATCH = 1  # rows: the encoded request, opaque to the log
    STATEMENT = 2  # CREATE, DROP or ADVANCE STREAM, as text
    #: A result of the conditional subscription of this name was delivered, or tuples left the window of this name: no
    #: row changed.
    RESULT = 3
    #: Results of a derived stream are missing, from its last tuple up to here: see `StreamGap`.
    GAP = 4
    #: Up to which moment of its sources a derived stream has all results: a pair of it and the moment, as JSON.
    CONSUMED = 5


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that changed the tables.

    `number` counts records from 1 without a gap; `first` is the sequence number of its first update, and `count` how
    many updates it has (none for a statement, which therefore needs a number of its own). A mark has the
    number of the record before it.
    """

    kind: RecordKind
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


class RecordHeader(NamedTuple):
    """The fields of a header whose own checksum is right; the payload is not looked at yet."""

    payload_bytes: int
    payload_checksum: int
    kind: RecordKind
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


def read_header(buffer: bytes | memoryview, offset: int, seed: int) -> RecordHeader | None:
    """The header at an offset, or None if there is none, or none whose checksum is right."""
    if offset + HEADER_BYTES > len(buffer):
        return None
    magic, checksum, *_ = fields = _HEADER.unpack_from(buffer, offset)
    if magic != MAGIC or checksum != crc32(buffer[offset + _CHECKED : offset + HEADER_BYTES], seed):
        return None
    payload_bytes, payload_checksum, kind, *rest = fields[2:]
    if kind not in _KINDS:
        return None
    return RecordHeader(payload_bytes, payload_checksum, RecordKind(kind), *rest)


_KINDS = frozenset(map(int, RecordKind))


@dataclass(frozen=True, slots=True)
class PlacedRecord:
    """A record and where it was found."""

    offset: int
    size_bytes: int
    record: Record
    synced: int


@dataclass(frozen=True, slots=True)
class Flaw:
    """Where the good records end although the bytes do not, and why; `proof` is the place of a later header which
    says that this part was on disk: then it is damage, otherwise an unfinished write."""

    offset: int
    reason: str
    proof: int | None


class Scan:
    """Walks over the bytes of a segment behind its header; afterwards `end`, `number`, `seq`, `synced` and `flaw`
    tell how it ended.

    Invariants of what it yields: record numbers go up by one (a mark repeats the last), each `first` continues where
    the record before it ended, `synced` never falls and is below the record's own number.
    """

    def __init__(
        self, content: bytes, start: int, *, seed: int, number: int, seq: int, synced: int = 0, origin: int = 0
    ) -> None:
        """`number`, `seq` and `synced` are those of the last record before `start`; `origin` is the place in the
        segment that `content` begins with."""
        self._content, self._seed, self._origin = content, seed, origin
        self.end = start
        self.number, self.seq, self.synced = number, seq, synced
        self.flaw: Flaw | None = None

    def __iter__(self) -> Iterator[PlacedRecord]:
        """The records and marks in order, up to the first flaw or the end."""
        view = memoryview(self._content)
        while self.end - self._origin < len(view):
            placed = self._read(view, self.end - self._origin)
            if isinstance(placed, str):
                self.flaw = Flaw(self.end, placed, self._proof(view))
                return
            self.number, self.seq, self.synced = placed.record.number, placed.record.last, placed.synced
            self.end += placed.size_bytes
            yield placed

    def _read(self, view: memoryview, at: int) -> PlacedRecord | str:
        """The record at `end`, or why there is none."""
        header = read_header(view, at, self._seed)
        if header is None:
            left = len(view) - at
            return "the record's header is not what was written" if left >= HEADER_BYTES else "a record begins here"
        start = at + HEADER_BYTES
        if header.payload_bytes > min(len(view) - start, LONGEST_PAYLOAD):
            return f"record {header.number} has {header.payload_bytes} bytes and the file {len(view) - start} more"
        payload = bytes(view[start : start + header.payload_bytes])
        if crc32(payload, self._seed) != header.payload_checksum:
            return f"the content of record {header.number} is not what was written"
        expected = self.number + (header.kind is not RecordKind.MARK)
        if header.number != expected:
            return f"record {header.number} stands where {expected} belongs"
        if header.first != self.seq + 1 or not self.synced <= header.synced <= self.number:
            return f"record {header.number} does not continue what stands before it"
        record = Record(
            header.kind,
            header.number,
            header.first,
            header.updates,
            header.publisher,
            header.publisher_number,
            payload,
        )
        return PlacedRecord(self.end, HEADER_BYTES + header.payload_bytes, record, header.synced)

    def _proof(self, view: memoryview) -> int | None:
        """Where a header from `end` on says that the record after the last good one was on disk.

        Headers alone are enough: a payload may be torn where its header is not. By its seed no header can come from a
        payload, except by a copy of this very file inside itself; such a copy knows only smaller numbers.
        """
        at = self._content.find(MAGIC, self.end - self._origin)
        while at >= 0:
            header = read_header(view, at, self._seed)
            if header is not None and self.number < header.synced:
                return at + self._origin
            at = self._content.find(MAGIC, at + 1)
        return None

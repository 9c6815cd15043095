"""Reading the records of a segment, and judging what cannot be read. Pure: bytes in, verdicts out.

A record that is not right is either *torn* (its write was never finished, so nobody was told that it is safe)
or *damaged* (it was on disk once, and is not any more). The first is normal after a power cut and is cut off; the
second is never passed over. What tells them apart is `synced` in the headers behind it; see LOG.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from hullcast.broker.log.record import HEADER_BYTES, LONGEST_PAYLOAD, MAGIC, Kind, Record, read_header

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Placed:
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

    def __init__(self, content: bytes, start: int, *, seed: int, number: int, seq: int) -> None:
        """`number` and `seq` are those of the last record before this segment."""
        self._content, self._seed = content, seed
        self.end = start
        self.number, self.seq, self.synced = number, seq, 0
        self.flaw: Flaw | None = None

    def __iter__(self) -> Iterator[Placed]:
        """The records and marks in order, up to the first flaw or the end."""
        view = memoryview(self._content)
        while self.end < len(view):
            placed = self._read(view)
            if isinstance(placed, str):
                self.flaw = Flaw(self.end, placed, self._proof(view))
                return
            self.number, self.seq, self.synced = placed.record.number, placed.record.last, placed.synced
            self.end += placed.size_bytes
            yield placed

    def _read(self, view: memoryview) -> Placed | str:
        """The record at `end`, or why there is none."""
        header = read_header(view, self.end, self._seed)
        if header is None:
            left = len(view) - self.end
            return "the record's header is not what was written" if left >= HEADER_BYTES else "a record begins here"
        start = self.end + HEADER_BYTES
        if header.payload_bytes > min(len(view) - start, LONGEST_PAYLOAD):
            return f"record {header.number} has {header.payload_bytes} bytes and the file {len(view) - start} more"
        payload = bytes(view[start : start + header.payload_bytes])
        if crc32(payload, self._seed) != header.payload_checksum:
            return f"the content of record {header.number} is not what was written"
        expected = self.number + (header.kind is not Kind.MARK)
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
        return Placed(self.end, HEADER_BYTES + header.payload_bytes, record, header.synced)

    def _proof(self, view: memoryview) -> int | None:
        """Where a header from `end` on says that the record after the last good one was on disk.

        Headers alone are enough: a payload may be torn where its header is not. By its seed no header can come from a
        payload, except by a copy of this very file inside itself; such a copy knows only smaller numbers.
        """
        at = self._content.find(MAGIC, self.end)
        while at >= 0:
            header = read_header(view, at, self._seed)
            if header is not None and self.number < header.synced:
                return at
            at = self._content.find(MAGIC, at + 1)
        return None

"""Reading one segment: its records one by one, or those of a table many at a time; and judging where they end.

For `Tail`, through which everybody reads, and for `verify`, whose business is files.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.log.record import Flaw, PlacedRecord, Scan
from hullcast.broker.log.run import LogPosition, RecordRun
from hullcast.broker.log.segment import HEADER_BYTES, VERSION, SegmentHeader, decode_header
from hullcast.broker.log.walk import BAD_HEADER, BAD_PAYLOAD, MORE, NOTED, walk_records
from hullcast.network.wire.errors import BadDirectory, LogDamaged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hullcast.broker.log.walk import Bytes
    from hullcast.network.wire.arrays import Ints

HELP = "Restore this file from a copy; `hullcast log verify` lists all that is wrong. Nothing was changed"
BEGUN = "a segment was begun"
NOT_THERE = "a record that was on disk is not there"
_NOT_WRITTEN = "the content of this record is not what was written"
#: Bytes that are read at once, and records that are noted.
_BLOCK_BYTES, _RECORDS_AT_ONCE = 1 << 22, 1 << 15
#: Bytes of a segment between two places of records that are remembered.
_BOOKMARK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class TornEnd:
    """The unfinished write at the end of a log: never acknowledged, and to be removed."""

    path: Path
    offset: int
    size_bytes: int
    reason: str

    def __str__(self) -> str:
        return f"{self.size_bytes} bytes of an unfinished write at {self.path.name} byte {self.offset} ({self.reason})"


class RecordPlace(NamedTuple):
    """Where the next record of a segment stands, and what the one before it said. `seed` is the segment's own, so that
    a place in another file of the same name is not taken for it."""

    segment: int
    seed: int
    offset: int
    number: int
    seq: int
    synced: int


class SegmentReading:
    """One segment, read once: iterate over its records and marks. Then `reached` tells how far they are good, and `cut`
    what is to be cut off behind them. LogDamaged where they are not what was written; FileNotFoundError."""

    def __init__(
        self,
        path: Path,
        number: int,
        identity: bytes,
        follows: RecordPlace | None,
        last: bool,
        start: RecordPlace | None,
    ) -> None:
        """It `follows` the end of the segment before it, if that is known, and is the `last` if none follows it."""
        self.path, self.number, self.size_bytes = path, number, 0
        self._identity, self._follows, self._last, self._start = identity, follows, last, start
        self.header: SegmentHeader | None = None
        self._scan: Scan | None = None  # of a segment whose header is good
        self.cut: TornEnd | None = None

    def __iter__(self) -> Iterator[PlacedRecord]:
        with self.path.open("rb") as file:
            self.size_bytes = os.fstat(file.fileno()).st_size
            self.header = header = decode_header(file.read(HEADER_BYTES))
            if header is None and self._last and self.size_bytes <= HEADER_BYTES:
                self.cut = TornEnd(self.path, 0, self.size_bytes, BEGUN)
                return
            header = check_header(self.path, self.number, header, self._identity, self._follows)
            start = RecordPlace(self.number, header.seed, HEADER_BYTES, header.number - 1, header.seq, 0)
            if self._start is not None and self._start[:2] == start[:2]:
                start = self._start
            file.seek(start.offset)
            content = file.read()
        self.size_bytes = start.offset + len(content)  # of a file that grows: what was read of it
        self._scan = scan = Scan(
            content,
            start.offset,
            seed=header.seed,
            number=start.number,
            seq=start.seq,
            synced=start.synced,
            origin=start.offset,
        )
        yield from scan
        if scan.flaw is not None:
            self.cut = judge(scan.flaw, self.path, self.size_bytes, self._last)

    @property
    def reached(self) -> RecordPlace | None:
        """Where the next record stands; None if the header is not good."""
        if self._scan is None or self.header is None:
            return None
        scan = self._scan
        return RecordPlace(self.number, self.header.seed, scan.end, scan.number, scan.seq, scan.synced)

    @property
    def flaw(self) -> Flaw | None:
        """Why it ends there, if bytes follow."""
        return None if self._scan is None else self._scan.flaw


def check_header(
    path: Path, number: int, header: SegmentHeader | None, identity: bytes, follows: RecordPlace | None = None
) -> SegmentHeader:
    """A segment's header, if it is one that belongs there and can be read; LogDamaged, or BadDirectory."""
    if header is None:
        raise LogDamaged(str(path), 0, "its header is not what was written", HELP)
    if header.version != VERSION:
        reason = f"{path.name} has format {header.version}, this program reads format {VERSION}"
        raise BadDirectory(str(path.parent.parent), reason)
    if header.identity != identity:
        reason = f"it belongs to data directory {header.identity.hex()}, not {identity.hex()}"
        raise LogDamaged(str(path), 0, reason, "Put it back where it came from")
    if header.number != number:
        reason = f"it begins with record {header.number}, not as its name says"
        raise LogDamaged(str(path), 0, reason, "Give it its name back")
    if follows is not None and (header.number, header.seq) != (follows.number + 1, follows.seq):
        reason = f"it continues record {header.number - 1}, but the segment before it ends with {follows.number}"
        raise LogDamaged(str(path), 0, reason, "Restore the segment that is missing or too short")
    return header


def judge(flaw: Flaw, path: Path, size_bytes: int, last: bool, *, committed: bool = False) -> TornEnd:
    """What is to be cut off where a segment has a flaw; LogDamaged if that was on disk once: the server said so, or
    what stands behind it does. A segment is begun only after the one before it is on disk as a whole."""
    if committed:
        raise LogDamaged(str(path), flaw.offset, flaw.reason, HELP)
    if not last:
        raise LogDamaged(str(path), flaw.offset, f"{flaw.reason}, and a later segment was begun", HELP)
    if flaw.proof is not None:
        reason = f"{flaw.reason}, and byte {flaw.proof} tells that it was on disk"
        raise LogDamaged(str(path), flaw.offset, reason, HELP)
    return TornEnd(path, flaw.offset, size_bytes - flaw.offset, flaw.reason)


# -- many at a time ----------------------------------------------------------------------------------------


class SegmentRuns:
    """A segment read by compiled code, beside the server that writes it; it remembers where some records stand."""

    def __init__(self, path: Path, header: SegmentHeader) -> None:
        self.path, self.seq, self._number, self._seed = path, header.seq, header.number, header.seed
        self._offsets, self._seqs = [HEADER_BYTES], [header.seq]  # of records, and of the last update before each

    @classmethod
    def open(cls, path: Path, number: int, identity: bytes) -> SegmentRuns | None:
        """A segment; None if it was just begun, or removed."""
        try:
            with path.open("rb") as file:
                content = file.read(HEADER_BYTES + 1)
        except FileNotFoundError:
            return None
        header = decode_header(content)
        if header is None and len(content) <= HEADER_BYTES:
            return None
        return cls(path, check_header(path, number, header, identity))

    def remember(self, position: LogPosition) -> None:
        """Begin there for what is asked behind it, if it is a place in this file."""
        if (position.segment, position.seed) == (self._number, self._seed):
            place = bisect_left(self._offsets, position.offset)
            if place == len(self._offsets) or self._offsets[place] != position.offset:
                self._offsets.insert(place, position.offset)
                self._seqs.insert(place, position.seq)

    def runs(self, name: Bytes, after: int, through: int, buffer: Buffer) -> Iterator[tuple[RecordRun, LogPosition]]:
        """What `Tail.runs` gives of this segment, and where to go on."""
        place = max(0, bisect_right(self._seqs, after) - 1)  # 0: all of this segment is behind `after`
        at, seq = self._offsets[place], self._seqs[place]  # of the next record: `at` in the file, `here` in the buffer
        with self.path.open("rb", buffering=0) as file:
            here = size = 0
            wanted = _BLOCK_BYTES
            while seq < through:
                if here == size:
                    size, here = buffer.read(file.fileno(), at, wanted), 0
                moment = (here, seq, after, through)
                ended, count, stands, seq, safe, safe_seq = walk_records(
                    buffer.content, size, self._seed, moment, name, buffer.noted
                )
                if ended in (BAD_HEADER, BAD_PAYLOAD) or (ended == MORE and size < wanted):
                    flaw = Flaw(at + stands - here, _NOT_WRITTEN if ended == BAD_PAYLOAD else NOT_THERE, None)
                    judge(flaw, self.path, at + size, last=False, committed=True)
                if ended == MORE:  # a record is only partly there: the next block begins with it
                    wanted = max(_BLOCK_BYTES, 2 * wanted if stands == here == 0 else 0)
                position = LogPosition(self._number, self._seed, at + safe - here, safe_seq)
                at, here = at + stands - here, size if ended == MORE else stands
                if at >= self._offsets[-1] + _BOOKMARK_BYTES:
                    self._offsets.append(at)
                    self._seqs.append(seq)
                yield RecordRun(buffer.content, buffer.noted[:, :count].copy(), min(seq, through)), position


class Buffer:
    """Where a reader puts the bytes of the log, and what is noted of records in them."""

    def __init__(self) -> None:
        self.content: Bytes = np.empty(0, np.uint8)
        self.noted: Ints = np.empty((NOTED, 0), np.int64)

    def read(self, descriptor: int, at: int, size: int) -> int:
        """Read up to so many bytes of a file; returns how many there are."""
        if len(self.content) < size:
            self.content = np.empty(size, np.uint8)
        if not self.noted.shape[1]:
            self.noted = np.empty((NOTED, _RECORDS_AT_ONCE), np.int64)
        view, read = self.content[:size].data, 0
        while read < size and (more := os.preadv(descriptor, [view[read:]], at + read)):
            read += more
        return read

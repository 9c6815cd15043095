"""Reading a commit log from some record on: all that is good, then where it ends, or LogDamaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hullcast.broker.log.record import Flaw, Record, RecordKind, Scan
from hullcast.broker.log.segment import HEADER_BYTES, VERSION, SegmentHeader, decode_header, segments
from hullcast.network.wire.errors import BadDirectory, LogDamaged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HELP = "Restore this file from a copy; `hullcast log verify` lists all that is wrong. Nothing was changed"
BEGUN = "a segment was begun"


@dataclass(frozen=True, slots=True)
class TornEnd:
    """The unfinished write at the end of a log: never acknowledged, and to be removed."""

    path: Path
    offset: int
    size_bytes: int
    reason: str

    def __str__(self) -> str:
        return f"{self.size_bytes} bytes of an unfinished write at {self.path.name} byte {self.offset} ({self.reason})"


@dataclass(frozen=True, slots=True)
class End:
    """Where a log ends, to go on from there: the last good record, and its segment (None: begin a new one)."""

    number: int
    seq: int
    segment: tuple[Path, SegmentHeader, int] | None  # file, its header, where its good records end


class Replay:
    """Iterate once over the records after `after`; then `end` and `cut` are known. Changes nothing on disk.

    The bytes of one segment are in memory at a time.
    """

    def __init__(self, log_directory: Path, identity: bytes, *, after: int = 0, seq: int = 0) -> None:
        """`after` and `seq`: the last record and update that are known already, from a checkpoint."""
        self._directory, self._identity = log_directory, identity
        self._after, self._seq = after, seq
        self.cut: TornEnd | None = None
        self.end = End(after, seq, None)
        self.segments = 0  # read
        self.read_bytes = self.total_bytes = 0  # how far it is, and of how much

    def __iter__(self) -> Iterator[Record]:
        """The records, or LogDamaged where the log is not what was written."""
        found = segments(self._directory)
        at = max((i for i, (number, _) in enumerate(found) if number <= self._after + 1), default=0)
        if found and found[0][0] > self._after + 1:
            gap = f"records {self._after + 1} to {found[0][0] - 1} are missing before it"
            raise LogDamaged(str(found[0][1]), -1, gap, "Restore the segments or the checkpoint that hold them")
        previous: Scan | None = None
        self.total_bytes = sum(path.stat().st_size for _, path in found[at:])
        for number, path in found[at:]:
            self.segments += 1
            content, last = path.read_bytes(), path == found[-1][1]
            header = decode_header(content)
            if header is None and last and len(content) <= HEADER_BYTES:
                self.cut = TornEnd(path, 0, len(content), BEGUN)
                break
            header = check_header(path, number, header, self._identity, previous)
            previous = scan = scan_segment(content, header)
            yield from self._records(scan, path)
            if scan.flaw is not None:
                self.cut = judge(scan.flaw, path, len(content), last)
            self.end = End(scan.number, scan.seq, (path, header, scan.end))
        self._check_reaches()

    def _records(self, scan: Scan, path: Path) -> Iterator[Record]:
        for placed in scan:
            record = placed.record
            self.read_bytes += placed.size_bytes
            if record.number == self._after and record.last != self._seq:
                reason = f"record {record.number} ends at update {record.last}, by the checkpoint it is {self._seq}"
                raise LogDamaged(str(path), placed.offset, reason, HELP)
            if record.number > self._after and record.kind is not RecordKind.MARK:
                yield record

    def _check_reaches(self) -> None:
        """A checkpoint is written only after the log behind it: a log that ends earlier has lost something."""
        if self.end.number < self._after:
            path = self.end.segment[0] if self.end.segment else self._directory
            reason = f"the log ends with record {self.end.number}, the checkpoint with {self._after}"
            raise LogDamaged(str(path), -1, reason, HELP)


def check_header(
    path: Path, number: int, header: SegmentHeader | None, identity: bytes, previous: Scan | None
) -> SegmentHeader:
    """A segment's header, if it is the one that belongs behind the segment before it; else LogDamaged."""
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
    if previous is not None and (header.number, header.seq) != (previous.number + 1, previous.seq):
        reason = f"it continues record {header.number - 1}, but the segment before it ends with {previous.number}"
        raise LogDamaged(str(path), 0, reason, "Restore the segment that is missing or too short")
    return header


def scan_segment(content: bytes, header: SegmentHeader) -> Scan:
    """The records of a segment with that header, yet to be read."""
    return Scan(content, HEADER_BYTES, seed=header.seed, number=header.number - 1, seq=header.seq)


def judge(flaw: Flaw, path: Path, size_bytes: int, last: bool) -> TornEnd:
    """What is to be cut off where a segment has a flaw; LogDamaged if that was on disk once.

    A segment is begun only after the one before it is on disk as a whole.
    """
    if not last:
        raise LogDamaged(str(path), flaw.offset, f"{flaw.reason}, and a later segment was begun", HELP)
    if flaw.proof is not None:
        reason = f"{flaw.reason}, and byte {flaw.proof} tells that it was on disk"
        raise LogDamaged(str(path), flaw.offset, reason, HELP)
    return TornEnd(path, flaw.offset, size_bytes - flaw.offset, flaw.reason)

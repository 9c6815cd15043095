"""The commit log: records are appended on one thread and made to last on another, a group at a time."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING

from hullcast.broker.log.private import sync_directory
from hullcast.broker.log.record import LONGEST_PAYLOAD, NOBODY, Record, RecordKind, encode_header
from hullcast.broker.log.segment import SegmentWriter, segments
from hullcast.broker.log.space import NO_ROOM, DiskSpace
from hullcast.network.wire.errors import BadBatch, BadSetting, DiskFull, InvariantBroken, LogBroken

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """A log at one moment."""

    number: int  # of the last record appended
    synced: int  # of the last record on disk
    synced_seq: int
    pending_records: int
    pending_bytes: int
    groups: int  # written and synced by this process
    written_bytes: int  # by this process
    broken: bool


class CommitLog:
    """Records in the order of their numbers; what `write_and_sync` returned is on disk, and stays.

        event loop:     append append append append append ..
        thread:              write_and_sync(1..2)   write_and_sync(3..5) ..

    One group is written while the next gathers; a slow disk makes groups larger, not replies later than they must be.
    `append` belongs to one thread, `write_and_sync` may run in any other.

    Invariants:
      L1  record numbers are consecutive, and so are their updates' sequence numbers.
      L2  `synced` <= `number`; `synced` moves only after fdatasync returned without an error.
          Of a log that is not `durable`: after the records were written, so that other processes can read them.
      L3  after a failed write or sync `synced` never moves again: what the disk holds then is not known (after a
          failed fsync the kernel may forget the pages and let the next one succeed).
      L4  but where there was only no room, all that the failed group may have left in the file is cut off, the group is
          pending again, and the next attempt writes the whole of it.
    """

    def __init__(
        self,
        log_directory: Path | None,
        identity: bytes = bytes(16),
        *,
        number: int = 0,
        seq: int = 0,
        segment: SegmentWriter | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        durable: bool = True,
        pending_limit_bytes: int | None = None,
    ) -> None:
        """Continue after record `number` and update `seq`, in `segment`, or in a new one when the first group comes.
        Without a directory records are only counted: nothing lasts, and everything is "synced" at once.

        More `segment_bytes`: fewer files; less: space is given back sooner after a checkpoint. With a limit for what is
        pending the log breaks beyond it: for a log that nobody waits for.
        """
        if segment_bytes < 1:
            raise BadSetting("segment_bytes", segment_bytes, "must be a whole number, 1 or more")
        self.directory = log_directory
        self._identity = identity
        self._segment, self._segment_bytes = segment, segment_bytes
        self._durable, self._pending_limit_bytes = durable, pending_limit_bytes
        self._copy: CommitLog | None = None
        self._number = self._synced = number
        self._seq = self._synced_seq = seq
        self._pending: list[Record] = []
        self._pending_bytes = 0
        self._gathering = Lock()  # guards _pending, _pending_bytes; held for moments
        self._writing = Lock()  # guards the segment; held while the disk works
        self._groups = self._written_bytes = 0
        self._broken: str | None = None
        self._stalled: DiskFull | None = None
        if segment is not None and number:
            self._mark(segment)

    @property
    def number(self) -> int:
        """The number of the last record appended."""
        return self._number

    @property
    def seq(self) -> int:
        """The sequence number of the last update appended."""
        return self._seq

    @property
    def synced(self) -> int:
        """The number of the last record that is on disk."""
        return self._synced

    @property
    def synced_seq(self) -> int:
        """The sequence number of the last update that is on disk."""
        return self._synced_seq

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not yet given to the disk: what the owner bounds, by reading no more requests."""
        return self._pending_bytes

    @property
    def why_broken(self) -> str | None:
        """Why nothing more can be written, if so."""
        return self._broken

    @property
    def stalled(self) -> DiskFull | None:
        """Why what is pending could not be written, if the disk had no room for it and has not been tried since."""
        return self._stalled

    def copy_to(self, copy: CommitLog | None) -> None:
        """From the next record on, append to another log too, which is at the same record (None: no longer). If that
        one breaks, this one goes on without it. Only for a log without a directory: its owner never waits."""
        assert self.directory is None, "a log on disk needs no copy"
        if copy is not None and (copy.number, copy.seq) != (self._number, self._seq):
            raise InvariantBroken(f"L1: a copy at record {copy.number} of a log at {self._number}")
        self._copy = copy

    def append(
        self,
        kind: RecordKind,
        payload: bytes,
        *,
        first: int,
        count: int,
        publisher: bytes = NOBODY,
        publisher_number: int = 0,
    ) -> int:
        """Queue a record and return its number; nothing touches the disk before `write_and_sync`."""
        if self._broken is not None:
            raise LogBroken(str(self.directory), self._broken)
        if first != self._seq + 1 or count < 0:
            raise InvariantBroken(f"L1: updates {first} (+{count}) appended behind {self._seq}")
        if len(payload) > LONGEST_PAYLOAD:
            raise BadBatch("the log", f"{len(payload)} bytes in one request; at most {LONGEST_PAYLOAD}")
        record = Record(kind, self._number + 1, first, count, publisher, publisher_number, payload)
        self._number, self._seq = record.number, record.last
        if self.directory is None:
            self._synced, self._synced_seq = record.number, record.last
            if self._copy is not None and not self._copy._take(record):
                self._copy = None
        else:
            self._queue(record)
        return record.number

    def _take(self, record: Record) -> bool:
        """Queue a record of the log that this one is a copy of; returns False if this one is broken."""
        if self._broken is None:
            self._number, self._seq = record.number, record.last
            self._queue(record)
            if self._pending_limit_bytes is not None and self._pending_bytes > self._pending_limit_bytes:
                self._broken = f"the disk is too slow: {self._pending_bytes} bytes wait for it"
        return self._broken is None

    def _queue(self, record: Record) -> None:
        with self._gathering:
            self._pending.append(record)
            self._pending_bytes += len(record.payload)

    def write_and_sync(self) -> int:
        """Put all records appended so far on disk with one sync, and return the number of the last one. Blocks.

        DiskFull if there is no room on it: the records are pending again, and the next call tries again. LogBroken if
        the disk refuses for another reason, or nobody would wait for room: now and ever after.
        """
        with self._writing:
            if self._broken is not None:
                raise LogBroken(str(self.directory), self._broken)
            with self._gathering:
                group, self._pending = self._pending, []
                self._pending_bytes = 0
            if group:
                try:
                    self._write_group(group)
                except DiskFull as error:
                    self._stalled = error
                    with self._gathering:
                        self._pending = group + self._pending
                        self._pending_bytes += _size_of(group)
                    raise
            self._stalled = None
            return self._synced

    def remove_segments(self, through: int) -> int:
        """Remove the segments that hold no record after `through`; how many there were."""
        assert self.directory is not None, "asked by the owner of a directory"
        found = segments(self.directory)
        old = [path for (_, path), (after, _) in pairwise(found) if after <= through + 1]
        for path in old:
            path.unlink()
        if old and self._durable:
            sync_directory(self.directory)
        return len(old)

    def segment_sizes(self) -> list[tuple[int, int]]:
        """The segments, in order: of each the number of the record that the next one begins with, and its bytes."""
        assert self.directory is not None, "asked by the owner of a directory"
        found = segments(self.directory)
        following = [*(number for number, _ in found[1:]), 1 << 63]  # the last has all that is yet to come
        return [(number, path.stat().st_size) for number, (_, path) in zip(following, found, strict=False)]

    def statistics(self) -> LogStatistics:
        """A snapshot."""
        return LogStatistics(
            self._number,
            self._synced,
            self._synced_seq,
            len(self._pending),
            self._pending_bytes,
            self._groups,
            self._written_bytes,
            self._broken is not None,
        )

    def close(self, checkpointed: int | None = None) -> None:
        """Write what is pending and close the file. LogBroken if that fails; the file is closed all the same. Where
        there is no room, what is pending is lost: nobody was told that it is safe.

        If a checkpoint holds all up to the last record (its number is `checkpointed`), a new segment is begun: the
        next start then reads nothing of the old one.
        """
        try:
            if self._broken is None:
                with suppress(DiskFull):
                    self.write_and_sync()
                if self._segment is not None:
                    self._segment.sync()  # the last mark, too: then no flip of a bit can pass for a torn end
                    if checkpointed == self._synced >= self._segment.header.number:
                        self._begin_next(self._segment)
        except OSError as error:
            raise LogBroken(str(self.directory), str(error)) from error
        finally:
            self._broken = self._broken or "it is closed"
            if self._segment is not None:
                self._segment.close()

    def _begin_next(self, current: SegmentWriter) -> None:
        """Begin a segment that nothing is written to any more. What a full disk leaves of it is as after a crash in
        the middle of this: the next start removes it."""
        assert self.directory is not None, "there is a segment"
        with suppress(OSError):
            number, seq = self._synced + 1, self._synced_seq
            self._segment = SegmentWriter.create(self.directory, self._identity, number, seq, self._durable)
            current.close()

    def _write_group(self, group: list[Record]) -> None:
        try:
            segment = self._segment_for(group[0])
            parts: list[bytes] = []
            for record in group:
                parts.append(encode_header(record, self._synced, segment.header.seed))
                parts.append(record.payload)
            before = segment.size_bytes
            segment.write_and_sync(parts)
        except BaseException as error:  # whatever it was: the group is neither pending nor on disk (L3)
            if self._durable and isinstance(error, OSError) and error.errno in NO_ROOM:  # L4
                assert self.directory is not None, "without one nothing is pending"
                free_bytes = DiskSpace(self.directory).free_bytes
                raise DiskFull(str(self.directory), free_bytes, _size_of(group)) from error
            self._broken = str(error) or type(error).__name__
            if isinstance(error, OSError):
                raise LogBroken(str(self.directory), self._broken) from error
            raise
        self._synced, self._synced_seq = group[-1].number, group[-1].last
        self._groups += 1
        self._written_bytes += segment.size_bytes - before
        self._mark(segment)

    def _segment_for(self, record: Record) -> SegmentWriter:
        """The segment that a group beginning with this record goes to; all before it is on disk by now."""
        assert self.directory is not None, "without one nothing is pending"
        current = self._segment
        if current is None or current.size_bytes >= self._segment_bytes:
            self._segment = SegmentWriter.create(
                self.directory, self._identity, record.number, record.first - 1, self._durable
            )
            if current is not None:
                current.close()
        assert self._segment is not None
        return self._segment

    def _mark(self, segment: SegmentWriter) -> None:
        """Write, without waiting for the disk, that everything so far is on it. If that fails the group before it is
        safe all the same; only the next one will be refused, unless there was just no room."""
        mark = Record(RecordKind.MARK, self._synced, self._synced_seq + 1, 0)
        try:
            segment.write([encode_header(mark, self._synced, segment.header.seed)])
        except OSError as error:
            if error.errno not in NO_ROOM:
                self._broken = str(error)


def _size_of(group: list[Record]) -> int:
    return sum(len(record.payload) for record in group)

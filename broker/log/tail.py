"""The one reader of the log: what stands behind a record or an update, in order, up to what is committed.

                 segments, torn or damaged ends, what was cut: nobody else's business
    CommitLog  ------------------------------------------------------------------------>  Tail
                                                                                           |
       records   all of them, one by one: recovery, `hullcast log`, a standby -------------+
       runs      those about a table, many at a time, as bytes: history, warehouse, -------+
                 views and streams, which make columns of them (changes.py)

A tail follows a log that is being written by being asked again: it remembers where it was. It keeps nothing that a new
one would not find again.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.log.record import Flaw, RecordKind
from hullcast.broker.log.segment import read_header, segments
from hullcast.broker.log.segment_reading import HELP, NOT_THERE, Buffer, SegmentReading, SegmentRuns, judge
from hullcast.network.wire.errors import LogDamaged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hullcast.broker.log.record import PlacedRecord, Record
    from hullcast.broker.log.run import LogPosition, RecordRun
    from hullcast.broker.log.segment import SegmentHeader
    from hullcast.broker.log.segment_reading import RecordPlace, TornEnd


class LogCut(FileNotFoundError):
    """What was asked for is not in the log any more, or was removed while it was read."""

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(f"{file}: {reason}")
        self.file, self.reason = file, reason


class End(NamedTuple):
    """Where a log ends, to go on from there: the last good record, and its segment (None: begin a new one)."""

    number: int
    seq: int
    segment: tuple[Path, SegmentHeader, int] | None  # file, its header, where its good records end


class Tail:
    """Reads one log, beside the server that writes it or before one does. Changes nothing on disk.

    Any number of tails may; each belongs to one thread. BadDirectory if the log is of a version that this program does
    not read; LogDamaged where it is not what was written; LogCut.
    """

    def __init__(self, log_directory: Path, identity: bytes) -> None:
        self._directory, self._identity = log_directory, identity
        self._stands: RecordPlace | None = None  # where `records` stopped
        #: Of `records` without `committed`, when it has ended: where the log ends, and what is torn behind that.
        self.end = End(0, 0, None)
        self.cut: TornEnd | None = None
        self.segments = 0  # read
        self.read_bytes = self.total_bytes = 0  # how far it is, and of how much
        self._opened: dict[int, SegmentRuns] = {}
        self._buffer = Buffer()
        #: Where the last `runs` ended: before a record of which not all was asked for.
        self.position: LogPosition | None = None

    # -- all of them -------------------------------------------------------------------------------------------

    def records(self, after: int = 0, seq: int | None = None, committed: int | None = None) -> Iterator[Record]:
        """The records behind number `after`, which ended with update `seq`, if that is known; up to number
        `committed`, which is on disk. Without it, up to the end of what is good: an unfinished write is `cut`.

        The bytes of one segment are in memory at a time.
        """
        for _, placed in self.placed(after, seq, committed):
            yield placed.record

    def placed(
        self, after: int = 0, seq: int | None = None, committed: int | None = None
    ) -> Iterator[tuple[Path, PlacedRecord]]:
        """The same, and where each record stands."""
        self.end, self.cut, self.segments = End(after, seq or 0, None), None, 0
        if committed is not None and committed <= after:
            return
        reading: SegmentReading | None = None
        try:
            for reading in self.readings(after):
                for placed in reading:
                    record = placed.record
                    self.read_bytes += placed.size_bytes
                    if record.number == after and seq is not None and record.last != seq:
                        reason = f"record {record.number} ends at update {record.last}, by the checkpoint it is {seq}"
                        raise LogDamaged(str(reading.path), placed.offset, reason, HELP)
                    if record.number > after and record.kind is not RecordKind.MARK:
                        yield reading.path, placed
                        if record.number == committed:
                            return
                self.cut = reading.cut
                if reading.reached is not None and reading.header is not None:
                    reached = reading.reached
                    self.end = End(reached.number, reached.seq, (reading.path, reading.header, reached.offset))
        except FileNotFoundError as error:
            raise self._cut(error) from error
        finally:
            self._stands = None if reading is None else reading.reached
        self._check_reaches(after, committed, reading)

    def readings(self, after: int | None = None) -> Iterator[SegmentReading]:
        """The segments from the one with the record behind `after` on (None: from the first that is there), each to be
        iterated over before the next one is asked for: for those whose business is files."""
        found = segments(self._directory)
        after = after if after is not None else found[0][0] - 1 if found else 0
        if found and found[0][0] > after + 1:
            raise LogCut(found[0][1], f"records {after + 1} to {found[0][0] - 1} are missing before it")
        found = found[max((place for place, (number, _) in enumerate(found) if number <= after + 1), default=0) :]
        self.read_bytes, self.total_bytes = 0, sum(path.stat().st_size for _, path in found)
        start = self._stands if self._stands is not None and self._stands.number == after else None
        follows: RecordPlace | None = None
        for number, path in found:
            self.segments += 1
            reading = SegmentReading(path, number, self._identity, follows, path == found[-1][1], start)
            yield reading
            follows = reading.reached if reading.flaw is None else None

    def before(self, seq: int) -> int:
        """The number of a record behind which all stands that the log has from update `seq` on."""
        found = segments(self._directory)
        starts = [number - 1 for number, path in found if (header := read_header(path)) and header.seq < seq]
        return starts[-1] if starts else found[0][0] - 1 if found else 0

    def _check_reaches(self, after: int, committed: int | None, reading: SegmentReading | None) -> None:
        """A checkpoint is written only after the log behind it: a log that ends earlier has lost something. So has one
        that ends before what the server says is committed."""
        path = self._directory if self.end.segment is None else self.end.segment[0]
        if committed is not None:
            end = -1 if self.end.segment is None else self.end.segment[2]
            flaw = None if reading is None else reading.flaw
            judge(flaw or Flaw(end, NOT_THERE, None), path, end, last=True, committed=True)
        if self.end.number < after:
            reason = f"the log ends with record {self.end.number}, the checkpoint with {after}"
            raise LogDamaged(str(path), -1, reason, HELP)

    # -- those about a table -----------------------------------------------------------------------------------

    def runs(self, table: str, after: int, through: int, start: LogPosition | None = None) -> Iterator[RecordRun]:
        """The records about a table (folded name) with updates behind `after` up to `through`, which is on disk: many
        at a time, and a run after each stretch of the log, also an empty one. Valid until the next one is asked for.

        With `start`, a position whose `seq` is not behind `after`, what stands before it is not read.
        """
        self.position = start
        if after >= through:
            return
        name = np.frombuffer(table.encode(errors="surrogatepass"), np.uint8).copy()
        try:
            for segment, following in pairwise((*self._from(after), None)):
                assert segment is not None
                if start is not None:
                    segment.remember(start)
                end = through if following is None else min(through, following.seq)
                for run, position in segment.runs(name, after, end, self._buffer):
                    self.position = position
                    yield run
                if end == through:
                    return
        except FileNotFoundError as error:
            raise self._cut(error) from error

    def _from(self, after: int) -> list[SegmentRuns]:
        """The segments from the one with the first update behind `after` on."""
        listed = dict(segments(self._directory))
        self._opened = {number: opened for number, opened in self._opened.items() if number in listed}
        for number, path in listed.items():
            if number not in self._opened and (opened := SegmentRuns.open(path, number, self._identity)) is not None:
                self._opened[number] = opened
        found = [self._opened[number] for number in listed if number in self._opened]
        place = bisect_right(found, after, key=lambda segment: segment.seq)
        if not place:
            raise LogCut(self._directory, f"the log does not reach back to update {after + 1}")
        return found[place - 1 :]

    def _cut(self, error: FileNotFoundError) -> LogCut:
        return error if isinstance(error, LogCut) else LogCut(self._directory, "it was cut while it was read")

"""The changes of one table as the segments of a log have them, read beside the server that writes: found and coded.

Records of other tables are passed over without being decoded. A reader keeps nothing that a new one would not find
again but where some records stand (`LogPosition`): to go on, it need not begin at the start of a segment.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np

from hullcast.broker.log.directory import LOG
from hullcast.broker.log.record import HEADER_BYTES, RecordKind, read_header
from hullcast.broker.log.replay import HELP
from hullcast.broker.log.segment import HEADER_BYTES as SEGMENT_HEADER_BYTES
from hullcast.broker.log.segment import decode_header, segments
from hullcast.broker.tables.ingest import ingest, ingest_keys
from hullcast.broker.tables.schema import ColumnType, Table, fold
from hullcast.broker.tables.values import texts_are_good, words_of
from hullcast.network.wire import bodies
from hullcast.network.wire.bodies import Delete, Publish, changed_table
from hullcast.network.wire.errors import BadFrame, LogDamaged
from hullcast.network.wire.limits import LOGGED
from hullcast.network.wire.value_columns import is_values
from hullcast.network.wire.values import from_list, to_list

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hullcast.broker.tables.interning import Interner
    from hullcast.network.wire.arrays import Booleans, Floats, Ints
    from hullcast.network.wire.value_columns import Values

_BLOCK_BYTES = 1 << 20
#: Bytes of a segment between two places of records that are remembered.
_BOOKMARK_BYTES = 1 << 18

# -- segments ----------------------------------------------------------------------------------------------


class LoggedChange(NamedTuple):
    """A record: its updates and, if it is about the table in question, what it says."""

    first: int
    last: int
    payload: memoryview | None

    def body(self) -> Publish | Delete:
        """What it says, decoded."""
        assert self.payload is not None, "it is about another table"
        body = bodies.decode(bytes(self.payload), LOGGED)
        if not isinstance(body, Publish | Delete):
            raise BadFrame(f"a {type(body).__name__} in the log")
        return body


class LogPosition(NamedTuple):
    """Where a record stands: all updates up to `seq` stand before it. `seed` is the segment's own, so that a place in
    another file of the same name is not taken for it."""

    segment: int
    seed: int
    offset: int
    seq: int


class LogReader:
    """Reads the records of one log, beside the server that writes it; and remembers where some of them stand."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._segments: dict[int, _SegmentReader] = {}
        #: Where the last iteration over `changes` ended: not behind the last record of which something was asked.
        self.position: LogPosition | None = None

    def changes(self, table: str, after: int, through: int, start: LogPosition | None = None) -> Iterator[LoggedChange]:
        """The records with updates behind `after` up to `through`, which is on disk; those of other tables (folded
        name) without a payload. FileNotFoundError if the log does not reach back that far, or is cut meanwhile.
        With `start`, a position whose `seq` is not behind `after`, what stands before it is not read."""
        self.position = start
        if after >= through:
            return
        found = self._from(after)
        for segment, following in pairwise((*found, None)):
            assert segment is not None
            if start is not None:
                segment.remember(start)
            end = through if following is None else min(through, following.seq)
            for record, self.position in segment.records(table, after, end):
                if record is not None:
                    yield record
            if end == through:
                return

    def _from(self, after: int) -> list[_SegmentReader]:
        """The segments from the one with the first update behind `after` on."""
        listed = dict(segments(self._directory / LOG))
        self._segments = {number: opened for number, opened in self._segments.items() if number in listed}
        for number, path in listed.items():
            if number not in self._segments and (opened := _SegmentReader.open(path)) is not None:
                self._segments[number] = opened
        found = [self._segments[number] for number in listed if number in self._segments]
        place = bisect_right(found, after, key=lambda segment: segment.seq)
        if not place:
            raise FileNotFoundError(f"the log does not reach back to update {after + 1}")
        return found[place - 1 :]


class _SegmentReader:
    """A file of the log, and where some of its records stand."""

    def __init__(self, path: Path, number: int, seq: int, seed: int) -> None:
        self.path, self.seq, self._number, self._seed = path, seq, number, seed
        self._offsets, self._seqs = [SEGMENT_HEADER_BYTES], [seq]  # of records, and of the last update before each

    @classmethod
    def open(cls, path: Path) -> _SegmentReader | None:
        """A segment; None if it was just begun, or removed."""
        try:
            with path.open("rb") as file:
                header = decode_header(file.read(SEGMENT_HEADER_BYTES))
        except FileNotFoundError:
            return None
        return None if header is None else cls(path, header.number, header.seq, header.seed)

    def remember(self, position: LogPosition) -> None:
        """Begin there for what is asked behind it, if it is a place in this file."""
        if (position.segment, position.seed) == (self._number, self._seed):
            place = bisect_left(self._offsets, position.offset)
            if place == len(self._offsets) or self._offsets[place] != position.offset:
                self._offsets.insert(place, position.offset)
                self._seqs.insert(place, position.seq)

    def records(self, table: str, after: int, through: int) -> Iterator[tuple[LoggedChange | None, LogPosition]]:
        """The records here with updates behind `after` up to `through`, which are on disk, and where to go on; or
        LogDamaged."""
        place = max(0, bisect_right(self._seqs, after) - 1)  # 0: all of this segment is behind `after`
        at, seq = self._offsets[place], self._seqs[place]
        with self.path.open("rb", buffering=0) as file:
            block = _Block(file.fileno())
            while seq < through:
                header = read_header(block.read(at, HEADER_BYTES), 0, self._seed)
                if header is None or header.first != seq + 1:
                    raise LogDamaged(str(self.path), at, "a record that was on disk is not there", HELP)
                last, record = header.first + header.updates - 1, None
                if last > after and header.kind is RecordKind.BATCH:
                    payload = block.read(at + HEADER_BYTES, header.payload_bytes)
                    if crc32(payload, self._seed) != header.payload_checksum:
                        reason = f"the content of record {header.number} is not what was written"
                        raise LogDamaged(str(self.path), at, reason, HELP)
                    about = fold(changed_table(payload)) == table
                    record = LoggedChange(header.first, last, payload if about else None)
                before = at, seq
                at, seq = at + HEADER_BYTES + header.payload_bytes, last
                if at >= self._offsets[-1] + _BOOKMARK_BYTES:
                    self._offsets.append(at)
                    self._seqs.append(seq)
                yield record, LogPosition(self._number, self._seed, *((at, seq) if seq <= through else before))


class _Block:
    """The part of a file that was read last."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._start, self._content = 0, memoryview(b"")

    def read(self, at: int, size: int) -> memoryview:
        """So many bytes; fewer at the end of the file."""
        offset = at - self._start
        if not 0 <= offset <= offset + size <= len(self._content):
            content = os.pread(self._descriptor, max(size, _BLOCK_BYTES), at)
            self._start, self._content, offset = at, memoryview(content), 0
        return self._content[offset : offset + size]


# -- changes -----------------------------------------------------------------------------------------------


class ChangeBatch(NamedTuple):
    """Changes that follow each other, as codes of shape (columns, rows)."""

    seqs: Ints
    cells: Floats
    deleted: bool
    partial: bool


class GatheredChanges:
    """Changes of a table as codes, those behind `after` up to `through`. Rows published one by one are coded together:
    a NumPy call a row would take longer than all the rest."""

    def __init__(self, table: Table, interner: Interner, after: int, through: int) -> None:
        self.table, self.interner = table, interner
        self._after, self._through = after, through
        self.rows = self.size_bytes = 0
        self._batches: list[ChangeBatch] = []
        self._single: list[dict[str, Any]] = []  # rows with the same columns, not coded yet
        self._single_seqs: list[int] = []

    def add(self, record: LoggedChange) -> None:
        """One more record."""
        if record.payload is None:
            return
        body = record.body()
        self.size_bytes += len(record.payload)
        if isinstance(body, Publish) and record.first == record.last and body.absent is None:
            if self._single and self._single[0].keys() != body.columns.keys():
                self._settle()
            self._single.append(body.columns)
            self._single_seqs.append(record.first)
            self.rows += 1
            return
        self._settle()
        seqs = np.arange(record.first, record.last + 1)
        partial = False
        if isinstance(body, Delete):
            cells, good = self._keys(body.keys)
            seqs = seqs[good]
        else:
            cells, partial = ingest(self.table, body.columns, body.absent, self.interner)
        if record.first <= self._after or record.last > self._through:
            wanted = (seqs > self._after) & (seqs <= self._through)
            seqs, cells = seqs[wanted], cells[:, wanted]
        self._batches.append(ChangeBatch(seqs, cells, isinstance(body, Delete), partial))
        self.rows += len(seqs)

    def settled(self) -> list[ChangeBatch]:
        """All that was added."""
        self._settle()
        return self._batches

    def _settle(self) -> None:
        if self._single:
            rows, names = self._single, list(self._single[0])
            lists = {name: [row[name] for row in rows] for name in names}
            columns = {name: _column(values) for name, values in lists.items()}
            cells, partial = ingest(self.table, columns, None, self.interner)
            self._batches.append(ChangeBatch(np.array(self._single_seqs), cells, False, partial))
            self._single, self._single_seqs = [], []

    def _keys(self, keys: Values) -> tuple[Floats, Booleans]:
        """Rows that have only a key; and which keys are of the kind that a table can hold: to delete another, such as a
        text with a NUL character, changes nothing."""
        column = self.table.key_column
        good = np.ones(len(keys), np.bool_)
        if column.type is ColumnType.TEXT:
            words = words_of(column, keys)
            if texts_are_good([text for text in words.texts if text is not None]):
                codes = words.spread(self.interner.encode(words.texts))
            else:
                fine = [text is not None and texts_are_good([text]) for text in words.texts]
                texts = [text if ok else None for text, ok in zip(words.texts, fine, strict=True)]
                codes = words.spread(self.interner.encode(texts))
                good = ~np.isnan(codes)
        else:
            codes = ingest_keys(self.table, keys, self.interner)
        cells = np.full((len(self.table.columns), len(codes)), np.nan)
        cells[self.table.key] = codes
        return cells[:, good], good


def _column(values: list[Any]) -> Values:
    """Values of single rows as a column; of a row that came as a column, its one value."""
    return from_list([to_list(value)[0] if is_values(value) else value for value in values])

"""The changes of one table as the segments of a log have them, read beside the server that writes: found and coded.

Records of other tables are passed over without being decoded. A reader keeps nothing that a new one would not find
again but where some records stand (`LogPosition`): to go on, it need not begin at the start of a segment.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hullcast.broker.log.directory import LOG
from hullcast.broker.log.replay import HELP
from hullcast.broker.log.segment import HEADER_BYTES as SEGMENT_HEADER_BYTES
from hullcast.broker.log.segment import decode_header, segments
from hullcast.broker.log.walk import (
    BAD_HEADER,
    BAD_PAYLOAD,
    MORE,
    NOTED,
    join_texts,
    read_rows,
    table_of,
    walk_records,
)
from hullcast.broker.tables.ingest import ingest, ingest_keys
from hullcast.broker.tables.schema import Column, ColumnType, Table, fold
from hullcast.broker.tables.values import encode_numbers, texts_are_good, words_of
from hullcast.network.wire import bodies
from hullcast.network.wire.bodies import Delete, Publish
from hullcast.network.wire.errors import BadFrame, LogDamaged
from hullcast.network.wire.limits import LOGGED
from hullcast.network.wire.value_columns import Mixed, is_values
from hullcast.network.wire.values import from_list, to_list

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hullcast.broker.log.walk import Bytes
    from hullcast.broker.tables.interning import Interner
    from hullcast.network.wire.arrays import Booleans, Floats, Ints
    from hullcast.network.wire.value_columns import Values

#: Bytes that are read at once, and records that are noted.
_BLOCK_BYTES, _RECORDS_AT_ONCE = 1 << 22, 1 << 15
_FEW = 16
_NOT_THERE = "a record that was on disk is not there"
#: Bytes of a segment between two places of records that are remembered.
_BOOKMARK_BYTES = 1 << 18

# -- segments ----------------------------------------------------------------------------------------------


class LoggedChange(NamedTuple):
    """A record about a table: its updates and what it says; a payload of None only tells how far a reader is."""

    first: int
    last: int
    payload: bytes | None

    def body(self) -> Publish | Delete:
        """What it says, decoded."""
        assert self.payload is not None, "it is not a record"
        body = bodies.decode(self.payload, LOGGED)
        if not isinstance(body, Publish | Delete):
            raise BadFrame(f"a {type(body).__name__} in the log")
        return body


class RecordRun(NamedTuple):
    """Records about a table that follow each other, as bytes; all up to update `last` were looked at."""

    content: Bytes
    noted: Ints  # walk.NOTED; with room for more
    records: int
    last: int

    def updates(self, after: int, through: int) -> int:
        """How many updates behind `after` up to `through` they have."""
        before, counts = self.noted[2, : self.records] - 1, self.noted[3, : self.records]
        return int((np.minimum(before + counts, through) - np.maximum(before, after)).sum())

    @property
    def last_change(self) -> int:
        """The last update of the last of them."""
        return int(self.noted[2, self.records - 1] + self.noted[3, self.records - 1]) - 1

    def change(self, place: int) -> LoggedChange:
        """One of them, copied."""
        start, size, first, updates = self.noted[:, place].tolist()
        return LoggedChange(first, first + updates - 1, self.content[start : start + size].tobytes())


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
        self._buffer = _Buffer()
        #: Where the last iteration ended: before a record of which not all was asked for.
        self.position: LogPosition | None = None

    def runs(self, table: str, after: int, through: int, start: LogPosition | None = None) -> Iterator[RecordRun]:
        """The records about a table (folded name) with updates behind `after` up to `through`, which is on disk: many
        at a time, and a run after each stretch of the log, also an empty one. Valid until the next one is asked for.

        FileNotFoundError if the log does not reach back that far, or is cut meanwhile; LogDamaged. With `start`, a
        position whose `seq` is not behind `after`, what stands before it is not read.
        """
        self.position = start
        if after >= through:
            return
        name = np.frombuffer(table.encode(errors="surrogatepass"), np.uint8).copy()
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

    def changes(self, table: str, after: int, through: int) -> Iterator[LoggedChange]:
        """The same, record by record; after each stretch of the log there is one without a payload."""
        for run in self.runs(table, after, through):
            for place in range(run.records):
                yield run.change(place)
            yield LoggedChange(run.last, run.last, None)

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

    def runs(self, name: Bytes, after: int, through: int, buffer: _Buffer) -> Iterator[tuple[RecordRun, LogPosition]]:
        """What `LogReader.runs` gives of this segment, and where to go on."""
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
                    raise self._damaged(at + stands - here, content=ended == BAD_PAYLOAD)
                if ended == MORE:  # a record is only partly there: the next block begins with it
                    wanted = max(_BLOCK_BYTES, 2 * wanted if stands == here == 0 else 0)
                position = LogPosition(self._number, self._seed, at + safe - here, safe_seq)
                at, here = at + stands - here, size if ended == MORE else stands
                if at >= self._offsets[-1] + _BOOKMARK_BYTES:
                    self._offsets.append(at)
                    self._seqs.append(seq)
                yield RecordRun(buffer.content, buffer.noted, count, min(seq, through)), position

    def _damaged(self, at: int, *, content: bool) -> LogDamaged:
        reason = "the content of this record is not what was written" if content else _NOT_THERE
        return LogDamaged(str(self.path), at, reason, HELP)


class _Buffer:
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
        self._plain = table_of([(fold(column.name), column.type) for column in table.columns], table.key)
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

    def add_run(self, run: RecordRun) -> None:
        """Many records at once: the plain ones among them by compiled code."""
        place, most = 0, run.records
        while place < run.records:
            wanted = min(most, run.records - place)
            plain = self._add_plain(run, place, wanted)
            place += plain
            if plain == wanted:
                most *= 4
            else:
                most = _FEW  # where plain ones are few, room for many would cost more than they do
                self.add(run.change(place))
                place += 1

    def _add_plain(self, run: RecordRun, place: int, most: int) -> int:
        """The rows of records from `place` on that are one plain row each, up to `most`; how many there are."""
        if run.noted[3, place] != 1:
            return 0
        width = len(self.table.columns)
        cells, deleted = np.empty((width, most)), np.empty(most, np.bool_)
        texts = np.empty((width, 2, most), np.int64)
        rows = read_rows(run.content, run.noted, (place, place + most), self._plain, cells, deleted, texts)
        if not rows:
            return 0
        self._settle()
        cells, deleted, noted = cells[:, :rows], deleted[:rows], run.noted[:, place : place + rows]
        for position, column in enumerate(self.table.columns):
            if column.type in (ColumnType.TEXT, ColumnType.TIMESTAMP):
                self._code_texts(column, run.content, texts[position, :, :rows], cells[position])
        seqs = noted[2].copy()
        ends = [0, *(np.flatnonzero(deleted[1:] != deleted[:-1]) + 1).tolist(), rows]
        for start, stop in pairwise(ends):
            part = ChangeBatch(seqs[start:stop], cells[:, start:stop], bool(deleted[start]), False)
            self._batches.append(part)
        self.rows += rows
        self.size_bytes += int(noted[1].sum())
        return rows

    def _code_texts(self, column: Column, content: Bytes, texts: Ints, codes: Floats) -> None:
        """Put the codes of texts (where they begin and end) into a column, where there are any."""
        given = np.flatnonzero(texts[0] >= 0)
        if len(given):
            texts = np.ascontiguousarray(texts[:, given])
            joined = np.empty(int((texts[1] - texts[0] + 1).sum()), np.uint8)
            join_texts(content, texts, joined)
            words = joined.tobytes().decode().split("\0")[:-1]
            is_text = column.type is ColumnType.TEXT
            codes[given] = self.interner.encode(words) if is_text else encode_numbers(column, Mixed(tuple(words)))

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

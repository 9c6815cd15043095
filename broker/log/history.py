"""The change history, and a table as of a sequence number: read from a data directory beside the server that writes it.

    changes      the segments behind `after`: each record says what its rows became
    a table at   the newest checkpoint that is not younger, and the records between them

Between two calls nothing is kept but what a new reader would find again: where records stand in a segment, and tables
that were built. So a call can be repeated, or go on where another reader stopped. The caller says up to which update
the log is on disk; nothing behind that is given.

The rows of a table come in the order of a number that depends on their key alone (`_places`). A part of n is a range of
these numbers, and a portion ends at one: parts are disjoint and together complete, and a reader can go on from a
portion's end, whichever checkpoint it starts from.

Records that lack columns were written before the log had whole rows (LOG.md): `rows` takes them, `changes` does not.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections import OrderedDict
from contextlib import closing, suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np

from hullcast.broker.log.checkpoint import check, checkpoints, meta_of, open_checkpoint, stored_rows
from hullcast.broker.log.directory import LOG, read_identity
from hullcast.broker.log.record import HEADER_BYTES, RecordKind, read_header
from hullcast.broker.log.replay import HELP
from hullcast.broker.log.segment import HEADER_BYTES as SEGMENT_HEADER_BYTES
from hullcast.broker.log.segment import decode_header, segments
from hullcast.broker.tables.ingest import Encoded, ingest, ingest_keys
from hullcast.broker.tables.interning import Interner
from hullcast.broker.tables.schema import ColumnType, Table, fold
from hullcast.broker.tables.store import TableStore
from hullcast.broker.tables.travel import valued
from hullcast.broker.tables.values import texts_are_good, words_of
from hullcast.network.wire import bodies
from hullcast.network.wire.bodies import Delete, Publish, changed_table
from hullcast.network.wire.columns import TextColumn
from hullcast.network.wire.errors import BadFrame, HistoryGone, LogDamaged
from hullcast.network.wire.limits import LOGGED
from hullcast.network.wire.value_columns import is_values, sent_bytes
from hullcast.network.wire.values import from_list, to_list

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from hullcast.network.wire.arrays import Booleans, Floats, Ints
    from hullcast.network.wire.value_columns import Values

#: Places of rows are below this; a part of n is the n-th of them.
PLACES = 1 << 63
_BLOCK_BYTES = 1 << 20
#: Bytes of a segment between two places of records that are remembered.
_BOOKMARK_BYTES = 1 << 18
#: Records that are looked at between two questions whether to stop.
_RECORDS_AT_ONCE = 512
#: Tables that stay built, and their bytes; the one built last stays in any case.
_TABLES_KEPT, _TABLES_KEPT_BYTES = 4, 1 << 30
#: Seconds that the next table is not begun for the one before: if nobody asks for that one, and at most.
_READER_AWAY_S, _READER_SLOW_S = 1.0, 10.0


class Life(NamedTuple):
    """One table from its CREATE to its DROP: a table of the same name made again is another."""

    table: Table
    created: int  # updates up to here were made before


class PortionLimits(NamedTuple):
    """Of one portion: it ends where the first of these is reached. `enough` says that it took long."""

    rows: int
    size_bytes: int
    enough: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class ChangePortion:
    """Changes of a table: all from where was asked up to `last`. Deleted rows have only their key."""

    last: int
    seq: Ints
    deleted: Booleans
    columns: dict[str, Values]


@dataclass(frozen=True, slots=True)
class RowPortion:
    """Rows of a part of a table. `next` is the place to go on from; None if there are no more."""

    next: int | None
    columns: dict[str, Values]


def readable_from(directory: Path) -> int:
    """The first sequence number as of which tables can be read: that of the oldest checkpoint, or 0 if the log reaches
    back to the first record."""
    while True:
        found, kept = segments(directory / LOG), checkpoints(directory)
        if not kept or (found and found[0][0] == 1):
            return 0
        with suppress(FileNotFoundError):  # removed in this moment
            return _seq_of(kept[0][1])


class HistoryReader:
    """Reads one data directory. Any number of readers may, beside the server; each belongs to one thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._segments: dict[Path, _Segment] = {}
        self._checkpoints: dict[Path, int] = {}  # their sequence numbers
        self._tables: OrderedDict[tuple[Life, int], _Built] = OrderedDict()  # the one asked for last is the last
        self._building: tuple[tuple[Life, int], Generator[None, None, _Built]] | None = None
        self._newest: _Newest | None = None  # the table built last, until a part of it was read to its end

    def changes(self, life: Life, after: int, through: int, limits: PortionLimits) -> ChangePortion:
        """Changes behind `after`, in order, up to `through`, which is on disk; HistoryGone if they are not kept."""
        if after < life.created:
            raise self._gone(life, after + 1)
        gathered = _Gathered(life.table, Interner(), after, through)
        last = through
        for record in self._records(life, after, through):
            gathered.add(record)
            if gathered.rows >= limits.rows or gathered.size_bytes >= limits.size_bytes or limits.enough():
                last = min(record.last, through)
                break
        return _change_portion(gathered, last, limits)

    def rows(self, life: Life, seq: int, part: int, parts: int, start: int | None, limits: PortionLimits) -> RowPortion:
        """Rows of a part of the table as of `seq`, which is on disk, from place `start` on; HistoryGone if that is not
        kept. While the table is being built, which may take long, there are none, and the same place to go on from."""
        if seq < life.created:
            raise self._gone(life, seq + 1)
        low, high = (-(-which * PLACES // parts) for which in (part, part + 1))
        low = low if start is None else max(low, start)
        built = self._table(life, seq, limits.enough)
        if built is None:
            return RowPortion(low, valued(life.table, np.empty((len(life.table.columns), 0)), Interner()))
        portion = built.portion(low, high, limits)
        if portion.next is None and self._newest is not None and self._newest.key == (life, seq):
            self._newest = None
        return portion

    def _table(self, life: Life, seq: int, enough: Callable[[], bool]) -> _Built | None:
        """A table, or None if it takes longer.

        One is built at a time, and whoever asks for another goes on with it meanwhile; then that one waits until the
        one built last was read. With any number at once they would need any memory, and each would be forgotten for
        another before it was read. Those that are there are given also while another is built.
        """
        wanted, now = (life, seq), time.monotonic()
        if self._newest is not None and self._newest.key == wanted:
            self._newest.asked_at = now
        while wanted not in self._tables:
            if self._building is None:
                if self._newest is not None and self._newest.is_awaited(now):
                    return None
                self._building = wanted, self._build(life, seq)
            key, steps = self._building
            try:
                next(steps)
            except StopIteration as stop:
                self._building = None
                self._keep(key, stop.value)
            except BaseException:
                self._building = None
                if key == wanted:
                    raise
                # who asked for it is told at the next attempt
            if enough():
                break
        if wanted in self._tables:
            self._tables.move_to_end(wanted)
        return self._tables.get(wanted)

    def _keep(self, key: tuple[Life, int], built: _Built) -> None:
        """Keep a table, and forget those that were asked for longest ago, beyond what is kept."""
        self._tables[key] = built
        now = time.monotonic()
        self._newest = _Newest(key, now, now)
        kept_bytes = 0
        for at, (one, table) in enumerate(reversed(list(self._tables.items()))):
            kept_bytes += table.size_bytes
            if at and (at >= _TABLES_KEPT or kept_bytes > _TABLES_KEPT_BYTES):
                del self._tables[one]

    # --- the log -----------------------------------------------------------------------------------------

    def _records(self, life: Life, after: int, through: int) -> Iterator[_Logged]:
        """The records with updates behind `after` up to `through`; those of other tables without a body."""
        if after >= through:
            return
        found = self._from(life, after)
        for segment, following in pairwise((*found, None)):
            assert segment is not None
            end = through if following is None else min(through, following.seq)
            try:
                yield from segment.records(fold(life.table.name), after, end)
            except FileNotFoundError:  # removed in this moment
                raise self._gone(life, after + 1) from None
            if end == through:
                return

    def _from(self, life: Life, after: int) -> list[_Segment]:
        """The segments from the one with the first update behind `after` on."""
        listed = [path for _, path in segments(self._directory / LOG)]
        for path in self._segments.keys() - set(listed):
            del self._segments[path]
        for path in listed:
            if path not in self._segments and (opened := _Segment.open(path)) is not None:
                self._segments[path] = opened
        found = [self._segments[path] for path in listed if path in self._segments]
        place = bisect_right(found, after, key=lambda segment: segment.seq)
        if not place:
            raise self._gone(life, after + 1)
        return found[place - 1 :]

    def _gone(self, life: Life, asked: int) -> HistoryGone:
        return gone(life, asked, readable_from(self._directory))

    # --- tables ------------------------------------------------------------------------------------------

    def _build(self, life: Life, seq: int) -> Generator[None, None, _Built]:
        """The table as of `seq`, in steps."""
        store, interner, base = yield from self._load(life, seq)
        records = self._records(life, base, seq)
        while some := list(islice(records, _RECORDS_AT_ONCE)):
            gathered = _Gathered(life.table, interner, base, seq)
            for record in some:
                gathered.add(record)
            for batch in gathered.settled():
                if batch.deleted:
                    store.remove(batch.cells[life.table.key])
                else:
                    store.apply(Encoded(batch.cells, batch.partial))
            if interner.wants_sweep:  # texts that rows had and have no more
                texts = [column.type is ColumnType.TEXT for column in life.table.columns]
                interner.sweep(store.cells[texts][:, store.live_slots()].ravel())
            yield
        return _Built.of(store, interner)

    def _load(self, life: Life, seq: int) -> Generator[None, None, tuple[TableStore, Interner, int]]:
        """The table as it is in the newest checkpoint that is not younger, and the sequence number that it is of."""
        while True:
            store, interner = TableStore(life.table), Interner()
            found = self._base(life, seq)
            if found is None:
                return store, interner, life.created
            number, path = found
            try:
                with closing(open_checkpoint(path)) as database:
                    check(path, number, read_identity(self._directory) or b"")
                    yield
                    for rows in stored_rows(database, life.table, life.created):
                        store.apply(ingest(life.table, rows, None, interner))
                        yield
                return store, interner, self._checkpoints[path]
            except (FileNotFoundError, LogDamaged):
                if path.exists():
                    raise
                # removed under way: there is a younger one that will do, or it is no longer kept

    def _base(self, life: Life, seq: int) -> tuple[int, Path] | None:
        """The newest checkpoint of the table's life that is not younger: its record number and file."""
        kept = checkpoints(self._directory)
        known = {path: self._checkpoints[path] for _, path in kept if path in self._checkpoints}
        for _, path in kept:
            with suppress(FileNotFoundError):  # removed in this moment
                known[path] = known[path] if path in known else _seq_of(path)
        self._checkpoints = known
        may = [(number, path) for number, path in kept if life.created <= known.get(path, -1) <= seq]
        return may[-1] if may else None


def gone(life: Life, asked: int, kept_from: int) -> HistoryGone:
    """The error that an update, or the table before it, is not there."""
    why = "it is no longer kept; the server's setting history_bytes keeps more"
    if asked <= life.created and kept_from <= life.created:
        why = "the table was created later"
    return HistoryGone(life.table.name, asked, max(life.created, kept_from) + 1, why)


def _seq_of(checkpoint: Path) -> int:
    with closing(open_checkpoint(checkpoint)) as database:
        return int(meta_of(checkpoint, database)["seq"])


# -- segments ----------------------------------------------------------------------------------------------


class _Logged(NamedTuple):
    """A record: its updates and what it says, if it is about the table in question."""

    first: int
    last: int
    size_bytes: int
    body: Publish | Delete | None


class _Segment:
    """A file of the log, and where some of its records stand."""

    def __init__(self, path: Path, seq: int, seed: int) -> None:
        self.path, self.seq, self._seed = path, seq, seed
        self._offsets, self._seqs = [SEGMENT_HEADER_BYTES], [seq]  # of records, and of the last update before each

    @classmethod
    def open(cls, path: Path) -> _Segment | None:
        """A segment; None if it was just begun, or removed."""
        try:
            with path.open("rb") as file:
                header = decode_header(file.read(SEGMENT_HEADER_BYTES))
        except FileNotFoundError:
            return None
        return None if header is None else cls(path, header.seq, header.seed)

    def records(self, table: str, after: int, through: int) -> Iterator[_Logged]:
        """The records here with updates behind `after` up to `through`, which are on disk; or LogDamaged."""
        place = max(0, bisect_right(self._seqs, after) - 1)  # 0: all of this segment is behind `after`
        at, seq = self._offsets[place], self._seqs[place]
        with self.path.open("rb", buffering=0) as file:
            block = _Block(file.fileno())
            while seq < through:
                header = read_header(block.read(at, HEADER_BYTES), 0, self._seed)
                if header is None or header.first != seq + 1:
                    raise LogDamaged(str(self.path), at, "a record that was on disk is not there", HELP)
                last = header.first + header.updates - 1
                if last > after and header.kind is RecordKind.BATCH:
                    payload = block.read(at + HEADER_BYTES, header.payload_bytes)
                    if crc32(payload, self._seed) != header.payload_checksum:
                        reason = f"the content of record {header.number} is not what was written"
                        raise LogDamaged(str(self.path), at, reason, HELP)
                    yield _Logged(header.first, last, header.payload_bytes, _body(payload, table))
                at, seq = at + HEADER_BYTES + header.payload_bytes, last
                if at >= self._offsets[-1] + _BOOKMARK_BYTES:
                    self._offsets.append(at)
                    self._seqs.append(seq)


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


def _body(payload: memoryview, table: str) -> Publish | Delete | None:
    """What a record says, if it is about a table (folded name)."""
    if fold(changed_table(payload)) != table:
        return None
    body = bodies.decode(bytes(payload), LOGGED)
    if not isinstance(body, Publish | Delete):
        raise BadFrame(f"a {type(body).__name__} in the log")
    return body


# -- changes -----------------------------------------------------------------------------------------------


class _Batch(NamedTuple):
    """Changes that follow each other, as codes of shape (columns, rows)."""

    seqs: Ints
    cells: Floats
    deleted: bool
    partial: bool


class _Gathered:
    """Changes of a table as codes, those behind `after` up to `through`. Rows published one by one are coded together:
    a NumPy call a row would take longer than all the rest."""

    def __init__(self, table: Table, interner: Interner, after: int, through: int) -> None:
        self.table, self.interner = table, interner
        self._after, self._through = after, through
        self.rows = self.size_bytes = 0
        self._batches: list[_Batch] = []
        self._single: list[dict[str, Any]] = []  # rows with the same columns, not coded yet
        self._single_seqs: list[int] = []

    def add(self, record: _Logged) -> None:
        """One more record."""
        body = record.body
        if body is None:
            return
        self.size_bytes += record.size_bytes
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
        self._batches.append(_Batch(seqs, cells, isinstance(body, Delete), partial))
        self.rows += len(seqs)

    def settled(self) -> list[_Batch]:
        """All that was added."""
        self._settle()
        return self._batches

    def _settle(self) -> None:
        if self._single:
            rows, names = self._single, list(self._single[0])
            lists = {name: [row[name] for row in rows] for name in names}
            columns = {name: _column(values) for name, values in lists.items()}
            cells, partial = ingest(self.table, columns, None, self.interner)
            self._batches.append(_Batch(np.array(self._single_seqs), cells, False, partial))
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


def _change_portion(gathered: _Gathered, last: int, limits: PortionLimits) -> ChangePortion:
    table, batches = gathered.table, gathered.settled()
    for batch in batches:
        if batch.partial:
            why = "an earlier version of the server logged it without all columns"
            raise HistoryGone(table.name, int(batch.seqs[0]), int(batch.seqs[-1]) + 1, why)
    if not batches:
        empty = valued(table, np.empty((len(table.columns), 0)), gathered.interner)
        return ChangePortion(last, np.empty(0, np.int64), np.empty(0, np.bool_), empty)
    seqs = np.concatenate([batch.seqs for batch in batches])
    cells = np.concatenate([batch.cells for batch in batches], axis=1)
    deleted = np.repeat([batch.deleted for batch in batches], [len(batch.seqs) for batch in batches])
    rows = min(len(seqs), limits.rows)
    while True:
        columns = valued(table, cells[:, :rows], gathered.interner)
        fitting = _fitting(columns, rows, limits)
        if fitting == rows:
            break
        rows = fitting
    if rows < len(seqs):
        last = int(seqs[rows - 1])
    return ChangePortion(last, seqs[:rows], deleted[:rows], columns)


def _fitting(columns: dict[str, Values], rows: int, limits: PortionLimits) -> int:
    """How many of the rows a portion should have by their bytes: all, or fewer if they are much too many."""
    size_bytes = sum(map(_size_bytes, columns.values()))
    if rows <= 1 or size_bytes <= 2 * limits.size_bytes:
        return rows
    return max(1, rows * limits.size_bytes // size_bytes)


def _size_bytes(column: Values) -> int:
    """About the bytes of a column; by characters, since there may be a word a row."""
    if isinstance(column, TextColumn):
        return column.codes.nbytes + sum(map(len, column.words))
    return sent_bytes(column)


# -- tables ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Newest:
    """A table that was built, and that its reader may not have read yet."""

    key: tuple[Life, int]
    built_at: float
    asked_at: float

    def is_awaited(self, now: float) -> bool:
        """Whether others wait until it was read: while somebody reads it, and not for long."""
        return now < self.asked_at + _READER_AWAY_S and now < self.built_at + _READER_SLOW_S


@dataclass(frozen=True, slots=True)
class _Built:
    """All rows of a table, ordered by their places."""

    table: Table
    places: Ints
    cells: Floats
    interner: Interner

    @classmethod
    def of(cls, store: TableStore, interner: Interner) -> _Built:
        """The rows of a store."""
        live = store.live_slots()
        places = _places(store.table.key_column.type, store.cells[store.table.key, live], interner)
        order = np.argsort(places, kind="stable")
        return cls(store.table, places[order], store.cells[:, live[order]], interner)

    @property
    def size_bytes(self) -> int:
        """About what it takes."""
        return self.places.nbytes + self.cells.nbytes + self.interner.memory_bytes() + self.interner.characters()

    def portion(self, low: int, high: int, limits: PortionLimits) -> RowPortion:
        """Rows with places from `low` up to below `high`. Rows of one place stay together."""
        first, end = np.searchsorted(self.places, [low, min(high, PLACES - 1)]).tolist()
        if high == PLACES:
            end = len(self.places)
        rows = min(end - first, limits.rows)
        while True:
            stop = first + rows
            if rows > 0 and stop < end:
                stop = int(np.searchsorted(self.places, self.places[stop - 1], "right"))
            columns = valued(self.table, self.cells[:, first:stop], self.interner)
            fitting = _fitting(columns, rows, limits)
            if fitting == rows:
                break
            rows = fitting
        return RowPortion(int(self.places[stop]) if stop < end else None, columns)


def _places(kind: ColumnType, keys: Floats, interner: Interner) -> Ints:
    """The place of each key, from 0 to below PLACES: mixed well, and the same wherever it is computed."""
    if kind is ColumnType.TEXT:
        texts = interner.decode(keys).tolist()
        mixed = np.fromiter(
            (int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") for text in texts),
            np.uint64,
            len(texts),
        )
    else:  # the finaliser of SplitMix64
        mixed = keys.astype(np.float64).view(np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(1)).astype(np.int64)

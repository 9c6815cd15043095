"""The change history, and tables at a sequence number, read from the files beside the server.

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

import time
from collections import OrderedDict
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.log.changes import GatheredChanges
from hullcast.broker.log.checkpoint import checkpoints, meta_of, open_checkpoint, stored_rows
from hullcast.broker.log.directory import LOG, read_identity
from hullcast.broker.log.segment import segments
from hullcast.broker.log.source import TableSource
from hullcast.broker.sql.create import create_text
from hullcast.broker.tables.ingest import Encoded, ingest
from hullcast.broker.tables.interning import Interner
from hullcast.broker.tables.schema import ColumnType, Table
from hullcast.broker.tables.store import TableStore
from hullcast.broker.tables.travel import valued
from hullcast.network.wire.columns import TextColumn
from hullcast.network.wire.errors import HistoryGone, LogDamaged
from hullcast.network.wire.value_columns import sent_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from hullcast.broker.log.run import RecordRun
    from hullcast.network.wire.arrays import Booleans, Floats, Ints
    from hullcast.network.wire.value_columns import Values

#: Places of rows are below this; a part of n is the n-th of them.
PLACES = 1 << 63
#: Rows, and bytes of the log, that are looked at between two questions whether to stop.
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 1 << 12, 1 << 20
#: Tables that stay built, and their bytes; the one built last stays in any case.
_TABLES_KEPT, _TABLES_KEPT_BYTES = 4, 1 << 30
#: Seconds that the next table is not begun for the one before: if nobody asks for that one, and at most.
_READER_AWAY_S, _READER_SLOW_S = 1.0, 10.0


class Life(NamedTuple):
    """One table from its CREATE to its DROP: a table of the same name made again is another."""

    table: Table
    created: int  # updates up to here were made before

    @property
    def text(self) -> str:
        """The statement that makes such a table."""
        return _text(self.table)


_text = lru_cache(1024)(create_text)


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
            return seq_of(kept[0][1])


class HistoryReader:
    """Reads one data directory. Any number of readers may, beside the server; each belongs to one thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._source = TableSource(directory, read_identity(directory) or b"")
        self._tables: OrderedDict[tuple[Life, int], _Built] = OrderedDict()  # the one asked for last is the last
        self._building: tuple[tuple[Life, int], Generator[None, None, _Built]] | None = None
        self._newest: _Newest | None = None  # the table built last, until a part of it was read to its end

    def changes(self, life: Life, after: int, through: int, limits: PortionLimits) -> ChangePortion:
        """Changes behind `after`, in order, up to `through`, which is on disk; HistoryGone if they are not kept."""
        if after < life.created:
            raise self._gone(life, after + 1)
        gathered = GatheredChanges(life.table, Interner(), after, through)
        last = through
        for part in self._parts(life, after, through, limits.rows, limits.size_bytes):
            gathered.add(part)
            if gathered.rows >= limits.rows or gathered.size_bytes >= limits.size_bytes or limits.enough():
                last = min(part.last, through)
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

    def _parts(
        self, life: Life, after: int, through: int, rows: int = _ROWS_AT_ONCE, size_bytes: int = _BYTES_AT_ONCE
    ) -> Iterator[RecordRun]:
        """The records with updates behind `after` up to `through`, some at a time, and now and then none."""
        rows, size_bytes = min(rows, _ROWS_AT_ONCE), min(size_bytes, _BYTES_AT_ONCE)
        try:
            for run in self._source.runs(life, after, through):
                yield from run.parts(rows, size_bytes)
        except FileNotFoundError:  # not there, or removed in this moment
            raise self._gone(life, after + 1) from None

    def _gone(self, life: Life, asked: int) -> HistoryGone:
        return gone(life, asked, readable_from(self._directory))

    # --- tables ------------------------------------------------------------------------------------------

    def _build(self, life: Life, seq: int) -> Generator[None, None, _Built]:
        """The table as of `seq`, in steps."""
        store, interner, base = yield from self._load(life, seq)
        for part in self._parts(life, base, seq):
            gathered = GatheredChanges(life.table, interner, base, seq)
            gathered.add(part)
            for batch in gathered.settled():
                if batch.deleted:
                    store.remove(batch.cells[life.table.key])
                else:
                    store.apply(Encoded(batch.cells, batch.partial))
            if interner.wants_sweep:  # texts that rows had and have no more
                texts = [column.type is ColumnType.TEXT for column in life.table.columns]
                interner.sweep(store.cells[:, store.live_slots()][texts].ravel())
            yield
        return _Built.of(store, interner)

    def _load(self, life: Life, seq: int) -> Generator[None, None, tuple[TableStore, Interner, int]]:
        """The table as it is in the newest checkpoint that is not younger, and the sequence number that it is of."""
        while True:
            store, interner = TableStore(life.table), Interner()
            base = next(self._source.bases(life, seq), None)
            if base is None:
                return store, interner, life.created
            yield
            try:
                with closing(open_checkpoint(base.path)) as database:
                    for rows in stored_rows(database, life.table, life.created):
                        store.apply(ingest(life.table, rows, None, interner))
                        yield
                return store, interner, base.seq
            except (FileNotFoundError, LogDamaged):
                if base.path.exists():
                    raise
                # removed under way: there is a younger one that will do, or it is no longer kept


def gone(life: Life, asked: int, kept_from: int) -> HistoryGone:
    """The error that an update, or the table before it, is not there."""
    why = "it is no longer kept; the server's setting history_bytes keeps more"
    if asked <= life.created and kept_from <= life.created:
        why = "the table was created later"
    return HistoryGone(life.table.name, asked, max(life.created, kept_from) + 1, why)


def seq_of(checkpoint: Path) -> int:
    with closing(open_checkpoint(checkpoint)) as database:
        return int(meta_of(checkpoint, database)["seq"])


# -- changes -----------------------------------------------------------------------------------------------


def _change_portion(gathered: GatheredChanges, last: int, limits: PortionLimits) -> ChangePortion:
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

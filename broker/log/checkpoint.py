"""A checkpoint: the tables after some record, in an SQLite file that can be read with `sqlite3`.

The user's tables stand there under their own names, TIMESTAMPs as microseconds since 1970. Beside them:

    hullcast_meta        identity, number and seq of the last record inside, format
    hullcast_tables      each table's CREATE TABLE, the name it has in this file (its own, unless that is taken),
                         and the sequence number at which it was created
    hullcast_views       each view's CREATE VIEW
    hullcast_streams     of each stream the last position that was removed (without a time), and what its tuples do not
                         tell of their effective times (broker/tables/stream.py: TimeMark)
    hullcast_derived     of each derived stream up to which moment of its sources all results are in it; without a time:
                         where results are missing
    hullcast_receipts    the publishers' receipts (broker/log/publishers.py)
    hullcast_forgotten   keys (their digests) that had publishers whose receipts are forgotten

A file is complete or has another name: it is written as `.tmp`, synced, and renamed. SQLite does not notice a
flipped bit in a value, so the file's checksum stands in its header, in the field that `PRAGMA user_version` shows.
"""

from __future__ import annotations

import gc
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np

from hullcast.broker.log.private import open_private, sync_directory
from hullcast.broker.log.publishers import KeptReceipt
from hullcast.broker.queries.view import create_text as view_text
from hullcast.broker.scheduling.driver import Until
from hullcast.broker.sql.create import create_text
from hullcast.broker.tables.feed import TableCopy, note_changes
from hullcast.broker.tables.room import with_room
from hullcast.broker.tables.schema import ColumnType, Table, fold
from hullcast.broker.tables.stream import TimeMark
from hullcast.broker.tables.values import decode_column
from hullcast.network.wire.errors import HullcastError, LogDamaged
from hullcast.network.wire.value_columns import most_rows
from hullcast.network.wire.values import from_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.log.publishers import KeptReceipts, Publishers
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.tables.feed import Follower
    from hullcast.broker.tables.interning import Texts
    from hullcast.broker.tables.store import TableStore
    from hullcast.network.wire.arrays import Booleans, Floats
    from hullcast.network.wire.value_columns import ValueColumns, Values


_FORMAT = 5  # 4 has no streams, 3 no views
#: Receipts of format 2 are left out: their ids have another form, and no client of that time can send a change again.
_READABLE = (2, 3, 4, _FORMAT)
_APPLICATION_ID = 0x48756C6C  # "Hull": what `file` could show
_CHECKSUM = slice(60, 64)  # SQLite's user_version, in its file header
_ROWS_AT_ONCE = 50_000
_PAGE_BYTES = 16384
#: Rows copied in one slice, and about what that takes.
CAPTURED_AT_ONCE, CAPTURE_COST_S = 16_384, 0.002
_BLOCK_BYTES = 1 << 20
_OWN_TABLES = (
    "hullcast_meta",
    "hullcast_tables",
    "hullcast_views",
    "hullcast_streams",
    "hullcast_derived",
    "hullcast_receipts",
    "hullcast_forgotten",
)
_AFFINITY = {
    ColumnType.TEXT: "TEXT",
    ColumnType.REAL: "REAL",
    ColumnType.INTEGER: "INTEGER",
    ColumnType.TIMESTAMP: "INTEGER",
}


class CapturedStream(NamedTuple):
    """What is known of a stream besides its tuples: the last position removed, its time marks, and of a derived one up
    to which moment of its sources all results are in it, and where results are missing."""

    removed: int
    marks: tuple[TimeMark, ...]
    consumed: tuple[float, int] | None
    gaps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CapturedState:
    """The state after one record, copied: what `write` puts on disk while the engine goes on."""

    number: int
    seq: int
    tables: tuple[tuple[Table, Floats, Booleans, int], ...]  # cells, which slots are alive, when it was created
    texts: Texts
    receipts: KeptReceipts
    views: tuple[str, ...] = ()  # their CREATE VIEW
    streams: Mapping[str, CapturedStream] = field(default_factory=dict)  # by folded name


@dataclass(frozen=True, slots=True)
class Written:
    """A checkpoint on disk."""

    path: Path
    number: int
    seq: int
    rows: int
    size_bytes: int


def capturing(engine: ServedEngine, publishers: Publishers, number: Callable[[], int]) -> Work:
    """Copy the tables, some rows at a time, following what changes meanwhile. The result is a `CapturedState` of the
    moment in which the last slice ended; `number` gives the last record that the engine has applied then."""
    follower = engine.feed.follower("checkpoint")
    copies: dict[str, _Copy] = {}
    try:
        while True:
            _follow(follower, copies, engine.catalogue.stores)
            room = CAPTURED_AT_ONCE
            for copy in copies.values():
                room -= copy.take(room)
            if any(copy.rows.left for copy in copies.values()):
                yield CAPTURE_COST_S
            elif engine.changes.held():  # rows that nobody may see yet
                yield Until(lambda: not engine.changes.held())
            else:
                stores = ((copy, copy.rows.store) for copy in copies.values())
                tables = tuple((store.table, *copy.whole(), store.created) for copy, store in stores)
                views = tuple(map(view_text, engine.catalogue.views.values()))
                streams = {
                    name: CapturedStream(
                        stream.order.removed, stream.order.marks, stream.consumed, tuple(stream.order.gaps)
                    )
                    for name, stream in engine.streams.items()
                }
                return CapturedState(
                    number(), engine.seq, tables, engine.interner.texts, publishers.capture(), views, streams
                )
    finally:
        follower.close()


class _Copy:
    """A table as it will be written."""

    def __init__(self, store: TableStore) -> None:
        self.rows = TableCopy(store)
        self._cells: Floats = np.empty((len(store.table.columns), 0))  # dead slots: anything
        self._alive: Booleans = np.empty(0, np.bool_)

    def take(self, rows: int) -> int:
        """Copy up to so many more rows; returns how many were copied."""
        copied = 0
        while copied < rows and (portion := self.rows.portion(rows - copied)) is not None:
            used = self.rows.store.high_water
            self._cells, self._alive = with_room(self._cells, used), with_room(self._alive, used)
            self._alive[portion.slots] = portion.alive
            self._cells[:, portion.slots[portion.alive]] = portion.cells
            copied += len(portion.slots)
        return copied

    def whole(self) -> tuple[Floats, Booleans]:
        """The cells, and which slots are alive."""
        return self._cells, self._alive[: self.rows.store.high_water]


def _follow(follower: Follower, copies: dict[str, _Copy], stores: Mapping[str, TableStore]) -> None:
    """Note what changed, and which tables came or went."""
    note_changes(follower, {name: copy.rows for name, copy in copies.items()})
    for name in [name for name, copy in copies.items() if stores.get(name) is not copy.rows.store]:
        del copies[name]
    for name, store in stores.items():
        if name not in copies:
            copies[name] = _Copy(store)
            follower.add(store.table)


def write(
    captured: CapturedState,
    directory: Path,
    identity: bytes,
    durable: bool = True,
    most_bytes: int | None = None,
    reached: Callable[[int, int], None] = lambda done, total: None,
) -> Written:
    """Write a checkpoint; it is on disk under its name when this returns. Blocks. Raises OSError or sqlite3.Error, or
    what `reached` raises, which hears now and then how many rows are written, and how many there are.

    If it need not be `durable`, it is not synced, only complete for other processes. The caller has seen to it that the
    log is on disk up to `captured.number`.
    """
    path = directory / f"checkpoint-{captured.number:020}.sqlite"
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    try:
        rows = _fill(temporary, captured, identity, most_bytes, reached)
        size_bytes = _seal(temporary, durable)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(directory)
    return Written(path, captured.number, captured.seq, rows, size_bytes)


def checkpoints(directory: Path) -> list[tuple[int, Path]]:
    """The checkpoints of a data directory by record number, ascending."""
    found = []
    for path in directory.glob("checkpoint-*.sqlite"):
        number = path.stem.removeprefix("checkpoint-")
        if len(number) == 20 and number.isascii() and number.isdigit():
            found.append((int(number), path))
    return sorted(found)


def remove_leftovers(directory: Path) -> int:
    """Remove what interrupted checkpoints left; how many files."""
    leftovers = [*directory.glob("checkpoint-*.tmp"), *directory.glob("checkpoint-*.tmp-journal")]
    for path in leftovers:
        path.unlink()
    return len(leftovers)


# -- writing ---------------------------------------------------------------------------------------------


def _fill(
    path: Path,
    captured: CapturedState,
    identity: bytes,
    most_bytes: int | None,
    reached: Callable[[int, int], None],
) -> int:
    """Make the SQLite file; the number of rows in it. sqlite3.OperationalError if it would be larger than it may be."""
    rows, total = 0, sum(int(np.count_nonzero(alive)) for _, _, alive, _ in captured.tables)
    os.close(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))  # SQLite would make it readable by all
    with closing(sqlite3.connect(path, isolation_level=None, cached_statements=0)) as database:
        # the file gets its name only when it is complete: no journal, and one sync at the end
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        database.execute("PRAGMA temp_store = MEMORY")
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        if most_bytes is not None:
            database.execute(f"PRAGMA max_page_count = {max(1, most_bytes // _PAGE_BYTES)}")
        database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        database.execute("BEGIN")
        database.execute("CREATE TABLE hullcast_meta (name TEXT, value)")
        database.execute('CREATE TABLE hullcast_tables (stored TEXT, "create" TEXT, created INTEGER)')
        database.execute(
            'CREATE TABLE hullcast_receipts (publisher BLOB, number INTEGER, "first" INTEGER, last INTEGER)'
        )
        database.execute("CREATE TABLE hullcast_forgotten (key BLOB)")
        database.execute('CREATE TABLE hullcast_views ("create" TEXT)')
        database.executemany("INSERT INTO hullcast_views VALUES (?)", zip(captured.views, strict=True))
        database.execute("CREATE TABLE hullcast_streams (stored TEXT, position INTEGER, time REAL)")
        database.execute("CREATE TABLE hullcast_derived (stored TEXT, time REAL, position INTEGER)")
        meta = {"identity": identity, "number": captured.number, "seq": captured.seq, "format": _FORMAT}
        database.executemany("INSERT INTO hullcast_meta VALUES (?, ?)", meta.items())
        database.executemany("INSERT INTO hullcast_receipts VALUES (?, ?, ?, ?)", captured.receipts.entries())
        forgotten = ((key,) for key in sorted(captured.receipts.forgotten))
        database.executemany("INSERT INTO hullcast_forgotten VALUES (?)", forgotten)
        taken = {*_OWN_TABLES, *(fold(table.name) for table, *_ in captured.tables)}
        for table, cells, alive, created in captured.tables:
            stored = _stored_name(table.name, taken)
            database.execute("INSERT INTO hullcast_tables VALUES (?, ?, ?)", (stored, create_text(table), created))
            if (stream := captured.streams.get(fold(table.name))) is not None:
                known = [(stored, stream.removed, None), *((stored, *mark) for mark in stream.marks)]
                database.executemany("INSERT INTO hullcast_streams VALUES (?, ?, ?)", known)
                if stream.consumed is not None:
                    database.execute("INSERT INTO hullcast_derived VALUES (?, ?, ?)", (stored, *stream.consumed))
                gaps = ((stored, None, position) for position in stream.gaps)
                database.executemany("INSERT INTO hullcast_derived VALUES (?, ?, ?)", gaps)
            columns = ", ".join(f'"{column.name}" {_AFFINITY[column.type]}' for column in table.columns)
            database.execute(f'CREATE TABLE "{stored}" ({columns})')
            insert = f'INSERT INTO "{stored}" VALUES ({", ".join("?" * len(table.columns))})'
            for values in _column_blocks(table, cells, alive, captured.texts):
                database.executemany(insert, zip(*values, strict=True))
                rows += len(values[0])
                reached(rows, total)
        database.execute("COMMIT")
    return rows


def _stored_name(name: str, taken: set[str]) -> str:
    """The table's own name, unless the checkpoint needs it for itself."""
    if fold(name) not in _OWN_TABLES:
        return name
    while fold(name) in taken:
        name += "_"
    taken.add(fold(name))
    return name


def _column_blocks(table: Table, cells: Floats, alive: Booleans, texts: Texts) -> Iterator[list[list[Any]]]:
    """The live rows as columns of SQLite's values, some rows at a time: the rows as objects would fill memory."""
    live = np.flatnonzero(alive)
    for start in range(0, len(live), _ROWS_AT_ONCE):
        slots = live[start : start + _ROWS_AT_ONCE]
        yield [
            decode_column(
                ColumnType.INTEGER if column.type is ColumnType.TIMESTAMP else column.type, cells[i, slots], texts
            )
            for i, column in enumerate(table.columns)
        ]


def _seal(path: Path, durable: bool = True) -> int:
    """Put the checksum into the file and, if it shall last, the file on disk; its size."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.pwrite(descriptor, _checksum(path).to_bytes(4, "big"), _CHECKSUM.start)
        if durable:
            os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _checksum(path: Path) -> int:
    """Of the whole file, the place of the checksum itself taken as zeros."""
    found = 0
    with path.open("rb") as file:
        block = bytearray(file.read(_BLOCK_BYTES))
        block[_CHECKSUM] = bytes(4)
        while block:
            found = crc32(block, found)
            block = bytearray(file.read(_BLOCK_BYTES))
    return found


# -- reading: the same values, to the bit ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """What a checkpoint brought back."""

    number: int
    seq: int
    rows: int
    receipts: list[KeptReceipt]
    forgotten: list[bytes]


def check(path: Path, number: int, identity: bytes) -> None:
    """LogDamaged unless the file is as it was written, by this data directory."""
    if not _is_whole(path):
        raise _damaged(path, "its checksum is wrong")
    with closing(open_checkpoint(path)) as database:
        meta = meta_of(path, database)
    if meta.get("format") not in _READABLE:
        raise _damaged(path, f"it has format {meta.get('format')}, this program reads {_FORMAT}")
    if meta.get("identity") != identity:
        raise _damaged(path, "it belongs to another data directory")
    if meta.get("number") != number:
        raise _damaged(path, f"it holds record {meta.get('number')}, not as its name says")


def load(
    path: Path, engine: ServedEngine, loaded: Callable[[int, int], None] = lambda done, total: None
) -> LoadedCheckpoint:
    """Fill an engine without tables with those of a checkpoint that passed `check`; `loaded` hears now and then how
    many rows are in, and how many there are."""
    collecting = gc.isenabled()
    gc.disable()  # millions of values come and none of them is garbage: looking for it takes a quarter of the time
    try:
        with closing(open_checkpoint(path)) as database:
            meta = meta_of(path, database)
            tables = database.execute("SELECT * FROM hullcast_tables ORDER BY rowid").fetchall()
            done, total = 0, sum(_row_count(database, name) for name, *_ in tables)
            for name, create, *created in tables:
                before = set(engine.tables)
                engine.execute(create)
                (declared,) = set(engine.tables) - before
                # checkpoints of earlier versions do not tell: then nothing before them is known of the table
                engine.catalogue.store(declared).created = created[0] if created else meta["seq"]
                for rows in _blocks(database, name, engine.tables[declared]):
                    engine.load_rows(declared, rows)
                    done += most_rows(rows)
                    loaded(done, total)
                if engine.tables[declared].stream is not None:
                    stream = engine.streams[fold(declared)]
                    stream.restore(*_load_stream(database, name))
                    stream.consumed = stream.logged = _load_consumed(database, name)
            _load_views(database, engine)
            receipts, forgotten = _load_receipts(database) if meta["format"] >= 3 else ([], [])
    except (sqlite3.Error, HullcastError, ValueError) as error:
        raise _damaged(path, f"its content is not what it should be: {error}") from error
    finally:
        if collecting:
            gc.enable()
    engine.start_at(meta["seq"])
    return LoadedCheckpoint(meta["number"], meta["seq"], total, receipts, forgotten)


def _row_count(database: sqlite3.Connection, stored: str) -> int:
    """Rows are only ever added to a checkpoint's tables, so the last one has their number; to count them would mean to
    read them."""
    (last,) = database.execute(f'SELECT MAX(rowid) FROM "{stored}"').fetchone()
    return last or 0


def _load_views(database: sqlite3.Connection, engine: ServedEngine) -> None:
    """Create the views; the tables they read are there."""
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'hullcast_views'").fetchone():
        return  # of an earlier version
    for (create,) in database.execute("SELECT * FROM hullcast_views ORDER BY rowid").fetchall():
        engine.execute(create)


def _load_stream(database: sqlite3.Connection, stored: str) -> tuple[int, list[TimeMark], list[int]]:
    """What is known of a stream besides its tuples: the last position removed, its time marks, and its gaps."""
    query = "SELECT position, time FROM hullcast_streams WHERE stored = ? ORDER BY rowid"
    (removed, _), *marks = database.execute(query, (stored,)).fetchall()
    query = "SELECT position FROM hullcast_derived WHERE stored = ? AND time IS NULL ORDER BY rowid"
    gaps = [position for (position,) in database.execute(query, (stored,))]
    return removed, list(map(TimeMark._make, marks)), gaps


def _load_consumed(database: sqlite3.Connection, stored: str) -> tuple[float, int] | None:
    """Up to which moment of its sources a derived stream has all results, if that was known."""
    query = "SELECT time, position FROM hullcast_derived WHERE stored = ? AND time IS NOT NULL"
    found: tuple[float, int] | None = database.execute(query, (stored,)).fetchone()
    return found


def _load_receipts(database: sqlite3.Connection) -> tuple[list[KeptReceipt], list[bytes]]:
    receipts = database.execute("SELECT * FROM hullcast_receipts ORDER BY rowid")
    forgotten = database.execute("SELECT key FROM hullcast_forgotten")
    return list(map(KeptReceipt._make, receipts)), [key for (key,) in forgotten]


def stored_rows(
    database: sqlite3.Connection, table: Table, created: int, at_once: int = _ROWS_AT_ONCE
) -> Iterator[ValueColumns]:
    """The rows of one table, some at a time; none if that table (created then) is not in the checkpoint."""
    stored = stored_name(database, table, created)
    if stored is not None:
        yield from _blocks(database, stored, table, at_once)


def removed_through(database: sqlite3.Connection, table: Table, created: int) -> int:
    """The last position that was removed from a stream (created then); 0 if it is not in the checkpoint."""
    stored = stored_name(database, table, created)
    return 0 if stored is None or table.stream is None else _load_stream(database, stored)[0]


def stored_name(database: sqlite3.Connection, table: Table, created: int) -> str | None:
    """The name that one table has in the checkpoint; None if that table (created then) is not in it."""
    text = create_text(table)
    for name, create, *when in database.execute("SELECT * FROM hullcast_tables ORDER BY rowid"):
        if create == text and (not when or when[0] == created):
            return str(name)
    return None


def _blocks(
    database: sqlite3.Connection, stored: str, table: Table, at_once: int = _ROWS_AT_ONCE
) -> Iterator[ValueColumns]:
    cursor = database.execute(f'SELECT * FROM "{stored}"')
    cursor.arraysize = at_once
    while block := cursor.fetchmany():
        columns = zip(table.columns, zip(*block, strict=True), strict=True)
        yield {column.name: _column(column.type, values) for column, values in columns}


def _column(kind: ColumnType, values: Sequence[Any]) -> Values:
    """A column as it travels."""
    if kind is not ColumnType.TIMESTAMP:
        return from_list(list(values))
    codes = np.array(values, dtype=np.float64)  # None becomes NaN
    null = np.isnan(codes)
    instants = np.where(null, 0.0, codes).astype(np.int64).astype("datetime64[us]")
    instants[null] = np.datetime64("NaT")
    return instants


def _is_whole(path: Path) -> bool:
    with path.open("rb") as file:
        header = file.read(_CHECKSUM.stop)
    return len(header) == _CHECKSUM.stop and _checksum(path) == int.from_bytes(header[_CHECKSUM], "big")


def open_checkpoint(path: Path) -> sqlite3.Connection:
    """Read only, and without looking for a journal beside it. FileNotFoundError if it is not there."""
    try:
        return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None)
    except sqlite3.OperationalError as error:
        if not path.exists():
            raise FileNotFoundError(f"{path} is not there") from error
        raise


def meta_of(path: Path, database: sqlite3.Connection) -> dict[str, Any]:
    """What a checkpoint says of itself."""
    try:
        return dict(database.execute("SELECT name, value FROM hullcast_meta"))
    except sqlite3.Error as error:
        raise _damaged(path, f"SQLite says: {error}") from error


def _damaged(path: Path, reason: str) -> LogDamaged:
    return LogDamaged(str(path), -1, reason, "Restore it from a copy, or remove it if an older checkpoint is left")

"""The SQLite file of one table: written by loads, read by queries at the same time (WAL).

Files of views (`view_file.py`) have all but `TableFile` in common with it.

    DIR/warehouse/stock-1f3a..9c.sqlite     the table under its own name, as `SqliteCopy` would hold it, and one row of
                                            ours: whose it is, and the sequence number that it is current to

The name has a digest of the table's life (its name, CREATE TABLE and when it was created): a table that was dropped and
created again has another file, and no two tables share one. A file that belongs to another data directory, has another
format or is damaged is never read: `open_for_load` removes it, and it is made again from checkpoint and log.

A load is one transaction, and `current` is written in it. So a file is exactly its table as of `current`, whoever was
killed when.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import sqlite3
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

from hullcast.broker.log.private import make_private, open_private, sync_directory
from hullcast.broker.log.run import LogPosition
from hullcast.broker.log.space import DiskSpace
from hullcast.broker.queries.sqlite_copy import affinity, quoted, rowid_name
from hullcast.broker.sql.text import MAXIMUM_NAME
from hullcast.broker.tables.schema import Column, ColumnType, Table, fold
from hullcast.network.wire.errors import SqlError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hullcast.broker.log.source import Base

FOLDER = "warehouse"
#: The largest file of a table or view, unless another limit is set.
MOST_BYTES = 16 << 30
_FORMAT = 1
#: The columns of a `FileState`, and what changes them.
STATE = "current INTEGER, last INTEGER, segment INTEGER, seed INTEGER, offset INTEGER, before INTEGER"
SET_STATE = STATE.replace(" INTEGER", " = ?")
_APPLICATION_ID = 0x48756C57  # "HulW"
#: Our own table. A table of a user has a shorter name, so this one is found by no statement of theirs.
OWN = "hullcast_file".ljust(MAXIMUM_NAME + 1, "_")
_CACHE_BYTES = 32 << 20  # of a load: pages that are not written to the WAL before its end
_BUSY_S = 5.0  # how long a load waits for another of the same table; there should be none
#: Bytes by which a WAL grows until a load moves it into the file (both are synced then); and from which a load waits
#: for readers to make room for that.
WAL_BYTES, LONG_WAL_BYTES = 16 << 20, 256 << 20
_ROOM_WAIT_S = 1.0
#: Files that stay open between loads.
_FILES_OPEN = 8
_ROWS_COPIED = 100_000  # from a checkpoint, in one statement


class FileBounds:
    """How large files may become: so many bytes each, and half of the room on the disk for one load. (What a load has
    written is in the WAL and in the file for a while.) SQLite itself sees to that."""

    def __init__(self, directory: Path, most_bytes: int = MOST_BYTES, reserve_bytes: int = 0) -> None:
        """`reserve_bytes` of the disk are for the commit log."""
        self._space, self._most_bytes = DiskSpace(directory / FOLDER, reserve_bytes), most_bytes
        self._why = ""

    def check(self) -> None:
        """OSError if there is no room for anything more."""
        if not self._space.room_bytes:
            raise OSError(errno.ENOSPC, f"the disk is full: {self._space.shown}")

    def set(self, database: sqlite3.Connection) -> None:
        """Bound the file of a connection that a load is about to write to; OSError if there is no room at all."""
        self.check()
        ((pages,),) = database.execute("PRAGMA page_count").fetchall()
        ((page_bytes,),) = database.execute("PRAGMA page_size").fetchall()
        most_bytes = pages * page_bytes + self._space.room_bytes // 2
        self._why = f"the disk is full: it needs more than {most_bytes:,} bytes, and {self._space.shown}"
        if most_bytes > self._most_bytes:
            most_bytes = self._most_bytes
            self._why = (
                f"its rows need more than {most_bytes:,} bytes on disk, where each text counts once for every row; "
                "the server's setting warehouse_file_bytes is the limit"
            )
        database.execute(f"PRAGMA max_page_count = {max(1, most_bytes // page_bytes)}")

    def explain(self, error: BaseException) -> str | None:
        """Which bound SQLite means, if it says that there is no room."""
        return self._why if _code(error) == sqlite3.SQLITE_FULL else None


class FileState(NamedTuple):
    """What a file says of itself: it is the table as of `current`; `last` is its last update up to there."""

    current: int
    last: int
    position: LogPosition | None  # in the log, from where to go on

    @property
    def row(self) -> tuple[int | None, ...]:
        return (self.current, self.last, *(self.position or (None,) * 4))

    @classmethod
    def of(cls, current: int, last: int, *position: int | None) -> FileState:
        return cls(current, last, None if position[0] is None else LogPosition(*position))  # type: ignore[arg-type]


class KeptLife(Protocol):
    """What a file is of: a table (`Life`) or a view, since its creation. Its text tells it from all others."""

    def __hash__(self) -> int: ...

    @property
    def table(self) -> Table:
        """What queries see."""

    @property
    def created(self) -> int:
        """Updates up to here were made before."""

    @property
    def text(self) -> str:
        """The statement that made it."""


class LoadedFile:
    """A file open for loads. One load at a time, by one process; readers do not matter."""

    PAGE_BYTES: ClassVar = 8192

    def __init__(self, path: Path, life: KeptLife, identity: bytes, database: sqlite3.Connection) -> None:
        self.path, self.life = path, life
        self._identity, self._database = identity, database
        self._inode = path.stat().st_ino
        self._moved_bytes = self._waited_bytes = 0  # the WAL when it was moved into the file, and readers waited for

    @property
    def is_there(self) -> bool:
        """Whether it is still the file of that name: it may have been removed, and made again."""
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def state(self) -> FileState:
        """What it says of itself; sqlite3.DatabaseError if it is not the file that it should be."""
        return state_of(self._database, "main", self.life, self._identity)

    def states(self) -> dict[str, FileState]:
        """How far it has each table whose changes it is loaded with, by folded name."""
        return {fold(self.life.table.name): self.state()}

    def create(self) -> None:
        """Make the tables in a new file."""
        raise NotImplementedError

    def index(self) -> None:
        """Make the indexes, when the rows of a new file are there."""
        raise NotImplementedError

    def clear(self) -> None:
        """Remove all rows, within a load."""
        raise NotImplementedError

    def begin(self, bounds: FileBounds) -> None:
        bounds.set(self._database)
        self._database.execute("BEGIN IMMEDIATE")

    @contextmanager
    def loading(self, bounds: FileBounds) -> Iterator[None]:
        """A load, which `end` is called in; if it fails, the file is as it was."""
        self.begin(bounds)
        try:
            yield
        finally:
            self.undo()

    def attach(self, path: Path, name: str) -> None:
        """Open a checkpoint, or a table's file, beside this one before a load begins; FileNotFoundError if it is not
        there."""
        _attach(self._database, path, name, "" if path.parent.name == FOLDER else "&immutable=1")

    def detach(self, name: str) -> None:
        """Close the checkpoint, after a load."""
        with suppress(sqlite3.Error):
            self._database.execute(f"DETACH {name}")

    def end(self, state: FileState) -> None:
        """End a load: the file is the table as of `state.current`."""
        self._database.execute(f"UPDATE {OWN} SET {SET_STATE}", state.row)
        self._database.execute("COMMIT")

    def undo(self) -> None:
        """Leave the file as it was before `begin`."""
        with suppress(sqlite3.Error):  # SQLite may have done it by itself
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")

    def tidy(self) -> None:
        """Move what loads have written from the WAL into the file, as far as readers allow it. Readers never do this.

        The WAL is used again from its start if nobody reads from it when a load begins. Where readers overlap there is
        no such moment, and it would grow without end. So if it is long, this waits for those that read from it now:
        others that begin meanwhile find all rows in the file.
        """
        size_bytes = 0
        with suppress(FileNotFoundError):
            size_bytes = os.stat(f"{self.path}-wal").st_size
        if size_bytes < self._moved_bytes:  # it was begun again
            self._moved_bytes = 0
        if size_bytes < self._moved_bytes + WAL_BYTES:
            return
        self._moved_bytes = size_bytes
        with suppress(sqlite3.OperationalError):  # the load is done; if the disk is full, the next one tries again
            self._database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            if size_bytes < LONG_WAL_BYTES:
                self._waited_bytes = 0
            elif size_bytes >= self._waited_bytes + LONG_WAL_BYTES // 4:  # not each time, if one reads for long
                self._waited_bytes = size_bytes
                self._database.execute(f"PRAGMA busy_timeout = {int(_ROOM_WAIT_S * 1000)}")
                self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._database.execute(f"PRAGMA busy_timeout = {int(_BUSY_S * 1000)}")
        self._database.execute("PRAGMA shrink_memory")

    def close(self) -> None:
        """Close it; the last one to close it moves the WAL into the file."""
        self._database.close()


class TableFile(LoadedFile):
    """The file of a table. Rows can be put and removed when it has its index."""

    def __init__(self, path: Path, life: KeptLife, identity: bytes, database: sqlite3.Connection) -> None:
        super().__init__(path, life, identity, database)
        names = [quoted(column.name) for column in life.table.columns]
        marks = ", ".join("?" * len(names))
        table, key = quoted(life.table.name), names[life.table.key]
        self._delete = f"DELETE FROM {table} WHERE {key} = ?"
        self._put = f"INSERT INTO {table} VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET "
        self._put += ", ".join(f"{name} = excluded.{name}" for name in names if name != key or len(names) == 1)
        self._get = f"SELECT * FROM {table} WHERE {key} = ?"

    def create(self) -> None:
        self._database.execute(create_sql(self.life.table))

    def index(self) -> None:
        if self.life.table.key_column.type is not ColumnType.INTEGER:
            key = quoted(self.life.table.key_column.name)
            self._database.execute(f"CREATE UNIQUE INDEX {OWN}key ON {quoted(self.life.table.name)} ({key})")

    def copy(self, base: Base, schema: str) -> int:
        """Copy the rows of a checkpoint that was attached into the table, which has none, some at a time; gives how
        many there were."""
        if base.stored is None:
            return 0
        table, source = self.life.table, f"{schema}.{quoted(base.stored)}"
        columns = ", ".join(copied_column(column) for column in table.columns)
        copy = f"INSERT INTO main.{quoted(table.name)} SELECT {columns} FROM {source}"
        order = f" ORDER BY {quoted(table.key_column.name)}"
        rowid = rowid_name(table)
        if rowid is None:  # columns hide all its names
            return self._database.execute(copy + order).rowcount
        (last,) = self._database.execute(f"SELECT max({rowid}) FROM {source}").fetchone()
        some = f"{copy} WHERE {rowid} > ? AND {rowid} <= ?{order}"
        starts = range(0, last or 0, _ROWS_COPIED)
        return sum(self._database.execute(some, (start, start + _ROWS_COPIED)).rowcount for start in starts)

    def clear(self) -> None:
        self._database.execute(f"DELETE FROM {quoted(self.life.table.name)}")

    def put(self, columns: Sequence[Sequence[Any]]) -> None:
        """Insert rows, or replace those with the same key: columns as SQLite keeps them (`stored_column`)."""
        self._database.executemany(self._put, zip(*columns, strict=True))

    def remove(self, keys: Iterable[Any]) -> None:
        self._database.executemany(self._delete, zip(keys, strict=True))

    def rows(self, keys: Iterable[Any]) -> list[tuple[Any, ...]]:
        return [row for key in keys for row in self._database.execute(self._get, (key,))]


File = TypeVar("File", bound=LoadedFile)


def file_of(directory: Path, life: KeptLife) -> Path:
    return directory / FOLDER / f"{_stem(life)}.sqlite"


def size_of(path: Path) -> int:
    """The bytes of a file and its WAL; 0 if there is none, or something else is in its way."""
    found = 0
    for name in (path, f"{path}-wal"):
        with suppress(OSError):
            found += os.stat(name).st_size
    return found


def open_for_load(directory: Path, identity: bytes, life: KeptLife, kind: type[File]) -> File | None:
    """The file of a table or view; None if there is none. One that cannot be used is removed."""
    path = file_of(directory, life)
    if not path.exists():
        return None
    database = _connect(path, "rw")
    try:
        _prepare(database)
        file = kind(path, life, identity, database)
        file.state()
    except sqlite3.DatabaseError as error:
        database.close()
        if is_transient(error):
            raise
        remove(path)
        return None
    except BaseException:
        database.close()
        raise
    return file


class OpenFiles(Generic[File]):
    """Files that stay open between loads: those used last."""

    def __init__(self, directory: Path, identity: bytes, kind: type[File]) -> None:
        self._directory, self._identity, self._kind = directory, identity, kind
        self._files: dict[KeptLife, File] = {}  # the one used last is the last
        self._most_open = files_open(_FILES_OPEN, 32)

    def get(self, life: KeptLife) -> File | None:
        """The file of a table or view; None if there is none."""
        file = self._files.pop(life, None)
        if file is not None and not file.is_there:
            file.close()
            file = None
        if file is None:
            file = open_for_load(self._directory, self._identity, life, self._kind)
        if file is not None:
            self._files[life] = file
            for other in list(self._files)[: -self._most_open]:
                self._forget(other)
        return file

    def discard(self, life: KeptLife) -> None:
        """Remove a file, which was found damaged: the next load makes it again."""
        self._forget(life)
        remove(file_of(self._directory, life))

    def close(self) -> None:
        for life in list(self._files):
            self._forget(life)

    def _forget(self, life: KeptLife) -> None:
        file = self._files.pop(life, None)
        if file is not None:
            file.undo()
            file.close()


class NewFile(Generic[File]):
    """A file on its way: filled without a journal under another name, which it has until it is complete and on disk.

    Until then nobody reads it, so nothing is written twice, and the index of the keys is made at the end. Whoever is
    killed meanwhile leaves a file that `remove_unfinished` removes. What was written goes if the block fails.
    """

    def __init__(
        self,
        directory: Path,
        identity: bytes,
        life: KeptLife,
        kind: type[File],
        bases: Mapping[str, Path],
        bounds: FileBounds,
    ) -> None:
        """`bases` are checkpoints to open beside it, by the names that they get."""
        self.path, self.life, self._bases = file_of(directory, life), life, tuple(bases)
        make_private(directory / FOLDER)
        remove_unfinished(self.path.parent, self.path.stem)
        self._temporary = self.path.with_suffix(f".{os.getpid()}.tmp")
        os.close(open_private(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        self._database = _connect(self._temporary, "rw")
        try:
            self.file = kind(self._temporary, life, identity, self._database)
            self._begin(identity, bases, bounds)
        except BaseException:
            self._give_up()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._give_up()

    def _begin(self, identity: bytes, bases: Mapping[str, Path], bounds: FileBounds) -> None:
        database, life = self._database, self.life
        database.execute(f"PRAGMA page_size = {self.file.PAGE_BYTES}")
        database.execute("PRAGMA journal_mode = OFF").fetchall()
        database.execute("PRAGMA synchronous = OFF")
        database.execute(f"PRAGMA cache_size = {-_CACHE_BYTES // 1024}")
        database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        for name, path in bases.items():
            self.file.attach(path, name)
        bounds.set(database)
        database.execute("BEGIN")
        database.execute(f'CREATE TABLE {OWN} (format INTEGER, identity BLOB, "create" TEXT, created INTEGER, {STATE})')
        own = (_FORMAT, identity, life.text, life.created, *FileState(life.created, life.created, None).row)
        database.execute(f"INSERT INTO {OWN} VALUES ({', '.join('?' * len(own))})", own)
        self.file.create()

    def finish(self, state: FileState) -> None:
        """Give the file its name: it is the table as of `state.current`, and on disk."""
        self.file.end(state)
        for name in self._bases:
            self.file.detach(name)
        self._database.execute("PRAGMA journal_mode = WAL").fetchall()
        self._database.close()
        descriptor = os.open(self._temporary, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        try:
            os.link(self._temporary, self.path)
        except FileExistsError:  # another process was faster; then theirs is as good
            pass
        except OSError:  # a file system without links
            os.replace(self._temporary, self.path)
        self._temporary.unlink(missing_ok=True)
        sync_directory(self.path.parent)

    def _give_up(self) -> None:
        self._database.close()
        remove(self._temporary)


def create_sql(table: Table) -> str:
    """CREATE TABLE as SQLite gets it: the columns in their order, with the types that `SqliteCopy` gives them.

    An INTEGER key is the rowid; any other gets an index, when the first rows are there.
    """
    columns = [f"{quoted(column.name)} {affinity(column)}" for column in table.columns]
    if table.key_column.type is ColumnType.INTEGER:
        columns[table.key] += " PRIMARY KEY"
    return f"CREATE TABLE {quoted(table.name)} ({', '.join(columns)})"


def copied_column(column: Column) -> str:
    """A column of a checkpoint as it is stored here: there a TIMESTAMP is microseconds, here it is text."""
    name = quoted(column.name)
    if column.type is not ColumnType.TIMESTAMP:
        return name
    rest = f"(({name} % 1000000 + 1000000) % 1000000)"
    seconds = f"({name} - {rest}) / 1000000"
    return f"strftime('%Y-%m-%d %H:%M:%S', {seconds}, 'unixepoch') || printf('.%06d', {rest})"


def remove(path: Path) -> None:
    """Remove a file and what SQLite keeps beside it. A reader that has it open goes on with what it has."""
    for suffix in ("", "-journal", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def remove_unfinished(folder: Path, stem: str = "*", process: int | str = "*") -> None:
    """Remove what killed processes left of a file on its way, or one of them of any."""
    for left in folder.glob(f"{stem}.{process}.tmp*"):
        if process != "*" or _is_left(left):
            left.unlink(missing_ok=True)


def remove_others(directory: Path, lives: Iterable[KeptLife]) -> int:
    """Remove the files of tables that are no longer there (and unfinished ones); returns how many. What cannot be
    removed, such as the folder lost+found of a disk, stays."""
    kept = {file_of(directory, life).name for life in lives}
    removed = 0
    for path in (directory / FOLDER).glob("*"):
        unfinished = ".tmp" in path.suffix
        if _is_left(path) if unfinished else path.name.partition(".sqlite")[0] + ".sqlite" not in kept:
            with suppress(OSError):
                path.unlink()
                removed += not unfinished and path.suffix == ".sqlite"
    return removed


# -- reading -----------------------------------------------------------------------------------------------


def open_for_reading(directory: Path, lives: Sequence[KeptLife], sql: str = "SELECT") -> sqlite3.Connection:
    """A connection that reads the files of these tables, each under its own name; `sql` is for the error message.

    SqlError if there are more tables than SQLite can read in one statement; FileNotFoundError if a file is not there.
    """
    first, *others = [file_of(directory, life) for life in lives]
    database = _connect(first, "ro")
    try:
        most = database.getlimit(sqlite3.SQLITE_LIMIT_ATTACHED) + 1
        if len(lives) > most:
            raise SqlError(sql, f"it reads {len(lives)} tables", f"at most {most} are possible in one query")
        for number, path in enumerate(others, 1):
            _attach(database, path, f"t{number}")
    except BaseException:
        database.close()
        raise
    return database


def pin(database: sqlite3.Connection, lives: Sequence[KeptLife], identity: bytes) -> list[FileState]:
    """Begin a read transaction on all files that `open_for_reading` opened: from now on they do not change for this
    connection, whatever is loaded. Returns what each is; sqlite3.DatabaseError if one is not what it should be."""
    database.execute("BEGIN")
    return [state_of(database, f"t{number}" if number else "main", life, identity) for number, life in enumerate(lives)]


def state_of(database: sqlite3.Connection, schema: str, life: KeptLife, identity: bytes) -> FileState:
    """What a file says of itself; sqlite3.DatabaseError if it is damaged, or of another table or data directory."""
    rows = database.execute(f"SELECT * FROM {schema}.{OWN}").fetchall()
    expected = (_FORMAT, identity, life.text, life.created)
    if len(rows) != 1 or rows[0][:4] != expected:
        raise sqlite3.DatabaseError("the file belongs to another table, data directory or version")
    return FileState.of(*rows[0][4:])


def files_open(most: int, share: int) -> int:
    """How many files of tables may stay open: at most this share of what the process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(1, min(most, soft // share))


def is_transient(error: sqlite3.Error) -> bool:
    """Whether the file may be fine and something else is in the way: a full disk, a lock, a read-only folder."""
    return _code(error) in _TRANSIENT


def is_damage(error: BaseException | None) -> bool:
    """Whether SQLite found that a file is not as it has written it."""
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _code(error: BaseException | None) -> int:
    """Of an error of SQLite: which; 0 if it is another."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


_TRANSIENT = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
}


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    with _noticing_absence(path):
        return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_S, check_same_thread=False)


def _attach(database: sqlite3.Connection, path: Path, name: str, more: str = "") -> None:
    with _noticing_absence(path):
        database.execute("ATTACH ? AS ?", (f"{path.absolute().as_uri()}?mode=ro{more}", name))


@contextmanager
def _noticing_absence(path: Path) -> Iterator[None]:
    """FileNotFoundError if SQLite cannot open a file that is not there: it says no more than that it cannot."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if path.exists():
            raise
        raise FileNotFoundError(f"{path} is not there") from error


def _prepare(database: sqlite3.Connection) -> None:
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("PRAGMA wal_autocheckpoint = 0")  # `tidy` does it
    database.execute("PRAGMA journal_size_limit = 0")  # a WAL that is begun again is as long as what is in it
    database.execute("PRAGMA secure_delete = OFF")
    database.execute("PRAGMA temp_store = MEMORY")
    database.execute(f"PRAGMA cache_size = {-_CACHE_BYTES // 1024}")


@lru_cache(1024)
def _stem(life: KeptLife) -> str:
    name = fold(life.table.name)
    life_text = f"{name}\n{life.text}\n{life.created}"
    digest = blake2b(life_text.encode(errors="surrogatepass"), digest_size=12).hexdigest()
    return f"{re.sub('[^a-z0-9_]', '_', name)[:40]}-{digest}"


def _is_left(unfinished: Path) -> bool:
    """Whether the process that was writing an unfinished file is gone, or is this one."""
    owner = unfinished.name.split(".")[1]
    if not owner.isdigit() or int(owner) == os.getpid():
        return True
    try:
        os.kill(int(owner), 0)
    except ProcessLookupError:
        return True
    except OSError:  # it is another user's
        return False
    return False

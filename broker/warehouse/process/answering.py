"""A SELECT over the files of tables, in portions: the first is sent, the others go to a spool file.

Rows are fetched from SQLite some at a time, so neither a large answer nor a slow client takes memory. What a statement
may do is decided by the guard that embedded engines have as well (`broker/queries/sqlite_copy.py`); the files are
opened for reading only.
"""

from __future__ import annotations

import marshal
import os
import sqlite3
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hullcast.broker.log.private import open_private
from hullcast.broker.log.space import DiskSpace
from hullcast.broker.queries.reading import bind, instants_of
from hullcast.broker.queries.sqlite_copy import Guard, too_many_rows, with_instants
from hullcast.broker.sql.text import shorten
from hullcast.broker.warehouse.files.table_file import files_open, is_damage, is_transient, open_for_reading, pin
from hullcast.broker.warehouse.messages import FileMoved, FirstRows, NextRows, Pinned, Select
from hullcast.network.wire import packing
from hullcast.network.wire.bodies import QueryAnswer, QueryPart, encode
from hullcast.network.wire.errors import HistoryGone, SqlError
from hullcast.network.wire.values import table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hullcast.broker.log.history import Life
    from hullcast.broker.queries.reading import Plan
    from hullcast.broker.warehouse.files.view_file import ViewLife

    Say = Callable[[object], None]

    class MakeFile(Protocol):
        """Brings a table's file to a sequence number; `anew`: without what it has."""

        def __call__(self, life: Life | ViewLife, through: int, /, *, anew: bool) -> None: ...


#: Bytes of a portion, about.
PORTION_BYTES = 256 << 10
#: Rows that are fetched at first; then as many as make about a quarter of a portion.
FIRST_FETCH, MOST_FETCH = 16, 8192
#: Sets of tables whose files stay open, and files in all: each is three open files of the process.
SETS_OPEN, FILES_OPEN = 32, 64
#: SQLite's steps, about a tenth of a millisecond, after which a query says that it reads, and not only with its rows.
STEPS_SILENT = 10_000
_NIL = packing.pack(None)


class _OpenFiles(NamedTuple):
    """The files of some tables, open in one connection."""

    lives: tuple[Life | ViewLife, ...]
    database: sqlite3.Connection
    guard: Guard
    inodes: tuple[int, ...]


class Answering:
    """Runs SELECTs over the files of one data directory, one at a time. Files stay open in between."""

    def __init__(self, directory: Path, identity: bytes, space: DiskSpace | None = None) -> None:
        """`space` is that of the disk on which large answers wait to be fetched."""
        self._directory, self._identity = directory, identity
        self._space = space or DiskSpace(directory)
        self._open: dict[tuple[Life | ViewLife, ...], _OpenFiles] = {}  # the one used last is the last
        self._most_open = files_open(FILES_OPEN, 8)

    def answer(self, select: Select, say: Say, flush: Callable[[], None], make: MakeFile) -> None:
        """Run it, and say what comes of it: FileMoved, or Pinned, FirstRows and perhaps NextRows. Raises SqlError or
        BadParameter. A file that is not there, or cannot be used, is made first; one whose damage shows while it is
        read is made again, for the next query if rows of this one were sent already.

        What is said need not arrive before `flush`, which is called unless the end is near.
        """
        try:
            files, loaded = self._pinned(select)
        except (FileNotFoundError, sqlite3.DatabaseError) as error:
            if isinstance(error, sqlite3.Error) and is_transient(error):
                raise SqlError(shorten(select.sql), f"its tables cannot be read now ({error})") from error
            try:
                for file in select.files:
                    make(file.life, file.least, anew=False)
            except HistoryGone:  # what was in the file, the log does not have any more
                say(FileMoved(lost=True))
                return
            files, loaded = self._pinned(select)
        said: list[object] = []

        def noting(message: object) -> None:
            said.append(message)
            say(message)

        try:
            if any(not file.least <= at <= file.most for file, at in zip(select.files, loaded, strict=True)):
                say(FileMoved())
            else:
                noting(Pinned(loaded))
                files.database.set_progress_handler(flush, STEPS_SILENT)
                self._run(select, files, noting, flush)
        except SqlError as error:
            if not is_damage(error.__cause__):
                raise
            self._forget(files)
            lost = False
            for file, at in zip(select.files, loaded, strict=True):
                try:
                    make(file.life, at, anew=True)
                except HistoryGone:  # as above; it is removed
                    lost = True
            if len(said) > 1:
                reason = "a file of its tables was damaged, and is made again"
                raise SqlError(shorten(select.sql), reason, "ask again") from error
            say(FileMoved(lost))
        finally:
            if files in self._open.values():
                files.database.set_progress_handler(None, 0)
                if files.database.in_transaction:
                    files.database.execute("ROLLBACK")

    def _pinned(self, select: Select) -> tuple[_OpenFiles, tuple[int, ...]]:
        """The files as they are now, whatever is loaded meanwhile, and how far each is loaded."""
        lives = tuple(file.life for file in select.files)
        try:
            files = self._files(select, lives)
        except sqlite3.OperationalError as error:
            if not self._open or not is_transient(error):
                raise
            for other in list(self._open.values()):  # there may be too many open files
                self._forget(other)
            files = self._files(select, lives)
        try:
            states = pin(files.database, lives, self._identity) if lives else []
        except sqlite3.DatabaseError:
            self._forget(files)
            raise
        return files, tuple(state.current for state in states)

    def _files(self, select: Select, lives: tuple[Life | ViewLife, ...]) -> _OpenFiles:
        files = self._open.pop(lives, None)
        if files is not None and files.inodes != self._inodes(select):  # removed, and made again
            files.database.close()
            files = None
        if files is None:
            inodes = self._inodes(select)
            database = (
                open_for_reading(self._directory, lives, shorten(select.sql))
                if lives
                else sqlite3.connect(":memory:", isolation_level=None)
            )
            files = _OpenFiles(lives, database, Guard(database, None, written=False), inodes)
        self._open[lives] = files
        while len(self._open) > SETS_OPEN or (sum(map(len, self._open)) > self._most_open and len(self._open) > 1):
            self._forget(next(iter(self._open.values())))
        return files

    def _inodes(self, select: Select) -> tuple[int, ...]:
        return tuple(os.stat(file.path).st_ino for file in select.files)

    def _forget(self, files: _OpenFiles) -> None:
        self._open.pop(files.lives, None)
        files.database.close()

    def _run(self, select: Select, files: _OpenFiles, say: Say, flush: Callable[[], None]) -> None:
        plan, bound = select.plan, bind(select.parameters)
        assert plan is not None, "a text is read before it is run"
        width = sum(len(life.table.columns) for life in files.lives)
        with files.guard.reading(plan, width):
            cursor = files.database.execute(plan.sql, bound)
            try:
                names = tuple(described[0] for described in cursor.description)
                instants = instants_of(names, plan)
                portions = _portions(cursor, plan, select.limits.rows)
                rows, more = next(portions)
                columns = table_of(with_instants(rows, instants), names)[1]
                say(FirstRows(encode(QueryAnswer(names, columns, select.ticket if more else b"")), more))
                if more:
                    flush()
                    with _Spool(select, say, self._space) as spool:
                        for rows, more in portions:
                            columns = table_of(with_instants(rows, instants), names)[1]
                            spool.add(encode(QueryPart(columns, more)))
                            flush()
            finally:
                cursor.close()


class _Spool:
    """The file with the portions behind the first. It belongs to this query: there is none of its name before."""

    def __init__(self, select: Select, say: Say, space: DiskSpace) -> None:
        self._select, self._say, self._space = select, say, space
        self._size = 0
        with self._failing():
            self._file = open_private(Path(select.spool), os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def __enter__(self) -> _Spool:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def add(self, body: bytes) -> None:
        limit = self._select.limits.spool_bytes
        if self._size + len(body) > limit:
            reason = f"its rows take more than {limit >> 20} MiB"
            raise SqlError(shorten(self._select.sql), reason, "add a WHERE or a LIMIT, or name fewer columns")
        if len(body) > self._space.room_bytes:
            raise no_room(self._select.sql, self._space)
        with self._failing():
            left = memoryview(body)
            while left:
                left = left[os.write(self._file, left) :]
        self._say(NextRows(self._size, len(body)))
        self._size += len(body)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = f"its rows cannot be written to the server's disk ({error.strerror})"
            raise SqlError(shorten(self._select.sql), reason, "ask for fewer rows at once") from error


def no_room(sql: str, space: DiskSpace) -> SqlError:
    """The refusal of an answer whose rest would take disk space that the log may need."""
    reason = f"its rows cannot be written to the server's disk: {space.shown}"
    return SqlError(shorten(sql), reason, "fetch or close other large answers first, or ask for fewer rows at once")


def _portions(cursor: sqlite3.Cursor, plan: Plan, limit: int) -> Iterator[tuple[list[Any], bool]]:
    """The rows of a cursor by portions, at least one, and whether there are more."""
    rows: list[Any] = []
    fetch, count, size = FIRST_FETCH, 0, 0
    while fetched := cursor.fetchmany(fetch):
        count += len(fetched)
        if count > limit:
            raise too_many_rows(plan, limit)
        if size >= PORTION_BYTES:
            yield rows, True
            rows, size = [], 0
        rows += fetched
        fetched_bytes = len(marshal.dumps(fetched))  # close enough to what it takes on the wire
        size += fetched_bytes
        fetch = max(1, min(MOST_FETCH, 8 * fetch, len(fetched) * PORTION_BYTES // (4 * fetched_bytes)))
    yield rows, False


def with_worth(body: bytes, worth: dict[str, Any]) -> bytes:
    """An encoded portion with what its rows are worth, which is its last item and was nil."""
    assert body.endswith(_NIL)
    return body[: -len(_NIL)] + packing.pack(worth)

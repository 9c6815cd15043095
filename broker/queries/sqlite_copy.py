"""An in-memory SQLite copy of tables, and the guard around statements that strangers run on it.

The slot of a row is its rowid in SQLite, so a slot that passed from one key to another is simply replaced. `reading.py`
says how TIMESTAMPs are kept, and what a statement may be.

A statement can reach nothing but the tables that were found in it (SQLite's authorizer, so that a statement which
SQLite reads otherwise than our parser gets no further). It is stopped after a number of SQLite's steps, which is a
clock that a pure module may have; what no step counts is bounded by SQLite's own limits on lengths.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from hullcast.broker.queries.reading import (
    INSTANT_FUNCTION,
    Parameters,
    Plan,
    bind,
    instant_parameter,
    instants_of,
    read_instant,
)
from hullcast.broker.sql.refusals import instead_in_query
from hullcast.broker.sql.text import MAXIMUM_NAME, shorten
from hullcast.broker.tables.schema import Column, ColumnType, Table, fold
from hullcast.broker.tables.values import LONGEST_TEXT_BYTES, decode_column
from hullcast.network.answers.named import QueryRows
from hullcast.network.wire.arrays import Booleans, Floats, Ints
from hullcast.network.wire.containers import with_holes
from hullcast.network.wire.errors import BadParameter, SqlError

STEPS_PER_CALL = 10_000  # SQLite's steps between two looks at the work done
STEP_LIMIT = 50_000_000  # very roughly a second per 20 million
ROW_LIMIT = 1_000_000  # of one answer
_REFUSED_FUNCTIONS = frozenset({"load_extension", "zeroblob", "randomblob", "fts3_tokenizer"})
_ALLOWED_ACTIONS = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,  # matching is exponential in its wildcards, in one step
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}

#: Where the rows of a view are in its file (`broker/views/`): what SQLite reads for whoever may read the view. It is
#: longer than any name of a user's.
RESULT = "hullcast_result".ljust(MAXIMUM_NAME + 1, "_")

#: A column of rows on its way in: codes of numbers and instants, texts as they are.
StoredCells = Floats | list[str | None]


class Guard:
    """What a stranger's statement may do in a database: read the tables that were found in it, with a limit of work.

    Without a `step_limit` the caller must stop a statement that runs for too long. `written`: the caller itself writes
    to the database, between such statements.
    """

    def __init__(self, database: sqlite3.Connection, step_limit: int | None, *, written: bool = True) -> None:
        self._database, self._step_limit, self._written = database, step_limit, written
        self._guarded = False
        self._readable: frozenset[str] = frozenset()
        self._local: frozenset[str] = frozenset()  # CTEs: they are in no database
        self._steps_left = 0
        database.execute("PRAGMA temp_store = MEMORY")
        database.execute("PRAGMA trusted_schema = OFF")
        if not written:
            database.execute("PRAGMA query_only = ON")
        for limit, value in _LIMITS.items():
            database.setlimit(limit, value)
        database.create_function(INSTANT_FUNCTION, 1, instant_parameter, deterministic=True)
        database.set_authorizer(self._authorize)
        if step_limit is not None:
            database.set_progress_handler(self._count_steps, STEPS_PER_CALL)

    @contextmanager
    def reading(self, plan: Plan, width: int) -> Iterator[None]:
        """Run a stranger's statement: nothing but reading the plan's tables, a limit of work, and errors as our own.

        SQLite's limit of length holds for texts it builds and for whole rows: a row of all `width` columns
        of the tables, each with the longest TEXT, must fit.
        """
        if self._written:  # else it holds for good: SQLite prepares all statements again after each such PRAGMA
            self._database.execute("PRAGMA query_only = ON")
        length = self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, (width + 4) * (LONGEST_TEXT_BYTES + 16))
        self._guarded, self._steps_left = True, self._step_limit or 0
        self._readable, self._local = frozenset(plan.tables), plan.local
        try:
            yield
        except (sqlite3.ProgrammingError, sqlite3.InterfaceError) as error:
            raise BadParameter(0, _mismatch(error)) from error
        except OverflowError as error:
            raise BadParameter(0, "an integer parameter is beyond 64 bits") from error
        except (sqlite3.Error, sqlite3.Warning, UnicodeError) as error:
            if self._steps_left < 0:
                reason = f"stopped after {self._step_limit:,} steps of work"
                raise SqlError(shorten(plan.asked), reason, "narrow it with WHERE, or join on keys") from error
            if "user-defined function" in str(error):
                reason = "a parameter compared with a TIMESTAMP must be a datetime or ISO-8601 text"
                raise BadParameter(0, reason) from error
            hint = instead_in_query(str(error), plan.asked, plan.columns)
            raise SqlError(shorten(plan.asked), str(error), hint) from error
        finally:
            self._guarded = False
            self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, length)
            if self._written:
                self._database.execute("PRAGMA query_only = OFF")

    def _authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, trigger: str | None
    ) -> int:
        if not self._guarded:
            return sqlite3.SQLITE_OK
        if action not in _ALLOWED_ACTIONS:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _REFUSED_FUNCTIONS:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_READ:
            if first == RESULT and not second:  # no column: how many rows there are, asked of the view
                return sqlite3.SQLITE_OK
            name = fold((trigger if first == RESULT else first) or "")
            if name not in self._readable and (database is not None or name not in self._local):
                return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _count_steps(self) -> bool:
        """True stops the statement."""
        if not self._guarded:
            return False
        self._steps_left -= STEPS_PER_CALL
        return self._steps_left < 0


class SqliteCopy:
    """Tables by name, rows by slot, and SELECTs over them. One caller at a time."""

    def __init__(self, step_limit: int | None = STEP_LIMIT, row_limit: int = ROW_LIMIT) -> None:
        """Without a `step_limit` the caller must stop a statement that runs for too long."""
        self.tables: dict[str, Table] = {}
        self._keys: dict[str, _Keys] = {}  # of tables without a name for their rowid
        self._row_limit = row_limit
        # no statement is cached: the authorizer runs when one is prepared, and must see each
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=0)
        self._guard = Guard(self._database, step_limit)

    def close(self) -> None:
        """Give the memory back."""
        self._database.close()

    # -- the copy --------------------------------------------------------------------------------------

    def create(self, table: Table) -> None:
        """A new table, without rows."""
        columns = [f"{quoted(column.name)} {affinity(column)}" for column in table.columns]
        columns[table.key] += " UNIQUE"  # an index; not PRIMARY KEY, which would make an INTEGER the rowid
        self._database.execute(f"CREATE TABLE {quoted(table.name)} ({', '.join(columns)})")
        self.tables[fold(table.name)] = table

    def drop(self, name: str) -> None:
        """Forget a table."""
        table = self.tables.pop(fold(name))
        self._keys.pop(fold(name), None)
        self._database.execute(f"DROP TABLE {quoted(table.name)}")

    def put(self, name: str, slots: Ints, alive: Booleans, cells: Sequence[StoredCells]) -> None:
        """What is in some slots now: `cells` are the columns of the rows alive, in the order of `slots[alive]`."""
        table = self.tables[fold(name)]
        values = [stored_column(column, cells[i]) for i, column in enumerate(table.columns)]
        names = [quoted(column.name) for column in table.columns]
        rowid, into = rowid_name(table), quoted(table.name)
        gone = slots[~alive].tolist()
        if rowid is not None:
            names.insert(0, rowid)
            values.insert(0, slots[alive].tolist())
        else:  # columns hide all names of the rowid: rows go by their keys, which a slot may have changed
            keys = self._keys.setdefault(fold(name), _Keys())
            gone = keys.leave(slots.tolist())
            keys.enter(slots[alive].tolist(), values[table.key])
            rowid = names[table.key]
        marks = ", ".join("?" * len(names))
        self._database.execute("BEGIN")
        self._database.executemany(f"DELETE FROM {into} WHERE {rowid} = ?", zip(gone, strict=True))
        write = f"INSERT OR REPLACE INTO {into} ({', '.join(names)}) VALUES ({marks})"
        self._database.executemany(write, zip(*values, strict=True))
        self._database.execute("COMMIT")

    # -- reading ---------------------------------------------------------------------------------------

    def read(self, plan: Plan, parameters: Parameters) -> QueryRows:
        """The rows of a SELECT, as named tuples: a field whose column name is not an identifier is named by its
        position (`_0`). Raises SqlError or BadParameter."""
        bound = bind(parameters)
        width = sum(len(self.tables[name].columns) for name in plan.tables)
        with self._guard.reading(plan, width):
            cursor = self._database.execute(plan.sql, bound)
            names = tuple(described[0] for described in cursor.description)
            rows = cursor.fetchmany(self._row_limit + 1)
            cursor.close()
        if len(rows) > self._row_limit:
            raise too_many_rows(plan, self._row_limit)
        return QueryRows(names, with_instants(rows, instants_of(names, plan)))


def too_many_rows(plan: Plan, limit: int) -> SqlError:
    """An answer has more rows than it may."""
    return SqlError(shorten(plan.asked), f"more than {limit:,} rows", "add a WHERE or a LIMIT")


def with_instants(rows: list[Any], instants: Sequence[bool]) -> list[Any]:
    """Rows with datetimes for what SQLite keeps as texts, in these columns."""
    if not any(instants):
        return rows
    columns = [
        map(read_instant, column) if instant else column
        for column, instant in zip(zip(*rows, strict=True), instants, strict=False)
    ]
    return list(zip(*columns, strict=True))


def _mismatch(error: Exception) -> str:
    """What is wrong with the parameters, in our words where SQLite's are about its own workings."""
    counts = re.search(r"uses (\d+), and there are (\d+) supplied", str(error))
    if counts is None:
        return str(error)
    return f"the query has {counts[1]} `?` and got {counts[2]} values; give one value for each `?`"


class _Keys:
    """Which key is in which slot of a copy. A key may have passed to another slot before its old slot is heard of
    again: then it is not the old one's to take away."""

    def __init__(self) -> None:
        self._by_slot: dict[int, Any] = {}
        self._slots: dict[Any, int] = {}

    def leave(self, slots: Sequence[int]) -> list[Any]:
        """Empty these slots; returns the keys that are gone."""
        left = [(slot, self._by_slot.pop(slot)) for slot in slots if slot in self._by_slot]
        gone = [key for slot, key in left if self._slots[key] == slot]
        for key in gone:
            del self._slots[key]
        return gone

    def enter(self, slots: Sequence[int], keys: Sequence[Any]) -> None:
        """Put keys into empty slots."""
        self._by_slot.update(zip(slots, keys, strict=True))
        self._slots.update(zip(keys, slots, strict=True))


def stored_column(column: Column, cells: StoredCells) -> list[Any]:
    """A column as SQLite keeps it."""
    if isinstance(cells, list):
        return cells
    if column.type is not ColumnType.TIMESTAMP:
        return decode_column(column.type, cells, None)
    null = np.isnan(cells)
    instants = np.where(null, 0.0, cells).astype(np.int64).astype("datetime64[us]")
    texts = np.datetime_as_string(instants, unit="us").astype("U26")  # years of four digits: all are as long
    texts.view(np.uint32).reshape(-1, 26)[:, 10] = ord(" ")  # a T before
    return with_holes(texts.tolist(), null)


def affinity(column: Column) -> str:
    """The type of a column in SQLite."""
    return "TEXT" if column.type is ColumnType.TIMESTAMP else column.type.value


def rowid_name(table: Table) -> str | None:
    """A name of SQLite's rowid that no column hides."""
    taken = {column.name.lower() for column in table.columns}
    return next((name for name in ("rowid", "_rowid_", "oid") if name not in taken), None)


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'

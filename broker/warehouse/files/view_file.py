"""The SQLite file of a view: copies of what it needs of its tables, and its result, each kept exactly.

    DIR/warehouse/cheapest-1f3a..9c.sqlite    the view under its own name, as queries read it; the result, copies of the
                                              sources, a row of ours for the view and one for each base table

The name has a digest of the view's life, as that of a table's file has (`broker/warehouse/files/table_file.py`).

    F1  The copy of a source is what meets its conditions of its table as of the table's `current` in this file.
    F2  The result is the view's SELECT over the copies.

Both hold whenever no load is under way, whoever was killed when: a load is one transaction, in which `current` is
written, too. Tables may be as of different sequence numbers. That is what makes deltas right: changes of one table meet
the other tables as they are in the copies, never rows that are there by now and that come with a delta of their own.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from hullcast.broker.queries.sqlite_copy import quoted
from hullcast.broker.queries.view import create_text
from hullcast.broker.sql.text import MAXIMUM_NAME
from hullcast.broker.tables.schema import fold
from hullcast.broker.views import exact
from hullcast.broker.views.costs import LinearCost
from hullcast.broker.views.statements import ViewStatements
from hullcast.broker.warehouse.files.table_file import (
    SET_STATE,
    STATE,
    FileState,
    LoadedFile,
    copied_column,
    state_of,
)
from hullcast.network.wire.errors import SqlError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hullcast.broker.log.history import Life
    from hullcast.broker.queries.view import ViewDefinition
    from hullcast.broker.tables.schema import Table
    from hullcast.broker.warehouse.files.table_file import KeptLife

#: Rows that the tables of a view may join to when it is made: more take minutes, and the disk.
MOST_JOINED = 1 << 25
#: Bytes of changes on their way that are in memory; more are in a temporary file.
_DELTA_BYTES = 32 << 20
#: How far each base table is propagated.
TABLES = "hullcast_tables".ljust(MAXIMUM_NAME + 1, "_")
#: What was learned of its costs: see `ViewFile.learned`.
COSTS = "hullcast_costs".ljust(MAXIMUM_NAME + 1, "_")
#: Steps of SQLite, well below a millisecond, after which it is seen whether a delta takes too long.
_STEPS = 10_000
#: Changes of which it can be said what one takes to bring a copy up to date, and what is assumed before that.
_MANY, _ROW_S = 256, 1e-5
#: What log and commit take besides a delta, or besides computing the result.
COMMIT_S = 6e-4
#: No limit on what is joined.
_ANY = 1 << 62


class DeltaTooDearError(Exception):
    """A delta took longer than it was given: the load is undone."""


class LearnedCosts(NamedTuple):
    """What a file keeps of costs. `deltas`: what propagating takes, as `Upkeep.kept` has it; `computing`: what it takes
    to compute the result again, per change whose copies are brought up to date first and for the whole join."""

    deltas: str | None = None
    computing: LinearCost | None = None


class ViewLife(NamedTuple):
    """One view from its CREATE to its DROP, and the lives of its base tables (`definition.tables`, in their order)."""

    definition: ViewDefinition
    created: int  # updates up to here were made before
    bases: tuple[Life, ...]

    @property
    def table(self) -> Table:
        """What queries see."""
        return self.definition.table

    @property
    def text(self) -> str:
        """The statement that makes such a view, over these very tables."""
        return _text(self)

    def __hash__(self) -> int:
        """Without the tables: it is asked for several times for each query."""
        return hash((self.definition, self.created))

    def base(self, table: str) -> Life:
        return next(life for life in self.bases if fold(life.table.name) == fold(table))


@lru_cache(1024)
def _text(view: ViewLife) -> str:
    tables = ", ".join(f"{life.text} at {life.created}" for life in view.bases)
    return f"{create_text(view.definition)} over {tables}"


@lru_cache(128)
def _statements(view: ViewDefinition) -> ViewStatements:
    return ViewStatements(view)


class ViewFile(LoadedFile):
    PAGE_BYTES: ClassVar = 4096  # deltas touch single rows here and there, and whole pages are written

    def __init__(self, path: Path, life: KeptLife, identity: bytes, database: sqlite3.Connection) -> None:
        assert isinstance(life, ViewLife)
        super().__init__(path, life, identity, database)
        self.view = life
        self._sql = _statements(life.definition)
        database.execute("PRAGMA temp_store = FILE")  # a delta that joins with very much must not take the memory
        database.execute(f"PRAGMA temp.cache_size = {-_DELTA_BYTES // 1024}")
        prepare(database, self._sql)

    # -- as a whole ----------------------------------------------------------------------------------------

    def create(self) -> None:
        run = self._database.execute
        for statement in self._sql.create:
            run(statement)
        run(f"CREATE TABLE {TABLES} (name TEXT PRIMARY KEY, {STATE}) WITHOUT ROWID")
        for life in self.view.bases:
            row = (fold(life.table.name), *FileState(life.created, life.created, None).row)
            run(f"INSERT INTO {TABLES} VALUES ({', '.join('?' * len(row))})", row)
        run(f"CREATE TABLE {COSTS} (deltas TEXT, row_s REAL, compute_s REAL, pages INTEGER)")
        run(f"INSERT INTO {COSTS} DEFAULT VALUES")

    def index(self) -> None:
        for statement in self._sql.indexes:
            self._database.execute(statement)

    def clear(self) -> None:
        for statement in self._sql.clear():
            self._database.execute(statement)

    def compute(self) -> None:
        """Compute the result from the copies; there is none yet. Begins with the smallest copy. SqlError if the copies
        join to more than `MOST_JOINED` rows."""
        self._compute(MOST_JOINED)
        if self._database.execute(self._sql.joined).fetchone()[0] > MOST_JOINED:
            reason = f"what it reads joins to more than {MOST_JOINED:,} rows"
            raise SqlError(self.view.definition.name, reason, "join on more columns, or narrow it with WHERE")

    def compute_again(self) -> None:
        """Compute the result from the copies, without what there is, however much they join to by now: deltas would
        come to the same."""
        for statement in self._sql.clear_result():
            self._database.execute(statement)
        self._compute(_ANY)

    def _compute(self, most: int) -> None:
        sides = range(len(self.view.definition.sources))
        rows = [self._database.execute(self._sql.count(side)).fetchone()[0] for side in sides]
        for statement in self._sql.build(rows.index(min(rows)), most):
            self._database.execute(statement)

    # -- costs ---------------------------------------------------------------------------------------------

    def learned(self) -> LearnedCosts:
        """What is known of costs. To compute the result is taken to cost more as the file grows, in proportion."""
        deltas, row_s, compute_s, pages = self._database.execute(f"SELECT * FROM {COSTS}").fetchone()
        if compute_s is None:
            return LearnedCosts(deltas)
        grown = max(1.0, self._pages() / max(1, pages))
        return LearnedCosts(deltas, LinearCost(row_s, compute_s * grown + COMMIT_S))

    def keep_deltas(self, deltas: str) -> None:
        """Within a load: what propagating takes, by all that is known."""
        self._database.execute(f"UPDATE {COSTS} SET deltas = ?", (deltas,))

    def learn_computing(self, changes: int, filled_s: float, compute_s: float) -> None:
        """Within a load: the copies were brought up to date with so many changes, and then the result was computed."""
        row_s = filled_s / changes if changes >= _MANY else None  # of few it is what comes before the first
        statement = f"UPDATE {COSTS} SET row_s = COALESCE(?, row_s, {_ROW_S}), compute_s = ?, pages = ?"
        self._database.execute(statement, (row_s, compute_s, self._pages()))

    def _pages(self) -> int:
        pages: int = self._database.execute("PRAGMA main.page_count").fetchone()[0]
        return pages

    def states(self) -> dict[str, FileState]:
        rows = self._database.execute(f"SELECT * FROM {TABLES}")
        return {name: FileState.of(*row) for name, *row in rows}

    def note(self, life: Life, state: FileState) -> None:
        """Within a load: a base table is propagated that far."""
        self._database.execute(f"UPDATE {TABLES} SET {SET_STATE} WHERE name = ?", (*state.row, fold(life.table.name)))

    # -- copies --------------------------------------------------------------------------------------------

    def copy(self, source: int, schema: str, stored: str) -> int:
        """Fill an empty copy from a checkpoint that was attached; gives how many rows it got."""
        table = self.view.definition.sources[source].table
        name = f"{schema}.{quoted(stored)}"
        statement = self._sql.copy(source, name, lambda column: copied_column(table.columns[column]))
        return self._database.execute(statement).rowcount

    def copy_loaded(self, source: int, schema: str, identity: bytes) -> FileState:
        """Fill an empty copy from the table's own file, which was attached; gives what that is."""
        table = self.view.definition.sources[source].table
        state = state_of(self._database, schema, self.view.base(table.name), identity)
        name = f"{schema}.{quoted(table.name)}"
        self._database.execute(self._sql.copy(source, name, lambda column: quoted(table.columns[column].name)))
        return state

    def reads(self, source: int) -> tuple[int, ...]:
        """The columns of its table that `fill` and `propagate` take, by their positions."""
        return self._sql.sources[source].reads

    def fill(self, source: int, columns: Sequence[Sequence[Any]], gone: Iterable[Any]) -> None:
        """Bring the copy of a source up to date without the result, which is computed afterwards."""
        self._put(source, columns, gone)
        for statement in self._sql.sources[source].store:
            self._database.execute(statement)

    # -- deltas --------------------------------------------------------------------------------------------

    def propagate(
        self, source: int, columns: Sequence[Sequence[Any]], gone: Iterable[Any], within_s: float = inf
    ) -> bool:
        """Bring copy and result up to date with the last words on some keys of a table: columns of the rows that are
        there (`reads`), as SQLite keeps them, and keys of those that are gone. Gives whether it concerned the view.
        DeltaTooDearError if it takes longer than that: then the load is undone.

        Costs a look-up for each key; for those that concern the view as much as the join finds.
        """
        with self._within(within_s):
            self._put(source, columns, gone)
            return self._propagate(source)

    @contextmanager
    def _within(self, seconds: float) -> Iterator[None]:
        """Interrupt statements after so long."""
        if seconds == inf:
            yield
            return
        until = time.perf_counter() + seconds
        self._database.set_progress_handler(lambda: time.perf_counter() > until, _STEPS)
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            self._database.set_progress_handler(None, 0)  # it would interrupt this, too
            self.undo()
            raise DeltaTooDearError from error
        finally:
            self._database.set_progress_handler(None, 0)

    def _put(self, source: int, columns: Sequence[Sequence[Any]], gone: Iterable[Any]) -> None:
        sql, database = self._sql.sources[source], self._database
        for statement in sql.clear:
            database.execute(statement)
        database.executemany(sql.put, zip(*columns, strict=True))
        database.executemany(sql.put_gone, zip(gone, strict=True))

    def _propagate(self, source: int) -> bool:
        sql, run = self._sql.sources[source], self._database.execute
        run(sql.drop_unchanged)
        if not run(sql.is_changed).fetchone()[0]:
            return False
        for statement in sql.propagate:
            run(statement)
        for statement in sql.store:
            run(statement)
        return True

    # -- measuring -----------------------------------------------------------------------------------------

    def sample(self, source: int, rows: int) -> list[tuple[Any, ...]]:
        return self._database.execute(self._sql.sources[source].sample, (rows,)).fetchall()

    def exchange(self, source: int, there: Sequence[tuple[Any, ...]], gone: Iterable[tuple[Any, ...]]) -> None:
        """Propagate that some rows of a sample are there, and others are gone."""
        sql, database = self._sql.sources[source], self._database
        view_source = self.view.definition.sources[source]
        key = view_source.columns.index(view_source.table.key)
        for statement in sql.clear:
            database.execute(statement)
        database.executemany(sql.put_stored, there)
        database.executemany(sql.put_gone, [(row[key],) for row in gone])
        self._propagate(source)


def prepare(database: sqlite3.Connection, statements: ViewStatements) -> None:
    """Make what a connection needs to maintain a view."""
    exact.install(database)
    database.execute("PRAGMA automatic_index = OFF")  # SQLite would read a whole copy to make one, for each delta
    for statement in statements.temporary:
        database.execute(statement)


def overall(tables: Mapping[str, FileState]) -> FileState:
    """What a file as a whole says of itself: it is the view as of `current`; -1 if tables are as of different sequence
    numbers, when nobody may read it."""
    at = {state.current for state in tables.values()}
    return FileState(min(at) if len(at) == 1 else -1, max(state.last for state in tables.values()), None)

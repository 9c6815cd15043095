"""One-time SELECTs of an embedded engine: a SQLite copy in memory that follows the change feed.

A table is copied when a query first names it; afterwards only the rows that changed are written again, when
the next query names it. (A server answers queries in a process of their own: `broker/server/queries.py`.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.broker.queries.reading import Parameters, read_query
from hullcast.broker.queries.sqlite_copy import ROW_LIMIT, STEP_LIMIT, SqliteCopy
from hullcast.broker.tables.feed import TableCopy, note_changes
from hullcast.broker.tables.schema import ColumnType
from hullcast.broker.tables.values import decode_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hullcast.broker.queries.sqlite_copy import StoredCells
    from hullcast.broker.tables.feed import ChangeFeed
    from hullcast.broker.tables.interning import Interner
    from hullcast.broker.tables.store import TableStore
    from hullcast.network.answers.named import QueryRows

#: Rows copied at once: as objects they take a hundred times their size in codes.
PORTION = 50_000


class Mirror:
    """Answers SELECTs from the stores of one engine. One caller at a time; its owner sees to that.

    `stores` is the engine's own mapping and is read again for each query, so created and dropped tables need no
    notice. Invariant M1: after `_refresh` of a table, its SQLite rows are the store's rows, rowid = slot.
    """

    def __init__(
        self,
        stores: Mapping[str, TableStore],
        interner: Interner,
        feed: ChangeFeed,
        step_limit: int = STEP_LIMIT,
        row_limit: int = ROW_LIMIT,
    ) -> None:
        """A larger `step_limit` lets heavier queries finish; `row_limit` bounds the answer held in memory."""
        self._stores, self._interner = stores, interner
        self._sqlite = SqliteCopy(step_limit, row_limit)
        self._follower = feed.follower("queries")
        self._copies: dict[str, TableCopy] = {}

    def query(self, sql: str, parameters: Parameters = ()) -> QueryRows:
        """The rows of a SELECT over the current state. Raises SqlError, UnknownTable, or BadParameter."""
        plan = read_query(sql, {name: store.table for name, store in self._stores.items()})
        self._forget_dropped()
        note_changes(self._follower, self._copies)
        for name in plan.tables:
            self._refresh(name)
        return self._sqlite.read(plan, parameters)

    def close(self) -> None:
        """Give the memory back."""
        self._sqlite.close()
        self._follower.close()

    def _forget_dropped(self) -> None:
        for name, copy in list(self._copies.items()):
            if self._stores.get(name) is not copy.store:
                self._sqlite.drop(copy.store.table.name)
                self._follower.drop(copy.store.table)
                del self._copies[name]

    def _refresh(self, name: str) -> None:
        """Bring the copy of a table up to date; it begins when the table is first named."""
        table = self._stores[name].table
        if name not in self._copies:
            self._follower.add(table)
            self._sqlite.create(table)
            self._copies[name] = TableCopy(self._stores[name])
        while (rows := self._copies[name].portion(PORTION)) is not None:
            cells: list[StoredCells] = [
                decode_column(column.type, rows.cells[i], self._interner)
                if column.type is ColumnType.TEXT
                else rows.cells[i]
                for i, column in enumerate(table.columns)
            ]
            self._sqlite.put(table.name, rows.slots, rows.alive, cells)

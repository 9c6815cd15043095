"""Traces to replay: files with a time column, recorded traces, a synthetic market, or Table 5.1.

A trace is a sequence of `Piece`s, each of one table and of one kind, which can be cut anywhere.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.clients.cli.feeds.piece import Piece, size_and_seed
from hullcast.clients.cli.feeds.recorded import MARKET, RecordedTrace, is_recorded
from hullcast.clients.cli.feeds.rows_in import Source, form_of, read_rows
from hullcast.clients.cli.feeds.rows_typed import create_statement, find_table, typed
from hullcast.clients.demo import stocks
from hullcast.network.wire.errors import UnknownTable, UsageError
from hullcast.sim.traces import table51

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hullcast.clients.cli.feeds.rows_in import ReadRows
    from hullcast.clients.cli.feeds.rows_typed import TableShape
    from hullcast.clients.sdk.client import Client
    from hullcast.network.wire.arrays import Floats

ROWS_AT_ONCE = 10_000
TIME_NAMES = ("time", "ts", "timestamp", "at", "datetime", "date")
SYNTHETIC_ROWS = {"synthetic": 500, "points": 10_000}
SYNTHETIC_UPDATES = 20_000
#: Names that are traces without a file.
GENERATORS = (MARKET, *SYNTHETIC_ROWS)


class SyntheticTrace:
    """`synthetic[:rows[:seed]]`, a stock market; `points[:rows[:seed]]`, Table 5.1 of Xie (2007)."""

    def __init__(self, text: str, batch: int) -> None:
        kind = text.split(":")[0]
        rows, seed = size_and_seed(text, SYNTHETIC_ROWS[kind])
        self._market = (
            stocks.stock_trace(rows, SYNTHETIC_UPDATES, batch=batch, root=seed) if kind == "synthetic" else None
        )
        self._points = table51.Workload(rows, root=seed) if kind == "points" else None

    async def prepare(self, client: Client) -> list[Piece]:
        """Create what is not there; the rows with which the trace begins."""
        creates = stocks.CREATES if self._market is not None else (table51.CREATE,)
        there = await client.tables()
        for create in creates:
            try:  # first, since whoever may publish need not be allowed to create
                find_table(there, create.split()[2])
            except UnknownTable:
                await client.execute(create)
        if self._market is not None:
            return list(map(_part, self._market.start))
        assert self._points is not None
        return [Piece("POINTS", self._points.rows.columns(), len(self._points.rows))]

    def parts(self) -> Iterator[Piece]:
        """The updates, once through."""
        if self._market is not None:
            for batch in self._market.batches:
                yield from map(_part, batch)
            return
        assert self._points is not None
        changes = self._points.changes(SYNTHETIC_UPDATES)
        yield Piece("POINTS", changes.columns(), len(changes))

    def close(self) -> None:
        """Nothing is open."""


def _part(action: stocks.MarketAction) -> Piece:
    if isinstance(action, stocks.Removal):
        return Piece(action.table, list(action.keys), len(action.keys), deletes=True)
    return Piece(action.table, list(action.rows), len(action.rows))


class FileTrace:
    """A CSV, JSON lines or Parquet file; `time` is the column by which it is ordered, if it is played by time."""

    def __init__(self, path: str, table: str | None, key: str | None, time: str | None, *, timed: bool) -> None:
        self._path, self._form, self._key = path, form_of(path), key
        self._name = table or path.rsplit("/", 1)[-1].rsplit(".", 1)[0]
        self._source = Source(path)  # now, so that a wrong name is reported at once
        self._time, self._timed = time, timed
        self._table: TableShape | None = None

    async def prepare(self, client: Client) -> list[Piece]:
        """Create the table, if it is not there. It begins with what is in it."""
        first = next(read_rows(self._source, self._form, ROWS_AT_ONCE), None)
        if first is None:
            raise UsageError(f"{self._path}: no rows")
        if self._timed or self._time is not None:
            self._time = _time_column(first, self._time)
        tables = await client.tables()
        try:
            self._table = find_table(tables, self._name)
        except UnknownTable:
            await client.execute(create_statement(self._name, first, self._key))
            self._table = find_table(await client.tables(), self._name)
        return []

    def parts(self) -> Iterator[Piece]:
        """The updates, once through."""
        assert self._table is not None
        self._source.release()
        self._source = Source(self._path)
        # a time that the table has no column for only says when
        extra = self._time if self._time is not None and self._table.column(self._time) is None else None
        for batch in read_rows(self._source, self._form, ROWS_AT_ONCE):
            seconds = _instants(batch, self._time) if self._timed and self._time is not None else None
            yield Piece(self._table.name, typed(batch, self._table, extra), len(batch), seconds=seconds)

    def close(self) -> None:
        """Read no more."""
        self._source.close()


Trace = SyntheticTrace | FileTrace | RecordedTrace


def open_trace(text: str, *, table: str | None, key: str | None, time: str | None, timed: bool, batch: int) -> Trace:
    """The trace that a text names."""
    if is_recorded(text, GENERATORS):
        if key or time:
            raise UsageError(f"{text} has its own key and times; leave out --primary-key and --time")
        return RecordedTrace(text, table, timed=timed)
    if text.split(":")[0] not in SYNTHETIC_ROWS:
        return FileTrace(text, table, key, time, timed=timed)
    if timed or time or key or table:
        raise UsageError(f"{text} has its own tables and no times; leave out --table, --primary-key, --time, --speed")
    return SyntheticTrace(text, batch)


def _time_column(batch: ReadRows, given: str | None) -> str:
    names = _names(batch)
    wanted = (given.lower(),) if given is not None else TIME_NAMES
    for name in wanted:
        for column in names:
            if column.lower() == name:
                return column
    if given is not None:
        raise UsageError(f"{batch.source}: no column {given}; columns: {', '.join(names)}")
    raise UsageError(
        f"{batch.source}: no time column was found; name it with --time COLUMN; columns: {', '.join(names)}"
    )


def _names(batch: ReadRows) -> list[str]:
    if batch.form == "jsonl":
        return list(dict.fromkeys(name for row in batch.rows for name in row))
    return list(batch.rows) if batch.form == "csv" else list(batch.rows.schema.names)


def _instants(batch: ReadRows, column: str) -> Floats:
    """Seconds since 1970: of numbers as they are, of texts and datetimes as ISO-8601 and UTC."""
    if batch.form == "jsonl":
        values = [row.get(column) for row in batch.rows]
    else:
        values = batch.rows[column] if batch.form == "csv" else batch.rows.column(column).to_pylist()
    seconds = np.empty(len(values))
    for row, value in enumerate(values):
        try:
            seconds[row] = _instant(value)
        except (TypeError, ValueError):
            raise UsageError(f"{batch.place(row, column)}: {str(value)[:40]!r} is not a time") from None
    return seconds


def _instant(value: Any) -> float:
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).timestamp()
    return float(value)

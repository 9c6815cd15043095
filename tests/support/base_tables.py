"""A data directory with tables of a test's choice, written as a server does, and what each held after each update."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from hullcast.broker.log.history import Life
from hullcast.broker.queries.view import ViewDefinition, bind_view, select_text
from hullcast.broker.sql.create import CreateTable, parse_statement
from hullcast.broker.sql.view import CreateView
from hullcast.broker.tables.schema import Table, fold
from hullcast.broker.warehouse.files.table_file import create_sql
from hullcast.broker.warehouse.files.view_file import ViewLife
from hullcast.network.wire import bodies
from hullcast.network.wire.values import keys_to_column, rows_to_columns
from tests.support.ledger import Ledger

Row = tuple[Any, ...]


def table_of(sql: str) -> Table:
    """The table of a CREATE TABLE."""
    statement = parse_statement(sql)
    assert isinstance(statement, CreateTable)
    return statement.table


def view_of(sql: str, tables: Iterable[Table]) -> ViewDefinition:
    """The view of a CREATE VIEW; WITH (..) need not be in it."""
    if "response_time" not in sql:
        sql += " WITH (response_time = '50ms')"
    statement = parse_statement(sql)
    assert isinstance(statement, CreateView)
    definition = bind_view(statement, {fold(table.name): table for table in tables})
    definition.check()
    return definition


def view_life(sql: str, *bases: Life) -> ViewLife:
    """The life of a view over these tables."""
    return ViewLife(view_of(sql, [base.table for base in bases]), 0, bases)


class BaseTables(Ledger):
    """A data directory with these tables."""

    def __init__(self, path: Path, creates: Sequence[str], **options: Any) -> None:
        self.path, self.options = path, {"segment_bytes": 2000, "history_bytes": 1 << 40, **options}
        self.number = 0
        self.history: dict[str, list[tuple[int, Any, Row | None]]] = defaultdict(list)
        self.now: dict[str, dict[Any, Row]] = defaultdict(dict)
        self.open()
        for create in creates:
            self.execute(create)
        self.tables = {fold(table.name): table for table in map(table_of, creates)}

    def put(self, table: str, rows: Sequence[Row]) -> None:
        """Publish whole rows."""
        declared = self.tables[fold(table)]
        names = [column.name for column in declared.columns]
        columns, absent = rows_to_columns([dict(zip(names, row, strict=True)) for row in rows])
        done = self.ask(lambda number: bodies.Publish(table, columns, absent, b"p" * 16, number))
        for seq, row in enumerate(rows, done.first):
            self.history[fold(table)].append((seq, row[declared.key], row))
            self.now[fold(table)][row[declared.key]] = row

    def take(self, table: str, keys: Sequence[Any]) -> None:
        """Delete rows."""
        done = self.ask(lambda number: bodies.Delete(table, keys_to_column(keys), b"p" * 16, number))
        for seq, key in enumerate(keys, done.first):
            self.history[fold(table)].append((seq, key, None))
            self.now[fold(table)].pop(key, None)

    def as_of(self, table: str, seq: int) -> list[Row]:
        """The rows of a table as of a sequence number."""
        rows: dict[Any, Row] = {}
        for at, key, row in self.history[fold(table)]:
            if at <= seq:
                rows.pop(key, None)
                if row is not None:
                    rows[key] = row
        return list(rows.values())

    def life_of(self, table: str) -> Life:
        store = self.data.engine.catalogue.store(table)
        return Life(store.table, store.created)

    def view(self, sql: str) -> ViewLife:
        """A view that is created now."""
        definition = view_of(sql, self.tables.values())
        return ViewLife(definition, self.seq, tuple(self.life_of(table.name) for table in definition.tables))


def as_stored(row: Row) -> Row:
    """A row as SQLite keeps it."""
    return tuple(value.strftime("%Y-%m-%d %H:%M:%S.%f") if isinstance(value, datetime) else value for value in row)


def ordered(rows: Iterable[Row]) -> list[Row]:
    """A bag of rows in some order that only depends on them, with types beside the values: 1 is not 1.0."""
    return sorted((tuple((type(v).__name__, v) for v in row) for row in rows), key=repr)


def answer(view: ViewDefinition, rows: Mapping[str, Iterable[Row]]) -> list[Row]:
    """SQLite's own answer to the SELECT of a view over these rows (by folded table name); sums are exact."""
    database = sqlite3.connect(":memory:")
    try:
        database.create_aggregate("SUM", 1, _Sum)  # type: ignore[arg-type]  # typeshed
        database.create_aggregate("AVG", 1, _Average)  # type: ignore[arg-type]  # typeshed
        for table in view.tables:
            database.execute(create_sql(table))
            marks = ", ".join("?" * len(table.columns))
            stored = map(as_stored, rows[fold(table.name)])
            database.executemany(f'INSERT INTO "{table.name}" VALUES ({marks})', stored)
        return ordered(database.execute(select_text(view)))
    finally:
        database.close()


class _Sum:
    def __init__(self) -> None:
        self.values: list[Any] = []

    def step(self, value: Any) -> None:
        if value is not None:
            self.values.append(value)

    def finalize(self) -> float | int | None:
        if not self.values:
            return None
        total = sum(map(Fraction, self.values))
        if isinstance(self.values[0], int):
            return int(total)
        try:
            return float(total)
        except OverflowError:
            return float("inf") if total > 0 else float("-inf")


class _Average(_Sum):
    def finalize(self) -> float | None:
        total = super().finalize()
        return None if total is None else float(total) / len(self.values)

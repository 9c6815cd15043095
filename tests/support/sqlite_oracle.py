"""The definition of correct: SQLite, given the same rows, asked the same SQL."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import sqlglot
from sqlglot import exp

from hullcast.broker.tables.schema import ColumnType, Table

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_AGGREGATE = re.compile(r"\s*SELECT\s+(MIN|MAX|COUNT|SUM|AVG)\s*\(", re.IGNORECASE)
_DISTINCT = re.compile(r"\s*SELECT\s+DISTINCT\s", re.IGNORECASE)

Row = Mapping[str, Any]


class Oracle:
    """The engine's tables in an in-memory SQLite, kept row by row.

    A TIMESTAMP is an integer of microseconds here, so that differences are numbers; a column is known to be one
    by its name, which must therefore mean a TIMESTAMP in every table that has it.
    """

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self.tables = {table.name.upper(): table for table in tables.values()}
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self._instants: set[str] = set()
        for table in self.tables.values():
            columns = []
            for position, column in enumerate(table.columns):
                kind = "INTEGER" if column.type is ColumnType.TIMESTAMP else column.type.value
                key = " UNIQUE NOT NULL" if position == table.key else ""
                columns.append(f"{column.name} {kind}{key}")
                if column.type is ColumnType.TIMESTAMP:
                    self._instants.add(column.name.upper())
            self.database.execute(f"CREATE TABLE {table.name} ({', '.join(columns)})")

    def upsert(self, table: str, row: Row) -> None:
        """Insert or change one row; columns not given keep their value (NULL in a new row)."""
        declared = self.tables[table.upper()]
        key = declared.key_column.name
        given = {declared.column(name).name: value for name, value in row.items()}
        names, values = list(given), [stored(value) for value in given.values()]
        marks = ", ".join("?" * len(names))
        changes = ", ".join(f"{name} = excluded.{name}" for name in names)
        self.database.execute(
            f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET {changes}",
            values,
        )

    def delete(self, table: str, key: object) -> None:
        """Remove the row with this key, if there is one."""
        column = self.tables[table.upper()].key_column.name
        self.database.execute(f"DELETE FROM {table} WHERE {column} = ?", (stored(key),))

    def keys(self, table: str) -> list[Any]:
        """The keys of a table's rows, ascending."""
        column = self.tables[table.upper()].key_column.name
        return [key for (key,) in self._run(f"SELECT {column} FROM {table} ORDER BY {column}", ())]

    def answer(self, sql: str, *parameters: object) -> Any:
        """None or a number (or instant), a set, or a list of rows in the order of their keys."""
        contents = self.contents(sql, *parameters)
        if not isinstance(contents, dict):
            return contents
        return list(contents.values())

    def contents(self, sql: str, *parameters: object) -> Any:
        """Like `answer`, but rows by their keys: a dict in the order of the keys."""
        if _AGGREGATE.match(sql):
            ((value,),) = self._run(sql, parameters)
            return value
        if _DISTINCT.match(sql):
            rows = self._run(sql, parameters)
            values = {value for (value,) in rows}
            assert len(values) == len(rows)
            return values
        width, keyed = _with_keys(sql, tuple(sorted((name, t.key_column.name) for name, t in self.tables.items())))
        return {row[:width]: row[width:] for row in self._run(keyed, parameters)}

    def _run(self, sql: str, parameters: tuple[object, ...]) -> list[tuple[Any, ...]]:
        cursor = self.database.execute(sql, [stored(value) for value in parameters])
        instants = [_inner_name(column[0]) in self._instants for column in cursor.description]
        rows = cursor.fetchall()
        if any(instants):
            rows = [tuple(_read(v) if at else v for v, at in zip(row, instants, strict=True)) for row in rows]
        return rows


def stored(value: Any) -> Any:
    """A value as the oracle's SQLite holds it."""
    if isinstance(value, datetime):
        return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    if isinstance(value, timedelta):
        return value // _MICROSECOND
    return value


def _read(value: Any) -> Any:
    return None if value is None else _EPOCH + timedelta(microseconds=value)


def _inner_name(label: str) -> str:
    """T for MIN(T), R.T and T: the columns whose values are a column's own."""
    return re.sub(r"^(?:MIN|MAX)\((.*)\)$", r"\1", label.upper()).split(".")[-1].strip()


@cache
def _with_keys(sql: str, keys: tuple[tuple[str, str], ...]) -> tuple[int, str]:
    """The number of tables, and the same SELECT with their keys in front and in their order."""
    key_of = dict(keys)
    tables = list(sqlglot.parse_one(sql, read="sqlite").find_all(exp.Table))
    named = [f"{table.alias_or_name}.{key_of[table.name.upper()]}" for table in tables]
    columns = ", ".join(named)
    return len(named), f"{re.sub('SELECT', f'SELECT {columns},', sql, count=1, flags=re.IGNORECASE)} ORDER BY {columns}"

"""Rows as read become rows as `Client.publish` takes them, and the table a file needs is created.

CSV is text, so each cell is read as its column's type says; an empty cell is NULL. JSON and Parquet have types of their
own. Whether a table takes the values is for the server to say, as for any client; `hullcast publish` adds the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from math import isfinite
from typing import TYPE_CHECKING, Any

from hullcast.broker.tables.schema import fold
from hullcast.network.wire.errors import UnknownColumn, UnknownTable, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hullcast.clients.cli.feeds.rows_in import ReadRows

_LEADING_ZERO = re.compile(r"[+-]?0[0-9]")


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table as `Client.tables` describes it; of a stream the columns that are published, and no key (empty)."""

    name: str
    key: str
    types: Mapping[str, str]

    def column(self, given: str) -> str | None:
        """The declared name of a column, whatever its case."""
        folded = fold(given)
        return next((name for name in self.types if fold(name) == folded), None)


def find_table(tables: Mapping[str, Any], name: str) -> TableShape:
    """The table of that name, whatever its case; or UnknownTable."""
    for declared, facts in tables.items():
        if fold(declared) == fold(name):
            if "stream" in facts:
                published = {column: kind for column, kind in facts["columns"].items() if column != facts["key"]}
                return TableShape(declared, "", published)
            return TableShape(declared, facts["key"], facts["columns"])
    raise UnknownTable(name, tuple(tables))


def typed(batch: ReadRows, table: TableShape, left_out: str | None = None) -> Any:
    """The rows as `Client.publish` takes them, without one column if that is said; UsageError names line and column."""
    if batch.form == "jsonl":
        return _objects(batch, table, left_out)
    if batch.form == "csv":
        rows = {_known(name, table, batch): cells for name, cells in batch.rows.items() if name != left_out}
        _need_key(rows, table, batch)
        return {name: _cells(batch, name, table.types[name], cells) for name, cells in rows.items()}
    rows = batch.rows if left_out is None else batch.rows.drop_columns([left_out])
    _need_key([_known(name, table, batch) for name in rows.schema.names], table, batch)
    return rows


def _objects(batch: ReadRows, table: TableShape, left_out: str | None) -> list[dict[str, Any]]:
    names = dict.fromkeys(name for row in batch.rows for name in row if name != left_out)
    unknown = {name for name in names if table.column(name) is None}
    keys = {name for name in names if table.column(name) == table.key}
    for number, row in enumerate(batch.rows):
        if not unknown.isdisjoint(row):
            name = next(name for name in row if name in unknown)
            raise UsageError(f"{batch.place(number)}: {UnknownColumn(name, table.name, tuple(table.types))}")
        if table.key and keys.isdisjoint(row):
            raise UsageError(f"{batch.place(number)}: the key column {table.key} is missing")
    if left_out is None:
        return list(batch.rows)
    return [{name: value for name, value in row.items() if name != left_out} for row in batch.rows]


def _known(name: str, table: TableShape, batch: ReadRows) -> str:
    column = table.column(name)
    if column is None:
        separator = next((each for each in ";\t|" if batch.form == "csv" and each in name), None)
        hint = f"; is it separated by {separator!r}? Then give --delimiter" if separator else ""
        raise UsageError(f"{batch.source}: {UnknownColumn(name, table.name, tuple(table.types))}{hint}")
    return column


def _need_key(names: Iterable[str], table: TableShape, batch: ReadRows) -> None:
    if table.key and table.key not in names:
        raise UsageError(f"{batch.source}: the key column {table.key} of {table.name} is missing")


# --- text of CSV ---------------------------------------------------------------------------------------------


def _cells(batch: ReadRows, name: str, kind: str, cells: list[str]) -> list[Any]:
    """A column of text as values. All at once; only if that fails, one by one to find where."""
    convert = _CONVERT[kind]
    try:
        return [convert(cell) if cell else None for cell in cells]
    except ValueError:
        for row, cell in enumerate(cells):
            try:
                if cell:
                    convert(cell)
            except ValueError:
                short = cell if len(cell) <= 40 else cell[:40] + ".."
                raise UsageError(f"{batch.place(row, name)}: {short!r} is not {TYPE_WORDS[kind]}") from None
        raise


#: What a value of a type is called in messages.
TYPE_WORDS = {"TEXT": "a text", "INTEGER": "an integer", "REAL": "a number", "TIMESTAMP": "an ISO-8601 timestamp"}


def text_value(kind: str, text: str) -> Any:
    """One value from text, or ValueError: of a key on the command line, say."""
    return _CONVERT[kind](text)


def _real(text: str) -> float:
    if "_" in text:  # Python would take 1_000; no other program writes it
        raise ValueError
    return float(text)  # a NaN or an infinity too: the table refuses it, or NaN is NULL


def _integer(text: str) -> int | float:
    value = _real(text)
    try:
        return int(text)
    except ValueError:
        if value.is_integer():
            return int(value)
        if isfinite(value):
            raise
        return value


_CONVERT: dict[str, Callable[[str], Any]] = {
    "TEXT": str,
    "INTEGER": _integer,
    "REAL": _real,
    "TIMESTAMP": datetime.fromisoformat,
}


# --- a table for a file --------------------------------------------------------------------------------------


def create_statement(table: str, batch: ReadRows, key: str | None = None) -> str:
    """CREATE TABLE for rows like these: types as far as this batch shows them, `key` or the first column the key."""
    columns = _columns(batch)
    key = next(iter(columns)) if key is None else key
    if key not in columns:
        raise UsageError(f"{batch.source}: there is no column {key} for the key; columns: {', '.join(columns)}")
    declared = [
        f"{_quoted(name)} {_guess(values)}{' PRIMARY KEY' if name == key else ''}" for name, values in columns.items()
    ]
    return f"CREATE TABLE {_quoted(table)} ({', '.join(declared)})"


def _columns(batch: ReadRows) -> dict[str, list[Any]]:
    if batch.form == "jsonl":
        names = dict.fromkeys(name for row in batch.rows for name in row)
        return {name: [row.get(name) for row in batch.rows] for name in names}
    if batch.form == "csv":
        return {name: [cell or None for cell in cells] for name, cells in batch.rows.items()}
    return {name: batch.rows.column(name).to_pylist() for name in batch.rows.schema.names}


def _guess(values: Iterable[Any]) -> str:
    """The narrowest type that takes all these values; of nothing but NULLs, TEXT."""
    there = [value for value in values if value is not None]
    for kind in ("INTEGER", "REAL", "TIMESTAMP") if there else ():
        if all(_fits(kind, value) for value in there):
            return kind
    return "TEXT"


def _fits(kind: str, value: Any) -> bool:
    if isinstance(value, str):
        try:
            found = _CONVERT[kind](value)
        except ValueError:
            return False
        if isinstance(found, float) and not isfinite(found):
            return False
        if kind == "INTEGER":
            return str(found) == value  # 007 and 1.0 have a meaning as they are
        return kind != "REAL" or not _LEADING_ZERO.match(value)
    if isinstance(value, datetime | date):
        return kind == "TIMESTAMP"
    if isinstance(value, bool):
        return False
    return kind == "REAL" or (kind == "INTEGER" and isinstance(value, int))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

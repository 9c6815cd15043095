"""The CREATE TABLE of a table that exists: written anew, since a table does not keep the text it was made by. Pure."""

from __future__ import annotations

from hullcast.broker.sql.create import CreateTable, parse_statement
from hullcast.broker.sql.text import MAXIMUM_CHARACTERS
from hullcast.broker.tables.schema import Column, ColumnType, Table
from hullcast.network.wire.errors import SqlError

_SHORTEST = {
    ColumnType.TEXT: "TEXT",
    ColumnType.REAL: "REAL",
    ColumnType.INTEGER: "INT",
    ColumnType.TIMESTAMP: "DATETIME",
}


def create_text(table: Table) -> str:
    """A statement that `parse_statement` reads as this very table.

    Written out in full if that is not too long to be taken; otherwise as briefly as possible, and then it is no longer
    than the text by which the table was made: shortest type names, quotes only where they must be, no spare blanks.
    """
    columns = ", ".join(f'"{column.name}" {column.type.value}{_constraint(table, column)}' for column in table.columns)
    text = f'CREATE TABLE "{table.name}" ({columns})'
    if len(text) <= MAXIMUM_CHARACTERS:
        return text
    columns = ",".join(
        f"{_name(column.name)} {_SHORTEST[column.type]}{_constraint(table, column)}" for column in table.columns
    )
    return f"CREATE TABLE {_name(table.name)}({columns})"


def _constraint(table: Table, column: Column) -> str:
    if column is table.key_column:
        return " PRIMARY KEY"
    return " NOT NULL" if column.not_null else ""


def _name(name: str) -> str:
    """A name without quotes if it means the same to the parser."""
    try:
        read = parse_statement(f"CREATE TABLE {name}({name} INT PRIMARY KEY)")
    except SqlError:
        return f'"{name}"'
    return name if read == CreateTable(Table(name, (Column(name, ColumnType.INTEGER, True),), 0)) else f'"{name}"'

"""CREATE and DROP, the statements that change what exists: read, and those of tables written from a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from hullcast.broker.sql.text import (
    MAXIMUM_CHARACTERS,
    check_only,
    describe,
    plain_name,
    read_statement,
    refuse,
    relation_name,
    shorten,
)
from hullcast.broker.sql.view import CREATE_VIEW, DROP_VIEW, CreateView, DropView, read_create_view
from hullcast.broker.tables.schema import Column, ColumnType, FeedTerms, Table, fold
from hullcast.network.wire.durations import seconds_of
from hullcast.network.wire.errors import SqlError

MAXIMUM_COLUMNS: Final = 256
_MAXIMUM_TOKENS: Final = 2048  # 256 columns of `name TYPE NOT NULL ,` are flat, so more tokens are harmless

_GRAMMAR = (
    "accepted: CREATE TABLE [IF NOT EXISTS] name (column TYPE [NOT NULL] [PRIMARY KEY], ..) "
    "[WITH (period = '1m', weight = 3)] or DROP TABLE [IF EXISTS] name"
)
_DROP = "accepted: DROP TABLE [IF EXISTS] name"
_TYPE_HINT = (
    "accepted types: TEXT (VARCHAR, CHAR, STRING), REAL (FLOAT, DOUBLE), "
    "INTEGER (INT, BIGINT, SMALLINT), TIMESTAMP (DATETIME)"
)
_CONSTRAINT_HINT = "accepted: NOT NULL, PRIMARY KEY, and PRIMARY KEY (column) at the end"
_KEY_HINT = "mark exactly one column PRIMARY KEY"
_TERMS_HINT = "accepted: WITH (period = '1m', weight = 3), or one of both"
LONGEST_PERIOD_S: Final = 366 * 86400.0
MAXIMUM_WEIGHT: Final = 1e6

_D = exp.DataType.Type
_TYPES = {
    _D.TEXT: ColumnType.TEXT,
    _D.VARCHAR: ColumnType.TEXT,
    _D.CHAR: ColumnType.TEXT,
    _D.DOUBLE: ColumnType.REAL,  # sqlglot reads SQLite's REAL and FLOAT as DOUBLE
    _D.FLOAT: ColumnType.REAL,
    _D.INT: ColumnType.INTEGER,
    _D.BIGINT: ColumnType.INTEGER,
    _D.SMALLINT: ColumnType.INTEGER,
    _D.TIMESTAMP: ColumnType.TIMESTAMP,
    _D.DATETIME: ColumnType.TIMESTAMP,
}


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A table to create; `if_missing`: nothing happens if it exists with the same definition."""

    table: Table
    if_missing: bool = False


@dataclass(frozen=True, slots=True)
class DropTable:
    """A table to drop, by name; `if_there`: nothing happens if it does not exist."""

    name: str
    if_there: bool = False


def parse_statement(sql: str) -> CreateTable | DropTable | CreateView | DropView:
    """Read CREATE or DROP of a table or a view; anything else is a SqlError that names the right call."""
    statement = read_statement(sql, ("CREATE", "DROP"), _GRAMMAR, _MAXIMUM_TOKENS)
    tree = statement.tree
    if isinstance(tree, exp.Create) and tree.args.get("kind") == "TABLE":
        return CreateTable(_table(tree), bool(tree.args.get("exists")))
    if isinstance(tree, exp.Create) and tree.args.get("kind") == "VIEW":
        return read_create_view(statement, sql)
    if isinstance(tree, exp.Drop) and tree.args.get("kind") in ("TABLE", "VIEW"):
        kind, accepted = tree.args["kind"], _DROP if tree.args["kind"] == "TABLE" else DROP_VIEW
        check_only(tree, {"tables", "kind", "exists"}, f"DROP {kind} takes a name and nothing else", accepted)
        tables = tree.args.get("tables") or []
        if len(tables) != 1:
            refuse(tree, f"DROP {kind} takes one name", accepted)
        name, if_there = relation_name(tables[0], accepted), bool(tree.args.get("exists"))
        return DropTable(name, if_there) if kind == "TABLE" else DropView(name, if_there)
    refuse(tree, "only tables and views can be created and dropped", f"{_GRAMMAR}; {CREATE_VIEW}; {DROP_VIEW}")


def _table(tree: exp.Create) -> Table:
    allowed = {"this", "kind", "exists", "properties"}
    check_only(tree, allowed, "CREATE TABLE takes a name, columns and WITH (..), and nothing else", _GRAMMAR)
    terms = _terms(tree.args.get("properties"))
    schema = tree.this
    if not isinstance(schema, exp.Schema):
        refuse(tree, "the columns are missing", _GRAMMAR)
    parts = schema.expressions
    if len(parts) > MAXIMUM_COLUMNS + 1:
        raise SqlError(describe(schema.this), f"it has {len(parts)} columns", f"at most {MAXIMUM_COLUMNS} are accepted")
    columns: list[Column] = []
    keys: list[str] = []
    for part in parts:
        if isinstance(part, exp.ColumnDef):
            column, is_key = _column(part)
            columns.append(column)
            keys += [column.name] if is_key else []
        else:
            keys += _table_constraint(part)
    table = replace(_checked(relation_name(schema.this, _GRAMMAR), columns, keys), feed=terms)
    if terms is not None and len(create_text(table)) > MAXIMUM_CHARACTERS:  # a checkpoint could not keep it
        raise SqlError(table.name, "the statement is too long", "use shorter names, or leave WITH (..) out")
    return table


def _terms(properties: exp.Expr | None) -> FeedTerms | None:
    """What stands in WITH (..); None if nothing does."""
    found: dict[str, float] = {}
    for term in () if properties is None else properties.expressions:
        name = fold(term.this.name) if type(term) is exp.Property and isinstance(term.this, exp.Expr) else ""
        value = term.args.get("value")
        if name not in _TERMS:
            if type(term) is exp.Property:
                refuse(term, f"WITH (..) takes {' and '.join(_TERMS)}, and nothing else", _TERMS_HINT)
            refuse(term, "CREATE TABLE takes a name, columns and WITH (..), and nothing else", _GRAMMAR)
        if name in found:
            refuse(term, f"{name} is given twice", _TERMS_HINT)
        if not isinstance(value, exp.Literal):
            refuse(term, _TERMS[name], _TERMS_HINT)
        most = LONGEST_PERIOD_S if name == "period" else MAXIMUM_WEIGHT
        try:
            number = seconds_of(value.this) if name == "period" else float(value.this)
        except ValueError:
            number = 0.0
        if not 0 < number <= most or (name == "weight" and value.is_string):
            refuse(term, _TERMS[name], _TERMS_HINT)
        found[name] = number
    return FeedTerms(found.get("period"), found.get("weight", 1.0)) if found else None


_TERMS = {
    "period": "a period is a duration of more than 0 and at most 366 days, such as '200ms', '1m' or '1h 30m'",
    "weight": f"a weight is a number of more than 0 and at most {MAXIMUM_WEIGHT:,.0f}",
}


def _checked(name: str, columns: list[Column], keys: list[str]) -> Table:
    """The table, if its columns are distinct and one of them is the key."""
    if len(columns) > MAXIMUM_COLUMNS:
        raise SqlError(name, f"it has {len(columns)} columns", f"at most {MAXIMUM_COLUMNS} are accepted")
    seen: set[str] = set()
    for column in columns:
        if fold(column.name) in seen:
            raise SqlError(column.name, "two columns have this name", "names are not case-sensitive")
        seen.add(fold(column.name))
    if not keys:
        raise SqlError(name, "the table has no primary key", _KEY_HINT)
    if len(keys) > 1:
        raise SqlError(", ".join(keys), "the primary key must be one column, named once", _KEY_HINT)
    table = Table(name, tuple(columns), 0)
    key = table.position(keys[0])
    columns[key] = replace(columns[key], not_null=True)
    return Table(name, tuple(columns), key)


def _column(node: exp.ColumnDef) -> tuple[Column, bool]:
    check_only(
        node,
        {"this", "kind", "constraints"},
        "a column takes a name, a type and constraints",
        _CONSTRAINT_HINT,
    )
    not_null = is_key = False
    for constraint in node.args.get("constraints") or []:
        kind = constraint.args.get("kind") if isinstance(constraint, exp.ColumnConstraint) else None
        if constraint.args.get("this"):
            refuse(constraint, "named constraints are not supported", _CONSTRAINT_HINT)
        if isinstance(kind, exp.NotNullColumnConstraint) and not any(kind.args.values()):
            not_null = True
        elif isinstance(kind, exp.PrimaryKeyColumnConstraint) and not any(kind.args.values()):
            is_key = True
        else:
            refuse(constraint, "this constraint is not supported", _CONSTRAINT_HINT)
    return Column(plain_name(node.this), _type(node), not_null or is_key), is_key


def _type(node: exp.ColumnDef) -> ColumnType:
    declared = node.args.get("kind")
    if not isinstance(declared, exp.DataType):
        refuse(node, "the column has no type", _TYPE_HINT)
    known = _TYPES.get(declared.this)
    if known is None or declared.args.get("nested"):
        refuse(declared, f"column {plain_name(node.this)} has an unknown type", _TYPE_HINT)
    if declared.expressions and known is not ColumnType.TEXT:  # VARCHAR(10) is TEXT, as in SQLite
        refuse(declared, "this type takes no size", _TYPE_HINT)
    return known


def _table_constraint(node: object) -> list[str]:
    """The key columns of PRIMARY KEY (..); everything else that can stand there is refused."""
    if isinstance(node, exp.Identifier):
        refuse(node, "the column has no type", _TYPE_HINT)
    if not isinstance(node, exp.PrimaryKey):
        part = describe(node) if isinstance(node, exp.Expr) else shorten(str(node))
        raise SqlError(part, "this table constraint is not supported", _CONSTRAINT_HINT)
    check_only(node, {"expressions", "include"}, "the primary key takes no options", _CONSTRAINT_HINT)
    include = node.args.get("include")
    if include is not None and any(include.args.values()):
        refuse(node, "the primary key takes no options", _CONSTRAINT_HINT)
    if not all(isinstance(column, exp.Identifier) for column in node.expressions):
        refuse(node, "the primary key must be a column", _KEY_HINT)
    return [column.name for column in node.expressions]


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
    terms = "" if table.feed is None else f" WITH {table.feed.declared}"
    text = f'CREATE TABLE "{table.name}" ({columns}){terms}'
    if len(text) <= MAXIMUM_CHARACTERS:
        return text
    columns = ",".join(
        f"{_unquoted(column.name)} {_SHORTEST[column.type]}{_constraint(table, column)}" for column in table.columns
    )
    return f"CREATE TABLE {_unquoted(table.name)}({columns}){terms}"


def _constraint(table: Table, column: Column) -> str:
    if column is table.key_column:
        return " PRIMARY KEY"
    return " NOT NULL" if column.not_null else ""


def _unquoted(name: str) -> str:
    """A name, without quotes if it means the same to the parser."""
    try:
        read = parse_statement(f"CREATE TABLE {name}({name} INT PRIMARY KEY)")
    except SqlError:
        return f'"{name}"'
    return name if read == CreateTable(Table(name, (Column(name, ColumnType.INTEGER, True),), 0)) else f'"{name}"'

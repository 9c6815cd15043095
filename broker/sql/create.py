"""CREATE and DROP: read, and those of tables and streams written again from a table.
Also ADVANCE STREAM, which says how far a stream's time has come."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from hullcast.broker.sql.text import (
    MAXIMUM_CHARACTERS,
    check_only,
    describe,
    plain_name,
    read_statement,
    read_words,
    refuse,
    relation_name,
    shorten,
)
from hullcast.broker.sql.view import CREATE_VIEW, DROP_VIEW, CreateView, DropView, read_create_view
from hullcast.broker.tables.schema import POSITION, Column, ColumnType, FeedTerms, StreamTerms, Table, fold
from hullcast.network.wire.durations import seconds_of
from hullcast.network.wire.errors import SqlError
from hullcast.network.wire.packing import microseconds

MAXIMUM_COLUMNS: Final = 256
_MAXIMUM_TOKENS: Final = 2048  # 256 columns of `name TYPE NOT NULL ,` are flat, so more tokens are harmless

_GRAMMAR = (
    "accepted: CREATE TABLE [IF NOT EXISTS] name (column TYPE [NOT NULL] [PRIMARY KEY], ..) "
    "[WITH (period = '1m', weight = 3)] or DROP TABLE [IF EXISTS] name"
)
_STREAM = (
    "accepted: CREATE STREAM [IF NOT EXISTS] name (column TYPE [NOT NULL], ..) "
    "[WITH (retain_rows = 1000000, retain = '1h')] or DROP STREAM [IF EXISTS] name"
)
_DERIVED = (
    "accepted: CREATE STREAM [IF NOT EXISTS] name AS SELECT columns FROM stream [JOIN ..] [WHERE ..] "
    "[WITH (memory = 10000, retain_rows = 1000000, retain = '1h')]"
)
_ADVANCE = "accepted: ADVANCE STREAM name TO '2024-05-01T12:30:00'"
_TYPE_HINT = (
    "accepted types: TEXT (VARCHAR, CHAR, STRING), REAL (FLOAT, DOUBLE), "
    "INTEGER (INT, BIGINT, SMALLINT), TIMESTAMP (DATETIME)"
)
_CONSTRAINT_HINT = "accepted: NOT NULL, PRIMARY KEY, and PRIMARY KEY (column) at the end"
_KEY_HINT = "mark exactly one column PRIMARY KEY"
_KEYS_HINT = "make one TEXT column of them and mark that PRIMARY KEY, as in ID = 'ACME/2024'"
_NO_COUNTER = "choose the keys where you publish, or CREATE STREAM"
#: Types and constraints that others have, and what to do instead.
_TYPES_INSTEAD: Final[dict[object, str]] = {
    exp.DataType.Type.BOOLEAN: "use INTEGER and publish int(flag), 0 or 1",
    exp.DataType.Type.DECIMAL: "use REAL, or INTEGER with the smallest unit, such as cents",
    exp.DataType.Type.DATE: "use TIMESTAMP",
    exp.DataType.Type.UUID: "use TEXT",
    **dict.fromkeys(("SERIAL", "BIGSERIAL", "SMALLSERIAL"), f"use INTEGER and {_NO_COUNTER}"),
    exp.DataType.Type.JSON: "use TEXT, or a column for each value",
}
_INSTEAD: Final[tuple[tuple[type[exp.Expr], str], ...]] = (
    (exp.DefaultColumnConstraint, "leave it out: a column that a row does not name is NULL; publish the value"),
    (exp.AutoIncrementColumnConstraint, f"leave it out and {_NO_COUNTER}"),
    (exp.UniqueColumnConstraint, "leave it out: only the primary key is unique"),
    (exp.CheckColumnConstraint, "leave it out, and check values where you publish"),
    (exp.Reference, "leave it out: no table depends on another"),
)
_NO_KEY = "leave it out: the key of a stream is POSITION, which the server assigns"
LONGEST_PERIOD_S: Final = 366 * 86400.0
LONGEST_RETAINED_S: Final = 100 * LONGEST_PERIOD_S
MAXIMUM_WEIGHT: Final = 1e6
MAXIMUM_RETAINED: Final = 100_000_000

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
    """A table or stream to create; `if_missing`: nothing happens if it exists with the same definition."""

    table: Table
    if_missing: bool = False


@dataclass(frozen=True, slots=True)
class DropTable:
    """A table or stream to drop, by name; `if_there`: nothing happens if it does not exist."""

    name: str
    if_there: bool = False
    word: str = "table"  # or "stream"


@dataclass(frozen=True, slots=True)
class AdvanceStream:
    """The time of a stream has come to this moment (microseconds since 1970): no earlier tuple will follow."""

    name: str
    time: float


@dataclass(frozen=True, slots=True)
class CreateDerived:
    """A stream to create whose tuples are the results of a SELECT (the `source` of its terms) over other streams."""

    name: str
    terms: StreamTerms
    if_missing: bool = False


Definition = CreateTable | CreateDerived | DropTable | CreateView | DropView


def parse_statement(sql: str) -> Definition | AdvanceStream:
    """Read CREATE or DROP of a table, a stream or a view, or ADVANCE STREAM; anything else is a SqlError that names the
    right call."""
    given: object = sql
    if isinstance(given, str) and given.lstrip()[:7].upper() == "ADVANCE":
        return _advance(sql)
    if isinstance(given, str) and _IS_DERIVED.match(given):
        return _derived(sql)
    statement = read_statement(sql, ("CREATE", "DROP"), _GRAMMAR, _MAXIMUM_TOKENS)
    tree = statement.tree
    if isinstance(tree, exp.Create) and tree.args.get("kind") == "TABLE":
        table = _stream(tree) if statement.is_stream else _table(tree)
        return CreateTable(table, bool(tree.args.get("exists")))
    if isinstance(tree, exp.Create) and tree.args.get("kind") == "VIEW":
        return read_create_view(statement, sql)
    if isinstance(tree, exp.Drop) and tree.args.get("kind") in ("TABLE", "VIEW"):
        kind = "STREAM" if statement.is_stream else tree.args["kind"]
        accepted = DROP_VIEW if kind == "VIEW" else f"accepted: DROP {kind} [IF EXISTS] name"
        check_only(tree, {"tables", "kind", "exists"}, f"DROP {kind} takes a name and nothing else", accepted)
        tables = tree.args.get("tables") or []
        if len(tables) != 1:
            refuse(tree, f"DROP {kind} takes one name", accepted)
        name, if_there = relation_name(tables[0], accepted), bool(tree.args.get("exists"))
        return DropView(name, if_there) if kind == "VIEW" else DropTable(name, if_there, kind.lower())
    if tree.args.get("kind") == "INDEX":
        refuse(tree, "there are no indexes", "leave it out: neither subscriptions nor queries need one")
    what = "only tables, streams and views can be created and dropped"
    refuse(tree, what, f"{_GRAMMAR}; {_STREAM}; {CREATE_VIEW}; {DROP_VIEW}")


def _advance(sql: str) -> AdvanceStream:
    """ADVANCE STREAM name TO 'timestamp', which no SQL has."""
    words = read_words(sql)
    texts = [word.text.upper() for word in words]
    if len(words) != 5 or texts[1] != "STREAM" or texts[3] != "TO" or words[4].token_type is not TokenType.STRING:
        raise SqlError(shorten(sql), "it cannot be parsed", _ADVANCE)
    try:
        moment = datetime.fromisoformat(words[4].text)
    except ValueError:
        raise SqlError(shorten(words[4].text), "it is not a timestamp", _ADVANCE) from None
    return AdvanceStream(words[2].text, float(microseconds(moment)))


_IS_DERIVED = re.compile(
    r"""\s*CREATE\s+STREAM\s+(IF\s+NOT\s+EXISTS\s+)?("[^"]*"|`[^`]*`|\[[^]]*\]|[^\s"`\[(]+)\s+AS\b""", re.IGNORECASE
)


def _derived(sql: str) -> CreateDerived:
    """CREATE STREAM name AS SELECT .. WITH (..): the SELECT is read when the streams are known that it names."""
    words = read_words(sql)
    texts = [word.text.upper() for word in words]
    if_missing = texts[2:5] == ["IF", "NOT", "EXISTS"]
    at = 5 if if_missing else 2
    if texts[at + 1 : at + 3] != ["AS", "SELECT"]:
        raise SqlError(shorten(sql), "it cannot be parsed", _DERIVED)
    head = parse_statement(f'CREATE STREAM "{words[at].text}" (X INTEGER)')  # is it a name that a stream can have?
    assert isinstance(head, CreateTable)
    first, last = words[at + 2], words[-1]
    select = read_statement(sql[first.start : last.end + 1], ("SELECT",), _DERIVED)
    if select.placeholders:
        raise SqlError("?", "a stream has no parameters", "write the values into the SELECT")
    if select.terms:  # they begin behind the last WITH
        last = words[len(words) - 2 - texts[::-1].index("WITH")]
    source = sql[first.start : last.end + 1]
    found: dict[str, float] = {}
    memory = ""
    for name, text in select.terms:
        if name == "memory":
            memory = f" WITH (memory = {text})"  # it is part of the SELECT, and is checked with it
        elif name in _RETENTION and name not in found:
            found[name] = _value(_RETENTION[name], name, text, text, _DERIVED)
        else:
            raise SqlError(
                name, "WITH (..) takes memory, retain_rows and retain, each once, and nothing else", _DERIVED
            )
    retained = found.get("retain_rows")
    terms = StreamTerms(None if retained is None else int(retained), found.get("retain"), source + memory)
    return CreateDerived(head.table.name, terms, if_missing)


def advance_text(name: str, time: float) -> str:
    """The statement that `parse_statement` reads as an AdvanceStream of this name and time."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)
    quoted = name.replace('"', '""')  # no stream has such a name, and nothing else shall be read into it
    return f"ADVANCE STREAM \"{quoted}\" TO '{moment.isoformat()}'"


def _stream(tree: exp.Create) -> Table:
    """A stream: a table whose last column, the key, is POSITION, and whose first TIMESTAMP is never NULL."""
    source = _source(tree)
    found = _terms(tree.args.get("properties"), _RETENTION, "CREATE STREAM", _STREAM)
    schema = _schema(tree, "CREATE STREAM", _STREAM)
    columns: list[Column] = []
    for part in schema.expressions:
        column, is_key = _column(part) if isinstance(part, exp.ColumnDef) else (POSITION, bool(_table_constraint(part)))
        if is_key:
            refuse(part, "a stream has no primary key", _NO_KEY)
        if fold(column.name) == fold(POSITION.name):
            refuse(part, f"a column of a stream cannot be called {POSITION.name}", _NO_KEY)
        columns.append(column)
    name = relation_name(schema.this, _STREAM)
    if not columns:
        raise SqlError(name, "the columns are missing", _STREAM)
    retained = found.get("retain_rows")
    terms = StreamTerms(None if retained is None else int(retained), found.get("retain"), source)
    stamps = [] if source else [at for at, column in enumerate(columns) if column.type is ColumnType.TIMESTAMP]
    if stamps:
        columns[stamps[0]] = replace(columns[stamps[0]], not_null=True)
    return _writable(stream_table(name, columns, terms))


def _source(tree: exp.Create) -> str:
    """The SELECT of a derived stream, as `create_text` writes it; it is taken out of WITH (..)."""
    properties = tree.args.get("properties")
    for term in () if properties is None else properties.expressions:
        if type(term) is exp.Property and isinstance(term.this, exp.Expr) and fold(term.this.name) == "derived_from":
            value = term.args.get("value")
            term.pop()
            if isinstance(value, exp.Literal) and value.is_string:
                return str(value.this)
    return ""


def stream_table(name: str, columns: list[Column], terms: StreamTerms) -> Table:
    """The table that a stream of these columns is; SqlError if it cannot be."""
    table = replace(_checked(name, [*columns, POSITION], [POSITION.name]), stream=terms)
    if table.time is None and terms.retain_s is not None:
        hint = "add a TIMESTAMP column, or use retain_rows"
        raise SqlError("retain", "only a stream with a TIMESTAMP column can be kept by time", hint)
    return table


def _schema(tree: exp.Create, statement: str, accepted: str) -> exp.Schema:
    allowed = {"this", "kind", "exists", "properties"}
    check_only(tree, allowed, f"{statement} takes a name, columns and WITH (..), and nothing else", accepted)
    if not isinstance(tree.this, exp.Schema):
        refuse(tree, "the columns are missing", accepted)
    return tree.this


def _table(tree: exp.Create) -> Table:
    found = _terms(tree.args.get("properties"), _LOADING, "CREATE TABLE", _GRAMMAR)
    schema = _schema(tree, "CREATE TABLE", _GRAMMAR)
    terms = FeedTerms(found.get("period"), found.get("weight", 1.0)) if found else None
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
    return _writable(replace(_checked(relation_name(schema.this, _GRAMMAR), columns, keys), feed=terms))


def _writable(table: Table) -> Table:
    """The table, if `create_text` can write it."""
    has_terms = table.feed is not None or table.stream not in (None, StreamTerms())
    if has_terms and len(create_text(table)) > MAXIMUM_CHARACTERS:  # a checkpoint could not keep it
        raise SqlError(table.name, "the statement is too long", "use shorter names, or leave WITH (..) out")
    return table


@dataclass(frozen=True, slots=True)
class _Term:
    """One of the terms in WITH (..): a duration or a number, of more than 0 and at most so much."""

    most: float
    is_duration: bool
    what: str  # it is, for an error


def _terms(properties: exp.Expr | None, known: dict[str, _Term], statement: str, grammar: str) -> dict[str, float]:
    """What stands in WITH (..), by name."""
    found: dict[str, float] = {}
    accepted = f"accepted: WITH ({', '.join(_EXAMPLES[name] for name in known)}), or one of both"
    for term in () if properties is None else properties.expressions:
        name = fold(term.this.name) if type(term) is exp.Property and isinstance(term.this, exp.Expr) else ""
        value = term.args.get("value")
        if name not in known:
            if type(term) is exp.Property:
                refuse(term, f"WITH (..) takes {' and '.join(known)}, and nothing else", accepted)
            refuse(term, f"{statement} takes a name, columns and WITH (..), and nothing else", grammar)
        one = known[name]
        if name in found:
            refuse(term, f"{name} is given twice", accepted)
        if not isinstance(value, exp.Literal) or (not one.is_duration and value.is_string):
            refuse(term, one.what, accepted)
        found[name] = _value(one, name, value.this, describe(term), accepted)
    return found


def _value(term: _Term, name: str, text: str, shown: str, accepted: str) -> float:
    """The value of a term, or SqlError."""
    try:
        number = seconds_of(text) if term.is_duration else float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= term.most or (name == "retain_rows" and number != int(number)):
        raise SqlError(shown, term.what, accepted)
    return number


_EXAMPLES = {
    "period": "period = '1m'",
    "weight": "weight = 3",
    "retain_rows": "retain_rows = 1000000",
    "retain": "retain = '1h'",
}
_DAYS = "is a duration of more than 0 and at most {:,.0f} days, such as '200ms', '1m' or '1h 30m'"
_LOADING = {
    "period": _Term(LONGEST_PERIOD_S, True, f"a period {_DAYS.format(LONGEST_PERIOD_S / 86400)}"),
    "weight": _Term(MAXIMUM_WEIGHT, False, f"a weight is a number of more than 0 and at most {MAXIMUM_WEIGHT:,.0f}"),
}
_RETENTION = {
    "retain_rows": _Term(
        MAXIMUM_RETAINED, False, f"retain_rows is a whole number of more than 0 and at most {MAXIMUM_RETAINED:,}"
    ),
    "retain": _Term(LONGEST_RETAINED_S, True, f"retain {_DAYS.format(LONGEST_RETAINED_S / 86400)}"),
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
        hint = _KEYS_HINT if len(set(map(fold, keys))) > 1 else _KEY_HINT
        raise SqlError(", ".join(keys), "the primary key must be one column, named once", hint)
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
            instead = next((hint for one, hint in _INSTEAD if isinstance(kind, one)), _CONSTRAINT_HINT)
            part = "AUTOINCREMENT" if isinstance(kind, exp.AutoIncrementColumnConstraint) else describe(constraint)
            raise SqlError(part, "this constraint is not supported", instead)
    return Column(plain_name(node.this), _type(node), not_null or is_key), is_key


def _type(node: exp.ColumnDef) -> ColumnType:
    declared = node.args.get("kind")
    if not isinstance(declared, exp.DataType):
        refuse(node, "the column has no type", _TYPE_HINT)
    known = _TYPES.get(declared.this)
    if known is None or declared.args.get("nested"):
        instead = _TYPES_INSTEAD.get(declared.this) or _TYPES_INSTEAD.get(str(declared.args.get("kind")).upper())
        hint = _TYPE_HINT if instead is None else f"{instead}; {_TYPE_HINT}"
        refuse(declared, f"column {plain_name(node.this)} has an unknown type", hint)
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
    """A statement that `parse_statement` reads as this very table or stream.

    Written out in full if that is not too long to be taken; otherwise as briefly as possible, and then it is no longer
    than the text by which the table was made: shortest type names, quotes only where they must be, no spare blanks.
    """
    word, declared, terms = "TABLE", table.columns, "" if table.feed is None else table.feed.declared
    if table.stream is not None:
        word, declared, terms = "STREAM", table.columns[:-1], table.stream.declared
    terms = f" WITH {terms}" if terms else ""
    columns = ", ".join(f'"{column.name}" {column.type.value}{_constraint(table, column)}' for column in declared)
    text = f'CREATE {word} "{table.name}" ({columns}){terms}'
    if len(text) <= MAXIMUM_CHARACTERS:
        return text
    time = None if table.stream is None else table.time  # NOT NULL by itself
    columns = ",".join(
        f"{_unquoted(column.name)} {_SHORTEST[column.type]}{'' if place == time else _constraint(table, column)}"
        for place, column in enumerate(declared)
    )
    return f"CREATE {word} {_unquoted(table.name)}({columns}){terms}"


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

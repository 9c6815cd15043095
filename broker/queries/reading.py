"""Reads a one-time SELECT: refuses anything else, finds its tables, and adapts texts beside TIMESTAMPs.

SQLite has no instants. A TIMESTAMP is kept as text of fixed width, 'YYYY-MM-DD HH:MM:SS.ffffff' in UTC, which
sorts as time does (and which SQLite's own date functions read). For the comparison to be one of instants, ISO
text beside a TIMESTAMP column is brought into this form: literals when the statement is read, parameters by
wrapping them in a function. Answers that are TIMESTAMP columns, or MIN or MAX of one, come back as datetimes.

Statements come from strangers: they are bounded in length before they are parsed, and must be one SELECT.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import sqlglot
from sqlglot import exp
from sqlglot.dialects.sqlite import SQLite
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, build_scope
from sqlglot.tokenizer_core import TokenType

from hullcast.broker.sql.text import check_text, parsing, refuse_other_statements, shorten
from hullcast.broker.tables.interning import Interner
from hullcast.broker.tables.schema import Column, ColumnType, Table, fold
from hullcast.broker.tables.values import Refused, decode, encode_number, has_utf8
from hullcast.network.wire.containers import number_of
from hullcast.network.wire.errors import BadParameter, SqlError, UnknownTable
from hullcast.network.wire.packing import type_name

MOST_COLUMNS = 2000  # of one query: SQLite's own limit
_ACCEPTED = "accepted: one SELECT (WITH .. SELECT, UNION and the like included) over the tables"
INSTANT_FUNCTION = "hullcast_instant"  # the SQL function that brings a parameter into the form of a TIMESTAMP
_TIME = Column("", ColumnType.TIMESTAMP)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ)

_DIALECT = SQLite()
_PARAMETER_SIGNS = (TokenType.PLACEHOLDER, TokenType.COLON, TokenType.PARAMETER)
_NAME = "hullcast_p"  # of parameters, while a statement is read

Parameters = Sequence[object] | Mapping[str, object]


# -- reading a statement ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """A statement as SQLite will run it; `instants` says which output columns are TIMESTAMPs.

    `asked` is the statement as it came, `tables` the folded names of the tables it may read, `local` those of its
    CTEs, which SQLite asks for as if they were tables.
    """

    asked: str
    sql: str
    tables: tuple[str, ...]
    local: frozenset[str]
    instants: tuple[bool, ...]
    instant_names: frozenset[str]
    columns: tuple[str, ...] = ()  # of all its tables, to be named in errors


def read_query(sql: str, tables: Mapping[str, Table], *, attached: bool = False) -> Plan:
    """Parse, refuse what is not a SELECT, find the tables, and bring texts beside TIMESTAMPs into their form.

    `attached`: each table is in a database of its own, which SQLite knows as main, t1, t2 .. in the order of the plan.
    """
    check_text(sql)
    with parsing(sql, _ACCEPTED):
        try:
            marked = _Marked(sql)
            statements = sqlglot.parse(marked.text, read="sqlite")
        except SqlglotError:
            refuse_other_statements(sql)
            raise
        if len(statements) != 1 or not isinstance(statements[0], exp.Query):
            refuse_other_statements(sql)
            raise SqlError(shorten(sql), "not a single SELECT", _ACCEPTED)
        tree = statements[0]
        if tree.find(exp.Into, exp.Insert, exp.Update, exp.Delete, exp.DDL, exp.Command):
            raise SqlError(shorten(sql), "it writes", _ACCEPTED)
        _refuse_bare_in(tree)
        named = _tables_of(tree, tables)
        local = frozenset(name for name in _local_names(tree) - tables.keys() if not name.startswith("sqlite_"))
        used = [tables[name] for name in named]
        instant_names = _instant_names(used)
        columns = tuple(dict.fromkeys(column.name for table in used for column in table.columns))
        if attached:
            _name_databases(tree, named, marked)
        if not instant_names:  # nothing to decode: SQLite gets the text as it came, but for what was changed above
            return Plan(sql, marked.changed(), named, local, (), instant_names, columns)
        scope = build_scope(tree)
        if scope is None:
            raise SqlError(shorten(sql), "not a single SELECT", _ACCEPTED)
        types = _InstantTypes(tables)
        for inner in scope.traverse():
            _align_scope(inner, types, marked)
        return Plan(sql, marked.changed(), named, local, tuple(types.outputs(scope)), instant_names, columns)


class _Marked:
    """A statement whose parameters have names of ours, so that each is found in the tree, and what is to be changed.

    Only literals and parameters are changed, where they stand: the parser's own writing of a tree may mean another
    thing (`CAST(x AS DATE)` becomes `DATE(x)`, a unary plus is lost).
    """

    def __init__(self, sql: str) -> None:
        self._parameters: list[str] = []  # as they stood
        self._places: list[slice] = []  # of our names
        self._changes: dict[int, tuple[int, str]] = {}  # by where it begins: where it ends, and what comes there
        text, copied = "", 0
        tokens = _DIALECT.tokenize(sql)
        for token, after in zip(tokens, [*tokens[1:], None], strict=True):
            if token.token_type not in _PARAMETER_SIGNS or token.start < copied:
                continue
            named = after is not None and after.start == token.end + 1 and re.fullmatch(r"\w+", after.text) is not None
            end = (after.end if named and after is not None else token.end) + 1
            name = f":{_NAME}{len(self._parameters)}"
            text += sql[copied : token.start]
            self._parameters.append(sql[token.start : end])
            self._places.append(slice(len(text), len(text) + len(name)))
            text, copied = text + name, end
        self.text = text + sql[copied:]

    def change(self, node: exp.Literal | exp.Placeholder) -> None:
        """Bring a literal or a parameter into the form of a TIMESTAMP."""
        if isinstance(node, exp.Literal):
            self._changes[node.meta["start"]] = (node.meta["end"] + 1, f"'{_literal(node)}'")
        else:
            number = int(node.name.removeprefix(_NAME))
            place = self._places[number]
            self._changes[place.start] = (place.stop, f"{INSTANT_FUNCTION}({self._parameters[number]})")

    def name_database(self, node: exp.Expression, name: str) -> None:
        """Another database before a table's name."""
        self._changes[node.meta["start"]] = (node.meta["end"] + 1, name)

    def changed(self) -> str:
        """The statement with all changes, its parameters named as they were."""
        for place, parameter in zip(self._places, self._parameters, strict=True):
            self._changes.setdefault(place.start, (place.stop, parameter))
        text, copied = "", 0
        for start, (end, instead) in sorted(self._changes.items()):
            text, copied = text + self.text[copied:start] + instead, end
        return text + self.text[copied:]


def _tables_of(tree: exp.Query, tables: Mapping[str, Table]) -> tuple[str, ...]:
    """The folded names of the tables a statement reads, or UnknownTable."""
    local = _local_names(tree)
    named: dict[str, None] = {}
    for node in tree.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier):
            raise SqlError(shorten(node.sql(dialect="sqlite")), "FROM has a function", _ACCEPTED)
        folded = fold(node.name)
        known = folded in tables or (not node.db and folded in local)  # a CTE is in no database
        if fold(node.db) not in ("", "main") or node.catalog or not known:
            raise UnknownTable(node.sql(dialect="sqlite")[:80], tuple(t.name for t in tables.values()))
        if folded in tables:
            named[folded] = None
    return tuple(named)


def _local_names(tree: exp.Query) -> frozenset[str]:
    """The folded names of its CTEs."""
    return frozenset(fold(cte.alias) for cte in tree.find_all(exp.CTE))


def _name_databases(tree: exp.Query, named: Sequence[str], marked: _Marked) -> None:
    """Where a table is named with its database, which is main to everybody, name the one that it is in."""
    for node in tree.find_all(exp.Table, exp.Column):
        database, name = node.args.get("db"), fold(node.table if isinstance(node, exp.Column) else node.name)
        if database is not None and name in named and named.index(name):
            marked.name_database(database, f"t{named.index(name)}")


def _refuse_bare_in(tree: exp.Query) -> None:
    """SQLite takes a table's name behind IN; the parser takes it for a column, and so the table would be missed."""
    for node in tree.find_all(exp.In):
        field = node.args.get("field")
        if field is not None:
            name = field.sql(dialect="sqlite")[:80]
            raise SqlError(f"IN {name}", "IN is followed by a name", f"write IN (SELECT .. FROM {name})")


def _instant_names(tables: Sequence[Table]) -> frozenset[str]:
    """Names that mean a TIMESTAMP in each table that has them."""
    columns = [column for table in tables for column in table.columns]
    other = {fold(column.name) for column in columns if column.type is not ColumnType.TIMESTAMP}
    return frozenset(fold(column.name) for column in columns) - other


def instants_of(names: Sequence[str], plan: Plan) -> tuple[bool, ...]:
    """Which output columns are TIMESTAMPs; decided by name for a `*` whose columns are not known."""
    if len(plan.instants) == len(names):
        return plan.instants
    return tuple(fold(name) in plan.instant_names for name in names)


class _InstantTypes:
    """Which expressions of a statement are TIMESTAMPs, through aliases, subqueries and CTEs."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = tables
        self._known: dict[Scope, list[tuple[str, bool]]] = {}

    def outputs(self, scope: Scope) -> list[bool]:
        """For each output column of a query whether it is a TIMESTAMP."""
        return [instant for _, instant in self._columns(scope)]

    def is_instant(self, node: object, scope: Scope) -> bool:
        """Whether an expression is a TIMESTAMP column, or MIN or MAX of one."""
        match node:
            case exp.Alias() | exp.Paren():
                return self.is_instant(node.this, scope)
            case exp.Min() | exp.Max():
                return not node.expressions and self.is_instant(node.this, scope)
            case exp.Subquery():
                inner = next((s for s in scope.subquery_scopes if s.expression is node.this), None)
                return inner is not None and self.outputs(inner)[:1] == [True]
            case exp.Column():
                return self._column_is_instant(node, scope)
        return False

    def _column_is_instant(self, column: exp.Column, scope: Scope | None) -> bool:
        folded, qualifier = fold(column.name), fold(column.table)
        while scope is not None:  # outwards: a correlated subquery sees the columns around it
            for name, (_, source) in scope.selected_sources.items():
                if qualifier in ("", fold(name)):
                    for output, instant in self._source(source):
                        if output == folded:
                            return instant
            scope = scope.parent
        return False

    def _source(self, source: object) -> list[tuple[str, bool]]:
        if isinstance(source, Scope):
            return self._columns(source)
        table = self._tables.get(fold(source.name)) if isinstance(source, exp.Table) else None
        columns = table.columns if table is not None else ()
        return [(fold(column.name), column.type is ColumnType.TIMESTAMP) for column in columns]

    def _columns(self, scope: Scope) -> list[tuple[str, bool]]:
        """Folded name and whether TIMESTAMP of each output column of a query.

        Remembered, and bounded in number: in a chain of CTEs that each name the one before twice, both the
        work and the columns would double at every link.
        """
        columns = self._known.get(scope)
        if columns is None:
            columns = self._known[scope] = self._derive(scope)
        return columns

    def _derive(self, scope: Scope) -> list[tuple[str, bool]]:
        columns: list[tuple[str, bool]] = []
        if scope.set_operation_scopes:
            columns = self._columns(scope.set_operation_scopes[0])  # a union is named and typed by its first part
        elif isinstance(scope.expression, exp.Query):
            for node in scope.expression.selects:
                if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and node.is_star):
                    qualifier = fold(node.table) if isinstance(node, exp.Column) else ""
                    for name, (reference, source) in scope.selected_sources.items():
                        if qualifier == fold(name):
                            columns.extend(self._source(source))
                        elif not qualifier:
                            merged = _merged(reference.parent, columns)
                            columns.extend(c for c in self._source(source) if c[0] not in merged)
                else:
                    columns.append((fold(node.alias_or_name), self.is_instant(node, scope)))
                if len(columns) > MOST_COLUMNS:
                    raise SqlError("SELECT", f"more than {MOST_COLUMNS} columns", "name the columns you need")
        renamed = scope.outer_columns  # WITH w(a, b) AS ..
        if len(renamed) == len(columns):
            columns = [(fold(name), instant) for name, (_, instant) in zip(renamed, columns, strict=True)]
        return columns


def _merged(join: exp.Expr | None, before: Sequence[tuple[str, bool]]) -> set[str]:
    """The folded names that a `*` does not repeat for a joined table: those of USING, or NATURAL's own."""
    if not isinstance(join, exp.Join):
        return set()
    if join.method.upper() == "NATURAL":
        return {name for name, _ in before}
    return {fold(identifier.name) for identifier in join.args.get("using") or ()}


def _align_scope(scope: Scope, types: _InstantTypes, marked: _Marked) -> None:
    """Bring what is compared with TIMESTAMPs in one query into their form."""
    for node in list(scope.find_all(*_COMPARISONS, exp.Between, exp.In, exp.Case)):
        if isinstance(node, exp.Between):
            operands = [node.this, node.args["low"], node.args["high"]]
        elif isinstance(node, exp.In):
            operands = [node.this, *node.expressions]
        elif isinstance(node, exp.Case):  # CASE x WHEN y compares; CASE WHEN y does not
            operands = [node.this, *(branch.this for branch in node.args["ifs"])] if node.this else []
        else:
            operands = [node.this, node.expression]
        _align(operands, scope, types, marked)


def _align(operands: Sequence[exp.Expr], scope: Scope, types: _InstantTypes, marked: _Marked) -> None:
    """Bring literals and parameters among operands compared with each other into the form of a TIMESTAMP."""
    operands = [operand.unnest() for operand in operands]
    if all(isinstance(operand, exp.Tuple) for operand in operands):  # (a, b) < (x, y) compares part by part
        for part in zip(*(operand.expressions for operand in operands), strict=False):
            _align(part, scope, types, marked)
    elif any(types.is_instant(operand, scope) for operand in operands):
        for operand in operands:
            if isinstance(operand, exp.Literal | exp.Placeholder):
                marked.change(operand)


def _literal(literal: exp.Literal) -> str:
    try:
        return instant_text(literal.this if literal.is_string else None)
    except Refused:
        raise SqlError(
            literal.sql(dialect="sqlite")[:80],
            "it is compared with a TIMESTAMP column",
            "write ISO-8601 text, as in '2026-01-31 12:00:00'",
        ) from None


# -- values on their way in and out ------------------------------------------------------------------------


def instant_text(value: object) -> str:
    """An instant in the mirror's form; Refused if it is not one."""
    if value is None:
        raise Refused("NULL is not a timestamp")
    instant = decode(ColumnType.TIMESTAMP, encode_number(_TIME, value), Interner())
    assert isinstance(instant, datetime)
    return instant.strftime("%Y-%m-%d %H:%M:%S.%f")


def instant_parameter(value: object) -> str | None:
    """The SQL function around parameters; an exception in it reaches us as an OperationalError."""
    return None if value is None else instant_text(value)


def read_instant(text: object) -> object:
    """The datetime of a text in the form of a TIMESTAMP; anything else (a UNION may add it) as it is."""
    if isinstance(text, str):
        try:
            return datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC)
        except ValueError:
            return text
    return text


def bind(parameters: Parameters) -> Any:
    """Parameters as SQLite takes them."""
    if isinstance(parameters, Mapping):
        return {name: _bind_one(i, value) for i, (name, value) in enumerate(parameters.items(), 1)}
    if isinstance(parameters, str | bytes):
        raise BadParameter(0, "parameters are a sequence or a dict of values, not one text")
    return tuple(_bind_one(i, value) for i, value in enumerate(parameters, 1))


def _bind_one(position: int, value: object) -> str | int | float | None:
    if isinstance(value, date | np.datetime64):
        try:
            return None if value != value else instant_text(value)  # NaT
        except Refused as refused:
            raise BadParameter(position, refused.reason) from None
    kind = type_name(value)
    value = number_of(value) if isinstance(value, Decimal) else value
    if isinstance(value, np.generic) and not isinstance(value, np.timedelta64):  # some of these would be integers
        value = value.item()
    if isinstance(value, str):
        if not has_utf8(value):
            raise BadParameter(position, "a lone surrogate has no UTF-8 form")
        return str.__str__(value)
    if isinstance(value, float) and value != value:
        raise BadParameter(position, "NaN is not a number in SQL; bind None for NULL")
    if value is None or (isinstance(value, int | float) and not isinstance(value, np.generic)):
        return value
    raise BadParameter(position, f"takes None, a number, a text or a datetime, got {kind}")

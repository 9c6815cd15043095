"""The mirror: an in-memory SQLite copy of the tables, to answer one-time SELECTs over the current rows.

A table is copied when a query first names it; afterwards only the slots that changed are written again, when
the next query names it. The slot of a row is its rowid in SQLite, so a slot that passed from one key to
another between two queries is simply replaced.

SQLite has no instants. A TIMESTAMP is kept as text of fixed width, 'YYYY-MM-DD HH:MM:SS.ffffff' in UTC, which
sorts as time does (and which SQLite's own date functions read). For the comparison to be one of instants, ISO
text beside a TIMESTAMP column is brought into this form: literals when the statement is read, parameters by
wrapping them in a function. Answers that are TIMESTAMP columns, or MIN or MAX of one, come back as datetimes.

Statements come from strangers. They are bounded in length before they are parsed, must be one SELECT, can
reach nothing but the tables that we found in them (SQLite's authorizer, so that a statement which SQLite reads
otherwise than our parser gets no further), and are stopped after a number of SQLite's steps, which is
a clock that a pure module may have. What no step counts is bounded by SQLite's own limits on lengths.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import sqlglot
from numpy.typing import NDArray
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, build_scope

from broker.interning import Interner
from broker.schema import Column, ColumnType, Table, fold
from broker.sql.text import refuse_other_statements
from broker.store import TableStore
from broker.values import LONGEST_TEXT_BYTES, Refused, decode, decode_column, encode_number, has_utf8
from network.answers.named import QueryRows
from network.wire.containers import number_of
from network.wire.errors import BadParameter, SqlError, UnknownTable
from network.wire.packing import type_name

LONGEST_SQL = 4096
MOST_COLUMNS = 2000  # of one query: SQLite's own limit
STEPS_PER_CALL = 10_000  # SQLite's steps between two looks at the work done
_ACCEPTED = "one SELECT (WITH .. SELECT, UNION and the like included) over the tables"
_INSTANT = "hullcast_instant"  # the SQL function that brings a parameter into the form of a TIMESTAMP
_TIME = Column("", ColumnType.TIMESTAMP)
_REFUSED_FUNCTIONS = frozenset({"load_extension", "zeroblob", "randomblob", "fts3_tokenizer"})
_ALLOWED_ACTIONS = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,  # matching is exponential in its wildcards, in one step
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ)

Parameters = Sequence[object] | Mapping[str, object]


class Mirror:
    """Answers SELECTs from the stores of one engine. One caller at a time; its owner sees to that.

    `stores` is the engine's own mapping and is looked at anew for each query, so created and dropped tables
    need no notice. The mirror is the one follower of each store's `take_dirty`.

    Invariant M1: after `_refresh` of a table, its SQLite rows are the store's rows, rowid = slot.
    """

    def __init__(
        self,
        stores: Mapping[str, TableStore],
        interner: Interner,
        step_limit: int = 50_000_000,
        row_limit: int = 1_000_000,
    ) -> None:
        """A larger `step_limit` lets heavier queries finish, and a stranger's occupy the server longer (very
        roughly a second per 20 million); `row_limit` bounds the answer held in memory."""
        self._stores, self._interner = stores, interner
        self._step_limit, self._row_limit = step_limit, row_limit
        self._copied: dict[str, TableStore] = {}
        self._guarded = False
        self._readable: frozenset[str] = frozenset()
        self._steps_left = 0
        # no statement is remembered: the authorizer is asked when one is prepared, and shall see each
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=0)
        self._database.execute("PRAGMA temp_store = MEMORY")
        self._database.execute("PRAGMA trusted_schema = OFF")
        for limit, value in _LIMITS.items():
            self._database.setlimit(limit, value)
        self._database.create_function(_INSTANT, 1, _instant_parameter, deterministic=True)
        self._database.set_authorizer(self._authorize)
        self._database.set_progress_handler(self._count_steps, STEPS_PER_CALL)

    def query(self, sql: str, parameters: Parameters = ()) -> QueryRows:
        """The rows of a SELECT over the current state, as named tuples.

        Raises SqlError, UnknownTable, or BadParameter. A field whose column name is no identifier is named
        by its position (`_0`).
        """
        return self.prepare(sql, parameters)()

    def tables_of(self, sql: str) -> tuple[str, ...]:
        """The names of the tables that a SELECT reads."""
        return tuple(_read(sql, {fold(store.table.name): store.table for store in self._stores.values()}).tables)

    def prepare(self, sql: str, parameters: Parameters = ()) -> Callable[[], QueryRows]:
        """Bring the copy up to date now, and read from it later, perhaps in another thread (one at a time).

        Reading may take long and does not look at the stores; nothing else may be asked of the mirror meanwhile.
        """
        tables = {fold(store.table.name): store for store in self._stores.values()}
        plan = _read(sql, {name: store.table for name, store in tables.items()})
        bound = _bind(parameters)
        self._forget_dropped(tables)
        for name in plan.tables:
            self._refresh(name, tables[name])
        width = sum(len(tables[name].table.columns) for name in plan.tables)
        return lambda: self._read_rows(sql, plan, bound, width)

    def _read_rows(self, sql: str, plan: _Plan, bound: Any, width: int) -> QueryRows:
        with self._guard(sql, plan.readable, width):
            cursor = self._database.execute(plan.sql, bound)
            names = tuple(described[0] for described in cursor.description)
            rows = cursor.fetchmany(self._row_limit + 1)
            cursor.close()
        if len(rows) > self._row_limit:
            raise SqlError(_shortened(sql), f"more than {self._row_limit} rows", "add a WHERE or a LIMIT")
        instants = plan.instants if len(plan.instants) == len(names) else _instants_by_name(names, plan)
        if any(instants):
            columns = [
                map(_read_instant, column) if instant else column
                for column, instant in zip(zip(*rows, strict=True), instants, strict=False)
            ]
            rows = list(zip(*columns, strict=True))
        return QueryRows(names, rows)

    def close(self) -> None:
        """Give the memory back."""
        self._database.close()

    # -- the copy --------------------------------------------------------------------------------------

    def _forget_dropped(self, tables: Mapping[str, TableStore]) -> None:
        for name, store in list(self._copied.items()):
            if tables.get(name) is not store:
                self._database.execute(f"DROP TABLE {_quoted(store.table.name)}")
                del self._copied[name]

    def _refresh(self, name: str, store: TableStore) -> None:
        """Bring one table up to date (M1): wholly if it is new, else the slots that changed."""
        table = store.table
        rowid = _rowid(table)
        quoted = _quoted(table.name)
        if name not in self._copied:
            columns = [f"{_quoted(column.name)} {_affinity(column)}" for column in table.columns]
            columns[table.key] += " UNIQUE"  # an index; not PRIMARY KEY, which would make an INTEGER the rowid
            self._database.execute(f"CREATE TABLE {quoted} ({', '.join(columns)})")
            store.track_dirty()
            slots = store.live_slots()
            self._copied[name] = store
        else:
            slots = store.take_dirty()
            if not len(slots):
                return
            if rowid is None:  # a table with columns of all three names of the rowid: copied anew
                self._database.execute(f"DELETE FROM {quoted}")
                slots = store.live_slots()
        live = slots[store.alive[slots]]
        targets = ", ".join(_quoted(column.name) for column in table.columns)
        values = [self._stored(column, store.cells[i, live]) for i, column in enumerate(table.columns)]
        if rowid is not None:
            targets = f"{rowid}, {targets}"
            values.insert(0, live.tolist())
        marks = ", ".join("?" * len(values))
        self._database.execute("BEGIN")
        if rowid is not None:
            gone = slots[~store.alive[slots]].tolist()
            self._database.executemany(f"DELETE FROM {quoted} WHERE {rowid} = ?", zip(gone, strict=True))
        write = f"INSERT OR REPLACE INTO {quoted} ({targets}) VALUES ({marks})"
        self._database.executemany(write, zip(*values, strict=True))
        self._database.execute("COMMIT")

    def _stored(self, column: Column, codes: NDArray[np.float64]) -> list[Any]:
        if column.type is not ColumnType.TIMESTAMP:
            return decode_column(column.type, codes, self._interner)
        if not len(codes):  # numpy.char cannot replace in nothing
            return []
        null = np.isnan(codes)
        instants = np.where(null, 0.0, codes).astype(np.int64).astype("datetime64[us]")
        texts = np.char.replace(np.datetime_as_string(instants, unit="us"), "T", " ").astype(object)
        texts[null] = None
        stored: list[Any] = texts.tolist()
        return stored

    # -- the guard -------------------------------------------------------------------------------------

    @contextmanager
    def _guard(self, sql: str, readable: frozenset[str] = frozenset(), width: int = 0) -> Iterator[None]:
        """Run a stranger's statement: nothing but reading what has a `readable` name (folded), a limit of work, and
        errors as our own.

        SQLite's limit of length holds for texts it builds and for whole rows: a row of all `width` columns
        of the tables, each with the longest TEXT, must fit.
        """
        self._database.execute("PRAGMA query_only = ON")
        length = self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, (width + 4) * (LONGEST_TEXT_BYTES + 16))
        self._guarded, self._readable, self._steps_left = True, readable, self._step_limit
        try:
            yield
        except (sqlite3.ProgrammingError, sqlite3.InterfaceError) as error:
            raise BadParameter(0, str(error)) from error
        except OverflowError as error:
            raise BadParameter(0, "an integer parameter is beyond 64 bits") from error
        except (sqlite3.Error, sqlite3.Warning, UnicodeError) as error:
            if self._steps_left < 0:
                reason = f"stopped after {self._step_limit} steps of work"
                raise SqlError(_shortened(sql), reason, "narrow it with WHERE, or join on keys") from error
            if "user-defined function" in str(error):
                reason = "a parameter compared with a TIMESTAMP is no datetime or ISO-8601 text"
                raise BadParameter(0, reason) from error
            raise SqlError(_shortened(sql), str(error)) from error
        finally:
            self._guarded, self._readable = False, frozenset()
            self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, length)
            self._database.execute("PRAGMA query_only = OFF")

    def _authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, trigger: str | None
    ) -> int:
        if not self._guarded:
            return sqlite3.SQLITE_OK
        if action not in _ALLOWED_ACTIONS:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _REFUSED_FUNCTIONS:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_READ and fold(first or "") not in self._readable:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _count_steps(self) -> bool:
        """True stops the statement."""
        if not self._guarded:
            return False
        self._steps_left -= STEPS_PER_CALL
        return self._steps_left < 0


# -- reading a statement ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Plan:
    """A statement as SQLite shall run it; `instants` says which output columns are TIMESTAMPs.

    `readable` are the names it may read: its tables, and its CTEs, which SQLite asks for as if they were tables.
    """

    sql: str
    tables: tuple[str, ...]
    readable: frozenset[str]
    instants: tuple[bool, ...]
    instant_names: frozenset[str]


def _read(sql: str, tables: Mapping[str, Table]) -> _Plan:
    """Parse, refuse what is no SELECT, find the tables, and bring texts beside TIMESTAMPs into their form."""
    if not isinstance(sql, str):
        raise SqlError(type(sql).__name__, "the statement must be a str", _ACCEPTED)
    if len(sql) > LONGEST_SQL:
        raise SqlError(_shortened(sql), f"{len(sql)} characters", f"at most {LONGEST_SQL}")
    if "\0" in sql or not has_utf8(sql):
        raise SqlError(_shortened(ascii(sql)), "a NUL character or a lone surrogate", _ACCEPTED)
    try:
        statements = sqlglot.parse(sql, read="sqlite")
        if len(statements) != 1 or not isinstance(statements[0], exp.Query):
            refuse_other_statements(sql)
            raise SqlError(_shortened(sql), "not a single SELECT", _ACCEPTED)
        tree = statements[0]
        if tree.find(exp.Into, exp.Insert, exp.Update, exp.Delete, exp.DDL, exp.Command):
            raise SqlError(_shortened(sql), "it would write", _ACCEPTED)
        _refuse_bare_in(tree)
        named = _tables_of(tree, tables)
        readable = frozenset(named) | (_local_names(tree) - tables.keys())
        used = [tables[name] for name in named]
        instant_names = _instant_names(used)
        if not instant_names:  # nothing to rewrite and nothing to decode: SQLite gets the text as it came
            return _Plan(sql, named, readable, (), instant_names)
        scope = build_scope(tree)
        if scope is None:
            raise SqlError(_shortened(sql), "not a single SELECT", _ACCEPTED)
        types = _InstantTypes(tables)
        changes = [_align_scope(inner, types) for inner in scope.traverse()]
        instants = tuple(types.outputs(scope))
        # the statement is written anew only if something changed: the text as it came is surely meant so
        text = tree.sql(dialect="sqlite") if any(changes) else sql
        return _Plan(text, named, readable, instants, instant_names)
    except SqlglotError as error:
        refuse_other_statements(sql)
        raise SqlError(_shortened(sql), _first_line(error), _ACCEPTED) from error
    except RecursionError as error:
        raise SqlError(_shortened(sql), "nested too deeply", _ACCEPTED) from error


def _tables_of(tree: exp.Query, tables: Mapping[str, Table]) -> tuple[str, ...]:
    """The folded names of the tables a statement reads, or UnknownTable."""
    local = _local_names(tree)
    named: dict[str, None] = {}
    for node in tree.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier):
            raise SqlError(_shortened(node.sql(dialect="sqlite")), "a function in FROM", _ACCEPTED)
        folded = fold(node.name)
        if fold(node.db) not in ("", "main") or (folded not in tables and folded not in local):
            raise UnknownTable(node.sql(dialect="sqlite")[:80], tuple(t.name for t in tables.values()))
        if folded in tables:
            named[folded] = None
    return tuple(named)


def _local_names(tree: exp.Query) -> frozenset[str]:
    """The folded names of its CTEs."""
    return frozenset(fold(cte.alias) for cte in tree.find_all(exp.CTE))


def _refuse_bare_in(tree: exp.Query) -> None:
    """SQLite takes a table's name behind IN; the parser takes it for a column, and so the table would be missed."""
    for node in tree.find_all(exp.In):
        field = node.args.get("field")
        if field is not None:
            name = field.sql(dialect="sqlite")[:80]
            raise SqlError(f"IN {name}", "a name behind IN", f"write IN (SELECT .. FROM {name})")


def _instant_names(tables: Sequence[Table]) -> frozenset[str]:
    """Names that mean a TIMESTAMP in each table that has them."""
    columns = [column for table in tables for column in table.columns]
    other = {fold(column.name) for column in columns if column.type is not ColumnType.TIMESTAMP}
    return frozenset(fold(column.name) for column in columns) - other


def _instants_by_name(names: Sequence[str], plan: _Plan) -> tuple[bool, ...]:
    """The output TIMESTAMPs told by name: for a `*` whose columns we did not foresee."""
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


def _align_scope(scope: Scope, types: _InstantTypes) -> bool:
    """Bring what is compared with TIMESTAMPs in one query into their form; says whether anything changed."""
    changed = False
    for node in list(scope.find_all(*_COMPARISONS, exp.Between, exp.In, exp.Case)):
        if isinstance(node, exp.Between):
            operands = [node.this, node.args["low"], node.args["high"]]
        elif isinstance(node, exp.In):
            operands = [node.this, *node.expressions]
        elif isinstance(node, exp.Case):  # CASE x WHEN y compares; CASE WHEN y does not
            operands = [node.this, *(branch.this for branch in node.args["ifs"])] if node.this else []
        else:
            operands = [node.this, node.expression]
        changed |= _align(operands, scope, types)
    return changed


def _align(operands: Sequence[exp.Expr], scope: Scope, types: _InstantTypes) -> bool:
    """Bring literals and parameters among operands compared with each other into the form of a TIMESTAMP."""
    operands = [operand.unnest() for operand in operands]
    if all(isinstance(operand, exp.Tuple) for operand in operands):  # (a, b) < (x, y) compares part by part
        parts = zip(*(operand.expressions for operand in operands), strict=False)
        changes = [_align(part, scope, types) for part in parts]
        return any(changes)
    if not any(types.is_instant(operand, scope) for operand in operands):
        return False
    changed = False
    for operand in operands:
        if isinstance(operand, exp.Literal):
            operand.replace(exp.Literal.string(_literal(operand)))
            changed = True
        elif isinstance(operand, exp.Placeholder | exp.Parameter):
            operand.replace(exp.Anonymous(this=_INSTANT, expressions=[operand.copy()]))
            changed = True
    return changed


def _literal(literal: exp.Literal) -> str:
    try:
        return _instant_text(literal.this if literal.is_string else None)
    except Refused:
        raise SqlError(
            literal.sql(dialect="sqlite")[:80],
            "it is compared with a TIMESTAMP",
            "write ISO-8601 text, as in '2026-01-31 12:00:00'",
        ) from None


# -- values on their way in and out ------------------------------------------------------------------------


def _instant_text(value: object) -> str:
    """An instant in the mirror's form; Refused if it is none."""
    if value is None:
        raise Refused("NULL is no instant")
    instant = decode(ColumnType.TIMESTAMP, encode_number(_TIME, value), Interner())
    assert isinstance(instant, datetime)
    return instant.strftime("%Y-%m-%d %H:%M:%S.%f")


def _instant_parameter(value: object) -> str | None:
    """The SQL function around parameters; an exception in it reaches us as an OperationalError."""
    return None if value is None else _instant_text(value)


def _read_instant(text: object) -> object:
    return datetime.fromisoformat(text).replace(tzinfo=UTC) if isinstance(text, str) else text


def _bind(parameters: Parameters) -> Any:
    """Parameters as SQLite takes them."""
    if isinstance(parameters, Mapping):
        return {name: _bind_one(i, value) for i, (name, value) in enumerate(parameters.items(), 1)}
    if isinstance(parameters, str | bytes):
        raise BadParameter(0, "parameters are a sequence or a dict of values, not one text")
    return tuple(_bind_one(i, value) for i, value in enumerate(parameters, 1))


def _bind_one(position: int, value: object) -> str | int | float | None:
    if isinstance(value, date | np.datetime64):
        try:
            return None if value != value else _instant_text(value)  # NaT
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
        raise BadParameter(position, "NaN is no SQL number; None is NULL")
    if value is None or (isinstance(value, int | float) and not isinstance(value, np.generic)):
        return value
    raise BadParameter(position, f"takes None, a number, a text or a datetime, got {kind}")


def _affinity(column: Column) -> str:
    return "TEXT" if column.type is ColumnType.TIMESTAMP else column.type.value


def _rowid(table: Table) -> str | None:
    """A name of SQLite's rowid that no column hides."""
    taken = {column.name.lower() for column in table.columns}
    return next((name for name in ("rowid", "_rowid_", "oid") if name not in taken), None)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _shortened(sql: str) -> str:
    return sql if len(sql) <= 80 else sql[:77] + "..."


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__

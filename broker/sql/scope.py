"""What names mean inside one query: tables, aliases, windows over streams, columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from hullcast.broker.sql.query import Ref, Window
from hullcast.broker.sql.text import Statement, Unfollowed, check_only, describe, refuse, refuse_to_follow, shorten
from hullcast.broker.tables.schema import Column, Table, fold
from hullcast.network.wire.durations import UNITS, seconds_of
from hullcast.network.wire.errors import SqlError, UnknownColumn, UnknownTable

_TABLE_HINT = "accepted: FROM table [alias], or FROM r [alias] JOIN s [alias] USING (c) | ON .."
_WINDOW_HINT = f"accepted: FROM stream [ROWS 1000] or FROM stream [RANGE '10s'] (units: {', '.join(UNITS)})"


@dataclass(frozen=True, slots=True)
class Scope:
    """One or two tables (perhaps the same one twice) and the names by which the query calls them.

    An alias hides the table's own name, as in SQL. After USING (c) the plain name c is the left column;
    every other name that both tables have must be qualified.
    """

    tables: tuple[Table, ...]
    names: tuple[str, ...]  # alias or table name as written
    using: str | None = None
    windows: tuple[Window | None, ...] = (None,)  # one a table

    def column(self, ref: Ref) -> Column:
        """The declaration behind a reference."""
        return self.tables[ref.side].columns[ref.column]

    def label(self, *refs: Ref) -> str:
        """A column, or the difference of two, with its type, for error messages."""
        names = [
            f"{self.names[ref.side]}.{self.column(ref).name}" if len(self.tables) > 1 else self.column(ref).name
            for ref in refs
        ]
        return f"{' - '.join(names)} ({self.column(refs[0]).type.value})"

    def resolve(self, node: exp.Column) -> Ref:
        """The column a name stands for, or UnknownColumn, UnknownTable, or SqlError if it is ambiguous."""
        check_only(node, {"this", "table"}, "a column is written column or table.column", "leave out the database")
        if not isinstance(node.this, exp.Identifier):
            refuse(node, "a column was expected here", "name the columns one by one")
        if node.table:
            side = self.side(node.table)
            return Ref(side, self.tables[side].position(node.name))
        try:
            return self._unqualified(node.name)
        except UnknownColumn as error:
            if not node.this.args.get("quoted"):
                raise
            hint = f"if it is a text, write it in single quotes; columns: {', '.join(error.known)}"
            raise SqlError(f'"{shorten(node.name)}"', f"no column of this name in {error.table}", hint) from None

    def side(self, name: str) -> int:
        """Which table an alias or table name means."""
        folded = fold(name)
        for side, known in enumerate(self.names):
            if fold(known) == folded:
                return side
        raise UnknownTable(name, self.names)

    def star(self, qualifier: str) -> list[Ref]:
        """The columns of `*` or `qualifier.*`, in SQL's order; `*` lists a USING column once."""
        if qualifier:
            side = self.side(qualifier)
            return [Ref(side, position) for position in range(len(self.tables[side].columns))]
        every = [Ref(s, p) for s, table in enumerate(self.tables) for p in range(len(table.columns))]
        if self.using is None:
            return every
        merged = Ref(1, self.tables[1].position(self.using))
        return [ref for ref in every if ref != merged]

    def _unqualified(self, name: str) -> Ref:
        folded = fold(name)
        found = [
            Ref(side, position)
            for side, table in enumerate(self.tables)
            for position, column in enumerate(table.columns)
            if fold(column.name) == folded
        ]
        if not found:
            known = tuple(column.name for table in dict.fromkeys(self.tables) for column in table.columns)
            raise UnknownColumn(name, ", ".join(dict.fromkeys(table.name for table in self.tables)), known)
        if len(found) > 1 and (self.using is None or fold(self.using) != folded):
            choices = " or ".join(f"{table}.{name}" for table in self.names)
            raise SqlError(name, "both tables have a column of this name", f"write {choices}")
        return found[0]


def read_scope(select: exp.Select, catalog: Mapping[str, Table], statement: Statement) -> Scope:
    """The tables of FROM and JOIN, with their windows. How they meet is read with the conditions, except for USING."""
    from_clause = select.args.get("from_")
    if not isinstance(from_clause, exp.From):
        refuse(select, "the query reads no table", _TABLE_HINT)
    check_only(from_clause, {"this"}, "FROM takes a table", _TABLE_HINT)
    joins = select.args.get("joins") or []
    if len(joins) > 1:
        refuse_to_follow(joins[1], "a subscription joins at most two tables", "split it into several subscriptions")
    nodes = [from_clause.this, *(_joined(join) for join in joins)]
    sources = [_source(node, catalog) for node in nodes]
    names, tables = tuple(name for name, _ in sources), tuple(table for _, table in sources)
    windows = tuple(_window(node, table, statement) for node, table in zip(nodes, tables, strict=True))
    if len({fold(name) for name in names}) < len(names):
        refuse(joins[0], f"both tables are called {names[0]}", "give each its own alias")
    return Scope(tables, names, _using(joins[0], tables) if joins else None, windows)


def _source(node: object, catalog: Mapping[str, Table]) -> tuple[str, Table]:
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        part = describe(node) if isinstance(node, exp.Expr) else str(node)
        raise Unfollowed(part, "only plain tables can be read", _TABLE_HINT)
    check_only(node, {"this", "alias"}, "a table takes a name and an alias, nothing else", _TABLE_HINT)
    alias = node.args.get("alias")
    if alias is not None:
        check_only(alias, {"this"}, "an alias is one name", _TABLE_HINT)
    table = catalog.get(fold(node.name))
    if table is None:
        raise UnknownTable(node.name, tuple(known.name for known in catalog.values()))
    return node.alias or table.name, table


def _window(node: exp.Table, table: Table, statement: Statement) -> Window | None:
    """The window behind a table's name, if there is one; it must fit into what the stream keeps."""
    text = statement.windows.get(node.this.meta.get("start", -1))
    if text is None:
        return None
    shown = f"{table.name} [{text}]"
    if table.stream is None:
        raise SqlError(shown, "a table has no windows: it is not a stream", "leave the window out, or CREATE STREAM")
    unit, *rest = text.split(maxsplit=1)
    size = rest[0].strip() if rest else ""
    try:
        if not size.isascii():  # int() reads digits of all scripts
            raise ValueError
        if unit.upper() == "ROWS":
            window = Window(rows=int(size))
            fits, most = 0 < int(size) <= table.stream.rows, f"retain_rows = {table.stream.rows}"
        else:
            if not (len(size) > 2 and size[0] == size[-1] == "'"):
                raise ValueError
            seconds = seconds_of(size[1:-1])
            window, most = Window(range_s=seconds), f"WITH {table.stream.declared or 'all'}"
            fits = seconds <= (table.stream.retain_s or LONGEST_RANGE_S) and window.range_us > 0
    except ValueError:
        raise SqlError(shown, "the window cannot be read", _WINDOW_HINT) from None
    if window.range_s is not None and table.time is None:
        raise SqlError(shown, "RANGE needs a stream with a TIMESTAMP column", "use [ROWS n]")
    if not fits:
        reason = f"a window holds at least something, and at most what the stream retains ({most})"
        raise SqlError(shown, reason, "use a smaller window, or create the stream with more retention")
    return window


#: The longest window of a stream that is not limited by time.
LONGEST_RANGE_S = 36_600 * 86_400.0


def _joined(join: exp.Join) -> object:
    """The joined table, if the join is an inner one."""
    kind = " ".join(str(join.args.get(word) or "") for word in ("method", "side", "kind")).split()
    if kind not in ([], ["INNER"], ["CROSS"]):  # a comma is read as CROSS
        refuse_to_follow(
            join,
            f"{' '.join(kind)} JOIN is not supported in a subscription",
            "accepted: JOIN s USING (c) | ON r.x = s.y | ON s.b - r.b BETWEEN lo AND hi",
        )
    check_only(join, {"this", "on", "using", "kind"}, "a join takes USING (c) or ON .., nothing else", _TABLE_HINT)
    return join.this


def _using(join: exp.Join, tables: tuple[Table, ...]) -> str | None:
    columns = join.args.get("using") or []
    if not columns:
        return None
    if len(columns) > 1 or not isinstance(columns[0], exp.Identifier):
        refuse_to_follow(join, "tables are joined on one column", "accepted: USING (column)")
    name: str = columns[0].name
    for table in tables:
        table.position(name)
    return name

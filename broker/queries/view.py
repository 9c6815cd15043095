"""What a view is: CREATE VIEW bound to its tables, as sources and positions, and written again as SQL.

CREATE VIEW CHEAPEST AS SELECT n.NAME, MIN(ps.COST) FROM PARTSUPP ps JOIN SUPPLIER s ON ps.SUPPKEY = s.K
  JOIN NATION n ON s.NATIONKEY = n.K WHERE s.BALANCE > 0 GROUP BY n.NAME WITH (response_time = '50ms')

sources      ps, s (where BALANCE > 0), n     each with the columns that the view needs of it
equalities   ps.SUPPKEY = s.K, s.NATIONKEY = n.K
groups       n.NAME                           outputs   n.NAME, MIN of ps.COST
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlglot.dialects.sqlite import SQLite
from sqlglot.tokenizer_core import TokenType

from hullcast.broker.queries.reading import instant_text
from hullcast.broker.sql.create import MAXIMUM_COLUMNS
from hullcast.broker.sql.query import Ref
from hullcast.broker.sql.text import MAXIMUM_CHARACTERS
from hullcast.broker.sql.view import ColumnName
from hullcast.broker.tables.schema import Column, ColumnType, Table, fold
from hullcast.broker.tables.values import Refused
from hullcast.network.wire.durations import duration_text
from hullcast.network.wire.errors import SqlError, UnknownColumn, UnknownTable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from hullcast.broker.sql.view import Constant, CreateView, NamedCondition, NamedOutput

_PLAIN: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_DIALECT: Final = SQLite()


class ViewCondition(NamedTuple):
    """A condition on columns: the operator is one of = <> < <= > >=, IN, NOT IN, IS NULL and IS NOT NULL.

    What is compared with is a column, or constants as SQLite stores them in the column: one, or several for IN.
    """

    left: Ref
    operator: str
    right: Ref | tuple[Constant, ...]


class ViewOutput(NamedTuple):
    """One column of a view: a column of a source, or a function of one (COUNT of none is COUNT(*))."""

    name: str
    function: str  # empty: the column itself
    column: Ref | None
    type: ColumnType


@dataclass(frozen=True, slots=True)
class ViewSource:
    """A table as the view reads it, under a name of its own. Only rows that meet the conditions concern the view.

    `columns` are the positions of those that the view needs: the key, and all but those of conditions alone.
    """

    table: Table
    name: str
    columns: tuple[int, ...]
    conditions: tuple[ViewCondition, ...]


@dataclass(frozen=True)
class ViewDefinition:
    """One view. Two definitions are equal if the views are the same, column by column.

    V1  `equalities` connect all sources; each is between two sources. Other conditions on two are `residual`.
    V2  `groups` is None for a projection. Otherwise each output without a function is one of `groups`.
    V3  Names of outputs, and of sources, are distinct without regard to case.
    V4  `create_text` is read as this very definition.
    """

    name: str
    response_time_s: float
    sources: tuple[ViewSource, ...]
    equalities: tuple[tuple[Ref, Ref], ...]
    residual: tuple[ViewCondition, ...]
    outputs: tuple[ViewOutput, ...]
    groups: tuple[Ref, ...] | None

    @cached_property
    def table(self) -> Table:
        """What queries see: columns by name and type. A view has no key; nobody asks this table for one."""
        return Table(self.name, tuple(Column(output.name, output.type) for output in self.outputs), 0)

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """The base tables, each once, in the order of the sources."""
        return tuple({fold(source.table.name): source.table for source in self.sources}.values())

    def sources_of(self, table: str) -> list[int]:
        """The sources that are this table: several in a self-join."""
        return [i for i, source in enumerate(self.sources) if fold(source.table.name) == fold(table)]

    def column(self, ref: Ref) -> Column:
        """The column that is meant."""
        return self.sources[ref.side].table.columns[ref.column]

    def __hash__(self) -> int:
        return hash((self.name, self.response_time_s, len(self.sources), self.equalities))

    def check(self) -> None:
        """Assert the invariants."""
        assert not _unconnected(len(self.sources), self.equalities), "V1"
        assert all(left.side != right.side for left, right in self.equalities), "V1"
        assert all(isinstance(c.right, Ref) and c.left.side != c.right.side for c in self.residual), "V1"
        for output in self.outputs:
            assert output.function or self.groups is None or output.column in self.groups, "V2"
            assert not output.function or self.groups is not None, "V2"
        for names in ([o.name for o in self.outputs], [s.name for s in self.sources]):
            assert len({fold(name) for name in names}) == len(names), "V3"


# -- binding -----------------------------------------------------------------------------------------------


def bind_view(statement: CreateView, tables: Mapping[str, Table], views: Collection[str] = ()) -> ViewDefinition:
    """What a statement means over these tables (by folded name); `views` are the folded names of other views.

    UnknownTable, UnknownColumn, or a SqlError if it means nothing.
    """
    binder = _Binder(statement, tables, views)
    definition = binder.definition()
    if len(create_text(definition)) > MAXIMUM_CHARACTERS:  # it could not be kept
        raise SqlError(statement.name, "the statement is too long", "use shorter names, or name fewer columns")
    return definition


class _Binder:
    """Finds what names mean in one statement."""

    def __init__(self, statement: CreateView, tables: Mapping[str, Table], views: Collection[str]) -> None:
        self._statement = statement
        for source in statement.sources:
            if fold(source.table) in views:
                raise SqlError(source.table, "a view cannot read another view", "name the tables that it reads")
            if fold(source.table) not in tables:
                raise UnknownTable(source.table, tuple(table.name for table in tables.values()))
        self._tables = [tables[fold(source.table)] for source in statement.sources]
        pairs = zip(statement.sources, self._tables, strict=True)
        self._names = [source.name or table.name for source, table in pairs]
        for i, name in enumerate(self._names):
            if fold(name) in map(fold, self._names[:i]):
                raise SqlError(name, "two tables have this name", "give each its own alias")
        self._merged: dict[Ref, Ref] = {}  # the right column of a USING, and the one that its name means

    def definition(self) -> ViewDefinition:
        """The whole."""
        statement = self._statement
        equalities = dict.fromkeys(self._using())
        local: list[dict[ViewCondition, None]] = [{} for _ in self._tables]
        residual: dict[ViewCondition, None] = {}
        for named in statement.conditions:
            condition = self._condition(named)
            left, operator, right = condition
            if not isinstance(right, Ref) or left.side == right.side:
                local[left.side][condition] = None
            elif operator == "=":
                equalities[left, right] = None
            else:
                residual[condition] = None
        self._check_connected(equalities)
        groups = None if statement.groups is None else tuple(dict.fromkeys(map(self._resolve, statement.groups)))
        if groups is None and any(output.function not in ("", "*") for output in statement.outputs):
            groups = ()
        outputs = self._outputs(groups)
        used = {ref for pair in equalities for ref in pair} | set(groups or ())
        used |= {ref for left, _, right in residual for ref in (left, right) if isinstance(ref, Ref)}
        used |= {output.column for output in outputs if output.column is not None}
        sources = tuple(
            ViewSource(
                table,
                self._names[i],
                tuple(sorted({ref.column for ref in used if ref.side == i} | {table.key})),
                tuple(local[i]),
            )
            for i, table in enumerate(self._tables)
        )
        return ViewDefinition(
            statement.name,
            statement.response_time_s,
            sources,
            tuple(equalities),
            tuple(residual),
            outputs,
            groups,
        )

    # -- names ---------------------------------------------------------------------------------------------

    def _using(self) -> Iterable[tuple[Ref, Ref]]:
        """The equalities of USING."""
        for side, source in enumerate(self._statement.sources):
            for column in source.using:
                right = Ref(side, self._tables[side].position(column))
                found = self._found(column, side)
                if not found:
                    left = self._tables[side - 1]
                    raise UnknownColumn(column, left.name, tuple(c.name for c in left.columns))
                if len(found) > 1:
                    raise SqlError(column, "several tables before it have a column of this name", "join with ON")
                self._check_comparable(f"USING ({column})", found[0], right)
                yield found[0], right
                self._merged[right] = found[0]

    def _found(self, column: str, sides: int) -> list[Ref]:
        """The columns of this name among the first sources; of those that USING made one, the first."""
        found = [
            Ref(side, position)
            for side, table in enumerate(self._tables[:sides])
            for position, declared in enumerate(table.columns)
            if fold(declared.name) == fold(column)
        ]
        return [ref for ref in found if ref not in self._merged]

    def _side(self, name: str) -> int:
        for side, known in enumerate(self._names):
            if fold(known) == fold(name):
                return side
        raise UnknownTable(name, tuple(self._names))

    def _resolve(self, name: ColumnName) -> Ref:
        if name.table:
            side = self._side(name.table)
            return Ref(side, self._tables[side].position(name.column))
        found = self._found(name.column, len(self._tables))
        if not found:
            tables = dict.fromkeys(self._tables)
            known = tuple(column.name for table in tables for column in table.columns)
            raise UnknownColumn(name.column, ", ".join(table.name for table in tables), known)
        if len(found) > 1:
            choices = " or ".join(f"{self._names[ref.side]}.{name.column}" for ref in found)
            raise SqlError(name.column, "several tables have a column of this name", f"write {choices}")
        return found[0]

    # -- conditions ----------------------------------------------------------------------------------------

    def _condition(self, named: NamedCondition) -> ViewCondition:
        left = self._resolve(named.left)
        if not isinstance(named.right, ColumnName):
            return ViewCondition(left, named.operator, tuple(self._stored(named, left, v) for v in named.right))
        right = self._resolve(named.right)
        self._check_comparable(named.text, left, right)
        return ViewCondition(left, named.operator, right)

    def _stored(self, named: NamedCondition, ref: Ref, value: Constant) -> Constant:
        """A constant as SQLite stores values of the column."""
        kind = self._column(ref).type
        if kind is ColumnType.TIMESTAMP:
            try:
                return instant_text(value if isinstance(value, str) else "")
            except Refused:
                hint = "write ISO-8601 text, as in '2026-01-31 12:00:00'"
                raise SqlError(named.text, f"{self._label(ref)} cannot be compared with this", hint) from None
        if isinstance(value, str) is not (kind is ColumnType.TEXT):
            hint = "write a 'text'" if kind is ColumnType.TEXT else "write a number, without quotes"
            raise SqlError(named.text, f"{self._label(ref)} cannot be compared with this", hint)
        return value

    def _check_comparable(self, text: str, left: Ref, right: Ref) -> None:
        kinds = {self._column(left).type, self._column(right).type}
        if len(kinds) > 1 and not all(kind.numeric for kind in kinds):
            reason = f"{self._label(left)} and {self._label(right)} cannot be compared"
            raise SqlError(text, reason, "compare numbers with numbers, and other columns with those of their type")

    def _check_connected(self, equalities: Iterable[tuple[Ref, Ref]]) -> None:
        apart = _unconnected(len(self._tables), equalities)
        if apart:
            names = ", ".join(self._names[side] for side in apart)
            raise SqlError(names, "no equality joins it with the tables before it", "accepted: ON x.k = y.k, USING (k)")

    def _column(self, ref: Ref) -> Column:
        return self._tables[ref.side].columns[ref.column]

    def _label(self, ref: Ref) -> str:
        column = self._column(ref)
        return f"{self._names[ref.side]}.{column.name} ({column.type.value})"

    # -- outputs -------------------------------------------------------------------------------------------

    def _outputs(self, groups: tuple[Ref, ...] | None) -> tuple[ViewOutput, ...]:
        outputs = [output for named in self._statement.outputs for output in self._output(named)]
        if len(outputs) > MAXIMUM_COLUMNS:
            reason = f"the view has {len(outputs)} columns"
            raise SqlError(self._statement.name, reason, f"at most {MAXIMUM_COLUMNS} are accepted")
        seen: set[str] = set()
        for output in outputs:
            if fold(output.name) in seen:
                raise SqlError(output.name, "two columns of the view have this name", "add AS and another name")
            seen.add(fold(output.name))
            if not output.function and groups is not None and output.column not in groups:
                hint = f"add {output.name} to GROUP BY, or leave it out"
                raise SqlError(output.name, "it is neither an aggregate nor in GROUP BY", hint)
        return tuple(outputs)

    def _output(self, named: NamedOutput) -> list[ViewOutput]:
        function, column = named.function, named.column
        if function == "*":
            assert column is not None
            sides = [self._side(column.table)] if column.table else range(len(self._tables))
            refs = [Ref(side, position) for side in sides for position in range(len(self._tables[side].columns))]
            kept = [ref for ref in refs if column.table or ref not in self._merged]
            return [ViewOutput(self._column(ref).name, "", ref, self._column(ref).type) for ref in kept]
        if column is None:
            return [ViewOutput(named.name or named.text, function, None, ColumnType.INTEGER)]
        ref = self._resolve(column)
        declared = self._column(ref)
        if not function:
            return [ViewOutput(named.name or declared.name, "", ref, declared.type)]
        kind = declared.type
        if function in ("SUM", "AVG") and not kind.numeric:
            raise SqlError(named.text, f"{function} of {self._label(ref)} is not supported", "SUM and AVG take numbers")
        if function != "SUM" and function not in ("MIN", "MAX"):
            kind = ColumnType.INTEGER if function == "COUNT" else ColumnType.REAL
        return [ViewOutput(named.name or named.text, function, ref, kind)]


def _unconnected(sources: int, equalities: Iterable[tuple[Ref, Ref]]) -> list[int]:
    """The sources that no chain of equalities connects with the first."""
    neighbours: dict[int, set[int]] = {side: set() for side in range(sources)}
    for left, right in equalities:
        neighbours[left.side].add(right.side)
        neighbours[right.side].add(left.side)
    reached, pending = {0}, [0]
    while pending:
        more = neighbours[pending.pop()] - reached
        reached |= more
        pending += more
    return [side for side in range(sources) if side not in reached]


# -- writing -----------------------------------------------------------------------------------------------


def create_text(view: ViewDefinition) -> str:
    """A statement that is read as this very view: as short as it can be said in full."""
    return f"CREATE VIEW {_name(view.name)} AS {select_text(view)} WITH (response_time = '{_promise(view)}')"


def select_text(view: ViewDefinition) -> str:
    """The SELECT of a view, as SQLite understands it over the tables' warehouse files."""
    tables = ", ".join(
        _name(source.table.name) + ("" if source.name == source.table.name else f" {_name(source.name)}")
        for source in view.sources
    )
    conditions = [f"{_column(view, left)} = {_column(view, right)}" for left, right in view.equalities]
    for source in view.sources:
        conditions += [_condition(view, condition) for condition in source.conditions]
    conditions += [_condition(view, condition) for condition in view.residual]
    text = f"SELECT {', '.join(_output(view, output) for output in view.outputs)} FROM {tables}"
    if conditions:
        text += f" WHERE {' AND '.join(conditions)}"
    if view.groups:
        text += f" GROUP BY {', '.join(_column(view, ref) for ref in view.groups)}"
    return text


def _promise(view: ViewDefinition) -> str:
    return duration_text(view.response_time_s)


def _output(view: ViewDefinition, output: ViewOutput) -> str:
    column = "*" if output.column is None else _column(view, output.column)
    if not output.function:
        assert output.column is not None
        same = output.name == view.column(output.column).name
        return column if same else f"{column} AS {_name(output.name)}"
    call = f"{output.function}({column})"
    return call if output.name == call else f"{call} AS {_name(output.name)}"


def _condition(view: ViewDefinition, condition: ViewCondition) -> str:
    left, operator, right = condition
    if isinstance(right, Ref):
        return f"{_column(view, left)} {operator} {_column(view, right)}"
    if not right:
        return f"{_column(view, left)} {operator}"
    constants = ", ".join(map(_constant, right))
    return f"{_column(view, left)} {operator} {f'({constants})' if 'IN' in operator else constants}"


def _constant(value: Constant) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def _column(view: ViewDefinition, ref: Ref) -> str:
    source = view.sources[ref.side]
    return f"{_name(source.name)}.{_name(source.table.columns[ref.column].name)}"


@lru_cache(4096)
def _name(name: str) -> str:
    """A name, without quotes where it means the same to the parser."""
    if _PLAIN.fullmatch(name):
        tokens = _DIALECT.tokenize(name)
        if len(tokens) == 1 and tokens[0].token_type is TokenType.VAR:
            return name
    return '"' + name.replace('"', '""') + '"'

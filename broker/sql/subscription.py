"""From SELECT text to a parsed query: the channel's shape, and the binder of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from hullcast.broker.sql.binder import Binder, UnionBinder
from hullcast.broker.sql.bounds import INFINITY, LARGEST, Comparison, Edge, edge_at
from hullcast.broker.sql.conditions import Alternative, Condition, ConditionReader, read_conditions
from hullcast.broker.sql.encode import ParameterColumn, Slot
from hullcast.broker.sql.projection import read_output
from hullcast.broker.sql.query import Predicates, Ref, Shape
from hullcast.broker.sql.refusals import with_other_ways
from hullcast.broker.sql.scope import Scope, read_scope
from hullcast.broker.sql.terms import Given, Operand
from hullcast.broker.sql.text import Statement, Unfollowed, check_only, read_statement, refuse_to_follow
from hullcast.broker.tables.schema import ColumnType, Table, fold
from hullcast.network.answers.kinds import SubscriptionKind
from hullcast.network.matching.messages import RECTANGLES
from hullcast.network.wire.errors import InvariantBroken, Remedy, SqlError

MAXIMUM_RANGES: Final = 8
MOST_MEMORY: Final = 100_000_000

_GRAMMAR = "accepted: SELECT .. FROM table [JOIN table USING (c) | ON ..] [WHERE conditions]"
_WORDS: Final = ("SELECT", "WITH")
_CLAUSES: Final = {
    "group": (
        "GROUP BY is not supported in a subscription",
        "make one subscription per group, with = on the column",
    ),
    "having": ("HAVING is not supported in a subscription", "limit the rows with WHERE"),
    "order": (
        "ORDER BY is not supported in a subscription",
        "rows come in key order; sort them where you receive them",
    ),
    "limit": ("LIMIT is not supported in a subscription", "limit the rows with WHERE, or use MIN or MAX"),
    "offset": ("OFFSET is not supported in a subscription", "limit the rows with WHERE"),
    "windows": ("WINDOW is not supported in a subscription", "aggregate a range with WHERE"),
    "with_": ("WITH is not supported in a subscription", "make one subscription for each query"),
}


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A subscription's text, understood. Bind it as often as there are subscribers."""

    sql: str
    shape: Shape
    columns: tuple[str, ...]  # names of the answer's columns: the alias, or the column as declared
    tables: tuple[Table, ...]
    binder: Binder | UnionBinder

    def bind(self, parameters: Sequence[object] = ()) -> Predicates:
        """The predicate of one subscription (n = 1); BadParameter if a value does not fit."""
        return self.binder.bind(parameters)

    def bind_many(self, columns: Sequence[ParameterColumn], count: int = 1) -> Predicates:
        """The predicates of n subscriptions: one column of n values per parameter.

        `count` is n for a query without parameters, and is not used otherwise.
        """
        return self.binder.bind_many(columns, count)


def parse_subscription(
    sql: str,
    catalog: Mapping[str, Table],
    ways: Callable[[str, str, Statement, Mapping[str, Table]], Remedy] = with_other_ways,
) -> ParsedQuery:
    """Read one SELECT; `catalog` maps folded names to tables. `ways` says what to do if it cannot be followed.

    Raises SqlError for anything outside the language, UnknownTable and UnknownColumn for names.
    """
    statement = read_statement(sql, _WORDS, _GRAMMAR)
    try:
        return _understood(sql, statement, catalog)
    except Unfollowed as error:
        raise SqlError(error.part, error.reason, ways(error.accepted, sql, statement, catalog)) from None


def _understood(sql: str, statement: Statement, catalog: Mapping[str, Table]) -> ParsedQuery:
    select = statement.tree
    if not isinstance(select, exp.Select):
        refuse_to_follow(select, "it is not one SELECT", "make one subscription for each SELECT")
    _check_clauses(select)
    scope = read_scope(select, catalog, statement)
    output = read_output(select, scope)
    reader = read_conditions(select, scope)
    ranges, partition = _arrange(output.kind, reader, scope)
    nulls = _nulls(ranges, reader)
    if nulls and (len(scope.tables) > 1 or not output.kind.answers.unions):
        names = ", ".join(scope.column(ref).name for ref in nulls)
        hint = "compare each of its columns in every alternative, without IS NULL"
        raise Unfollowed(names, f"{output.kind.name} takes no rows where this is NULL", hint)
    shape = Shape(
        kind=output.kind,
        tables=tuple(table.name for table in scope.tables),
        ranges=ranges,
        partition=partition,
        y=output.y,
        projection=output.projection,
        on=reader.on,
        windows=scope.windows if any(scope.windows) else (),
        memory=_memory(statement, scope),
        nulls=nulls,
    )
    binder = _binder(shape, reader)
    if len(binder.slots) != statement.placeholders:
        raise SqlError("?", "a parameter must be compared with a column", "use ? in ON and WHERE only")
    return ParsedQuery(sql, shape, output.names, scope.tables, binder)


def _memory(statement: Statement, scope: Scope) -> int | None:
    """How many tuples a window join may keep: WITH (memory = n)."""
    if not statement.terms:
        return None
    (name, text), *others = statement.terms
    if others or name != "memory" or not text.isascii() or not text.isdigit() or not 0 < int(text) <= MOST_MEMORY:
        shown = ", ".join(f"{name} = {text}" for name, text in statement.terms)
        reason = f"WITH (..) takes memory, a whole number of tuples from 1 to {MOST_MEMORY:,}"
        raise SqlError(shown, reason, "accepted: WITH (memory = 10000)")
    if len(scope.tables) < 2 or not all(scope.windows):
        raise SqlError(f"memory = {text}", "only a join of two windows has a memory", "leave WITH (..) out")
    return int(text)


def names_in(sql: str) -> tuple[str, ...]:
    """The folded names of all tables that a text mentions, wherever it does; SqlError if it cannot be parsed."""
    tree = read_statement(sql, _WORDS, _GRAMMAR).tree
    return tuple(dict.fromkeys(fold(table.name) for table in tree.find_all(exp.Table)))


def _check_clauses(select: exp.Select) -> None:
    for name, (reason, hint) in _CLAUSES.items():
        clause = select.args.get(name)
        if clause:
            refuse_to_follow(clause if isinstance(clause, exp.Expr) else select, reason, hint)
    check_only(
        select,
        {"expressions", "from_", "where", "joins", "distinct"},
        "this is not supported in a subscription",
        _GRAMMAR,
    )


def _arrange(kind: SubscriptionKind, reader: ConditionReader, scope: Scope) -> tuple[tuple[Ref, ...], tuple[Ref, ...]]:
    """Which compared columns are ranges and which are partitions.

    A partition must equal one value in each alternative; any other column is a range. But a query without any range
    gets the first partition that has an order as the range [v, v]: a channel with a dimension serves all values of v at
    once, where partitions cost one entry each.
    """
    compared = {condition.target for condition in reader.conditions if condition.target is not None}
    ranges = {c.target for c in reader.conditions if c.target is not None and c.comparison is not Comparison.EQUAL}
    for alternative in reader.alternatives:
        ranges |= compared - {condition.target for condition in alternative}
    equal = sorted(compared - ranges)
    texts = [scope.column(ref).name for ref in sorted(ranges) if scope.column(ref).type is ColumnType.TEXT]
    if texts:
        hint = f"compare {texts[0]} with = or IN in each alternative"
        raise Unfollowed(texts[0], "a TEXT column must be compared on both sides of an OR", hint)
    band = reader.on is not None and reader.on.band  # the difference is a dimension already
    if not ranges and not band:
        ranges |= set([ref for ref in equal if scope.column(ref).type is not ColumnType.TEXT][:1])
    if kind.answers.form == RECTANGLES and len(ranges) > 1:
        names = ", ".join(scope.column(ref).name for ref in sorted(ranges))
        raise Unfollowed(names, f"{kind.name} supports a range on one column only", "use = on the others")
    if len(ranges) > MAXIMUM_RANGES:
        names = ", ".join(scope.column(ref).name for ref in sorted(ranges))
        raise Unfollowed(names, f"ranges on {len(ranges)} columns", f"at most {MAXIMUM_RANGES} are supported")
    several = len(reader.alternatives) > 1 or any(c.comparison is Comparison.NOT_EQUAL for c in reader.conditions)
    if several and (not kind.answers.unions or (len(scope.tables) > 1 and any(table.stream for table in scope.tables))):
        what = kind.name if len(scope.tables) == 1 else "a join over streams"
        hint = "make one subscription for each range or value"
        raise Unfollowed("WHERE", f"{what} supports one range: no OR, IN, <> or NOT BETWEEN", hint)
    return tuple(sorted(ranges)), tuple(ref for ref in equal if ref not in ranges)


def _binder(shape: Shape, reader: ConditionReader) -> Binder | UnionBinder:
    """Fold the literals into boxes and turn the parameters into edges."""
    slots = tuple(slot for slot in reader.terms.slots if slot is not None)
    if len(slots) != len(reader.terms.slots):
        raise InvariantBroken("a placeholder was read but never compared")
    binders = [_binder_of(shape, alternative, slots) for alternative in reader.alternatives]
    plain = len(binders) == 1 and not binders[0].excluded and not shape.nulls
    return binders[0] if plain else UnionBinder(tuple(binders))


def _binder_of(shape: Shape, alternative: Alternative, slots: tuple[Slot, ...]) -> Binder:
    dimensions: dict[Ref | None, int] = {ref: place for place, ref in enumerate(shape.ranges)}
    dimensions[None] = shape.dimensions - 1  # a band's difference is the last
    low, high = [-INFINITY] * shape.dimensions, [INFINITY] * shape.dimensions
    edges: list[Edge] = []
    equalities: dict[Ref | None, list[Operand]] = {ref: [] for ref in shape.partition}
    excluded: dict[int, list[Operand]] = {}
    nulls = {dimensions[ref] for ref in shape.nulls}
    for condition in alternative:
        if condition.comparison is Comparison.NULL:
            high[dimensions[condition.target]] = -INFINITY
        elif condition.target in shape.nulls:
            place = dimensions[condition.target]
            low[place] = max(low[place], -LARGEST)
        if condition.comparison in (Comparison.NULL, Comparison.NOT_NULL):
            continue
        if condition.target in equalities:
            equalities[condition.target].append(condition.operand)
        elif condition.comparison is Comparison.NOT_EQUAL:
            excluded.setdefault(dimensions[condition.target], []).append(condition.operand)
        else:
            _bound(condition, dimensions[condition.target], low, high, edges)
    values, cuts = tuple(map(tuple, equalities.values())), tuple((at, tuple(those)) for at, those in excluded.items())
    return Binder(slots, tuple(low), tuple(high), tuple(edges), values, cuts, tuple(sorted(nulls)))


def _nulls(ranges: Sequence[Ref], reader: ConditionReader) -> tuple[Ref, ...]:
    """The ranges in which a row that is selected may have NULL."""
    tests = (Comparison.NULL, Comparison.NOT_NULL)
    compared = [{c.target for c in one if c.comparison is not Comparison.NULL} for one in reader.alternatives]
    tested = {condition.target for condition in reader.conditions if condition.comparison in tests}
    return tuple(ref for ref in ranges if ref in tested or not all(ref in one for one in compared))


def _bound(condition: Condition, dimension: int, low: list[float], high: list[float], edges: list[Edge]) -> None:
    operand = condition.operand
    for upper, strict in condition.comparison.sides:
        if not isinstance(operand, Given):
            edges.append(Edge(dimension, upper, strict, operand.index, operand.negated))
        elif upper:
            high[dimension] = min(high[dimension], edge_at(operand.code, upper, strict))
        else:
            low[dimension] = max(low[dimension], edge_at(operand.code, upper, strict))

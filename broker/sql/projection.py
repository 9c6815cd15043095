"""The SELECT list: what a subscription computes, of which column, under which names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from hullcast.broker.sql.query import Kind, Ref
from hullcast.broker.sql.refusals import refuse_expression
from hullcast.broker.sql.scope import Scope
from hullcast.broker.sql.text import check_only, refuse
from hullcast.network.wire.errors import SqlError

MAXIMUM_PROJECTION: Final = 1024

_LIST_HINT = "accepted: columns, *, DISTINCT column, or one of MIN, MAX, SUM, AVG, COUNT of a column or COUNT(*)"
_AGGREGATES: Final[dict[type[exp.Expr], Kind]] = {
    exp.Min: Kind.MIN,
    exp.Max: Kind.MAX,
    exp.Count: Kind.COUNT,
    exp.Sum: Kind.SUM,
    exp.Avg: Kind.AVG,
}


@dataclass(frozen=True, slots=True)
class Output:
    """The answer's form. `y` and `projection` are as in `Shape`."""

    kind: Kind
    names: tuple[str, ...]
    y: Ref | None = None
    projection: tuple[Ref, ...] = ()


def read_output(select: exp.Select, scope: Scope) -> Output:
    """The SELECT list, with its types checked."""
    items = select.expressions
    if not items:
        refuse(select, "nothing is selected", _LIST_HINT)
    distinct: exp.Expr | None = select.args.get("distinct")
    aggregates = [item for item in items if type(item.unalias()) in _AGGREGATES]
    if aggregates or distinct:
        if len(scope.tables) > 1:
            refuse(
                items[0],
                "aggregates and DISTINCT over a join are not supported",
                "select columns of the join",
            )
        if len(items) > 1:
            hint = "make one subscription for each aggregate; GROUP BY is not supported"
            refuse(select, "an aggregate or DISTINCT must be the only item after SELECT", hint)
    if distinct:
        return _distinct(distinct, items[0], scope)
    if aggregates:
        return _aggregate(items[0], scope)
    return _columns(items, scope)


def _distinct(clause: exp.Expr, item: exp.Expr, scope: Scope) -> Output:
    check_only(clause, set(), "DISTINCT ON is not supported", "accepted: SELECT DISTINCT column")
    column = item.unalias()
    if not isinstance(column, exp.Column) or isinstance(column.this, exp.Star):
        refuse(item, "DISTINCT takes one column", "accepted: SELECT DISTINCT column")
    y = scope.resolve(column)
    return Output(Kind.DISTINCT, (item.alias or scope.column(y).name,), y)


def _aggregate(item: exp.Expr, scope: Scope) -> Output:
    call = item.unalias()
    kind = _AGGREGATES[type(call)]
    check_only(call, {"this", "big_int"}, f"{kind.value} takes one column", _LIST_HINT)
    argument = call.this
    if kind is Kind.COUNT and isinstance(argument, exp.Star):
        check_only(argument, set(), "* takes no options", "accepted: COUNT(*)")
        return Output(kind, (item.alias or "COUNT(*)",))
    if isinstance(argument, exp.Distinct):
        refuse(call, f"{kind.value}(DISTINCT ..) is not supported", "accepted: SELECT DISTINCT column")
    if not isinstance(argument, exp.Column) or isinstance(argument.this, exp.Star):
        refuse(call, f"{kind.value} takes a plain column", _LIST_HINT)
    y = scope.resolve(argument)
    column = scope.column(y)
    if kind in (Kind.MIN, Kind.MAX) and not column.type.ordered:
        refuse(call, f"{kind.value} of {scope.label(y)} is not supported", "MIN and MAX take numbers and TIMESTAMPs")
    if kind in (Kind.SUM, Kind.AVG) and not column.type.numeric:
        refuse(call, f"{kind.value} of {scope.label(y)} is not supported", "SUM and AVG take numbers")
    return Output(kind, (item.alias or f"{kind.value}({column.name})",), y)


def _columns(items: list[exp.Expr], scope: Scope) -> Output:
    names: list[str] = []
    projection: list[Ref] = []
    for item in items:
        refs = _refs(item.unalias(), scope)
        projection += refs
        names += [item.alias] if isinstance(item, exp.Alias) else [scope.column(ref).name for ref in refs]
        if len(projection) > MAXIMUM_PROJECTION:
            raise SqlError("SELECT", f"more than {MAXIMUM_PROJECTION} columns are selected", "name fewer columns")
    kind = Kind.JOIN if len(scope.tables) > 1 else Kind.SELECT
    return Output(kind, tuple(names), projection=tuple(projection))


def _refs(node: exp.Expr, scope: Scope) -> list[Ref]:
    star = node.this if isinstance(node, exp.Column) else node
    if isinstance(star, exp.Star):
        check_only(star, set(), "* takes no options", "name the columns one by one")
        return scope.star(node.args["table"].name if node.args.get("table") else "")
    if isinstance(node, exp.Column):
        return [scope.resolve(node)]
    if isinstance(node, exp.Placeholder | exp.Literal):
        refuse(node, "constants are not supported after SELECT", _LIST_HINT)
    if isinstance(node, exp.Binary | exp.Unary | exp.Func) and not isinstance(node, exp.AggFunc):
        refuse(node, "expressions are not supported after SELECT", _LIST_HINT)
    refuse_expression(node, _LIST_HINT)

"""The SELECT list: what a subscription computes, of which column, under which names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from hullcast.broker.sql.query import Ref
from hullcast.broker.sql.refusals import refuse_expression
from hullcast.broker.sql.scope import Scope
from hullcast.broker.sql.text import check_only, refuse, refuse_to_follow
from hullcast.network.answers.kinds import KINDS, NUMBERS, ORDERED, SubscriptionKind
from hullcast.network.wire.errors import SqlError

MAXIMUM_PROJECTION: Final = 1024

_TYPES: Final = {NUMBERS: "numbers", ORDERED: "numbers and TIMESTAMPs"}  # in words, where there are shorter ones


@dataclass(frozen=True, slots=True)
class Output:
    """The answer's form. `y` and `projection` are as in `Shape`."""

    kind: SubscriptionKind
    names: tuple[str, ...]
    y: Ref | None = None
    projection: tuple[Ref, ...] = ()


def read_output(select: exp.Select, scope: Scope) -> Output:
    """The SELECT list, with its types checked."""
    items = select.expressions
    if not items:
        refuse(select, "nothing is selected", _accepted())
    distinct: exp.Expr | None = select.args.get("distinct")
    functions = [kind for kind in map(_function, items) if kind is not None]
    if functions or distinct:
        if len(scope.tables) > 1:
            refuse_to_follow(
                items[0],
                "aggregates and DISTINCT over a join are not supported",
                "select columns of the join",
            )
        if len(items) > 1:
            hint = f"make one subscription for each {'aggregate' if functions else 'column'}"
            refuse_to_follow(select, "an aggregate or DISTINCT must be the only item after SELECT", hint)
        _check_window(items[0], scope)
    if distinct:
        return _distinct(distinct, items[0], scope)
    if functions:
        return _call(functions[0], items[0], scope)
    return _columns(items, scope)


def _check_window(item: exp.Expr, scope: Scope) -> None:
    """Refuse an aggregate over a whole stream, which never ends."""
    if scope.tables[0].stream is not None and scope.windows[0] is None:
        name = scope.tables[0].name
        hint = f"name one: FROM {name} [ROWS 1000]"
        hint += f" or FROM {name} [RANGE '10s']" if scope.tables[0].time is not None else ""
        refuse(item, "an aggregate or DISTINCT over a stream needs a window", hint)


def _check_tuples(item: exp.Expr, scope: Scope) -> None:
    """Refuse windows where they have no meaning, and joins of streams without them."""
    streams = [table.stream is not None for table in scope.tables]
    windowed = [window is not None for window in scope.windows]
    if len(streams) == 1 and any(windowed):
        hint = "leave the window out to get each tuple once, or use COUNT, SUM, AVG, MIN, MAX or DISTINCT"
        refuse(item, "columns of a window are not delivered", hint)
    if sum(streams) == 2 and not all(windowed):
        name = scope.names[windowed.index(False)]
        hint = f"accepted: .. {name} [ROWS 1000] .. or .. {name} [RANGE '10s'] .."
        refuse(item, "both streams of a join need a window", hint)
    if sum(streams) == 1 and any(windowed):
        refuse(item, "a stream joined with a table has no window", "leave the window out: each tuple is joined once")


def _accepted() -> str:
    *names, last = [kind.name for kind in KINDS.values() if kind.takes]
    stars = " or ".join(f"{kind.name}(*)" for kind in KINDS.values() if kind.star)
    return f"accepted: columns, *, DISTINCT column, one of {', '.join(names)} and {last} of a column, or {stars}"


def _function(item: exp.Expr) -> SubscriptionKind | None:
    """The kind whose function an item calls, if it does."""
    call = item.unalias()
    if not isinstance(call, exp.Func):
        return None
    names = [call.name.upper()] if isinstance(call, exp.Anonymous) else call.sql_names()
    return next((KINDS[name] for name in names if name in KINDS and KINDS[name].takes), None)


def _distinct(clause: exp.Expr, item: exp.Expr, scope: Scope) -> Output:
    check_only(clause, set(), "DISTINCT ON is not supported", "accepted: SELECT DISTINCT column")
    column = item.unalias()
    if not isinstance(column, exp.Column) or isinstance(column.this, exp.Star):
        refuse_to_follow(item, "DISTINCT takes one column", "accepted: SELECT DISTINCT column")
    y = scope.resolve(column)
    return Output(KINDS["DISTINCT"], (item.alias or scope.column(y).name,), y)


def _call(kind: SubscriptionKind, item: exp.Expr, scope: Scope) -> Output:
    call, name = item.unalias(), kind.name
    if isinstance(call, exp.Anonymous):  # a function that SQLite has not: its column is the only one of a list
        allowed, arguments = {"this", "expressions"}, call.expressions
    else:
        allowed, arguments = {"this", "big_int"}, [call.this]
    check_only(call, allowed, f"{name} takes one column", _accepted())
    if len(arguments) != 1:
        refuse(call, f"{name} takes one column", _accepted())
    argument = arguments[0]
    if kind.star and isinstance(argument, exp.Star):
        check_only(argument, set(), "* takes no options", f"accepted: {name}(*)")
        return Output(kind, (item.alias or f"{name}(*)",))
    if isinstance(argument, exp.Distinct):
        refuse_to_follow(call, f"{name}(DISTINCT ..) is not supported", "accepted: SELECT DISTINCT column")
    if not isinstance(argument, exp.Column) or isinstance(argument.this, exp.Star):
        refuse_to_follow(call, f"{name} takes a plain column", _accepted())
    y = scope.resolve(argument)
    column = scope.column(y)
    if column.type.value not in kind.takes:
        same = [other.name for other in KINDS.values() if other.takes == kind.takes]
        hint = f"{' and '.join(same)} {'take' if len(same) > 1 else 'takes'} "
        hint += _TYPES.get(kind.takes, " and ".join(kind.takes))
        refuse_to_follow(call, f"{name} of {scope.label(y)} is not supported", hint)
    return Output(kind, (item.alias or f"{name}({column.name})",), y)


def _columns(items: list[exp.Expr], scope: Scope) -> Output:
    names: list[str] = []
    projection: list[Ref] = []
    for item in items:
        refs = _refs(item.unalias(), scope)
        projection += refs
        names += [item.alias] if isinstance(item, exp.Alias) else [scope.column(ref).name for ref in refs]
        if len(projection) > MAXIMUM_PROJECTION:
            raise SqlError("SELECT", f"more than {MAXIMUM_PROJECTION} columns are selected", "name fewer columns")
    if any(table.stream is not None for table in scope.tables):
        _check_tuples(items[0], scope)
        return Output(KINDS["TUPLES"], tuple(names), projection=tuple(projection))
    kind = KINDS["JOIN" if len(scope.tables) > 1 else "SELECT"]
    return Output(kind, tuple(names), projection=tuple(projection))


def _refs(node: exp.Expr, scope: Scope) -> list[Ref]:
    star = node.this if isinstance(node, exp.Column) else node
    if isinstance(star, exp.Star):
        check_only(star, set(), "* takes no options", "name the columns one by one")
        return scope.star(node.args["table"].name if node.args.get("table") else "")
    if isinstance(node, exp.Column):
        return [scope.resolve(node)]
    if isinstance(node, exp.Placeholder | exp.Literal):
        refuse_to_follow(node, "constants are not supported after SELECT", _accepted())
    if isinstance(node, exp.Binary | exp.Unary | exp.Func):
        refuse_to_follow(node, "expressions are not supported after SELECT", _accepted())
    refuse_expression(node, _accepted())

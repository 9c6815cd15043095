"""What to tell the author of an expression that the language does not have."""

from __future__ import annotations

from typing import Final, NoReturn

from sqlglot import exp

from hullcast.broker.sql.text import refuse
from hullcast.network.wire.errors import Remedy

_CONJUNCTION = "accepted: conditions joined by AND, each col BETWEEN a AND b or col <, <=, =, >=, > a value"
_NULLS = Remedy("use engine.query() to find rows with NULL", "use query() to find rows with NULL")

#: An empty hint: what is accepted where the expression stands.
_REFUSED: Final[tuple[tuple[tuple[type[exp.Expr], ...], str, str], ...]] = (
    ((exp.Or, exp.Xor), "OR is not supported in a subscription", "make one subscription for each alternative"),
    ((exp.Not,), "NOT is not supported in a subscription", "turn the comparison around: NOT x < 5 is x >= 5"),
    ((exp.NEQ,), "<> is not supported in a subscription", "make two subscriptions, one with < and one with >"),
    ((exp.In,), "IN is not supported in a subscription", "make one subscription for each value, with ="),
    (
        (exp.Like, exp.ILike, exp.Glob, exp.RegexpLike, exp.SimilarTo),
        "patterns are not supported in a subscription",
        "TEXT columns support = only",
    ),
    ((exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ), "IS is not supported in a subscription", "compare with ="),
    ((exp.Null,), "a comparison with NULL is never true", "compare with a value"),
    ((exp.Boolean,), "TRUE and FALSE are not supported", ""),
    (
        (exp.Subquery, exp.Query, exp.Exists, exp.SubqueryPredicate),
        "subqueries are not supported in a subscription",
        "make one subscription for each query",
    ),
    ((exp.Placeholder, exp.Parameter), "parameters are written as ?", "write ? for each value and give them in order"),
    ((exp.Interval,), "INTERVAL is not supported", "write a number of seconds, or ? and pass a timedelta"),
    ((exp.Window,), "windows are not supported in a subscription", "accepted: one aggregate over the whole range"),
    ((exp.Case, exp.If), "CASE is not supported in a subscription", ""),
    ((exp.AggFunc,), "this aggregate is not supported here", ""),
    ((exp.Func,), "functions are not supported in a subscription", "accepted: ABS(s.b - r.b) <= d as a join condition"),
    ((exp.Tuple,), "rows cannot be compared as a whole", "write one comparison for each column"),
    ((exp.Collate,), "collations are not supported", "compare TEXT with ="),
    ((exp.Binary, exp.Unary), "this arithmetic is not supported", "compare a plain column with a value"),
)

#: Conditions that no range can express; on a TEXT column the reason is that it has no ranges at all.
UNORDERED: Final = (exp.NEQ, exp.Like, exp.ILike, exp.Glob, exp.RegexpLike, exp.SimilarTo)
ONLY_EQUAL: Final = "TEXT columns support = only"
ONLY_EQUAL_HINT: Final = "use =, or make one subscription for each value"


def refuse_null_test(node: exp.Expr) -> None:
    """Refuse IS NULL and IS NOT NULL, if it is one of them."""
    inner = node.this if isinstance(node, exp.Not) else node
    inner = inner.unnest() if isinstance(inner, exp.Paren) else inner
    if not isinstance(inner, exp.Is):
        return
    tested, negated = inner.expression, isinstance(node, exp.Not)
    if isinstance(tested, exp.Not):
        tested, negated = tested.this, not negated
    if not isinstance(tested, exp.Null):
        return
    if negated:
        hint = "leave it out: a comparison never matches NULL, and COUNT(column) counts the rows that are not NULL"
        refuse(node, "IS NOT NULL is not supported in a subscription", hint)
    refuse(node, "IS NULL is not supported in a subscription", _NULLS)


def refuse_expression(node: exp.Expr, accepted: str = _CONJUNCTION) -> NoReturn:
    """Refuse a part with the hint for its kind, or with the general one."""
    for kinds, reason, hint in _REFUSED:
        if isinstance(node, kinds):
            refuse(node, reason, hint or accepted)
    refuse(node, "this is not supported here", accepted)

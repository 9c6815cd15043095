"""What to tell the author of an expression that the language does not have."""

from __future__ import annotations

from typing import Final, NoReturn

from sqlglot import exp

from broker.sql.text import refuse

_CONJUNCTION = "accepted: conditions joined by AND, each col BETWEEN a AND b or col <, <=, =, >=, > a value"

_REFUSED: Final[tuple[tuple[tuple[type[exp.Expr], ...], str, str], ...]] = (
    ((exp.Or, exp.Xor), "alternatives are not offered", "make one subscription for each alternative"),
    ((exp.Not,), "NOT is not offered", "turn the comparison around: NOT x < 5 is x >= 5"),
    ((exp.NEQ,), "<> is not a range", "make two subscriptions, x < v and x > v"),
    ((exp.In,), "IN is not a range", "make one subscription for each value, with ="),
    (
        (exp.Like, exp.ILike, exp.Glob, exp.RegexpLike, exp.SimilarTo),
        "patterns are not offered",
        "compare TEXT with =",
    ),
    (
        (exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ),
        "IS is not offered",
        "a range never holds NULL; compare with =",
    ),
    ((exp.Null,), "a comparison with NULL is never true", "compare with a value"),
    ((exp.Boolean,), "there are no truth values", _CONJUNCTION),
    (
        (exp.Subquery, exp.Query, exp.Exists, exp.SubqueryPredicate),
        "subqueries are not offered",
        "subscribe to each query by itself",
    ),
    ((exp.Placeholder, exp.Parameter), "parameters have no names", "write a plain ? for each parameter"),
    ((exp.Interval,), "INTERVAL is not offered", "write a number of seconds, or ? and bind a timedelta"),
    ((exp.Window,), "windows are not offered", "accepted: one aggregate over the whole range"),
    ((exp.Case, exp.If), "CASE is not offered", _CONJUNCTION),
    ((exp.AggFunc,), "MIN, MAX, COUNT, SUM and AVG of one column are offered, each alone after SELECT", _CONJUNCTION),
    ((exp.Func,), "functions are not offered", "accepted: ABS(s.b - r.b) <= d as a join condition"),
    ((exp.Tuple,), "rows are not compared as a whole", "write one comparison for each column"),
    ((exp.Collate,), "collations are not offered", "compare TEXT with ="),
    ((exp.Binary, exp.Unary), "this arithmetic is not offered", "compare a plain column with a value"),
)


def refuse_expression(node: exp.Expr, accepted: str = _CONJUNCTION) -> NoReturn:
    """Refuse a part with the hint for its kind, or with the general one."""
    for kinds, reason, hint in _REFUSED:
        if isinstance(node, kinds):
            refuse(node, reason, hint)
    refuse(node, "this is not offered here", accepted)

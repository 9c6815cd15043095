"""CREATE VIEW as it was written: its sources, conditions, outputs and groups, by their names.

What the names mean is found when the statement is bound to tables (`broker/queries/view.py`). Whatever the language
of views does not have is refused here, with the offending part, so the binder sees plain values only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from hullcast.broker.sql.text import (
    MAXIMUM_PART,
    check_only,
    describe,
    plain_name,
    refuse,
    relation_name,
    shorten,
)
from hullcast.broker.tables.schema import fold
from hullcast.network.wire.durations import UNITS, seconds_of
from hullcast.network.wire.errors import SqlError

if TYPE_CHECKING:
    from hullcast.broker.sql.text import Statement

MAXIMUM_SOURCES: Final = 8
LONGEST_RESPONSE_S: Final = 86400.0
MAXIMUM_OUTPUT_NAME: Final = 2 * MAXIMUM_PART

CREATE_VIEW: Final = (
    "CREATE VIEW [IF NOT EXISTS] name AS SELECT .. FROM a [x] JOIN b [y] ON x.k = y.k .. WHERE .. [GROUP BY ..] "
    "WITH (response_time = '50ms')"
)
DROP_VIEW: Final = "accepted: DROP VIEW [IF EXISTS] name"
_GRAMMAR: Final = f"accepted: {CREATE_VIEW}"
_TERMS_HINT: Final = "accepted: WITH (response_time = '50ms')"
_RESPONSE: Final = (
    "a response time is a duration of more than 0 and at most a day, such as '50ms' or '2s' "
    f"(units: {', '.join(UNITS)})"
)
_SOURCE_HINT: Final = "accepted: FROM a [x] JOIN b [y] ON x.k = y.k | USING (k), or FROM a [x], b [y] WHERE x.k = y.k"
_CONDITION_HINT: Final = (
    "accepted: conditions joined by AND, each col <, <=, =, <>, >=, > a constant or a column, "
    "col BETWEEN a AND b, col IN (constants), col IS [NOT] NULL"
)
_OUTPUT_HINT: Final = "accepted: columns, COUNT(*), and COUNT, SUM, AVG, MIN and MAX of a column, with or without AS"
_GROUP_HINT: Final = "accepted: GROUP BY column, .."

_COMPARISONS: Final[dict[type[exp.Expr], str]] = {
    exp.LT: "<",
    exp.LTE: "<=",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GTE: ">=",
    exp.GT: ">",
}
MIRRORED: Final = {"<": ">", "<=": ">=", "=": "=", "<>": "<>", ">=": "<=", ">": "<"}
_FUNCTIONS: Final[dict[type[exp.Expr], str]] = {
    exp.Count: "COUNT",
    exp.Sum: "SUM",
    exp.Avg: "AVG",
    exp.Min: "MIN",
    exp.Max: "MAX",
}
#: What is refused in conditions, and what to do instead; an empty hint: what is accepted.
_REFUSED: Final[tuple[tuple[tuple[type[exp.Expr], ...], str, str], ...]] = (
    ((exp.Or, exp.Xor), "OR is not supported in a view", "use IN (..) for values of one column, or create two views"),
    ((exp.Subquery, exp.Query, exp.Exists, exp.SubqueryPredicate), "subqueries are not supported in a view", ""),
    ((exp.Placeholder, exp.Parameter), "a view has no parameters", "write the value itself"),
    (
        (exp.NullSafeEQ, exp.NullSafeNEQ),
        "IS is not supported in a view, except for IS [NOT] NULL",
        "compare with = or <>",
    ),
    ((exp.Null,), "a comparison with NULL is never true", "use IS NULL or IS NOT NULL"),
    ((exp.Window,), "windows are not supported in a view", ""),
    ((exp.AggFunc,), "aggregates are not supported in conditions of a view", ""),
    ((exp.Func, exp.Case, exp.Binary, exp.Unary), "expressions are not supported in a view", ""),
)

Constant = int | float | str


class ColumnName(NamedTuple):
    """A column as the statement names it; `table` is empty if it is not qualified."""

    table: str
    column: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column}" if self.table else self.column


class NamedSource(NamedTuple):
    """A table in FROM, the name by which the statement calls it, and the columns of its USING."""

    table: str
    name: str
    using: tuple[str, ...] = ()


class NamedCondition(NamedTuple):
    """One condition: a column, an operator (=, IN, IS NULL ..), and a column or constants (none for IS NULL)."""

    left: ColumnName
    operator: str
    right: ColumnName | tuple[Constant, ...]
    text: str

    def __str__(self) -> str:
        return self.text


class NamedOutput(NamedTuple):
    """One item after SELECT: a column, all columns (`*`), or a function of a column (of none: COUNT(*)).

    `name` is its alias; without one, `text` is how it was written, which is what SQLite calls an aggregate.
    """

    function: str
    column: ColumnName | None
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class CreateView:
    """A view to create, as it was written; `if_missing`: nothing happens if it exists with the same definition.

    `groups` is None without GROUP BY.
    """

    name: str
    sources: tuple[NamedSource, ...]
    conditions: tuple[NamedCondition, ...]
    outputs: tuple[NamedOutput, ...]
    groups: tuple[ColumnName, ...] | None
    response_time_s: float
    if_missing: bool = False


@dataclass(frozen=True, slots=True)
class DropView:
    """A view to drop, by name; `if_there`: nothing happens if it does not exist."""

    name: str
    if_there: bool = False


def read_create_view(statement: Statement, sql: str) -> CreateView:
    """CREATE VIEW, or a SqlError."""
    tree = statement.tree
    if tree.args.get("replace"):
        refuse(tree, "OR REPLACE is not supported", "DROP VIEW, then CREATE VIEW")
    if isinstance(tree.this, exp.Schema):
        refuse(tree.this, "columns of a view are named in its SELECT", "write SELECT column AS name, ..")
    allowed = {"this", "kind", "exists", "properties", "expression"}
    check_only(tree, allowed, "CREATE VIEW takes a name, AS SELECT and WITH (..), and nothing else", _GRAMMAR)
    name = relation_name(tree.this, _GRAMMAR)
    if statement.placeholders:
        raise SqlError("?", "a view has no parameters", "write the value itself")
    select = tree.args.get("expression")
    if not isinstance(select, exp.Select):
        part = describe(select) if isinstance(select, exp.Expr) else name
        raise SqlError(part, "a view is one SELECT", _GRAMMAR)
    response_time_s = _response_time(name, tree.args.get("properties"))
    _check_clauses(select)
    sources, conditions = _sources(select)
    where = select.args.get("where")
    if where is not None:
        conditions += _conditions(where.this)
    return CreateView(
        name,
        sources,
        tuple(conditions),
        _outputs(select, _item_texts(statement.tokens, sql)),
        _groups(select.args.get("group")),
        response_time_s,
        bool(tree.args.get("exists")),
    )


def _response_time(name: str, properties: exp.Expr | None) -> float:
    found: float | None = None
    for term in () if properties is None else properties.expressions:
        if type(term) is not exp.Property or not isinstance(term.this, exp.Expr):
            refuse(term, "CREATE VIEW takes a name, AS SELECT and WITH (..), and nothing else", _GRAMMAR)
        if fold(term.this.name) != "response_time":
            refuse(term, "WITH (..) of a view takes response_time, and nothing else", _TERMS_HINT)
        if found is not None:
            refuse(term, "response_time is given twice", _TERMS_HINT)
        value = term.args.get("value")
        try:
            found = seconds_of(value.this) if isinstance(value, exp.Literal) else 0.0
        except ValueError:
            found = 0.0
        if not 0 < found <= LONGEST_RESPONSE_S:
            refuse(term, _RESPONSE, _TERMS_HINT)
    if found is None:
        raise SqlError(name, "the view promises no response time", "add WITH (response_time = '50ms') at the end")
    return found


_CLAUSES: Final = {
    "distinct": ("DISTINCT is not supported in a view", "use GROUP BY with the same columns"),
    "having": ("HAVING is not supported in a view", "use WHERE on groups when you read the view"),
    "order": ("ORDER BY is not supported in a view", "use ORDER BY when you read the view"),
    "limit": ("LIMIT is not supported in a view", "use LIMIT when you read the view"),
    "offset": ("OFFSET is not supported in a view", "use OFFSET when you read the view"),
    "with_": ("WITH .. AS is not supported in a view", "name the tables in FROM"),
    "windows": ("windows are not supported in a view", _GRAMMAR),
}


def _check_clauses(select: exp.Select) -> None:
    for clause, (reason, accepted) in _CLAUSES.items():
        found = select.args.get(clause)
        if found:
            part = found[0] if isinstance(found, list) else found
            raise SqlError(describe(part) or clause.strip("_").upper(), reason, accepted)
    allowed = {"expressions", "from_", "joins", "where", "group"}
    check_only(select, allowed, "this clause is not supported in a view", _GRAMMAR)


# -- FROM --------------------------------------------------------------------------------------------------


def _sources(select: exp.Select) -> tuple[tuple[NamedSource, ...], list[NamedCondition]]:
    """The tables of FROM and JOIN, and the conditions of ON."""
    from_clause = select.args.get("from_")
    if not isinstance(from_clause, exp.From):
        refuse(select, "the view reads no table", _SOURCE_HINT)
    check_only(from_clause, {"this"}, "FROM takes tables", _SOURCE_HINT)
    sources, conditions = [_source(from_clause.this)], []
    for join in select.args.get("joins") or []:
        kind = " ".join(str(join.args.get(word) or "") for word in ("method", "side", "kind")).split()
        if kind not in ([], ["INNER"], ["CROSS"]):  # a comma is read as CROSS
            refuse(join, f"{' '.join(kind)} JOIN is not supported in a view", _SOURCE_HINT)
        check_only(
            join, {"this", "on", "using", "kind"}, "a join takes USING (..) or ON .., nothing else", _SOURCE_HINT
        )
        using = tuple(plain_name(column) for column in join.args.get("using") or ())
        sources.append(_source(join.this, using))
        condition = join.args.get("on")
        if condition is not None and not (isinstance(condition, exp.Boolean) and condition.this):
            conditions += _conditions(condition)
    if len(sources) > MAXIMUM_SOURCES:
        refuse(from_clause, f"the view reads {len(sources)} tables", f"at most {MAXIMUM_SOURCES} are accepted")
    return tuple(sources), conditions


def _source(node: object, using: tuple[str, ...] = ()) -> NamedSource:
    if isinstance(node, exp.Subquery | exp.Query):
        refuse(node, "subqueries are not supported in a view", _SOURCE_HINT)
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        part = describe(node) if isinstance(node, exp.Expr) else str(node)
        raise SqlError(part, "only plain tables can be read", _SOURCE_HINT)
    check_only(node, {"this", "alias"}, "a table takes a name and an alias, nothing else", _SOURCE_HINT)
    alias = node.args.get("alias")
    if alias is not None:
        check_only(alias, {"this"}, "an alias is one name", _SOURCE_HINT)
    return NamedSource(plain_name(node.this), "" if alias is None else plain_name(alias.this), using)


# -- conditions --------------------------------------------------------------------------------------------


def _conditions(node: exp.Expr) -> list[NamedCondition]:
    """The parts of a conjunction. A loop, not recursion: a chain of ANDs is a deep tree."""
    found: list[NamedCondition] = []
    pending = [node]
    while pending:
        part = pending.pop()
        match part:
            case exp.And():
                pending += [part.expression, part.this]
            case exp.Paren():
                pending.append(part.this)
            case exp.Between():
                if part.args.get("symmetric"):
                    refuse(part, "SYMMETRIC is not supported", "write the smaller bound first")
                found.append(_comparison(part, part.this, ">=", part.args["low"]))
                found.append(_comparison(part, part.this, "<=", part.args["high"]))
            case exp.In():
                found.append(_among(part, "IN"))
            case exp.Is():
                found.append(_null_test(part, negated=False))
            case exp.Not():
                found.append(_negated(part))
            case _ if type(part) in _COMPARISONS:
                found.append(_comparison(part, part.this, _COMPARISONS[type(part)], part.expression))
            case _:
                _refuse(part)
    return found


def _negated(node: exp.Not) -> NamedCondition:
    inner = node.this.unnest()
    if isinstance(inner, exp.In):
        return _among(inner, "NOT IN")
    if isinstance(inner, exp.Is):
        return _null_test(inner, negated=True)
    if isinstance(inner, exp.Between):
        refuse(node, "NOT BETWEEN is not supported in a view", "create two views, one with < and one with >")
    refuse(node, "NOT is not supported in a view", "turn the comparison around: NOT x < 5 is x >= 5")


def _among(node: exp.In, operator: str) -> NamedCondition:
    check_only(node, {"this", "expressions"}, "IN takes constants", _CONDITION_HINT)
    if not node.expressions:
        refuse(node, "IN takes at least one constant", _CONDITION_HINT)
    values = tuple(_constant(item, node) for item in node.expressions)
    return NamedCondition(_column(node.this, node), operator, values, describe(node))


def _null_test(node: exp.Is, *, negated: bool) -> NamedCondition:
    tested = node.expression.unnest()
    if isinstance(tested, exp.Not):
        tested, negated = tested.this.unnest(), not negated
    if not isinstance(tested, exp.Null):
        refuse(node, "IS is not supported in a view, except for IS [NOT] NULL", "compare with = or <>")
    return NamedCondition(_column(node.this, node), f"IS {'NOT ' * negated}NULL", (), describe(node))


def _comparison(node: exp.Expr, left: exp.Expr, operator: str, right: exp.Expr) -> NamedCondition:
    left, right = left.unnest(), right.unnest()
    if not isinstance(left, exp.Column) and not isinstance(right, exp.Literal):  # 5 < x, and what is refused of x
        left, right, operator = right, left, MIRRORED[operator]
    column = _column(left, node)
    if isinstance(right, exp.Column):
        return NamedCondition(column, operator, _column(right, node), describe(node))
    return NamedCondition(column, operator, (_constant(right, node),), describe(node))


def _column(node: exp.Expr, around: exp.Expr) -> ColumnName:
    node = node.unnest()
    if not isinstance(node, exp.Column):
        if isinstance(node, exp.Literal):
            refuse(around, "no column is compared", _CONDITION_HINT)
        _refuse(node)
    return _column_name(node)


def _column_name(node: exp.Column) -> ColumnName:
    check_only(node, {"this", "table"}, "a column is written column or table.column", "leave out the database")
    if not isinstance(node.this, exp.Identifier):
        refuse(node, "a column was expected here", "name the columns one by one")
    return ColumnName(node.table, node.name)


def _constant(node: exp.Expr, around: exp.Expr) -> Constant:
    node, sign = node.unnest(), 1
    while isinstance(node, exp.Neg):
        node, sign = node.this.unnest(), -sign
    if isinstance(node, exp.Cast):  # TIMESTAMP '..'
        kind = node.args.get("to")
        known = (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.DATETIME)
        is_text = isinstance(node.this, exp.Literal) and node.this.is_string
        if not isinstance(kind, exp.DataType) or kind.this not in known or kind.expressions or not is_text or sign < 0:
            refuse(around, "only TIMESTAMP '..' can be written so", _CONDITION_HINT)
        return str(node.this.name)
    if not isinstance(node, exp.Literal):
        _refuse(node)
    if node.is_string:
        if sign < 0:
            refuse(around, "a text has no sign", _CONDITION_HINT)
        return str(node.name)
    try:
        number: int | float = int(node.name) if node.name.isdecimal() else float(node.name)
    except ValueError:
        refuse(node, "it is not a number", _CONDITION_HINT)
    if isinstance(number, int) and number >= 2**63:  # SQLite reads it as REAL, too
        number = float(number) if number < 2**1023 else math.inf
    if not math.isfinite(number):
        refuse(node, "the number is too large", "numbers are finite float64s")
    return sign * number


def _refuse(node: exp.Expr) -> NoReturn:
    for kinds, reason, hint in _REFUSED:
        if isinstance(node, kinds):
            refuse(node, reason, hint or _CONDITION_HINT)
    refuse(node, "this condition is not supported in a view", _CONDITION_HINT)


# -- SELECT and GROUP BY -----------------------------------------------------------------------------------


def _outputs(select: exp.Select, texts: list[str]) -> tuple[NamedOutput, ...]:
    items = select.expressions
    if not items:
        refuse(select, "nothing is selected", _OUTPUT_HINT)
    if len(texts) != len(items):  # it should not be: the text was parsed
        texts = [describe(item) for item in items]
    return tuple(_output(item, text) for item, text in zip(items, texts, strict=True))


def _output(item: exp.Expr, text: str) -> NamedOutput:
    name = ""
    if isinstance(item, exp.Alias):
        name = item.alias
        if not name or len(name) > MAXIMUM_OUTPUT_NAME or not name.isprintable():
            raise SqlError(
                shorten(name), "it is not a valid name", f"at most {MAXIMUM_OUTPUT_NAME} printable characters"
            )
    node = item.unalias().unnest()
    if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
        star = node if isinstance(node, exp.Star) else node.this
        check_only(star, set(), "* takes no options", "name the columns one by one")
        return NamedOutput("*", ColumnName(node.table if isinstance(node, exp.Column) else "", "*"), "", text)
    if isinstance(node, exp.Column):
        return NamedOutput("", _column_name(node), name, text)
    function = _FUNCTIONS.get(type(node))
    if function is None:
        if isinstance(node, exp.Query | exp.Subquery):
            refuse(node, "subqueries are not supported in a view", _OUTPUT_HINT)
        if isinstance(node, exp.AggFunc):
            refuse(node, "this aggregate is not supported in a view", _OUTPUT_HINT)
        refuse(node, "expressions and constants are not supported after SELECT", _OUTPUT_HINT)
    if not name and (len(text) > MAXIMUM_OUTPUT_NAME or not text.isprintable()):
        refuse(node, "as it is written, it cannot be the name of a column", "add AS name")
    check_only(node, {"this", "big_int"}, f"{function} takes one column", _OUTPUT_HINT)
    argument = node.this
    if isinstance(argument, exp.Star) and function == "COUNT":
        check_only(argument, set(), "* takes no options", "accepted: COUNT(*)")
        return NamedOutput(function, None, name, text)
    if isinstance(argument, exp.Distinct):
        refuse(node, f"{function}(DISTINCT ..) is not supported in a view", _OUTPUT_HINT)
    argument = argument.unnest() if isinstance(argument, exp.Expr) else argument
    if not isinstance(argument, exp.Column) or isinstance(argument.this, exp.Star):
        refuse(node, f"{function} takes a plain column", _OUTPUT_HINT)
    return NamedOutput(function, _column_name(argument), name, text)


def _groups(group: exp.Expr | None) -> tuple[ColumnName, ...] | None:
    if group is None:
        return None
    check_only(group, {"expressions"}, "GROUP BY takes columns", _GROUP_HINT)
    for item in group.expressions:
        if not isinstance(item.unnest(), exp.Column):
            refuse(item, "GROUP BY takes columns", _GROUP_HINT)
    if not group.expressions:
        refuse(group, "GROUP BY takes columns", _GROUP_HINT)
    return tuple(_column_name(item.unnest()) for item in group.expressions)


def _item_texts(tokens: list[Token], sql: str) -> list[str]:
    """The items after SELECT as they were written."""
    kinds = [token.token_type for token in tokens]
    if TokenType.SELECT not in kinds:
        return []
    texts: list[str] = []
    start = at = kinds.index(TokenType.SELECT) + 1
    depth = 0
    for at in range(start, len(tokens) + 1):
        kind = kinds[at] if at < len(tokens) else TokenType.FROM
        if not depth and kind in (TokenType.COMMA, TokenType.FROM):
            if at > start:
                texts.append(sql[tokens[start].start : tokens[at - 1].end + 1])
            start = at + 1
            if kind is TokenType.FROM:
                break
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
    return texts

"""WHERE and ON: comparisons, each a bound on a column or on the difference of two, joined by AND, OR and NOT.

A comparison is moved so that columns stand left and operands right; how many columns it then has
decides what it is: one is a bound, two of different tables are how the tables meet.

What AND, OR and NOT make of comparisons are alternatives, of which each is a conjunction::

    A = 1 AND (B < 2 OR NOT (C < 3 OR D = 4))      A = 1 AND B < 2,  A = 1 AND C >= 3 AND D <> 4
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from math import prod
from typing import Final, NoReturn, TypeAlias

from sqlglot import exp

from hullcast.broker.sql.bounds import INFINITY, Comparison
from hullcast.broker.sql.encode import Domain, Slot
from hullcast.broker.sql.query import JoinOn, Ref
from hullcast.broker.sql.refusals import (
    ONLY_EQUAL,
    ONLY_EQUAL_HINT,
    UNORDERED,
    refuse_expression,
    refuse_null_test,
)
from hullcast.broker.sql.scope import Scope
from hullcast.broker.sql.terms import Given, Operand, Side, TermReader
from hullcast.broker.sql.text import check_only, refuse, refuse_to_follow
from hullcast.broker.tables.schema import ColumnType
from hullcast.network.wire.errors import SqlError

_COMPARISONS: Final[dict[type[exp.Expr], Comparison]] = {
    exp.LT: Comparison.LESS,
    exp.LTE: Comparison.AT_MOST,
    exp.EQ: Comparison.EQUAL,
    exp.GTE: Comparison.AT_LEAST,
    exp.GT: Comparison.GREATER,
    exp.NEQ: Comparison.NOT_EQUAL,
}
_DOMAINS: Final = {
    ColumnType.TEXT: Domain.TEXT,
    ColumnType.REAL: Domain.NUMBER,
    ColumnType.INTEGER: Domain.NUMBER,
    ColumnType.TIMESTAMP: Domain.INSTANT,
}
_PLAIN_HINT = "put the plain column on one side and one value or ? on the other"
_BANDS = "s.b - r.b BETWEEN lo AND hi, or ABS(s.b - r.b) <= d"
_BAND_HINT = f"accepted: {_BANDS}"
_IN_HINT = "accepted: column IN (value, value, ..)"


@dataclass(frozen=True, slots=True)
class Condition:
    """One bound: on a column, or (target None) on the right table's join column minus the left's."""

    target: Ref | None
    comparison: Comparison
    operand: Operand


#: What must hold together.
Alternative: TypeAlias = "tuple[Condition, ...]"
#: Alternatives of one text: ORs that AND multiplies may be many.
MOST_ALTERNATIVES: Final = 1000


class ConditionReader:
    """Collects the conditions of a query, and how its tables meet, in the order of the text."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.terms = TermReader(scope)
        self.alternatives: list[Alternative] = [()]
        self.on: JoinOn | None = None
        self._found: list[Condition] = []  # those of the comparison that is being read

    @property
    def conditions(self) -> list[Condition]:
        """All conditions of all alternatives."""
        return [condition for alternative in self.alternatives for condition in alternative]

    def read_using(self, node: exp.Expr, column: str) -> None:
        """The tables meet in a column of one name."""
        left, right = (table.position(column) for table in self.scope.tables)
        self._meet_equal(node, left, right)

    def read(self, node: exp.Expr) -> None:
        """Take a condition that must hold beside those read before."""
        self.alternatives = _each_with_each(node, [self.alternatives, self._read(node)])

    def _read(self, node: exp.Expr, negated: bool = False, alone: bool = True) -> list[Alternative]:
        """The alternatives that a condition is, or its opposite. `alone`: it must hold in any case."""
        whole, node = node, node.unnest()
        while isinstance(node, exp.Not):
            node, negated = node.this.unnest(), not negated
        if isinstance(node, exp.And | exp.Or):
            together = isinstance(node, exp.And) is not negated
            parts = [self._read(part, negated, alone and together) for part in _chain(node)]
            return _each_with_each(node, parts) if together else [one for part in parts for one in part]
        self._found, on = [], self.on
        if isinstance(node, exp.Between):
            self._between(node)
        elif isinstance(node, exp.In):
            return self._in(node, negated)
        elif isinstance(node, exp.Is):
            return self._null(whole, node, negated)
        elif type(node) in _COMPARISONS:
            self._comparison(node, _COMPARISONS[type(node)])
        else:
            self._refuse(whole)
        found = tuple(self._found)
        if (negated or not alone) and (self.on is not on or any(condition.target is None for condition in found)):
            refuse_to_follow(whole, "tables are joined inside of OR or NOT", "join them by conditions of their own")
        if not negated:
            return [found]
        self._refuse_texts(whole, found)
        return [(replace(condition, comparison=condition.comparison.opposite),) for condition in found]

    def _in(self, node: exp.In, negated: bool) -> list[Alternative]:
        """IN is an = for each value, and NOT IN a <>."""
        if node.args.get("query"):
            refuse_expression(node.args["query"])
        check_only(node, {"this", "expressions"}, "IN takes a list of values", _IN_HINT)
        column = self.terms.read(node.this)
        if not column.columns or not node.expressions:
            refuse(node, "IN takes a column and a list of values", _IN_HINT)
        for value in node.expressions:
            self._bound(node, column, Comparison.EQUAL, self.terms.read(value))
        found = tuple(self._found)
        if not negated:
            return [(condition,) for condition in found]
        self._refuse_texts(node, found)
        return [tuple(replace(condition, comparison=Comparison.NOT_EQUAL) for condition in found)]

    def _null(self, whole: exp.Expr, node: exp.Is, negated: bool) -> list[Alternative]:
        """IS NULL, and IS NOT NULL."""
        tested = node.expression
        while isinstance(tested, exp.Not):
            tested, negated = tested.this, not negated
        column = node.this.unnest()
        if not isinstance(tested, exp.Null) or not isinstance(column, exp.Column):
            refuse_expression(node)
        ref = self.scope.resolve(column)
        if self.scope.column(ref).type is ColumnType.TEXT:
            refuse_null_test(whole)
        comparison = Comparison.NOT_NULL if negated else Comparison.NULL
        return [(Condition(ref, comparison, Given((-INFINITY, -INFINITY))),)]

    def _refuse_texts(self, node: exp.Expr, conditions: Sequence[Condition]) -> None:
        """Refuse the opposite of an equality of texts, which have no order here."""
        targets = [condition.target for condition in conditions if condition.target is not None]
        if any(self.scope.column(target).type is ColumnType.TEXT for target in targets):
            refuse_to_follow(node, ONLY_EQUAL, ONLY_EQUAL_HINT)

    def _refuse(self, node: exp.Expr) -> NoReturn:
        if isinstance(node, UNORDERED):
            kinds = {self.scope.column(self.scope.resolve(column)).type for column in node.find_all(exp.Column)}
            if ColumnType.TEXT in kinds:
                refuse_to_follow(node, ONLY_EQUAL, ONLY_EQUAL_HINT)
        refuse_expression(node.this.unnest() if isinstance(node, exp.Not) else node)

    def _between(self, node: exp.Between) -> None:
        if node.args.get("symmetric"):
            refuse(node, "SYMMETRIC is not supported", "write the smaller bound first")
        if isinstance(node.this.unnest(), exp.Abs):
            refuse(node, "ABS(..) takes one bound", _BAND_HINT)
        middle = self.terms.read(node.this)
        if middle.operands or not middle.columns:
            refuse(node, "BETWEEN must be on a column", _PLAIN_HINT)
        low, high = self.terms.read(node.args["low"]), self.terms.read(node.args["high"])
        self._compare(node, middle, Comparison.AT_LEAST, low)
        self._compare(node, middle, Comparison.AT_MOST, high)

    def _comparison(self, node: exp.Expr, comparison: Comparison) -> None:
        left, right = node.this.unnest(), node.expression.unnest()
        if isinstance(left, exp.Abs):
            inner, outer = self.terms.read(left.this), self.terms.read(right)
            self._absolute(node, inner, comparison, outer)
        elif isinstance(right, exp.Abs):
            outer, inner = self.terms.read(left), self.terms.read(right.this)
            self._absolute(node, inner, comparison.mirrored, outer)
        else:
            self._compare(node, self.terms.read(left), comparison, self.terms.read(right))

    def _compare(self, node: exp.Expr, left: Side, comparison: Comparison, right: Side) -> None:
        match len(left.columns) + len(right.columns):
            case 0:
                refuse(node, "no column is compared", _PLAIN_HINT)
            case 1 if left.columns:
                self._bound(node, left, comparison, right)
            case 1:
                self._bound(node, right, comparison.mirrored, left)
            case 2:
                self._meet(node, left, comparison, right)
            case _:
                refuse_to_follow(node, "more than two columns are compared", _PLAIN_HINT)

    def _bound(self, node: exp.Expr, column: Side, comparison: Comparison, value: Side) -> None:
        """`column comparison value`, both sides free of arithmetic."""
        sign, ref = column.columns[0]
        if sign < 0 or column.operands or len(value.operands) != 1:
            refuse_to_follow(node, "arithmetic is not supported", _PLAIN_HINT)
        kind = self.scope.column(ref).type
        if kind is ColumnType.TEXT and comparison is not Comparison.EQUAL:
            refuse_to_follow(node, ONLY_EQUAL, ONLY_EQUAL_HINT)
        slot = Slot(self.scope.label(ref), _DOMAINS[kind])
        self._found.append(Condition(ref, comparison, self.terms.operand(*value.operands[0], slot)))

    def _meet(self, node: exp.Expr, left: Side, comparison: Comparison, right: Side) -> None:
        """Two columns: an equality of both, or a bound on their difference."""
        columns = left.columns + [(-sign, ref) for sign, ref in right.columns]
        operands = [(-sign, term) for sign, term in left.operands] + right.operands
        first, second = self._difference(node, columns)
        if comparison is Comparison.NOT_EQUAL:
            refuse_to_follow(node, "tables cannot be joined with <>", _BAND_HINT)
        if comparison is Comparison.EQUAL and not operands and len(left.columns) == 1:
            self._meet_equal(node, first.column, second.column)
            return
        if len(operands) > 1:
            refuse(node, "the difference is compared with more than one value", _BAND_HINT)
        if operands and not _is_difference(left, right) and not _is_difference(right, left):
            self._refuse_reals(node, first, second)
        slot = self._meet_band(node, first, second)
        turned = -1 if {ref.side: sign for sign, ref in columns}[1] < 0 else 1
        operand: Operand = Given((0.0, 0.0))
        if operands:
            operand = self.terms.operand(operands[0][0] * turned, operands[0][1], slot)
        self._found.append(Condition(None, comparison.mirrored if turned < 0 else comparison, operand))

    def _absolute(self, node: exp.Expr, inner: Side, comparison: Comparison, outer: Side) -> None:
        """ABS(difference) <= d is -d <= difference <= d."""
        if comparison not in (Comparison.LESS, Comparison.AT_MOST):
            refuse(node, "ABS(..) needs an upper bound", _BAND_HINT)
        if inner.operands or outer.columns or len(outer.operands) != 1:
            refuse(node, "ABS(..) takes the difference of two columns and is compared with one value", _BAND_HINT)
        slot = self._meet_band(node, *self._difference(node, inner.columns))
        sign, term = outer.operands[0]
        self._found.append(Condition(None, comparison, self.terms.operand(sign, term, slot)))
        self._found.append(Condition(None, comparison.mirrored, self.terms.operand(-sign, term, slot)))

    def _difference(self, node: exp.Expr, columns: list[tuple[int, Ref]]) -> tuple[Ref, Ref]:
        """The left and the right table's column of a difference, whichever is subtracted."""
        if len(columns) != 2 or columns[0][0] == columns[1][0]:
            refuse_to_follow(node, "this arithmetic is not supported", _BAND_HINT)
        first, second = sorted(ref for _, ref in columns)
        if first.side == second.side:
            refuse_to_follow(node, "two columns of one table cannot be compared", "compare a column with a value or ?")
        return first, second

    def _meet_equal(self, node: exp.Expr, left: int, right: int) -> None:
        kinds = {self.scope.column(Ref(side, place)).type for side, place in enumerate((left, right))}
        if len(kinds) > 1 and not all(kind.numeric for kind in kinds):
            refuse(node, self._mismatch(left, right), "join columns of one type")
        self._meet_once(node, JoinOn(left, right, band=False))

    def _meet_band(self, node: exp.Expr, left: Ref, right: Ref) -> Slot:
        kinds = {self.scope.column(ref).type for ref in (left, right)}
        if kinds == {ColumnType.TIMESTAMP}:
            domain = Domain.DURATION
        elif all(kind.numeric for kind in kinds):
            domain = Domain.NUMBER if ColumnType.REAL in kinds else Domain.DIFFERENCE
        else:
            hint = "a band needs two numbers or two TIMESTAMPs; TEXT is joined with ="
            refuse(node, self._mismatch(left.column, right.column), hint)
        self._meet_once(node, JoinOn(left.column, right.column, band=True))
        return Slot(self.scope.label(right, left), domain)

    def _refuse_reals(self, node: exp.Expr, *refs: Ref) -> None:
        """SQL would round the sum before it compares, and we the difference: the same for whole numbers only."""
        if any(self.scope.column(ref).type is ColumnType.REAL for ref in refs):
            refuse(node, "a sum of REAL columns is rounded; compare their difference instead", _BAND_HINT)

    def _meet_once(self, node: exp.Expr, on: JoinOn) -> None:
        """Two tables meet in one way; saying the same again, or bounding the same band again, is fine."""
        if self.on is not None and self.on != on:
            refuse_to_follow(
                node,
                "the tables are joined in another way already",
                "join on one equality or on one band",
            )
        self.on = on

    def _mismatch(self, left: int, right: int) -> str:
        labels = [self.scope.label(Ref(side, place)) for side, place in enumerate((left, right))]
        return f"{' and '.join(labels)} cannot be joined this way"


def _is_difference(one: Side, other: Side) -> bool:
    """Whether one side is the difference of two columns, and the other a value."""
    return not one.operands and not other.columns


def _chain(node: exp.And | exp.Or) -> list[exp.Expr]:
    """What a chain of ANDs, or of ORs, joins, in the order of the text. A loop: a chain is a deep tree."""
    pending: list[exp.Expr] = [node]
    parts: list[exp.Expr] = []
    while pending:
        part = pending.pop()
        inner = part.unnest()
        if type(inner) is type(node):
            pending += [inner.expression, inner.this]
        else:
            parts.append(part)
    return parts


def _each_with_each(node: exp.Expr, parts: Sequence[list[Alternative]]) -> list[Alternative]:
    """The alternatives of a conjunction of such as have alternatives."""
    if prod(map(len, parts)) > MOST_ALTERNATIVES:
        refuse_to_follow(node, f"more than {MOST_ALTERNATIVES} alternatives", "write fewer ORs and shorter lists")
    return [tuple(chain.from_iterable(alternative)) for alternative in product(*parts)]


def read_conditions(select: exp.Select, scope: Scope) -> ConditionReader:
    """The conditions of ON or USING, then those of WHERE: the order in which their `?` are numbered."""
    reader = ConditionReader(scope)
    for join in select.args.get("joins") or []:
        if scope.using is not None:
            reader.read_using(join, scope.using)
        condition = join.args.get("on")
        if condition is not None and not _is_true(condition):
            reader.read(condition)
    where = select.args.get("where")
    if where is not None:
        reader.read(where.this)
    if len(scope.tables) == 2 and reader.on is None:
        names = " and ".join(scope.names)
        raise SqlError(names, "no condition joins the tables", f"accepted: USING (c), ON r.x = s.y, ON {_BANDS}")
    return reader


def _is_true(node: exp.Expr) -> bool:
    """JOIN without ON, which sqlglot reads as ON TRUE; the condition is in WHERE then."""
    return isinstance(node, exp.Boolean) and bool(node.this)

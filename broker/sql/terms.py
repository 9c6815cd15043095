"""One side of a comparison: columns and operands, each with its sign.

Reading a side as a sum makes the spellings of a band join one case. All of these move to the same
`s.b - r.b >= -5`::

    s.b - r.b >= -5        r.b - s.b <= 5        s.b >= r.b - 5        r.b <= s.b + 5
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from sqlglot import exp

from hullcast.broker.sql.bounds import Code, negated
from hullcast.broker.sql.encode import ENCODERS, Domain, Slot, Unfit
from hullcast.broker.sql.query import Ref
from hullcast.broker.sql.refusals import refuse_expression, refuse_time
from hullcast.broker.sql.scope import Scope
from hullcast.broker.sql.text import describe, refuse
from hullcast.network.wire.errors import SqlError

_OPERAND_HINT = "compare a column with a number, 'text', TIMESTAMP '..' or ?"
_SPELLINGS = {
    Domain.NUMBER: "a number",
    Domain.TEXT: "'text'",
    Domain.INSTANT: "TIMESTAMP '2024-05-01 12:30:00'",
    Domain.DURATION: "a number of seconds",
    Domain.DIFFERENCE: "a number",
}


@dataclass(frozen=True, slots=True)
class Given:
    """An operand known from the text."""

    code: Code


@dataclass(frozen=True, slots=True)
class Parameter:
    """An operand that is bound later."""

    index: int  # from 0, in the order of the text
    negated: bool


Operand = Given | Parameter


@dataclass(slots=True)
class Side:
    """The signed columns and operands that one side of a comparison adds up."""

    node: exp.Expr
    columns: list[tuple[int, Ref]] = field(default_factory=list)
    operands: list[tuple[int, exp.Expr | int]] = field(default_factory=list)  # a literal, or a `?` by index


class TermReader:
    """Reads sides in the order of the text, so that the n-th `?` met is the n-th parameter."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.slots: list[Slot | None] = []  # one per `?`, filled once its column is known

    def read(self, node: exp.Expr) -> Side:
        """Split a side into its terms. A loop, not recursion: the text may hold hundreds of signs."""
        side = Side(node)
        pending = [(1, node)]
        while pending:
            sign, term = pending.pop()
            match term:
                case exp.Paren():
                    pending.append((sign, term.this))
                case exp.Neg():
                    pending.append((-sign, term.this))
                case exp.Add():
                    pending += [(sign, term.expression), (sign, term.this)]
                case exp.Sub():
                    pending += [(-sign, term.expression), (sign, term.this)]
                case exp.Column():
                    side.columns.append((sign, self.scope.resolve(term)))
                case exp.Placeholder() if not any(term.args.values()):
                    side.operands.append((sign, len(self.slots)))
                    self.slots.append(None)
                case exp.Literal() | exp.Cast():
                    side.operands.append((sign, term))
                case _:
                    refuse_time(term, joined=len(self.scope.tables) > 1)
                    refuse_expression(term, _OPERAND_HINT)
        return side

    def operand(self, sign: int, term: exp.Expr | int, slot: Slot) -> Operand:
        """The operand as a value of the slot's domain."""
        if sign < 0 and slot.domain in (Domain.TEXT, Domain.INSTANT):
            part = "-?" if isinstance(term, int) else f"-{describe(term)}"
            raise SqlError(part, f"{slot.label} has no negative values", "leave out the minus sign")
        if isinstance(term, int):
            self.slots[term] = slot
            return Parameter(term, sign < 0)
        code = _literal(term, slot)
        return Given(negated(code) if sign < 0 else code)


def _literal(node: exp.Expr, slot: Slot) -> Code:
    """The code of a literal, if its spelling suits the column: '5' is not a number and 5 is not a text."""
    value = _value(node)
    suits = {
        Domain.NUMBER: isinstance(value, int | float),
        Domain.DURATION: isinstance(value, int | float),
        Domain.DIFFERENCE: isinstance(value, int | float),
        Domain.TEXT: isinstance(value, str),
        Domain.INSTANT: isinstance(value, str | datetime),
    }
    if not suits[slot.domain]:
        hint = f"write {_SPELLINGS[slot.domain]} or ?"
        refuse(node, f"{slot.label} cannot be compared with this", hint)
    try:
        return ENCODERS[slot.domain](value)
    except Unfit as error:
        refuse(node, f"{slot.label} {error}")


def _value(node: exp.Expr) -> int | float | str | datetime:
    if isinstance(node, exp.Cast):
        return _timestamp(node)
    text: str = node.name
    if node.is_string:
        return text
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        refuse(node, "it is not a number", _OPERAND_HINT)


def _timestamp(node: exp.Cast) -> datetime:
    """TIMESTAMP '..' and CAST('..' AS TIMESTAMP), which sqlglot reads alike."""
    kind = node.args.get("to")
    known = (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.DATETIME)
    if not isinstance(kind, exp.DataType) or kind.this not in known or kind.expressions:
        refuse(node, "only CAST(.. AS TIMESTAMP) is supported", _OPERAND_HINT)
    if not isinstance(node.this, exp.Literal) or not node.this.is_string:
        refuse(node, "only text can be cast to TIMESTAMP", "write TIMESTAMP '..' or ?")
    try:
        return datetime.fromisoformat(node.this.name)
    except ValueError:
        refuse(node, "the text is not an ISO-8601 timestamp", "write TIMESTAMP '2024-05-01 12:30:00'")

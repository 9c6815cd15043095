"""From parameter values to predicates, by a plan made when the query was parsed.

Everything the text alone decides is in the plan: the box that its literals leave, the encoder of each
placeholder, which edge each one moves. Binding one subscription is then a few tuple operations
(some microseconds, most of it making the two NumPy arrays); binding many is the same on columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import nextafter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hullcast.broker.scheduling.driver import finish
from hullcast.broker.sql.bounds import INFINITY, Code, Edge, edges_at, negated
from hullcast.broker.sql.encode import ENCODERS, CodeColumn, ParameterColumn, Slot, Unfit, encode_column
from hullcast.broker.sql.query import Predicates
from hullcast.broker.sql.terms import Given, Operand
from hullcast.broker.sql.unions import union, without
from hullcast.network.wire.arrays import Booleans
from hullcast.network.wire.errors import BadParameter

if TYPE_CHECKING:
    from hullcast.broker.scheduling.driver import Work

#: Alternatives bound in one slice, and about how long that takes if they overlap.
CUT_AT_ONCE = 128
CUT_COST_S = 0.004


@dataclass(frozen=True, slots=True)
class Binder:
    """The plan of one query. `low` and `high` are the box its literals leave; `edges` shrink it.

    `equalities` lists for each partition column the operands it must equal, at least one; several
    that differ make the predicate one that never holds. `excluded` lists operands that a dimension
    must not equal; `UnionBinder` cuts the box there. In the dimensions `nulls` -inf is the place of NULL.
    """

    slots: tuple[Slot, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    edges: tuple[Edge, ...]
    equalities: tuple[tuple[Operand, ...], ...]
    excluded: tuple[tuple[int, tuple[Operand, ...]], ...] = ()
    nulls: tuple[int, ...] = ()
    _encoders: tuple[Callable[[object], Code], ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_encoders", tuple(ENCODERS[slot.domain] for slot in self.slots))

    def bind(self, parameters: Sequence[object]) -> Predicates:
        """The predicate of one subscription."""
        codes = self.encode(parameters)
        low, high = list(self.low), list(self.high)
        for dimension, upper, strict, parameter, minus in self.edges:
            down, up = codes[parameter]
            if minus:
                down, up = 0.0 - up, 0.0 - down
            if upper:  # `edge_at`, written out: calls would double the time of a bind
                at = nextafter(up, -INFINITY) if strict else down
                if at < high[dimension]:
                    high[dimension] = at
            else:
                at = nextafter(down, INFINITY) if strict else up
                if at > low[dimension]:
                    low[dimension] = at
        partition, possible = self._values(codes) if self.equalities else ((), True)
        for dimension, edge in enumerate(low):
            if edge > high[dimension] or edge == INFINITY or high[dimension] == -INFINITY or not possible:
                low[dimension], high[dimension] = INFINITY, -INFINITY
        never = None if possible else np.ones(1, dtype=np.bool_)
        box = np.array((low, high), dtype=np.float64)
        return Predicates(box[:1], box[1:], partition, never)

    def binding(self, columns: Sequence[ParameterColumn], count: int = 1) -> Work:
        """`bind_many` for those who work in slices: it takes one."""
        yield from ()
        return self.bind_many(columns, count)

    def bind_many(self, columns: Sequence[ParameterColumn], count: int = 1) -> Predicates:
        """The predicates of n subscriptions, one column of values per parameter, n values each.

        A query without parameters has no column to tell n; `count` does.
        """
        codes, n = self.encode_columns(columns, count)
        return self.box(codes, n)

    def box(self, codes: Sequence[CodeColumn], n: int) -> Predicates:
        """The predicates of n subscriptions whose parameters have these codes."""
        low = np.tile(np.array(self.low, dtype=np.float64), (n, 1))
        high = np.tile(np.array(self.high, dtype=np.float64), (n, 1))
        for dimension, upper, strict, parameter, minus in self.edges:
            down, up = negated(codes[parameter]) if minus else codes[parameter]
            box, tighten = (high, np.minimum) if upper else (low, np.maximum)
            tighten(box[:, dimension], edges_at(down, up, upper, strict), out=box[:, dimension])
        partition, never = self._value_columns(codes, n)
        bottom = high == -INFINITY
        bottom[:, self.nulls] = False
        empty = (low > high) | (low == INFINITY) | bottom | never[:, None]
        low[empty], high[empty] = INFINITY, -INFINITY
        return Predicates(low, high, partition, never if never.any() else None)

    def encode(self, parameters: Sequence[object]) -> list[Code]:
        """The codes of the parameters of one subscription."""
        if len(parameters) != len(self.slots):
            raise self._wrong_count(len(parameters))
        codes: list[Code] = []
        try:
            for encode, value in zip(self._encoders, parameters, strict=True):
                codes.append(encode(value))
        except Unfit as error:
            raise BadParameter(len(codes) + 1, f"{self.slots[len(codes)].label} {error}") from None
        return codes

    def encode_columns(self, columns: Sequence[ParameterColumn], count: int) -> tuple[list[CodeColumn], int]:
        """The codes of columns of parameters, and how many there are of each."""
        if len(columns) != len(self.slots):
            raise self._wrong_count(len(columns))
        codes: list[CodeColumn] = []
        for position, values in enumerate(columns):
            if not _is_column(values):
                dimensions = getattr(values, "ndim", 1)
                got = type(values).__name__ if dimensions == 1 else f"{dimensions} dimensions"
                raise BadParameter(position + 1, f"needs a column of values (a list or an array), got {got}")
        n = len(columns[0]) if len(columns) else count
        for slot, values in zip(self.slots, columns, strict=True):
            if len(values) != n:
                raise BadParameter(
                    len(codes) + 1, f"{slot.label} has {len(values)} values, but the first parameter has {n}"
                )
            try:
                codes.append(encode_column(slot.domain, values))
            except Unfit as error:
                raise BadParameter(len(codes) + 1, f"{slot.label} {error}", error.row) from None
        return codes, n

    def _values(self, codes: list[Code]) -> tuple[tuple[list[object], ...], bool]:
        """The value of each partition column, and whether all its equalities can hold."""
        partition: list[list[object]] = []
        possible = True
        for operands in self.equalities:
            first, *others = (_code(operand, codes) for operand in operands)
            possible = possible and _is_value(first) and all(other == first for other in others)
            partition.append([first[0]])
        return tuple(partition), possible

    def _value_columns(self, codes: Sequence[CodeColumn], n: int) -> tuple[tuple[list[object], ...], Booleans]:
        """`_values` on columns, with where they can not hold."""
        partition: list[list[object]] = []
        never = np.zeros(n, dtype=np.bool_)
        for operands in self.equalities:
            first, *others = (_code_column(operand, codes, n) for operand in operands)
            for down, up in (first, *others):
                never |= (down != up) | (down != first[0])
            if first[0].dtype != object:
                never |= np.isinf(first[0])
            partition.append(first[0].tolist())
        return tuple(partition), never

    def _wrong_count(self, given: int) -> BadParameter:
        labels = f" ({', '.join(slot.label for slot in self.slots)})" if self.slots else ""
        parameters = "parameter" if len(self.slots) == 1 else "parameters"
        hint = "; pass the values one by one: subscribe(sql, *values)" if given == 1 < len(self.slots) else ""
        return BadParameter(0, f"the query takes {len(self.slots)} {parameters}{labels}, got {given}{hint}")


@dataclass(frozen=True, slots=True)
class UnionBinder:
    """The plan of a query that is a union of boxes: one `Binder` for each alternative, all of the same parameters."""

    alternatives: tuple[Binder, ...]

    @property
    def slots(self) -> tuple[Slot, ...]:
        """What each placeholder is compared with."""
        return self.alternatives[0].slots

    def bind(self, parameters: Sequence[object]) -> Predicates:
        """The predicate of one subscription."""
        codes = self.alternatives[0].encode(parameters)
        columns = [
            tuple(np.array([edge], object if isinstance(edge, str) else np.float64) for edge in code) for code in codes
        ]
        return self._union([(down, up) for down, up in columns], 1)

    def bind_many(self, columns: Sequence[ParameterColumn], count: int = 1) -> Predicates:
        """The predicates of n subscriptions, as `Binder.bind_many`."""
        predicates: Predicates = finish(self.binding(columns, count))
        return predicates

    def binding(self, columns: Sequence[ParameterColumn], count: int = 1) -> Work:
        """`bind_many` in slices: boxes that overlap are cut one subscription after the other."""
        codes, n = self.alternatives[0].encode_columns(columns, count)
        step, parts = max(1, CUT_AT_ONCE // len(self.alternatives)), []
        for start in range(0, max(n, 1), step):
            if start:
                yield CUT_COST_S
            some = slice(start, start + step)
            few = [(down[some], up[some]) for down, up in codes]
            parts.append(self._union(few, min(step, n - start)))
        return Predicates.joined(parts)

    def _union(self, codes: Sequence[CodeColumn], n: int) -> Predicates:
        lows, highs, partitions, nevers = [], [], [], []
        for binder in self.alternatives:
            found = binder.box(codes, n)
            low, high = found.low[:, np.newaxis], found.high[:, np.newaxis]
            for dimension, operands in binder.excluded:
                low, high = without(low, high, dimension, [_code_column(operand, codes, n) for operand in operands])
            boxes = low.shape[1]
            lows.append(low)
            highs.append(high)
            never = np.zeros(n, np.bool_) if found.never is None else found.never
            nevers.append(np.repeat(never[:, np.newaxis], boxes, axis=1))
            partitions.append([np.repeat(_objects(values)[:, np.newaxis], boxes, axis=1) for values in found.partition])
        columns = [np.concatenate(column, axis=1) for column in zip(*partitions, strict=True)]
        return union(
            np.concatenate(lows, axis=1), np.concatenate(highs, axis=1), columns, np.concatenate(nevers, axis=1)
        )


def _objects(values: list[object]) -> npt.NDArray[np.object_]:
    column = np.empty(len(values), object)
    column[:] = values
    return column


def _code(operand: Operand, codes: list[Code]) -> Code:
    if isinstance(operand, Given):
        return operand.code
    return negated(codes[operand.index]) if operand.negated else codes[operand.index]


def _code_column(operand: Operand, codes: Sequence[CodeColumn], n: int) -> CodeColumn:
    if isinstance(operand, Given):
        kind: Any = object if isinstance(operand.code[0], str) else np.float64
        return np.full(n, operand.code[0], dtype=kind), np.full(n, operand.code[1], dtype=kind)
    return negated(codes[operand.index]) if operand.negated else codes[operand.index]


def _is_value(code: Code) -> bool:
    """Whether a row can equal it: a text, or a number that is one finite float."""
    down, up = code
    return bool(down == up) and down not in (INFINITY, -INFINITY)


def _is_column(values: object) -> bool:
    """Whether something is values in an order: a text, a set, a mapping or one number is not, nor are masked values."""
    if isinstance(values, str | bytes | dict | set | frozenset | type) or np.ma.isMaskedArray(values):
        return False
    return hasattr(values, "__len__") and hasattr(values, "__getitem__") and getattr(values, "ndim", 1) == 1

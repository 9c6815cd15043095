"""Range COUNT, SUM and AVG: relaxed to the row's own change, since nearly every update in a range matters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from broker.messages import Messages
from broker.reformulate.boxes import Partitioned, Places
from broker.reformulate.channel import Floats, Ints, Opening, ScalarChannel, differs
from broker.schema import ColumnType
from broker.sql.query import Kind
from broker.values import decode_column
from network.answers.aggregate import (
    AVG,
    COUNT,
    EXACT_SUM,
    LOST_BITS,
    SUM,
    AggregateAnswers,
    exact_state,
    sums_in_boxes,
)

if TYPE_CHECKING:
    from broker.messages import Column
    from broker.sql.query import Predicates
    from broker.store import Updates
    from network.wire.columns import Columns

#: From so many predicates on, sorting the rows once is cheaper than looking at all of them each time.
WORTH_SORTING = 8


class AggregateChannel(Partitioned, ScalarChannel):
    """COUNT(*), COUNT(y), SUM(y) or AVG(y) over boxes. A count is the sum of ones."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        shape = opening.shape
        self.y = None if shape.y is None else shape.y.column
        whole = self.y is not None and self.tables[0].columns[self.y].type is ColumnType.INTEGER
        functions = {Kind.COUNT: COUNT, Kind.SUM: EXACT_SUM if whole else SUM, Kind.AVG: AVG}
        self.answers = AggregateAnswers(functions[shape.kind])
        self._old: tuple[Places, Floats]
        self._new: tuple[Places, Floats]

    def _side(self, cells: Floats, there: np.ndarray[Any, np.dtype[np.bool_]]) -> tuple[Places, Floats]:
        """Where rows lie, and what they count for."""
        y = np.where(there, 1.0, np.nan) if self.y is None else cells[self.y]
        if self.shape.kind is Kind.COUNT:
            y = np.where(np.isnan(y), np.nan, 1.0)
        return self.places([cells], there & ~np.isnan(y)), y

    def update(self, side: int, updates: Updates, first_seq: int) -> Messages:
        old, old_y = self._side(updates.old, updates.existed)
        new, new_y = self._side(updates.new, updates.exists)
        matters = old.there | new.there
        changed = (old.there != new.there) | (old_y != new_y)
        for before, after in zip(old.columns, new.columns, strict=True):
            changed |= differs(before, after)
        if old.partition is not None and new.partition is not None:
            changed |= differs(old.partition, new.partition)
        matters &= changed
        old, new = old.take(matters), new.take(matters)
        self._old, self._new = (old, old_y[matters]), (new, new_y[matters])
        n = len(self._old[1])
        self.count(n, np.array([len(updates) - n, n, 0]))
        at = np.flatnonzero(matters)
        texts = self.interner.texts
        sides = (("old", *self._old, updates.old), ("new", *self._new, updates.new))

        def columns() -> dict[str, Column]:
            named: dict[str, Column] = {}
            for prefix, places, y, cells in sides:
                for ref, column in zip(self.shape.ranges, places.columns, strict=True):
                    named[f"{prefix}.{self.column_name(ref)}"] = np.where(places.there, column, np.nan)
                for ref in self.shape.partition:
                    declared = self.tables[0].columns[ref.column]
                    values = decode_column(declared.type, cells[ref.column, at], texts)
                    named[f"{prefix}.{declared.name}"] = np.array(values, dtype=object)
                named[f"{prefix.upper()}_Y"] = np.where(places.there, y, np.nan)
            return named

        (old_places, was), (new_places, now) = self._old, self._new

        def wire() -> Columns:
            return {**old_places.wire("old", False), **new_places.wire("new", False), "old.y": was, "new.y": now}

        return Messages(self.name, at + first_seq, columns, wire)

    def tell(self, messages: Messages) -> None:
        if not len(self.audience) or not len(messages):
            return
        (old, old_y), (new, new_y) = self._old, self._new
        self._told += self.answers.hear(
            self.audience, old.queries(), new.queries(), messages.seqs, old_y, new_y, self._taken_anew
        )

    def first(self, predicates: Predicates) -> Columns:
        state = self._first(self.points(predicates), predicates)
        return {f"s{i}": np.ascontiguousarray(state[:, i]) for i in range(state.shape[1])}

    def _first(self, points: Floats, predicates: Predicates) -> Floats:
        state = self._states(points)
        if predicates.never is not None:
            state[predicates.never] = 0.0
        return state

    def admit(self, predicates: Predicates) -> Ints:
        points = self.points(predicates)
        state = self._first(points, predicates)
        ids = self.audience.admit(points, predicates.never)
        self.answers.start(ids, state)
        return ids

    def _taken_anew(self, listeners: Ints) -> Floats:
        return self._states(self.audience.index.points_of(listeners), exact=True)

    def _states(self, points: Floats, exact: bool = False) -> Floats:
        """The state of each predicate (as a point of the matching index) over the rows there are now.

        Where bits were lost, or `exact` is asked for, all bits of the rows are added up before rounding.
        """
        store = self.stores[0]
        slots = store.live_slots()
        places, y = self._side(store.cells[:, slots], np.ones(len(slots), np.bool_))
        y = np.where(places.there, y, np.nan)
        d = len(places.columns)
        columns, lows, highs = (
            list(places.columns),
            [points[:, 2 * i] for i in range(d)],
            [points[:, 2 * i + 1] for i in range(d)],
        )
        if places.partition is not None:
            columns.append(places.partition)
            lows.append(points[:, -1])
            highs.append(points[:, -1])
        table = np.array(columns).reshape(len(columns), len(slots))
        n = len(points)
        starts, stops = np.zeros(n, np.int64), np.full(n, len(slots))
        if n >= WORTH_SORTING and columns:
            order = np.argsort(table[0])
            table, y = table[:, order], y[order]
            starts, stops = np.searchsorted(table[0], lows[0]), np.searchsorted(table[0], highs[0], "right")
        state = np.zeros((n, 4))
        low, high = np.array(lows).reshape(len(columns), n).T, np.array(highs).reshape(len(columns), n).T
        sums_in_boxes(
            np.ascontiguousarray(table), y, np.ascontiguousarray(low), np.ascontiguousarray(high), starts, stops, state
        )
        doubted = range(n) if exact else np.flatnonzero(state[:, LOST_BITS]).tolist()
        for i in doubted:
            inside = ~np.isnan(y)
            for column, lower, upper in zip(table, low[i].tolist(), high[i].tolist(), strict=True):
                inside &= (lower <= column) & (column <= upper)
            state[i] = exact_state(y[inside].tolist())
        return state

    def memory_bytes(self) -> int:
        return super().memory_bytes() + self.answers.state.nbytes

    def answer(self, listener: int) -> Any:
        return self.read(*self.answers.answer(listener))

    def read(self, value: float, rest: float) -> Any:
        if np.isnan(value):
            return None
        if self.answers.function == COUNT:
            return int(value)
        return int(value) + int(rest) if self.answers.function == EXACT_SUM else value

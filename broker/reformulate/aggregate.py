"""Range COUNT, SUM and AVG: relaxed to the row's own change, since nearly every update in a range matters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.broker.reformulate.boxes import Partitioned, Places
from hullcast.broker.reformulate.channel import Floats, Ints, Opening, ScalarChannel, differs
from hullcast.broker.reformulate.first import Boxes, captured, states_in_boxes
from hullcast.broker.reformulate.messages import Messages
from hullcast.broker.sql.query import Kind
from hullcast.broker.tables.schema import ColumnType
from hullcast.broker.tables.values import decode_column
from hullcast.network.answers.aggregate import (
    AVG,
    COUNT,
    EXACT_SUM,
    STATE,
    SUM,
    AggregateAnswers,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.broker.reformulate.messages import Column
    from hullcast.broker.sql.query import Predicates
    from hullcast.broker.tables.store import Updates
    from hullcast.network.wire.columns import Columns


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

    def capture(self, predicates: Predicates) -> Callable[[], Columns]:
        states = self._captured(predicates)

        def first() -> Columns:
            state = states()
            return {name: np.ascontiguousarray(state[:, i]) for i, name in enumerate(STATE)}

        return first

    def _captured(self, predicates: Predicates) -> Callable[[], Floats]:
        """The states of predicates, from the rows as they are now."""
        columns = [ref.column for ref in (*self.shape.ranges, *self.shape.partition)]
        taken = captured(self.stores[0], {*columns, *([] if self.y is None else [self.y])})
        low, high = self.bounds(predicates)

        def states() -> Floats:
            live = taken.live()
            y = np.ones(int(taken.alive.sum())) if self.y is None else live[self.y]
            if self.shape.kind is Kind.COUNT:
                y = np.where(np.isnan(y), np.nan, 1.0)
            return states_in_boxes([live[c] for c in columns], y, Boxes.of(low, high, predicates.never))

        return states

    def admit(self, predicates: Predicates) -> Ints:
        points = self.points(predicates)
        state = self._captured(predicates)()
        ids = self.audience.admit(points, predicates.never)
        self.answers.start(ids, state)
        return ids

    def _taken_anew(self, listeners: Ints) -> Floats:
        """The states of listeners from the exact sums of the rows."""
        points = self.audience.index.points_of(listeners)
        d = len(self.shape.ranges)
        equal = self.codes_of(points[:, -1]) if self.shape.partition else []
        low, high = (np.column_stack((points[:, side : 2 * d : 2], *equal)) for side in (0, 1))
        store = self.stores[0]
        slots = store.live_slots()
        y = np.ones(len(slots)) if self.y is None else store.cells[self.y][slots]
        columns = [store.cells[ref.column][slots] for ref in (*self.shape.ranges, *self.shape.partition)]
        return states_in_boxes(columns, y, Boxes.of(low, high), exact=True)

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

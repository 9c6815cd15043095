"""A window over a stream as a table of its own, which nobody sees: what channels over the window read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.tables.ingest import Encoded
from hullcast.broker.tables.schema import Column, ColumnType
from hullcast.broker.tables.store import TableStore
from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from hullcast.broker.sql.query import Window
    from hullcast.broker.tables.store import Updates
    from hullcast.broker.tables.stream import StreamOrder
    from hullcast.network.wire.arrays import Floats

#: No tuple has this key.
NOBODY_HERE = -1.0


class WindowTable:
    """The tuples of a window, in a store.

    They are the last `len` of the stream, always (W1). Of a ROWS window the key is the tuple's number modulo the size
    of the window, so the tuple that comes takes the place of the one that goes, in one update::

        [ROWS 3]  key    0  1  2        tuple 7 comes:   0  1  2
                  tuple  6  4  5                         6  7  5

    Of a RANGE window the key is the position; tuples enter with the number of their own update, and those that are too
    old leave by updates of their own (`expire`), after the batch or heartbeat that moved the time.
    What the stream no longer retains leaves its windows too.
    """

    def __init__(self, stream: TableStore, order: StreamOrder, window: Window, name: str) -> None:
        self.window, self._order = window, order
        table = stream.table
        if window.rows is not None:
            ordinal = Column("ORDINAL", ColumnType.INTEGER, not_null=True)
            table = replace(table, columns=(*table.columns, ordinal), key=len(table.columns))
        self.store = TableStore(replace(table, name=name, stream=None))
        self._next = 0  # the number of the tuple that comes next
        self._held = 0
        self._load(stream)

    @property
    def name(self) -> str:
        """As channels call it."""
        return self.store.table.name

    def __len__(self) -> int:
        """How many tuples it holds."""
        return self._held

    def _load(self, stream: TableStore) -> None:
        held = self._due
        live = stream.live_slots()
        slots = live[np.argsort(stream.cells[stream.table.key, live])][len(live) - held :]
        self.append(stream.cells[:, slots])

    @property
    def _due(self) -> int:
        """How many tuples belong to the window now."""
        if self.window.rows is not None:
            return min(self.window.rows, len(self._order))
        return self._order.since(self._order.time - self.window.range_us) if len(self._order) else 0

    def append(self, cells: Floats) -> Updates:
        """Tuples came to the stream, (columns, n)."""
        n = cells.shape[1]
        if self.window.rows is not None:
            ordinals = np.arange(self._next, self._next + n) % self.window.rows
            cells = np.vstack((cells, ordinals))
            self._next += n
            self._held = min(self._held + n, self.window.rows)
        else:
            self._held += n
        return self.store.apply(Encoded(cells, partial=False))

    def remove(self, positions: Floats) -> Updates:
        """The stream no longer retains its oldest tuples, which were at these positions: an update for each, whether it
        is in the window or not."""
        leaving = max(0, self._held - len(self._order))
        keys = positions
        if self.window.rows is not None:
            keys = np.full(len(positions), NOBODY_HERE)
            oldest = self._next - self._held
            keys[len(keys) - leaving :] = np.arange(oldest, oldest + leaving) % self.window.rows
        self._held -= leaving
        return self.store.remove(keys)

    @property
    def overdue(self) -> bool:
        """Whether tuples have become too old."""
        return self.window.rows is None and self._held > self._due

    def expire(self) -> Updates:
        """Tuples that have become too old leave, oldest first."""
        due = self._due
        positions = self._order.positions[len(self._order) - self._held :][: self._held - due]
        self._held = due
        return self.store.remove(positions.astype(np.float64))

    def check(self) -> None:
        """InvariantBroken unless W1 holds."""
        self.store.check()
        found = np.sort(self.store.cells[self._key_of_tuples, self.store.live_slots()])
        if not np.array_equal(found, self._order.positions[len(self._order) - self._held :]):
            raise InvariantBroken(f"W1: {self.name} does not hold the last tuples")

    @property
    def _key_of_tuples(self) -> int:
        """The column POSITION."""
        return self.store.table.key - (self.window.rows is not None)

"""A window over a stream as a table of its own, which nobody sees: what channels over the window read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.tables.room import SMALLEST, with_room
from hullcast.broker.tables.store import TableStore, Updates, erase, row_bytes
from hullcast.network.compiled import kernel
from hullcast.network.wire.arrays import Booleans, Floats, Ints
from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from hullcast.broker.sql.query import Window
    from hullcast.broker.tables.ingest import Encoded
    from hullcast.broker.tables.stream import StreamOrder

#: Tuples that a window takes in, or lets go of because of their age, in one go: a millisecond or two.
MOVED_AT_ONCE = 2048


class WindowTable(TableStore):
    """The tuples of a window: a store whose rows come and go in order, and so without a hash table of their keys.

    `_queue` has the slots of the tuples that are here, in the order of the stream, up to `_next`. Of a full ROWS window
    the tuple that comes takes the slot of the one that goes, in one update::

        [ROWS 3]  slot    0  1  2   queue .. 1  2  0        tuple 7 comes:   0  1  2   queue .. 1  2  0  1
                  tuple   6  4  5            4  5  6                         6  7  5               5  6  7

    Of a RANGE window tuples enter with the number of their own update, and those that are too old leave by updates of
    their own (`expire`), some at a time, after the batch or heartbeat that moved the time. What the stream no longer
    retains leaves its windows too.

    A window is filled from its newest tuple back (`load`), some at a time, while the stream goes on: tuples that come
    are appended, tuples that go are removed, and what is here is always the end of the stream.

    Invariants (`check` tests them):
      W1  The tuples here are the last `len` of the stream.
      W2  Once it is loaded, all tuples that belong to the window are here; if none is overdue, no others.
      W3  Slots are alive exactly if a tuple here has them; the others that were used are free.

    Cost: O(columns) a tuple, compiled.
    """

    def __init__(self, stream: TableStore, order: StreamOrder, window: Window, name: str) -> None:
        """An empty one: `load` must follow."""
        super().__init__(replace(stream.table, name=name, stream=None))
        self.window, self._stream, self._order = window, stream, order
        self.holders = 0  # who is loading it, or about to read it
        self.loaded = False
        self._held = 0
        self._next = self._due  # in front of it is room for those that are to be loaded
        self._queue: Ints = with_room(np.empty(0, np.int64), self._next)

    @property
    def name(self) -> str:
        """As channels call it."""
        return self.table.name

    def __len__(self) -> int:
        """How many tuples it holds."""
        return self._held

    @property
    def _due(self) -> int:
        return due(self.window, self._order)

    # --- tuples come ---------------------------------------------------------------------------------------

    def load(self) -> bool:
        """Take in some of the tuples that are missing; returns whether it has them all."""
        n = 0 if self.loaded else min(MOVED_AT_ONCE, self._due - self._held)
        if n > 0:
            end = len(self._order) - self._held
            found = self._stream.slots_of(self._order.positions[end - n : end].astype(np.float64))
            slots = self._queue[self._first - n : self._first]
            slots[:] = self._allocate(n)
            self._enter(slots.copy(), self._stream.cells[:, found])
            self._held += n
        self.loaded = self.loaded or self._held >= self._due
        return self.loaded

    def append(self, cells: Floats) -> Updates:
        """Tuples came to the stream, (columns, n)."""
        n, rows = cells.shape[1], self.window.rows
        held = self._held + n if rows is None else min(self._held + n, rows)
        self._make_room(n)
        fresh = self._allocate(held - self._held)
        self._queue[self._next : self._next + len(fresh)] = fresh
        at = np.arange(self._held, self._held + n)
        slots = self._queue[self._first + (at if rows is None else at % rows)]
        self._queue[self._next : self._next + n] = slots
        self._next += n
        self._held = held
        return self._enter(slots, cells)

    def apply(self, encoded: Encoded) -> Updates:
        """`append`."""
        return self.append(encoded.cells)

    def move(self, n: int, by: int) -> None:
        """The last n tuples that were appended have positions that are so many later."""
        self.cells[self.table.key, self._queue[self._next - min(n, self._held) : self._next]] += by

    def _enter(self, slots: Ints, cells: Floats) -> Updates:
        given = np.ascontiguousarray(cells)
        n = given.shape[1]
        existed, old = np.empty(n, np.bool_), np.empty(given.shape)
        _enter(self.cells, self.alive, slots, given, existed, old)
        return Updates(slots, existed, np.ones(n, np.bool_), old, given)

    # --- tuples go -----------------------------------------------------------------------------------------

    def remove(self, key_codes: Floats) -> Updates:
        """The stream no longer retains its oldest tuples, which were at these positions: an update for each, whether it
        is in the window or not."""
        leaving = max(0, self._held - len(self._order))
        slots = np.full(len(key_codes), -1)
        slots[len(slots) - leaving :] = self._queue[self._first : self._first + leaving]
        return self._leave(slots, leaving)

    @property
    def overdue(self) -> bool:
        """Whether tuples have become too old."""
        return self.window.rows is None and self._held > self._due

    def expire(self) -> Updates:
        """Some of the tuples that have become too old leave, oldest first."""
        leaving = min(MOVED_AT_ONCE, self._held - self._due)
        return self._leave(self._queue[self._first : self._first + leaving].copy(), leaving)

    def _leave(self, slots: Ints, leaving: int) -> Updates:
        n, columns = len(slots), len(self.table.columns)
        existed, old, new = np.empty(n, np.bool_), np.empty((columns, n)), np.empty((columns, n))
        erase(self.cells, self.alive, slots, existed, old, new)
        self._held -= leaving
        self._free.extend(slots[existed].tolist())
        return Updates(slots, existed, np.zeros(n, np.bool_), old, new)

    # --- slots ---------------------------------------------------------------------------------------------

    @property
    def _first(self) -> int:
        """Where the oldest tuple is in the queue."""
        return self._next - self._held

    def slots_of(self, key_codes: Floats) -> Ints:
        """The slots of tuples by position; all of them are there."""
        at = np.searchsorted(self._order.positions, key_codes)
        return self._queue[at - len(self._order) + self._next]

    def _make_room(self, more: int) -> None:
        """In the queue, for so many."""
        if self.loaded and self._first > self._held + SMALLEST:  # more have gone than are here: these take their places
            self._queue[: self._held] = self._queue[self._first : self._next]
            self._next = self._held
        self._queue = with_room(self._queue, self._next + more)

    @property
    def promised_bytes(self) -> int:
        """What it takes, or will take when it has as many tuples as it may have, if it says how many these are."""
        tuples = max(self._high_water, self._due if self.window.rows is None else self.window.rows)
        return row_bytes(self.table) * tuples

    def memory_bytes(self) -> int:
        """About what it holds, in bytes."""
        return row_bytes(self.table) * self._high_water + 8 * self._next + 32 * len(self._free)

    def check(self) -> None:
        """InvariantBroken unless W1 to W3 hold."""
        slots = self._queue[self._first : self._next]
        if not np.array_equal(np.sort(slots), self.live_slots()):
            raise InvariantBroken(f"W3: {self.name}: slots and tuples do not match")
        if sorted(slots.tolist() + self._free) != list(range(self._high_water)):
            raise InvariantBroken(f"W3: {self.name}: slots that were used are neither taken nor free")
        found = self.cells[self.table.key, slots]
        if not np.array_equal(found, self._order.positions[len(self._order) - self._held :]):
            raise InvariantBroken(f"W1: {self.name} does not hold the last tuples")
        if self.loaded and (self._held < self._due or (self._held > self._due and not self.overdue)):
            raise InvariantBroken(f"W2: {self.name} holds {self._held} tuples of {self._due}")


def due(window: Window, order: StreamOrder) -> int:
    """How many tuples of a stream belong to a window now."""
    if window.rows is not None:
        return min(window.rows, len(order))
    return order.since(order.time - window.range_us) if len(order) else 0


@kernel
def _enter(cells: Floats, alive: Booleans, slots: Ints, given: Floats, existed: Booleans, old: Floats) -> None:
    """Write tuples in order; in order, because in a batch longer than its window a slot occurs again. A slot that is
    not alive may hold anything."""
    for i in range(len(slots)):
        existed[i] = alive[slots[i]]
        alive[slots[i]] = True
    for column in range(cells.shape[0]):
        for i in range(len(slots)):
            old[column, i] = cells[column, slots[i]] if existed[i] else np.nan
            cells[column, slots[i]] = given[column, i]

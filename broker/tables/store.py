"""The current rows of one table, as columns of codes."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.tables.ingest import KEEP, Encoded
from hullcast.broker.tables.keys import KeyMap, find
from hullcast.broker.tables.room import SMALLEST, with_room
from hullcast.broker.tables.schema import Table
from hullcast.network.compiled import kernel
from hullcast.network.wire.arrays import Booleans, Floats, Ints
from hullcast.network.wire.errors import BadValue, InvariantBroken

if TYPE_CHECKING:
    from hullcast.broker.tables.stream import StreamOrder


@dataclass(slots=True, weakref_slot=True, eq=False)  # not frozen: that would take half a microsecond for each row
class Updates:
    """What a batch did, one entry per row of the batch, in its order. Nobody changes it later.

    `old` and `new` have shape (columns, n); NaN throughout where the row did not exist before, or does not
    after. A key that occurs twice in a batch finds the first occurrence's `new` as its second `old`.
    Removing an absent key is an entry with neither, and slot -1.
    """

    slots: Ints
    existed: Booleans
    exists: Booleans
    old: Floats
    new: Floats

    def __len__(self) -> int:
        """The number of updates."""
        return len(self.slots)


class TableStore:
    """Rows live in slots: columns of `cells`, found by the code of their key.

        slot     0     1     2     3        capacity 4, high water 3
        key      A     -     C     .        keys A: 0, C: 2
        PER     3.0   NaN   7.0   NaN       _free [1]; slot 3 was never used
        alive    x           x

    A row keeps its slot as long as it lives. A freed slot is given out again at the earliest by the next
    batch, so within one `Updates` a slot means one row.

    Invariants (`check` tests them; every property test calls it after every step):
      S1  `_keys` maps the key codes of the live rows, and only those, to their slots.
      S2  a used slot that is not alive holds NaN in every column (so an absent row's `old` needs no branch).
      S3  live slots and `_free` divide 0.._high_water-1 without overlap.
      S4  no cell is infinite (KEEP was resolved), and no live row has NULL in a NOT NULL column or the key.

    Cost: `apply` and `remove` one hash lookup and O(columns) a row, compiled; to grow takes no longer (`room.py`).
    """

    def __init__(self, table: Table, created: int = 0) -> None:
        """An empty table. Updates up to `created` were made before it was, perhaps to another table of its name."""
        self.table, self.created = table, created
        self.cells: Floats = np.zeros((len(table.columns), SMALLEST))  # of unused slots: anything
        self.alive: Booleans = np.zeros(SMALLEST, dtype=np.bool_)
        self._keys = KeyMap()
        self._free: list[int] = []
        self._high_water = 0
        self.order: StreamOrder | None = None  # of a stream
        self._required = [
            position for position, column in enumerate(table.columns) if column.not_null and position != table.key
        ]

    def __len__(self) -> int:
        """The number of live rows."""
        return len(self._keys)

    def apply(self, encoded: Encoded) -> Updates:
        """Insert or change rows in order; BadValue before any change if a new row lacks a NOT NULL column."""
        given = np.ascontiguousarray(encoded.cells)
        shape = given.shape
        slots = np.empty(shape[1], np.int64)
        existed, exists = np.empty(shape[1], np.bool_), np.empty(shape[1], np.bool_)
        old, new = np.empty(shape), np.empty(shape)
        if not _change(
            self._keys.table, self.table.key, self.cells, self.alive, slots, given, existed, exists, old, new
        ):
            slots = self._admit(encoded, slots)
            _write(self.cells, self.alive, slots, given, existed, exists, old, new)
        return Updates(slots, existed, exists, old, new)

    def remove(self, key_codes: Floats) -> Updates:
        """Delete rows by key, in order; an absent key is an update that changes nothing."""
        n = len(key_codes)
        slots = self._keys.remove(np.ascontiguousarray(key_codes))
        existed = np.empty(n, np.bool_)
        old = np.empty((len(self.table.columns), n))
        new = np.empty((len(self.table.columns), n))
        erase(self.cells, self.alive, slots, existed, old, new)
        self._free.extend(slots[existed].tolist())
        return Updates(slots, existed, np.zeros(n, np.bool_), old, new)

    def slots_of(self, key_codes: Floats) -> Ints:
        """The slots of rows by key; all of them are there."""
        return self._keys.find(np.ascontiguousarray(key_codes))

    def live_slots(self) -> Ints:
        """The slots of all rows, ascending."""
        return np.flatnonzero(self.alive[: self._high_water])

    @property
    def high_water(self) -> int:
        """All slots ever used are below this."""
        return self._high_water

    def memory_bytes(self) -> int:
        """About what the store holds, in bytes."""
        arrays = row_bytes(self.table) * self._high_water
        return arrays + self._keys.memory_bytes() + sys.getsizeof(self._free) + 32 * len(self._free)

    def check(self) -> None:
        """InvariantBroken unless S1 to S4 hold."""
        live = self.live_slots()
        keys = self.cells[self.table.key, live]
        self._keys.check()
        if not np.array_equal(self._keys.find(keys), live) or len(live) != len(self):
            raise InvariantBroken("S1: keys and live slots do not match")
        used = self.cells[:, : self._high_water]
        if not np.isnan(used[:, ~self.alive[: self._high_water]]).all():
            raise InvariantBroken("S2: a dead slot holds a value")
        if sorted(live.tolist() + self._free) != list(range(self._high_water)):
            raise InvariantBroken("S3: live and free slots do not divide the used ones")
        required = self.cells[:, live][[*self._required, self.table.key]]
        if np.isinf(used).any() or np.isnan(required).any():
            raise InvariantBroken("S4: a KEEP or a forbidden NULL was stored")

    def _admit(self, encoded: Encoded, found: Ints) -> Ints:
        """The slot of each row, given those `found`: new keys get one. Refuses before anything changed."""
        codes = np.ascontiguousarray(encoded.cells[self.table.key])
        missing = np.flatnonzero(found < 0)
        self._refuse_incomplete(encoded, missing)
        fresh = self._allocate(len(missing))  # too many, if a new key occurs more than once
        slots, taken = self._keys.assign(codes, np.array(fresh, np.int64))
        self._free.extend(fresh[taken:])
        return slots

    def check_complete(self, encoded: Encoded) -> None:
        """BadValue if `apply` would refuse these rows."""
        if encoded.partial and self._required:
            self._refuse_incomplete(encoded, np.flatnonzero(self.slots_of(encoded.cells[self.table.key]) < 0))

    def _refuse_incomplete(self, encoded: Encoded, missing: Ints) -> None:
        """BadValue for the first of these rows, whose keys are new, that leaves out a NOT NULL column."""
        if not encoded.partial or not self._required:
            return
        given = encoded.cells
        _, first = np.unique(given[self.table.key, missing], return_index=True)  # later occurrences are not new rows
        new_rows = np.sort(missing[first])
        lacking = given[self._required][:, new_rows] == KEEP
        if lacking.any():
            at = int(np.argmax(lacking.any(axis=0)))
            column = self.table.columns[self._required[int(np.argmax(lacking[:, at]))]]
            reason = "a new row needs a value here (NOT NULL)"
            raise BadValue(self.table.name, int(new_rows[at]), column.name, reason)

    def _allocate(self, count: int) -> list[int]:
        """Slots for new rows: freed ones first, latest first (they are warm in the cache)."""
        left = max(0, len(self._free) - count)
        slots = self._free[left:][::-1]
        del self._free[left:]
        if len(slots) < count:
            start, end = self._high_water, self._high_water + count - len(slots)
            slots.extend(range(start, end))
            self.cells, self.alive = with_room(self.cells, end), with_room(self.alive, end)
            self.cells[:, start:end] = np.nan
            self._high_water = end
        return slots


def row_bytes(table: Table) -> int:
    """What a row takes in a store, without its key's place."""
    return 8 * len(table.columns) + 1


@kernel
def _change(
    keys: Ints,
    key: int,
    cells: Floats,
    alive: Booleans,
    slots: Ints,
    given: Floats,
    existed: Booleans,
    exists: Booleans,
    old: Floats,
    new: Floats,
) -> bool:
    """Find the slots of rows, and write these if all have one, as most updates do: one call. Else False."""
    if not find(keys, given[key].view(np.int64), slots):
        return False
    _write(cells, alive, slots, given, existed, exists, old, new)
    return True


@kernel
def _write(
    cells: Floats,
    alive: Booleans,
    slots: Ints,
    given: Floats,
    existed: Booleans,
    exists: Booleans,
    old: Floats,
    new: Floats,
) -> None:
    """Write rows in order; in order, because a slot that occurs again must find what was written before."""
    for i in range(len(slots)):
        existed[i] = alive[slots[i]]
        exists[i] = True
        alive[slots[i]] = True
    for column in range(cells.shape[0]):
        for i in range(len(slots)):
            before = cells[column, slots[i]]  # NaN for a new row, by S2
            value = given[column, i]
            if value == -np.inf:  # KEEP
                value = before
            old[column, i] = before
            new[column, i] = value
            cells[column, slots[i]] = value


@kernel
def erase(
    cells: Floats,
    alive: Booleans,
    slots: Ints,
    existed: Booleans,
    old: Floats,
    new: Floats,
) -> None:
    """Empty slots (-1: there is none), each of which occurs once."""
    for i in range(len(slots)):
        existed[i] = slots[i] >= 0
        if existed[i]:
            alive[slots[i]] = False
    for column in range(cells.shape[0]):
        for i in range(len(slots)):
            old[column, i] = new[column, i] = np.nan
            if existed[i]:
                old[column, i] = cells[column, slots[i]]
                cells[column, slots[i]] = np.nan

"""The change feed: what changed, kept once, and read by any number of followers at their own pace.

A batch enters the feed as it is (its `Updates`: slots, rows before and after) with its table and sequence numbers; no
row is copied. Followers read it from where they are: copies of tables, checkpoints, whatever else must know what
changed without being part of the push path.

    changes   [ STOCK 1..40 ][ QUOTE 41 ][ STOCK 42..90 ]
                    ^                          ^
                    a slow follower            a quick one          position = how many changes were ever passed

The feed is bounded. When it is full the oldest changes are let go, and a follower that had not read them gets `Behind`
once: it takes the rows as they are now (`TableCopy`) and reads on from here. Followers that keep the latest state of
each row lose nothing by that. Without followers nothing is kept. A `ChangeTally` holds up nothing: it only counts.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.tables.schema import ColumnType, Table, fold
from hullcast.network.wire.arrays import distinct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hullcast.broker.tables.store import TableStore, Updates
    from hullcast.network.wire.arrays import Booleans, Floats, Ints

#: What may wait for the slowest follower.
LIMIT_BYTES = 64 << 20
#: What a change takes beyond its arrays; counted, or a million single rows would go unnoticed.
OVERHEAD_BYTES = 1200


class TableChange(NamedTuple):
    """What one batch did to one table; row i of it has the sequence number first_seq + i."""

    store: TableStore
    first_seq: int
    updates: Updates

    @property
    def last_seq(self) -> int:
        """The sequence number of its last update."""
        return self.first_seq + len(self.updates) - 1

    @property
    def size_bytes(self) -> int:
        """About what it holds."""
        u = self.updates
        return OVERHEAD_BYTES + u.slots.nbytes + u.existed.nbytes + u.exists.nbytes + u.old.nbytes + u.new.nbytes


class Behind(Exception):
    """Changes were let go before this follower had read them: it must take the rows as they are."""


class Follower:
    """One reader of the feed, of the tables it names. `close` it, or it holds changes for ever (up to the limit)."""

    def __init__(self, feed: ChangeFeed, name: str) -> None:
        self.name = name
        self._feed = feed
        self._tables: set[str] = set()
        self._position = feed.end

    @property
    def pending(self) -> int:
        """Changes not read yet, of all tables."""
        return self._feed.end - max(self._position, self._feed.start)

    def add(self, table: Table) -> None:
        """Follow one more table, from now on (or from a little earlier)."""
        self._tables.add(fold(table.name))
        self._feed.follow(self._tables)

    def drop(self, table: Table) -> None:
        """Follow a table no longer."""
        self._tables.discard(fold(table.name))
        self._feed.unfollow()

    def read(self, rows: int) -> list[TableChange]:
        """The next changes, at least one if there is any, about `rows` rows in all; Behind if some were missed."""
        feed = self._feed
        if self._position < feed.start:
            self._position = feed.end
            feed.trim()
            raise Behind
        found: list[TableChange] = []
        while self._position < feed.end and rows > 0:
            change = feed.at(self._position)
            self._position += 1
            if fold(change.store.table.name) in self._tables:
                found.append(change)
                rows -= len(change.updates)
        feed.trim()
        return found

    @property
    def position(self) -> int:
        """How many changes it has passed."""
        return self._position

    def close(self) -> None:
        """Read no more."""
        self._tables.clear()
        self._feed.leave(self)


class ChangeTally:
    """A follower that only counts: which tables changed, from where to where. It holds no rows, and is never behind."""

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self._noted: deque[tuple[TableStore, int, int]] = deque()  # first and last sequence number

    def note(self, store: TableStore, first_seq: int, updates: int) -> None:
        """A batch was applied."""
        self._noted.append((store, first_seq, first_seq + updates - 1))

    def take(self, through: int) -> tuple[int, dict[TableStore, tuple[int, int, int]]]:
        """What was noted up to a sequence number and not taken yet: first, last and number of updates by table. Whole
        batches only; also up to where that is everything, which may be before `through`."""
        found: dict[TableStore, tuple[int, int, int]] = {}
        while self._noted and self._noted[0][2] <= through:
            store, first, last = self._noted.popleft()
            before = found.get(store, (first, 0, 0))
            found[store] = (before[0], last, before[2] + last - first + 1)
        return (min(through, self._noted[0][1] - 1) if self._noted else through), found

    def close(self) -> None:
        """Count no more."""
        self._feed.tallies.remove(self)


class ChangeFeed:
    """The changes that some follower has not read, in order.

    Invariants:
      F1  Changes `start` to `end` - 1 are here; every follower has passed `start`, or is behind.
      F2  `size_bytes` is the sum over what is here, and at most the limit (one change may exceed it, and is let go).
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.start = self.end = 0
        self.size_bytes = 0
        self.let_go = 0  # changes that a follower had not read
        self._changes: deque[TableChange] = deque()
        self._followers: list[Follower] = []
        self._followed: set[str] = set()
        self.tallies: list[ChangeTally] = []

    def __len__(self) -> int:
        return len(self._changes)

    def follower(self, name: str) -> Follower:
        """A reader that follows no table yet."""
        follower = Follower(self, name)
        self._followers.append(follower)
        return follower

    def tally(self) -> ChangeTally:
        """A follower of all tables that only counts, from now on."""
        self.tallies.append(ChangeTally(self))
        return self.tallies[-1]

    def follow(self, tables: Iterable[str]) -> None:
        """Some follower wants these (folded names)."""
        self._followed.update(tables)

    def unfollow(self) -> None:
        """Some follower wants fewer."""
        self._followed = {table for follower in self._followers for table in follower._tables}

    def leave(self, follower: Follower) -> None:
        """A follower is gone."""
        if follower in self._followers:
            self._followers.remove(follower)
        self.unfollow()
        self.trim()

    def append(self, store: TableStore, first_seq: int, updates: Updates) -> None:
        """Take in what a batch did."""
        for tally in self.tallies if len(updates) else ():
            tally.note(store, first_seq, len(updates))
        if fold(store.table.name) not in self._followed or not len(updates):
            return
        change = TableChange(store, first_seq, updates)
        self._changes.append(change)
        self.end += 1
        self.size_bytes += change.size_bytes
        while self.size_bytes > self.limit_bytes:
            self._drop()
            self.let_go += 1

    def at(self, position: int) -> TableChange:
        """The change at a position that is still here."""
        return self._changes[position - self.start]

    def trim(self) -> None:
        """Let go of what everybody has read."""
        needed = min((follower.position for follower in self._followers), default=self.end)
        while self.start < min(needed, self.end):
            self._drop()

    def live_codes(self) -> Floats:
        """Codes of texts in the changes: these must not be given to other texts yet."""
        live = [np.empty(0)]
        for change in self._changes:
            for position, column in enumerate(change.store.table.columns):
                if column.type is ColumnType.TEXT:
                    live += (change.updates.old[position], change.updates.new[position])
        return np.concatenate(live)

    def _drop(self) -> None:
        self.size_bytes -= self._changes.popleft().size_bytes
        self.start += 1


class SlotRows(NamedTuple):
    """The rows in some slots as they are: `cells` (columns, n) of those alive, in the order of `slots[alive]`."""

    slots: Ints
    alive: Booleans
    cells: Floats


def rows_in(store: TableStore, slots: Ints) -> SlotRows:
    """The rows in these slots now."""
    alive = store.alive[slots]
    return SlotRows(slots, alive, store.cells[:, slots[alive]])


class TableCopy:
    """One table as a follower that keeps the latest state of each row reads it: some rows at a time.

    It begins with all slots, in portions; then come those that changed. Rows change between two portions; since a row
    is given as it is, and every change of it is given again later, the copy is right as soon as nothing is left:
    after the last `portion` it equals the table at that very moment.
    """

    def __init__(self, store: TableStore) -> None:
        self.store = store
        self._scanned = 0  # slots below are in the copy, as they were then
        self._changed: list[Ints] = []
        self._waiting = 0

    @property
    def left(self) -> int:
        """About how many rows are still to be read."""
        return max(0, self.store.high_water - self._scanned) + self._waiting

    def note(self, change: TableChange) -> None:
        """The follower has read a change of this table."""
        slots = change.updates.slots
        self._changed.append(slots[(slots >= 0) & (slots < self._scanned)])  # the scan will find the others
        self._waiting += len(self._changed[-1])

    def restart(self) -> None:
        """The follower is behind: read all slots again."""
        self._scanned = 0
        self._changed.clear()
        self._waiting = 0

    def portion(self, rows: int) -> SlotRows | None:
        """Some rows that the copy does not have yet, or has as they were; None when there is none."""
        high_water = self.store.high_water
        if self._scanned < high_water:
            slots = np.arange(self._scanned, min(high_water, self._scanned + rows))
            self._scanned = int(slots[-1]) + 1
            return rows_in(self.store, slots)
        if not self._waiting:
            return None
        changed = distinct(np.concatenate(self._changed), high_water)
        self._changed, self._waiting = [], 0
        if len(changed) > rows:
            changed, later = changed[:rows], changed[rows:]
            self._changed, self._waiting = [later], len(later)
        return rows_in(self.store, changed)


def note_changes(follower: Follower, copies: Mapping[str, TableCopy]) -> bool:
    """Let copies (by folded name) know what changed since the follower last read; returns whether it was behind, and
    all of them begin again."""
    try:
        changes = follower.read(1 << 62)
    except Behind:
        for copy in copies.values():
            copy.restart()
        return True
    for change in changes:
        followed = copies.get(fold(change.store.table.name))
        if followed is not None and followed.store is change.store:
            followed.note(change)
    return False

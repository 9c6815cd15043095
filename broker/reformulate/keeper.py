"""Keeps an A2B-tree in step with a table: which columns are its x, its y and its groups."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.index.a2b import A2BTree
from hullcast.broker.index.grouping import Grouping
from hullcast.broker.reformulate.kernel import FIELDS, reformulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.broker.tables.store import TableStore, Updates
    from hullcast.network.wire.arrays import Booleans, Floats, Ints

ROOM = 3  # messages an update that there is room for; the kernel doubles it when that is not enough
LARGE = 100_000  # .. for no more updates than these
SWEPT_ROWS = 1 << 14  # rows whose groups are looked at behind a batch, while unused ones are looked for
ONE_GROUP: Floats = np.empty(0)


class TreeKeeper:
    """An A2B-tree over one table, shared by the channels that need the same one.

    `x` is the range column (None: every row has x = 0), `y` the aggregated one (None: y = 0, the tree only tells
    who is there), `groups` the columns that divide the rows. `null_group` lets NULL be a group of its own
    (DISTINCT lists NULL as a value; an equality conjunct never holds for it).
    """

    def __init__(self, x: int | None, y: int | None, groups: tuple[int, ...], null_group: int | None = None) -> None:
        self.x, self.y, self.groups, self.null_group = x, y, groups, null_group
        self.tree = A2BTree()
        self.grouping = Grouping(len(groups))
        self.wanted = 0  # 1 for MIN, 2 for MAX, 3 for both
        self.askers: list[Callable[[], Floats]] = []  # groups that subscriptions name by number
        self._loaded: int | None = None  # slots below are in the tree; None: all
        self._looked_at = 0  # slots below were, in the sweep under way
        self._latest: weakref.ref[Updates] | None = None  # weak: a batch is not kept for this
        self._messages: Floats = np.empty((0, FIELDS))
        self._tally: Ints = np.zeros(6, np.int64)

    @property
    def loaded(self) -> bool:
        """Whether all rows of the table are in the tree."""
        return self._loaded is None

    def begin_load(self, store: TableStore) -> None:
        """There may be rows already: `load` takes them in."""
        self._loaded = 0 if store.high_water else None

    def load(self, store: TableStore, rows: int) -> None:
        """Take in the next so many slots. Rows may change before the one after: see `update`."""
        if self._loaded is None:
            return
        start, stop = self._loaded, min(store.high_water, self._loaded + rows)
        slots = start + np.flatnonzero(store.alive[start:stop])
        cells = np.ascontiguousarray(store.cells[:, slots])
        present = np.ones(len(slots), np.bool_)
        self._run(slots, ~present, present, np.full_like(cells, np.nan), cells, 0)
        self._loaded = None if stop == store.high_water else stop
        if self._loaded is None:
            self.grouping.all_live()  # a sweep would look at all rows at once, and find just that

    def take(self, cells: Floats) -> None:
        """Take in rows of no table: the columns of a (columns, n) array, in slots from 0 on."""
        present = np.ones(cells.shape[1], np.bool_)
        self._run(np.arange(cells.shape[1]), ~present, present, np.full_like(cells, np.nan), cells, 0)

    def update(self, updates: Updates) -> tuple[Floats, Ints]:
        """(messages, tally) of a batch, computed once however many channels ask.

        While rows are still being loaded only the slots that were reached are changed, and nothing is described: the
        others will be found as they are then.
        """
        if self._latest is None or updates is not self._latest():
            u = updates
            if self._loaded is None:
                self._messages, self._tally = self._run(u.slots, u.existed, u.exists, u.old, u.new, self.wanted)
            else:
                here = u.slots < self._loaded
                old, new = np.ascontiguousarray(u.old[:, here]), np.ascontiguousarray(u.new[:, here])
                self._run(u.slots[here], u.existed[here], u.exists[here], old, new, 0)
            self._latest = weakref.ref(updates)
        return self._messages, self._tally

    def sweep(self, store: TableStore) -> bool:
        """Forget groups that neither a row nor a subscription is in, some at a time (`Grouping.begin_sweep`). Returns
        whether numbers are given back from now on, by this sweep."""
        grouping = self.grouping
        if not grouping.sweeping:
            grouping.begin_sweep()
            self._looked_at = 0
        begins = not grouping.forgetting
        if begins:
            start, stop = self._looked_at, min(self._looked_at + SWEPT_ROWS, store.high_water)
            self.group_numbers(store.cells[:, start + np.flatnonzero(store.alive[start:stop])])  # that marks them
            self._looked_at = stop
            if stop < store.high_water:
                return False
            for partitions_asked in self.askers:
                grouping.mark(partitions_asked())
        grouping.sweep_some()
        return begins

    def group_numbers(self, cells: Floats) -> Floats:
        """The group of each row of a (columns, n) array; empty where all rows are in one group."""
        if not self.groups:
            return ONE_GROUP
        columns = [cells[column] for column in self.groups]
        if self.null_group is not None:
            at = self.groups.index(self.null_group)
            columns[at] = np.where(np.isnan(columns[at]), np.inf, columns[at])
        return self.grouping.numbers(columns, cells.shape[1])

    def _run(
        self, slots: Ints, existed: Booleans, exists: Booleans, old: Floats, new: Floats, wanted: int
    ) -> tuple[Floats, Ints]:
        tally = np.zeros(6, np.int64)
        n = len(slots)
        out, count, done = np.empty(FIELDS * (ROOM * min(n, LARGE) if wanted else 1)), 0, 0
        if n:
            self.tree.reserve(1 + int(slots[0] if n == 1 else slots.max()))
        x, y = (-1 if self.x is None else self.x), (-1 if self.y is None else self.y)
        old_groups, new_groups = self.group_numbers(old), self.group_numbers(new)
        while done < n:
            done, out, count = reformulate(
                self.tree.memory,
                self.tree.leaf_of,
                slots,
                existed,
                exists,
                old,
                new,
                old_groups,
                new_groups,
                x,
                y,
                done,
                wanted,
                out,
                count,
                tally,
            )
            if done < n:
                self.tree.grow()
        return out[: count * FIELDS].reshape(count, FIELDS), tally

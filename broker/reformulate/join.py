"""Equality joins and band joins: each change of one table becomes one message per row of the other it meets.

An equality is a band of width 0, so one probe serves both: rows of the other table whose join column lies in an
interval around this row's. A changed row has two intervals, before and after; partners in both see a change,
partners in one see a pair leave or enter. (One probe a change; sharing work among 100,000 standing joins is another
structure's business.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from broker.index.nodes import COUNT, NEXT, ROW, X, seek
from broker.reformulate.channel import Floats, Ints, Opening
from broker.reformulate.selection import RowsChannel
from broker.schema import ColumnType
from network.compiled import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.messages import Messages
    from broker.reformulate.boxes import Cells, Places
    from broker.reformulate.keeper import TreeKeeper
    from broker.sql.query import Predicates
    from broker.store import Updates

OLD, NEW = 1, 2  # a pair was, or is, within the band


@kernel
def probe(m: Floats, old_lows: Floats, old_highs: Floats, lows: Floats, highs: Floats) -> tuple[Ints, Ints, Ints]:
    """(update, slot, OLD | NEW) for every row with x in the update's old or new interval; NaN: no interval."""
    room = 64
    pairs = np.empty((3, room), np.int64)
    count = 0
    for update in range(len(lows)):
        for turn in range(2):
            low = old_lows[update] if turn == 0 else lows[update]
            high = old_highs[update] if turn == 0 else highs[update]
            if not low <= high:
                continue
            leaf, i = seek(m, 0.0, low, -np.inf)
            while leaf >= 0:
                if i == m[leaf + COUNT]:
                    leaf, i = int(m[leaf + NEXT]), 0
                    continue
                x = m[leaf + X + i]
                if x > high:
                    break
                was = old_lows[update] <= x <= old_highs[update]
                now = lows[update] <= x <= highs[update]
                if turn == 0 or not was:  # partners in both intervals are met, and told, on the first turn
                    if count == room:
                        larger = np.empty((3, 2 * room), np.int64)
                        for row in range(3):
                            for k in range(count):
                                larger[row, k] = pairs[row, k]
                        pairs, room = larger, 2 * room
                    pairs[0, count] = update
                    pairs[1, count] = int(m[leaf + ROW + i])
                    pairs[2, count] = (OLD if was else 0) | (NEW if now else 0)
                    count += 1
                i += 1
    return pairs[0, :count], pairs[1, :count], pairs[2, :count]


class JoinChannel(RowsChannel):
    """Pairs of rows of two tables that meet, within ranges of columns of both.

    For a band join the server knows the widest band anybody asked for (never who asked), and probes just that far.
    """

    def __init__(self, opening: Opening, keepers: tuple[TreeKeeper, TreeKeeper]) -> None:
        super().__init__(opening)
        shape = opening.shape
        assert shape.on is not None, "S3"
        self.keepers = keepers
        self.band = shape.on.band
        self._columns = (shape.on.left, shape.on.right)
        kinds = {table.columns[column].type for table, column in zip(self.tables, self._columns, strict=True)}
        self._whole = ColumnType.REAL not in kinds
        self._low, self._high = (np.inf, -np.inf) if self.band else (0.0, 0.0)

    def relevant(self, side: int) -> tuple[int, ...]:
        return tuple(sorted({*super().relevant(side), self._columns[side]}))

    def admit(self, predicates: Predicates) -> Ints:
        self.widen(predicates)
        return super().admit(predicates)

    def widen(self, predicates: Predicates) -> None:
        """Probe as far as these predicates ask. Never narrowed again: it costs messages, not correctness."""
        if self.band and len(predicates.low):
            self._low = min(self._low, float(predicates.low[:, -1].min()))
            self._high = max(self._high, float(predicates.high[:, -1].max()))

    def _interval(self, side: int, values: Floats) -> tuple[Floats, Floats]:
        """Where partners of rows with these join values may lie.

        right - left within [low, high]: a left row looks in [v + low, v + high], a right one in [v - high, v - low].
        A hair wider than computed, since v + low is rounded; `Places` then tests the difference itself.
        """
        values = np.ascontiguousarray(values)  # kernels take contiguous columns, and one copy of each kernel is enough
        if not self.band:
            return values, values
        low, high = (self._low, self._high) if side == 0 else (-self._high, -self._low)
        if low > high:
            return np.full_like(values, np.nan), np.full_like(values, np.nan)
        slack = np.abs(values) * 1e-15
        with np.errstate(invalid="ignore", over="ignore"):  # inf - inf without a bound; beyond all floats is all
            lows = values + low - slack - abs(low) * 1e-15
            highs = values + high + slack + abs(high) * 1e-15
        present = ~np.isnan(values)
        lows[present & np.isnan(lows)] = -np.inf
        highs[present & np.isnan(highs)] = np.inf
        return lows, highs

    def _difference(self, cells: Sequence[Cells]) -> list[tuple[Floats, Floats]]:
        """right - left as SQL has it, from below and from above.

        Rounded for REAL, as SQL rounds it; exact for whole numbers, whose difference may be no float64.
        """
        if not self.band:
            return []
        left, right = cells[0][self._columns[0]], cells[1][self._columns[1]]
        with np.errstate(over="ignore", invalid="ignore"):  # an infinite difference is in one-sided bands, as in SQL
            difference = right - left
            if not self._whole:
                return [(difference, difference)]
            from_right = difference + left
            error = (right - from_right) - (left - (from_right - difference))
        lower = np.where(error < 0, np.nextafter(difference, -np.inf), difference)
        return [(lower, np.where(error > 0, np.nextafter(difference, np.inf), difference))]

    def update(self, side: int, updates: Updates, first_seq: int) -> Messages:
        self.keepers[side].update(updates)
        at = np.flatnonzero(self.changed(side, updates))
        column, other = self._columns[side], 1 - side
        old_lows, old_highs = self._interval(side, updates.old[column][at])
        lows, highs = self._interval(side, updates.new[column][at])
        which, partners, flags = probe(self.keepers[other].tree.memory, old_lows, old_highs, lows, highs)
        rows = at[which]
        partner = self.taken(other, self.stores[other].cells, partners)
        before = [self.taken(side, updates.old, rows), partner]
        after = [self.taken(side, updates.new, rows), partner]
        if side == 1:
            before.reverse()
            after.reverse()
        old: Places = self.places(before, flags & OLD != 0, self._difference(before))
        new: Places = self.places(after, flags & NEW != 0, self._difference(after))
        heard = len(np.unique(which))
        self.count(len(which), np.array([len(updates) - heard, heard, 0]))
        return self.describe(rows + first_seq, before, after, old, new)

    def rows(self, predicate: Predicates) -> tuple[list[Cells], list[Floats]]:
        left, right = self.stores
        slots = left.live_slots()
        lows, highs = self._interval(0, left.cells[self._columns[0]][slots])
        nowhere = np.full(len(slots), np.nan)
        which, partners, _ = probe(self.keepers[1].tree.memory, nowhere, nowhere, lows, highs)
        both = [self.taken(0, left.cells, slots[which]), self.taken(1, right.cells, partners)]
        places = self.places(both, np.ones(len(which), np.bool_), self._difference(both))
        keep = self.selected(places, predicate)
        both = [{column: values[keep] for column, values in side.items()} for side in both]
        return both, [both[0][left.table.key], both[1][right.table.key]]

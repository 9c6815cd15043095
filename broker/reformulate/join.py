"""Equality joins and band joins: each change of one table becomes one message per row of the other it meets.

An equality is a band of width 0, so one probe serves both: rows of the other table whose join column lies in an
interval around this row's. A changed row has two intervals, before and after; partners in both see a change,
partners in one see a pair leave or enter. (One probe a change; sharing work among 100,000 standing joins is another
structure's business.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.index.nodes import COUNT, NEXT, ROW, X, seek
from hullcast.broker.joins.ranges import Ranges
from hullcast.broker.reformulate.boxes import Places
from hullcast.broker.reformulate.channel import Opening
from hullcast.broker.reformulate.first import FIRST_ROWS, MOST_LOOKS, Boxes, check_work, expanded, pairs_in_box
from hullcast.broker.reformulate.selection import RowsChannel
from hullcast.broker.tables.schema import ColumnType
from hullcast.network.compiled import kernel
from hullcast.network.matching.messages import unreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.broker.reformulate.boxes import Cells
    from hullcast.broker.reformulate.messages import Messages
    from hullcast.broker.sql.query import Predicates
    from hullcast.broker.tables.store import Updates
    from hullcast.network.wire.arrays import Floats, Ints

OLD, NEW = 1, 2  # a pair was, or is, within the band

#: Pairs described for one batch. Where a batch has more, nobody is told which: whoever listens begins again.
MOST_PAIRS = 500_000


@kernel
def probe(
    m: Floats, old_lows: Floats, old_highs: Floats, lows: Floats, highs: Floats, most: int
) -> tuple[Ints, Ints, Ints, bool]:
    """(update, slot, OLD | NEW) for every row with x in the update's old or new interval; NaN: no interval.

    And whether that is all: it ends when there are more than `most`.
    """
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
                    if count == most:
                        return pairs[0, :0], pairs[1, :0], pairs[2, :0], False
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
    return pairs[0, :count], pairs[1, :count], pairs[2, :count], True


class JoinChannel(RowsChannel):
    """Pairs of rows of two tables that meet, within ranges of columns of both.

    It knows the ranges anybody asks for, counted (never who asked), and describes the pairs that one of them wants.
    """

    counted = True

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        shape = opening.shape
        assert shape.on is not None, "S3"
        self.keepers = (self.share(0, shape.on.left, None, ()), self.share(1, shape.on.right, None, ()))
        self.band = shape.on.band
        self._columns = (shape.on.left, shape.on.right)
        kinds = {table.columns[column].type for table, column in zip(self.tables, self._columns, strict=True)}
        self._whole = ColumnType.REAL not in kinds
        self.ranges = Ranges(max(1, 2 * self.spec.dimensions + self.spec.partitioned))
        self._described = 0  # the last update that messages were made of

    def relevant(self, side: int) -> tuple[int, ...]:
        return tuple(sorted({*super().relevant(side), self._columns[side]}))

    def admit(self, predicates: Predicates) -> Ints:
        listeners = super().admit(predicates)
        self.want(self.audience.points_of(listeners))
        return listeners

    def dismiss(self, listeners: Ints) -> None:
        self.forgo(self.audience.points_of(listeners))
        super().dismiss(listeners)

    def want(self, points: Floats) -> None:
        self.ranges.add(self._reachable(points), self._described)

    def forgo(self, points: Floats) -> None:
        self.ranges.remove(self._reachable(points))

    def wanted_since(self, points: Floats) -> int:
        return self.ranges.wanted_since(self._reachable(points))

    def _reachable(self, points: Floats) -> Floats:
        return points[~unreachable(points, self.spec.dimensions)]

    def facts(self) -> dict[str, object]:
        return {"join": {"ranges": len(self.ranges), "wanted by": self.ranges.total}}

    def partitions_asked(self) -> Floats:
        return self.ranges.index.points()[:, -1]

    @property
    def width(self) -> tuple[float, float]:
        """How far a change is probed for partners: right - left at least, and at most."""
        if not self.band:
            return 0.0, 0.0
        points, place = self.ranges.index.points(), 2 * len(self.shape.ranges)
        return float(points[:, place].min(initial=np.inf)), float(points[:, place + 1].max(initial=-np.inf))

    def _interval(self, side: int, values: Floats, least: float, most: float) -> tuple[Floats, Floats]:
        """Where partners of rows with these join values may lie.

        right - left within [least, most]: a left row looks in [v + least, v + most], a right one in
        [v - most, v - least]. A hair wider than computed, since v + least is rounded; the difference itself is tested
        afterwards.
        """
        values = np.ascontiguousarray(values)  # kernels take contiguous columns, and one copy of each kernel is enough
        if not self.band:
            return values, values
        low, high = (least, most) if side == 0 else (-most, -least)
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
        column, other, width = self._columns[side], 1 - side, self.width
        old_lows, old_highs = self._interval(side, updates.old[column][at], *width)
        lows, highs = self._interval(side, updates.new[column][at], *width)
        tree = self.keepers[other].tree.memory
        which, partners, flags, all_of_them = probe(tree, old_lows, old_highs, lows, highs, MOST_PAIRS)
        rows = at[which]
        partner = self.taken(other, self.stores[other].cells, partners)
        before = [self.taken(side, updates.old, rows), partner]
        after = [self.taken(side, updates.new, rows), partner]
        if side == 1:
            before.reverse()
            after.reverse()
        old = Places.of(self, before, flags & OLD != 0, self._difference(before))
        new = Places.of(self, after, flags & NEW != 0, self._difference(after))
        wanted = self.ranges.wanted(*old.boxes()) | self.ranges.wanted(*new.boxes())
        rows, old, new = rows[wanted], old.take(wanted), new.take(wanted)
        before = [{column: values[wanted] for column, values in cells.items()} for cells in before]
        after = [{column: values[wanted] for column, values in cells.items()} for cells in after]
        heard = len(np.unique(rows))
        self.count(len(rows), np.array([len(updates) - heard, heard, 0]))
        self._described = first_seq + len(updates) - 1
        messages = self.describe(rows + first_seq, before, after, old, new)
        messages.complete = all_of_them
        return messages

    def found(self, sides: Sequence[Cells], boxes: Boxes) -> tuple[Ints, list[Ints]]:
        """Box by box: the rows of each side that it admits, then the pairs among them that meet."""
        refs = (*self.shape.ranges, *self.shape.partition)
        bands = [len(self.shape.ranges)] if self.band else []
        dimensions = [d for d in range(boxes.low.shape[1] - 1) if d not in bands]  # the last one all rows have at 0
        right_join = sides[1][self._columns[1]]
        order = np.argsort(right_join)
        order = order[: len(order) - int(np.isnan(right_join).sum())]  # NULL meets nothing, and is sorted last
        of: list[Ints] = [np.empty(0, np.int64)]
        found: tuple[list[Ints], list[Ints]] = ([np.empty(0, np.int64)], [np.empty(0, np.int64)])
        total = looks = 0
        for i, weight in enumerate(boxes.weights.tolist()):
            admitted = [np.ones(len(side[table.key]), np.bool_) for side, table in zip(sides, self.tables, strict=True)]
            if boxes.high[i, -1] < 0:  # never
                continue
            for d, ref in zip(dimensions, refs, strict=True):
                column = sides[ref.side][ref.column]
                admitted[ref.side] &= (boxes.low[i, d] <= column) & (column <= boxes.high[i, d])
            left, right = np.flatnonzero(admitted[0]), order[admitted[1][order]]
            band = (boxes.low[i, bands[0]], boxes.high[i, bands[0]]) if bands else (0.0, 0.0)
            lows, highs = self._interval(0, sides[0][self._columns[0]][left], *map(float, band))
            which, at, pairs, seen = pairs_in_box(
                right_join[right], lows, highs, (FIRST_ROWS - total) // weight, MOST_LOOKS - looks
            )
            looks += seen + sum(map(len, admitted))
            check_work(total + pairs * weight, looks)
            rows = [left[which], right[at]]
            if bands:
                both = [
                    {c: side[c][at] for c in {column}}
                    for side, column, at in zip(sides, self._columns, rows, strict=True)
                ]
                ((lower, upper),) = self._difference(both)
                keep = (band[0] <= lower) & (upper <= band[1])
                rows = [some[keep] for some in rows]
            total += len(rows[0]) * weight
            of.append(np.full(len(rows[0]), i))
            for side in (0, 1):
                found[side].append(rows[side])
        members, places = expanded(np.concatenate(of), np.arange(sum(map(len, of))), boxes)
        return members, [np.concatenate(found[side])[places] for side in (0, 1)]

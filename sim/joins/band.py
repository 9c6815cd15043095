"""Which ranges of band joins get a new result row, found in the ways that BJ-SSI is measured against.

BJ-QOuter, BJ-DOuter and BJ-MJ of Xie (2007), section 4.3.1, touch every range or every row of the other side for that;
BJ-SSI touches each stabbing group (band_sequences.py; ours: band_groups.py). The server asks another question (which
rows are wanted, see broker/joins/ssi.py), and uses none of these; `hullcast bench joins` measures them.

For n ranges and m rows: BJ-QOuter O(n log m), BJ-DOuter O(m log n), BJ-MJ O(m + n), and in each
the ranges found, if they are listed. All keep what they know of ranges in structures that are
there anyway: BJ-DOuter in the k-d tree of matching, where an interval is the point (low, high), the others in
A2B-trees, which are sorted lists.

A range is a rectangle (x_low, x_high, y_low, y_high) under an id. y is what the other side's row has in the tree, less
the arrival's offset, rounded once as SQL does; so it rises with the row's place in the tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hullcast.broker.index.a2b import A2BTree
from hullcast.broker.index.nodes import (
    CHILD,
    COUNT,
    FREE_NODES,
    GROUP,
    HEIGHT,
    LEAF,
    NEXT,
    ROOT,
    ROW,
    X,
    Y,
    insert,
    remove,
    seek,
)
from hullcast.broker.joins.plan import (
    NOTHING,
    X_HIGH,
    X_LOW,
    Y_HIGH,
    Y_LOW,
    Arrivals,
    RectangleTable,
    first_at,
    has_partners,
)
from hullcast.network.compiled import kernel, part, prefetch
from hullcast.network.matching import search
from hullcast.network.matching.index import PointIndex
from hullcast.network.matching.search import STACK
from hullcast.network.matching.tree import longer
from hullcast.network.wire.errors import InvariantBroken
from hullcast.sim.joins.beside import is_met

if TYPE_CHECKING:
    from hullcast.network.matching.tree import Tree
    from hullcast.network.wire.arrays import Floats, Ints

NOBODY = -1
# The one figure of sorted ranges: how many limit x.
LIMITED = 0
#: Removals ahead whose leaves are asked for; the ranges, and where their leaves are, twice as far ahead.
AHEAD = 4


class _Ranges(RectangleTable):
    """Rectangles by id, and whether one of them limits x at all: bands usually do not."""

    def __init__(self) -> None:
        super().__init__()
        self._limited = 0

    @property
    def limited(self) -> bool:
        """Whether an arrival's x must be looked at."""
        return self._limited > 0

    def put(self, ids: Ints, rectangles: Floats) -> None:
        super().put(ids, rectangles)
        self._limited += _limits(rectangles)

    def drop(self, ids: Ints) -> None:
        self._limited -= _limits(self.rows[ids])
        super().drop(ids)

    def check(self, ids: Ints) -> None:
        """The same ids, and what `limited` says."""
        present = np.flatnonzero(self.rows[:, X_LOW] <= self.rows[:, X_HIGH])
        expect(np.array_equal(np.sort(ids), present), "each id is known once")
        expect(self._limited == _limits(self.rows[present]), "those that limit x are counted")


def _limits(rectangles: Floats) -> int:
    return int(((rectangles[:, X_LOW] > -np.inf) | (rectangles[:, X_HIGH] < np.inf)).sum())


class BandQueryOuter:
    """BJ-QOuter: each range looks for its first row. No index of ranges, so nothing to keep up to date."""

    name: ClassVar[str] = "BJ-QOuter"

    def __init__(self) -> None:
        self._ids: Ints = np.empty(16, np.int64)
        self._place: Ints = np.full(16, NOBODY, np.int64)
        self._count = 0
        self._ranges = _Ranges()

    def add(self, ids: Ints, rectangles: Floats) -> None:
        """Ranges come."""
        count = self._count + len(ids)
        if count > len(self._ids):
            larger = np.empty(max(count, 2 * len(self._ids)), np.int64)
            larger[: self._count] = self._ids[: self._count]
            self._ids = larger
        self._ranges.put(ids, rectangles)
        if len(self._place) < len(self._ranges.rows):
            place = np.full(len(self._ranges.rows), NOBODY, np.int64)
            place[: len(self._place)] = self._place
            self._place = place
        self._ids[self._count : count] = ids
        self._place[ids] = np.arange(self._count, count)
        self._count = count

    def remove(self, ids: Ints) -> None:
        """Ranges go: the last ones take their places."""
        for one in ids.tolist():
            self._count -= 1
            last, place = int(self._ids[self._count]), int(self._place[one])
            self._ids[place], self._place[last], self._place[one] = last, place, NOBODY
        self._ranges.drop(ids)

    def affected(self, tree: Floats, arrivals: Arrivals) -> tuple[Ints, Ints]:
        """(arrival, id) of each range that gets a row."""
        return self._found(tree, arrivals, True)[1:]

    def count_affected(self, tree: Floats, arrivals: Arrivals) -> Ints:
        """How many that are, for each arrival."""
        return self._found(tree, arrivals, False)[0]

    def _found(self, tree: Floats, arrivals: Arrivals, listed: bool) -> tuple[Ints, Ints, Ints]:
        ids, rectangles = self._ids[: self._count], self._ranges.rows
        return query_outer(tree, arrivals.groups, arrivals.offsets, arrivals.xs, ids, rectangles, listed)

    def check(self) -> None:
        """Verify that ids and places agree."""
        ids = self._ids[: self._count]
        self._ranges.check(ids)
        expect(np.array_equal(self._place[ids], np.arange(self._count)), "each id is where its place says")


class BandDataOuter:
    """BJ-DOuter: each row of the other side asks an index which ranges hold it.

    A range is found at the first row in it, and not again: a row asks for ranges that begin behind the row before it.
    Rows with the same y ask once.
    """

    name: ClassVar[str] = "BJ-DOuter"

    def __init__(self) -> None:
        self._index = PointIndex(2)
        self._ranges = _Ranges()

    def add(self, ids: Ints, rectangles: Floats) -> None:
        """Ranges come."""
        self._index.insert(ids, rectangles[:, Y_LOW:])
        self._ranges.put(ids, rectangles)

    def remove(self, ids: Ints) -> None:
        """Ranges go."""
        self._index.delete(ids)
        self._ranges.drop(ids)

    def affected(self, tree: Floats, arrivals: Arrivals) -> tuple[Ints, Ints]:
        """(arrival, id) of each range that gets a row."""
        return self._found(tree, arrivals, True)[1:]

    def count_affected(self, tree: Floats, arrivals: Arrivals) -> Ints:
        """How many that are, for each arrival."""
        return self._found(tree, arrivals, self._ranges.limited)[0]

    def _found(self, tree: Floats, arrivals: Arrivals, listed: bool) -> tuple[Ints, Ints, Ints]:
        index, rectangles = self._index.arrays, self._ranges.rows
        return data_outer(tree, arrivals.groups, arrivals.offsets, arrivals.xs, index, rectangles, listed)

    def check(self) -> None:
        """Verify the index, and that it has the ranges."""
        self._index.check()
        ids = np.flatnonzero(self._index.arrays.place_of >= 0)
        self._ranges.check(ids)
        expect(np.array_equal(self._index.points(), self._ranges.rows[ids, Y_LOW:]), "the index has each range")


class SortedRanges:
    """Ranges in order of their low ends, which is what BJ-MJ and BJ-SSI search, and by id.

    A change is one kernel call, whatever it has to do: around kernels NumPy takes longer than a change does in them.
    """

    def __init__(self) -> None:
        self._list = A2BTree()  # x is the low end, y the high end
        self._rows: Floats = np.tile(NOTHING, (16, 1))  # rectangles by id
        self._figures: Floats = np.zeros(1)

    def affected(self, tree: Floats, arrivals: Arrivals) -> tuple[Ints, Ints]:
        """(arrival, id) of each range that gets a row."""
        return self._found(tree, arrivals, True)[1:]

    def count_affected(self, tree: Floats, arrivals: Arrivals) -> Ints:
        """How many that are, for each arrival."""
        return self._found(tree, arrivals, bool(self._figures[LIMITED]))[0]

    def _found(self, tree: Floats, arrivals: Arrivals, listed: bool) -> tuple[Ints, Ints, Ints]:
        raise NotImplementedError

    def _make_room(self, ids: Ints) -> None:
        """For these ids, and for some ranges more in the list."""
        self._list.reserve(int(ids.max()) + 1)
        known = len(self._rows)
        if known < len(self._list.leaf_of):
            rows = np.empty((max(len(self._list.leaf_of), 2 * known), 4))
            rows[:known], rows[known:] = self._rows, NOTHING
            self._rows = rows
        if not has_room(self._list.memory):
            self._list.grow()

    def check(self) -> None:
        """Verify the list, and that it has the ranges."""
        self._list.check()
        ids, lows = entries(self._list.memory)
        present = np.flatnonzero(self._rows[:, X_LOW] <= self._rows[:, X_HIGH])
        expect(np.array_equal(np.sort(ids), present), "the list has each range once")
        expect(np.array_equal(lows, self._rows[ids, Y_LOW]), "each range is where it belongs")
        expect(self._figures[LIMITED] == _limits(self._rows[present]), "those that limit x are counted")


class BandMerge(SortedRanges):
    """BJ-MJ: ranges in order of their low ends and rows in order of theirs, side by side."""

    name: ClassVar[str] = "BJ-MJ"

    def add(self, ids: Ints, rectangles: Floats) -> None:
        """Ranges come."""
        done = 0
        while done < len(ids):
            done = put_in_order(self._list.memory, self._list.leaf_of, self._rows, self._figures, ids, rectangles, done)
            if done < len(ids):
                self._make_room(ids)

    def remove(self, ids: Ints) -> None:
        """Ranges go."""
        take_out(self._list.memory, self._list.leaf_of, self._rows, self._figures, ids)

    def _found(self, tree: Floats, arrivals: Arrivals, listed: bool) -> tuple[Ints, Ints, Ints]:
        return merge(tree, *arrivals, self._list.memory, self._rows, listed)


# --- kernels -------------------------------------------------------------------------------------------------------
#
# Each gives how many ranges every arrival affects, and where `listed` is set their (arrival, id) too.


@part
def _entries_of(m: Floats, leaf: int, group: float) -> int:
    """How many entries of a leaf come before those of later groups."""
    size = int(m[leaf + COUNT])
    while size > 0 and m[leaf + GROUP + size - 1] != group:
        size -= 1
    return size


@part
def holds_x(rectangles: Floats, one: int, x: float) -> bool:
    return bool(rectangles[one, X_LOW] <= x <= rectangles[one, X_HIGH])


@kernel
def query_outer(
    m: Floats, groups: Floats, offsets: Floats, xs: Floats, ids: Ints, rectangles: Floats, listed: bool
) -> tuple[Ints, Ints, Ints]:
    """A look into the tree for each range."""
    counts = np.zeros(len(xs), np.int64)
    of, found, used = np.empty(64, np.int64), np.empty(64, np.int64), 0
    for arrival in range(len(xs)):
        group, offset, x = groups[arrival], offsets[arrival], xs[arrival]
        if not has_partners(group, offset, x):
            continue
        for k in range(len(ids)):
            one = ids[k]
            if not holds_x(rectangles, one, x):
                continue
            if not is_met(m, group, offset, rectangles[one, Y_LOW], rectangles[one, Y_HIGH]):
                continue
            counts[arrival] += 1
            if listed:
                if used == len(of):
                    of, found = longer(of, used, 1), longer(found, used, 1)
                of[used], found[used] = arrival, one
                used += 1
    return counts, of[:used], found[:used]


@kernel
def data_outer(
    m: Floats, groups: Floats, offsets: Floats, xs: Floats, index: Tree, rectangles: Floats, listed: bool
) -> tuple[Ints, Ints, Ints]:
    """A look into the index of ranges for each row; where not `listed`, x limits nobody."""
    counts = np.zeros(len(xs), np.int64)
    of, found, used = np.empty(64, np.int64), np.empty(64, np.int64), 0
    low, high, stack = np.empty(2), np.full(2, np.inf), np.empty(STACK, np.int64)
    for arrival in range(len(xs)):
        group, offset, x = groups[arrival], offsets[arrival], xs[arrival]
        if not has_partners(group, offset, x):
            continue
        low[0] = -np.inf
        leaf, i = seek(m, group, -np.inf, -np.inf)
        while leaf >= 0:
            if i == m[leaf + COUNT]:
                leaf, i = int(m[leaf + NEXT]), 0
                continue
            if m[leaf + GROUP + i] != group:
                break
            y = m[leaf + X + i] - offset
            i += 1
            if not y >= low[0]:  # the same y as the row before, or none (inf - inf)
                continue
            high[0] = low[1] = y
            if not listed:
                counts[arrival] += search.count(index, low, high, stack, len(index.place_of))
            else:
                before = used
                found, stop = search.report(index, low, high, found, used, stack)
                if stop > len(of):
                    of = longer(of, before, len(found) - before)
                for k in range(before, stop):
                    if holds_x(rectangles, found[k], x):
                        of[used], found[used] = arrival, found[k]
                        used += 1
                counts[arrival] += used - before
            low[0] = np.nextafter(y, np.inf)
    return counts, of[:used], found[:used]


@kernel
def merge(
    m: Floats, groups: Floats, offsets: Floats, xs: Floats, ranges: Floats, rectangles: Floats, listed: bool
) -> tuple[Ints, Ints, Ints]:
    """Both lists once, from the first range on; where not `listed`, x limits nobody."""
    counts = np.zeros(len(xs), np.int64)
    of, found, used = np.empty(64, np.int64), np.empty(64, np.int64), 0
    for arrival in range(len(xs)):
        group, offset, x = groups[arrival], offsets[arrival], xs[arrival]
        if not has_partners(group, offset, x):
            continue
        here, k = seek(ranges, 0.0, -np.inf, -np.inf)
        if k == ranges[here + COUNT]:
            continue  # there are no ranges
        leaf, i = first_at(m, group, offset, ranges[here + X + k])
        if leaf < 0:
            continue
        y, total, size = m[leaf + X + i] - offset, 0, _entries_of(m, leaf, group)
        while here >= 0 and leaf >= 0:
            stop = int(ranges[here + COUNT])
            while k < stop:
                low = ranges[here + X + k]
                while y < low:
                    i += 1
                    if i == size:
                        leaf, i = int(m[leaf + NEXT]), 0
                        size = _entries_of(m, leaf, group) if leaf >= 0 else 0
                        if size == 0:
                            leaf = -1
                            break
                    y = m[leaf + X + i] - offset
                if leaf < 0:
                    break
                if y <= ranges[here + Y + k]:
                    if not listed:
                        total += 1
                    else:
                        one = int(ranges[here + ROW + k])
                        if holds_x(rectangles, one, x):
                            if used == len(of):
                                of, found = longer(of, used, 1), longer(found, used, 1)
                            of[used], found[used] = arrival, one
                            used += 1
                            total += 1
                k += 1
            here, k = int(ranges[here + NEXT]), 0
        counts[arrival] = total
    return counts, of[:used], found[:used]


# --- changes -------------------------------------------------------------------------------------------------------


@part
def limits_x(rectangles: Floats, one: int) -> bool:
    return bool(rectangles[one, X_LOW] > -np.inf or rectangles[one, X_HIGH] < np.inf)


@kernel
def has_room(m: Floats) -> bool:
    """Whether there are nodes for one more range."""
    return bool(m[FREE_NODES] >= m[HEIGHT] + 2)


@part
def put_one(m: Floats, leaf_of: Ints, rows: Floats, p: Floats, one: int, rectangles: Floats, k: int) -> bool:
    """Take in a range, if there is room."""
    if one >= len(leaf_of) or one >= len(rows) or m[FREE_NODES] < m[HEIGHT] + 2:
        return False
    for column in range(4):
        rows[one, column] = rectangles[k, column]
    if limits_x(rectangles, k):
        p[LIMITED] += 1
    insert(m, leaf_of, one, 0.0, rectangles[k, Y_LOW], rectangles[k, Y_HIGH])
    return True


@part
def take_one(m: Floats, leaf_of: Ints, rows: Floats, p: Floats, one: int) -> None:
    """Forget a range."""
    if limits_x(rows, one):
        p[LIMITED] -= 1
    rows[one, X_LOW] = rows[one, Y_LOW] = np.inf
    rows[one, X_HIGH] = rows[one, Y_HIGH] = -np.inf
    remove(m, leaf_of, one)


@part
def look_ahead(m: Floats, leaf_of: Ints, rows: Floats, ids: Ints, k: int) -> None:
    """Ask for what the removals after the k-th will read: waiting for memory is most of what they cost."""
    if k + 2 * AHEAD < len(ids):
        prefetch(leaf_of, ids[k + 2 * AHEAD])
        prefetch(rows, 4 * ids[k + 2 * AHEAD])
    if k + AHEAD < len(ids):
        leaf = leaf_of[ids[k + AHEAD]]
        prefetch(m, leaf)
        for i in range(0, LEAF, 8):
            prefetch(m, leaf + ROW + i)


@kernel
def put_in_order(m: Floats, leaf_of: Ints, rows: Floats, p: Floats, ids: Ints, rectangles: Floats, start: int) -> int:
    """Take in ranges, from `start` on, as long as there is room; up to where that was."""
    for k in range(start, len(ids)):
        if not put_one(m, leaf_of, rows, p, ids[k], rectangles, k):
            return k
    return len(ids)


@kernel
def take_out(m: Floats, leaf_of: Ints, rows: Floats, p: Floats, ids: Ints) -> None:
    """Forget ranges."""
    for k in range(len(ids)):
        look_ahead(m, leaf_of, rows, ids, k)
        take_one(m, leaf_of, rows, p, ids[k])


def entries(m: Floats) -> tuple[Ints, Floats]:
    """(id, x) of each entry of a tree, in order."""
    node = int(m[ROOT])
    for _ in range(int(m[HEIGHT])):
        node = int(m[node + CHILD])
    parts = [np.empty((2, 0))]
    while node >= 0:
        count = int(m[node + COUNT])
        parts.append(np.stack([m[node + row : node + row + count] for row in (ROW, X)]))
        node = int(m[node + NEXT])
    ids, xs = np.concatenate(parts, axis=1)
    return ids.astype(np.int64), xs


def expect(holds: object, invariant: str) -> None:
    if not holds:
        raise InvariantBroken(f"bands: {invariant}")

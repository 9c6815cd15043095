"""Which ranges of band joins get a new result row, found in the four ways of Xie (2007), section 4.3.1.

Three touch every range or every row of the other side for that: BJ-QOuter, BJ-DOuter and BJ-MJ. BJ-SSI touches each
stabbing group. The server asks another question (which rows are wanted, see ssi.py), and uses none of these; `hullcast
bench joins` measures them.

For n ranges in tau groups and m rows: BJ-QOuter O(n log m), BJ-DOuter O(m log n), BJ-MJ O(m + n), BJ-SSI O(tau (log m
+ log n)), and in each the ranges found, if they are listed. All keep what they know of ranges in structures that are
there anyway: BJ-DOuter in the k-d tree of matching, where an interval is the point (low, high), BJ-MJ and BJ-SSI in an
A2B-tree, which is a sorted list.

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
    NEXT,
    NODE_GREATEST,
    NODE_LEAST,
    PREVIOUS,
    ROOT,
    ROW,
    X,
    Y,
    insert,
    remove,
    seek,
)
from hullcast.broker.joins.partition import RefinedPartition
from hullcast.broker.joins.plan import (
    X_HIGH,
    X_LOW,
    Y_HIGH,
    Y_LOW,
    Arrivals,
    RectangleTable,
    first_at,
    has_partners,
    is_met,
)
from hullcast.network.compiled import kernel, part
from hullcast.network.matching import search
from hullcast.network.matching.index import PointIndex
from hullcast.network.matching.search import STACK
from hullcast.network.matching.tree import longer
from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from hullcast.network.matching.tree import Tree
    from hullcast.network.wire.arrays import Floats, Ints

NOBODY = -1


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
        _expect(np.array_equal(np.sort(ids), present), "each id is known once")
        _expect(self._limited == _limits(self.rows[present]), "those that limit x are counted")


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
        _expect(np.array_equal(self._place[ids], np.arange(self._count)), "each id is where its place says")


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
        _expect(np.array_equal(self._index.points(), self._ranges.rows[ids, Y_LOW:]), "the index has each range")


class BandMerge:
    """BJ-MJ: ranges in order of their low ends and rows in order of theirs, side by side."""

    name: ClassVar[str] = "BJ-MJ"

    def __init__(self) -> None:
        self._list = A2BTree()  # x is the low end, y the high end
        self._ranges = _Ranges()

    def add(self, ids: Ints, rectangles: Floats) -> None:
        """Ranges come."""
        if len(ids):
            self._list.reserve(int(ids.max()) + 1)
        done = 0
        while done < len(ids):
            done = put_in_order(self._list.memory, self._list.leaf_of, ids, rectangles, done)
            if done < len(ids):
                self._list.grow()
        self._ranges.put(ids, rectangles)

    def remove(self, ids: Ints) -> None:
        """Ranges go."""
        take_out(self._list.memory, self._list.leaf_of, ids)
        self._ranges.drop(ids)

    def affected(self, tree: Floats, arrivals: Arrivals) -> tuple[Ints, Ints]:
        """(arrival, id) of each range that gets a row."""
        return self._found(tree, arrivals, True)[1:]

    def count_affected(self, tree: Floats, arrivals: Arrivals) -> Ints:
        """How many that are, for each arrival."""
        return self._found(tree, arrivals, self._ranges.limited)[0]

    def _found(self, tree: Floats, arrivals: Arrivals, listed: bool) -> tuple[Ints, Ints, Ints]:
        ranges, rectangles = self._list.memory, self._ranges.rows
        return merge(tree, arrivals.groups, arrivals.offsets, arrivals.xs, ranges, rectangles, listed)

    def check(self) -> None:
        """Verify the list, and that it has the ranges."""
        self._list.check()
        ids = np.flatnonzero(self._list.leaf_of >= 0)
        self._ranges.check(ids)
        _expect(len(self._list) == len(ids), "the list has each range")


class BandGroups:
    """BJ-SSI: for each group one look for the two rows beside its point.

    The group's ranges all hold the point, so a range has a row iff it reaches the row below the point or the one above
    it. The thesis keeps each group in two orders, by low and by high ends. Here one list serves, by group and low end:
    an A2B-tree knows the extremes of the high ends in every leaf. Counting looks at the ranges that begin between the
    two rows, which are few where rows are dense: all others of the group are affected.

    Invariants (`check` tests them):
      G1  The list has each range once, under the group that the partition says.
    """

    name: ClassVar[str] = "BJ-SSI"

    def __init__(self, epsilon: float = 1.0) -> None:
        self._partition = RefinedPartition(epsilon)
        self._list = A2BTree()  # x is the low end, y the high end
        self._ranges = _Ranges()
        self._groups: Floats = np.empty((0, 3))  # number, a point that all share, size; in order of the points
        self._is_stale = False

    def add(self, ids: Ints, rectangles: Floats) -> None:
        """Ranges come."""
        self._ranges.put(ids, rectangles)
        self._partition.add(ids, rectangles[:, Y_LOW], rectangles[:, Y_HIGH])
        self._follow()

    def remove(self, ids: Ints) -> None:
        """Ranges go."""
        self._partition.remove(ids)
        self._follow()
        self._ranges.drop(ids)

    def _follow(self) -> None:
        """Move what the partition moved."""
        changes = self._partition.take_changes()
        self._is_stale = True
        if len(changes.ids):
            self._list.reserve(int(changes.ids.max()) + 1)
        done = 0
        while done < len(changes.ids):
            done = regroup(self._list.memory, self._list.leaf_of, changes.ids, changes.groups, self._ranges.rows, done)
            if done < len(changes.ids):
                self._list.grow()

    def affected(self, tree: Floats, arrivals: Arrivals) -> tuple[Ints, Ints]:
        """(arrival, id) of each range that gets a row."""
        return self._found(tree, arrivals, True)[1:]

    def count_affected(self, tree: Floats, arrivals: Arrivals) -> Ints:
        """How many that are, for each arrival."""
        return self._found(tree, arrivals, self._ranges.limited)[0]

    def _found(self, tree: Floats, arrivals: Arrivals, listed: bool) -> tuple[Ints, Ints, Ints]:
        if self._is_stale:
            groups = self._partition.groups()
            point = np.where(
                np.isfinite(groups.lows), groups.lows, np.where(np.isfinite(groups.highs), groups.highs, 0)
            )
            self._groups = np.column_stack((groups.numbers, point, groups.sizes)).astype(np.float64)
            self._is_stale = False
        ranges, rectangles = self._list.memory, self._ranges.rows
        return by_group(tree, arrivals.groups, arrivals.offsets, arrivals.xs, self._groups, ranges, rectangles, listed)

    def check(self) -> None:
        """Verify the partition, the list, and G1."""
        self._partition.check()
        self._list.check()
        ids = np.flatnonzero(self._list.leaf_of >= 0)
        self._ranges.check(ids)
        of, slots, lows = grouped(self._list.memory)
        _expect(np.array_equal(of, self._partition.group_of[slots]), "G1 each range is in the list of its group")
        _expect(np.array_equal(lows, self._ranges.rows[slots, Y_LOW]), "G1 each range is where it belongs")


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
def _holds_x(rectangles: Floats, one: int, x: float) -> bool:
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
            if not _holds_x(rectangles, one, x):
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
                    if _holds_x(rectangles, found[k], x):
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
                        if _holds_x(rectangles, one, x):
                            if used == len(of):
                                of, found = longer(of, used, 1), longer(found, used, 1)
                            of[used], found[used] = arrival, one
                            used += 1
                            total += 1
                k += 1
            here, k = int(ranges[here + NEXT]), 0
        counts[arrival] = total
    return counts, of[:used], found[:used]


@part
def _first_from(m: Floats, group: float, offset: float, point: float, near: int) -> tuple[int, int]:
    """As `first_at`, for a point that is not below one whose first row is in the leaf `near` (-1: there is none)."""
    leaf = near
    for _ in range(2):
        if leaf < 0:
            break
        high = int(m[leaf + COUNT]) - 1
        if m[leaf + GROUP + high] == group and m[leaf + X + high] - offset >= point:
            low = 0
            while low < high:
                middle = (low + high) >> 1
                if m[leaf + GROUP + middle] == group and m[leaf + X + middle] - offset >= point:
                    high = middle
                else:
                    low = middle + 1
            return leaf, high
        leaf = int(m[leaf + NEXT])
    return first_at(m, group, offset, point)


@part
def _below(m: Floats, group: float, offset: float, leaf: int, i: int) -> float:
    """y of the group's row before a place, or of its last one (leaf -1); NaN where there is none."""
    if leaf < 0:
        leaf, i = seek(m, group, np.inf, np.inf)
    if i == 0:
        leaf = int(m[leaf + PREVIOUS])
        i = int(m[leaf + COUNT]) if leaf >= 0 else 0
    if leaf < 0 or i == 0 or m[leaf + GROUP + i - 1] != group:
        return np.nan
    return float(m[leaf + X + i - 1] - offset)


@part
def _reaching_down(ranges: Floats, number: float, below: float) -> int:
    """How many ranges of a group begin at or below a row."""
    if np.isnan(below):
        return 0
    leaf, i = seek(ranges, number, np.nextafter(below, np.inf), -np.inf)
    found = 0
    while leaf >= 0:
        if i > 0 and ranges[leaf + GROUP] == number:
            found, i = found + i, 0
        while i > 0 and ranges[leaf + GROUP + i - 1] == number:
            found, i = found + 1, i - 1
        leaf = int(ranges[leaf + PREVIOUS]) if i == 0 else -1
        i = int(ranges[leaf + COUNT]) if leaf >= 0 else 0
        if leaf >= 0 and i > 0 and ranges[leaf + GROUP + i - 1] != number:
            break
    return found


@part
def _seek_from(ranges: Floats, number: float, x: float, near: int) -> tuple[int, int]:
    """As `seek`, where the place is likely to be in the leaf `near` (-1: no idea) or the one behind it."""
    leaf = near
    for _ in range(2):
        if leaf < 0:
            break
        low, high = 0, int(ranges[leaf + COUNT]) - 1
        first, last = ranges[leaf + GROUP], ranges[leaf + GROUP + high]
        if first > number or (first == number and ranges[leaf + X] >= x):
            break
        if last > number or (last == number and ranges[leaf + X + high] >= x):
            while low < high:
                middle = (low + high) >> 1
                other = ranges[leaf + GROUP + middle]
                if other < number or (other == number and ranges[leaf + X + middle] < x):
                    low = middle + 1
                else:
                    high = middle
            return leaf, low
        leaf = int(ranges[leaf + NEXT])
    return seek(ranges, number, x, -np.inf)


@part
def _missed(ranges: Floats, number: float, below: float, above: float, near: int) -> tuple[int, int]:
    """How many ranges of a group reach neither row: they begin above the one, and end below the other.

    And the leaf where they begin: the next group's are likely to be near it.
    """
    start = -np.inf if np.isnan(below) else np.nextafter(below, np.inf)
    leaf, i = _seek_from(ranges, number, start, near)
    near = leaf
    missed = 0
    while leaf >= 0:
        size = int(ranges[leaf + COUNT])
        if i < size and ranges[leaf + GROUP + i] != number:
            break
        if i == 0 and size > 0 and ranges[leaf + GROUP + size - 1] == number:
            if not ranges[leaf + NODE_GREATEST] >= above:
                i, missed = size, missed + size
            elif ranges[leaf + NODE_LEAST] >= above:
                i = size
        while i < size:
            if ranges[leaf + GROUP + i] != number:
                return missed, near
            missed += not ranges[leaf + Y + i] >= above
            i += 1
        leaf, i = int(ranges[leaf + NEXT]), 0
    return missed, near


@kernel
def by_group(
    m: Floats,
    groups: Floats,
    offsets: Floats,
    xs: Floats,
    partition: Floats,
    ranges: Floats,
    rectangles: Floats,
    listed: bool,
) -> tuple[Ints, Ints, Ints]:
    """A look into the tree for each group; where not `listed`, x limits nobody."""
    counts = np.zeros(len(xs), np.int64)
    of, found, used = np.empty(64, np.int64), np.empty(64, np.int64), 0
    for arrival in range(len(xs)):
        group, offset, x = groups[arrival], offsets[arrival], xs[arrival]
        if not has_partners(group, offset, x):
            continue
        near, place, below, above, there = -1, 0, np.nan, -np.inf, -1
        for k in range(len(partition)):
            number, point, size = partition[k, 0], partition[k, 1], partition[k, 2]
            if not np.isnan(above):  # points ascend: behind one that is above all rows, all are
                near, place = _first_from(m, group, offset, point, near)
                above = m[near + X + place] - offset if near >= 0 else np.nan
                below = _below(m, group, offset, near, place)
            if np.isnan(below) and np.isnan(above):
                break
            if not listed:
                if np.isnan(above):
                    counts[arrival] += _reaching_down(ranges, number, below)
                else:
                    missed = 0
                    if above != point:
                        missed, there = _missed(ranges, number, below, above, there)
                    counts[arrival] += int(size) - missed
                continue
            leaf, i = seek(ranges, number, -np.inf, -np.inf)
            while leaf >= 0:
                if i == ranges[leaf + COUNT]:
                    leaf, i = int(ranges[leaf + NEXT]), 0
                    continue
                if ranges[leaf + GROUP + i] != number:
                    break
                one = int(ranges[leaf + ROW + i])
                if (ranges[leaf + X + i] <= below or ranges[leaf + Y + i] >= above) and _holds_x(rectangles, one, x):
                    if used == len(of):
                        of, found = longer(of, used, 1), longer(found, used, 1)
                    of[used], found[used] = arrival, one
                    used += 1
                    counts[arrival] += 1
                i += 1
    return counts, of[:used], found[:used]


@kernel
def regroup(m: Floats, leaf_of: Ints, ids: Ints, groups: Ints, rectangles: Floats, start: int) -> int:
    """Move ranges to other groups of the list, or out of it, from `start` on, as long as there is room."""
    for k in range(start, len(ids)):
        if m[FREE_NODES] < m[HEIGHT] + 2:
            return k
        one = ids[k]
        if leaf_of[one] >= 0:
            remove(m, leaf_of, one)
        if groups[k] >= 0:
            insert(m, leaf_of, one, float(groups[k]), rectangles[one, Y_LOW], rectangles[one, Y_HIGH])
    return len(ids)


@kernel
def put_in_order(m: Floats, leaf_of: Ints, ids: Ints, rectangles: Floats, start: int) -> int:
    """Insert ranges into the sorted list, from `start` on, as long as there is room; up to where that was."""
    for k in range(start, len(ids)):
        if m[FREE_NODES] < m[HEIGHT] + 2:
            return k
        insert(m, leaf_of, ids[k], 0.0, rectangles[k, Y_LOW], rectangles[k, Y_HIGH])
    return len(ids)


@kernel
def take_out(m: Floats, leaf_of: Ints, ids: Ints) -> None:
    """Remove ranges from the sorted list."""
    for k in range(len(ids)):
        remove(m, leaf_of, ids[k])


def grouped(m: Floats) -> tuple[Ints, Ints, Floats]:
    """(group, id, x) of each entry of a tree, in order."""
    node = int(m[ROOT])
    for _ in range(int(m[HEIGHT])):
        node = int(m[node + CHILD])
    parts = [np.empty((3, 0))]
    while node >= 0:
        count = int(m[node + COUNT])
        parts.append(np.stack([m[node + row : node + row + count] for row in (GROUP, ROW, X)]))
        node = int(m[node + NEXT])
    groups, ids, xs = np.concatenate(parts, axis=1)
    return groups.astype(np.int64), ids.astype(np.int64), xs


def _expect(holds: object, invariant: str) -> None:
    if not holds:
        raise InvariantBroken(f"bands: {invariant}")

"""BJ-SSI with one list: which bands of each stabbing group get a row.

Ours, beside that of Xie (2007), section 4.3.1 (band_sequences.py). For n ranges in tau groups and m rows
O(tau (log m + log n)), and a look at each range that begins in a gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hullcast.broker.index.nodes import (
    COUNT,
    ENTRIES,
    GROUP,
    NEXT,
    NODE_GREATEST,
    NODE_LEAST,
    PREVIOUS,
    ROW,
    X,
    Y,
    seek,
)
from hullcast.broker.joins.ordered import grown
from hullcast.broker.joins.partition import canonical
from hullcast.broker.joins.plan import (
    Y_HIGH,
    Y_LOW,
    Arrivals,
    first_at,
    has_partners,
)
from hullcast.network.compiled import kernel, part
from hullcast.network.matching.tree import longer
from hullcast.sim.joins.band import (
    SortedRanges,
    entries,
    expect,
    holds_x,
    look_ahead,
    put_one,
    take_one,
)

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats, Ints

# Figures that follow those of sorted ranges: how many groups there are, how many the greedy partition had when it was
# last computed (its runs), its witnesses removed since, and 1 + epsilon.
GROUPS, TAU, LOST, MORE, TABLE = 1, 2, 3, 4, 5
# Then a table. Row k has the meet of the k-th group; and of the k-th run where it begins, how many ranges begin there
# and before the next one, and its witness (-1: gone).
MEET_LOW, MEET_HIGH, RUN, BEGIN_THERE, WITNESS = 5, 6, 7, 8, 9
WIDTH = 5


class BandGroups(SortedRanges):
    """BJ-SSI with one list: for each stabbing group one look for the two rows beside its point.

    All ranges of a group hold its point. So a range without a row lies in the *gap* between the two rows beside its
    group's point, and every range in such a gap has no row::

        rows      |        |    |   |          |      |
        points        p         p        p                    the second point is a row: it has no gap
        ranges      [---]              [----]                 these two have no row
                [----------]  [---]  [---------]              these have one

    Counting therefore needs the points, and the ranges in order of their low ends, but not which range is in which
    group. (Xie (2007) keeps each group in two orders, by low ends and by high ends, and looks from its point to both
    sides. Here each range that begins in a gap is looked at: few where rows are dense, and an A2B-tree knows the
    extremes of the high ends in every leaf.)

    So a change costs what it costs BJ-MJ, a search among the groups' meets (common intersections), and one among runs.
    Meets are kept as in a `StabbingPartition`: a new range narrows a meet that it overlaps, or founds a group. The
    greedy partition is computed again when there are more than (1 + epsilon) (tau0 - m) groups, where m counts the
    witnesses removed since. The bound and its proof are those of `RefinedPartition`, which do not need that a group
    without ranges is dropped: here it waits for the next time. Computing again takes a look at each leaf of the list,
    and at each range of some: O(n / B + tau B) for B ranges in a leaf.

    Invariants (`check` tests them):
      G1  Every range contains a meet. Meets do not overlap, and ascend.
      G2  Witnesses do not overlap; tau0 - m of them are left. There are at most (1 + epsilon) tau groups.
      G3  Of each run of the greedy partition it is known how many ranges begin there (the first: or before it).
    """

    name: ClassVar[str] = "BJ-SSI, one list"

    def __init__(self, epsilon: float = 1.0) -> None:
        if not epsilon > 0:
            raise ValueError(f"epsilon must be more than 0, not {epsilon}")
        super().__init__()
        self._figures = np.zeros(TABLE + 16 * WIDTH)
        self._figures[MORE] = 1 + epsilon

    def add(self, ids: Ints, rectangles: Floats) -> None:
        """Ranges come."""
        done = 0
        while done < len(ids):
            done = put_and_stab(self._list.memory, self._list.leaf_of, self._rows, self._figures, ids, rectangles, done)
            if done < len(ids):
                self._make_room(ids)
        if done > len(ids):
            self._rebuild()

    def remove(self, ids: Ints) -> None:
        """Ranges go."""
        if take_out_stabbed(self._list.memory, self._list.leaf_of, self._rows, self._figures, ids):
            self._rebuild()

    def _make_room(self, ids: Ints) -> None:
        super()._make_room(ids)
        if not has_room_for_meet(self._figures):
            self._figures = grown(self._figures, len(self._figures) + WIDTH, 0.0)

    def _rebuild(self) -> None:
        groups = stab(self._list.memory, self._figures)
        if groups > self._figures[GROUPS]:  # they did not fit
            self._figures = grown(self._figures, TABLE + WIDTH * groups, 0.0)
            stab(self._list.memory, self._figures)

    def _found(self, tree: Floats, arrivals: Arrivals, listed: bool) -> tuple[Ints, Ints, Ints]:
        return by_group(tree, *arrivals, self._figures, self._list.memory, self._rows, listed)

    def check(self) -> None:
        """Verify the list, G1 and G2."""
        super().check()
        ids, _ = entries(self._list.memory)
        lows, highs = self._rows[ids, Y_LOW], self._rows[ids, Y_HIGH]
        groups, runs = int(self._figures[GROUPS]), int(self._figures[TAU])
        table = self._figures[TABLE : TABLE + WIDTH * max(groups, runs)].reshape(-1, WIDTH)
        meets, starts, counts = table[:groups, :2], table[:runs, RUN - TABLE], table[:runs, BEGIN_THERE - TABLE]
        expect((meets[:, 0] <= meets[:, 1]).all(), "G1 no meet is empty")
        expect((meets[:-1, 1] < meets[1:, 0]).all(), "G1 meets do not overlap, and ascend")
        first = np.searchsorted(meets[:, 0], lows)  # if a range contains a meet, it contains the first that it may
        expect((np.append(meets[:, 1], np.nan)[first] <= highs).all(), "G1 every range contains a meet")
        tau = len(canonical(lows, highs)[1])
        expect(groups <= self._figures[MORE] * tau, "G2 there are few groups")
        run = np.maximum(np.searchsorted(starts, lows, "right") - 1, 0)
        expect(np.array_equal(np.bincount(run, minlength=runs), counts), "G3 counts of runs")
        left = table[:runs, WITNESS - TABLE].astype(np.int64)
        left = left[left >= 0]
        expect(np.isin(left, ids).all() and len(left) == runs - self._figures[LOST], "G2 witnesses left")
        expect((self._rows[left[:-1], Y_HIGH] < self._rows[left[1:], Y_LOW]).all(), "G2 witnesses do not overlap")


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
def _next_gap(
    m: Floats, group: float, offset: float, p: Floats, k: int, near: int, above: float
) -> tuple[int, int, float, float]:
    """The next gap that has a point of group k or a later one in it: the group after it, -1 if there is no such gap.

    And the leaf of the row above the gap, and the rows on both sides (NaN: none). `near` and `above` are those of the
    gap before.
    """
    groups = int(p[GROUPS])
    if np.isnan(above):  # that was behind all rows
        return -1, near, np.nan, above
    while k < groups:
        low, high = p[MEET_LOW + WIDTH * k], p[MEET_HIGH + WIDTH * k]
        point = low if low > -np.inf else (high if high < np.inf else 0.0)
        k += 1
        if point <= above and k > 1:  # in the gap before, or where its row is
            continue
        near, place = _first_from(m, group, offset, point, near)
        above = m[near + X + place] - offset if near >= 0 else np.nan
        if above != point:
            return k, near, _below(m, group, offset, near, place), above
    return -1, near, np.nan, above


@part
def _seek_from(ranges: Floats, x: float, near: int) -> tuple[int, int]:
    """As `seek` for x, where the place is likely to be in the leaf `near` (-1: no idea) or the one behind it."""
    leaf = near
    for _ in range(2):
        if leaf < 0:
            break
        low, high = 0, int(ranges[leaf + COUNT]) - 1
        if ranges[leaf + X] >= x:
            break
        if ranges[leaf + X + high] >= x:
            while low < high:
                middle = (low + high) >> 1
                if ranges[leaf + X + middle] < x:
                    low = middle + 1
                else:
                    high = middle
            return leaf, low
        leaf = int(ranges[leaf + NEXT])
    return seek(ranges, 0.0, x, -np.inf)


@part
def _inside(ranges: Floats, p: Floats, below: float, above: float, near: int) -> tuple[int, int]:
    """How many ranges lie in a gap, and the leaf where they begin: those of the next gap are likely to be near it."""
    start, end, inside = -np.inf if np.isnan(below) else np.nextafter(below, np.inf), above, 0
    if np.isnan(above):  # all that begin behind the last row: from the next run on they are counted
        run = _run_at(p, start) + 1
        end = p[RUN + WIDTH * run] if run < p[TAU] else np.nan
        for k in range(run, int(p[TAU])):
            inside += int(p[BEGIN_THERE + WIDTH * k])
    leaf, i = _seek_from(ranges, start, near)
    near = leaf
    while leaf >= 0:
        size = int(ranges[leaf + COUNT])
        if i == 0 and not (ranges[leaf + NODE_GREATEST] >= above or ranges[leaf + X + size - 1] >= end):
            inside, i = inside + size, size
        while i < size:
            if ranges[leaf + X + i] >= end:
                return inside, near
            inside += not ranges[leaf + Y + i] >= above
            i += 1
        leaf, i = int(ranges[leaf + NEXT]), 0
    return inside, near


@kernel
def by_group(
    m: Floats,
    groups: Floats,
    offsets: Floats,
    xs: Floats,
    p: Floats,
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
        k, near, below, above = _next_gap(m, group, offset, p, 0, -1, -np.inf)
        if k >= 0 and np.isnan(below) and np.isnan(above):
            continue  # there are no rows
        if not listed:
            there, total = -1, int(ranges[ENTRIES])
            while k >= 0:
                inside, there = _inside(ranges, p, below, above, there)
                total -= inside
                k, near, below, above = _next_gap(m, group, offset, p, k, near, above)
            counts[arrival] = total
            continue
        leaf, i = seek(ranges, 0.0, -np.inf, -np.inf)
        while leaf >= 0:
            if i == ranges[leaf + COUNT]:
                leaf, i = int(ranges[leaf + NEXT]), 0
                continue
            low, high, one = ranges[leaf + X + i], ranges[leaf + Y + i], int(ranges[leaf + ROW + i])
            i += 1
            while k >= 0 and above <= low:
                k, near, below, above = _next_gap(m, group, offset, p, k, near, above)
            if (k < 0 or low <= below or high >= above) and holds_x(rectangles, one, x):
                if used == len(of):
                    of, found = longer(of, used, 1), longer(found, used, 1)
                of[used], found[used] = arrival, one
                used += 1
                counts[arrival] += 1
    return counts, of[:used], found[:used]


@part
def _too_many(p: Floats) -> bool:
    """Whether the bound of groups may be broken."""
    return bool(p[GROUPS] > p[MORE] * (p[TAU] - p[LOST]))


@kernel
def has_room_for_meet(p: Floats) -> bool:
    """Whether one more group fits."""
    return TABLE + WIDTH * (int(p[GROUPS]) + 1) <= len(p)


@part
def _last_at_most(p: Floats, column: int, n: int, value: float) -> int:
    """The last of n rows whose entry in a column, which ascends, is at most `value`; the first if there is none."""
    row = 0
    while n > 1:  # it is among n from `row` on; no branch depends on what is found
        half = n >> 1
        row = row + half if p[column + WIDTH * (row + half)] <= value else row
        n -= half
    return row


@part
def _run_at(p: Floats, low: float) -> int:
    """The run whose ranges begin at or before `low`."""
    return _last_at_most(p, RUN, int(p[TAU]), low)


@kernel
def put_and_stab(m: Floats, leaf_of: Ints, rows: Floats, p: Floats, ids: Ints, rectangles: Floats, start: int) -> int:
    """As `put_in_order`, each range in a group, too; one more than all if the groups must be computed again.

    As soon as that is so, groups do not matter any more: they are left as they are.
    """
    for k in range(start, len(ids)):
        groups = int(p[GROUPS])
        if TABLE + WIDTH * (groups + 1) > len(p) or not put_one(m, leaf_of, rows, p, ids[k], rectangles, k):
            return k
        if _too_many(p):
            continue
        low, high = rectangles[k, Y_LOW], rectangles[k, Y_HIGH]
        p[BEGIN_THERE + WIDTH * _run_at(p, low)] += 1
        place = _last_at_most(p, MEET_LOW, groups, high)
        at = WIDTH * place
        if groups > 0 and p[MEET_LOW + at] <= high:
            if p[MEET_HIGH + at] >= low:
                p[MEET_LOW + at], p[MEET_HIGH + at] = max(p[MEET_LOW + at], low), min(p[MEET_HIGH + at], high)
                continue
            place += 1
        for row in range(groups, place, -1):
            at = WIDTH * row
            p[MEET_LOW + at], p[MEET_HIGH + at] = p[MEET_LOW + at - WIDTH], p[MEET_HIGH + at - WIDTH]
        p[MEET_LOW + WIDTH * place], p[MEET_HIGH + WIDTH * place] = low, high
        p[GROUPS] += 1
    return len(ids) + _too_many(p)


@kernel
def take_out_stabbed(m: Floats, leaf_of: Ints, rows: Floats, p: Floats, ids: Ints) -> bool:
    """As `take_out`; whether the groups must be computed again."""
    for k in range(len(ids)):
        look_ahead(m, leaf_of, rows, ids, k)
        one, low = ids[k], rows[ids[k], Y_LOW]
        take_one(m, leaf_of, rows, p, one)
        at = WIDTH * _run_at(p, low)
        p[BEGIN_THERE + at] -= 1
        if p[WITNESS + at] == one:
            p[WITNESS + at] = -1
            p[LOST] += 1
    return _too_many(p)


@kernel
def stab(m: Floats, p: Floats) -> int:
    """Compute the greedy partition; how many groups there are. (If they do not fit, only those that do are written.)"""
    groups, end, room = 0, -np.inf, (len(p) - TABLE) // WIDTH
    at = -WIDTH  # where the group is in the table
    leaf, _ = seek(m, 0.0, -np.inf, -np.inf)
    while leaf >= 0:
        size = int(m[leaf + COUNT])
        least = m[leaf + NODE_LEAST]
        if 0 < groups <= room and size > 0 and m[leaf + X + size - 1] <= min(end, least):  # all belongs to the group
            if least < end:
                i = 0
                while m[leaf + Y + i] != least:
                    i += 1
                end = p[at + MEET_HIGH] = least
                p[at + WITNESS] = m[leaf + ROW + i]
            p[at + MEET_LOW] = m[leaf + X + size - 1]
            p[at + BEGIN_THERE] += size
        else:
            for i in range(size):
                low, high = m[leaf + X + i], m[leaf + Y + i]
                is_first = groups == 0 or low > end
                if is_first:
                    groups, at = groups + 1, at + WIDTH
                end = high if is_first else min(end, high)
                if groups <= room:
                    if is_first:
                        p[at + RUN], p[at + BEGIN_THERE] = low, 0
                    if is_first or high < p[at + MEET_HIGH]:
                        p[at + MEET_HIGH], p[at + WITNESS] = high, m[leaf + ROW + i]
                    p[at + MEET_LOW] = low
                    p[at + BEGIN_THERE] += 1
        leaf = int(m[leaf + NEXT])
    p[GROUPS] = p[TAU] = min(groups, room)
    p[LOST] = 0
    return groups

"""SJ-SSI: which select-joins of each stabbing group get a new row (Xie (2007), section 4.3.2), and hotspots."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hullcast.broker.joins.hotspots import SCATTERED, HotspotTracker
from hullcast.broker.joins.plan import Y_HIGH, Y_LOW, Arrivals, RectangleTable, has_partners
from hullcast.network.compiled import kernel
from hullcast.network.matching.index import PointIndex
from hullcast.network.matching.search import STACK, count, report
from hullcast.network.matching.tree import Tree, longer
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.joins.beside import beside, shared_points
from hullcast.sim.joins.selects import selected_and_met


class SjHotspot:
    """SJ-SSI on the hot groups of the queries' ranges of C, SJ-SelectFirst on the scattered ones.

    A query of a group gets a row iff it holds one of the two joining rows next to the group's point, q1 <= p <= q2:
    those queries are found at (x, q1) and (x, q2). Xie (2007) has an R-tree for each group. Here all groups are in one
    k-d tree, with the group's number as one more coordinate, asked for by equality: one index to keep up to date.
    """

    name: ClassVar[str] = "Hotspot"

    def __init__(self, alpha: float, epsilon: float = 1.0) -> None:
        self._rectangles = RectangleTable()
        self._tracker = HotspotTracker(alpha, epsilon)
        self._grouped = PointIndex(5)  # a rectangle, and the number of its group
        self._scattered = PointIndex(2)  # x_low, x_high
        self._points: Floats = np.empty((2, 0))  # of each hot group: its number, and a point that its ranges share

    def add(self, ids: Ints, rectangles: Floats) -> None:
        """Queries come."""
        self._rectangles.put(ids, rectangles)
        self._tracker.add(ids, rectangles[:, Y_LOW], rectangles[:, Y_HIGH])
        self._follow()

    def remove(self, ids: Ints) -> None:
        """Queries go."""
        self._tracker.remove(ids)
        self._follow()

    def _follow(self) -> None:
        """Move those queries whose group is another one now."""
        ids, groups, _ = self._tracker.take_changes()
        for index in (self._grouped, self._scattered):
            place_of = index.arrays.place_of
            known = ids[ids < len(place_of)]
            index.delete(known[place_of[known] >= 0])
        hot, cold, rows = ids[groups >= 0], ids[groups == SCATTERED], self._rectangles.rows
        self._grouped.insert(hot, np.column_stack((rows[hot], groups[groups >= 0])))
        self._scattered.insert(cold, rows[cold, :Y_LOW])
        found = self._tracker.groups()
        self._points = np.array([found.numbers, shared_points(found)])

    def affected(self, tree: Floats, arrivals: Arrivals) -> tuple[Ints, Ints]:
        """(arrival, id) of each query that gets a row."""
        return self._found(tree, arrivals, True)[1:]

    def count_affected(self, tree: Floats, arrivals: Arrivals) -> Ints:
        """How many that are, for each arrival. Those of hot groups are not listed: their number costs nothing."""
        return self._found(tree, arrivals, False)[0]

    def _found(self, tree: Floats, arrivals: Arrivals, listed: bool) -> tuple[Ints, Ints, Ints]:
        indexes = (self._grouped.arrays, self._scattered.arrays)
        return _affected(self._points, *indexes, self._rectangles.rows, tree, *arrivals, listed)

    @property
    def sizes(self) -> Ints:
        """How many queries each hot group has."""
        return self._tracker.groups().sizes

    @property
    def cold(self) -> int:
        """Queries in no hot group."""
        return len(self._scattered)

    def check(self) -> None:
        """Test the parts, and that every query is in the one where the tracker has it."""
        self._tracker.check()
        self._grouped.check()
        self._scattered.check()
        group_of = self._tracker.group_of
        hot = np.flatnonzero(group_of >= 0)
        assert np.array_equal(np.flatnonzero(self._grouped.arrays.place_of >= 0), hot)
        assert np.array_equal(self._grouped.points(), np.column_stack((self._rectangles.rows[hot], group_of[hot])))
        assert np.array_equal(np.flatnonzero(self._scattered.arrays.place_of >= 0), self._tracker.scattered)


class Ssi(SjHotspot):
    """SJ-SSI: every group is hot."""

    name: ClassVar[str] = "SSI"

    def __init__(self) -> None:
        super().__init__(0.0)


@kernel
def _affected(
    points: Floats,
    tree: Tree,
    scattered: Tree,
    rectangles: Floats,
    m: Floats,
    groups: Floats,
    offsets: Floats,
    xs: Floats,
    listed: bool,
) -> tuple[Ints, Ints, Ints]:
    low, high, stack = np.full(2, -np.inf), np.full(2, np.inf), np.empty(STACK, np.int64)
    lows, highs, every = np.full(5, -np.inf), np.full(5, np.inf), len(tree.place_of)
    counts = np.zeros(len(xs), np.int64)
    of, ids, used = np.empty(64, np.int64), np.empty(64, np.int64), 0
    for arrival in range(len(xs)):
        group, offset, x = groups[arrival], offsets[arrival], xs[arrival]
        if not has_partners(group, offset, x):
            continue
        start = used
        for k in range(points.shape[1]):
            q1, q2 = beside(m, group, offset, points[1, k])
            highs[0], lows[1], lows[4], highs[4] = x, x, points[0, k], points[0, k]
            if not np.isnan(q1):
                highs[2], lows[3] = q1, q1
                if listed:
                    ids, used = report(tree, lows, highs, ids, used, stack)
                else:
                    counts[arrival] += count(tree, lows, highs, stack, every)
            if q2 > q1 or (np.isnan(q1) and not np.isnan(q2)):
                highs[2], lows[3] = q2, q2
                if listed:
                    before = used
                    ids, end = report(tree, lows, highs, ids, used, stack)
                    for i in range(before, end):
                        if not rectangles[ids[i], Y_LOW] <= q1:  # those have been named
                            ids[used] = ids[i]
                            used += 1
                else:
                    counts[arrival] += count(tree, lows, highs, stack, every)
                    highs[2] = q1
                    if not np.isnan(q1):  # those that hold both
                        counts[arrival] -= count(tree, lows, highs, stack, every)
        ids, used = selected_and_met(scattered, x, low, high, m, group, offset, rectangles, ids, used, stack)
        counts[arrival] += used - start
        if not listed:
            used = start
        if used > len(of):
            of = longer(of, start, len(ids) - start)
        for k in range(start, used):
            of[k] = arrival
    return counts, of[:used], ids[:used]

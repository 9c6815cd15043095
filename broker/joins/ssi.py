"""SSI: ranges are processed by stabbing groups, hot groups as wholes, scattered ranges by selection.

Xie (2007), sections 4.3 to 4.4. For each hot group its envelope says how far the ranges that hold x reach: one
interval. The intervals of all groups, in order of the groups' common points, are united as they come, together with
those of the few scattered ranges that hold x; and only what is left is sought in the other side's index.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hullcast.broker.joins.envelope import (
    FIRST,
    HIGH_SUPPORTS,
    HIGHEST,
    LOOKS,
    LOW_SUPPORTS,
    LOWEST,
    PIECES,
    Envelopes,
    piece_at,
)
from hullcast.broker.joins.hotspots import SCATTERED, HotspotTracker
from hullcast.broker.joins.plan import (
    HIGH,
    LOW,
    SURE,
    Y_HIGH,
    Y_LOW,
    Arrivals,
    RectangleTable,
    Spans,
    has_partners,
    keep_filled,
    push,
    sort_by_low,
    spans_of,
    unite,
)
from hullcast.broker.joins.select_first import selected
from hullcast.network.compiled import kernel
from hullcast.network.matching.index import PointIndex
from hullcast.network.matching.search import STACK
from hullcast.network.matching.tree import COUNT as POINTS
from hullcast.network.matching.tree import Tree
from hullcast.network.wire.arrays import Floats, Ints

#: A group with this share of all ranges is hot; and by how much there may be more groups than needed.
ALPHA, EPSILON = 0.002, 1.0


class Hotspot:
    """Hot groups of the ranges' y-intervals by envelopes, the scattered ranges as in SelectFirst.

    With alpha = 0 all groups are hot: plain SSI. With given `rectangles`, which may be shared, they are put there too.
    Where it is `kept_up`, its owner calls `follow` and `envelopes.rebuild_due`, and queries do neither.

    Cost for g hot groups with p pieces each, k scattered ranges that hold x, and m rows: O(g log p + k log k) for the
    intervals, and O(log m) for each that is left after uniting them; how many ranges a group has does not matter.
    """

    name: ClassVar[str] = "Hotspot"

    def __init__(
        self,
        alpha: float = ALPHA,
        epsilon: float = EPSILON,
        rectangles: RectangleTable | None = None,
        *,
        kept_up: bool = False,
    ) -> None:
        self.rectangles = RectangleTable() if rectangles is None else rectangles
        self._tracker = HotspotTracker(alpha, epsilon)
        self.envelopes = Envelopes(self.rectangles)
        self._scattered = PointIndex(2)
        self._kept_up = kept_up
        self._is_behind = False  # changes of the tracker are still to be followed
        self._order: Ints = np.empty(0, np.int64)  # hot groups, by their common points

    def add(self, ids: Ints, rectangles: Floats) -> None:
        """Take in rectangles."""
        self.rectangles.put(ids, rectangles)
        self._tracker.add(ids, rectangles[:, Y_LOW], rectangles[:, Y_HIGH])
        self._is_behind = True

    def remove(self, ids: Ints) -> None:
        """Forget them. At once, since the same id may have another rectangle by the time that changes are followed."""
        self._leave(ids)
        self._tracker.remove(ids)
        self._is_behind = True

    def spans(self, tree: Floats, arrivals: Arrivals) -> Spans:
        """Where wanted partners are; not sure where ranges have left a large group lately (`charge`)."""
        if not self._kept_up:
            self.follow()
            self.envelopes.rebuild_due(len(arrivals.xs))
        envelopes = self.envelopes
        return spans_of(
            _spans(
                self._order,
                envelopes.table,
                envelopes.starts,
                envelopes.values,
                self._scattered.arrays,
                self.rectangles.rows,
                tree,
                *arrivals,
            )
        )

    def charge(self, tests: int) -> None:
        """So many rows had to be tested since spans were not sure: pieces are computed again when that is too much."""
        self.envelopes.charge(tests)

    def follow(self) -> None:
        """Do as the tracker has done."""
        if not self._is_behind:
            return
        self._is_behind = False
        ids, groups, _ = self._tracker.take_changes()
        self._leave(ids)
        hot = groups >= 0
        self.envelopes.add(ids[hot], groups[hot])
        rest = ids[groups == SCATTERED]
        if len(rest):
            self._scattered.insert(rest, self.rectangles.rows[rest, :Y_LOW])
        found = self._tracker.groups()
        self._order = found.numbers[np.argsort(found.lows, kind="stable")]

    def _leave(self, ids: Ints) -> None:
        """Take these out of where they are, if they are anywhere."""
        held = ids[self.envelopes.group_of(ids) >= 0]
        if len(held):
            self.envelopes.remove(held)
        place_of = self._scattered.arrays.place_of
        known = ids[ids < len(place_of)]
        held = known[place_of[known] >= 0]
        if len(held):
            self._scattered.delete(held)

    @property
    def hot_groups(self) -> int:
        """How many groups have an envelope."""
        self.follow()
        return len(self._order)

    @property
    def pieces(self) -> int:
        """Pieces of all envelopes."""
        self.follow()
        return int(self.envelopes.table[:, PIECES].sum())

    @property
    def cold(self) -> int:
        """Ranges in no hot group."""
        self.follow()
        return len(self._scattered)

    def describe(self) -> dict[str, object]:
        """Groups and hotspots, for people."""
        return self._tracker.describe()

    def memory_bytes(self) -> int:
        """Bytes held."""
        parts = (self._tracker, self.envelopes, self._scattered)
        return self.rectangles.rows.nbytes + sum(part.memory_bytes() for part in parts)

    def check(self) -> None:
        """Test the parts, and that every range is in the one where the tracker has it."""
        self.follow()
        self._tracker.check()
        self.envelopes.check()
        self._scattered.check()
        group_of = self._tracker.group_of
        ids = np.arange(len(group_of))
        assert (self.envelopes.group_of(ids) == np.maximum(group_of, -1)).all()
        place_of = self._scattered.arrays.place_of
        assert np.array_equal(np.flatnonzero(place_of >= 0), self._tracker.scattered)


@kernel
def _spans(
    order: Ints,
    table: Ints,
    starts: Floats,
    values: Floats,
    tree: Tree,
    rectangles: Floats,
    m: Floats,
    groups: Floats,
    offsets: Floats,
    xs: Floats,
) -> Floats:
    low, high, stack = np.full(2, -np.inf), np.full(2, np.inf), np.empty(STACK, np.int64)
    ids, rows = np.empty(64, np.int64), np.empty((len(order) + 64, 3))
    out, used = np.empty((64, 4)), 0
    scattered = tree.nodes[0, POINTS] > 0
    for arrival in range(len(xs)):
        group, offset, x = groups[arrival], offsets[arrival], xs[arrival]
        if not has_partners(group, offset, x):
            continue
        n = 0
        for k in range(len(order)):
            hot = order[k]
            i = piece_at(starts, table[hot, FIRST], table[hot, PIECES], x)
            if values[i, LOWEST] <= values[i, HIGHEST]:
                sure = min(values[i, LOW_SUPPORTS], values[i, HIGH_SUPPORTS]) > 0
                table[hot, LOOKS] += not sure
                n = push(rows, n, values[i, LOWEST], values[i, HIGHEST], 1.0 if sure else 0.0)
        ordered = True
        for k in range(1, n):
            ordered &= rows[k - 1, HIGH] < rows[k, LOW]
        if scattered:
            ids, others = selected(tree, x, low, high, ids, 0, stack)
            if n + others > len(rows):
                more = np.empty((2 * (n + others), 3))
                for k in range(n):
                    more[k, LOW], more[k, HIGH], more[k, SURE] = rows[k, LOW], rows[k, HIGH], rows[k, SURE]
                rows = more
            for k in range(others):
                rows[n, LOW], rows[n, HIGH] = rectangles[ids[k], Y_LOW], rectangles[ids[k], Y_HIGH]
                rows[n, SURE] = 1.0
                n += 1
            ordered &= others == 0
        if not ordered:
            sort_by_low(rows, n)
            n = unite(rows, n)
        out, used = keep_filled(m, arrival, group, offset, rows, n, out, used)
    return out[:used]

"""SJ-SelectFirst: finds the rectangles that hold the row's x, then joining rows in their y-intervals."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

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
    sort_by_low,
    spans_of,
    unite,
)
from hullcast.network.compiled import kernel, part
from hullcast.network.matching.index import PointIndex
from hullcast.network.matching.search import STACK, report
from hullcast.network.matching.tree import Tree
from hullcast.network.wire.arrays import Floats, Ints


class SelectFirst:
    """x-intervals lie in a k-d tree (network/matching) as points (x_low, x_high): "who holds x" is a box query.

    Cost for n rectangles of which k hold x, and m rows: O(sqrt(n) + k (log k + log m)) an arrival; a change is one of
    the k-d tree. With given `rectangles`, which may be shared, they are put there too.
    """

    name: ClassVar[str] = "SelectFirst"

    def __init__(self, rectangles: RectangleTable | None = None) -> None:
        self.rectangles = RectangleTable() if rectangles is None else rectangles
        self.index = PointIndex(2)

    def add(self, ids: Ints, rectangles: Floats) -> None:
        """Take in rectangles."""
        self.rectangles.put(ids, rectangles)
        self.index.insert(ids, rectangles[:, :Y_LOW])

    def remove(self, ids: Ints) -> None:
        """Forget them; their rectangles stay where they are until an id is used again."""
        self.index.delete(ids)

    def spans(self, tree: Floats, arrivals: Arrivals) -> Spans:
        """Where wanted partners are."""
        return spans_of(_spans(self.index.arrays, self.rectangles.rows, tree, *arrivals))

    def memory_bytes(self) -> int:
        """Bytes held."""
        return self.index.memory_bytes() + self.rectangles.rows.nbytes

    def check(self) -> None:
        """Test the index, and that rectangles are the ones in it."""
        self.index.check()
        ids = np.flatnonzero(self.index.arrays.place_of >= 0)
        assert (self.index.points_of(ids) == self.rectangles.rows[ids, :Y_LOW]).all()


@part
def selected(tree: Tree, x: float, low: Floats, high: Floats, out: Ints, used: int, stack: Ints) -> tuple[Ints, int]:
    """Append the ids of the rectangles that hold x. Scratch: low has -inf, high has inf, two each."""
    high[0], low[1] = x, x
    return report(tree, low, high, out, used, stack)


@kernel
def _spans(tree: Tree, rectangles: Floats, m: Floats, groups: Floats, offsets: Floats, xs: Floats) -> Floats:
    low, high, stack = np.full(2, -np.inf), np.full(2, np.inf), np.empty(STACK, np.int64)
    ids, rows, out, used = np.empty(64, np.int64), np.empty((64, 3)), np.empty((64, 4)), 0
    for arrival in range(len(xs)):
        group, offset, x = groups[arrival], offsets[arrival], xs[arrival]
        if not has_partners(group, offset, x):
            continue
        ids, n = selected(tree, x, low, high, ids, 0, stack)
        if n > len(rows):
            rows = np.empty((len(ids), 3))
        for k in range(n):
            rows[k, LOW], rows[k, HIGH], rows[k, SURE] = rectangles[ids[k], Y_LOW], rectangles[ids[k], Y_HIGH], 1.0
        sort_by_low(rows, n)
        out, used = keep_filled(m, arrival, group, offset, rows, unite(rows, n), out, used)
    return out[:used]

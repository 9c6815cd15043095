"""SJ-JoinFirst: find the rows that join, then which of them somebody wants."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hullcast.broker.index.nodes import COUNT, GROUP, NEXT, X
from hullcast.broker.joins.plan import (
    HIGH,
    LOW,
    OF,
    SURE,
    Arrivals,
    Spans,
    first_at,
    has_partners,
    keep_filled,
    sort_by_low,
    spans_of,
    unite,
    with_room,
)
from hullcast.network.compiled import kernel, part
from hullcast.network.matching.index import PointIndex
from hullcast.network.matching.search import STACK, count, report
from hullcast.network.matching.tree import Tree
from hullcast.network.wire.arrays import Floats, Ints

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Where a point of the index has a rectangle's x_low, x_high, y_low, y_high, if it is just that rectangle.
PLAIN = (0, 1, 2, 3)
ALL = 1 << 62
#: To look up a joining row takes as long as so many rectangles that hold x.
LOOK_COST = 4


class JoinFirst:
    """Variant E: each joining row, in order, is looked up among the rectangles; neighbours that are wanted make a span.

    `either` looks up rectangles instead where fewer of them hold x. It needs no estimates.

    Rectangles lie in a k-d tree (network/matching), as points of their four bounds: "does one hold (x, y)" is "is a
    point in this box". With a given `index`, whose owner keeps it up to date, nothing is held here: `columns` says
    where its points have the four bounds (-1: they have none, no bound), and `negated` that they bound -y.

    Cost for n rectangles and k joining rows: O(k sqrt(n)) at worst; a change is one of the k-d tree.
    """

    name: ClassVar[str] = "JoinFirst-E"

    def __init__(
        self, index: PointIndex | None = None, columns: Sequence[int] = PLAIN, *, negated: bool = False
    ) -> None:
        self._index = PointIndex(4) if index is None else index
        self._is_mine = index is None
        self._columns: Ints = np.array([*columns, negated], np.int64)

    def add(self, ids: Ints, rectangles: Floats) -> None:
        """Take in rectangles."""
        if self._is_mine:
            self._index.insert(ids, rectangles)

    def remove(self, ids: Ints) -> None:
        """Forget them."""
        if self._is_mine:
            self._index.delete(ids)

    def spans(self, tree: Floats, arrivals: Arrivals) -> Spans:
        """Where wanted partners are: from the first to the last of neighbours that are all wanted."""
        return spans_of(_spans(self._index.arrays, self._columns, *self.extent(), tree, *arrivals))

    def either(self, tree: Floats, arrivals: Arrivals) -> Spans:
        """The same, or a little more than `spans` gives: by joining rows, or by rectangles, whichever is less work."""
        return spans_of(_either(self._index.arrays, self._columns, *self.extent(), tree, *arrivals))

    def extent(self) -> tuple[float, float]:
        """The lowest and the highest y that anybody may want."""
        low, high = (int(column) for column in self._columns[2:4])
        tree = self._index.arrays
        if not len(self._index):
            return np.inf, -np.inf
        lowest = -np.inf if low < 0 else float(tree.bounds[0, low])
        highest = np.inf if high < 0 else float(tree.bounds[0, self._index.dimensions + high])
        return (-highest, -lowest) if self._columns[4] else (lowest, highest)

    def memory_bytes(self) -> int:
        """Bytes held."""
        return self._index.memory_bytes() if self._is_mine else 0

    def check(self) -> None:
        """Test the index."""
        self._index.check()


@part
def _ask(columns: Ints, x: float, y: float, low: Floats, high: Floats) -> None:
    """The query box, into low and high, of the rectangles that hold (x, y)."""
    if columns[4]:
        y = -y
    if columns[0] >= 0:
        high[columns[0]], low[columns[1]] = x, x
    if columns[2] >= 0:
        high[columns[2]], low[columns[3]] = y, y


@part
def _look_up(
    tree: Tree,
    columns: Ints,
    box: Floats,
    lowest: float,
    highest: float,
    m: Floats,
    group: float,
    offset: float,
    x: float,
    most: int,
    out: Floats,
    used: int,
    stack: Ints,
) -> tuple[Floats, int]:
    """Append the spans of wanted rows among those that join; -1 where these have more than so many different y."""
    low, high = box[0], box[1]
    leaf, i = first_at(m, group, offset, lowest)
    wanted, before = False, np.nan
    while leaf >= 0:
        if i == m[leaf + COUNT]:
            leaf, i = int(m[leaf + NEXT]), 0
            continue
        y = m[leaf + X + i] - offset
        if m[leaf + GROUP + i] != group or not y <= highest:
            break
        if y != before:
            if most == 0:
                return out, -1
            most -= 1
            _ask(columns, x, y, low, high)
            was, wanted, before = wanted, count(tree, low, high, stack, 1) > 0, y
            if wanted and not was:
                out = with_room(out, used)
                out[used, LOW], out[used, SURE] = y, 1.0
                used += 1
            if wanted:
                out[used - 1, HIGH] = y
        i += 1
    return out, used


@kernel
def _spans(
    tree: Tree, columns: Ints, lowest: float, highest: float, m: Floats, groups: Floats, offsets: Floats, xs: Floats
) -> Floats:
    k = tree.coordinates.shape[2]
    box, stack = np.empty((2, k)), np.empty(STACK, np.int64)
    box[0], box[1] = -np.inf, np.inf
    out, used = np.empty((64, 4)), 0
    for arrival in range(len(xs)):
        group, offset, x = groups[arrival], offsets[arrival], xs[arrival]
        if not has_partners(group, offset, x):
            continue
        start = used
        out, used = _look_up(tree, columns, box, lowest, highest, m, group, offset, x, ALL, out, used, stack)
        for at in range(start, used):
            out[at, OF] = arrival
    return out[:used]


@kernel
def _either(
    tree: Tree, columns: Ints, lowest: float, highest: float, m: Floats, groups: Floats, offsets: Floats, xs: Floats
) -> Floats:
    k = tree.coordinates.shape[2]
    points = tree.coordinates.reshape(-1, k)
    box, stack = np.empty((2, k)), np.empty(STACK, np.int64)
    ids, rows, out, used = np.empty(64, np.int64), np.empty((64, 3)), np.empty((64, 4)), 0
    for arrival in range(len(xs)):
        group, offset, x = groups[arrival], offsets[arrival], xs[arrival]
        if not has_partners(group, offset, x):
            continue
        box[0], box[1] = -np.inf, np.inf
        if columns[0] >= 0:
            box[1, columns[0]], box[0, columns[1]] = x, x
        hold = count(tree, box[0], box[1], stack, ALL)
        if hold == 0:
            continue
        start, most = used, hold // LOOK_COST
        out, used = _look_up(tree, columns, box, lowest, highest, m, group, offset, x, most, out, used, stack)
        if used >= 0:
            for at in range(start, used):
                out[at, OF] = arrival
            continue
        used = start
        if columns[2] >= 0:
            box[1, columns[2]], box[0, columns[3]] = np.inf, -np.inf
        ids, found = report(tree, box[0], box[1], ids, 0, stack)
        if found > len(rows):
            rows = np.empty((len(ids), 3))
        n = 0
        for at in range(found):
            place = tree.place_of[ids[at]]
            low = -np.inf if columns[2] < 0 else points[place, columns[2]]
            high = np.inf if columns[3] < 0 else points[place, columns[3]]
            if low <= high:
                rows[n, LOW], rows[n, HIGH], rows[n, SURE] = (-high, -low, 1.0) if columns[4] else (low, high, 1.0)
                n += 1
        sort_by_low(rows, n)
        out, used = keep_filled(m, arrival, group, offset, rows, unite(rows, n), out, used)
    return out[:used]

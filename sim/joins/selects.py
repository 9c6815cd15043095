"""Which select-joins get a new row, found in the ways that SJ-SSI is measured against (Xie (2007), section 4.3.2).

The server asks another question (which rows are wanted, broker/joins/plan.py), by the same structures: what is here
adds to its plans the method `affected`.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np

from hullcast.broker.index.nodes import COUNT, GROUP, NEXT, X
from hullcast.broker.joins import join_first, select_first
from hullcast.broker.joins.plan import (
    HIGH,
    LOW,
    OF,
    SURE,
    X_HIGH,
    X_LOW,
    Y_HIGH,
    Y_LOW,
    Arrivals,
    RectangleTable,
    Spans,
    first_at,
    has_partners,
    spans_of,
    with_room,
)
from hullcast.broker.joins.select_first import selected
from hullcast.network.compiled import kernel, part
from hullcast.network.matching.search import STACK, report
from hullcast.network.matching.tree import Tree, longer
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.joins.beside import is_met


class SelectJoins(Protocol):
    """One way to find affected select-joins. A query is a rectangle, as in broker/joins/plan.py."""

    name: ClassVar[str]

    def add(self, ids: Ints, rectangles: Floats) -> None:
        """Queries come."""

    def remove(self, ids: Ints) -> None:
        """Queries go."""

    def affected(self, tree: Floats, arrivals: Arrivals) -> tuple[Ints, Ints]:
        """(arrival, id) of each query that gets a row, ordered by arrival."""


class SjSelectFirst(select_first.SelectFirst):
    """SJ-SelectFirst: the queries whose range of A holds the row, each looked up in S(B, C)."""

    def affected(self, tree: Floats, arrivals: Arrivals) -> tuple[Ints, Ints]:
        """(arrival, id) of each query that gets a row."""
        return _select_first(self.index.arrays, self.rectangles.rows, tree, *arrivals)


class SjJoinFirst(join_first.JoinFirst):
    """SJ-JoinFirst-E: each joining row asks an index of all rectangles which ones hold it."""

    def affected(self, tree: Floats, arrivals: Arrivals) -> tuple[Ints, Ints]:
        """(arrival, id) of each query that gets a row."""
        return _join_first(self._index.arrays, *self.extent(), tree, *arrivals)


class JoinFirstEach:
    """SJ-JoinFirst-S, which is NAIVE too: joining rows are listed in order of C, and each query looked up there.

    O(k + n log k) for n queries and k joining rows. A query whose range of A does not hold the row is not looked up.
    `hullcast calibrate` measures `spans`, what the server would ask: it never pays there.
    """

    name: ClassVar[str] = "JoinFirst-S"

    def __init__(self) -> None:
        self._rectangles = RectangleTable()

    def add(self, ids: Ints, rectangles: Floats) -> None:
        """Queries come."""
        self._rectangles.put(ids, rectangles)

    def remove(self, ids: Ints) -> None:
        """Queries go."""
        self._rectangles.drop(ids)

    def spans(self, tree: Floats, arrivals: Arrivals) -> Spans:
        """Where wanted partners are: from the first to the last of neighbours that are all wanted."""
        return spans_of(_spans_by_list(self._rectangles.rows, tree, *arrivals))

    def affected(self, tree: Floats, arrivals: Arrivals) -> tuple[Ints, Ints]:
        """(arrival, id) of each query that gets a row."""
        return _affected_by_list(self._rectangles.rows, tree, *arrivals)

    def memory_bytes(self) -> int:
        """Bytes held."""
        return self._rectangles.rows.nbytes

    def check(self) -> None:
        """There is nothing that could be wrong."""


class SjNaive(JoinFirstEach):
    """NAIVE of section 4.6.2: O(log m + n log k), the same as JoinFirst-S of section 4.5.1."""

    name: ClassVar[str] = "NAIVE"


@part
def selected_and_met(
    tree: Tree,
    x: float,
    low: Floats,
    high: Floats,
    m: Floats,
    group: float,
    offset: float,
    rectangles: Floats,
    out: Ints,
    used: int,
    stack: Ints,
) -> tuple[Ints, int]:
    """Append the ids of the rectangles that hold x and have a partner in them. Scratch as in `selected`."""
    out, end = selected(tree, x, low, high, out, used, stack)
    for k in range(used, end):
        if is_met(m, group, offset, rectangles[out[k], Y_LOW], rectangles[out[k], Y_HIGH]):
            out[used] = out[k]
            used += 1
    return out, used


@kernel
def _select_first(
    tree: Tree, rectangles: Floats, m: Floats, groups: Floats, offsets: Floats, xs: Floats
) -> tuple[Ints, Ints]:
    low, high, stack = np.full(2, -np.inf), np.full(2, np.inf), np.empty(STACK, np.int64)
    of, ids, used = np.empty(64, np.int64), np.empty(64, np.int64), 0
    for arrival in range(len(xs)):
        group, offset, x = groups[arrival], offsets[arrival], xs[arrival]
        if not has_partners(group, offset, x):
            continue
        start = used
        ids, used = selected_and_met(tree, x, low, high, m, group, offset, rectangles, ids, used, stack)
        if used > len(of):
            of = longer(of, start, len(ids) - start)
        for k in range(start, used):
            of[k] = arrival
    return of[:used], ids[:used]


@kernel
def _join_first(
    tree: Tree, lowest: float, highest: float, m: Floats, groups: Floats, offsets: Floats, xs: Floats
) -> tuple[Ints, Ints]:
    low, high, stack = np.full(4, -np.inf), np.full(4, np.inf), np.empty(STACK, np.int64)
    latest = np.full(len(tree.place_of), -1, np.int64)  # the arrival for which an id was last reported
    of, ids, used = np.empty(64, np.int64), np.empty(64, np.int64), 0
    for arrival in range(len(xs)):
        group, offset, x = groups[arrival], offsets[arrival], xs[arrival]
        if not has_partners(group, offset, x):
            continue
        high[X_LOW], low[X_HIGH] = x, x
        leaf, i = first_at(m, group, offset, lowest)
        while leaf >= 0:
            if i == m[leaf + COUNT]:
                leaf, i = int(m[leaf + NEXT]), 0
                continue
            y = m[leaf + X + i] - offset
            if m[leaf + GROUP + i] != group or not y <= highest:
                break
            high[Y_LOW], low[Y_HIGH] = y, y
            start = used
            ids, end = report(tree, low, high, ids, used, stack)
            for at in range(start, end):  # each once: the first row in it reported it
                if latest[ids[at]] != arrival:
                    latest[ids[at]] = arrival
                    ids[used] = ids[at]
                    used += 1
            if used > len(of):
                of = longer(of, start, len(ids) - start)
            for at in range(start, used):
                of[at] = arrival
            i += 1
    return of[:used], ids[:used]


@part
def _joining(m: Floats, group: float, offset: float, ys: Floats) -> tuple[Floats, int]:
    """The y of all joining rows, each once, ascending, into ys or a longer array."""
    n = 0
    leaf, i = first_at(m, group, offset, -np.inf)
    while leaf >= 0:
        if i == m[leaf + COUNT]:
            leaf, i = int(m[leaf + NEXT]), 0
            continue
        y = m[leaf + X + i] - offset
        if m[leaf + GROUP + i] != group or np.isnan(y):
            break
        if n == 0 or ys[n - 1] != y:
            if n == len(ys):
                more = np.empty(2 * n)
                for k in range(n):
                    more[k] = ys[k]
                ys = more
            ys[n] = y
            n += 1
        i += 1
    return ys, n


@part
def _first_from(ys: Floats, n: int, low: float) -> int:
    """Place of the first y >= low among ys[:n]."""
    start, end = 0, n
    while start < end:
        middle = (start + end) >> 1
        if ys[middle] < low:
            start = middle + 1
        else:
            end = middle
    return start


@kernel
def _spans_by_list(rectangles: Floats, m: Floats, groups: Floats, offsets: Floats, xs: Floats) -> Floats:
    ys, marks = np.empty(64), np.empty(65, np.int64)
    out, used = np.empty((64, 4)), 0
    for arrival in range(len(xs)):
        group, offset, x = groups[arrival], offsets[arrival], xs[arrival]
        if not has_partners(group, offset, x):
            continue
        ys, n = _joining(m, group, offset, ys)
        if n >= len(marks):
            marks = np.empty(len(ys) + 1, np.int64)
        for k in range(n + 1):
            marks[k] = 0
        for i in range(len(rectangles)):  # rectangles that begin at a row, less those that ended before it
            if rectangles[i, X_LOW] <= x <= rectangles[i, X_HIGH]:
                first = _first_from(ys, n, rectangles[i, Y_LOW])
                high = rectangles[i, Y_HIGH]
                if first < n and ys[first] <= high:
                    marks[first] += 1
                    marks[n if high == np.inf else _first_from(ys, n, np.nextafter(high, np.inf))] -= 1
        open_ones = 0
        for k in range(n):
            was = open_ones
            open_ones += marks[k]
            if open_ones > 0:
                if was == 0:
                    out = with_room(out, used)
                    out[used, OF], out[used, LOW], out[used, SURE] = arrival, ys[k], 1.0
                    used += 1
                out[used - 1, HIGH] = ys[k]
    return out[:used]


@kernel
def _affected_by_list(rectangles: Floats, m: Floats, groups: Floats, offsets: Floats, xs: Floats) -> tuple[Ints, Ints]:
    ys = np.empty(64)
    of, ids, used = np.empty(64, np.int64), np.empty(64, np.int64), 0
    for arrival in range(len(xs)):
        group, offset, x = groups[arrival], offsets[arrival], xs[arrival]
        if not has_partners(group, offset, x):
            continue
        ys, n = _joining(m, group, offset, ys)
        for i in range(len(rectangles)):
            if rectangles[i, X_LOW] <= x <= rectangles[i, X_HIGH]:
                first = _first_from(ys, n, rectangles[i, Y_LOW])
                if first < n and ys[first] <= rectangles[i, Y_HIGH]:
                    if used == len(ids):
                        of, ids = longer(of, used, 1), longer(ids, used, 1)
                    of[used], ids[used] = arrival, i
                    used += 1
    return of[:used], ids[:used]

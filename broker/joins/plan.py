"""What all plans for finding partners share: arrivals, rectangles, spans, and the other side's index.

A row arrives on one side of a join. Its partners are rows of the other side's A2B-tree, in the group of its join value
(an equality) or anywhere (a band). Every range that somebody asks for is a rectangle:

    y ^      +-----------+            x   the arriving row's value in the first range column of its side
      |   +--+--------+  |            y   the partner's place: its x in the tree, less the arrival's offset
      |   |  +--------+--+
      |   +-----------+               a partner is wanted iff some rectangle has its (x, y)
      +-------------------------> x

A plan finds, for each arrival, the stretches of y ("spans") that hold wanted partners; `walk` lists the partners, the
same way for all plans. y is computed as SQL computes it: `x - offset`, rounded once.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from hullcast.broker.index.nodes import COUNT, GROUP, NEXT, ROW, X, seek
from hullcast.network.compiled import kernel, part
from hullcast.network.wire.arrays import Booleans, Floats, Ints

LARGEST = float(np.finfo(np.float64).max)
FEW = 24  # so many intervals are sorted by insertion

# Columns of a rectangle.
X_LOW, X_HIGH, Y_LOW, Y_HIGH = 0, 1, 2, 3
# Columns of an interval on its way to a span, and of a span: which arrival, then the interval.
LOW, HIGH, SURE = 0, 1, 2
OF = 3


class Arrivals(NamedTuple):
    """Rows that arrive on one side. Columns must be contiguous; a NaN in any of them: this row has no partner."""

    groups: Floats  # where in the other side's tree: the join value of an equality, 0 for a band
    offsets: Floats  # 0 for an equality, the row's own join value for a band
    xs: Floats  # the row's value in the first range column of its side, 0 where there is none

    def take(self, at: Ints) -> Arrivals:
        """Some of them."""
        return Arrivals(self.groups[at], self.offsets[at], self.xs[at])


class Spans(NamedTuple):
    """Stretches of the other side that somebody wants: per arrival disjoint, ascending, closed, with a row in each."""

    of: Ints  # which arrival
    low: Floats  # in y
    high: Floats
    sure: Booleans  # every row in it is wanted; otherwise some may not be


class JoinPlan(Protocol):
    """One way to find wanted partners. Ids are the caller's: small, close together, each present once.

    A rectangle is x_low <= x_high, y_low <= y_high, and no NaN.
    """

    name: ClassVar[str]

    def add(self, ids: Ints, rectangles: Floats) -> None:
        """Take in rectangles (n, 4)."""

    def remove(self, ids: Ints) -> None:
        """Forget them."""

    def spans(self, tree: Floats, arrivals: Arrivals) -> Spans:
        """Where wanted partners are."""

    def memory_bytes(self) -> int:
        """Bytes held."""

    def check(self) -> None:
        """AssertionError if an invariant is broken."""


class RectangleTable:
    """Rectangles by id, in one array; where there is none, one that holds nothing."""

    def __init__(self) -> None:
        self.rows: Floats = np.tile(NOTHING, (16, 1))

    def put(self, ids: Ints, rectangles: Floats) -> None:
        """Set these."""
        top = 1 + int(ids.max(initial=-1))
        if top > len(self.rows):
            rows = np.tile(NOTHING, (max(top, 2 * len(self.rows)), 1))
            rows[: len(self.rows)] = self.rows
            self.rows = rows
        self.rows[ids] = rectangles

    def drop(self, ids: Ints) -> None:
        """Forget these."""
        self.rows[ids] = NOTHING


NOTHING: Floats = np.array([np.inf, -np.inf, np.inf, -np.inf])


def spans_of(rows: Floats) -> Spans:
    """What a kernel found, (n, 4), as columns."""
    return Spans(
        rows[:, OF].astype(np.int64), rows[:, LOW].copy(), rows[:, HIGH].copy(), rows[:, SURE].astype(np.bool_)
    )


# --- rows of the other side ----------------------------------------------------------------------------------------


@part
def first_at(m: Floats, group: float, offset: float, low: float) -> tuple[int, int]:
    """(leaf, i) of the group's first row with y >= low; leaf -1 where there is none.

    What is sought is low + offset, less a hair since that is rounded; rows in the hair are skipped, equal ones at once.
    """
    start = low
    if offset == np.inf:  # every finite x is at -inf, and inf - inf is nowhere
        if low > -np.inf:
            return -1, -1
    elif offset == -np.inf:  # .. and everything else at inf
        start = -LARGEST
    elif offset != 0.0:
        start = min(low, LARGEST)  # LARGEST and more may be reached by rounding up to inf
        start = start + offset - (abs(start) + abs(offset)) * 1e-15
    leaf, i = seek(m, group, start, -np.inf)
    while i < m[leaf + COUNT] and m[leaf + GROUP + i] == group:
        x = m[leaf + X + i]
        if x - offset >= low:
            return leaf, i
        if x == np.inf:
            break
        leaf, i = seek(m, group, np.nextafter(x, np.inf), -np.inf)
    return -1, -1


@kernel
def walk(
    m: Floats, groups: Floats, offsets: Floats, of: Ints, lows: Floats, highs: Floats, sures: Booleans, most: int
) -> tuple[Ints, Ints, Booleans, bool]:
    """(arrival, slot, sure) of every row in the spans, in their order, and whether that is all.

    It gives nothing, and False, when there are more than `most`.
    """
    room = 64
    pairs, sure = np.empty((2, room), np.int64), np.empty(room, np.bool_)
    count = 0
    for span in range(len(of)):
        group, offset, high = groups[of[span]], offsets[of[span]], highs[span]
        leaf, i = first_at(m, group, offset, lows[span])
        while leaf >= 0:
            if i == m[leaf + COUNT]:
                leaf, i = int(m[leaf + NEXT]), 0
                continue
            if m[leaf + GROUP + i] != group or not m[leaf + X + i] - offset <= high:
                break
            if count == most:
                return pairs[0, :0], pairs[1, :0], sure[:0], False
            if count == room:
                larger, longer = np.empty((2, 2 * room), np.int64), np.empty(2 * room, np.bool_)
                for k in range(count):
                    larger[0, k], larger[1, k], longer[k] = pairs[0, k], pairs[1, k], sure[k]
                pairs, sure, room = larger, longer, 2 * room
            pairs[0, count], pairs[1, count], sure[count] = of[span], int(m[leaf + ROW + i]), sures[span]
            count += 1
            i += 1
    return pairs[0, :count], pairs[1, :count], sure[:count], True


# --- intervals of y, before any row is looked at -------------------------------------------------------------------


@part
def with_room(rows: Floats, used: int) -> Floats:
    """The same rows, or a copy with room for one more, at least twice as long."""
    if used < len(rows):
        return rows
    longer = np.empty((2 * len(rows), rows.shape[1]))
    for i in range(used):
        for j in range(rows.shape[1]):
            longer[i, j] = rows[i, j]
    return longer


@part
def _copy(rows: Floats, i: int, to: Floats, k: int) -> None:
    to[k, LOW], to[k, HIGH], to[k, SURE] = rows[i, LOW], rows[i, HIGH], rows[i, SURE]


@part
def sort_by_low(rows: Floats, n: int) -> None:
    """Order intervals by their lower end: a few at a time by insertion, then by merging."""
    for begin in range(0, n, FEW):
        for i in range(begin + 1, min(begin + FEW, n)):
            low, high, sure = rows[i, LOW], rows[i, HIGH], rows[i, SURE]
            k = i
            while k > begin and rows[k - 1, LOW] > low:
                _copy(rows, k - 1, rows, k)
                k -= 1
            rows[k, LOW], rows[k, HIGH], rows[k, SURE] = low, high, sure
    if n <= FEW:
        return
    source, target, run, turns = rows, np.empty((n, 3)), FEW, 0
    while run < n:
        for begin in range(0, n, 2 * run):
            i, middle, end = begin, min(begin + run, n), min(begin + 2 * run, n)
            j = middle
            for k in range(begin, end):
                if i < middle and (j == end or source[i, LOW] <= source[j, LOW]):
                    _copy(source, i, target, k)
                    i += 1
                else:
                    _copy(source, j, target, k)
                    j += 1
        source, target, run, turns = target, source, 2 * run, turns + 1
    if turns % 2:
        for k in range(n):
            _copy(source, k, rows, k)


@part
def push(rows: Floats, n: int, low: float, high: float, sure: float) -> int:
    """Append an interval to rows[:n], united with the last ones that it meets; gives how many there are now."""
    while n > 0 and low <= rows[n - 1, HIGH] and rows[n - 1, LOW] <= high:
        n -= 1
        if rows[n, LOW] <= low and high <= rows[n, HIGH]:
            sure = rows[n, SURE]
        elif not (low <= rows[n, LOW] and rows[n, HIGH] <= high):
            sure = min(sure, rows[n, SURE])
        low, high = min(low, rows[n, LOW]), max(high, rows[n, HIGH])
    rows[n, LOW], rows[n, HIGH], rows[n, SURE] = low, high, sure
    return n + 1


@part
def unite(rows: Floats, n: int) -> int:
    """Unite intervals, ordered by their lower end, that meet; gives how many are left."""
    last = -1
    for i in range(n):
        if last >= 0 and rows[i, LOW] <= rows[last, HIGH]:
            if rows[i, HIGH] > rows[last, HIGH]:
                rows[last, HIGH] = rows[i, HIGH]
                rows[last, SURE] = min(rows[last, SURE], rows[i, SURE])
        else:
            last += 1
            rows[last, LOW], rows[last, HIGH], rows[last, SURE] = rows[i, LOW], rows[i, HIGH], rows[i, SURE]
    return last + 1


@part
def keep_filled(
    m: Floats, arrival: int, group: float, offset: float, rows: Floats, n: int, out: Floats, used: int
) -> tuple[Floats, int]:
    """Append those of the arrival's intervals (disjoint, ascending) that have a row in them to the spans out[:used]."""
    following = -np.inf  # y of the first row at or behind the last place that was sought
    for k in range(n):
        if following < rows[k, LOW] or following == -np.inf:
            leaf, i = first_at(m, group, offset, rows[k, LOW])
            if leaf < 0:
                break
            following = m[leaf + X + i] - offset
        if following <= rows[k, HIGH]:
            out = with_room(out, used)
            out[used, LOW], out[used, HIGH], out[used, SURE] = rows[k, LOW], rows[k, HIGH], rows[k, SURE]
            out[used, OF] = arrival
            used += 1
    return out, used


@kernel
def amended(
    of: Ints,
    lows: Floats,
    highs: Floats,
    sures: Booleans,
    came: Floats,
    went: Floats,
    m: Floats,
    groups: Floats,
    offsets: Floats,
    xs: Floats,
) -> Floats:
    """Spans, ordered by arrival, made true to rectangles that came and went since: with the former's rows in them, and
    not sure where they meet one of the latter, for what they were found by may have gone with it."""
    out, used = np.empty((len(of) + 64, 4)), 0
    rows, span = np.empty((64, 3)), 0
    for arrival in range(len(xs)):
        group, offset, x = groups[arrival], offsets[arrival], xs[arrival]
        n = 0
        while span < len(of) and of[span] == arrival:
            rows = with_room(rows, n)
            rows[n, LOW], rows[n, HIGH], rows[n, SURE] = lows[span], highs[span], 1.0 if sures[span] else 0.0
            n += 1
            span += 1
        found = n
        if not has_partners(group, offset, x):
            continue
        for i in range(len(went)):
            if found > 0 and went[i, X_LOW] <= x <= went[i, X_HIGH]:
                for k in range(found):
                    if went[i, Y_LOW] <= rows[k, HIGH] and rows[k, LOW] <= went[i, Y_HIGH]:
                        rows[k, SURE] = 0.0
            if came[i, X_LOW] <= x <= came[i, X_HIGH] and came[i, Y_LOW] <= came[i, Y_HIGH]:
                rows = with_room(rows, n)
                rows[n, LOW], rows[n, HIGH], rows[n, SURE] = came[i, Y_LOW], came[i, Y_HIGH], 1.0
                n += 1
        if n > found:
            sort_by_low(rows, n)
            n = unite(rows, n)
        out, used = keep_filled(m, arrival, group, offset, rows, n, out, used)
    return out[:used]


@part
def has_partners(group: float, offset: float, x: float) -> bool:
    """Whether an arrival can have partners at all: NULL meets nothing."""
    return not (np.isnan(group) or np.isnan(offset) or np.isnan(x))

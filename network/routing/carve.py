"""Carving a set of boxes into few: where a cut saves most needless messages.

What a box costs is the measure of the messages that would meet it, if they were spread evenly. Take one range column,
points (x1, x2), and a box [l1, h1] x [l2, h2] around some of them:

    places       "around p" meets it iff l1 <= p <= h2:        h2 - l1
    rectangles   most are small, around some (x, x), and       h1 - l2, what the box has of the diagonal (if anything);
                 meet it iff it has (x, x) in it:              and a little of h2 - l1, since some are large

      x2 ^       +-----+      A has nothing of the diagonal: its ranges all contain [h1, l2], and a small message
         |       |  A  | /    concerns shorter ranges than these. B has some: its ranges have no place in common.
         |    +--+---+-+/     A box of long ranges is cheap, however many they are, and so is one of short ranges
         |    |  B  /|        that lie close together: cuts by length matter as much as cuts by place.
         |    +----/-+
         +--------/--------> x1

Several range columns multiply; a partition number adds a factor, the numbers that lie between the least and the
largest. Median cuts, as in a k-d tree, know nothing of this: with 64 boxes for 12,500 ranges of Table 5.1 they let
through nine in ten of the messages that concern nobody, these cuts a quarter.

Places are compared on a scale that is half rank and half value: ranks keep a few distant bounds from shrinking all
others to nothing, values see gaps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.network.compiled import kernel, part

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats, Ints


#: How far beyond the finite bounds an infinite one lies, of what they span.
FAR = 0.5
#: The weight of large rectangles; with 0.1 useful cuts are left undone, 0.001 does as well as 0.01.
LARGE = 0.01
#: Added to every side, so that a flat box in one column is not free in all others.
FLAT = 1e-6


class Space(NamedTuple):
    """What the coordinates of points mean: pairs (low, high) of so many range columns, then perhaps a partition."""

    coordinates: int
    ranges: int
    rectangles: bool  # messages are rectangles, not places


def covering(space: Space, lows: Floats, highs: Floats, budget: int) -> tuple[Floats, Floats]:
    """At most `budget` boxes that contain all the given ones (points are boxes with lows = highs).

    Cell by cell, the cut that saves most is made, until none saves anything. For n boxes, d range columns and b boxes
    made, O(d n log n) to sort and about O(d n log b) to cut.
    """
    if len(lows) <= 1:
        return lows.copy(), highs.copy()
    unit_lows, unit_highs = units(space, lows, highs)
    orders = np.argsort(_keys(space, unit_lows, unit_highs), axis=1)
    labels = carve(unit_lows, unit_highs, orders, budget, space.ranges, space.rectangles)
    return joined(lows, highs, labels)


def joined(lows: Floats, highs: Floats, labels: Ints) -> tuple[Floats, Floats]:
    """One box around all boxes of the same label."""
    by_label = np.argsort(labels, kind="stable")
    begins = np.flatnonzero(np.diff(labels[by_label], prepend=-1))
    return np.minimum.reduceat(lows[by_label], begins), np.maximum.reduceat(highs[by_label], begins)


def units(space: Space, lows: Floats, highs: Floats) -> tuple[Floats, Floats]:
    """All ends on the scale described above. Both ends of a range have the same one."""
    unit_lows, unit_highs = np.empty_like(lows), np.empty_like(highs)
    pairs = [[2 * i, 2 * i + 1] for i in range(space.ranges)]
    for columns in [*pairs, *([j] for j in range(2 * space.ranges, space.coordinates))]:
        ends = np.unique(np.concatenate((lows[:, columns].ravel(), highs[:, columns].ravel())))
        scale = _scale(ends)
        unit_lows[:, columns] = scale[np.searchsorted(ends, lows[:, columns])]
        unit_highs[:, columns] = scale[np.searchsorted(ends, highs[:, columns])]
    return unit_lows, unit_highs


def _scale(ends: Floats) -> Floats:
    """The unit of each of these rising values."""
    inside = np.isfinite(ends)
    halves = ends[inside] / 2  # the difference of two large ones is then finite too
    values = np.where(ends < 0, -FAR, 1 + FAR)
    if len(halves):
        values[inside] = (halves - halves[0]) / max(halves[-1] - halves[0], np.finfo(np.float64).tiny)
    units: Floats = (values + np.linspace(0, 1, len(ends))) / 2
    return units


def _keys(space: Space, lows: Floats, highs: Floats) -> Floats:
    """By what boxes are put in order to be cut, one line each: a range by its length, its begin and its end."""
    middles = (lows + highs).T
    lengths = middles[1 : 2 * space.ranges : 2] - middles[0 : 2 * space.ranges : 2]
    return np.concatenate((lengths, middles))


@part
def measure(lows: Floats, highs: Floats, a: int, b: int, ranges: int, rectangles: bool) -> float:
    """What the box around the boxes a and b (which may be one) costs; see above."""
    product = 1.0
    for i in range(0, 2 * ranges, 2):
        reach = max(highs[a, i + 1], highs[b, i + 1]) - min(lows[a, i], lows[b, i])
        if rectangles:
            reach = LARGE * reach + max(0.0, max(highs[a, i], highs[b, i]) - min(lows[a, i + 1], lows[b, i + 1]))
        product *= reach + FLAT
    for j in range(2 * ranges, lows.shape[1]):
        product *= max(highs[a, j], highs[b, j]) - min(lows[a, j], lows[b, j]) + FLAT
    return product


@part
def widen(low: Floats, high: Floats, to: int, lows: Floats, highs: Floats, row: int) -> None:
    """Make one box contain another one."""
    for j in range(low.shape[1]):
        low[to, j] = min(low[to, j], lows[row, j])
        high[to, j] = max(high[to, j], highs[row, j])


@part
def find_cut(
    lows: Floats, highs: Floats, orders: Ints, begin: int, end: int, ranges: int, rectangles: bool, rests: Floats
) -> tuple[float, int, int]:
    """The best cut of the cell orders[:, begin:end]: (what it saves, by which order, where)."""
    low, high = np.empty((1, lows.shape[1])), np.empty((1, lows.shape[1]))
    saves, by, at = 0.0, 0, begin
    for order in range(len(orders)):
        low[:], high[:] = np.inf, -np.inf
        for i in range(end - 1, begin - 1, -1):
            widen(low, high, 0, lows, highs, orders[order, i])
            rests[i] = measure(low, high, 0, 0, ranges, rectangles)
        low[:], high[:] = np.inf, -np.inf
        for i in range(begin, end - 1):
            widen(low, high, 0, lows, highs, orders[order, i])
            saved = rests[begin] - rests[i + 1] - measure(low, high, 0, 0, ranges, rectangles)
            if saved > saves:
                saves, by, at = saved, order, i + 1
    return saves, by, at


@kernel
def carve(lows: Floats, highs: Floats, orders: Ints, budget: int, ranges: int, rectangles: bool) -> Ints:
    """The cell of each box, from 0 on. `orders` has the boxes in several orders, and is changed.

    A cell is the same stretch of every order; a cut divides the stretch of each, keeping its order:

        before  by length  3 1 | 0 2     cut at |, into {3, 1} and {0, 2}
                by begin   0 1 2 3
        after   by begin   1 3 | 0 2
    """
    n = lows.shape[0]
    begins, ends = np.zeros(budget, np.int64), np.zeros(budget, np.int64)
    saves, by, at = np.zeros(budget), np.zeros(budget, np.int64), np.zeros(budget, np.int64)
    is_left, moved, rests = np.empty(n, np.bool_), np.empty(n, np.int64), np.empty(n)
    ends[0], cells = n, 1
    saves[0], by[0], at[0] = find_cut(lows, highs, orders, 0, n, ranges, rectangles, rests)
    while cells < budget:
        cell = int(np.argmax(saves[:cells]))
        if saves[cell] <= 0.0:
            break
        begin, cut, end = begins[cell], at[cell], ends[cell]
        for i in range(begin, end):
            is_left[orders[by[cell], i]] = i < cut
        for order in range(len(orders)):
            left, right = begin, 0
            for i in range(begin, end):
                row = orders[order, i]
                if is_left[row]:
                    orders[order, left] = row
                    left += 1
                else:
                    moved[right] = row
                    right += 1
            for i in range(right):
                orders[order, left + i] = moved[i]
        begins[cells], ends[cells], ends[cell] = cut, end, cut
        for half in (cell, cells):
            saves[half], by[half], at[half] = find_cut(
                lows, highs, orders, begins[half], ends[half], ranges, rectangles, rests
            )
        cells += 1
    labels = np.empty(n, np.int64)
    for cell in range(cells):
        for i in range(begins[cell], ends[cell]):
            labels[orders[0, i]] = cell
    return labels


@kernel
def absorb(lows: Floats, highs: Floats, budget: int, ranges: int, rectangles: bool) -> Ints:
    """The cell of each box when they are joined, two by two, until there are `budget`: those first that cost least.

    For few boxes more than the budget; each costs O(n^2).
    """
    n = len(lows)
    labels, alive = np.arange(n), np.ones(n, np.bool_)
    lows, highs, costs = lows.copy(), highs.copy(), np.empty(n)
    for i in range(n):
        costs[i] = measure(lows, highs, i, i, ranges, rectangles)
    for _ in range(n - budget):
        least, first, second = np.inf, -1, -1
        for a in range(n):
            for b in range(a + 1, n) if alive[a] else range(0):
                cost = measure(lows, highs, a, b, ranges, rectangles) - costs[a] - costs[b]
                if alive[b] and cost < least:
                    least, first, second = cost, a, b
        widen(lows, highs, first, lows, highs, second)
        costs[first] = measure(lows, highs, first, first, ranges, rectangles)
        alive[second] = False
        for i in range(n):
            if labels[i] == second:
                labels[i] = first
    return labels

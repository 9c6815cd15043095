"""Unions of boxes, as IN, OR and <> make them: every subscription gets boxes that do not overlap.

Then a row lies in one of a subscription's boxes at most, before an update and after it. So all that listens to one box
can listen to several: a row that goes from one to another has changed, and counts once.
"""

from __future__ import annotations

from math import nextafter
from typing import TYPE_CHECKING, Final

import numpy as np

from hullcast.broker.sql.bounds import INFINITY
from hullcast.broker.sql.query import Predicates
from hullcast.network.wire.errors import TooLarge

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hullcast.broker.sql.encode import CodeColumn
    from hullcast.network.wire.arrays import Booleans, Floats, Ints

#: Boxes of one subscription, when they have been cut where they overlapped.
MOST_BOXES: Final = 1000
#: Pairs of boxes compared at once: a few milliseconds, and some megabytes.
PAIRS: Final = 1 << 20
#: Pairs of boxes compared for one call.
MOST_PAIRS: Final = 1 << 26


def without(low: Floats, high: Floats, dimension: int, values: Sequence[CodeColumn]) -> tuple[Floats, Floats]:
    """Boxes (n, m, d) cut where one dimension has one of k values: (n, m * (k + 1), d), some of them empty."""
    n, boxes, _ = low.shape
    down, up = (np.column_stack([code[side] for code in values]).astype(np.float64) for side in (0, 1))
    order = np.argsort(down, axis=1)
    down, up = np.take_along_axis(down, order, 1), np.take_along_axis(up, order, 1)
    exact = down == up  # a value between two floats is no row's: nothing is cut out
    edge = np.full((n, 1), INFINITY)
    with np.errstate(all="ignore"):  # as in `edges_at`
        stops = np.hstack((np.where(exact, np.nextafter(down, -INFINITY), down), edge))
        starts = np.hstack((-edge, np.where(exact, np.nextafter(up, INFINITY), up)))
    pieces = starts.shape[1]
    low, high = np.repeat(low, pieces, axis=1), np.repeat(high, pieces, axis=1)
    low[:, :, dimension] = np.maximum(low[:, :, dimension], np.tile(starts, (1, boxes)))
    high[:, :, dimension] = np.minimum(high[:, :, dimension], np.tile(stops, (1, boxes)))
    return low, high


def union(low: Floats, high: Floats, partition: Sequence[npt.NDArray[np.object_]], never: Booleans) -> Predicates:
    """Predicates of n subscriptions, each the union of m boxes: low, high (n, m, d), partition values and never (n, m).
    Empty boxes go, but for one of a subscription that has no other; overlapping ones are cut. TooLarge if that makes
    too many."""
    n, m, d = low.shape
    where = _numbered(partition, n, m)
    if d == 1:
        low, high, where, partition, never = _in_order(low, high, where, partition, never)
    empty = never | (low > high).any(axis=2) | (low == INFINITY).any(axis=2)
    if n * m * m > MOST_PAIRS:
        raise TooLarge("pairs of alternatives in one request (send smaller requests)", n * m * m, MOST_PAIRS)
    overlap = np.zeros(n, np.bool_)
    for at in range(0, n, max(1, PAIRS // (m * m))):
        some = slice(at, at + max(1, PAIRS // (m * m)))
        overlap[some] = _overlapping(low[some], high[some], where[some], empty[some])
    keep = ~empty & ~overlap[:, np.newaxis]
    keep[:, 0] |= empty.all(axis=1)
    of, box = np.nonzero(keep)
    parts = [(of, box, low[of, box], high[of, box])]
    for i in np.flatnonzero(overlap).tolist():
        which, lows, highs = _apart(low[i], high[i], where[i], np.flatnonzero(~empty[i]))
        parts.append((np.full(len(which), i), which, lows, highs))
    of, box, low, high = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(of, kind="stable")
    of, box, low, high = of[order], box[order], low[order], high[order]
    gone = empty[of, box]
    low[gone], high[gone] = INFINITY, -INFINITY
    values = tuple(column[of, box].tolist() for column in partition)
    return Predicates(low, high, values, gone if gone.any() else None, of)


def _numbered(partition: Sequence[npt.NDArray[np.object_]], n: int, m: int) -> Ints:
    """The partition of each box as a number, equal where all values are."""
    where = np.zeros((n, m), np.int64)
    for column in partition:
        numbers: dict[object, int] = {}
        found = [numbers.setdefault(value, len(numbers)) for value in column.ravel().tolist()]
        where = where * len(numbers) + np.array(found, np.int64).reshape(n, m)
    return where


def _in_order(
    low: Floats, high: Floats, where: Ints, partition: Sequence[npt.NDArray[np.object_]], never: Booleans
) -> tuple[Floats, Floats, Ints, Sequence[npt.NDArray[np.object_]], Booleans]:
    """Intervals (n, m, 1) in the order of their partitions and lower ends, each without what those before it hold."""
    order = np.lexsort((low[:, :, 0], where), axis=1)
    low, high = (np.take_along_axis(ends[:, :, 0], order, 1) for ends in (low, high))
    where, never = np.take_along_axis(where, order, 1), np.take_along_axis(never, order, 1)
    reach = np.full(len(low), -INFINITY)
    for box in range(low.shape[1]):
        if box:
            held = (where[:, box] == where[:, box - 1]) & (low[:, box] <= reach)
            with np.errstate(all="ignore"):  # as in `edges_at`
                low[held, box] = np.nextafter(reach[held], INFINITY)
            reach[where[:, box] != where[:, box - 1]] = -INFINITY
        some = ~never[:, box] & (low[:, box] <= high[:, box])
        reach[some] = np.maximum(reach[some], high[some, box])
    partition = [np.take_along_axis(column, order, 1) for column in partition]
    return low[:, :, np.newaxis], high[:, :, np.newaxis], where, partition, never


def _overlapping(low: Floats, high: Floats, where: Ints, empty: Booleans) -> Booleans:
    """Which subscriptions have boxes that overlap."""
    meet = where[:, :, np.newaxis] == where[:, np.newaxis, :]
    meet &= ~(empty[:, :, np.newaxis] | empty[:, np.newaxis, :])
    for d in range(low.shape[2]):
        one_low, one_high = low[:, :, np.newaxis, d], high[:, :, np.newaxis, d]
        meet &= (one_low <= high[:, np.newaxis, :, d]) & (low[:, np.newaxis, :, d] <= one_high)
    meet[:, np.arange(low.shape[1]), np.arange(low.shape[1])] = False
    found: Booleans = meet.any(axis=(1, 2))
    return found


def _apart(low: Floats, high: Floats, where: Ints, boxes: Ints) -> tuple[Ints, Floats, Floats]:
    """The boxes of one subscription cut until none overlap: (box each piece is of, low, high)."""
    of: list[int] = []
    lows: Floats = np.empty((0, low.shape[1]))
    highs = lows.copy()
    for box in boxes.tolist():
        pieces = [(low[box], high[box])]
        same = where[np.array(of, np.int64)] == where[box] if of else np.zeros(0, np.bool_)
        for other in np.flatnonzero(same & (lows <= high[box]).all(axis=1) & (highs >= low[box]).all(axis=1)).tolist():
            pieces = [rest for piece in pieces for rest in _less(*piece, lows[other], highs[other])]
            _check_few(len(pieces))
        if pieces:
            of += [box] * len(pieces)
            lows = np.vstack((lows, *(piece[0] for piece in pieces)))
            highs = np.vstack((highs, *(piece[1] for piece in pieces)))
        _check_few(len(of))
    return np.array(of, np.int64), lows, highs


def _check_few(boxes: int) -> None:
    if boxes > MOST_BOXES:
        raise TooLarge("ranges of one subscription (write alternatives that do not overlap)", boxes, MOST_BOXES)


def _less(low: Floats, high: Floats, other_low: Floats, other_high: Floats) -> list[tuple[Floats, Floats]]:
    """A box less another one, as boxes that do not overlap: two at most for each dimension."""
    if (other_low > high).any() or (other_high < low).any():
        return [(low, high)]
    pieces: list[tuple[Floats, Floats]] = []
    low, high = low.copy(), high.copy()
    for d in range(len(low)):
        if low[d] < other_low[d]:
            below = high.copy()
            below[d] = nextafter(other_low[d], -INFINITY)
            pieces.append((low.copy(), below))
            low[d] = other_low[d]
        if high[d] > other_high[d]:
            above = low.copy()
            above[d] = nextafter(other_high[d], INFINITY)
            pieces.append((above, high.copy()))
            high[d] = other_high[d]
    return pieces

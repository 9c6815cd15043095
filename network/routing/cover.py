"""Cover: a few boxes that contain a set of points; all that a node remembers of a subtree.

A message is passed on to a subtree iff one of its boxes meets one of the subtree's. The cover may say yes where no
point lies (a false positive costs one needless transfer) but never no where one does (R1).

    x2 ^  . .  .     x2 ^ +----+           five ranges as points (x1, x2), and two boxes instead. Which points
       |  .             | +----+           share a box decides how many messages pass for nothing:
       |     .          |    +-+           carve.py
       +--------> x1    +--------> x1
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.compiled import kernel
from hullcast.network.routing.carve import absorb, covering, joined, units

if TYPE_CHECKING:
    from hullcast.network.routing.carve import Space
    from hullcast.network.wire.arrays import Booleans, Floats


#: Points carved at once.
PORTION = 8192

#: Boxes looked at before a search may end.
SOME = 128

#: So many boxes too many are joined with others one by one; for more, the whole cover is carved again.
FEW = 8


class Cover:
    """A bounded number of closed boxes around points that only ever become more; infinities are allowed.

    To become fewer, a cover is replaced by a new one. Made from many points at once it is good (`covering`); one
    by one, the two boxes whose union costs least make room for the next (`absorb`).

    Invariants (`check` tests R2; the property tests check R1 against every point ever given):
      R1  Every point given lies in a box.
      R2  There are at most `budget` boxes, each with low <= high in every coordinate.

    Cost for b boxes in k dimensions: `intersects_many` O(b k) a query, but several boxes at a time (40 ns for 200 boxes
    in the plane). To ask boxes around groups of them first took twice as long: such branches cannot be predicted.
    `extend` by n points O(n b k), and O(b^2 k) more for each that needs a box of its own when the budget is spent.
    """

    def __init__(self, space: Space, budget: int) -> None:
        if budget < 1:
            raise ValueError(f"a cover must have at least 1 box, got a budget of {budget}")
        self._space, self._budget = space, budget
        self._lows: Floats = np.empty((space.coordinates, 0))  # a box is a column: `meet` reads along the rows
        self._highs: Floats = np.empty((space.coordinates, 0))

    def __len__(self) -> int:
        return int(self._lows.shape[1])

    def boxes(self) -> tuple[Floats, Floats]:
        """Lows and highs (b, k)."""
        return _rows(self._lows.T), _rows(self._highs.T)

    def extend(self, points: Floats) -> None:
        """Contain these points (n, k) too."""
        self.extend_boxes(points, points)

    def extend_boxes(self, lows: Floats, highs: Floats) -> None:
        """Contain these boxes (n, k) too; of very many, some from everywhere first, which leaves few of the others."""
        step = max(1, -(-len(lows) // PORTION))
        for first in range(step):
            self._extend(_rows(lows[first::step]), _rows(highs[first::step]))

    def _extend(self, lows: Floats, highs: Floats) -> None:
        new = ~contained(self._lows, self._highs, lows, highs)
        if not new.any():
            return
        before_lows, before_highs = self.boxes()
        lows, highs = np.concatenate((before_lows, lows[new])), np.concatenate((before_highs, highs[new]))
        if len(lows) > self._budget + FEW:
            lows, highs = covering(self._space, lows, highs, self._budget)
        elif len(lows) > self._budget:
            ends = units(self._space, lows, highs)
            labels = absorb(*ends, self._budget, self._space.ranges, self._space.rectangles)
            lows, highs = joined(lows, highs, labels)
        self._lows, self._highs = _rows(lows.T), _rows(highs.T)

    def intersects_many(self, lows: Floats, highs: Floats) -> Booleans:
        """For each of m query boxes whether it meets a box."""
        mask = np.zeros(len(lows), np.bool_)
        self.mark(_rows(lows), _rows(highs), mask)
        return mask

    def mark(self, lows: Floats, highs: Floats, mask: Booleans) -> None:
        """Set the mask of the query boxes that meet a box; those set already are not looked at."""
        meet(self._lows, self._highs, lows, highs, mask)

    def holds(self, coordinate: int, values: Floats) -> Booleans:
        """Which values of one coordinate lie within some box."""
        low, high = self._lows[coordinate], self._highs[coordinate]
        order = np.argsort(low)
        reach = np.maximum.accumulate(high[order]) if len(order) else high
        place = np.searchsorted(low[order], values, side="right") - 1
        mask: Booleans = place >= 0
        mask[mask] = reach[place[mask]] >= np.asarray(values)[mask]
        return mask

    def memory_bytes(self) -> int:
        """Bytes held by the boxes."""
        return self._lows.nbytes + self._highs.nbytes

    def check(self) -> None:
        """Test R2; AssertionError if it is broken."""
        assert len(self) <= self._budget, f"R2: {len(self)} boxes, budget {self._budget}"
        assert (self._lows <= self._highs).all(), "R2: a box without inside"


def _rows(values: Floats) -> Floats:
    rows: Floats = np.require(values, np.float64, ["C", "A", "W"])  # the one type the kernels are compiled for
    return rows


@kernel
def meet(box_lows: Floats, box_highs: Floats, lows: Floats, highs: Floats, mask: Booleans) -> None:
    """Set mask where a query box (a row) meets any box (a column); closed on all sides.

    The loops over boxes neither branch nor stop, so that the compiler lets one instruction look at several boxes. The
    first and the last coordinate (a partition, if there is one) rule out most of them.
    """
    k, boxes = box_lows.shape
    meets = np.empty(SOME, np.int64)
    for begin in range(0, boxes, SOME):
        end = min(begin + SOME, boxes)
        some = end - begin
        first_lows, first_highs = box_lows[0][begin:end], box_highs[0][begin:end]
        last_lows, last_highs = box_lows[k - 1][begin:end], box_highs[k - 1][begin:end]
        for query in range(len(lows)):
            if mask[query]:
                continue
            first_low, first_high = lows[query, 0], highs[query, 0]
            last_low, last_high = lows[query, k - 1], highs[query, k - 1]
            count = 0
            for box in range(some):
                first = (first_lows[box] <= first_high) & (first_low <= first_highs[box])
                count += first & (last_lows[box] <= last_high) & (last_low <= last_highs[box])
            if count > 0 and k > 2:
                for box in range(some):
                    first = (first_lows[box] <= first_high) & (first_low <= first_highs[box])
                    meets[box] = first & (last_lows[box] <= last_high) & (last_low <= last_highs[box])
                for j in range(1, k - 1):
                    next_lows, next_highs = box_lows[j][begin:end], box_highs[j][begin:end]
                    low, high = lows[query, j], highs[query, j]
                    for box in range(some):
                        meets[box] &= (next_lows[box] <= high) & (low <= next_highs[box])
                count = meets[:some].sum()
            mask[query] = count > 0


@kernel
def contained(box_lows: Floats, box_highs: Floats, lows: Floats, highs: Floats) -> Booleans:
    """Which of the given boxes (rows) lie within a single box (a column)."""
    k, boxes = box_lows.shape
    mask = np.zeros(len(lows), np.bool_)
    for query in range(len(lows)):
        for box in range(boxes):
            within = True
            for j in range(k):
                within &= (box_lows[j, box] <= lows[query, j]) & (highs[query, j] <= box_highs[j, box])
            if within:
                mask[query] = True
                break
    return mask

"""Cover: at most so many boxes that together contain a set of points; all a node remembers of a subtree.

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

from hullcast.network.compiled import inlined, kernel
from hullcast.network.routing.carve import absorb, covering, joined, units

if TYPE_CHECKING:
    from hullcast.network.routing.carve import Space
    from hullcast.network.wire.arrays import Booleans, Floats


#: Points carved at once.
PORTION = 8192

HUGE = 1e300  # in place of infinity where two are added

#: Boxes in a block: one around all of them is asked first.
BLOCK = 8

#: So many boxes too many are joined with others one by one; for more, the whole cover is carved again.
FEW = 8


class Cover:
    """A bounded number of closed boxes around points that only ever become more; infinities are allowed.

    To become fewer, a cover is replaced by a new one. Made from many points at once it is good (`covering`); one
    by one, the two boxes whose union costs least make room for the next (`absorb`).

    Invariants (`check` tests R2; the property tests check R1 against every point ever given):
      R1  Every point given lies in a box.
      R2  There are at most `budget` boxes, each with low <= high in every coordinate.

    Boxes lie ordered by their middle, in blocks with a box around each: a query looks into the blocks that it meets.

    Cost for b boxes in k dimensions: `intersects_many` O(b k) a query, mostly a fraction of that;
    `extend` by n points O(n b k), and O(b^2 k) more for each that needs a box of its own when the budget is spent.
    """

    def __init__(self, space: Space, budget: int) -> None:
        if budget < 1:
            raise ValueError(f"a cover must have at least 1 box, got a budget of {budget}")
        self._space, self._budget = space, budget
        self._lows: Floats = np.empty((0, space.coordinates))
        self._highs: Floats = np.empty((0, space.coordinates))
        self._block_lows, self._block_highs = self._lows, self._highs

    def __len__(self) -> int:
        return len(self._lows)

    def boxes(self) -> tuple[Floats, Floats]:
        """Lows and highs (b, k). Not to be changed."""
        return self._lows, self._highs

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
        lows, highs = np.concatenate((self._lows, lows[new])), np.concatenate((self._highs, highs[new]))
        if len(lows) > self._budget + FEW:
            lows, highs = covering(self._space, lows, highs, self._budget)
        elif len(lows) > self._budget:
            ends = units(self._space, lows, highs)
            labels = absorb(*ends, self._budget, self._space.ranges, self._space.rectangles)
            lows, highs = joined(lows, highs, labels)
        self._arrange(lows, highs)

    def intersects_many(self, lows: Floats, highs: Floats) -> Booleans:
        """For each of m query boxes whether it meets a box."""
        mask = np.zeros(len(lows), np.bool_)
        self.mark(_rows(lows), _rows(highs), mask)
        return mask

    def mark(self, lows: Floats, highs: Floats, mask: Booleans) -> None:
        """Set the mask of the query boxes that meet a box; those set already are not looked at."""
        meet(self._block_lows, self._block_highs, self._lows, self._highs, lows, highs, mask)

    def holds(self, coordinate: int, values: Floats) -> Booleans:
        """Which values of one coordinate lie within some box."""
        low, high = self._lows[:, coordinate], self._highs[:, coordinate]
        order = np.argsort(low)
        reach = np.maximum.accumulate(high[order]) if len(order) else high
        place = np.searchsorted(low[order], values, side="right") - 1
        mask: Booleans = place >= 0
        mask[mask] = reach[place[mask]] >= np.asarray(values)[mask]
        return mask

    def memory_bytes(self) -> int:
        """Bytes held by the boxes."""
        return sum(ends.nbytes for ends in (self._lows, self._highs, self._block_lows, self._block_highs))

    def check(self) -> None:
        """Test R2; AssertionError if it is broken."""
        assert len(self) <= self._budget, f"R2: {len(self)} boxes, budget {self._budget}"
        assert (self._lows <= self._highs).all(), "R2: a box without inside"

    def _arrange(self, lows: Floats, highs: Floats) -> None:
        """Take these boxes, in order, with a box around every few."""
        first, last = lows[:, 0], highs[:, min(1, lows.shape[1] - 1)]  # of a range column: begin and end
        order = np.argsort(np.clip(first, -HUGE, HUGE) + np.clip(last, -HUGE, HUGE))
        self._lows, self._highs = lows[order], highs[order]
        begins = np.arange(0, len(lows), BLOCK)
        self._block_lows = np.minimum.reduceat(self._lows, begins)
        self._block_highs = np.maximum.reduceat(self._highs, begins)


def _rows(values: Floats) -> Floats:
    rows: Floats = np.require(values, np.float64, ["C", "A", "W"])  # the one type the kernels are compiled for
    return rows


@kernel
def meet(
    block_lows: Floats,
    block_highs: Floats,
    box_lows: Floats,
    box_highs: Floats,
    lows: Floats,
    highs: Floats,
    mask: Booleans,
) -> None:
    """Set mask where a query box meets any box; closed on all sides."""
    for query in range(len(lows)):
        block = 0
        while block < len(block_lows) and not mask[query]:
            if overlap(block_lows, block_highs, block, lows, highs, query):
                for box in range(BLOCK * block, min(BLOCK * (block + 1), len(box_lows))):
                    mask[query] |= overlap(box_lows, box_highs, box, lows, highs, query)
            block += 1


@inlined
def overlap(box_lows: Floats, box_highs: Floats, box: int, lows: Floats, highs: Floats, query: int) -> bool:
    """Whether two boxes have a point in common. Without a branch: most guesses would be wrong."""
    meets = True
    for j in range(box_lows.shape[1]):
        meets &= (box_lows[box, j] <= highs[query, j]) & (lows[query, j] <= box_highs[box, j])
    return meets


@kernel
def contained(box_lows: Floats, box_highs: Floats, lows: Floats, highs: Floats) -> Booleans:
    """Which of the given boxes lie within a single box."""
    k = box_lows.shape[1]
    mask = np.zeros(len(lows), np.bool_)
    for query in range(len(lows)):
        for box in range(len(box_lows)):
            within = True
            for j in range(k):
                within &= (box_lows[box, j] <= lows[query, j]) & (highs[query, j] <= box_highs[box, j])
            if within:
                mask[query] = True
                break
    return mask

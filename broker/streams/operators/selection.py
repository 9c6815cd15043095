"""Selection: lets the tuples pass that lie in any of some boxes.

The boxes are what subscribers of a path want, together: each subscriber's own range is matched by the network, behind
all this. So a selection may let too much pass, never too little, and few boxes that cover all ranges are enough
(`covering`). A constant (SYMBOL = 'IBM') is a side of a box of width 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.streams.operators.operator import OneInput
from hullcast.network.compiled import kernel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hullcast.broker.streams.batch import TupleBatch
    from hullcast.network.wire.arrays import Booleans, Floats, Ints

#: SelectionBoxes that a selection looks at, at most.
MOST_BOXES = 16


@dataclass(frozen=True, slots=True, eq=False)
class SelectionBoxes:
    """Closed boxes over some columns: box b has, in column `columns[i]`, codes from `lows[b, i]` to `highs[b, i]`.

    NULL, a NaN, lies in no range. Without boxes nothing passes; a box without columns lets everything pass.
    """

    columns: Ints
    lows: Floats
    highs: Floats

    def holds(self, cells: Floats) -> Booleans:
        """Which of the tuples lie in a box."""
        marks = np.empty(cells.shape[1], np.bool_)
        in_boxes(np.ascontiguousarray(cells), self.columns, self.lows, self.highs, marks)
        return marks


class Selection(OneInput):
    """Drops what lies in no box; `ghosts`: but not from the count of a window of rows behind it."""

    name = "selection"

    def __init__(self, boxes: SelectionBoxes, ghosts: bool = False) -> None:
        self._boxes, self._ghosts = boxes, ghosts

    def apply(self, batch: TupleBatch) -> TupleBatch:
        return batch.keep(self._boxes.holds(batch.cells), self._ghosts)

    def held(self) -> Iterable[Floats]:
        return (self._boxes.lows,)


def covering(lows: Floats, highs: Floats, most: int = MOST_BOXES) -> tuple[Floats, Floats]:
    """At most so many boxes that contain all of these, of shape (boxes, columns).

    In the order of their low ends neighbours are put together where the gap between them is smallest; a gap is measured
    in the first column in which not all boxes are alike. SelectionBoxes of one column that overlap become one.
    """
    if not len(lows):
        return lows, highs
    spread = np.flatnonzero((lows != lows[0]).any(axis=0) | (highs != highs[0]).any(axis=0))
    column = int(spread[0]) if len(spread) else 0
    if not lows.shape[1]:
        return lows[:1], highs[:1]
    order = np.argsort(lows[:, column], kind="stable")
    lows, highs = lows[order], highs[order]
    ends = np.maximum.accumulate(highs[:, column])
    apart = lows[1:, column] > ends[:-1]
    gaps = np.zeros(len(apart))
    gaps[apart] = lows[1:, column][apart] - ends[:-1][apart]
    if np.count_nonzero(apart) >= most:  # the widest gaps stay
        apart = np.zeros(len(gaps), np.bool_)
        apart[np.argsort(-gaps, kind="stable")[: most - 1]] = True
    starts = np.append(0, np.flatnonzero(apart) + 1)
    return np.minimum.reduceat(lows, starts), np.maximum.reduceat(highs, starts)


@kernel
def in_boxes(cells: Floats, columns: Ints, lows: Floats, highs: Floats, marks: Booleans) -> None:
    """Mark the tuples that lie in one of the boxes."""
    boxes, width = lows.shape
    for i in range(cells.shape[1]):
        found = False
        for b in range(boxes):
            inside = True
            for k in range(width):
                code = cells[columns[k], i]
                if not (lows[b, k] <= code <= highs[b, k]):
                    inside = False
                    break
            if inside:
                found = True
                break
        marks[i] = found

"""StandingJoins: the ranges of one join channel, and the plans that find the partners they want, in both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.joins.join_first import JoinFirst
from hullcast.broker.joins.plan import Arrivals, walk
from hullcast.broker.joins.ranges import Ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.network.wire.arrays import Booleans, Floats, Ints


class Layout(NamedTuple):
    """Which dimensions of a channel's boxes are x and y of a rectangle, for rows that arrive left (0) and right (1)."""

    coordinates: int  # of a point: two a dimension, and perhaps a partition
    x: tuple[int | None, int | None]  # a dimension; None: there is none, every row is at 0 and every range is unbounded
    y: tuple[int | None, int | None]
    band: bool
    exact: tuple[bool, bool]  # whether x and y are all that a box bounds

    @classmethod
    def of(cls, sides: Sequence[int], *, band: bool, partitioned: bool) -> Layout:
        """The layout of boxes over range columns of these sides; a band's difference (right - left) follows them."""
        dimensions = len(sides) + band
        first = [next((d for d, of in enumerate(sides) if of == side), None) for side in (0, 1)]
        x = (first[0], first[1])
        y = (len(sides), len(sides)) if band else (x[1], x[0])
        exact = [not partitioned and {x[side], y[side]} >= set(range(dimensions)) for side in (0, 1)]
        return cls(max(1, 2 * dimensions + partitioned), x, y, band, (exact[0], exact[1]))

    def columns(self, side: int) -> tuple[int, int, int, int]:
        """Where a point has the x_low, x_high, y_low and y_high of its rectangle; -1 where it has none."""
        x, y = self.x[side], self.y[side]
        return (
            *((-1, -1) if x is None else (2 * x, 2 * x + 1)),
            *((-1, -1) if y is None else (2 * y, 2 * y + 1)),
        )

    def negated(self, side: int) -> bool:
        """Whether points bound -y: they have right - left, and for a row on the right y is left - right."""
        return self.band and side == 1


class Partners(NamedTuple):
    """Rows of the other side that somebody wants, or may want, with arrivals; each pair once."""

    of: Ints  # which arrival
    slots: Ints  # its partner
    sure: Booleans  # whether it is wanted; otherwise ask `wanted` with all that is known of the pair
    complete: bool  # False: there are more than allowed, and none is given


class StandingJoins:
    """The ranges that subscriptions to one channel ask for, counted, never who; and the partners they want.

    Points are those of the channel's matching index: (low_1, high_1, .., low_d, high_d[, partition]), none of them an
    empty box. What `partners` calls sure holds for float64 differences; a band over whole numbers tests those pairs
    whose difference is no float64.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.ranges = Ranges(layout.coordinates)
        self._plans = [
            JoinFirst(self.ranges.index, layout.columns(side), negated=layout.negated(side)) for side in (0, 1)
        ]

    def __len__(self) -> int:
        """Distinct ranges."""
        return len(self.ranges)

    def add(self, points: Floats, now: int) -> None:
        """Somebody wants each of these: what happens after the update `now`."""
        self.ranges.add(points, now)

    def remove(self, points: Floats) -> None:
        """One less wants each of these."""
        self.ranges.remove(points)

    def wanted_since(self, points: Floats) -> int:
        """All of these have been wanted without a break since this update; a large number if one is not."""
        return self.ranges.wanted_since(points)

    def wanted(self, lows: Floats, highs: Floats) -> Booleans:
        """Whether anybody wants a pair there, for query boxes (network/matching/duality.py: around_points)."""
        return self.ranges.wanted(lows, highs)

    def partners(self, side: int, tree: Floats, arrivals: Arrivals, most: int) -> Partners:
        """Partners of rows that arrive on a side, in the other side's tree; all of them, or none if there are more."""
        columns = Arrivals(*(np.ascontiguousarray(column) for column in arrivals))
        spans = self._plans[side].spans(tree, columns)
        of, slots, sure, complete = walk(tree, columns.groups, columns.offsets, *spans, most)
        return Partners(of, slots, sure & self.layout.exact[side], complete)

    def describe(self) -> dict[str, object]:
        """What `hullcast explain` shows."""
        return {"ranges": len(self.ranges), "wanted by": self.ranges.total}

    def memory_bytes(self) -> int:
        """Bytes held."""
        return self.ranges.memory_bytes()

    def check(self) -> None:
        """Test the ranges."""
        self.ranges.check()

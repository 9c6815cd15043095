"""StandingJoins: the ranges of one join channel, and the plans that find the partners they want, in both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.index.nodes import ENTRIES
from hullcast.broker.joins.costs import DEFAULTS, HOTSPOT, JOIN_FIRST_E, SELECT_FIRST, Facts
from hullcast.broker.joins.join_first import JoinFirst
from hullcast.broker.joins.naive import Naive
from hullcast.broker.joins.plan import X_HIGH, X_LOW, Y_HIGH, Y_LOW, Arrivals, RectangleTable, Spans, walk
from hullcast.broker.joins.planner import Planner
from hullcast.broker.joins.ranges import Ranges
from hullcast.broker.joins.select_first import SelectFirst
from hullcast.broker.joins.ssi import Hotspot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hullcast.broker.joins.costs import Coefficients
    from hullcast.broker.joins.plan import JoinPlan
    from hullcast.network.wire.arrays import Booleans, Floats, Ints

#: Fewer distinct ranges are looked at one by one: that takes less than to find out which plan is better.
FEW = 64
#: Changes that plans may be behind, for each range they have, before they are forgotten, and built again when needed.
BEHIND = 1


class JoinLayout(NamedTuple):
    """Which dimensions of a channel's boxes are x and y of a rectangle, for rows that arrive left (0) and right (1)."""

    coordinates: int  # of a point: two a dimension, and perhaps a partition
    x: tuple[int | None, int | None]  # a dimension; None: there is none, every row is at 0 and every range is unbounded
    y: tuple[int | None, int | None]
    band: bool
    exact: tuple[bool, bool]  # whether x and y are all that a box bounds

    @classmethod
    def of(cls, sides: Sequence[int], *, band: bool, partitioned: bool) -> JoinLayout:
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

    def rectangles(self, side: int, points: Floats) -> Floats:
        """The rectangles of points, for rows that arrive on a side."""
        found = np.empty((len(points), 4))
        for to, column in enumerate(self.columns(side)):
            found[:, to] = points[:, column] if column >= 0 else (-np.inf, np.inf)[to % 2]
        if self.negated(side):
            found[:, [Y_LOW, Y_HIGH]] = -found[:, [Y_HIGH, Y_LOW]]
        return found


class Partners(NamedTuple):
    """Rows of the other side that somebody wants, or may want, with arrivals; each pair once, ordered by arrival."""

    of: Ints  # which arrival
    slots: Ints  # its partner
    sure: Booleans  # whether it is wanted; otherwise ask `wanted` with all that is known of the pair
    complete: bool  # False: there are more than allowed, and none is given


class StandingJoins:
    """The ranges that subscriptions to one channel ask for, counted, never who; and the partners they want.

    Points are those of the channel's matching index: (low_1, high_1, .., low_d, high_d[, partition]). What `partners`
    calls sure holds for float64 differences; a band over whole numbers must test those pairs whose difference is no
    float64. One owner: nothing here may be called while another call runs.
    """

    def __init__(self, layout: JoinLayout, coefficients: Coefficients = DEFAULTS) -> None:
        self.layout = layout
        self.ranges = Ranges(layout.coordinates)
        self._sides = [_Side(layout, side, self.ranges, coefficients) for side in (0, 1)]

    def __len__(self) -> int:
        """Distinct ranges."""
        return len(self.ranges)

    def add(self, points: Floats, now: int) -> None:
        """Somebody wants each of these: what happens after the update `now`."""
        self._tell(self.ranges.add(points, now))

    def remove(self, points: Floats) -> None:
        """One less wants each of these."""
        self._tell(self.ranges.remove(points))

    def _tell(self, ids: Ints) -> None:
        if len(ids):
            for side in self._sides:
                side.note(ids)

    def wanted_since(self, points: Floats) -> int:
        """All of these have been wanted without a break since this update; a large number if one is not."""
        return self.ranges.wanted_since(points)

    def wanted(self, lows: Floats, highs: Floats) -> Booleans:
        """Whether anybody wants a pair there, for query boxes (network/matching/duality.py: around_points)."""
        return self.ranges.wanted(lows, highs)

    def partners(self, side: int, tree: Floats, arrivals: Arrivals, most: int) -> Partners:
        """Partners of rows that arrive on a side, in the other side's tree; all of them, or none if there are more."""
        columns = Arrivals(*(np.ascontiguousarray(column) for column in arrivals))
        here = self._sides[side]
        here.arrived += len(columns.xs)
        spans = here.spans(tree, columns, self._sides[1 - side].arrived)
        of, slots, sure, complete = walk(tree, columns.groups, columns.offsets, *spans, most)
        here.charge(len(sure) - int(np.count_nonzero(sure)))
        return Partners(of, slots, sure & self.layout.exact[side], complete)

    def describe(self) -> dict[str, object]:
        """What `hullcast explain` shows."""
        facts: dict[str, object] = {"ranges": len(self.ranges), "wanted by": self.ranges.total}
        for name, side in zip(("left", "right"), self._sides, strict=True):
            facts[name] = side.describe()
        return facts

    def memory_bytes(self) -> int:
        """Bytes held."""
        return self.ranges.memory_bytes() + sum(side.memory_bytes() for side in self._sides)

    def check(self) -> None:
        """Test the ranges and the plans."""
        self.ranges.check()
        for side in self._sides:
            side.check()


class _Plans(NamedTuple):
    """What is kept to find the partners of rows on one side once there are more than a few ranges."""

    rectangles: RectangleTable
    hotspot: Hotspot
    select_first: SelectFirst
    join_first: JoinFirst
    planner: Planner

    def numbered(self) -> Mapping[int, JoinPlan]:
        """Plans by the planner's numbers. JoinFirst-S is not among them: one of the others is always better."""
        return {JOIN_FIRST_E: self.join_first, SELECT_FIRST: self.select_first, HOTSPOT: self.hotspot}


class _Side:
    """Rows that arrive on one side: plans, brought up to date when rows arrive, not when ranges change.

    Invariant (`check` tests it):
      D1  Ids that no note names since plans were last up to date are in the plans iff they are ranges here.
    """

    def __init__(self, layout: JoinLayout, side: int, ranges: Ranges, coefficients: Coefficients) -> None:
        self._layout, self._side, self._ranges, self._coefficients = layout, side, ranges, coefficients
        self.arrived = 0
        self._few: Naive | None = None
        self._one_by_one = 0  # arrivals for which every range was looked at
        self._plans: _Plans | None = None
        self._known = Facts(0, 0)  # of the ranges, since plans were last up to date
        self._notes: list[Ints] = []  # ids that came or went since plans were up to date
        self._noted = 0
        self._planned: Booleans = np.zeros(0, np.bool_)  # by id: it is in the plans

    def note(self, ids: Ints) -> None:
        """These came, or went."""
        self._few = None
        if self._plans is None:
            return
        self._notes.append(ids)
        self._noted += len(ids)
        if len(self._ranges) < FEW // 2 or self._noted > BEHIND * len(self._ranges) + FEW:
            self._forget()

    def _forget(self) -> None:
        self._plans, self._planned = None, np.zeros(0, np.bool_)
        self._notes, self._noted = [], 0

    def spans(self, tree: Floats, arrivals: Arrivals, changed: int) -> Spans:
        """Where wanted partners are; `changed` is how many rows arrived on the other side so far."""
        if self._plans is None and len(self._ranges) < FEW:
            self._one_by_one += len(arrivals.xs)
            return self._naive().spans(tree, arrivals)
        plans = self._up_to_date()
        numbered = plans.numbered()
        chosen = plans.planner.choose(tree, arrivals, self._facts(tree, changed), numbered)
        if not len(chosen) or (chosen == chosen[0]).all():
            return numbered[int(chosen[0]) if len(chosen) else HOTSPOT].spans(tree, arrivals)
        lots = []
        for number, plan in numbered.items():
            at = np.flatnonzero(chosen == number)
            if len(at):
                found = plan.spans(tree, arrivals.take(at))
                lots.append(found._replace(of=at[found.of]))
        of = np.concatenate([lot.of for lot in lots])
        order = np.argsort(of, kind="stable")
        low, high = np.concatenate([lot.low for lot in lots]), np.concatenate([lot.high for lot in lots])
        return Spans(of[order], low[order], high[order], np.concatenate([lot.sure for lot in lots])[order])

    def charge(self, tests: int) -> None:
        """So many rows must be tested, since spans were not sure."""
        if tests and self._plans is not None:
            self._plans.hotspot.charge(tests)

    def _naive(self) -> Naive:
        if self._few is None:
            self._few = Naive()
            points = self._ranges.points_of(self._ranges.ids())
            self._few.add(np.arange(len(points)), self._layout.rectangles(self._side, points))
        return self._few

    def _facts(self, tree: Floats, changed: int) -> Facts:
        """What the planner must know. Rows in steps of a sixteenth: it need not think again for each."""
        rows = int(tree[ENTRIES])
        step = max(1, 1 << max(0, rows.bit_length() - 5))
        return self._known._replace(rows=rows - rows % step, changed=changed - changed % step)

    def _up_to_date(self) -> _Plans:
        if self._plans is None:
            ids = self._ranges.ids()
            rectangles, index = RectangleTable(), self._ranges.index
            columns, negated = self._layout.columns(self._side), self._layout.negated(self._side)
            self._plans = _Plans(
                rectangles,
                Hotspot(rectangles=rectangles),
                SelectFirst(rectangles),
                JoinFirst(index, columns, negated=negated),
                Planner(band=self._layout.band, coefficients=self._coefficients),
            )
        elif self._notes:
            ids = np.unique(np.concatenate(self._notes))
        else:
            return self._plans
        self._notes, self._noted = [], 0
        self._bring(self._plans, ids)
        return self._plans

    def _bring(self, plans: _Plans, ids: Ints) -> None:
        """Take these ids out of the plans where they are in them, and in where they are ranges."""
        top = 1 + int(ids.max(initial=-1))
        if top > len(self._planned):
            planned = np.zeros(max(top, 2 * len(self._planned)), np.bool_)
            planned[: len(self._planned)] = self._planned
            self._planned = planned
        gone = ids[self._planned[ids]]
        if len(gone):
            plans.planner.remove(plans.rectangles.rows[gone])
            plans.hotspot.remove(gone)
            plans.select_first.remove(gone)
            self._planned[gone] = False
        new = ids[self._ranges.has(ids)]
        rectangles = self._layout.rectangles(self._side, self._ranges.points_of(new))
        holds = (rectangles[:, X_LOW] <= rectangles[:, X_HIGH]) & (rectangles[:, Y_LOW] <= rectangles[:, Y_HIGH])
        if not holds.all():  # WHERE x BETWEEN 5 AND 3: a range like any other, but nothing is in it
            new, rectangles = new[holds], rectangles[holds]
        if len(new):
            plans.planner.add(rectangles)
            plans.hotspot.add(new, rectangles)
            plans.select_first.add(new, rectangles)
            self._planned[new] = True
        hotspot = plans.hotspot
        counts = (hotspot.hot_groups, hotspot.pieces, hotspot.cold)
        self._known = Facts(0, len(self._ranges), *counts, 0, *plans.join_first.extent())

    def describe(self) -> dict[str, object]:
        """Groups, hotspots, and how often each plan was chosen."""
        facts: dict[str, object] = {"looked at one by one": self._one_by_one}
        if self._plans is not None:
            facts |= self._plans.hotspot.describe() | self._plans.planner.describe()
        return facts

    def memory_bytes(self) -> int:
        """Bytes held, but for what is not yet brought to the plans."""
        plans = self._plans
        if plans is None:
            return 0
        shared = plans.rectangles.rows.nbytes  # told by both
        return plans.hotspot.memory_bytes() + plans.select_first.memory_bytes() - shared + self._planned.nbytes

    def check(self) -> None:
        """Test D1, and the plans."""
        if self._plans is None:
            assert not self._notes
            assert not self._planned.any(), "D1"
            return
        plans = self._plans
        noted = np.zeros(len(self._planned), np.bool_)
        ids = np.concatenate((np.empty(0, np.int64), *self._notes))
        noted[ids[ids < len(noted)]] = True
        there = self._ranges.ids()
        rectangles = self._layout.rectangles(self._side, self._ranges.points_of(there))
        holds = (rectangles[:, X_LOW] <= rectangles[:, X_HIGH]) & (rectangles[:, Y_LOW] <= rectangles[:, Y_HIGH])
        expected = set(there[holds].tolist()) - set(ids.tolist())
        assert set(np.flatnonzero(self._planned & ~noted).tolist()) == expected, "D1"
        some = np.array(sorted(expected), np.int64)
        held = dict(zip(there.tolist(), rectangles, strict=True))
        assert all((plans.rectangles.rows[one] == held[one]).all() for one in some.tolist()), "D1"
        assert np.array_equal(
            np.flatnonzero(plans.select_first.index.arrays.place_of >= 0), np.flatnonzero(self._planned)
        )
        plans.hotspot.check()
        plans.select_first.check()
        plans.planner.check()

"""StandingJoins: the ranges of one join channel, and the plans that find the partners they want."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from inspect import GEN_CLOSED, getgeneratorstate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.index.nodes import ENTRIES
from hullcast.broker.joins.costs import DEFAULTS, HOTSPOT, JOIN_FIRST_E, SELECT_FIRST, Facts
from hullcast.broker.joins.histogram import IntervalHistogram
from hullcast.broker.joins.join_first import JoinFirst
from hullcast.broker.joins.naive import NaivePlan
from hullcast.broker.joins.ordered import grown
from hullcast.broker.joins.plan import (
    NOTHING,
    X_HIGH,
    X_LOW,
    Y_HIGH,
    Y_LOW,
    Arrivals,
    RectangleTable,
    Spans,
    amended,
    spans_of,
    walk,
)
from hullcast.broker.joins.planner import RANGE_BUCKETS, Planner
from hullcast.broker.joins.ranges import Ranges
from hullcast.broker.joins.select_first import SelectFirst
from hullcast.broker.joins.ssi import Hotspot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.broker.joins.costs import Coefficients
    from hullcast.broker.joins.ordered import Array
    from hullcast.broker.joins.plan import JoinPlan
    from hullcast.broker.scheduling.driver import Work
    from hullcast.network.wire.arrays import Booleans, Floats, Ints

#: Fewer distinct ranges are looked at one by one: that takes less than to find out which plan is better.
FEW = 64
#: Changes that plans may be behind, for each range they have, before they are forgotten, and built again when needed.
BEHIND = 1
#: Plans are brought up to date when they are so many changes behind: a share of the ranges, between these numbers.
DUE_SHARE, DUE_LEAST, DUE_MOST = 1 / 32, 64, 4096
#: Changes that each arrival looks at one by one, since plans do not have them; with more, it does without plans.
MOST_NOTED = 8192
#: Ranges taken down at once, to make plans of elsewhere, and about how long that takes.
TAKEN_AT_ONCE, TAKE_S = 8192, 0.001


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

    Plans for many ranges take long to make: a second for some 100,000. With `at_once` they are made, and brought up to
    date, when rows arrive. Otherwise whoever owns this runs `upkeep` now and then, which does it elsewhere, on a copy.
    Until that is done partners are found with the plans there are and a list of what they lack, or without plans: the
    same partners, but they are not sure where a range has gone.
    """

    def __init__(self, layout: JoinLayout, coefficients: Coefficients = DEFAULTS, *, at_once: bool = True) -> None:
        self.layout = layout
        self.ranges = Ranges(layout.coordinates)
        self._at_once = at_once
        self._sides = [_Side(layout, side, self.ranges, coefficients) for side in (0, 1)]
        self._upkeep: Work | None = None

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
        if self._at_once:
            here.catch_up(len(columns.xs))
        spans = here.spans(tree, columns, self._sides[1 - side].arrived)
        of, slots, sure, complete = walk(tree, columns.groups, columns.offsets, *spans, most)
        here.charge(len(sure) - int(np.count_nonzero(sure)))
        return Partners(of, slots, sure & self.layout.exact[side], complete)

    def upkeep(self) -> Work | None:
        """Work that brings plans up to date, if they are behind and none is under way. It may be given up."""
        if self._upkeep is not None and getgeneratorstate(self._upkeep) != GEN_CLOSED:
            return None
        due = [side for side in self._sides if side.is_due]
        self._upkeep = self._bring_up_to_date(due) if due else None
        return self._upkeep

    @staticmethod
    def _bring_up_to_date(sides: Sequence[_Side]) -> Work:
        for side in sides:  # one after the other: there is one copy at a time
            yield from side.upkeep()

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


class _Plans:
    """What is made to find the partners of rows on one side, once there are more than a few ranges.

    Queries change nothing here but counts of look-ups: it may be copied while they run.
    """

    def __init__(self) -> None:
        self.rectangles = RectangleTable()
        self.hotspot = Hotspot(rectangles=self.rectangles, kept_up=True)
        self.select_first = SelectFirst(self.rectangles)
        self.histogram = IntervalHistogram(RANGE_BUCKETS)  # the planner's
        self.planned: Booleans = np.zeros(0, np.bool_)  # by id: it is in here
        self.counts = (0, 0, 0)  # hot groups, their pieces, scattered ranges
        self.described: dict[str, object] = {}

    def bring(self, ids: Ints, new: Ints, rectangles: Floats) -> None:
        """Take these ids out where they are in, then in those that are ranges, which have these rectangles."""
        self.planned = _with_room(self.planned, 1 + int(ids.max(initial=-1)), False)
        gone = ids[self.planned[ids]]
        if len(gone):
            self.histogram.remove(self.rectangles.rows[gone, X_LOW], self.rectangles.rows[gone, X_HIGH])
            self.hotspot.remove(gone)
            self.select_first.remove(gone)
            self.planned[gone] = False
        holds = (rectangles[:, X_LOW] <= rectangles[:, X_HIGH]) & (rectangles[:, Y_LOW] <= rectangles[:, Y_HIGH])
        if not holds.all():  # WHERE x BETWEEN 5 AND 3: a range like any other, but nothing is in it
            new, rectangles = new[holds], rectangles[holds]
        if len(new):
            self.histogram.add(rectangles[:, X_LOW], rectangles[:, X_HIGH])
            self.hotspot.add(new, rectangles)
            self.select_first.add(new, rectangles)
            self.planned[new] = True

    def settle(self, arrivals: int = 0) -> None:
        """Do what queries would do first."""
        hotspot = self.hotspot
        hotspot.follow()
        hotspot.envelopes.rebuild_due(arrivals)
        self.counts = (hotspot.hot_groups, hotspot.pieces, hotspot.cold)
        self.described = hotspot.describe()
        assert self.histogram.steps is not None

    def held(self, ids: Ints) -> Floats:
        """The rectangles of these ids in here; one that holds nothing where there is none."""
        found = np.tile(NOTHING, (len(ids), 1))
        known = np.flatnonzero(ids < len(self.planned))
        known = known[self.planned[ids[known]]]
        found[known] = self.rectangles.rows[ids[known]]
        return found

    def memory_bytes(self) -> int:
        """Bytes held."""
        shared = self.rectangles.rows.nbytes  # told by both
        return self.hotspot.memory_bytes() + self.select_first.memory_bytes() - shared + self.planned.nbytes


def _made(plans: _Plans | None, ids: Ints, news: Sequence[Ints], rectangles: Sequence[Floats]) -> tuple[_Plans, _Notes]:
    """The next plans, and room for what they will lack; the given ones stay as they are."""
    made = _Plans() if plans is None else deepcopy(plans)
    made.bring(ids, np.concatenate(news), np.concatenate(rectangles))
    made.settle()
    return made, _Notes(len(made.planned) * 5 // 4 + MOST_NOTED)


def _with_room(array: Array, size: int, fill: float) -> Array:
    return array if size <= len(array) else grown(array, size, fill)


class _Notes:
    """Ranges that came or went since plans were made: each id has a row."""

    def __init__(self, ids: int) -> None:
        self.used = 0
        self._row_of: Ints = np.full(ids + 1, -1, np.int64)  # by id
        self._ids: Ints = np.empty(16, np.int64)
        self._came: Floats = np.empty((16, 4))  # the rectangle that it has now
        self._went: Floats = np.empty((16, 4))  # .. and has in the plans

    @property
    def ids(self) -> Ints:
        """Whose changes are noted."""
        return self._ids[: self.used]

    @property
    def rectangles(self) -> tuple[Floats, Floats]:
        """What came, and what went."""
        return self._came[: self.used], self._went[: self.used]

    def take(self, ids: Ints, rectangles: Floats, plans: _Plans) -> None:
        """These, each given once, have these rectangles now."""
        self._row_of = _with_room(self._row_of, 1 + int(ids.max(initial=-1)), -1)
        new = ids[self._row_of[ids] < 0]
        if len(new):
            end = self.used + len(new)
            self._ids = _with_room(self._ids, end, 0)
            self._came, self._went = _with_room(self._came, end, 0.0), _with_room(self._went, end, 0.0)
            self._ids[self.used : end] = new
            self._went[self.used : end] = plans.held(new)
            self._row_of[new] = np.arange(self.used, end)
            self.used = end
        self._came[self._row_of[ids]] = rectangles


class _Side:
    """Rows that arrive on one side: plans, and what they lack.

    Invariant (`check` tests it):
      D1  Ids that no note names are in the plans iff they are ranges, with the same rectangle.
    """

    def __init__(self, layout: JoinLayout, side: int, ranges: Ranges, coefficients: Coefficients) -> None:
        self._layout, self._side, self._ranges = layout, side, ranges
        self.arrived = 0
        self._seen = 0  # .. when plans were last brought up to date
        self._few: NaivePlan | None = None
        self._one_by_one = self._unplanned = 0  # arrivals for which every range was looked at, or without plans
        self._join_first = JoinFirst(ranges.index, layout.columns(side), negated=layout.negated(side))
        self._planner = Planner(band=layout.band, coefficients=coefficients)
        self._plans: _Plans | None = None
        self._numbered: dict[int, JoinPlan] = {}  # by the planner's numbers
        self._known = Facts(0, 0)  # of the ranges, as of the plans
        self._gave_up = False  # new plans could not be made: what there is must do
        self._pending: list[Ints] = []  # ids that came or went, and are not in the notes yet
        self._pending_count = 0
        self._notes = _Notes(0)
        self._since: list[Ints] | None = None  # ids that came or went since new plans were begun, while they are made

    def note(self, ids: Ints) -> None:
        """These came, or went."""
        self._few = None
        if self._since is not None:
            self._since.append(ids)
        if self._plans is None:
            return
        self._pending.append(ids)
        self._pending_count += len(ids)
        if len(self._ranges) < FEW // 2 or self._behind > BEHIND * len(self._ranges) + FEW:
            self._forget()

    @property
    def _behind(self) -> int:
        """How many changes plans are behind, at most."""
        return self._notes.used + self._pending_count

    def _forget(self) -> None:
        self._plans, self._notes = None, _Notes(0)
        self._pending, self._pending_count = [], 0

    def spans(self, tree: Floats, arrivals: Arrivals, changed: int) -> Spans:
        """Where wanted partners are; `changed` is how many rows arrived on the other side so far."""
        plans = self._plans
        if plans is None and len(self._ranges) < FEW:
            self._one_by_one += len(arrivals.xs)
            return self._naive().spans(tree, arrivals)
        self._note_pending()
        if plans is None or self._notes.used > MOST_NOTED:
            self._unplanned += len(arrivals.xs)
            return self._join_first.either(tree, arrivals)
        chosen = self._planner.choose(tree, arrivals, self._facts(tree, changed), self._numbered)
        if not len(chosen) or (chosen == chosen[0]).all():
            return self._by(int(chosen[0]) if len(chosen) else HOTSPOT, tree, arrivals)
        lots = []
        for number in self._numbered:
            at = np.flatnonzero(chosen == number)
            if len(at):
                found = self._by(number, tree, arrivals.take(at))
                lots.append(found._replace(of=at[found.of]))
        of = np.concatenate([lot.of for lot in lots])
        order = np.argsort(of, kind="stable")
        low, high = np.concatenate([lot.low for lot in lots]), np.concatenate([lot.high for lot in lots])
        return Spans(of[order], low[order], high[order], np.concatenate([lot.sure for lot in lots])[order])

    def _by(self, number: int, tree: Floats, arrivals: Arrivals) -> Spans:
        """What a plan finds, and what it cannot know of."""
        found = self._numbered[number].spans(tree, arrivals)
        if not self._notes.used or number == JOIN_FIRST_E:  # which has no copy of the ranges
            return found
        return spans_of(amended(*found, *self._notes.rectangles, tree, *arrivals))

    def charge(self, tests: int) -> None:
        """So many rows must be tested, since spans were not sure."""
        if tests and self._plans is not None and not self._notes.used:
            self._plans.hotspot.charge(tests)

    def _naive(self) -> NaivePlan:
        if self._few is None:
            self._few = NaivePlan()
            points = self._ranges.points_of(self._ranges.ids())
            self._few.add(np.arange(len(points)), self._layout.rectangles(self._side, points))
        return self._few

    def _facts(self, tree: Floats, changed: int) -> Facts:
        """What the planner must know. Rows in steps of a sixteenth: it need not think again for each."""
        rows = int(tree[ENTRIES])
        step = max(1, 1 << max(0, rows.bit_length() - 5))
        return self._known._replace(rows=rows - rows % step, changed=changed - changed % step)

    # --- keeping up ----------------------------------------------------------------------------------------

    def _rectangles(self, ids: Ints) -> Floats:
        """Of these ids, each given out once at least; one that holds nothing where there is no range."""
        found = self._layout.rectangles(self._side, self._ranges.points_of(ids))
        found[~self._ranges.has(ids)] = NOTHING
        return found

    def _note_pending(self) -> None:
        """Note for which ranges plans are not to be relied upon, and what they are now."""
        if self._pending and self._plans is not None:
            ids = self._pending[0] if len(self._pending) == 1 else np.unique(np.concatenate(self._pending))
            self._pending, self._pending_count = [], 0
            self._notes.take(ids, self._rectangles(ids), self._plans)

    @property
    def is_due(self) -> bool:
        """Whether plans should be brought up to date: rows arrive, and it would help."""
        if self.arrived == self._seen or self._gave_up:
            return False
        if self._plans is None:
            return len(self._ranges) >= FEW
        share = int(DUE_SHARE * len(self._ranges))
        return self._behind >= min(max(share, DUE_LEAST), DUE_MOST) or self._plans.hotspot.envelopes.is_due

    def catch_up(self, arrivals: int) -> None:
        """Bring plans up to date, here and now, for so many arrivals."""
        plans = self._plans
        if plans is None:
            if len(self._ranges) < FEW:
                return
            ids, plans = self._ranges.ids(), _Plans()
        elif self._pending:
            ids = np.unique(np.concatenate(self._pending))
        else:
            plans.hotspot.envelopes.rebuild_due(arrivals)
            return
        new = ids[self._ranges.has(ids)]
        plans.bring(ids, new, self._rectangles(new))
        plans.settle(arrivals)
        self._use(plans, _Notes(0))

    def upkeep(self) -> Work:
        """Bring plans up to date elsewhere."""
        self._note_pending()
        since: list[Ints] = []
        self._since = since
        try:
            made, notes = yield from self._next_plans()
        except Exception:
            self._gave_up = True  # it would fail again
            raise
        finally:
            self._since = None
        self._use(made, notes)
        for ids in since:  # the new plans have them as they were, or as they are
            self.note(ids)

    def _next_plans(self) -> Work:
        plans = self._plans
        ids = self._ranges.ids() if plans is None else self._notes.ids.copy()
        news, parts = [ids[:0]], [np.empty((0, 4))]
        for start in range(0, len(ids), TAKEN_AT_ONCE):
            if start:
                yield TAKE_S
            some = ids[start : start + TAKEN_AT_ONCE]
            news.append(some[self._ranges.has(some)])
            parts.append(self._rectangles(news[-1]))
        return (yield lambda: partial(_made, plans, ids, news, parts))

    def _use(self, plans: _Plans, notes: _Notes) -> None:
        """These are up to date, and nothing is noted."""
        self._plans, self._notes, self._seen = plans, notes, self.arrived
        self._pending, self._pending_count = [], 0
        self._numbered = {  # JoinFirst-S is not among them: one of the others is always better
            JOIN_FIRST_E: self._join_first,
            SELECT_FIRST: plans.select_first,
            HOTSPOT: plans.hotspot,
        }
        self._planner.estimate_by(plans.histogram)
        self._known = Facts(0, len(self._ranges), *plans.counts, 0, *self._join_first.extent())

    def describe(self) -> dict[str, object]:
        """Groups, hotspots, and how often each plan was chosen."""
        facts: dict[str, object] = {"looked at one by one": self._one_by_one, "without a plan": self._unplanned}
        if self._plans is not None:
            facts |= {"changes behind": self._behind} | self._plans.described | self._planner.describe()
        return facts

    def memory_bytes(self) -> int:
        """Bytes held, but for what is not yet brought to the plans."""
        return 0 if self._plans is None else self._plans.memory_bytes()

    def check(self) -> None:
        """Test D1, and the plans."""
        plans = self._plans
        if plans is None:
            assert not self._behind, "D1"
            return
        noted = {*self._notes.ids.tolist(), *(one for ids in self._pending for one in ids.tolist())}
        there = self._ranges.ids()
        rectangles = self._rectangles(there)
        holds = (rectangles[:, X_LOW] <= rectangles[:, X_HIGH]) & (rectangles[:, Y_LOW] <= rectangles[:, Y_HIGH])
        planned = np.flatnonzero(plans.planned)
        assert set(planned.tolist()) - noted == set(there[holds].tolist()) - noted, "D1"
        held = dict(zip(there.tolist(), rectangles, strict=True))
        expected = [one for one in planned.tolist() if one not in noted]
        assert all((plans.rectangles.rows[one] == held[one]).all() for one in expected), "D1"
        assert np.array_equal(np.flatnonzero(plans.select_first.index.arrays.place_of >= 0), planned)
        plans.hotspot.check()
        plans.select_first.check()
        plans.histogram.check()

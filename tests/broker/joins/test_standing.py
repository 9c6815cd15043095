"""StandingJoins: ranges that come and go, counted, and partners in both directions as the definition has them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from math import inf
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hullcast.broker.joins import standing
from hullcast.broker.joins.costs import DEFAULTS, MODELS, PLANS, Coefficients
from hullcast.broker.joins.plan import Arrivals
from hullcast.broker.joins.ranges import NEVER
from hullcast.broker.joins.standing import JoinLayout, StandingJoins
from hullcast.broker.scheduling.driver import Work, finish
from hullcast.broker.server.warming import run_planner, run_standing_joins
from hullcast.network.matching.duality import around_points
from hullcast.network.wire.arrays import Booleans, Floats
from tests.support.standing import tree_of

small = st.integers(-3, 3).map(float)
bound = st.one_of(small, st.sampled_from([-inf, inf, -0.0]))
interval = st.tuples(bound, bound).map(sorted)
Point = tuple[float, ...]


def only(favourite: str) -> Coefficients:
    """Coefficients by which a plan costs nothing; some rows cost nothing by others, too."""
    return Coefficients(
        tuple((0.0,) * len(terms) if plan == favourite else (1.0,) * len(terms) for plan, terms in MODELS.items()), {}
    )


class StandingMachine(RuleBasedStateMachine):
    """Wants and forgoes ranges of a channel with some columns a side; asks both sides for partners of new rows."""

    @initialize(
        sides=st.lists(st.integers(0, 1), max_size=3).map(sorted),
        band=st.booleans(),
        partitioned=st.booleans(),
        favourite=st.sampled_from([None, *PLANS]),
        at_once=st.sampled_from([False, False, True]),
    )
    def open(self, sides: list[int], band: bool, partitioned: bool, favourite: str | None, at_once: bool) -> None:
        self.sides, self.band, self.partitioned = sides, band, partitioned
        layout = JoinLayout.of(sides, band=band, partitioned=partitioned)
        self.at_once, self.upkeep = at_once, cast("Work | None", None)
        self.away: Callable[[], object] | None = None  # what upkeep wants done elsewhere, with what it took down for it
        self.joins = StandingJoins(layout, DEFAULTS if favourite is None else only(favourite), at_once=at_once)
        self.counts: dict[Point, int] = {}
        self.since: dict[Point, int] = {}
        self.now = 0

    def points(self, data: st.DataObject, most: int = 6) -> list[Point]:
        """Points of boxes, some of them twice."""
        dimensions = len(self.sides) + self.band
        box = st.lists(interval, min_size=dimensions, max_size=dimensions).map(
            lambda ends: [end for both in ends for end in both]
        )
        last = st.integers(0, 1).map(lambda number: [float(number)]) if self.partitioned else st.just(list[float]())
        return data.draw(
            st.lists(st.tuples(box, last).map(lambda both: tuple(both[0] + both[1]) or (0.0,)), max_size=most)
        )

    def array(self, points: list[Point]) -> Floats:
        return np.array(points, np.float64).reshape(len(points), self.joins.layout.coordinates)

    @rule(data=st.data())
    def want(self, data: st.DataObject) -> None:
        points = self.points(data)
        self.joins.add(self.array(points), self.now)
        for point in points:
            self.since.setdefault(point, self.now)
            self.counts[point] = self.counts.get(point, 0) + 1

    @rule(data=st.data())
    def forgo(self, data: st.DataObject) -> None:
        every = sorted(point for point, count in self.counts.items() for _ in range(count))
        points = data.draw(st.permutations(every))[: data.draw(st.integers(0, len(every)))] if every else []
        self.joins.remove(self.array(points))
        for point in points:
            self.counts[point] -= 1
            if not self.counts[point]:
                del self.counts[point], self.since[point]

    @rule(data=st.data())
    def ask_since_when(self, data: st.DataObject) -> None:
        points = self.points(data, 2)
        if self.counts:
            points += data.draw(st.lists(st.sampled_from(sorted(self.counts)), max_size=3))
        expected = max((self.since.get(point, NEVER) for point in points), default=0)
        assert self.joins.wanted_since(self.array(points)) == expected

    @rule(data=st.data(), side=st.integers(0, 1))
    def arrive(self, data: st.DataObject, side: int) -> None:
        """Rows of a side (join value, range columns, partition) meet rows of the other."""
        self.now += 1
        mine, others = self.sides.count(side), self.sides.count(1 - side)
        row = st.lists(small, min_size=2 + mine, max_size=2 + mine)
        other = st.lists(small, min_size=2 + others, max_size=2 + others)
        news = np.array(data.draw(st.lists(row, min_size=1, max_size=4)))
        held = data.draw(st.lists(other, max_size=12))
        there = np.array(held, np.float64).reshape(len(held), 2 + others)
        join, zeros = there[:, 0], np.zeros(len(there))
        tree = tree_of(zeros, join) if self.band else tree_of(join, there[:, 2] if others else zeros)
        none = np.zeros(len(news))
        arrivals = Arrivals(
            none if self.band else news[:, 0], news[:, 0] if self.band else none, news[:, 2] if mine else none
        )
        of, slots, sure, complete = self.joins.partners(side, tree.memory, arrivals, 1 << 40)
        assert complete
        # .. and by the definition, pair by pair
        a, b = (grid.reshape(-1) for grid in np.meshgrid(np.arange(len(news)), np.arange(len(there)), indexing="ij"))
        left, right = (news[a], there[b]) if side == 0 else (there[b], news[a])
        seen = [0, 0]
        columns = []
        for of_side in self.sides:
            columns.append((left, right)[of_side][:, 2 + seen[of_side]])
            seen[of_side] += 1
        difference = right[:, 0] - left[:, 0]
        if self.band:
            columns.append(difference)
        parts = np.abs(left[:, 1]) % 2 if self.partitioned else None
        meets = np.ones(len(a), np.bool_) if self.band else difference == 0
        lows, highs = around_points(columns, parts, meets)
        points = self.array(list(self.counts))[:, np.newaxis]
        wanted: Booleans = ((lows <= points) & (points <= highs)).all(axis=2).any(axis=0).reshape(-1)
        assert (self.joins.wanted(lows, highs) == wanted).all()
        pairs = list(zip(of.tolist(), slots.tolist(), strict=True))
        assert len(set(pairs)) == len(pairs), "each pair once"
        expected = {pair for pair, yes in zip(zip(a.tolist(), b.tolist(), strict=True), wanted, strict=True) if yes}
        assert set(pairs) >= expected, "no partner is missed"
        assert {pair for pair, yes in zip(pairs, sure, strict=True) if yes} <= expected, "what is sure is wanted"
        if self.joins.layout.exact[side] and self.at_once:
            assert sure.all()

    @rule(steps=st.sampled_from([1, 2, 1000, 1000]), give_up=st.integers(0, 9).map(lambda one: one == 0))
    def keep_up(self, steps: int, give_up: bool) -> None:
        """Some steps of what somebody else does in between: begin, take ranges down, go elsewhere, come back."""
        for _ in range(steps):
            if self.upkeep is None:
                self.upkeep = self.joins.upkeep()
            if self.upkeep is None:
                return
            assert self.joins.upkeep() is None, "one at a time"
            sent, self.away = self.away and self.away(), None
            try:
                yielded = self.upkeep.send(sent)
                if callable(yielded):
                    self.away = yielded()
            except StopIteration:
                self.upkeep = None
        if give_up and self.upkeep is not None:
            self.upkeep.close()
            self.upkeep = self.away = None

    @invariant()
    def is_sound(self) -> None:
        if hasattr(self, "joins"):
            self.joins.check()
            assert len(self.joins) == len(self.counts)


class PlannedMachine(StandingMachine):
    """The same where two ranges are many, so that every plan has its turn, chosen row by row."""

    @initialize(most=st.sampled_from([0, 2, 1000]))
    def few(self, most: int) -> None:
        self.before = {name: getattr(standing, name) for name in ("FEW", "DUE_LEAST", "MOST_NOTED", "TAKEN_AT_ONCE")}
        standing.FEW, standing.DUE_LEAST, standing.MOST_NOTED, standing.TAKEN_AT_ONCE = 2, 1, most, 2

    def teardown(self) -> None:
        for name, value in self.before.items():
            setattr(standing, name, value)


TestFew = StandingMachine.TestCase
TestFew.settings = settings(max_examples=40, stateful_step_count=15)
TestPlanned = PlannedMachine.TestCase
TestPlanned.settings = settings(max_examples=50, stateful_step_count=25)


# --- what one arrival waits for --------------------------------------------------------------------------------------

MANY = 20_000
#: One arrival, and what it finds, take less; anything made for all ranges takes many times as much.
AN_ARRIVAL_BYTES = 100_000


def random_ranges(n: int, seed: int = 0) -> Floats:
    """Boxes in two columns, a third of them around one place."""
    rng = np.random.default_rng(seed)
    middles = rng.uniform(0, 1000, (n, 2))
    middles[: n // 3] = 500 + rng.normal(0, 1, (n // 3, 2))
    halves = rng.uniform(0, 3, (n, 2))
    return np.column_stack((middles - halves, middles + halves))[:, [0, 2, 1, 3]]


class Arriving:
    """Rows that arrive on the left side of a join, one by one; how much memory each took is kept."""

    def __init__(self, joins: StandingJoins) -> None:
        self.joins, self.took = joins, list[int]()
        self.rng = np.random.default_rng(1)
        self.tree = tree_of(np.zeros(500), self.rng.uniform(0, 1000, 500)).memory

    def one(self) -> None:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        row = Arrivals(np.zeros(1), np.zeros(1), self.rng.uniform(400, 600, 1))
        self.joins.partners(0, self.tree, row, 1 << 20)
        self.took.append(tracemalloc.get_traced_memory()[1] - before)


@pytest.fixture
def traced() -> Iterator[None]:
    run_standing_joins()  # to load kernels takes memory, too
    run_planner()
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("at_once", [False, True])
def test_an_arrival_after_many_new_ranges_waits_for_no_plan(at_once: bool) -> None:
    joins = StandingJoins(JoinLayout.of((0, 1), band=False, partitioned=False), at_once=at_once)
    arriving = Arriving(joins)
    joins.add(random_ranges(MANY), 0)
    arriving.one()
    assert (max(arriving.took) > 10 * AN_ARRIVAL_BYTES) is at_once
    if at_once:
        return
    assert joins.describe()["left"] == {"looked at one by one": 0, "without a plan": 1}
    upkeep = joins.upkeep()
    assert upkeep is not None
    for yielded in upkeep:  # ranges are taken down some at a time
        if callable(yielded):
            made = yielded()
            break
        arriving.one()
    assert len(arriving.took) > 2
    result = made()
    arriving.one()
    with pytest.raises(StopIteration):
        upkeep.send(result)
    arriving.one()
    assert max(arriving.took) <= AN_ARRIVAL_BYTES
    known = cast("dict[str, Any]", joins.describe()["left"])
    assert sum(known["chosen"].values()) == 1
    assert joins.upkeep() is None


@pytest.mark.parametrize("favourite", ["JoinFirst-E", "SelectFirst", "Hotspot"])
@pytest.mark.parametrize("most", [40, 1000])  # changes come by the thirty
def test_plans_that_are_behind_find_the_same(favourite: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a twin that is always up to date: ranges come and go, and plans follow now and then."""
    monkeypatch.setattr(standing, "DUE_LEAST", 1)
    monkeypatch.setattr(standing, "MOST_NOTED", most)
    layout, rng = JoinLayout.of((0, 1), band=False, partitioned=False), np.random.default_rng(5)
    late, twin = StandingJoins(layout, only(favourite), at_once=False), StandingJoins(layout)
    there = random_ranges(600)
    tree = tree_of(np.zeros(400), rng.uniform(450, 550, 400)).memory
    found, unsure = 0, 0
    for joins in (late, twin):
        joins.add(there, 0)
    for turn in range(25):
        arrivals = Arrivals(np.zeros(40), np.zeros(40), rng.uniform(450, 550, 40))
        mine, right = (joins.partners(0, tree, arrivals, 1 << 20) for joins in (late, twin))
        pairs = list(zip(mine.of.tolist(), mine.slots.tolist(), strict=True))
        expected = set(zip(right.of.tolist(), right.slots.tolist(), strict=True))
        assert right.sure.all()
        assert len(set(pairs)) == len(pairs)
        assert set(pairs) >= expected >= {pair for pair, sure in zip(pairs, mine.sure, strict=True) if sure}
        found, unsure = found + len(expected), unsure + int(np.count_nonzero(~mine.sure))
        late.check()
        upkeep = late.upkeep() if turn % 4 == 0 else None
        made = None if upkeep is None else next(upkeep)
        assert made is None or callable(made)
        make = made and made()  # .. which knows nothing of what changes from here on
        gone, there = there[:15], np.concatenate((there[15:], random_ranges(15, turn)))
        for joins in (late, twin):
            joins.remove(gone)
            joins.add(there[-15:], 0)
        if upkeep is not None and make is not None:
            with pytest.raises(StopIteration):
                upkeep.send(make())
    known = cast("dict[str, Any]", late.describe()["left"])
    assert known["chosen"][favourite] > 0.9 * sum(known["chosen"].values()) > 0
    assert found > 1000
    assert (unsure > 0) is (favourite != "JoinFirst-E")


def test_rows_are_answered_although_plans_cannot_be_made() -> None:
    joins = StandingJoins(JoinLayout.of((0, 1), band=False, partitioned=False), at_once=False)
    joins.add(random_ranges(200), 0)
    row, tree = Arrivals(np.zeros(1), np.zeros(1), np.full(1, 500.0)), tree_of(np.zeros(9), np.linspace(495, 505, 9))
    before = joins.partners(0, tree.memory, row, 100)
    upkeep = joins.upkeep()
    assert upkeep is not None
    assert callable(next(upkeep))
    with pytest.raises(MemoryError):
        upkeep.throw(MemoryError())
    after = joins.partners(0, tree.memory, row, 100)
    assert before.slots.tolist() == after.slots.tolist() != []
    assert joins.upkeep() is None, "it is not tried again and again"
    joins.check()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("at_once", [False, True])
def test_arrivals_beside_ranges_that_come_and_go_wait_for_no_plan(at_once: bool) -> None:
    joins = StandingJoins(JoinLayout.of((0, 1), band=False, partitioned=False), at_once=at_once)
    arriving = Arriving(joins)
    there = random_ranges(MANY)
    joins.add(there, 0)
    arriving.one()
    upkeep = joins.upkeep()
    assert (upkeep is None) is at_once
    if upkeep is not None:
        finish(upkeep)
    arriving.took.clear()
    upkeeps = 0
    for start in range(0, 4 * MANY // 10, 100):  # four in ten
        joins.remove(there[start : start + 100])
        joins.add(random_ranges(100, 1 + start), 0)
        arriving.one()
        upkeep = joins.upkeep()
        if upkeep is not None:
            upkeeps += 1
            finish(upkeep)
    assert (max(arriving.took) > 10 * AN_ARRIVAL_BYTES) is at_once
    if not at_once:
        assert max(arriving.took) <= AN_ARRIVAL_BYTES
        assert 5 <= upkeeps <= 40
        known = cast("dict[str, Any]", joins.describe()["left"])
        assert known["without a plan"] == 1
        assert known["changes behind"] < MANY / 10

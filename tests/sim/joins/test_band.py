"""The ways of finding affected bands, against brute force: each range that gets a row once, as ranges come and go."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.broker.joins.plan import Arrivals
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.joins.band import BandDataOuter, BandMerge, BandQueryOuter
from hullcast.sim.joins.band_groups import BandGroups
from hullcast.sim.joins.band_sequences import BandSequences

ALL = (BandQueryOuter, BandDataOuter, BandMerge, BandGroups, BandSequences)
INF = float("inf")


class WayOfBands(Protocol):
    """What all have in common."""

    def add(self, ids: Ints, rectangles: Floats) -> None: ...
    def remove(self, ids: Ints) -> None: ...
    def affected(self, tree: Floats, arrivals: Arrivals) -> tuple[Ints, Ints]: ...
    def count_affected(self, tree: Floats, arrivals: Arrivals) -> Ints: ...
    def check(self) -> None: ...


def tree_of(x: Floats) -> Floats:
    rows = BandMerge()  # rows are ranges that end where they begin
    rows.add(np.arange(len(x)), np.column_stack((x, x, x, x)))
    return rows._list.memory


def brute_force(x: Floats, arrivals: Arrivals, ranges: dict[int, list[float]]) -> set[tuple[int, int]]:
    found = set()
    for arrival, (group, offset, at) in enumerate(zip(*arrivals, strict=True)):
        if np.isnan([group, offset, at]).any():
            continue
        for one, (x_low, x_high, y_low, y_high) in ranges.items():
            y = x - offset
            if x_low <= at <= x_high and ((y_low <= y) & (y <= y_high)).any():
                found.add((arrival, one))
    return found


def assert_agrees(plan: WayOfBands, x: Floats, arrivals: Arrivals, ranges: dict[int, list[float]]) -> None:
    of, ids = plan.affected(tree_of(x), arrivals)
    pairs = list(zip(of.tolist(), ids.tolist(), strict=True))
    expected = brute_force(x, arrivals, ranges)
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == expected
    if isinstance(plan, BandSequences):  # without reading off: in no place for nobody, in one or two of each group
        reached = plan.reached(tree_of(x), arrivals)
        assert set(np.flatnonzero(reached)) == {arrival for arrival, _ in expected}
    counts = np.bincount([arrival for arrival, _ in expected], minlength=len(arrivals.xs))
    assert plan.count_affected(tree_of(x), arrivals).tolist() == counts.tolist()
    plan.check()


coarse = st.integers(-6, 6).map(float)
ends = st.tuples(coarse, coarse).map(sorted).map(tuple)
one_sided = st.tuples(coarse, st.sampled_from((-INF, INF))).map(sorted).map(tuple)
open_x, limited_x = st.just((-INF, INF)), st.one_of(ends, one_sided, st.just((-INF, INF)))


@pytest.mark.parametrize("plan", ALL)
@settings(max_examples=30)
@given(data=st.data())
def test_a_way_finds_the_ranges_that_get_a_row(plan: type[WayOfBands], data: st.DataObject) -> None:
    subject = plan()
    xs = open_x if plan is BandSequences else data.draw(st.sampled_from((open_x, limited_x)))
    ranges: dict[int, list[float]] = {}
    for _ in range(data.draw(st.integers(1, 3))):
        fresh = data.draw(st.lists(st.tuples(xs, st.one_of(ends, one_sided)), max_size=8))
        ids = [one for one in range(40) if one not in ranges][: len(fresh)]
        rectangles = [[*x, *y] for x, y in fresh]
        subject.add(np.array(ids, np.int64), np.array(rectangles, np.float64).reshape(-1, 4))
        ranges.update(zip(ids, rectangles, strict=True))
        gone = [one for one in ranges if data.draw(st.integers(0, 3)) == 0]
        subject.remove(np.array(gone, np.int64))
        for one in gone:
            del ranges[one]
        rows = np.array(data.draw(st.lists(coarse, max_size=6)), np.float64)
        told = data.draw(
            st.lists(st.tuples(st.sampled_from((0.0, np.nan)), coarse, st.one_of(coarse, st.just(np.nan))), max_size=4)
        )
        arrivals = Arrivals(*np.array(told, np.float64).reshape(-1, 3).T.copy())
        assert_agrees(subject, rows, arrivals, ranges)


@pytest.mark.parametrize("plan", ALL)
@pytest.mark.parametrize(("limited", "digits", "length"), [(False, 1, 0.4), (True, 1, 0.4), (False, 0, 4.0)])
def test_a_way_finds_them_among_many(plan: type[WayOfBands], limited: bool, digits: int, length: float) -> None:
    random = np.random.default_rng(7)
    limited &= plan is not BandSequences
    subject = plan()
    low = random.uniform(0, 1_000, 2_000).round(digits)
    x_low = random.uniform(0, 100, 2_000) if limited else np.full(2_000, -INF)
    x_high = x_low + 10 if limited else np.full(2_000, INF)
    rectangles = np.column_stack((x_low, x_high, low, low + random.exponential(length, 2_000)))
    ids = random.permutation(5_000)[:2_000]
    subject.add(ids, rectangles)
    subject.remove(ids[:900])
    subject.add(ids[:50], rectangles[:50])
    kept = [*range(50), *range(900, 2_000)]
    rows = random.uniform(100, 900, 700).round(digits)  # some ranges lie below all rows, some above
    arrivals = Arrivals(np.zeros(8), random.uniform(0, 100, 8).round(digits), random.uniform(0, 100, 8))
    assert_agrees(subject, rows, arrivals, {int(ids[k]): rectangles[k].tolist() for k in kept})


@pytest.mark.parametrize("plan", ALL)
def test_a_difference_is_rounded_as_in_sql(plan: type[WayOfBands]) -> None:
    rows = np.array([0.1 + 0.2, 0.3, 0.7, 1e16 + 2, 1.1])
    difference = float(rows[2] - 0.1)
    bounds = [0.2, difference, float(rows[0] - 0.1), float(rows[3] - 0.1), 1.0]
    ranges = {one: [-INF, INF, bound, bound] for one, bound in enumerate(bounds)}
    subject = plan()
    subject.add(np.arange(len(bounds)), np.array(list(ranges.values())))
    assert_agrees(subject, rows, Arrivals(np.zeros(1), np.array([0.1]), np.zeros(1)), ranges)


@pytest.mark.parametrize("kind", [BandGroups, BandSequences])
@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_groups_stay_few_and_right_as_bands_come_and_go(
    epsilon: float, kind: type[BandGroups] | type[BandSequences]
) -> None:
    random = np.random.default_rng(3)
    subject, ranges = kind(epsilon), dict[int, list[float]]()
    for turn in range(60):
        centre = 40 * turn  # they wander: old groups run empty, new ones begin
        ids = np.array([one for one in range(400) if one not in ranges][: random.choice([1, 1, 30])], np.int64)
        low = (centre + random.uniform(0, 200, len(ids))).round()
        fresh = np.column_stack((np.full((len(ids), 2), (-INF, INF)), low, low + random.integers(0, 30, len(ids))))
        subject.add(ids, fresh)
        ranges.update(zip(ids.tolist(), fresh.tolist(), strict=True))
        first = sorted(ranges, key=lambda one: ranges[one][3])[: len(ranges) // 10]  # what ends first: witnesses
        subject.remove(np.array(first, np.int64))
        for one in first:
            del ranges[one]
        rows = (centre + random.uniform(0, 200, 20)).round()
        assert_agrees(subject, rows, Arrivals(np.zeros(2), np.array([0.0, 50.0]), np.zeros(2)), ranges)
    subject.remove(np.array(list(ranges), np.int64))
    subject.check()
    with pytest.raises(ValueError, match="epsilon must be more than 0, not 0"):
        kind(0)

"""Hotspots: large groups are hot, others are not, and few intervals change sides, at every step."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, run_state_machine_as_test

from hullcast.broker.joins.hotspots import SCATTERED, HotspotTracker, paying_points
from hullcast.broker.joins.partition import NO_GROUP, canonical
from hullcast.network.wire.arrays import Floats
from tests.broker.joins.intervals import INTERVALS, Followed, FollowedMachine, Interval, fewest, random_changes


class HotspotMachine(FollowedMachine):
    @initialize(alpha=st.sampled_from([0.0, 0.05, 0.1, 0.34, 1.0]), epsilon=st.sampled_from([0.1, 1.0, 3.0]))
    def begin(self, alpha: float, epsilon: float) -> None:
        self.tracker, self.epsilon = HotspotTracker(alpha, epsilon), epsilon
        self.followed = Followed(self.tracker)

    @invariant()
    def keeps_i1_to_i3(self) -> None:
        alpha, n, tracker = self.tracker.alpha, len(self.followed.model), self.tracker
        sizes = tracker.groups().sizes
        scattered = tracker.scattered
        tau = fewest(self.followed.model.values())
        figures = tracker.describe()
        assert (figures["intervals"], figures["hot groups"]) == (n, len(sizes))
        assert int(sizes.sum()) + len(scattered) == n
        assert isinstance(figures["groups"], int)
        if alpha == 0:
            assert len(scattered) == tracker.moves == 0
            assert figures["groups"] <= (1 + self.epsilon) * tau
            return
        assert (sizes >= alpha / 2 * n).all()
        inside = tracker._partition.group_of[scattered]
        assert not n or (np.unique(inside, return_counts=True)[1] < alpha * n).all()
        assert len(sizes) <= 2 / alpha
        assert figures["groups"] <= (1 + self.epsilon) * tau + 2 / alpha
        assert tracker.moves <= 5 * tracker.changes


def test_the_invariants_hold_at_every_step() -> None:
    run_state_machine_as_test(HotspotMachine, settings=settings(max_examples=30, stateful_step_count=20, deadline=None))


@pytest.mark.parametrize("alpha", [0.0, 0.02, 0.2])
def test_a_hundred_thousand_changes_of_hotspots(alpha: float) -> None:
    tracker = HotspotTracker(alpha, 0.5)
    random_changes(Followed(tracker), seed=2, changes=100_000, centres=25, check_each=5_000)
    assert tracker.changes >= 100_000
    if alpha == 0.02:
        assert tracker.moves > 1_000, "groups were promoted and demoted"


def crowds(random: np.random.Generator, n: int, centres: int, tiny: float = 0.2) -> tuple[Floats, Floats]:
    """Large intervals around some points of 0 to 10,000, and a share of tiny ones anywhere, mixed."""
    gap, few = 10_000 / centres, int(tiny * n)
    middles = (random.integers(0, centres, n) + 0.5) * gap + random.normal(0, gap / 40, n)
    halves = random.uniform(0.1, 0.45, n) * gap
    middles[:few], halves[:few] = random.uniform(0, 10_000, few), random.uniform(0, 1, few)
    order = random.permutation(n)
    return (middles - halves)[order], (middles + halves)[order]


def deepest(lows: Floats, highs: Floats) -> int:
    """How many intervals the most crowded point has."""
    begun = np.searchsorted(np.sort(lows), lows, "right")
    return int((begun - np.searchsorted(np.sort(highs), lows)).max(initial=0))


def test_tiny_intervals_anywhere_do_not_hide_the_crowds() -> None:
    lows, highs = crowds(np.random.default_rng(5), 100_000, 30)
    tracker = HotspotTracker(0.002, 1.0)
    tracker.add(np.arange(100_000), lows, highs)
    tracker.check()
    figures = tracker.describe()
    assert isinstance(figures["hot share"], float)
    assert figures["hot share"] >= 0.7
    assert len(tracker.groups().numbers) <= 60, "about one for each of the 30 points"


def test_a_crowd_that_comes_little_by_little_among_tiny_ones_is_found() -> None:
    random = np.random.default_rng(6)
    tracker = HotspotTracker(0.05, 1.0)
    places = random.uniform(0, 1000, 4_000)
    tracker.add(np.arange(4_000), places, places)
    assert len(tracker.scattered) == 4_000
    for first in range(4_000, 6_000, 10):
        tracker.add(np.arange(first, first + 10), random.uniform(100, 500, 10), random.uniform(500, 900, 10))
    tracker.check()
    assert (tracker.group_of[4_000:6_000] >= 0).mean() > 0.8


def test_where_greedy_groups_are_large_there_are_no_more_hot_ones_and_no_fewer_intervals_in_them() -> None:
    random = np.random.default_rng(7)
    n, alpha = 50_000, 0.002
    middles, halves = random.uniform(0, 10_000, n), np.abs(random.normal(1000, 210, n)) / 2
    tracker = HotspotTracker(alpha, 1.0)
    tracker.add(np.arange(n), middles - halves, middles + halves)
    sizes = np.bincount(canonical(middles - halves, middles + halves)[0])
    greedy = sizes[sizes >= alpha * n]
    hot = tracker.groups().sizes
    assert len(greedy) > 15
    assert len(hot) <= len(greedy)
    assert hot.sum() >= 0.999 * greedy.sum()


@given(st.lists(INTERVALS, max_size=9), st.integers(1, 4))
def test_no_other_points_cost_less(intervals: list[Interval], paying: int) -> None:
    lows, highs = np.array(intervals, float).reshape(-1, 2).T

    def cost(points: tuple[float, ...]) -> float:
        missed = sum(not any(low <= point <= high for point in points) for low, high in intervals)
        return (paying - 0.5) * len(points) + missed

    found = paying_points(lows, highs, paying)
    assert sorted(set(found.tolist())) == found.tolist()
    candidates = sorted({low for low, _ in intervals})
    choices = (some for count in range(len(candidates) + 1) for some in combinations(candidates, count))
    assert cost(tuple(found.tolist())) == min(map(cost, choices))
    if paying == 1:
        assert len(found) == fewest(intervals)


@given(st.lists(INTERVALS, min_size=1, max_size=60), st.sampled_from([0.05, 0.1, 0.34, 1.0]))
def test_after_a_look_no_point_is_crowded_with_scattered_intervals(intervals: list[Interval], alpha: float) -> None:
    tracker = HotspotTracker(alpha, 1.0)
    lows, highs = np.array(intervals, float).T
    tracker.add(np.arange(len(intervals)), lows, highs)
    tracker.check()
    assert deepest(lows[tracker.scattered], highs[tracker.scattered]) < alpha * len(intervals)
    assert (tracker.groups().sizes >= alpha * len(intervals)).all()


def test_a_crowd_is_found_that_cheaper_points_would_divide() -> None:
    ends = [(-6, -5)] * 20 + [(-5, 0)] * 50 + [(0, 5)] * 50 + [(5, 6)] * 20  # at -5 and 5 there are 70, at 0 100
    tracker = HotspotTracker(80 / 140, 1.0)
    tracker.add(np.arange(140), *np.array(ends, float).T)
    tracker.check()
    assert tracker.groups().sizes.tolist() == [100]


def test_moves_are_few_and_all_counted_while_crowds_wander() -> None:
    random = np.random.default_rng(8)
    tracker, n, seen = HotspotTracker(0.02, 1.0), 5_000, 0
    tracker.add(np.arange(n), *crowds(random, n, 20))
    for step in range(1_000):
        before = tracker.group_of[:n].copy()
        ids = random.choice(n, 50, replace=False)
        tracker.remove(ids)
        lows, highs = crowds(random, 50, 20)
        shift = 225 * (step // 100)  # now and then the crowds are elsewhere, between the places they were at
        tracker.add(ids, lows + shift, highs + shift)
        stayed = np.delete(np.arange(n), ids)
        seen += int(((before >= 0) != (tracker.group_of[:n] >= 0))[stayed].sum())
        assert seen <= tracker.moves <= 5 * tracker.changes
        if step % 50 == 0:
            tracker.check()
    assert tracker.changes > 100_000
    assert seen > 1_000, "groups were promoted and demoted"


def test_when_many_leave_what_is_enough_now_is_found() -> None:
    random = np.random.default_rng(9)
    tracker = HotspotTracker(0.1, 1.0)
    places = random.uniform(0, 1000, 1_800)
    lows = np.concatenate((places, random.uniform(100, 500, 150)))
    highs = np.concatenate((places, random.uniform(500, 900, 150)))
    tracker.add(np.arange(1_950), lows, highs)
    assert len(tracker.scattered) == 1_950, "150 of 1950 are not a tenth"
    for first in range(0, 900, 10):
        tracker.remove(np.arange(first, first + 10))
    assert (tracker.group_of[1_800:1_950] >= 0).all(), "150 of 1050 are"
    tracker.check()


def around(centre: float, ids: range) -> dict[int, Interval]:
    return {i: (centre - 1 - i % 3, centre + 1 + i % 3) for i in ids}


def test_a_group_becomes_hot_and_stays_until_it_has_half_of_what_it_took() -> None:
    followed = Followed(tracker := HotspotTracker(0.2, 0.5))
    followed.add({i: (100.0 * i, 100.0 * i) for i in range(1, 81)})  # of 80 no group has 16
    assert len(tracker.groups().numbers) == 0
    assert len(tracker.scattered) == 80
    followed.add(around(-50, range(100, 119)))
    assert len(tracker.groups().numbers) == 0, "19 of 99"
    followed.add(around(-50, range(119, 120)))
    (hot,) = tracker.groups().numbers.tolist()
    assert tracker.groups().sizes.tolist() == [20], "20 of 100"
    assert (tracker.group_of[100:120] == hot).all()
    assert tracker.moves == 20
    followed.follow()
    for i in range(100, 109):
        followed.remove([i])
        assert tracker.groups().numbers.tolist() == [hot]
    followed.add(around(-50, range(200, 201)))
    assert int(tracker.group_of[200]) == hot, "hot groups are asked first"
    followed.remove([200, 109, 110])
    assert tracker.groups().sizes.tolist() == [9], "9 of 89: half of a fifth is 8.9"
    followed.remove([111])
    assert len(tracker.groups().numbers) == 0, "8 of 88"
    assert (tracker.group_of[112:120] == SCATTERED).all()
    assert tracker.group_of[111] == NO_GROUP
    assert tracker.moves == 28
    followed.follow()


def test_a_bulk_load_starts_afresh() -> None:
    followed = Followed(tracker := HotspotTracker(0.3, 0.5))
    followed.add(around(0, range(10)))
    followed.follow()
    followed.add(around(1000, range(100, 140)))
    assert tracker.groups().sizes.tolist() == [40], "10 of 50 are not hot"
    assert tracker.scattered.tolist() == list(range(10))
    followed.follow()


def test_a_group_becomes_hot_when_intervals_of_another_leave() -> None:
    followed = Followed(tracker := HotspotTracker(0.2, 0.5))
    followed.add({i: (100.0 * i, 100.0 * i) for i in range(1, 11)})
    followed.add(around(-50, range(20, 91)) | around(-500, range(100, 119)))
    assert tracker.groups().sizes.tolist() == [71], "19 of 100 are not hot"
    for i in range(20, 25):
        assert (tracker.group_of[100:119] == SCATTERED).all()
        followed.remove([i])
        tracker.check()
    assert sorted(tracker.groups().sizes.tolist()) == [19, 66], "19 of 95 are"
    followed.follow()


def test_alpha_is_a_share() -> None:
    with pytest.raises(ValueError, match="alpha must be between 0 and 1, not 2"):
        HotspotTracker(2, 0.5)


def test_figures_of_an_empty_tracker() -> None:
    for alpha in (0.0, 0.5):
        assert HotspotTracker(alpha, 1.0).describe() == {
            "intervals": 0,
            "groups": 0,
            "hot groups": 0,
            "hot share": 0.0,
            "largest": 0,
        }

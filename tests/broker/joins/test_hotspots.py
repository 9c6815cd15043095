"""Hotspots: large groups are hot, others are not, and few intervals change sides, at every step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, run_state_machine_as_test

from hullcast.broker.joins.hotspots import SCATTERED, HotspotTracker
from hullcast.broker.joins.partition import NO_GROUP
from tests.broker.joins.intervals import Followed, FollowedMachine, Interval, fewest, random_changes


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

"""Stabbing partitions have at most (1 + epsilon) tau groups at every step, and a consumer can follow them."""

from __future__ import annotations

from math import inf, log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, run_state_machine_as_test

from hullcast.broker.joins import hotspots, ordered, partition
from hullcast.broker.joins.ordered import LEFT, NODES, RIGHT, Ordered
from hullcast.broker.joins.partition import RefinedPartition, StabbingPartition, canonical
from hullcast.network.wire.arrays import Floats
from tests.broker.joins.intervals import INTERVALS, Followed, FollowedMachine, Interval, common, fewest, random_changes
from tests.support.lazy_partition import LazyPartition

WAYS = (LazyPartition, RefinedPartition)
every_way = pytest.mark.parametrize("way", WAYS)


@given(intervals=st.lists(INTERVALS, max_size=30))
def test_the_greedy_partition_is_the_smallest(intervals: list[Interval]) -> None:
    ends = np.array(intervals, float).reshape(-1, 2)
    groups, meets = canonical(ends[:, 0], ends[:, 1])
    assert len(meets) == fewest(intervals)
    for group, meet in enumerate(meets.tolist()):
        members = [interval for interval, of in zip(intervals, groups.tolist(), strict=True) if of == group]
        assert tuple(meet) == common(members)
        assert meet[0] <= meet[1]


class PartitionMachine(FollowedMachine):
    way: type[StabbingPartition]

    @initialize(epsilon=st.sampled_from([0.1, 0.5, 1.0, 3.0]))
    def begin(self, epsilon: float) -> None:
        self.partition = self.way(epsilon)
        self.followed = Followed(self.partition)

    @invariant()
    def has_few_groups(self) -> None:
        tau = fewest(self.followed.model.values())
        assert tau <= self.partition.group_count <= (1 + self.partition.epsilon) * tau
        sizes = self.partition.groups().sizes
        assert self.partition.largest == sizes.max(initial=0)


@every_way
def test_the_bound_holds_at_every_step(way: type[StabbingPartition]) -> None:
    class Machine(PartitionMachine):
        pass

    Machine.way = way
    run_state_machine_as_test(Machine, settings=settings(max_examples=25, stateful_step_count=20, deadline=None))


@every_way
def test_a_hundred_thousand_changes(way: type[StabbingPartition]) -> None:
    followed = Followed(way(0.5))
    random_changes(followed, seed=1, changes=100_000, centres=60, check_each=5_000)


@every_way
def test_a_group_keeps_its_number_while_it_lives(way: type[StabbingPartition]) -> None:
    followed = Followed(way(0.5))
    followed.add({i: (10.0 * (i % 5), 10.0 * (i % 5) + 5) for i in range(50)})
    of = {int(followed.tracked.group_of[i]): i % 5 for i in range(50)}
    assert len(of) == 5
    followed.add({50 + i: (-100.0 - i, -100.0 - i) for i in range(40)})  # more groups than before: certainly a rebuild
    followed.remove([i for i in range(40) if i % 5])
    assert all(of[int(followed.tracked.group_of[i])] == i % 5 for i in (0, 5, 35, *range(40, 50)))


def chain(copies: int, links: int) -> dict[int, Interval]:
    """[0, 1], [1, 2], ..: two neighbours share a point. The first decides with which neighbour all others are."""
    return {i: (float(i % links), i % links + 1.0) for i in range(copies * links)}


def greedy_pairs(model: dict[int, Interval]) -> set[frozenset[Interval]]:
    ends = np.array(list(model.values()))
    groups, _ = canonical(ends[:, 0], ends[:, 1])
    return {frozenset(map(tuple, ends[groups == group].tolist())) for group in np.unique(groups)}


@every_way
def test_intervals_stay_where_they_are_though_the_smallest_partition_changes_completely(
    way: type[StabbingPartition],
) -> None:
    epsilon, links = 0.5, 100
    followed = Followed(way(epsilon))
    followed.add(chain(20, links))
    followed.follow()
    before, moved = greedy_pairs(followed.model), followed.moved
    followed.add({5000: (-1.0, 0.0)})
    after = greedy_pairs(followed.model)
    assert not {pair for pair in before & after if len(pair) > 1}, "no group of the greedy partition is left"
    for _ in range(50):
        followed.remove([5000])
        followed.add({5000: (-1.0, 0.0)})
        followed.follow()
    if way is RefinedPartition:  # the lazy one counts removals, of [-1, 0] too once it was there at a rebuild
        assert followed.moved - moved <= 50
    followed.tracked.check()


@every_way
@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_rebuilds_are_rare_and_visit_few_nodes(way: type[StabbingPartition], epsilon: float) -> None:
    """An adversary adds links before a chain, which shifts every group, and removes what ends first of each group."""
    copies, links = 20, 60
    kept = way(epsilon)
    followed = Followed(kept)
    followed.add(chain(copies, links))
    since, changes, tau = 0, 0, kept._tau
    start = kept.steps if isinstance(kept, RefinedPartition) else 0
    for step in range(300):
        rebuilds = kept.rebuilds
        if step % 3 < 2:
            followed.add({10_000 + step: (-1.0 - step, -1.0 * step)})
        elif isinstance(kept, RefinedPartition):
            followed.remove([int(kept._witnesses[kept._counted[kept._witnesses]][0])])
        else:
            followed.remove([min(followed.model)])
        since, changes = since + 1, changes + 1
        if kept.rebuilds > rebuilds:
            assert kept.rebuilds == rebuilds + 1
            assert since > epsilon * tau / (1 + epsilon) - 1e-9
            since, tau = 0, kept._tau
        kept.check()
    assert kept.rebuilds > 3
    if isinstance(kept, RefinedPartition):
        assert (kept.steps - start) / changes <= 4 * (1 + 1 / epsilon) * log2(len(kept))


def test_a_rebuild_visits_no_more_nodes_than_groups_times_the_height() -> None:
    visited = []
    for n in (1_000, 100_000):
        kept = RefinedPartition(1.0)
        middles = np.arange(n) % 10 * 10.0
        kept.add(np.arange(n), middles - np.linspace(0, 4, n), middles + np.linspace(4, 0, n))
        assert kept.group_count == 10
        visited.append(kept.steps)
    assert visited[1] <= 10 * 4 * log2(100_000)
    assert visited[1] <= 3 * visited[0], "a hundred times as many intervals"


@pytest.mark.parametrize("order", ["rising", "falling", "equal", "inwards"])
def test_the_order_of_intervals_stays_balanced(order: str) -> None:
    n = 3_000
    ids = np.arange(n)
    steps = np.arange(float(n))
    shapes: dict[str, Floats] = {
        "rising": steps,
        "falling": -steps,
        "equal": np.zeros(n),
        "inwards": np.where(ids % 2 == 0, steps, -steps),
    }
    lows = shapes[order]
    kept = Ordered()
    kept.reserve(n)
    kept.insert(ids, lows, lows + 1)
    kept.check()
    assert height(kept) <= log2(n) / log2(1 / ordered.HEAVY) + 2
    assert np.array_equal(lows[kept.ids()], np.sort(lows))
    assert kept.ranks(np.array([-inf, 0.0, 7.0, inf])).tolist() == [int((lows < x).sum()) for x in (-inf, 0, 7, inf)]
    for i in range(n // 5):  # few at once: they leave dead nodes
        kept.remove(ids[5 * i : 5 * i + 5][: n - 5 - 5 * i])
    kept.check()
    assert set(kept.ids().tolist()) == set(range(n - 5, n))
    assert kept.links[kept.links[0, LEFT], NODES] < 50, "dead nodes are dropped"


def height(kept: Ordered) -> int:
    level, depth = [int(kept.links[0, LEFT])], 0
    while level:
        level = [int(child) for node in level for child in kept.links[node, [LEFT, RIGHT]] if child]
        depth += 1
    return depth


@every_way
def test_a_vanished_group_does_not_mislead_those_that_come_later(way: type[StabbingPartition]) -> None:
    followed = Followed(way(3.0))
    followed.add({i: (-10.0 * i, -10.0 * i) for i in range(10, 40)})
    followed.add({0: (5.0, 6.0)})
    followed.remove([0])  # its node stays in the tree of meets, dead
    followed.add({1: (0.0, 10.0)})  # left of that node ..
    followed.add({2: (7.0, 10.0)})  # .. and now the group's meet is right of where it was
    followed.add({3: (5.5, 6.5)})
    followed.tracked.check()
    assert followed.tracked.groups().lows.tolist()[-2:] == [5.5, 7.0]


def test_only_intervals_that_moved_are_told() -> None:
    followed = Followed(RefinedPartition(0.5))
    followed.add({i: (10.0 * (i % 50), 10.0 * (i % 50) + 5) for i in range(2_000)})
    followed.follow()
    assert followed.moved == 2_000
    rebuilds = followed.tracked.rebuilds  # type: ignore[attr-defined]  # it is a partition
    followed.add({3_000 + i: (1_000.0 + 10 * i, 1_000.0 + 10 * i) for i in range(60)})
    assert followed.tracked.rebuilds > rebuilds  # type: ignore[attr-defined]
    followed.follow()
    assert followed.moved == 2_060, "runs that stay as they are have their numbers still"


def test_kernels_have_one_signature() -> None:
    ids = np.frombuffer(np.arange(40).tobytes(), np.int64)  # read-only
    ends = np.arange(80.0).reshape(40, 2)  # columns are not contiguous
    for tracked in (LazyPartition(1.0), RefinedPartition(1.0), hotspots.HotspotTracker(0.1, 1.0)):
        tracked.add(ids, ends[:, 0], ends[:, 1])
        tracked.remove(ids[::2])
        tracked.add(ids[:3:2], ends[:3:2, 0], ends[:3:2, 1])
        tracked.take_changes()
        tracked.check()
    canonical(ends[:, 0], ends[:, 1])
    functions = [value for module in (ordered, partition, hotspots) for value in vars(module).values()]
    compiled = [function for function in functions if hasattr(function, "signatures")]
    assert len(compiled) > 10
    assert not [function for function in compiled if len(function.signatures) > 1]


def test_epsilon_must_be_positive() -> None:
    with pytest.raises(ValueError, match="epsilon must be more than 0, not 0"):
        RefinedPartition(0)

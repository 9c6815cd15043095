"""The tree of brokers: bounded, below the server, and short."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.wire.errors import UsageError
from hullcast.sim.overlay.tree import BrokerTree, latency_tree
from tests.sim.overlay.plans import routes_in_plane, tree_of, trees

if TYPE_CHECKING:
    from hullcast.sim.topology.paths import Routes


def edges(tree: BrokerTree, routes: Routes) -> float:
    """Latency of all edges together."""
    return float(routes.latency[tree.parent[1:], np.arange(1, tree.brokers)].sum())


def ways(tree: BrokerTree, routes: Routes) -> float:
    """Latency from the server to all brokers, down the tree, together."""
    way = np.zeros(tree.brokers)
    for broker in tree.order[1:]:
        way[broker] = way[tree.parent[broker]] + routes.latency[tree.parent[broker], broker]
    return float(way.sum())


def random_tree(brokers: int, fanout: int, seed: int = 0) -> BrokerTree:
    """Each broker below any earlier one with room."""
    random, room, parents = np.random.default_rng(seed), [fanout], []
    for _ in range(1, brokers):
        parents.append(int(random.choice(np.flatnonzero(room))))
        room[parents[-1]] -= 1
        room.append(fanout)
    return tree_of(parents)


@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 5))
def test_no_broker_has_more_children_than_the_fanout(brokers: int, fanout: int, seed: int) -> None:
    tree = latency_tree(routes_in_plane(brokers, seed=seed), fanout)
    tree.check()
    assert np.bincount(tree.parent[1:], minlength=1).max() <= fanout


@given(st.integers(2, 15), st.integers(1, 4), st.integers(0, 20))
def test_each_broker_goes_below_the_one_with_room_that_is_the_shortest_way(
    brokers: int, fanout: int, seed: int
) -> None:
    routes = routes_in_plane(brokers, seed=seed)
    way, depth, children, parent = {0: 0.0}, {0: 0}, dict.fromkeys(range(brokers), 0), {0: -1}
    for broker in sorted(range(1, brokers), key=lambda broker: routes.latency[0, broker]):
        ranked = [
            (way[above] + routes.latency[above, broker], depth[above], above)
            for above in way
            if children[above] < fanout
        ]
        way[broker], depth[broker], parent[broker] = min(ranked)
        depth[broker] += 1
        children[parent[broker]] += 1
    assert latency_tree(routes, fanout).parent.tolist() == [parent[broker] for broker in range(brokers)]


def test_among_equally_short_ways_the_one_of_fewest_edges_is_taken() -> None:
    routes = routes_in_plane(4)
    line = np.array([0.0, 1.0, 2.0, 3.0])  # all on a line: each way is as short as the direct one
    routes.latency[:] = np.abs(line[:, None] - line[None, :])
    assert latency_tree(routes, 3).parent.tolist() == [-1, 0, 0, 0]
    assert latency_tree(routes, 2).parent.tolist() == [-1, 0, 0, 1]


@pytest.mark.parametrize("seed", range(4))
def test_edges_are_shorter_than_those_of_a_star_or_any_tree_and_ways_hardly_longer_than_a_stars(seed: int) -> None:
    routes = routes_in_plane(300, seed=seed)
    star, tree, any_tree = tree_of([0] * 299), latency_tree(routes, 16), random_tree(300, 16, seed)
    assert edges(tree, routes) < min(edges(star, routes), edges(any_tree, routes))
    assert ways(star, routes) <= ways(tree, routes) < 1.1 * ways(star, routes)
    assert ways(tree, routes) < ways(any_tree, routes)


def test_the_same_routes_give_the_same_tree() -> None:
    one, other = (latency_tree(routes_in_plane(100), 8) for _ in range(2))
    assert np.array_equal(one.parent, other.parent)
    assert np.array_equal(one.order, other.order)


@given(trees(20))
def test_sizes_and_children_agree_with_walking_up(tree: BrokerTree) -> None:
    above: list[list[int]] = []
    for broker in range(tree.brokers):
        way = [broker]
        while tree.parent[way[-1]] >= 0:
            way.append(int(tree.parent[way[-1]]))
        above.append(way)
    assert tree.sizes().tolist() == [sum(broker in way for way in above) for broker in range(tree.brokers)]
    assert [sorted(some) for some in tree.children()] == [
        np.flatnonzero(tree.parent == broker).tolist() for broker in range(tree.brokers)
    ]


def test_a_tree_that_is_none_is_found_out() -> None:
    for parent, order in (([-1, 2, 1], [0, 1, 2]), ([-1, 0, 1], [0, 2, 1]), ([0, -1], [0, 1]), ([-1, 0], [0, 0])):
        with pytest.raises(AssertionError):
            BrokerTree(np.array(parent, np.int32), np.array(order, np.int32)).check()


def test_a_fanout_of_none_is_refused() -> None:
    with pytest.raises(UsageError, match="fanout of 1 or more, got 0"):
        latency_tree(routes_in_plane(3), 0)

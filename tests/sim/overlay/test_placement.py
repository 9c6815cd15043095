"""Placements: what belongs to each, the same by seed, what content does for rectangles; and gateways by each rule."""

from __future__ import annotations

import pickle
from typing import get_args

import numpy as np
import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.overlay import PLACEMENTS
from hullcast.sim.overlay.division import balanced_zones
from hullcast.sim.overlay.placement import Rule, choose_brokers, gateways, place
from hullcast.sim.topology.inet import inet
from hullcast.sim.topology.paths import routes
from hullcast.sim.traces.table51 import Workload
from tests.sim.overlay.plans import owners_by_definition, routes_in_plane

RANGES = Workload(1).ranges(2_000)
SAMPLE = np.column_stack((RANGES.low, RANGES.high))


def test_each_placement_has_what_it_needs() -> None:
    parts = {name: place(name, routes_in_plane(20), SAMPLE) for name in PLACEMENTS}
    having = {name: (it.tree is not None, it.zones is not None) for name, it in parts.items()}
    assert having == {
        "can": (False, True),
        "tree-content": (True, True),
        "tree-nearest": (True, False),
        "tree-random": (True, False),
    }


@pytest.mark.parametrize("name", PLACEMENTS)
@pytest.mark.parametrize("brokers", [1, 2, 20])
def test_every_placement_works_for_few_brokers_and_after_a_journey(name: str, brokers: int) -> None:
    placement = place(name, routes_in_plane(brokers), SAMPLE, fanout=4, entry="greedy", root=3)
    again = pickle.loads(pickle.dumps(placement))
    chosen = placement.gateways(SAMPLE, 3)
    assert np.array_equal(chosen, again.gateways(SAMPLE, 3))
    assert set(chosen.tolist()) == set(range(brokers))


def test_a_can_hands_out_its_zones_by_seed() -> None:
    one, same, other = (place("can", routes_in_plane(20), SAMPLE, root=root).zones for root in (5, 5, 6))
    assert one is not None
    assert same is not None
    assert other is not None
    assert np.array_equal(one.low, same.low)
    assert not np.array_equal(one.low, other.low)
    assert np.array_equal(np.sort(one.low, axis=0), np.sort(other.low, axis=0))


def test_by_content_a_rectangle_concerns_few_gateways_and_by_chance_many() -> None:
    x1, x2 = SAMPLE.T
    inside = (x1 > 4_000) & (x1 <= 5_000) & (x2 >= 5_000) & (x2 < 6_000)
    reached = {
        name: len(np.unique(place(name, routes_in_plane(100), SAMPLE).gateways(SAMPLE)[inside])) for name in PLACEMENTS
    }
    assert inside.sum() > 200
    assert max(reached["can"], reached["tree-content"]) < 0.5 * min(reached["tree-nearest"], reached["tree-random"])


def test_over_a_real_topology_brokers_are_different_nodes_and_the_first_of_more() -> None:
    topology = inet(300)
    few, many = choose_brokers(topology, 10), choose_brokers(topology, 50)
    assert np.array_equal(few, many[:10])
    assert len(set(many.tolist())) == 50
    assert not np.array_equal(choose_brokers(topology, 10, root=1), few)
    placement = place("tree-nearest", routes(topology, few), SAMPLE)
    assert set(placement.gateways(SAMPLE).tolist()) <= set(range(10))


def test_brokers_may_be_anywhere() -> None:
    drawn = np.concatenate([choose_brokers(inet(300), 30, root=root) for root in range(10)])
    assert 120 < drawn.mean() < 180
    assert len(choose_brokers(inet(300), 300)) == 300


def test_wrong_names_and_numbers_are_named() -> None:
    with pytest.raises(UsageError, match="'star'; choose among can, tree-content"):
        place("star", routes_in_plane(3), SAMPLE)
    with pytest.raises(UsageError, match="'teleport'"):
        place("can", routes_in_plane(3), SAMPLE, entry="teleport")  # type: ignore[arg-type]  # without types
    with pytest.raises(UsageError, match=r"300 nodes.*got 301"):
        choose_brokers(inet(300), 301)
    with pytest.raises(UsageError, match="got 0"):
        choose_brokers(inet(300), 0)


ROUTES = routes_in_plane(10, nodes=200)
POINTS = np.sort(np.random.default_rng(1).uniform(0.0, 100.0, (1_000, 2)), axis=1)
ZONES = balanced_zones(POINTS[:300], np.arange(10))


def test_by_content_the_owner_of_the_zone_is_the_gateway() -> None:
    chosen = gateways("content", POINTS, routes=ROUTES, zones=ZONES, root=0)
    assert [[gateway] for gateway in chosen.tolist()] == owners_by_definition(ZONES, POINTS)


def test_the_nearest_is_that_of_a_random_node() -> None:
    routes = routes_in_plane(10, nodes=200)
    routes.nearest[:] = 3
    routes.nearest[:50] = 7  # a quarter of the nodes
    chosen = gateways("nearest", POINTS, routes=routes, root=0)
    counts = np.bincount(chosen, minlength=10)
    assert counts[3] + counts[7] == 1_000
    assert 200 < counts[7] < 300


def test_at_random_every_broker_is_as_likely() -> None:
    counts = np.bincount(gateways("random", POINTS, routes=ROUTES, root=0), minlength=10)
    assert len(counts) == 10
    assert 60 < counts.min() <= counts.max() < 145


@pytest.mark.parametrize("rule", get_args(Rule))
def test_the_first_subscriptions_have_the_same_gateways_whatever_comes_after(rule: Rule) -> None:
    every = gateways(rule, POINTS, routes=ROUTES, zones=ZONES, root=0)
    first = gateways(rule, POINTS[:101], routes=ROUTES, zones=ZONES, root=0)
    assert np.array_equal(every[:101], first)
    assert every.dtype == np.int32


@pytest.mark.parametrize("rule", ["nearest", "random"])
def test_another_root_gives_other_gateways(rule: Rule) -> None:
    one, same, other = (gateways(rule, POINTS, routes=ROUTES, root=root) for root in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_no_subscriptions_have_no_gateways() -> None:
    for rule in get_args(Rule):
        assert len(gateways(rule, np.empty((0, 2)), routes=ROUTES, zones=ZONES)) == 0


def test_what_is_missing_or_unknown_is_named() -> None:
    with pytest.raises(UsageError, match="zones="):
        gateways("content", POINTS, routes=ROUTES)
    with pytest.raises(UsageError, match="'closest'"):
        gateways("closest", POINTS, routes=ROUTES)  # type: ignore[arg-type]  # what a caller without types may do

"""Zones: they tile the plane whatever the sample, share its load, and keep subtrees together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.wire.errors import UsageError
from hullcast.sim.overlay.division import balanced_zones, zones_along
from hullcast.sim.overlay.zones import locate
from hullcast.sim.seeds import generator
from hullcast.sim.traces.table51 import Workload
from tests.sim.overlay.plans import grid_points, owners_by_definition, samples, tree_of, trees

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats
    from hullcast.sim.overlay.tree import BrokerTree


def subscriptions(count: int) -> Floats:
    ranges = Workload(1).ranges(count)
    return np.column_stack((ranges.low, ranges.high))


@given(samples(), st.permutations(range(7)), st.integers(1, 7))
def test_zones_of_a_can_tile_the_plane(sample: Floats, order: list[int], brokers: int) -> None:
    zones = balanced_zones(sample, np.array([broker for broker in order if broker < brokers]))
    zones.check()
    points = grid_points()
    assert owners_by_definition(zones, points) == [[owner] for owner in locate(zones, points).tolist()]


@given(trees(), samples())
def test_zones_along_a_tree_tile_the_plane(tree: BrokerTree, sample: Floats) -> None:
    zones = zones_along(tree, sample)
    zones.check()
    points = grid_points()
    assert owners_by_definition(zones, points) == [[owner] for owner in locate(zones, points).tolist()]


@given(trees(), samples())
def test_all_below_a_broker_own_one_rectangle(tree: BrokerTree, sample: Floats) -> None:
    zones = zones_along(tree, sample)
    below = [{broker} for broker in range(tree.brokers)]
    for broker in tree.order[:0:-1].tolist():
        below[tree.parent[broker]] |= below[broker]
    for members in below:
        inside = sorted(members)
        outside = [broker for broker in range(tree.brokers) if broker not in members]
        low, high = zones.low[inside].min(axis=0), zones.high[inside].max(axis=0)
        assert not ((zones.low[outside] < high) & (low < zones.high[outside])).all(axis=1).any()


def test_every_broker_of_a_can_gets_an_equal_share() -> None:
    sample = subscriptions(10_000)
    zones = balanced_zones(sample, np.arange(97))
    loads = np.bincount(locate(zones, sample), minlength=97)
    assert abs(loads - 10_000 / 97).max() <= 7  # a point at most at each of 7 levels


def test_every_broker_of_a_tree_gets_an_equal_share() -> None:
    sample = subscriptions(10_000)
    random = generator(0, "tree")
    tree = tree_of([int(random.integers(0, broker + 1)) for broker in range(99)])
    loads = np.bincount(locate(zones_along(tree, sample), sample), minlength=100)
    assert abs(loads - 100).max() <= 20


def test_zones_of_new_subscriptions_of_the_same_kind_are_evenly_loaded() -> None:
    zones = balanced_zones(subscriptions(20_000), np.arange(50))
    loads = np.bincount(locate(zones, subscriptions(20_001)), minlength=50)
    assert 300 < loads.min() <= loads.max() < 500


def test_the_owners_get_their_zones_in_the_order_given() -> None:
    sample = subscriptions(1_000)
    plain, turned = balanced_zones(sample, np.arange(8)), balanced_zones(sample, np.arange(8)[::-1])
    assert np.array_equal(plain.low, turned.low[::-1])
    assert np.array_equal(plain.high, turned.high[::-1])


def test_the_wider_dimension_is_cut() -> None:
    zones = balanced_zones(np.array([(0.0, 1.0), (0.0, 9.0), (1.0, 9.0), (1.0, 1.0)]), np.arange(2))
    assert zones.dimension[0] == 1
    assert zones.value[0] == 5.0


def test_a_dimension_of_ties_is_not_cut_where_the_other_gives_better_shares() -> None:
    rows = [(0.0, float(y)) for y in range(9)] + [(100.0, 9.0)]  # x1 is wider, but nine of ten are equal
    zones = balanced_zones(np.array(rows), np.arange(2))
    assert (zones.dimension[0], zones.value[0]) == (1, 4.5)


@pytest.mark.parametrize("sample", [np.empty((0, 2)), np.full((500, 2), 3.0), np.array([(1.0, 2.0)])])
def test_more_brokers_than_different_points_still_get_a_zone_each(sample: Floats) -> None:
    zones = balanced_zones(sample, np.arange(1_000))
    zones.check()
    assert len(np.unique(np.column_stack((zones.low, zones.high)), axis=0)) == 1_000


def test_no_zone_lies_below_the_diagonal() -> None:
    zones = balanced_zones(subscriptions(5_000), np.arange(1_000))
    assert (zones.low[:, 0] < zones.high[:, 1]).all()  # else x1 >= x2 for all of its points


def test_a_place_too_small_for_its_brokers_is_refused() -> None:
    floats = (float(np.nextafter(1.0, 0.0)), 1.0, float(np.nextafter(1.0, 2.0)))
    around = [(a, b) for a in floats for b in floats]
    with pytest.raises(UsageError, match="too small for"):  # the cell of (1, 1) is one float wide and high
        balanced_zones(np.array(around + [(1.0, 1.0)] * 1_000), np.arange(64))


def test_a_chain_of_brokers_is_divided_too() -> None:
    zones = zones_along(tree_of(list(range(299))), subscriptions(3_000))
    zones.check()


def test_infinite_ends_have_an_owner() -> None:
    zones = balanced_zones(subscriptions(1_000), np.arange(16))
    owners = locate(zones, np.array([(-np.inf, 5_000.0), (5_000.0, np.inf), (-np.inf, np.inf)]))
    assert zones.low[owners[0], 0] == -np.inf
    assert zones.high[owners[1], 1] == np.inf
    assert (zones.low[owners[2], 0], zones.high[owners[2], 1]) == (-np.inf, np.inf)


def test_samples_and_owners_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="NaN"):
        balanced_zones(np.array([(np.nan, 1.0)]), np.arange(2))
    with pytest.raises(UsageError, match=r"\(n, 2\)"):
        balanced_zones(np.zeros(4), np.arange(2))
    with pytest.raises(UsageError, match="each once"):
        balanced_zones(np.zeros((4, 2)), np.array([0, 0, 1]))
    with pytest.raises(UsageError, match="at least one broker"):
        balanced_zones(np.zeros((4, 2)), np.empty(0, np.int64))

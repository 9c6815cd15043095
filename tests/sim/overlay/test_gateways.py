"""Gateways: by content, near, or anywhere; and the same ones whatever comes after."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.overlay.division import balanced_zones
from hullcast.sim.overlay.placement import Rule, gateways
from tests.sim.overlay.plans import owners_by_definition, routes_in_plane

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

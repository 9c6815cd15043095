"""Small overlays for tests: routes without a topology, trees, samples with many ties, and the zones by definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from hullcast.network.compiled import kernel
from hullcast.sim.overlay.can import STACK, approach, flood
from hullcast.sim.overlay.tree import BrokerTree
from hullcast.sim.overlay.zones import Zones
from hullcast.sim.topology.paths import Routes

if TYPE_CHECKING:
    import numpy.typing as npt

    from hullcast.network.wire.arrays import Floats, Ints


GRID = st.integers(0, 5)


def routes_in_plane(brokers: int, *, seed: int = 0, nodes: int = 0) -> Routes:
    """Brokers at random places, as far apart as the crow flies; there are no links, and nodes share them in turn."""
    places = np.random.default_rng(seed).uniform(0.0, 1_000.0, (brokers, 2))
    latency = np.hypot(*(places[:, None, :] - places[None, :, :]).transpose(2, 0, 1))
    nearest = np.arange(max(nodes, brokers)) % brokers
    none = np.zeros(brokers * brokers + 1, np.int64)
    return Routes(np.arange(brokers), latency, none, np.empty(0, np.int32), nearest.astype(np.int32))


def tree_of(parents: list[int]) -> BrokerTree:
    """Broker i + 1 is below parents[i], which is lower than it."""
    return BrokerTree(np.array([-1, *parents], np.int32), np.arange(len(parents) + 1, dtype=np.int32))


@st.composite
def trees(draw: st.DrawFn, most: int = 9) -> BrokerTree:
    """Any tree of up to `most` brokers."""
    return tree_of([draw(st.integers(0, broker)) for broker in range(draw(st.integers(0, most - 1)))])


@st.composite
def samples(draw: st.DrawFn, most: int = 20) -> Floats:
    """Subscriptions on a coarse grid, some open to one side; often many equal ones, often fewer than brokers."""
    low = st.one_of(GRID, st.just(-np.inf))
    pairs = draw(st.lists(st.tuples(low, GRID), max_size=most))
    ends = draw(st.lists(st.tuples(GRID, st.just(np.inf)), max_size=2))
    points = np.array([*pairs, *ends], np.float64).reshape(-1, 2)
    points.sort(axis=1)
    return points


def grid_points() -> Floats:
    """Points on the grid of `samples`, between its lines, and around it."""
    line = np.arange(-1.0, 7.0, 0.25)
    return np.array(np.meshgrid(line, line)).reshape(2, -1).T.copy()


def owners_by_definition(zones: Zones, points: Floats) -> list[list[int]]:
    """For each point all whose zone holds it: low <= p < high."""
    inside: npt.NDArray[np.bool_] = (zones.low[None] <= points[:, None]) & (points[:, None] < zones.high[None])
    return [np.flatnonzero(both[:, 0] & both[:, 1]).tolist() for both in inside]


def neighbours(zones: Zones, one: int, other: int) -> bool:
    """Do these zones share a piece of a side?"""
    low, high = zones.low, zones.high

    def abut(j: int) -> bool:
        return bool(high[one, j] == low[other, j] or high[other, j] == low[one, j])

    def overlap(j: int) -> bool:
        return bool(max(low[one, j], low[other, j]) < min(high[one, j], high[other, j]))

    return (abut(0) and overlap(1)) or (abut(1) and overlap(0))


@kernel
def _flooded(zones: Zones, low: Floats, high: Floats) -> tuple[Ints, Ints]:
    stack, senders, receivers = np.empty(STACK, np.int64), np.empty(64, np.int64), np.empty(64, np.int64)
    senders, receivers, used = flood(zones, low[0], high[0], low[1], high[1], senders, receivers, 0, stack)
    return senders[:used], receivers[:used]


@kernel
def _approached(zones: Zones, start: int, point: Floats) -> tuple[Ints, Ints]:
    senders, receivers = np.empty(64, np.int64), np.empty(64, np.int64)
    senders, receivers, used = approach(zones, start, point[0], point[1], senders, receivers, 0)
    return senders[:used], receivers[:used]


def flooded(zones: Zones, low: Floats, high: Floats) -> list[tuple[int, int]]:
    """(sender, receiver) for each zone that meets the closed box."""
    senders, receivers = _flooded(zones, low, high)
    return list(zip(senders.tolist(), receivers.tolist(), strict=True))


def approached(zones: Zones, start: int, point: Floats) -> list[tuple[int, int]]:
    """(sender, receiver) of each hop in order."""
    senders, receivers = _approached(zones, start, point)
    return list(zip(senders.tolist(), receivers.tolist(), strict=True))

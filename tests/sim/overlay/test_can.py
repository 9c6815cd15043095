"""The CAN: whom a rectangle reaches, from whom, and how it comes there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.matching.messages import query_boxes
from hullcast.sim.overlay.can import NOBODY
from hullcast.sim.overlay.division import balanced_zones, zones_along
from hullcast.sim.overlay.zones import Zones, locate
from hullcast.sim.traces.table51 import Workload
from tests.sim.overlay.plans import approached, flooded, neighbours, samples, trees

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats
    from hullcast.sim.overlay.tree import BrokerTree

    Rectangle = tuple[float, float, float, float]  # ol, il, ir, or

PLACES = st.integers(-2, 14).map(lambda twice: twice / 2)  # of rows: on the cuts, between them, and beyond


@st.composite
def divisions(draw: st.DrawFn) -> Zones:
    """Zones of a CAN, balanced or (any other division would do as well) along a tree."""
    sample = draw(samples())
    tree: BrokerTree = draw(trees())
    if draw(st.booleans()):
        return zones_along(tree, sample)
    return balanced_zones(sample, np.arange(tree.brokers))


@st.composite
def rectangles(draw: st.DrawFn) -> Rectangle:
    """ol < il, ir < or, as messages have them; the inner bounds are places of rows, also between the cuts."""
    il, ir = draw(PLACES), draw(PLACES)
    ol = draw(st.one_of(st.just(-np.inf), st.integers(1, 4).map(lambda by: il - by)))
    outer = draw(st.one_of(st.just(np.inf), st.integers(1, 4).map(lambda by: ir + by)))
    return ol, il, ir, outer


def box(rectangle: Rectangle) -> tuple[Floats, Floats]:
    ol, il, ir, outer = rectangle
    columns = {"ol": ol, "il": il, "ir": ir, "or": outer}
    ((low, high),) = query_boxes("rectangles", 1, False, {name: np.array([value]) for name, value in columns.items()})
    return low[0], high[0]


def met(zones: Zones, rectangle: Rectangle) -> set[int]:
    """By definition: a <= x1 < b and ol < x1 <= il have an x1 in common, c <= x2 < d and ir <= x2 < or an x2."""
    ol, il, ir, outer = rectangle
    (a, c), (b, d) = zones.low.T, zones.high.T
    return set(np.flatnonzero((a <= il) & (b > ol) & (c < outer) & (d > ir)).tolist())


@given(divisions(), rectangles())
def test_every_zone_that_meets_a_rectangle_gets_it_once(zones: Zones, rectangle: Rectangle) -> None:
    receivers = [receiver for _, receiver in flooded(zones, *box(rectangle))]
    assert len(receivers) == len(set(receivers))
    assert set(receivers) == met(zones, rectangle)


@given(divisions(), rectangles())
def test_a_rectangle_is_passed_on_between_neighbours_that_both_meet_it(zones: Zones, rectangle: Rectangle) -> None:
    reached = met(zones, rectangle)
    for sender, receiver in flooded(zones, *box(rectangle)):
        if sender != NOBODY:
            assert sender in reached
            assert neighbours(zones, sender, receiver)


@given(divisions(), rectangles())
def test_senders_form_a_tree_below_the_owner_of_the_inner_corner(zones: Zones, rectangle: Rectangle) -> None:
    sender_of = {receiver: sender for sender, receiver in flooded(zones, *box(rectangle))}
    _, il, ir, _ = rectangle
    (entry,) = locate(zones, np.array([(il, ir)])).tolist()
    assert [zone for zone, sender in sender_of.items() if sender == NOBODY] == [entry]
    for zone in sender_of:
        way = {zone}
        while (zone := sender_of[zone]) != NOBODY:
            assert zone not in way
            way.add(zone)
        assert entry in way


@given(divisions(), PLACES)
def test_a_plain_event_reaches_every_zone_that_may_hold_a_range_around_it(zones: Zones, x: float) -> None:
    reached = {receiver for _, receiver in flooded(zones, np.array([-np.inf, x]), np.array([x, np.inf]))}
    line = np.arange(-2.0, 9.0, 0.5)
    ranges = np.array([(low, high) for low in line for high in line if low <= x <= high])
    assert set(locate(zones, ranges).tolist()) <= reached
    assert reached == met(zones, (-np.inf, x, x, np.inf))


def test_an_empty_box_reaches_nobody() -> None:
    zones = balanced_zones(np.empty((0, 2)), np.arange(4))
    assert flooded(zones, np.array([1.0, 0.0]), np.array([0.0, 1.0])) == []


@given(divisions(), st.data())
def test_greedy_routing_goes_from_neighbour_to_neighbour_to_the_owner(zones: Zones, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, zones.brokers - 1))
    point = np.array([data.draw(PLACES), data.draw(PLACES)])
    hops = approached(zones, start, point)
    way = [start, *(receiver for _, receiver in hops)]
    assert [sender for sender, _ in hops] == way[:-1]
    assert way[-1] == locate(zones, point[None])[0]
    assert len(way) == len(set(way))
    assert all(neighbours(zones, *hop) for hop in hops)


def test_greedy_routing_takes_the_neighbour_that_is_nearer_to_the_target() -> None:
    #   x2 |   1   |   3        cut at x1 = 10, left of it at x2 = 2, right of it at x2 = 5
    #    5 |       |-----
    #    2 |-------|   2
    #      |   0   |
    #      +------10----- x1
    inf = np.inf
    zones = Zones(
        np.array([0, 1, 1, 0, 0, 0, 0], np.int8),
        np.array([10.0, 2.0, 5.0, 0.0, 0.0, 0.0, 0.0]),
        np.array([1, 3, 5, -1, -1, -1, -1], np.int32),
        np.array([2, 4, 6, -1, -1, -1, -1], np.int32),
        np.array([-1, -1, -1, 0, 1, 2, 3], np.int32),
        np.array([(-inf, -inf), (-inf, 2.0), (10.0, -inf), (10.0, 5.0)]),
        np.array([(10.0, 2.0), (10.0, inf), (inf, 5.0), (inf, inf)]),
    )
    zones.check()
    assert approached(zones, 0, np.array([20.0, 8.0])) == [(0, 2), (2, 3)]
    assert approached(zones, 0, np.array([11.0, 30.0])) == [(0, 1), (1, 3)]
    assert approached(zones, 3, np.array([9.0, 1.0])) == [(3, 1), (1, 0)]


def test_a_rectangle_of_many_zones_outgrows_the_first_buffers_and_is_still_complete() -> None:
    ranges = Workload(1).ranges(5_000)
    zones = balanced_zones(np.column_stack((ranges.low, ranges.high)), np.arange(1_000))
    pairs = flooded(zones, np.array([-np.inf, 5_000.0]), np.array([5_000.0, np.inf]))
    assert {receiver for _, receiver in pairs} == met(zones, (-np.inf, 5_000.0, 5_000.0, np.inf))
    assert len(pairs) > 200


def test_greedy_routing_through_a_thousand_zones_takes_tens_of_hops_not_hundreds() -> None:
    ranges = Workload(1).ranges(20_000)
    zones = balanced_zones(np.column_stack((ranges.low, ranges.high)), np.arange(1_000))
    hops = [len(approached(zones, start, np.array([x, x]))) for start in (0, 500, 999) for x in (1e3, 5e3, 9e3)]
    assert 5 < np.mean(hops) < 3 * np.sqrt(1_000)

"""Unions of ranges by broker, and looking up x in them in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.compiled import kernel
from hullcast.sim.traffic.relaxed import Reach, reach_of, reaches

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats, Ints

RANGES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6), st.integers(0, 3)), max_size=30)


@kernel
def look_up(reach: Reach, brokers: Ints, x: Floats) -> Ints:
    """`reaches` is a part of kernels; Python asks through this one."""
    hints, found = reach.starts.copy(), np.zeros(len(x), np.int64)
    for i in range(len(x)):
        found[i] = reaches(reach, brokers[i], x[i], hints)
    return found


@given(ranges=RANGES, asked=st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 56)), min_size=1, max_size=60))
def test_a_broker_is_reached_where_one_of_its_ranges_holds_x_whatever_the_order(
    ranges: list[tuple[int, int, int]], asked: list[tuple[int, int]]
) -> None:
    low = np.array([low for low, _, _ in ranges], np.float64)
    high = low + [length for _, length, _ in ranges]
    gateways = np.array([gateway for _, _, gateway in ranges], np.int32)
    brokers, x = np.array([broker for broker, _ in asked]), np.array([place / 2 for _, place in asked])
    expected = [
        bool(((gateways == broker) & (low <= x) & (x <= high)).any()) for broker, x in zip(brokers, x, strict=True)
    ]
    assert look_up(reach_of(low, high, gateways, 4), brokers, x).astype(bool).tolist() == expected


@given(ranges=RANGES)
def test_intervals_are_disjoint_and_rise(ranges: list[tuple[int, int, int]]) -> None:
    low = np.array([low for low, _, _ in ranges], np.float64)
    high = low + [length for _, length, _ in ranges]
    reach = reach_of(low, high, np.array([gateway for _, _, gateway in ranges], np.int32), 4)
    for broker in range(4):
        mine = slice(reach.starts[broker], reach.starts[broker + 1])
        assert (reach.high[mine][:-1] < reach.low[mine][1:]).all()
    assert reach.starts[-1] == len(reach.low)

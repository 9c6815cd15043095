"""A tiny network and trace where every byte is counted by hand.

    node 0 --L0-- node 1 --L1-- node 2        broker 0, the server, sits at node 0
                    |             |           broker 1 at node 2
                   L2            L3           broker 2 at node 3
                    |             |           broker 3 at node 5
                  node 3 --L4-- node 4 --L5-- node 5        every link has latency 1, but L4 has 1.5

    paths    0-1  L0 L1        0-2  L0 L2        0-3  L0 L1 L3 L5 (4; by way of L2 L4 it would be 4.5)
             1-3  L3 L5        2-3  L4 L5

    tree     0 -+- 1 --- 3         CAN   x2 |  broker 3  |  broker 2
                '- 2                        |            +-- 65 -----
                                            +-- 50 ------+  broker 0
                                            |  broker 1  |
                                            +-----------15----------- x1

    subscriptions        answer at first     lives in the tree at     in the CAN at (by zone)
    s0  [10, 30]         5                   1                        1
    s1  [20, 60]         3                   3                        0, the server itself
    s2  [50, 90]         3                   2                        2
    s3  [ 5, 95]         3                   3                        3

    rows at first        A (25, 5)   B (55, 3)

Bytes of frames: a header is array(4) 1, version 1, "data" 5, two numbers 5 + 5: 17. A Deliver begins with array(3) 1,
"deliver" 8, through 5, channels 1, array 1, channel 1: 17.
    rectangles  34 + seqs 2 + 8 k + numbers 2 + 40 k             =  38 + 48 k:  86 for one, 134 for two
    unicast     34 + seqs 2 + 8 k + numbers 2 + 16 k             =  38 + 24 k:  62 for one,  86 for two
    row         34 + map 1 + names 62 + 6 x 14 + 3 x 7 (truths)  = 202
"""

from __future__ import annotations

import numpy as np
import pytest

from hullcast.sim.overlay.placement import Placement
from hullcast.sim.overlay.tree import BrokerTree
from hullcast.sim.overlay.zones import Zones
from hullcast.sim.topology.graph import Topology
from hullcast.sim.topology.paths import Routes, routes
from hullcast.sim.traffic.chunk import APPROACHES, replay_chunk
from hullcast.sim.traffic.rectangles import StartRows
from hullcast.sim.traffic.tally import METRICS
from hullcast.sim.traffic.world import World
from tests.sim.traffic.worlds import NOWHERE, Change, events_of

A, B, C, D = 0, 1, 2, 3
STATE = StartRows(np.array([A, B]), np.array([25.0, 55.0]), np.array([5.0, 3.0]))
LOW, HIGH = np.array([10.0, 20.0, 50.0, 5.0]), np.array([30.0, 60.0, 90.0, 95.0])
CHANGES: list[Change] = [
    (A, (25.0, 4.0)),  # falls
    (B, (55.0, 6.0)),  # rises, and uncovers A
    (C, (55.0, 9.0)),  # comes behind B
    (A, (70.0, 4.0)),  # moves
    (B, NOWHERE),  # goes
    (D, NOWHERE),  # was never there
]
NOTHING = (0, 0, 0, 0, 0)


def ways() -> Routes:
    source, target = np.array([0, 1, 1, 2, 3, 4]), np.array([1, 2, 3, 4, 4, 5])
    latency = np.array([1.0, 1.0, 1.0, 1.0, 1.5, 1.0])
    return routes(Topology("by hand", np.arange(6.0), np.zeros(6), source, target, latency), np.array([0, 2, 3, 5]))


def costs(placement: Placement, gateways: list[int]) -> list[dict[str, tuple[int, ...]]]:
    """By event: approach to metrics."""
    world = World.of(LOW, HIGH, [(placement, np.array(gateways, np.int32))])
    columns = replay_chunk(STATE, events_of(CHANGES), world)
    rows = zip(*(columns[name].tolist() for name in METRICS), strict=True)
    metrics = list(rows)
    each = len(APPROACHES)
    assert columns["rectangles"][::each].tolist() == [1, 2, 0, 3, 1, 0]
    assert columns["affected"][::each].tolist() == [1, 3, 0, 3, 1, 0]
    return [dict(zip(APPROACHES, metrics[at : at + each], strict=True)) for at in range(0, len(metrics), each)]


def test_the_paths_are_those_of_the_picture() -> None:
    found = ways()
    links = {pair: found.path(*pair).tolist() for pair in ((0, 1), (0, 2), (0, 3), (1, 3), (2, 3))}
    assert links == {(0, 1): [0, 1], (0, 2): [0, 2], (0, 3): [0, 1, 3, 5], (1, 3): [3, 5], (2, 3): [4, 5]}


TREE = [
    # A falls to 4. Mar(25, 4) = (-inf, 55), for B is lower: x1 <= 25 <= x2 < 55 is s0 at broker 1.
    {
        "S-CN": (1, 86, 2 * 86, 1, 1),  # 0-1
        "S-UN": (1, 62, 2 * 62, 1, 1),
        "S-UN aggregated": (1, 62, 2 * 62, 1, 1),
        "CN": (2, 404, 4 * 202, 1, 1),  # 25 is in s0, s1, s3, at brokers 1 and 3: 0-1, 1-3
    },
    # B rises to 6. Peak B itself: 25 < x1 <= 55 <= x2 is s2 at 2. Then A: x1 <= 25 and 55 <= x2 are s1 and s3 at 3.
    {
        "S-CN": (3, 3 * 86, 6 * 86, 2, 2),  # 0-2 with the first; 0-1, 1-3 with the second; two frames leave by L0
        "S-UN": (3, 3 * 62, (2 + 4 + 4) * 62, 3, 3),
        "S-UN aggregated": (2, 62 + 86, 2 * 62 + 4 * 86, 2, 2),  # broker 3 has two answers in one frame
        "CN": (3, 3 * 202, 6 * 202, 2, 2),  # 55 is in s1, s2, s3: 0-1, 1-3, 0-2
    },
    # C comes at B's place, above it: nobody's minimum. CN sends it all the same.
    {"S-CN": NOTHING, "S-UN": NOTHING, "S-UN aggregated": NOTHING, "CN": (3, 3 * 202, 6 * 202, 2, 2)},
    # A moves from 25 to 70, still 4. There: 25 < x1 <= 70 <= x2 is s2 at 2. Here nobody is left: x1 <= 25 <= x2 < 55 is
    # s0 at 1; and B is uncovered: x1 <= 25, 55 <= x2 < 70 is s1 at 3. s3 holds both places and hears nothing.
    {
        "S-CN": (3, 86 + 134 + 86, 2 * 86 + 2 * 134 + 2 * 86, 2, 2),  # 0-2; 0-1 with two rectangles; 1-3 with one
        "S-UN": (3, 3 * 62, (2 + 2 + 4) * 62, 3, 3),
        "S-UN aggregated": (3, 3 * 62, (2 + 2 + 4) * 62, 3, 3),
        "CN": (3, 3 * 202, 6 * 202, 2, 2),  # 25 is in s0, s1, s3; 70 in s2, s3: 0-1, 1-3, 0-2, each once
    },
    # B goes. C at 9 is uncovered as far as A at 70: x1 <= 55 <= x2 < 70 is s1 at 3.
    {
        "S-CN": (2, 2 * 86, 4 * 86, 1, 1),  # 0-1, 1-3
        "S-UN": (1, 62, 4 * 62, 1, 1),
        "S-UN aggregated": (1, 62, 4 * 62, 1, 1),
        "CN": (3, 3 * 202, 6 * 202, 2, 2),
    },
    dict.fromkeys(APPROACHES, NOTHING),
]


@pytest.mark.parametrize("event", range(len(CHANGES)))
def test_every_byte_in_a_tree(event: int) -> None:
    tree = BrokerTree(np.array([-1, 0, 0, 1], np.int32), np.array([0, 1, 2, 3], np.int32))
    assert costs(Placement("tree-random", ways(), tree, None), [1, 3, 2, 3])[event] == TREE[event]


CAN = [
    # x1 <= 25, 25 <= x2 < 55 enters at (25, 25), the server's own zone, and meets the zones of 1 and 3: both lie left
    # of 15 and get it from the owners of (15, 25) and (15, 50), both times the server.
    {
        "S-CN": (2, 2 * 86, (2 + 4) * 86, 2, 2),  # 0-1, 0-3
        "S-UN": (1, 62, 2 * 62, 1, 1),  # s0 at 1
        "S-UN aggregated": (1, 62, 2 * 62, 1, 1),
        "CN": (3, 3 * 202, (2 + 4 + 2) * 202, 3, 3),  # x1 <= 25 <= x2 meets all four zones, each from the server
    },
    # 25 < x1 <= 55 <= x2 enters at the server, and goes up to 2. x1 <= 25, 55 <= x2 enters there too: to 2 and 3.
    {
        "S-CN": (2, 134 + 86, 2 * 134 + 4 * 86, 2, 2),  # 0-2 with both, 0-3
        "S-UN": (2, 2 * 62, (2 + 4) * 62, 2, 2),  # s2 at 2, s3 at 3; s1 is at the server: nothing moves
        "S-UN aggregated": (2, 2 * 62, (2 + 4) * 62, 2, 2),
        "CN": (2, 2 * 202, (4 + 2) * 202, 2, 2),  # x1 <= 55 <= x2 is beyond broker 1: 0-3, 0-2
    },
    {"S-CN": NOTHING, "S-UN": NOTHING, "S-UN aggregated": NOTHING, "CN": (2, 2 * 202, (4 + 2) * 202, 2, 2)},
    # 25 < x1 <= 70 <= x2 enters at (70, 70), broker 2, and meets no other zone. x1 <= 25 <= x2 < 55 goes from the
    # server to 1 and 3; x1 <= 25, 55 <= x2 < 70 to 3 and 2.
    {
        "S-CN": (3, 134 + 86 + 134, 2 * 134 + 2 * 86 + 4 * 134, 3, 3),  # 0-2 with two, 0-1, 0-3 with two
        "S-UN": (2, 2 * 62, (2 + 2) * 62, 2, 2),  # s2 at 2, s0 at 1
        "S-UN aggregated": (2, 2 * 62, (2 + 2) * 62, 2, 2),
        # From (25, 25), the server: 0-1, 0-3, 0-2. From (70, 70), broker 2: to 3, from the owner of (15, 70), 2 itself.
        "CN": (4, 4 * 202, (2 + 4 + 2 + 2) * 202, 3, 3),
    },
    # x1 <= 55 <= x2 < 70: from the server to 3 and 2. Only s1 is affected, at the server.
    {
        "S-CN": (2, 2 * 86, (4 + 2) * 86, 2, 2),
        "S-UN": NOTHING,
        "S-UN aggregated": NOTHING,
        "CN": (2, 2 * 202, (4 + 2) * 202, 2, 2),
    },
    dict.fromkeys(APPROACHES, NOTHING),
]


@pytest.mark.parametrize("event", range(len(CHANGES)))
def test_every_byte_in_a_can(event: int) -> None:
    inf = np.inf
    zones = Zones(
        dimension=np.array([0, 1, 1, 0, 0, 0, 0], np.int8),
        value=np.array([15.0, 50.0, 65.0, 0.0, 0.0, 0.0, 0.0]),
        left=np.array([1, 3, 5, -1, -1, -1, -1], np.int32),
        right=np.array([2, 4, 6, -1, -1, -1, -1], np.int32),
        owner=np.array([-1, -1, -1, 1, 3, 0, 2], np.int32),
        low=np.array([[15.0, -inf], [-inf, -inf], [15.0, 65.0], [-inf, 50.0]]),
        high=np.array([[inf, 65.0], [15.0, 50.0], [inf, inf], [15.0, inf]]),
    )
    zones.check()
    placement = Placement("can", ways(), None, zones)
    gateways = placement.gateways(np.stack((LOW, HIGH), axis=1)).tolist()
    assert gateways == [1, 0, 2, 3]
    assert costs(placement, gateways)[event] == CAN[event]

"""With a server: which broker sends a frame to which, in S-UN and in S-CN.

S-UN       the server sends each affected subscription its own frame, or each gateway one for all that live there
S-CN, tree each rectangle goes down to where an affected subscription lives, as real nodes route it
S-CN, CAN  each rectangle enters at the owner of its inner corner and floods the zones it meets
"""

from __future__ import annotations

import numpy as np

from hullcast.network.compiled import kernel
from hullcast.network.matching.duality import rectangle_box
from hullcast.network.wire.arrays import Ints, Narrow
from hullcast.sim.overlay.can import NOBODY, STACK, approach, flood
from hullcast.sim.overlay.zones import Zones
from hullcast.sim.traffic.audience import Heard
from hullcast.sim.traffic.rectangles import Rectangles
from hullcast.sim.traffic.sizes import size_of
from hullcast.sim.traffic.tally import Tally, add, begin, note

SERVER = 0  # broker 0, the root of the tree


@kernel
def unicast(tally: Tally, starts: Ints, heard: Heard, sizes: Ints, single: Ints, aggregated: Ints, first: int) -> None:
    """Both ways, for events whose rectangles are heard[starts[e] : starts[e + 1]], into rows `first` .. of the outs.

    Frames go straight from the server to the gateway. Rectangles of one event do not overlap, so a subscription is in
    one of them at most and gets one frame.
    """
    rows = np.zeros(len(tally.leaving), np.int64)
    for event in range(len(starts) - 1):
        low, high = heard.starts[starts[event]], heard.starts[starts[event + 1]]
        begin(tally)
        for i in range(low, high):
            add(tally, SERVER, heard.gateway[i], heard.told[i], sizes[1])
            rows[heard.gateway[i]] += heard.told[i]
        note(tally, single, first + event)
        begin(tally)
        for i in range(low, high):
            gateway = heard.gateway[i]
            if rows[gateway] > 0:
                add(tally, SERVER, gateway, 1, size_of(sizes, rows[gateway]))
                rows[gateway] = 0
        note(tally, aggregated, first + event)


@kernel
def down_the_tree(tally: Tally, starts: Ints, heard: Heard, parent: Narrow, sizes: Ints, out: Ints, first: int) -> None:
    """The frame from a parent to a child holds the rectangles with an affected gateway at or below the child.

    Events as in `unicast`. For each gateway the walk goes up only as far as this rectangle has not been yet.
    """
    brokers = len(parent)
    rows = np.zeros(brokers, np.int64)  # of the frame to each child
    passed = np.full(brokers, -1, np.int64)  # the last rectangle that went there
    touched = np.empty(brokers, np.int64)
    for event in range(len(starts) - 1):
        used = 0
        for rectangle in range(starts[event], starts[event + 1]):
            for i in range(heard.starts[rectangle], heard.starts[rectangle + 1]):
                child = heard.gateway[i]
                while child != SERVER and passed[child] != rectangle:
                    passed[child] = rectangle
                    if rows[child] == 0:
                        touched[used] = child
                        used += 1
                    rows[child] += 1
                    child = parent[child]
        begin(tally)
        for i in range(used):
            child = touched[i]
            add(tally, parent[child], child, 1, size_of(sizes, rows[child]))
            rows[child] = 0
        note(tally, out, first + event)


@kernel
def over_the_zones(tally: Tally, rectangles: Rectangles, zones: Zones, greedy: bool, sizes: Ints, out: Ints) -> None:
    """One frame for each pair of brokers, with all rectangles of the event that one passes to the other.

    The server sends to the entry at once, or (`greedy`) by way of neighbours; nothing if it is the entry itself.
    """
    brokers = len(zones.low)
    rows = np.zeros(brokers * brokers, np.int32)  # of the frame of each pair
    touched = np.empty(brokers * brokers, np.int32)
    low, high, stack = np.empty(2), np.empty(2), np.empty(STACK, np.int64)
    senders, receivers = np.empty(brokers, np.int64), np.empty(brokers, np.int64)
    for event in range(len(rectangles.starts) - 1):
        pairs = 0
        for i in range(rectangles.starts[event], rectangles.starts[event + 1]):
            corner_1, corner_2 = rectangles.inner_l[i], rectangles.inner_r[i]
            rectangle_box(low, high, corner_1, corner_2, rectangles.outer_l[i], rectangles.outer_r[i])
            senders, receivers, used = flood(zones, low[0], high[0], low[1], high[1], senders, receivers, 0, stack)
            if greedy:
                senders, receivers, used = approach(zones, SERVER, corner_1, corner_2, senders, receivers, used)
            # No pair comes twice: the way in leads towards the corner, the flood away from it, to each zone once.
            for k in range(used):
                sender = senders[k]
                if sender == NOBODY:
                    if greedy:
                        continue
                    sender = SERVER
                pair = sender * brokers + receivers[k]
                if rows[pair] == 0:
                    touched[pairs] = pair
                    pairs += 1
                rows[pair] += 1
        begin(tally)
        for k in range(pairs):
            pair = touched[k]
            add(tally, pair // brokers, pair % brokers, 1, size_of(sizes, rows[pair]))
            rows[pair] = 0
        note(tally, out, event)

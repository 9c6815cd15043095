"""S-CN in a CAN: each rectangle enters at the owner of its inner corner and floods the zones it meets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.compiled import kernel
from hullcast.network.matching.duality import rectangle_box
from hullcast.sim.overlay.can import NOBODY, STACK, approach, flood
from hullcast.sim.traffic.sizes import size_of
from hullcast.sim.traffic.tally import Tally, add, begin, note

if TYPE_CHECKING:
    from hullcast.sim.overlay.zones import Zones
    from hullcast.sim.traffic.audience import Ints
    from hullcast.sim.traffic.rectangles import Rectangles

SERVER = 0


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

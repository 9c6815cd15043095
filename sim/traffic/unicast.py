"""S-UN: the server sends each affected subscription its own frame, or each gateway one for all that live there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.compiled import kernel
from hullcast.sim.traffic.sizes import size_of
from hullcast.sim.traffic.tally import Tally, add, begin, note

if TYPE_CHECKING:
    from hullcast.sim.traffic.audience import Heard, Ints

SERVER = 0


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

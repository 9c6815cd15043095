"""Counting what one event costs: frames, bytes, and how they press on brokers and physical links.

    begin(tally)                                     a new event: nothing has moved
    add(tally, sender, receiver, copies, size)       `copies` frames of `size` bytes go from one broker to another
    note(tally, out, row)                            what it came to

A frame travels the path of least latency between the two brokers' nodes. Brokers and links keep the number of the event
that last used them beside their count, so that a new event costs nothing for those it does not touch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hullcast.network.compiled import part
from hullcast.network.wire.arrays import Ints, Narrow
from hullcast.sim.topology.paths import Routes

#: What is told of an event, in this order.
METRICS = ("messages", "bytes", "byte_links", "node_stress", "link_stress")
MESSAGES, BYTES, BYTE_LINKS, NODE_STRESS, LINK_STRESS = 0, 1, 2, 3, 4
#: The entry of `now` behind the metrics: the number of the event.
EVENT = 5

#: Columns of `leaving` and `crossing`.
WHEN, FRAMES = 0, 1


class Tally(NamedTuple):
    """The arrays of the count, as kernels take them; `starts` and `links` are those of Routes."""

    starts: Ints
    links: Narrow
    leaving: Ints  # (b, 2): the last event in which frames left a broker, and how many
    crossing: Ints  # (m, 2): the last event in which frames crossed a physical link, and how many
    now: Ints  # (6,): the metrics of this event so far, and its number


def tally_of(routes: Routes) -> Tally:
    """An empty count over these paths."""
    links = int(routes.links.max()) + 1 if len(routes.links) else 0
    return Tally(
        np.require(routes.starts, np.int64, ["C", "A", "W"]),
        np.require(routes.links, np.int32, ["C", "A", "W"]),
        leaving=np.zeros((len(routes.nodes), 2), np.int64),
        crossing=np.zeros((links, 2), np.int64),
        now=np.zeros(len(METRICS) + 1, np.int64),
    )


@part
def begin(tally: Tally) -> None:
    """A new event."""
    now = tally.now
    for i in range(EVENT):
        now[i] = 0
    now[EVENT] += 1


@part
def add(tally: Tally, sender: int, receiver: int, copies: int, size: int) -> None:
    """So many frames of that size from one broker to another; what a broker has for itself moves nothing."""
    if sender == receiver:
        return
    now, leaving, crossing = tally.now, tally.leaving, tally.crossing
    event, pair = now[EVENT], sender * len(leaving) + receiver
    first, end = tally.starts[pair], tally.starts[pair + 1]
    now[MESSAGES] += copies
    now[BYTES] += copies * size
    now[BYTE_LINKS] += copies * size * (end - first)
    if leaving[sender, WHEN] != event:
        leaving[sender, WHEN], leaving[sender, FRAMES] = event, 0
    leaving[sender, FRAMES] += copies
    now[NODE_STRESS] = max(now[NODE_STRESS], leaving[sender, FRAMES])
    most = now[LINK_STRESS]
    for i in range(first, end):
        link = tally.links[i]
        if crossing[link, WHEN] != event:
            crossing[link, WHEN], crossing[link, FRAMES] = event, 0
        crossing[link, FRAMES] += copies
        most = max(most, crossing[link, FRAMES])
    now[LINK_STRESS] = most


@part
def note(tally: Tally, out: Ints, row: int) -> None:
    """Write the metrics of this event into a row of `out` (n, 5)."""
    for i in range(EVENT):
        out[row, i] = tally.now[i]

"""Whom the rectangles of events concern: subscriptions, and by placement the gateways where they live.

Subscriptions are looked up once for all placements; counting them by gateway is what each placement does for itself.

    rectangle    0                 1         2
    ids          7  4  9  1  3  |  6  2  |  5         `concerned`
    at gateway   2  0  2  2  0     1  1     2
    heard at     2: 3,  0: 2    |  1: 2  |  2: 1      `by_gateway`
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hullcast.network.compiled import kernel
from hullcast.network.matching.duality import rectangle_box
from hullcast.network.matching.search import STACK, report
from hullcast.network.matching.tree import Tree
from hullcast.network.wire.arrays import Ints, Narrow
from hullcast.sim.traffic.rectangles import Rectangles

#: Subscriptions held at a time, but for an event that concerns more by itself: their numbers stay in the cache while
#: all placements count them.
ENOUGH = 1 << 16


class Heard(NamedTuple):
    """By rectangle, the gateways of those it concerns: `gateway[starts[i] : starts[i + 1]]`, each once."""

    starts: Ints
    gateway: Narrow
    told: Ints  # how many subscriptions it concerns there


@kernel
def concerned(tree: Tree, rectangles: Rectangles, first: int, enough: int, ids: Ints) -> tuple[int, Ints, Ints]:
    """The subscriptions of the rectangles of some events, from event `first` on: (event to go on with, starts, ids).

    Ends after the event that made it `enough`. Those of rectangle `rectangles.starts[first] + i` are ids[starts[i] :
    starts[i + 1]]. `ids` is room to write them, which is replaced if it is too small: hand in the last one again.
    """
    low, high, stack = np.empty(2), np.empty(2), np.empty(STACK, np.int64)
    used, event, begin = 0, first, rectangles.starts[first]
    starts = np.empty(len(rectangles.inner_l) - begin + 1, np.int64)
    starts[0] = 0
    while event < len(rectangles.starts) - 1 and used < enough:
        for i in range(rectangles.starts[event], rectangles.starts[event + 1]):
            rectangle_box(
                low, high, rectangles.inner_l[i], rectangles.inner_r[i], rectangles.outer_l[i], rectangles.outer_r[i]
            )
            ids, used = report(tree, low, high, ids, used, stack)
            starts[i - begin + 1] = used
        event += 1
    return event, starts[: rectangles.starts[event] - begin + 1].copy(), ids


@kernel
def by_gateway(starts: Ints, ids: Ints, gateways: Narrow, brokers: int) -> Heard:
    """Count the subscriptions of each rectangle by gateway."""
    most = 0
    for i in range(len(starts) - 1):
        most += min(brokers, starts[i + 1] - starts[i])
    ends, found, told = np.zeros(len(starts), np.int64), np.empty(most, np.int32), np.empty(most, np.int64)
    counts, used = np.zeros(brokers, np.int64), 0
    for i in range(len(starts) - 1):
        few = starts[i + 1] - starts[i] < brokers
        for k in range(starts[i], starts[i + 1]):
            counts[gateways[ids[k]]] += 1
        for k in range(starts[i], starts[i + 1]) if few else range(brokers):  # those counted, by the shorter way
            gateway = gateways[ids[k]] if few else np.int32(k)
            if counts[gateway] > 0:
                found[used], told[used] = gateway, counts[gateway]
                counts[gateway] = 0
                used += 1
        ends[i + 1] = used
    return Heard(ends, found[:used].copy(), told[:used].copy())

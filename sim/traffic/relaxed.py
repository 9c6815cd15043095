"""CN: no server decides; an event goes wherever a range holds the row's x, before or after.

Nothing but the two x matters, and of these only how they lie to the ends of ranges (in a tree) or zones (in a CAN):
the *breaks*. So each pair of positions among the breaks is paid for once a chunk, whatever the number of events.

    breaks          10        20        30
    position     0   1    2    3    4    5   6         odd: exactly there

A broker's *reach* is where on the x axis a change concerns somebody there: the union of its subscriptions' ranges.

    ranges at broker 3     [10---20]   [15--------40]            [50--60]
    its intervals          [10--------------------40]            [50--60]      closed, disjoint, rising
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.network.compiled import kernel, part
from hullcast.sim.overlay.can import NOBODY, STACK, flood
from hullcast.sim.traffic.tally import METRICS, Tally, add, begin, note, tally_of

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats, Ints, Narrow
    from hullcast.sim.overlay.zones import Zones
    from hullcast.sim.traffic.world import Populated


class Reach(NamedTuple):
    """Intervals by broker: those of broker b are low[starts[b] : starts[b + 1]], and high likewise."""

    starts: Ints  # (b + 1,)
    low: Floats
    high: Floats


def reach_of(low: Floats, high: Floats, gateways: Narrow, brokers: int) -> Reach:
    """The unions of the ranges that live at each broker. O(n log n)."""
    order = np.lexsort((low, gateways))
    return Reach(*_merged(low[order], high[order], gateways[order], brokers))


@kernel
def _merged(low: Floats, high: Floats, gateways: Narrow, brokers: int) -> tuple[Ints, Floats, Floats]:
    """Merge ranges that touch; they come by gateway, then by low."""
    starts, count = np.zeros(brokers + 1, np.int64), 0
    lows, highs = np.empty(len(low)), np.empty(len(low))
    for i in range(len(low)):
        if i > 0 and gateways[i] == gateways[i - 1] and low[i] <= highs[count - 1]:
            highs[count - 1] = max(highs[count - 1], high[i])
            continue
        lows[count], highs[count] = low[i], high[i]
        count += 1
        starts[gateways[i] + 1] = count
    for broker in range(brokers):
        starts[broker + 1] = max(starts[broker + 1], starts[broker])
    return starts, lows[:count].copy(), highs[:count].copy()


@part
def reaches(reach: Reach, broker: int, x: float, hints: Ints) -> bool:
    """Whether a subscription at that broker holds x.

    `hints[broker]` is the place of the first interval that does not end before the last x asked for, at first the
    broker's first. For rising x the next one is there or close by; else a search by halves finds it.
    """
    first, end, at = reach.starts[broker], reach.starts[broker + 1], hints[broker]
    if at > first and x <= reach.high[at - 1]:
        low, high = first, at
        while low < high:
            middle = (low + high) // 2
            if reach.high[middle] < x:
                low = middle + 1
            else:
                high = middle
        at = low
    while at < end and reach.high[at] < x:
        at += 1
    hints[broker] = at
    return bool(at < end and reach.low[at] <= x)


ROOT = 0


def relaxed(placed: Populated, old_x: Floats, new_x: Floats, size: int) -> Ints:
    """(n, 5): the metrics of each event that brings a row from old_x to new_x (NaN: not there)."""
    placement = placed.placement
    breaks = breaks_of(placed)
    # Who comes or goes is like one who stays; and there and back is the same.
    old, new = np.where(np.isnan(old_x), new_x, old_x), np.where(np.isnan(new_x), old_x, new_x)
    low, high = np.minimum(old, new), np.maximum(old, new)
    _, example, which = np.unique(
        positions(breaks, low) * (2 * len(breaks) + 1) + positions(breaks, high), return_index=True, return_inverse=True
    )
    costs = np.zeros((len(example), len(METRICS)), np.int64)
    tally = tally_of(placement.routes)
    if placement.tree is not None:
        down_to_ranges(tally, placement.tree.parent, placed.reach, low[example], high[example], size, costs)
    else:
        assert placement.zones is not None, "a placement is a tree or zones"
        over_quadrants(tally, placement.zones, low[example], high[example], size, costs)
    spread: Ints = costs[which.reshape(-1)]
    return spread


def breaks_of(placed: Populated) -> Floats:
    """All x at which the way of an event changes, rising, each once."""
    zones = placed.placement.zones
    if placed.placement.tree is not None or zones is None:
        return np.unique(np.concatenate((placed.reach.low, placed.reach.high)))
    return np.unique(np.concatenate((zones.low.reshape(-1), zones.high.reshape(-1))))


def positions(breaks: Floats, x: Floats) -> Ints:
    """Where each x lies among the breaks; NaN beyond all of them, where nobody is concerned either."""
    place: Ints = np.searchsorted(breaks, x, "left") + np.searchsorted(breaks, x, "right")
    return place


@kernel
def down_to_ranges(tally: Tally, parent: Narrow, reach: Reach, low: Floats, high: Floats, size: int, out: Ints) -> None:
    """From the root along the tree to every gateway whose ranges hold low or high, one frame an edge."""
    brokers = len(parent)
    passed = np.full(brokers, -1, np.int64)
    low_hints, high_hints = reach.starts.copy(), reach.starts.copy()
    for i in range(len(low)):
        begin(tally)
        for broker in range(brokers):
            held = reaches(reach, broker, low[i], low_hints)
            if not held and high[i] != low[i]:
                held = reaches(reach, broker, high[i], high_hints)
            child = broker
            while held and child != ROOT and passed[child] != i:
                passed[child] = i
                add(tally, parent[child], child, 1, size)
                child = parent[child]
        note(tally, out, i)


@kernel
def over_quadrants(tally: Tally, zones: Zones, low: Floats, high: Floats, size: int, out: Ints) -> None:
    """From the owner of (x, x) to all zones that meet x1 <= x <= x2, for both x; what two floods share goes once."""
    brokers = len(zones.low)
    stack, passed = np.empty(STACK, np.int64), np.full(brokers * brokers, -1, np.int32)
    senders, receivers = np.empty(brokers, np.int64), np.empty(brokers, np.int64)
    for i in range(len(low)):
        begin(tally)
        for x in (low[i], high[i]):
            senders, receivers, used = flood(zones, -np.inf, x, x, np.inf, senders, receivers, 0, stack)
            for k in range(used):
                if senders[k] != NOBODY:
                    pair = senders[k] * brokers + receivers[k]
                    if passed[pair] != i:
                        passed[pair] = i
                        add(tally, senders[k], receivers[k], 1, size)
        note(tally, out, i)

"""Where on the x axis a change concerns somebody at each broker: the union of its subscriptions' ranges.

ranges at broker 3     [10---20]   [15--------40]            [50--60]
its intervals          [10--------------------40]            [50--60]      closed, disjoint, rising
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hullcast.network.compiled import kernel, part

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Narrow = npt.NDArray[np.int32]


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
    broker's first. For rising x the next one is there or close by; else a search by halves finds it anew.
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

r"""Dividing the plane of subscriptions into zones of equal load, seen on a sample of subscriptions.

A region is cut in two where the sample says that both sides get their share, across the dimension in which the sample
is spread wider, until each broker has its zone. For a tree the shares are whole subtrees, so that all brokers of a
subtree together own one rectangle of the plane (and the broker at its top one zone of it, like any other):

         0            x2 |   3  :  4  |
        / \              |......:.....|   5          `-` and `|` divide the plane among 0 itself and the subtrees
       1   2             |      1     |.......       of 1 and 2, `.` and `:` the regions of these among their brokers
      / \   \            |------------|   2
     3   4   5           |      0     |
                         +------------+------- x1

Why the wider deviation. Overlay frames per event that has rectangles, for tree-content with a fanout of 32, 1,000
brokers of INET 20,000 and 500,000 subscriptions: 5,000 updates of Table 5.1 with 10,000 rows, and as many non-ignorable
price changes of 2,597 made-up stocks, with ranges over RECO to two decimals (Table 5.1 scaled to 1 .. 5):

    cut across                       Table 5.1   RECO
    the wider deviation                   2.04   7.32
    the wider range                       2.05   7.42
    x1 and x2 in turn                2.10-2.14   7.49-7.66
    x2 always                             4.60   26.6
    x1 always                             6.34   17.2
    what fewer rectangles cross           1.99   6.72     by the rectangles to come, which nobody knows beforehand

Zones should be about as wide as high: a rectangle has its inner corner at the diagonal and grows both ways from
there. Where among its subtrees a broker's own zone lies, and in what order they come, moves the figures by -4 % to
+9 %; none is better on both than taking them as they come.

Cuts lie between points of the sample, and x1 <= x2 in all of them: as long as there are enough, no zone lies wholly
below the diagonal, where no subscription can be.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from hullcast.network.wire.arrays import Floats, Ints
from hullcast.network.wire.errors import UsageError
from hullcast.sim.overlay.tree import BrokerTree
from hullcast.sim.overlay.zones import INNER, Zones

Bounds = tuple[float, float]

TIES = 0.1  # a cut across the wider dimension may miss its share by so much more than one across the other
LARGEST = float(np.finfo(np.float64).max)


class Share(NamedTuple):
    """A share of a region: of a broker alone, or of it and all below it."""

    broker: int
    weight: int  # brokers in it


class Region(NamedTuple):
    """A node of the k-d tree before it is divided."""

    node: int
    low: Bounds
    high: Bounds
    sample: Floats  # the points of the sample in it
    parts: list[Share]


class ZoneCut(NamedTuple):
    """Where a region is cut in two: points below `value` in `dimension` are left of it."""

    dimension: int
    value: float


def balanced_zones(sample: Floats, owners: Ints) -> Zones:
    """A CAN's zones: the plane halved again and again; the owners get theirs in the order given.

    Meghdoot's brokers join one by one, each halving the load of the one it finds most loaded; that comes to the same.
    """
    if not np.array_equal(np.sort(owners), np.arange(len(owners))):
        raise UsageError(f"owners of zones must be the brokers 0 .. {len(owners) - 1}, each once")
    return _divided(sample, [Share(int(owner), 1) for owner in owners], {})


def zones_along(tree: BrokerTree, sample: Floats) -> Zones:
    """Zones for content-assigned gateways of a tree: all below a broker, with it, owns one region.

    So a rectangle that lies in one region goes down one edge. Shares are proportional to the brokers in a subtree.
    """
    sizes = tree.sizes()
    below = {
        broker: [Share(broker, 1), *(Share(child, int(sizes[child])) for child in children)]
        for broker, children in enumerate(tree.children())
        if children
    }
    return _divided(sample, [Share(0, tree.brokers)], below)


def _divided(sample: Floats, parts: list[Share], below: dict[int, list[Share]]) -> Zones:
    """`below` says what a part that is more than one broker consists of."""
    points = np.ascontiguousarray(sample, np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise UsageError(f"a sample of subscriptions is an array (n, 2) of x1 and x2, got {points.shape}")
    if np.isnan(points).any():
        raise UsageError("the sample to divide the plane by holds NaN; every subscription needs two bounds")
    brokers = sum(part.weight for part in parts)
    if brokers < 1:
        raise UsageError("the plane needs at least one broker to be divided among")
    nodes = 2 * brokers - 1
    zones = Zones(
        np.zeros(nodes, np.int8),
        np.zeros(nodes),
        np.full(nodes, -1, np.int32),
        np.full(nodes, -1, np.int32),
        np.full(nodes, INNER, np.int32),
        np.empty((brokers, 2)),
        np.empty((brokers, 2)),
    )
    waiting = deque([Region(0, (-np.inf, -np.inf), (np.inf, np.inf), points, parts)])
    used = 1
    while waiting:
        region = waiting.popleft()
        while len(region.parts) == 1 and region.parts[0].weight > 1:
            region = region._replace(parts=below[region.parts[0].broker])
        if len(region.parts) == 1:
            owner = region.parts[0].broker
            zones.owner[region.node], zones.low[owner], zones.high[owner] = owner, region.low, region.high
            continue
        some, rest = _halved(region.parts)
        cut = _cut(region, _weight(some) / _weight(region.parts))
        zones.dimension[region.node], zones.value[region.node] = cut
        zones.left[region.node], zones.right[region.node] = used, used + 1
        waiting.extend(_sides(region, cut, used, some, rest))
        used += 2
    return zones


def _halved(parts: list[Share]) -> tuple[list[Share], list[Share]]:
    """The parts in two, none without any, as even as their order allows."""
    before = np.cumsum([part.weight for part in parts])[:-1]
    middle = 1 + int(np.argmin(np.abs(2 * before - _weight(parts))))
    return parts[:middle], parts[middle:]


def _weight(parts: list[Share]) -> int:
    return sum(part.weight for part in parts)


def _sides(region: Region, cut: ZoneCut, node: int, some: list[Share], rest: list[Share]) -> tuple[Region, Region]:
    left = region.sample[:, cut.dimension] < cut.value
    below, above = list(region.high), list(region.low)
    below[cut.dimension] = above[cut.dimension] = cut.value
    return (
        Region(node, region.low, (below[0], below[1]), region.sample[left], some),
        Region(node + 1, (above[0], above[1]), region.high, region.sample[~left], rest),
    )


def _cut(region: Region, share: float) -> ZoneCut:
    """Leaves about that share of the sample on the left; the dimension is the wider one, unless ties spoil it."""
    wider = _wider(region.sample)
    found = [(_quantile(region.sample[:, j], share), j) for j in (wider, 1 - wider)]
    cuts = [(miss, ZoneCut(j, value)) for (value, miss), j in found if value is not None]
    if not cuts:
        return _cut_without_sample(region)
    if len(cuts) == 2 and cuts[1][0] < cuts[0][0] - TIES:
        return cuts[1][1]
    return cuts[0][1]


def _wider(sample: Floats) -> int:
    """The dimension of the larger deviation; points at infinity say nothing about it."""
    finite = sample[np.isfinite(sample).all(axis=1)]
    return int(np.argmax(finite.std(axis=0))) if len(finite) else 0


def _quantile(values: Floats, share: float) -> tuple[float | None, float]:
    """A value with about that share of `values` below it and something on both sides, and by what share it misses.

    It lies halfway between two of them: equal values are never parted. None if all are equal.
    """
    ordered = np.sort(values)
    steps = 1 + np.flatnonzero(ordered[1:] > ordered[:-1])  # so many values would be below
    if not len(steps):
        return None, 1.0
    missed = np.abs(steps - share * len(values)) / len(values)
    best = int(np.argmin(missed))
    value = _between(float(ordered[steps[best] - 1]), float(ordered[steps[best]]))
    return (value, float(missed[best])) if value < np.inf else (None, 1.0)


def _between(lower: float, upper: float) -> float:
    """Some value v with lower < v <= upper, halfway where there is a half, and finite if one is."""
    if lower == -np.inf:
        return max(-LARGEST, min(0.0, upper - max(1.0, abs(upper)))) if upper < np.inf else 0.0
    if upper == np.inf:
        value = min(LARGEST, max(0.0, lower + max(1.0, abs(lower))))
        return value if lower < value else upper
    middle = lower / 2 + upper / 2
    return middle if lower < middle <= upper else upper


def _cut_without_sample(region: Region) -> ZoneCut:
    """The sample says nothing here (no point, or all equal): cut the region itself, anywhere inside."""
    for dimension in (0, 1):
        value = _between(region.low[dimension], region.high[dimension])
        if region.low[dimension] < value < region.high[dimension]:
            return ZoneCut(dimension, value)
    zone = f"{region.low} .. {region.high}"
    raise UsageError(f"zone {zone} is too small for {_weight(region.parts)} brokers; give a coarser sample")

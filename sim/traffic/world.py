"""The world that events meet: subscriptions, where they live in each placement, and what frames weigh.

All of it is arrays, shared between placements where it is the same, so that it pickles well: Spark sends it to its
workers once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hullcast.network.matching.index import PointIndex
from hullcast.network.matching.tree import Tree
from hullcast.network.wire.arrays import Floats, Ints, Narrow
from hullcast.network.wire.errors import UsageError
from hullcast.sim.overlay.placement import Placement
from hullcast.sim.traffic.rectangles import real
from hullcast.sim.traffic.relaxed import Reach, reach_of
from hullcast.sim.traffic.sizes import WireSizes, wire_sizes


@dataclass(frozen=True, slots=True, eq=False)
class Populated:
    """A placement with the subscriptions that live in it."""

    placement: Placement
    gateways: Narrow  # (subscriptions,) the broker where each lives, by the index's numbers
    reach: Reach  # by broker, where on the x axis a change concerns anybody there

    @property
    def brokers(self) -> int:
        """How many."""
        return len(self.placement.routes.nodes)


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Everything a chunk of events needs beside the rows it starts from."""

    subscriptions: Tree  # an index of the points (low, high), which it numbers in the order in which they lie in it
    placements: tuple[Populated, ...]
    sizes: WireSizes

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the placements, in the order in which results number them."""
        return tuple(placed.placement.label for placed in self.placements)

    @staticmethod
    def of(
        low: Floats,
        high: Floats,
        placements: Sequence[tuple[Placement, Narrow]],
        sizes: WireSizes | None = None,
    ) -> World:
        """Subscriptions `low <= X <= high`, and for each placement the gateway of every one of them.

        The sizes of frames are measured from the wire format unless given.
        """
        low, high = real(low), real(high)
        if low.shape != high.shape or low.ndim != 1:
            raise UsageError(f"ranges need as many lows as highs, got shapes {low.shape} and {high.shape}")
        if not (low <= high).all():
            bad = int(np.flatnonzero(~(low <= high))[0])
            raise UsageError(f"range {bad} is from {low[bad]} to {high[bad]}; its low must not exceed its high")
        index, order = _index(np.stack((low, high), axis=1))
        placed = []
        for placement, gateways in placements:
            brokers, gateways = len(placement.routes.nodes), np.require(gateways, np.int32, ["C", "A", "W"])
            if gateways.shape != low.shape:
                raise UsageError(f"{placement.name}: {len(gateways)} gateways for {len(low)} subscriptions")
            if len(gateways) and not (gateways.min() >= 0 and gateways.max() < brokers):
                raise UsageError(f"{placement.name}: gateways must be brokers 0 to {brokers - 1}")
            placed.append(Populated(placement, gateways[order], reach_of(low, high, gateways, brokers)))
        return World(index, tuple(placed), sizes or wire_sizes())


def _index(points: Floats) -> tuple[Tree, Ints]:
    """An index of the points, and the order in which they lie in it; number i there is points[order[i]].

    A search meets points in about that order, and what is then looked up by number lies side by side.
    """
    numbers, draft, index = np.arange(len(points)), PointIndex(2), PointIndex(2)
    draft.insert(numbers, points)
    order: Ints = np.argsort(draft.arrays.place_of[: len(points)])
    index.insert(numbers, points[order])
    return index.arrays, order

r"""The plane of subscriptions (x1, x2) divided among brokers: each point belongs to one zone.

A subscription [x1, x2] is a point, and the zones are the leaves of a k-d tree (`division` makes it):

      x2 |        :                        value  dimension
         |   3    :    2                     40   0 (x1)          point goes left iff its coordinate < value
      70 |........:                         /  \
         |   1    :.........  60          70    60   1 (x2)
         |        :    0                 /  \   /  \
         +--------+--------- x1         1    3 0    2             owners
                 40

Invariants (`check` tests them; so do the property tests after every division):
  Z1  Each broker owns one leaf, and its zone is low <= p < high with infinite bounds at the rim of the plane.
  Z2  No zone is empty: low < high in both dimensions.
  Z3  The zones tile the plane: `locate` gives the one whose zone contains the point. (A coordinate of +inf, the open
      end of `X >= ?`, goes to the last zone of its row, as if that contained its rim.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hullcast.network.compiled import kernel, part
from hullcast.network.wire.arrays import Floats, Narrow

INNER = -1  # owner of an inner node


class Zones(NamedTuple):
    """The arrays of the division, as kernels take them: k-d tree nodes (the root is 0), and the zones by broker."""

    dimension: npt.NDArray[np.int8]  # (2 b - 1,) 0: x1, 1: x2
    value: Floats  # (2 b - 1,)
    left: Narrow  # (2 b - 1,) -1 in leaves
    right: Narrow
    owner: Narrow  # (2 b - 1,) INNER but in leaves
    low: Floats  # (b, 2)
    high: Floats  # (b, 2)

    @property
    def brokers(self) -> int:
        """How many."""
        return len(self.low)

    def check(self) -> None:
        """Raise AssertionError if an invariant does not hold."""
        leaves = self.owner != INNER
        assert np.array_equal(np.sort(self.owner[leaves]), np.arange(self.brokers)), "Z1"
        assert (self.low < self.high).all(), "Z2"
        bounds = {0: ((-np.inf, -np.inf), (np.inf, np.inf))}
        for node in range(len(self.owner)):  # children come after their parents
            (low, high), owner, j = bounds.pop(node), self.owner[node], int(self.dimension[node])
            if owner != INNER:
                assert (tuple(self.low[owner]), tuple(self.high[owner])) == (low, high), "Z3"
                continue
            cut = float(self.value[node])
            below, above = list(high), list(low)
            below[j] = above[j] = cut
            bounds[int(self.left[node])] = (low, (below[0], below[1]))
            bounds[int(self.right[node])] = ((above[0], above[1]), high)
        assert not bounds, "Z3"


@part
def locate_one(zones: Zones, x1: float, x2: float) -> int:
    """The owner of a point. O(height of the tree)."""
    node = 0
    while zones.left[node] >= 0:
        coordinate = x1 if zones.dimension[node] == 0 else x2
        node = zones.left[node] if coordinate < zones.value[node] else zones.right[node]
    owner: int = zones.owner[node]
    return owner


@kernel
def _locate(zones: Zones, points: Floats) -> Narrow:
    owners = np.empty(len(points), np.int32)
    for i in range(len(points)):
        owners[i] = locate_one(zones, points[i, 0], points[i, 1])
    return owners


def locate(zones: Zones, points: Floats) -> Narrow:
    """The owner of each point (n, 2)."""
    return _locate(zones, np.require(points, np.float64, ["C", "A", "W"]))

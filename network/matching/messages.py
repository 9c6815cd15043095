"""From the columns of messages to the boxes that find the points they concern.

The columns are those that travel (network/wire/PROTOCOL.md); `duality` has the pictures. Nodes and clients ask the
same boxes, nodes of whole neighbours and clients of their own subscriptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from hullcast.network.matching.duality import NO_PARTITIONS, around_points, rectangle_boxes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hullcast.network.wire.arrays import Booleans, Floats

    BoxBounds = tuple[Floats, Floats]  # lows and highs (n, k), all bounds inclusive

RECTANGLES, PLACES, POINTS = "rectangles", "places", "points"
SIDES = ("old", "new")
#: The column of tuples that says which of them are none: tuples are missing there.
GAP = "gap"


def dimensions_of(form: str, coordinates: int, *, partitioned: bool) -> int:
    """How many range columns a channel has whose points have so many coordinates (`box_points` the other way)."""
    return 1 if form == RECTANGLES else (coordinates - partitioned) // 2


def unreachable(points: Floats, dimensions: int) -> Booleans:
    """Which points no message can concern: predicates that nothing satisfies, with a low bound of +inf or such, or in
    a partition of that number. Both bounds may be -inf: that is the place of NULL, where it has one."""
    low, high = points[:, : 2 * dimensions : 2], points[:, 1 : 2 * dimensions : 2]
    nowhere = ((low == np.inf) | ((high == -np.inf) & (low > -np.inf))).any(axis=1)
    nowhere |= np.isinf(points[:, 2 * dimensions :]).any(axis=1)
    never: Booleans = nowhere | np.isnan(points).any(axis=1)
    return never


def query_boxes(form: str, dimensions: int, partitioned: bool, columns: Mapping[str, object]) -> list[BoxBounds]:
    """Boxes for n messages: one each for rectangles and points, two for places (old, new); a point in any of them is
    concerned.

    A box that nothing can lie in stands for a side that is not there.
    """
    named = cast("Mapping[str, Floats]", columns)
    if form == RECTANGLES:
        partitions = named["part"] if partitioned else NO_PARTITIONS
        return [rectangle_boxes(named["il"], named["ir"], named["ol"], named["or"], partitions)]
    sides = SIDES[1:] if form == POINTS else SIDES  # a tuple of a stream was nowhere before
    boxes = [_places(named, side, dimensions, partitioned=partitioned) for side in sides]
    if GAP in columns and form == POINTS:
        _around_all(*boxes[0], cast("Booleans", columns[GAP]), dimensions)
    return boxes


def _around_all(lows: Floats, highs: Floats, gaps: Booleans, dimensions: int) -> None:
    """A gap concerns everybody, but for points that nothing can concern (`unreachable`)."""
    if gaps.any():
        most = np.finfo(np.float64).max
        lows[gaps], highs[gaps] = -most, most
        for i in range(dimensions):
            lows[gaps, 2 * i : 2 * i + 2], highs[gaps, 2 * i + 1] = -np.inf, np.inf


def _places(columns: Mapping[str, Floats], side: str, dimensions: int, *, partitioned: bool) -> BoxBounds:
    """Around the place of a row before or after; with `up`, around a small interval of the last dimension."""
    lower = [columns[f"{side}.{i}"] for i in range(dimensions)]
    upper = [*lower[:-1], columns[f"{side}.up"]] if f"{side}.up" in columns else lower
    there = cast("Booleans", columns[f"{side}.there"])
    return around_points(lower, columns[f"{side}.part"] if partitioned else None, there, upper)

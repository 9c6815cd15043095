"""The two ways in which a message meets subscriptions, both as "which points lie in this closed box".

Range subscriptions and rectangle messages (Mar, Hull). WHERE x BETWEEN x1 AND x2 is the point (x1, x2). The
message is four numbers, and concerns the subscription iff the range contains INNER and stays within OUTER:

      OUTER_L <  x1 <= INNER_L          x2 ^         |##########|
      INNER_R <= x2 <  OUTER_R     OUTER_R + - - - - +----------+     strict towards OUTER: those rows
                                           |         |  query   |     must stay outside the range
                                   INNER_R +---------+----------+
                                                  OUTER_L   INNER_L  --> x1

An infinite OUTER means that there is no such row, hence no bound: the one-sided range with x1 = -inf is
concerned too.

Box subscriptions and point messages. The box with bounds low_i, high_i in d columns is the point (low_1,
high_1, .., low_d, high_d); it surrounds p iff low_i <= p_i <= high_i, i.e. low_i in [-inf, p_i] and high_i in
[p_i, +inf].

Strict bounds become closed ones by one step of `nextafter`: there is no float in between. A partition number
is one more, last coordinate, asked for by equality (lower bound = upper bound = number). A predicate without any
coordinate is the point 0 on a line of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hullcast.network.compiled import kernel, part
from hullcast.network.matching.search import STACK, report
from hullcast.network.matching.tree import Tree, longer
from hullcast.network.wire.arrays import Booleans, Floats, Ints

NO_PARTITIONS: Floats = np.empty(0)


def box_points(low: Floats, high: Floats, partitions: Floats | None = None) -> Floats:
    """The points of n box subscriptions given as lows and highs (n, d), and perhaps their partitions."""
    n, d = low.shape
    points = np.zeros((n, max(1, 2 * d + (partitions is not None))))
    points[:, 0 : 2 * d : 2] = low
    points[:, 1 : 2 * d : 2] = high
    if partitions is not None:
        points[:, 2 * d] = partitions
    return points


def around_points(
    columns: Sequence[Floats],
    partitions: Floats | None,
    there: Booleans,
    uppers: Sequence[Floats] | None = None,
) -> tuple[Floats, Floats]:
    """Query boxes, lows and highs, for the boxes around points given as columns; empty where there is no point.

    With `uppers`, for the boxes around the small intervals from `columns` to `uppers`.
    """
    d, n = len(columns), len(there)
    width = max(1, 2 * d + (partitions is not None))
    lows, highs = np.empty((n, width)), np.empty((n, width))
    lows.fill(-np.inf)
    highs.fill(np.inf)
    for i, (column, upper) in enumerate(zip(columns, columns if uppers is None else uppers, strict=True)):
        highs[:, 2 * i] = column
        lows[:, 2 * i + 1] = upper
    if partitions is not None:
        lows[:, 2 * d] = highs[:, 2 * d] = partitions
    if not there.all():
        lows[~there], highs[~there] = np.inf, -np.inf
    return lows, highs


@part
def rectangle_box(low: Floats, high: Floats, inner_l: float, inner_r: float, outer_l: float, outer_r: float) -> None:
    """The query box of a rectangle message, into low and high: outer sides are open, inner ones closed."""
    low[0] = outer_l if outer_l == -np.inf else np.nextafter(outer_l, np.inf)
    high[0] = inner_l
    low[1] = inner_r
    high[1] = outer_r if outer_r == np.inf else np.nextafter(outer_r, -np.inf)


@kernel
def rectangle_boxes(
    inner_l: Floats, inner_r: Floats, outer_l: Floats, outer_r: Floats, partitions: Floats
) -> tuple[Floats, Floats]:
    """The query boxes of rectangle messages, lows and highs; `partitions` is NO_PARTITIONS where points have none."""
    width = 2 if len(partitions) == 0 else 3
    lows, highs = np.empty((len(inner_l), width)), np.empty((len(inner_l), width))
    for i in range(len(inner_l)):
        rectangle_box(lows[i], highs[i], inner_l[i], inner_r[i], outer_l[i], outer_r[i])
        if width == 3:
            lows[i, 2] = highs[i, 2] = partitions[i]
    return lows, highs


@kernel
def in_rectangles(
    tree: Tree,
    inner_l: Floats,
    inner_r: Floats,
    outer_l: Floats,
    outer_r: Floats,
    partitions: Floats,
    start: int,
    enough: int,
) -> tuple[int, Ints, Ints]:
    """Pairs (message, id of a range in its rectangle) of the messages from `start` on, in order.

    Stops after the message that made it `enough` pairs, and says where: a message may concern everybody, and so may
    the next one. `partitions` is NO_PARTITIONS where the points have none.
    """
    width = 2 if len(partitions) == 0 else 3
    low, high, stack = np.empty(width), np.empty(width), np.empty(STACK, np.int64)
    messages, ids, used = np.empty(64, np.int64), np.empty(64, np.int64), 0
    i = start
    while i < len(inner_l) and used < enough:
        rectangle_box(low, high, inner_l[i], inner_r[i], outer_l[i], outer_r[i])
        if width == 3:
            low[2] = high[2] = partitions[i]
        before = used
        ids, used = report(tree, low, high, ids, used, stack)
        if used > len(messages):
            messages = longer(messages, before, len(ids) - before)
        for k in range(before, used):
            messages[k] = i
        i += 1
    return i, messages[:used], ids[:used]

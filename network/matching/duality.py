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
is one more coordinate, asked for by equality (lower bound = upper bound = number): `with_partition`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from network.compiled import kernel

if TYPE_CHECKING:
    import numpy.typing as npt

    from network.matching.tree import Floats


def rectangle_query(
    inner_l: npt.ArrayLike, inner_r: npt.ArrayLike, outer_l: npt.ArrayLike, outer_r: npt.ArrayLike
) -> tuple[Floats, Floats]:
    """The boxes (m, 2), lows and highs, of m rectangle messages given as four columns."""
    left, right = np.asarray(outer_l, np.float64), np.asarray(outer_r, np.float64)
    after_left = np.where(np.isneginf(left), -np.inf, np.nextafter(left, np.inf))
    before_right = np.where(np.isposinf(right), np.inf, np.nextafter(right, -np.inf))
    lows = np.stack(np.broadcast_arrays(np.atleast_1d(after_left), np.asarray(inner_r, np.float64)), axis=-1)
    highs = np.stack(np.broadcast_arrays(np.asarray(inner_l, np.float64), np.atleast_1d(before_right)), axis=-1)
    return lows, highs


@kernel
def set_rectangle(low: Floats, high: Floats, inner_l: float, inner_r: float, outer_l: float, outer_r: float) -> None:
    """The same for one message inside a kernel: writes coordinates 0 and 1, leaves the others."""
    low[0] = outer_l if outer_l == -np.inf else np.nextafter(outer_l, np.inf)
    high[0] = inner_l
    low[1] = inner_r
    high[1] = outer_r if outer_r == np.inf else np.nextafter(outer_r, -np.inf)


def around_query(points: npt.ArrayLike) -> tuple[Floats, Floats]:
    """The boxes (m, 2 d), lows and highs, that find the subscriptions around m points (m, d)."""
    rows = np.atleast_2d(np.asarray(points, np.float64))
    lows = np.full((rows.shape[0], 2 * rows.shape[1]), -np.inf)
    highs = np.full_like(lows, np.inf)
    highs[:, 0::2] = rows
    lows[:, 1::2] = rows
    return lows, highs


@kernel
def set_around(low: Floats, high: Floats, point: Floats) -> None:
    """The same for one point inside a kernel: writes the first 2 d coordinates, leaves the others."""
    for i in range(len(point)):
        low[2 * i], high[2 * i] = -np.inf, point[i]
        low[2 * i + 1], high[2 * i + 1] = point[i], np.inf


def box_points(lows: npt.ArrayLike, highs: npt.ArrayLike) -> Floats:
    """The points (n, 2 d) of n box subscriptions given as lows and highs (n, d)."""
    low, high = np.atleast_2d(np.asarray(lows, np.float64)), np.atleast_2d(np.asarray(highs, np.float64))
    return np.stack((low, high), axis=-1).reshape(len(low), 2 * low.shape[1])


def with_partition(rows: Floats, partitions: npt.ArrayLike) -> Floats:
    """Points, or lows, or highs, with the partition number as their last coordinate."""
    numbers = np.broadcast_to(np.asarray(partitions, np.float64), len(rows))
    return np.concatenate((rows, numbers[:, np.newaxis]), axis=1)

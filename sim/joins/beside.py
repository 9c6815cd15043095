"""Which rows of S lie at, or beside, a point: what ways to find affected queries ask of S(B) and S(B, C)."""

from __future__ import annotations

import numpy as np

from hullcast.broker.index.nodes import COUNT, GROUP, PREVIOUS, X, seek
from hullcast.broker.joins.partition import StabbingGroups
from hullcast.broker.joins.plan import LARGEST, first_at
from hullcast.network.compiled import part
from hullcast.network.wire.arrays import Floats


def shared_points(groups: StabbingGroups) -> Floats:
    """Of each stabbing group a finite point that its ranges share, where there is one."""
    within = np.where(groups.lows < groups.highs, 0.0, groups.lows)  # from -inf to inf, or at one of these
    within = np.where(np.isfinite(groups.highs), groups.highs, within)
    return np.where(np.isfinite(groups.lows), groups.lows, within)


@part
def is_met(m: Floats, group: float, offset: float, low: float, high: float) -> bool:
    """Whether a row of the group has its y in the interval."""
    leaf, i = first_at(m, group, offset, low)
    return leaf >= 0 and m[leaf + X + i] - offset <= high


@part
def last_at(m: Floats, group: float, offset: float, high: float) -> tuple[int, int]:
    """(leaf, i) of the group's last row with y <= high; leaf -1 where there is none. `first_at` the other way."""
    end = high
    if offset == -np.inf:
        if high < np.inf:
            return -1, -1
    elif offset == np.inf:
        end = LARGEST
    elif offset != 0.0:
        end = max(high, -LARGEST)
        end = end + offset + (abs(end) + abs(offset)) * 1e-15
    leaf, i = seek(m, group, end, np.inf)
    while True:
        if i > 0:
            i -= 1
        else:
            leaf = int(m[leaf + PREVIOUS])
            if leaf < 0:
                return -1, -1
            i = int(m[leaf + COUNT]) - 1
        x = m[leaf + X + i]
        if m[leaf + GROUP + i] != group:
            return -1, -1
        if x - offset <= high:
            return leaf, i
        leaf, i = seek(m, group, x, -np.inf)


@part
def beside(m: Floats, group: float, offset: float, p: float) -> tuple[float, float]:
    """y of the group's last row <= p and of its first row >= p; NaN where there is none."""
    leaf, i = last_at(m, group, offset, p)
    q1 = np.nan if leaf < 0 else m[leaf + X + i] - offset
    if q1 == p:
        return q1, q1
    leaf, i = first_at(m, group, offset, p)
    return q1, np.nan if leaf < 0 else m[leaf + X + i] - offset

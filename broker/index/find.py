"""FindL and FindR: the nearest row, to the left or to the right, whose y is low enough; and range MIN.

Both directions and both signs are one function. `step` is +1 for FindR, -1 for FindL. `sign` is +1 for MIN
and -1 for MAX, and everything below speaks of the *value* sign * y, of which lower is better: MAX is the mirror
image of MIN, over the same tree. A bound is always strict (`value < bound`); "at most" is the next float.
"""

from __future__ import annotations

import numpy as np

from hullcast.broker.index.nodes import (
    CHILD,
    COUNT,
    GREATEST,
    GROUP,
    LEAST,
    NEXT,
    PARENT,
    PREVIOUS,
    X,
    Y,
    child_index,
    seek,
)
from hullcast.network.compiled import inlined, kernel, part
from hullcast.network.wire.arrays import Floats


@inlined
def find(m: Floats, leaf: int, i: int, step: int, sign: float, bound: float) -> tuple[int, int]:
    """The first entry from (leaf, i) on, in the direction of step, whose value is below the bound; else (-1, -1).

    Along the leaf, then up until some node has a qualifying entry on that side, then straight down:
    at most two nodes a level.
    """
    count = int(m[leaf + COUNT])
    while 0 <= i < count:
        if sign * m[leaf + Y + i] < bound:
            return leaf, i
        i += step
    return _climb(m, leaf, step, sign, bound)


@part
def _climb(m: Floats, leaf: int, step: int, sign: float, bound: float) -> tuple[int, int]:
    """The first qualifying entry beyond a leaf."""
    best = LEAST if sign > 0 else GREATEST
    child, node, height = leaf, int(m[leaf + PARENT]), 0
    while node >= 0:
        i = child_index(m, node, child) + step
        count = int(m[node + COUNT])
        while 0 <= i < count:
            if sign * m[node + best + i] < bound:
                return _descend(m, int(m[node + CHILD + i]), height, step, sign, bound)
            i += step
        child, node, height = node, int(m[node + PARENT]), height + 1
    return -1, -1


@part
def _descend(m: Floats, node: int, height: int, step: int, sign: float, bound: float) -> tuple[int, int]:
    """The qualifying entry nearest to where the search came from, below a node that has one."""
    best = LEAST if sign > 0 else GREATEST
    while True:
        values = node + (best if height > 0 else Y)
        i = 0 if step > 0 else int(m[node + COUNT]) - 1
        while not sign * m[values + i] < bound:
            i += step
        if height == 0:
            return node, i
        node = int(m[node + CHILD + i])
        height -= 1


@inlined
def beside_run(m: Floats, leaf: int, i: int, sign: float) -> tuple[int, int]:
    """From an entry to its x's best one: the run's first for MIN; for MAX, one behind its last.

    Rows of one x stand together, sorted by y: this run is the lower tier of the A2B-tree.
    """
    group, x = m[leaf + GROUP + i], m[leaf + X + i]
    if sign > 0:
        if i > 0 and m[leaf + X + i - 1] != x:  # most often x is the only row there
            return leaf, i
    elif i + 1 < m[leaf + COUNT] and m[leaf + X + i + 1] != x:
        return leaf, i + 1
    return _beside_long_run(m, leaf, i, sign, group, x)


@part
def _beside_long_run(m: Floats, leaf: int, i: int, sign: float, group: float, x: float) -> tuple[int, int]:
    """The same where the neighbour has the same x, or the leaf ends."""
    if sign > 0:
        while i > 0 and m[leaf + X + i - 1] == x and m[leaf + GROUP + i - 1] == group:
            i -= 1
        if i > 0 or not run_crosses(m, leaf, -1, group, x):
            return leaf, i
        return seek(m, group, x, -np.inf)
    count = int(m[leaf + COUNT])
    while i < count and m[leaf + X + i] == x and m[leaf + GROUP + i] == group:
        i += 1
    if i < count or not run_crosses(m, leaf, 1, group, x):
        return leaf, i
    return seek(m, group, x, np.inf)


@part
def run_crosses(m: Floats, leaf: int, step: int, group: float, x: float) -> bool:
    """Whether the neighbour leaf (before: step -1, behind: +1) ends or begins with rows of that x."""
    other = int(m[leaf + (NEXT if step > 0 else PREVIOUS)])
    if other < 0:
        return False
    if step < 0:
        other += int(m[other + COUNT]) - 1
    return bool(m[other + X] == x and m[other + GROUP] == group)


@part
def range_best(m: Floats, group: float, low: float, high: float, sign: float) -> float:
    """sign * (MIN or MAX of y over low <= x <= high in the group); +inf where there is no row. O(log N)."""
    if not low <= high:
        return np.inf
    left, i = seek(m, group, low, -np.inf)
    right, end = seek(m, group, high, np.inf)
    if left == right:
        return _best_of(m, left + Y + i, left + Y + end, sign)
    best = min(
        _best_of(m, left + Y + i, left + Y + int(m[left + COUNT]), sign), _best_of(m, right + Y, right + Y + end, sign)
    )
    values = LEAST if sign > 0 else GREATEST
    while True:  # all leaves are equally deep: both paths meet in their common ancestor
        over_left, over_right = int(m[left + PARENT]), int(m[right + PARENT])
        i, end = child_index(m, over_left, left) + 1, child_index(m, over_right, right)
        left, right = over_left, over_right
        if left == right:
            return min(best, _best_of(m, left + values + i, left + values + end, sign))
        best = min(best, _best_of(m, left + values + i, left + values + int(m[left + COUNT]), sign))
        best = min(best, _best_of(m, right + values, right + values + end, sign))


@part
def _best_of(m: Floats, start: int, stop: int, sign: float) -> float:
    best = np.inf
    for i in range(start, stop):
        best = min(best, sign * m[i])
    return best


@kernel
def range_best_many(m: Floats, groups: Floats, lows: Floats, highs: Floats, sign: float) -> Floats:
    """`range_best` for many ranges: the initial answers of many subscriptions."""
    best = np.empty(len(lows))
    for i in range(len(lows)):
        best[i] = range_best(m, groups[i], lows[i], highs[i], sign)
    return best

"""What plans for standing joins must find, by the definition; and A2B-trees made of plain columns."""

from __future__ import annotations

import numpy as np

from hullcast.broker.index.a2b import A2BTree
from hullcast.broker.joins.plan import Arrivals
from hullcast.broker.reformulate.keeper import TreeKeeper
from hullcast.broker.tables.store import Updates
from hullcast.network.wire.arrays import Booleans, Floats, Ints

Pairs = list[tuple[int, int]]


def tree_of(groups: Floats, xs: Floats) -> A2BTree:
    """A tree with a row of each group and x; slots are places in the columns."""
    keeper = TreeKeeper(1, None, (0,))
    n = len(xs)
    there = np.ones(n, np.bool_)
    cells = np.array([groups, xs])
    keeper.update(Updates(np.arange(n), ~there, there, np.full_like(cells, np.nan), cells))
    return keeper.tree


def joining(groups: Floats, xs: Floats, arrivals: Arrivals, rectangles: Floats) -> Booleans:
    """For arrivals x rows x rectangles: whether the row is a partner that this rectangle wants."""
    with np.errstate(invalid="ignore", over="ignore"):
        ys = xs[np.newaxis, :] - arrivals.offsets[:, np.newaxis]
    meets = arrivals.groups[:, np.newaxis] == groups[np.newaxis, :]
    x, y = arrivals.xs[:, np.newaxis, np.newaxis], ys[:, :, np.newaxis]
    x_low, x_high, y_low, y_high = rectangles.T
    found: Booleans = meets[:, :, np.newaxis] & (x_low <= x) & (x <= x_high) & (y_low <= y) & (y <= y_high)
    return found


def wanted_pairs(found: Booleans) -> Pairs:
    """(arrival, row) of all that somebody wants, of `joining`."""
    return sorted((arrival, row) for arrival, row in np.argwhere(found.any(axis=2)).tolist())


def affected_pairs(found: Booleans, ids: Ints) -> Pairs:
    """(arrival, id) of all rectangles with a partner in them, of `joining`."""
    return sorted((arrival, int(ids[at])) for arrival, at in np.argwhere(found.any(axis=1)).tolist())

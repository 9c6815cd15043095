"""NAIVE: looks at every rectangle for every arrival; best for a few, and what other plans must match."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hullcast.broker.joins.plan import (
    HIGH,
    LOW,
    SURE,
    X_HIGH,
    X_LOW,
    Y_HIGH,
    Y_LOW,
    Arrivals,
    RectangleTable,
    Spans,
    has_partners,
    keep_filled,
    sort_by_low,
    spans_of,
    unite,
    with_room,
)
from hullcast.network.compiled import kernel
from hullcast.network.wire.arrays import Floats, Ints


class NaivePlan:
    """All rectangles, one by one: those that hold x give their y-intervals, which are united, then sought.

    Cost for n rectangles, of which k hold x, and m rows: O(n + k (log k + log m)) an arrival; a change O(1).
    """

    name: ClassVar[str] = "NAIVE"

    def __init__(self) -> None:
        self._rectangles = RectangleTable()

    def add(self, ids: Ints, rectangles: Floats) -> None:
        """Take in rectangles."""
        self._rectangles.put(ids, rectangles)

    def remove(self, ids: Ints) -> None:
        """Forget them."""
        self._rectangles.drop(ids)

    def spans(self, tree: Floats, arrivals: Arrivals) -> Spans:
        """Where wanted partners are."""
        return spans_of(_spans(self._rectangles.rows, tree, *arrivals))

    def memory_bytes(self) -> int:
        """Bytes held."""
        return self._rectangles.rows.nbytes

    def check(self) -> None:
        """There is nothing that could be wrong."""


@kernel
def _spans(rectangles: Floats, m: Floats, groups: Floats, offsets: Floats, xs: Floats) -> Floats:
    rows, out, used = np.empty((64, 3)), np.empty((64, 4)), 0
    for arrival in range(len(xs)):
        group, offset, x = groups[arrival], offsets[arrival], xs[arrival]
        if not has_partners(group, offset, x):
            continue
        n = 0
        for i in range(len(rectangles)):
            if rectangles[i, X_LOW] <= x <= rectangles[i, X_HIGH]:
                rows = with_room(rows, n)
                rows[n, LOW], rows[n, HIGH], rows[n, SURE] = rectangles[i, Y_LOW], rectangles[i, Y_HIGH], 1.0
                n += 1
        sort_by_low(rows, n)
        out, used = keep_filled(m, arrival, group, offset, rows, unite(rows, n), out, used)
    return out[:used]

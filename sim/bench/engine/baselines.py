"""What the engine is measured against: a static tree as the ceiling, and brute force."""

from __future__ import annotations

from statistics import median
from time import perf_counter

import numpy as np

from hullcast.network.compiled import kernel, part
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.bench.frame.timing import Subject
from hullcast.sim.traces.table51 import Changes, PointRows, RangeColumns


def ceiling_subject(rows: PointRows, changes: Changes, per_round: int) -> Subject:
    """The least that finding the messages can cost: rows never come, go or move, so a static min-tree does.

    An implicit binary tree in one array over the rows in x order: node i has the children 2i and 2i + 1. It
    answers the same searches as the A2B-tree and counts the messages, but writes none, and cannot insert.
    """
    order = np.argsort(rows.x)
    place = np.empty(len(rows), np.int64)
    place[order] = np.arange(len(rows))
    size = 1 << max(1, (len(rows) - 1).bit_length())
    tree = np.full(2 * size, np.inf)
    tree[size : size + len(rows)] = rows.y[order]
    width = size >> 1
    while width >= 1:  # level by level, from above the leaves up to the root
        tree[width : 2 * width] = np.minimum(tree[2 * width : 4 * width : 2], tree[2 * width + 1 : 4 * width : 2])
        width >>= 1
    replay(tree, size, np.empty(0, np.int64), np.empty(0))  # compiled now, not in round 0
    rounds = [[(place[part.ids], part.y)] for part in changes.batches(per_round)]  # a round is one call
    return Subject(rounds, lambda batch: (len(batch[0]), replay(tree, size, *batch)))


@kernel
def replay(tree: Floats, size: int, places: Ints, values: Floats) -> int:
    """Change values one by one; the number of messages that range-MIN subscriptions would need."""
    messages = 0
    for k in range(len(places)):
        place = places[k]
        old, new = tree[size + place], values[k]
        if new <= old:  # easy: Mar, against the others
            bound = np.nextafter(new, np.inf)
            _find(tree, size, place, bound, 1)
            _find(tree, size, place, bound, 0)
            _set(tree, size, place, new)
            messages += 1
            continue
        _set(tree, size, place, new)
        messages += 1
        for side in range(2):  # difficult: the hull, each point the nearest one lower than the last
            last, at = new, _find(tree, size, place, new, side)
            while at >= 0 and tree[size + at] > old:
                messages += 1
                last = tree[size + at]
                at = _find(tree, size, at, last, side)
    return messages


@part
def _find(tree: Floats, size: int, place: int, bound: float, side: int) -> int:
    """The nearest place on the left (side 1) or right (side 0) with a value below the bound, or -1."""
    i = size + place
    while i > 1:
        if (i & 1) == side and tree[i ^ 1] < bound:
            i ^= 1
            while i < size:
                i = 2 * i + side
                if not tree[i] < bound:
                    i ^= 1
            return i - size
        i >>= 1
    return -1


@part
def _set(tree: Floats, size: int, place: int, value: float) -> None:
    i = size + place
    tree[i] = value
    while i > 1:
        i >>= 1
        least = min(tree[2 * i], tree[2 * i + 1])
        if tree[i] == least:
            break
        tree[i] = least


def requery_us(rows: PointRows, ranges: RangeColumns, samples: int) -> tuple[float, float]:
    """Median microseconds to recompute one answer, in NumPy: (by a scan, by search in rows sorted by x).

    What one pays per subscription and update (or per poll) without an index of subscriptions.
    """
    order = np.argsort(rows.x)
    x, y = rows.x[order], rows.y[order]
    scans, searches = [], []
    for low, high in zip(ranges.low[:samples].tolist(), ranges.high[:samples].tolist(), strict=True):
        started = perf_counter()
        scanned = np.min(rows.y[(rows.x >= low) & (rows.x <= high)], initial=np.inf)
        between = perf_counter()
        first, last = np.searchsorted(x, (low, high))
        found = np.min(y[first:last], initial=np.inf)  # x is continuous: no row lies on a bound
        ended = perf_counter()
        assert scanned == found, "two ways, one answer"
        scans.append(between - started)
        searches.append(ended - between)
    return 1e6 * median(scans), 1e6 * median(searches)


def per_subscriber_rate(ranges: RangeColumns, changes: Changes, seconds: float) -> float:
    """Updates a second when every subscription's predicate is evaluated for every update, in vectorised NumPy.

    Only "does it concern me", with no answer kept: the cheapest form of what per-subscriber filters do.
    """
    low, high = ranges.low, ranges.high
    done, hits = 0, 0
    started = perf_counter()
    while True:
        x = changes.x[done % len(changes)]
        hits += len(np.flatnonzero((low <= x) & (x <= high)))
        done += 1
        elapsed = perf_counter() - started
        if elapsed > seconds and done >= 3:
            return done / elapsed

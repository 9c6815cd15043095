"""What a client must do where the broker only carries rows: keep them, and compute its own answers.

Written as somebody would who cares for speed. Rows lie in buckets by RISK; a tree over the buckets has their minima, so
the minimum of a range takes a walk through two buckets and up the tree. Ranges are in classes of similar length and
sorted by their low end, so those around a RISK are found by bisection. For each class every bucket knows the largest
answer of all ranges that overlap it: most updates are above that before and after, and change nothing there.

Invariants:
  S1  tree[BUCKETS + b] is the least PER in bucket b, and tree[i] the lesser of tree[2i] and tree[2i + 1].
  S2  bound[c, b] is at least the answer of every range of class c that overlaps bucket b (infinite: one has no rows).
  S3  class c is ranges starts[c] to starts[c + 1], sorted by `low`, none longer than longest[c].
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from hullcast.network.compiled import kernel, part
from hullcast.network.wire.arrays import Booleans, Floats, Ints
from hullcast.sim.bench.peers.workload import Rows
from hullcast.sim.traces.table51 import DOMAIN

BUCKETS, CLASSES = 4096, 14
WIDTH = DOMAIN / BUCKETS
Column = TypeVar("Column", bound=npt.NDArray[np.generic])


@part
def bucket_of(x: float) -> int:
    """The bucket of a RISK."""
    return int(min(max(x / WIDTH, 0.0), BUCKETS - 1.0))


@part
def settle_bucket(b: int, heads: Ints, after: Ints, per: Floats, tree: Floats) -> None:
    """Make S1 hold again for a bucket that has changed."""
    least = np.inf
    row = heads[b]
    while row >= 0:
        least = min(least, per[row])
        row = after[row]
    node = BUCKETS + b
    tree[node] = least
    while node > 1:
        node //= 2
        least = min(tree[2 * node], tree[2 * node + 1])
        if tree[node] == least:
            return
        tree[node] = least


@part
def least_of(b: int, low: float, high: float, heads: Ints, after: Ints, risk: Floats, per: Floats) -> float:
    """The least PER of a bucket's rows in the range."""
    least = np.inf
    row = heads[b]
    while row >= 0:
        if low <= risk[row] <= high:
            least = min(least, per[row])
        row = after[row]
    return least


@part
def minimum(low: float, high: float, heads: Ints, after: Ints, risk: Floats, per: Floats, tree: Floats) -> float:
    """The least PER of all rows in the range, infinite if there are none."""
    first, last = bucket_of(low), bucket_of(high)
    least = least_of(first, low, high, heads, after, risk, per)
    if first == last:
        return least
    least = min(least, least_of(last, low, high, heads, after, risk, per))
    left, right = BUCKETS + first + 1, BUCKETS + last
    while left < right:
        if left & 1:
            least = min(least, tree[left])
            left += 1
        if right & 1:
            right -= 1
            least = min(least, tree[right])
        left //= 2
        right //= 2
    return least


@part
def raise_bound(c: int, low: float, high: float, answer: float, bound: Floats) -> None:
    """Make S2 hold for a range whose answer has risen."""
    for b in range(bucket_of(low), bucket_of(high) + 1):
        bound[c, b] = max(bound[c, b], answer)


@part
def revise(
    c: int, x: float, old: float, new: float, low: Floats, high: Floats, answer: Floats, bound: Floats, starts: Ints,
    longest: Floats, heads: Ints, after: Ints, risk: Floats, per: Floats, tree: Floats,
) -> bool:  # fmt: skip
    """The answers of a class's ranges around x, where a PER that was `old` is now `new` (infinite: not there)."""
    b = bucket_of(x)
    left, right = (-np.inf if b == 0 else b * WIDTH), (np.inf if b == BUCKETS - 1 else (b + 1) * WIDTH)
    first, stop = starts[c], starts[c + 1]
    changed, most = False, -np.inf
    risen, risen_low, risen_high = -np.inf, x, x  # all that rose, as one: they overlap
    for i in range(first + np.searchsorted(low[first:stop], left - longest[c]), stop):
        if low[i] > right:
            break  # S3
        if low[i] <= x <= high[i]:
            if new < answer[i]:
                answer[i] = new
                changed = True
            elif old == answer[i] and new > old:
                again = minimum(low[i], high[i], heads, after, risk, per, tree)
                if again != answer[i]:
                    answer[i] = again
                    changed = True
                    risen, risen_low, risen_high = max(risen, again), min(risen_low, low[i]), max(risen_high, high[i])
        if high[i] >= left:
            most = max(most, answer[i])
    if risen > -np.inf:
        raise_bound(c, risen_low, risen_high, risen, bound)
    bound[c, b] = most
    return changed


@kernel
def apply_rows(
    ids: Ints, x: Floats, y: Floats, changed: Booleans, low: Floats, high: Floats, answer: Floats, bound: Floats,
    starts: Ints, longest: Floats, heads: Ints, after: Ints, before: Ints, risk: Floats, per: Floats, tree: Floats,
) -> None:  # fmt: skip
    """Apply updates in order; `changed` says of each whether an answer changed with it."""
    for n in range(len(ids)):
        row, there = ids[n], not np.isnan(risk[ids[n]])
        old_x, old_y = risk[row], per[row] if there else np.inf
        b = bucket_of(x[n])
        was = bucket_of(old_x) if there else -1
        if was != b:
            if there:
                if before[row] >= 0:
                    after[before[row]] = after[row]
                else:
                    heads[was] = after[row]
                if after[row] >= 0:
                    before[after[row]] = before[row]
            after[row], before[row] = heads[b], -1
            if heads[b] >= 0:
                before[heads[b]] = row
            heads[b] = row
        risk[row], per[row] = x[n], y[n]
        settle_bucket(b, heads, after, per, tree)
        moved = there and old_x != x[n]
        if there and was != b:
            settle_bucket(was, heads, after, per, tree)
        hit = False
        for c in range(CLASSES):
            if moved and old_y <= bound[c, was]:
                hit |= revise(
                    c, old_x, old_y, np.inf, low, high, answer, bound, starts, longest, heads, after, risk, per, tree
                )  # fmt: skip
            gone = np.inf if moved else old_y
            if min(gone, y[n]) <= bound[c, b]:
                hit |= revise(
                    c, x[n], gone, y[n], low, high, answer, bound, starts, longest, heads, after, risk, per, tree
                )  # fmt: skip
        changed[n] = hit


@kernel
def answer_all(
    low: Floats, high: Floats, answer: Floats, bound: Floats, starts: Ints, longest: Floats,
    heads: Ints, after: Ints, risk: Floats, per: Floats, tree: Floats,
) -> None:  # fmt: skip
    """All answers from the rows, and the bounds."""
    for c in range(CLASSES):
        for i in range(starts[c], starts[c + 1]):
            answer[i] = minimum(low[i], high[i], heads, after, risk, per, tree)
            longest[c] = max(longest[c], high[i] - low[i])
            raise_bound(c, low[i], high[i], answer[i], bound)


class ClientState:
    """All rows and one connection's ranges, with their answers."""

    def __init__(self, rows: Rows, capacity: int, low: Floats, high: Floats) -> None:
        which = np.clip(np.frexp((high - low) / WIDTH)[1], 0, CLASSES - 1)
        self._order = np.lexsort((low, which))
        self._answer: Floats = np.full(len(low), np.inf)
        starts = np.searchsorted(which[self._order], np.arange(CLASSES + 1)).astype(np.int64)
        bound: Floats = np.full((CLASSES, BUCKETS), -np.inf)
        longest: Floats = np.zeros(CLASSES)
        self._ranges: tuple[Any, ...] = (low[self._order], high[self._order], self._answer, bound, starts, longest)
        self._links = (np.full(BUCKETS, -1), np.full(capacity, -1), np.full(capacity, -1))
        self._rows = (np.full(capacity, np.nan), np.full(capacity, np.nan), np.full(2 * BUCKETS, np.inf))
        self._all: tuple[Any, ...] = (*self._ranges, *self._links, *self._rows)
        self.apply(rows)  # no bound is above any row yet, so no answer is looked at
        answer_all(*self._ranges, *self._links[:2], *self._rows)

    def apply(self, rows: Rows) -> Booleans:
        """Apply updates; which of them changed an answer."""
        changed = np.zeros(len(rows), np.bool_)
        apply_rows(_own(rows.ids), _own(rows.risk), _own(rows.per), changed, *self._all)
        return changed

    @property
    def answers(self) -> Floats:
        """In the order in which the ranges were given; NaN where there are no rows."""
        answers = np.empty(len(self._order))
        answers[self._order] = self._answer
        answers[np.isinf(answers)] = np.nan
        return answers


def _own(column: Column) -> Column:
    """The column as kernels need it: one that came as bytes cannot be written to, and is copied."""
    own: Column = np.require(column, requirements=("C", "A", "W"))
    return own

"""Counted points: of some channels the server must know every point that is still wanted.

Points go down with installs, and each goes up again, once, in a Withdrawn frame; so at every hop the points noted for
a neighbour are those installed for it less those it withdrew:

    server      3 of A, 1 of B          a node below knows where they live:      A, A  at a client
      |                                                                          A, B  behind another node
    node        Withdrawn(A) ..  2 of A, 1 of B
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.network.routing.pool import Pool

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats, Ints


class CountedPoints:
    """How often each point is held: each distinct one is once in an index.

    Invariants (`check` tests them):
      C1  Points in the index differ, and each is held at least once.
      C2  `total` is the sum of how often they are held.

    Cost for n points given and d distinct ones held: `add` and `remove` O(n (log n + log d)), as the index has it.
    """

    def __init__(self, coordinates: int) -> None:
        self.total = 0
        self._pool = Pool(coordinates)  # marks: how often each is held

    def __len__(self) -> int:
        """Distinct points."""
        return len(self._pool)

    def add(self, points: Floats) -> None:
        """Hold each of these once more."""
        points, counts = distinct_points(points)
        ids = self._find(points)
        known = ids >= 0
        self._pool.marks[ids[known]] += counts[known]
        self._pool.add(points[~known], counts[~known])
        self.total += int(counts.sum())

    def remove(self, points: Floats) -> Floats:
        """Hold each of these once less; those that were not held are passed over. Gives the others."""
        points, counts = distinct_points(points)
        ids = self._find(points)
        points, counts, ids = points[ids >= 0], counts[ids >= 0], ids[ids >= 0]
        counts = np.minimum(counts, self._pool.marks[ids])
        self._pool.marks[ids] -= counts
        self.total -= int(counts.sum())
        self._pool.remove(ids[self._pool.marks[ids] == 0])
        if self._pool.wants_compaction:
            self._pool.compact()
        return np.repeat(points, counts, axis=0)

    def points(self) -> Floats:
        """All points, each as often as it is held."""
        ids = self._pool.ids()
        return np.repeat(self._pool.index.points_of(ids), self._pool.marks[ids], axis=0)

    @property
    def pool(self) -> Pool:
        """What `mark_met` looks at, each point once."""
        return self._pool

    def _find(self, points: Floats) -> Ints:
        """The ids of points; -1 where one is not held."""
        rows, found = self._pool.index.report_many(points, points)
        ids = np.full(len(points), -1, np.int64)
        ids[rows] = found
        return ids

    def memory_bytes(self) -> int:
        """Bytes held."""
        return self._pool.memory_bytes()

    def check(self) -> None:
        """Test C1 and C2."""
        ids = self._pool.ids()
        points, _ = distinct_points(self._pool.index.points_of(ids))
        assert len(points) == len(ids) == len(self._pool), "C1: a point is held under two ids"
        assert (self._pool.marks[ids] > 0).all(), "C1: a point that nobody holds"
        assert self._pool.marks[ids].sum() == self.total, "C2"


class Gone(NamedTuple):
    """Points of a channel that nobody below wants any more, each as often as it stands here."""

    channel: int
    lost: bool  # whoever wanted them may come back and resume
    points: Floats


class Withdrawals:
    """Points that went, until they are passed on: those of one channel together, and not more at a time than asked for.

    Bounded: each was held before, and is here once for each time.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, bool], deque[Floats]] = {}
        self.points = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, channel: int, lost: bool, points: Floats) -> None:
        """Some went."""
        if len(points):
            self._waiting.setdefault((channel, lost), deque()).append(points)
            self.points += len(points)

    def take(self, most_bytes: int) -> Gone:
        """Some of those that wait, of one channel: of at most so many bytes, but one in any case."""
        key, parts = next(iter(self._waiting.items()))
        taken: list[Floats] = []
        most = room = max(1, most_bytes // (8 * parts[0].shape[1]))
        while parts and room:
            points = parts.popleft()
            if len(points) > room:
                parts.appendleft(points[room:])
                points = points[:room]
            taken.append(points)
            room -= len(points)
        if not parts:
            del self._waiting[key]
        self.points -= most - room
        return Gone(*key, np.concatenate(taken))

    def clear(self) -> None:
        """Nobody needs to hear of them."""
        self._waiting.clear()
        self.points = 0


def distinct_points(points: Floats) -> tuple[Floats, Ints]:
    """Each point once, and how often it occurs."""
    if len(points) <= 1:
        return points, np.ones(len(points), np.int64)
    order = np.lexsort(points.T)
    points = points[order]
    first = np.empty(len(points), np.bool_)
    first[0] = True
    np.any(points[1:] != points[:-1], axis=1, out=first[1:])
    begins = np.flatnonzero(first)
    return points[begins], np.diff(begins, append=len(points))

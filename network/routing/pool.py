"""Pool: points that come and go in one PointIndex, which chooses their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.matching.index import PointIndex

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats, Ints

#: A pool gives new numbers to all its points when fewer than one number in SPARSE is in use (of more than FEW).
SPARSE = 4
FEW = 256


class Pool:
    """Points of one neighbour or of many in one PointIndex: it chooses the ids, and knows a mark for each: whose it is,
    or how often it is held.

    Ids of points that went are used again, so memory follows the largest number of points at a time; after a crowd
    has gone, `compact` gives the rest new ids and frees what it had used.
    """

    def __init__(self, dimensions: int) -> None:
        self.index = PointIndex(dimensions)
        self.marks: Ints = np.empty(16, np.int64)  # by id
        self._free: list[int] = []
        self._used = 0

    def __len__(self) -> int:
        return self._used - len(self._free)

    def add(self, points: Floats, marks: int | Ints) -> Ints:
        """Take in points; their ids."""
        n = len(points)
        again = self._free[max(0, len(self._free) - n) :]
        del self._free[len(self._free) - len(again) :]
        ids = np.empty(n, np.int64)
        ids[: len(again)] = again
        fresh = n - len(again)
        ids[len(again) :] = np.arange(self._used, self._used + fresh)
        self._used += fresh
        if self._used > len(self.marks):
            longer = np.empty(max(self._used, 2 * len(self.marks)), np.int64)
            longer[: len(self.marks)] = self.marks
            self.marks = longer
        self.marks[ids] = marks
        self.index.insert(ids, points)
        return ids

    def remove(self, ids: Ints) -> None:
        """Let points go."""
        self.index.delete(ids)
        self._free.extend(ids.tolist())

    def ids(self) -> Ints:
        """The ids in use, rising."""
        found: Ints = np.flatnonzero(self.index.arrays.place_of >= 0)
        return found

    @property
    def wants_compaction(self) -> bool:
        """Whether so many points went that `compact` pays."""
        return self._used > max(FEW, SPARSE * len(self))

    def compact(self) -> Ints:
        """Give all points new ids, close together; for each old id the new one."""
        old = self.ids()
        new = np.arange(len(old))
        index = PointIndex(self.index.dimensions)
        index.insert(new, self.index.points_of(old))
        renamed = np.full(self._used, -1, np.int64)
        renamed[old] = new
        self.index, self.marks = index, self.marks[old]
        self._free, self._used = [], len(old)
        return renamed

    def memory_bytes(self) -> int:
        """Bytes held by index and marks."""
        return self.index.memory_bytes() + self.marks.nbytes

"""Pool: points of one or many neighbours in one index, under numbers that are used again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.matching.index import PointIndex

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

#: Numbers are given out anew when fewer than one in so many is in use (and there are more than a few at all).
SPARSE = 4
FEW = 256


class Pool:
    """A PointIndex that chooses the ids itself, and knows an owner for each.

    Ids of points that went are used again, so memory follows the largest number of points at a time; after a crowd
    has gone, `compact` gives the rest new ids and frees what it had used.
    """

    def __init__(self, dimensions: int) -> None:
        self.index = PointIndex(dimensions)
        self.owners: Ints = np.empty(16, np.int64)  # by id
        self._free: list[int] = []
        self._used = 0

    def __len__(self) -> int:
        return self._used - len(self._free)

    def add(self, points: Floats, owner: int) -> Ints:
        """Take in points; their ids."""
        n = len(points)
        again = self._free[max(0, len(self._free) - n) :]
        del self._free[len(self._free) - len(again) :]
        ids = np.empty(n, np.int64)
        ids[: len(again)] = again
        fresh = n - len(again)
        ids[len(again) :] = np.arange(self._used, self._used + fresh)
        self._used += fresh
        if self._used > len(self.owners):
            owners = np.empty(max(self._used, 2 * len(self.owners)), np.int64)
            owners[: len(self.owners)] = self.owners
            self.owners = owners
        self.owners[ids] = owner
        self.index.insert(ids, points)
        return ids

    def remove(self, ids: Ints) -> None:
        """Let points go."""
        self.index.delete(ids)
        self._free.extend(ids.tolist())

    @property
    def wants_compaction(self) -> bool:
        """Whether so many points went that `compact` pays."""
        return self._used > max(FEW, SPARSE * len(self))

    def compact(self) -> Ints:
        """Give all points new ids, close together; for each old id the new one."""
        old = np.flatnonzero(self.index.arrays.place_of >= 0)
        new = np.arange(len(old))
        index = PointIndex(self.index.dimensions)
        index.insert(new, self.index.points_of(old))
        renamed = np.full(self._used, -1, np.int64)
        renamed[old] = new
        self.index, self.owners = index, self.owners[old]
        self._free, self._used = [], len(old)
        return renamed

    def memory_bytes(self) -> int:
        """Bytes held by index and owners."""
        return self.index.memory_bytes() + self.owners.nbytes

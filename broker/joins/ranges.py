"""Ranges: the boxes that subscriptions to one channel ask for, each once, and how many ask. Never who."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.matching.index import PointIndex
from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Booleans, Floats, Ints

#: "Since when" of what is not wanted now.
NEVER = 1 << 62


class Ranges:
    """Boxes as points of a matching index (`network/matching/duality.py`), counted; `index` has each distinct one once.

    Invariants (`check` tests them):
      N1  Every point present is wanted by at least one, and is in the index under its id.
      N2  Ids are used again after their point has gone; no two points have the same one.
    """

    def __init__(self, coordinates: int) -> None:
        self.index = PointIndex(coordinates)
        self.total = 0  # how many want something, equal ranges counted as often as they are asked for
        self._ids: dict[bytes, int] = {}
        self._counts: Ints = np.zeros(16, np.int64)
        self._since: Ints = np.zeros(16, np.int64)
        self._free: list[int] = []

    def __len__(self) -> int:
        """Distinct ones."""
        return len(self._ids)

    def add(self, points: Floats, now: int) -> Ints:
        """Somebody wants each of these: what happens after the update `now`. Gives the ids of those new here."""
        points = points + 0.0  # one zero, and contiguous
        fresh: list[int] = []
        places: list[int] = []
        for place, point in enumerate(points):
            key = point.tobytes()
            one = self._ids.get(key)
            if one is None:
                one = self._ids[key] = self._free.pop() if self._free else len(self._ids)
                self._reserve(one)
                self._counts[one], self._since[one] = 0, now
                fresh.append(one)
                places.append(place)
            self._counts[one] += 1
        self.total += len(points)
        ids = np.array(fresh, np.int64)
        self.index.insert(ids, points[places])
        return ids

    def remove(self, points: Floats) -> Ints:
        """One less wants each of these. Gives the ids of those that nobody wants any more."""
        gone: list[int] = []
        for point in points + 0.0:
            key = point.tobytes()
            one = self._ids.get(key)
            if one is None:
                raise InvariantBroken("a range was given up that nobody wants")
            self._counts[one] -= 1
            if not self._counts[one]:
                del self._ids[key]
                gone.append(one)
        self.total -= len(points)
        ids = np.array(gone, np.int64)
        self.index.delete(ids)
        self._free.extend(gone)
        return ids

    def wanted_since(self, points: Floats) -> int:
        """All of these have been wanted without a break since this update; NEVER if one is not."""
        ids = [self._ids.get(point.tobytes(), -1) for point in points + 0.0]
        if not ids:
            return 0
        return NEVER if min(ids) < 0 else int(self._since[ids].max())

    def wanted(self, lows: Floats, highs: Floats) -> Booleans:
        """For each query box (`around_points`) whether a point is in it: whether anybody wants a row there."""
        return self.index.exists_many(lows, highs)

    def memory_bytes(self) -> int:
        """About what is held."""
        key = 8 * self.index.dimensions + 120  # bytes object, number and place in the dict
        return self.index.memory_bytes() + self._counts.nbytes + self._since.nbytes + key * len(self._ids)

    def check(self) -> None:
        """Test N1 and N2, and the index."""
        self.index.check()
        ids = np.array(list(self._ids.values()), np.int64)
        assert len(np.unique(ids)) == len(ids) == len(self.index), "N2"
        assert not set(ids.tolist()) & set(self._free), "N2"
        assert (self._counts[ids] > 0).all(), "N1"
        assert self._counts[ids].sum() == self.total, "N1"
        held = self.index.points_of(ids)
        assert all(point.tobytes() == key for point, key in zip(held, self._ids, strict=True)), "N1"

    def _reserve(self, one: int) -> None:
        if one >= len(self._counts):
            self._counts = np.resize(self._counts, 2 * one + 2)
            self._since = np.resize(self._since, 2 * one + 2)

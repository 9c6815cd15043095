"""Ranges: the boxes that subscriptions to one channel ask for, each once, and how many ask. Never who.

Which id a box has is told by a hash table over all coordinates, compiled: subscriptions come by the 100,000.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.compiled import kernel, part
from hullcast.network.matching.index import PointIndex
from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Booleans, Floats, Ints

#: "Since when" of what is not wanted now.
NEVER = 1 << 62
_SMALLEST = 32
_EMPTY = -1
_FOLD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio (Knuth 6.4)
_HALF = np.uint64(32)
# Columns of what is known of an id: how many want its point, and since which update.
_COUNT, _SINCE = 0, 1


class Ranges:
    """Boxes as points of a matching index (`network/matching/duality.py`), counted; `index` has each distinct one once.

    Invariants (`check` tests them):
      N1  Every point present is wanted by at least one, and is in the index under its id.
      N2  Ids are used again after their point has gone; no two points have the same one.
      N3  A point's id is found from its home on, before the next empty place; at most half of the places are taken.
    """

    def __init__(self, coordinates: int) -> None:
        self.index = PointIndex(coordinates)
        self.total = 0  # how many want something, equal ranges counted as often as they are asked for
        self._points: Floats = np.zeros((_SMALLEST // 2, coordinates))  # by id
        self._known: Ints = np.zeros((_SMALLEST // 2, 2), np.int64)
        self._free: Ints = np.arange(_SMALLEST // 2)[::-1].copy()  # ids not in use; those next to be used are last
        self._unused = len(self._free)  # how many of these count
        self._places: Ints = np.full(_SMALLEST, _EMPTY, np.int64)  # ids, near their homes

    def __len__(self) -> int:
        """Distinct ones."""
        return len(self._free) - self._unused

    def add(self, points: Floats, now: int) -> Ints:
        """Somebody wants each of these: what happens after the update `now`. Gives the ids of those new here."""
        points = np.require(points + 0.0, np.float64, ["C"])  # one zero
        self._reserve(len(self) + len(points))
        fresh = np.empty(len(points), np.int64)
        count = _add(self._places, self._points, self._known, self._free, self._unused, points, now, fresh)
        self._unused -= count
        self.total += len(points)
        ids = fresh[:count].copy()
        if count:
            self.index.insert(ids, self._points[ids])
        return ids

    def remove(self, points: Floats) -> Ints:
        """One less wants each of these. Gives the ids of those that nobody wants any more."""
        points = np.require(points + 0.0, np.float64, ["C"])
        gone = np.empty(len(points), np.int64)
        count, done = _remove(self._places, self._points, self._known, points, gone)
        ids = gone[:count].copy()
        self.total -= done
        if count:
            self._free[self._unused : self._unused + count] = ids
            self._unused += count
            self.index.delete(ids)
        if done < len(points):
            raise InvariantBroken("a range was given up that nobody wants")
        return ids

    def wanted_since(self, points: Floats) -> int:
        """All of these have been wanted without a break since this update; NEVER if one is not."""
        return int(_since(self._places, self._points, self._known, np.require(points + 0.0, np.float64, ["C"])))

    def wanted(self, lows: Floats, highs: Floats) -> Booleans:
        """For each query box (`around_points`) whether a point is in it: whether anybody wants a row there."""
        return self.index.exists_many(lows, highs)

    def ids(self) -> Ints:
        """The ids in use, ascending."""
        return np.flatnonzero(self._known[:, _COUNT] > 0)

    def has(self, ids: Ints) -> Booleans:
        """Which of these ids, each given out once at least, are in use."""
        used: Booleans = self._known[ids, _COUNT] > 0
        return used

    def points_of(self, ids: Ints) -> Floats:
        """The points of ids that are in use, or were until the latest change."""
        return self._points[ids]

    def memory_bytes(self) -> int:
        """Bytes held, used or not."""
        own = (self._points, self._known, self._free, self._places)
        return self.index.memory_bytes() + sum(array.nbytes for array in own)

    def check(self) -> None:
        """Test N1 to N3, and the index."""
        self.index.check()
        ids = self.ids()
        assert len(ids) == len(self) == len(self.index), "N2"
        assert sorted([*ids.tolist(), *self._free[: self._unused].tolist()]) == list(range(len(self._free))), "N2"
        assert self._known[ids, _COUNT].sum() == self.total, "N1"
        held = self.index.points_of(ids)
        assert held.tobytes() == self._points[ids].tobytes(), "N1"
        assert len({point.tobytes() for point in held}) == len(ids), "N2"
        assert all(
            self._points[_found(self._places, self._points, point)].tobytes() == point.tobytes() for point in held
        )
        assert sorted(self._places[self._places != _EMPTY].tolist()) == ids.tolist(), "N3"
        assert 2 * len(ids) <= len(self._places), "N3"

    def _reserve(self, ids: int) -> None:
        """Room for so many ids, and twice as many places."""
        before = len(self._free)
        if ids <= before:
            return
        room = max(ids, 2 * before)
        self._points = np.concatenate((self._points, np.zeros((room - before, self._points.shape[1]))))
        self._known = np.concatenate((self._known, np.zeros((room - before, 2), np.int64)))
        fresh = np.arange(room - 1, before - 1, -1)
        free = np.concatenate((fresh, self._free[: self._unused]))
        self._free, self._unused = np.concatenate((free, np.zeros(room - len(free), np.int64))), len(free)
        size = len(self._places)
        while size < 2 * room:
            size *= 2
        self._places = np.full(size, _EMPTY, np.int64)
        _place_all(self._places, self._points, self.ids())


@part
def _home(point: Floats, places: int) -> int:
    """Where a point belongs: every coordinate's bits are multiplied and folded into those before.

    Numbers like 3.0 have zeros but in their upper bits, and products are well mixed only there: hence the folding.
    """
    bits = point.view(np.uint64)
    h = np.uint64(len(bits))
    for i in range(len(bits)):
        h = (h ^ bits[i]) * _FOLD
        h ^= h >> _HALF
    return int((h * _FOLD) >> _HALF) & (places - 1)


@part
def _place(places: Ints, points: Floats, point: Floats) -> int:
    """The place where the id of a point stands, or the empty one where its search ends."""
    at = _home(point, len(places))
    while places[at] != _EMPTY:
        same = True
        for i in range(len(point)):
            same &= points[places[at], i] == point[i]
        if same:
            return at
        at = (at + 1) & (len(places) - 1)
    return at


@kernel
def _found(places: Ints, points: Floats, point: Floats) -> int:
    """The id of a point, -1 where it has none."""
    one: int = places[_place(places, points, point)]
    return one


@kernel
def _place_all(places: Ints, points: Floats, ids: Ints) -> None:
    """Fill an empty table."""
    for i in range(len(ids)):
        places[_place(places, points, points[ids[i]])] = ids[i]


@kernel
def _add(
    places: Ints, points: Floats, known: Ints, free: Ints, unused: int, wanted: Floats, now: int, fresh: Ints
) -> int:
    """Count each of these points; new ones take free ids, which become `fresh`. Gives how many are new."""
    count = 0
    for i in range(len(wanted)):
        at = _place(places, points, wanted[i])
        if places[at] == _EMPTY:
            one = free[unused - 1 - count]
            places[at] = fresh[count] = one
            count += 1
            for j in range(wanted.shape[1]):
                points[one, j] = wanted[i, j]
            known[one, _COUNT], known[one, _SINCE] = 0, now
        known[places[at], _COUNT] += 1
    return count


@kernel
def _remove(places: Ints, points: Floats, known: Ints, given_up: Floats, gone: Ints) -> tuple[int, int]:
    """Count each of these points down; the ids of those that nobody wants become `gone`. Gives how many, and how far.

    The place of an id that has gone is filled by one behind it that belongs before (Knuth 6.4, algorithm R): there are
    no marks of the dead that would have to be swept up.
    """
    count, mask = 0, len(places) - 1
    for i in range(len(given_up)):
        at = _place(places, points, given_up[i])
        one = places[at]
        if one == _EMPTY:
            return count, i
        known[one, _COUNT] -= 1
        if known[one, _COUNT] > 0:
            continue
        gone[count] = one
        count += 1
        behind = (at + 1) & mask
        while places[behind] != _EMPTY:
            home = _home(points[places[behind]], len(places))
            if ((behind - home) & mask) >= ((behind - at) & mask):  # its search passes the gap
                places[at] = places[behind]
                at = behind
            behind = (behind + 1) & mask
        places[at] = _EMPTY
    return count, len(given_up)


@kernel
def _since(places: Ints, points: Floats, known: Ints, wanted: Floats) -> int:
    latest = 0
    for i in range(len(wanted)):
        one = places[_place(places, points, wanted[i])]
        if one == _EMPTY:
            return NEVER
        latest = max(latest, known[one, _SINCE])
    return latest

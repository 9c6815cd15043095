"""Hotspots: the few groups of a stabbing partition that hold most of the intervals; the rest are scattered.

Xie (2007), section 4.2.2. Processing a group as a whole pays for large groups only, so those are told apart from the
others, with some slack, so that intervals seldom change sides::

                      at least alpha * n: promoted
        hot groups  <------------------------------  scattered intervals
        (a meet each)  ------------------------------>  (a RefinedPartition)
                      below (alpha / 2) * n: demoted
"""

from __future__ import annotations

import numpy as np

from hullcast.broker.joins.ordered import grown
from hullcast.broker.joins.partition import (
    NO_GROUP,
    CollectedIds,
    Groups,
    PartitionChanges,
    RefinedPartition,
    canonical,
)
from hullcast.network.compiled import kernel
from hullcast.network.wire.arrays import Booleans, Floats, Ints
from hullcast.network.wire.errors import InvariantBroken

#: What `group_of` says of an interval in no hot group. (NO_GROUP: there is no interval.)
SCATTERED = -1
_AGAIN = -5
_SMALLEST = 16


class HotspotTracker:
    """Which intervals are in hot groups, and which are scattered, while intervals come and go.

    A new interval joins a hot group whose meet it overlaps; only otherwise is it scattered. After each batch hot
    groups that have become small are demoted, one by one into the scattered partition; then scattered groups that are
    large are promoted, until there is none.

    With alpha = 0 every group is hot, and nothing is scattered: that is the plain partition.

    Invariants, n the number of intervals (`check` tests them):
      I1  Every group of at least alpha * n intervals is hot; a hot group has at least (alpha / 2) * n. So there are at
          most 2 / alpha hot groups.
      I2  There are at most (1 + epsilon) tau + 2 / alpha groups, tau the least possible number.
      I3  At most 5 intervals move into or out of the scattered ones per interval added or removed, amortised.
      I4  An interval of a hot group contains its meet; sizes are right.

    A batch at least as large as what is there starts afresh: everything is scattered, then large groups are promoted.
    That moves each of the n there at most twice, and each new one at most once: 3 a change, and what I3 needs beyond
    this is one future move for each interval left scattered, which then has made one move less.

    Cost of a change, beside the partition's: O(1 / alpha) for the hot groups, and O(n) per promotion or demotion, which
    moves (alpha / 2) n intervals or more (fewer only if they left just now): by I3 O(1 / alpha) a change again.
    """

    def __init__(self, alpha: float, epsilon: float) -> None:
        if not 0 <= alpha <= 1:
            raise ValueError(f"alpha must be between 0 and 1, not {alpha}")
        self.alpha = alpha
        self.moves = 0  # of intervals, into or out of the scattered ones
        self.changes = 0
        self._partition = RefinedPartition(epsilon)  # of the scattered ones; with alpha = 0, of all
        self._size = 0
        # by id
        self.lows: Floats = np.zeros(_SMALLEST)
        self.highs: Floats = np.zeros(_SMALLEST)
        self._group_of: Ints = np.full(_SMALLEST, NO_GROUP, np.int64)
        self._told: Ints = np.full(_SMALLEST, NO_GROUP, np.int64)
        self._moved = CollectedIds()
        # by number of hot group; size 0: the number is free
        self._meets: Floats = np.zeros((_SMALLEST, 2))
        self._sizes: Ints = np.zeros(_SMALLEST, np.int64)
        self._known: Booleans = np.zeros(_SMALLEST, np.bool_)

    def __len__(self) -> int:
        return self._size

    @property
    def group_of(self) -> Ints:
        """The hot group of each id, SCATTERED or NO_GROUP. Not to be changed; valid until the next change."""
        return self._group_of if self.alpha else self._partition.group_of

    @property
    def scattered(self) -> Ints:
        """Ids of the intervals in no hot group."""
        return np.flatnonzero(self.group_of == SCATTERED)

    def groups(self) -> Groups:
        """The hot groups. Numbers stay while a group is hot."""
        if not self.alpha:
            return self._partition.groups()
        numbers = np.flatnonzero(self._sizes)
        return Groups(numbers, self._meets[numbers, 0], self._meets[numbers, 1], self._sizes[numbers])

    def add(self, ids: Ints, lows: Floats, highs: Floats) -> None:
        """Add closed intervals under ids (small whole numbers) that are free."""
        if not len(ids):
            return
        self.changes += len(ids)
        self._size += len(ids)
        if not self.alpha:
            self._partition.add(ids, lows, highs)
            return
        ids = np.ascontiguousarray(ids, np.int64)
        lows, highs = np.ascontiguousarray(lows + 0.0), np.ascontiguousarray(highs + 0.0)
        self._reserve(int(ids.max()) + 1)
        self.lows[ids], self.highs[ids] = lows, highs
        self._told[ids] = np.where(self._told[ids] != NO_GROUP, _AGAIN, NO_GROUP)
        if 2 * len(ids) >= self._size:
            self._demote(np.flatnonzero(self._sizes), ids)
        else:
            _join_hot(self._meets, self._sizes, ids, lows, highs, self._group_of)
            rest = self._group_of[ids] == SCATTERED
            self._partition.add(ids[rest], lows[rest], highs[rest])
            self._moved.add(ids, len(self._told))
        self._adjust()

    def remove(self, ids: Ints) -> None:
        """Remove the intervals with these ids, each of which is there."""
        if not len(ids):
            return
        self.changes += len(ids)
        self._size -= len(ids)
        if not self.alpha:
            self._partition.remove(ids)
            return
        ids = np.ascontiguousarray(ids, np.int64)
        groups = self._group_of[ids]
        hot = groups >= 0
        np.subtract.at(self._sizes, groups[hot], 1)
        self._group_of[ids] = NO_GROUP
        self._partition.remove(ids[~hot])
        self._moved.add(ids, len(self._told))
        self._adjust()

    def take_changes(self) -> PartitionChanges:
        """What changed since this was last asked: groups are hot groups, SCATTERED, or NO_GROUP for intervals gone."""
        if not self.alpha:
            return self._partition.take_changes()
        self._partition.take_changes()  # nobody follows the scattered groups
        ids = self._moved.take(len(self._told))
        ids = ids[self._group_of[ids] != self._told[ids]]
        groups = self._group_of[ids]
        self._told[ids] = groups
        vanished = np.flatnonzero(self._known & (self._sizes == 0))
        self._known = self._sizes > 0
        return PartitionChanges(ids, groups, vanished)

    def describe(self) -> dict[str, object]:
        """Figures for people."""
        sizes = self.groups().sizes
        hot = int(sizes.sum())
        return {
            "intervals": self._size,
            "groups": self._partition.group_count + (len(sizes) if self.alpha else 0),
            "hot groups": len(sizes),
            "hot share": hot / self._size if self._size else 0.0,
            "largest": max(int(sizes.max(initial=0)), self._partition.largest),
        }

    def check(self) -> None:
        """Verify I1 to I4, or raise InvariantBroken."""
        self._partition.check()
        if not self.alpha:
            _expect(len(self._partition) == self._size, "all intervals are hot")
            return
        groups, n = self.groups(), self._size
        _expect(self._partition.largest < self.alpha * n or n == 0, "I1 large groups are hot")
        _expect(bool((groups.sizes >= self.alpha / 2 * n).all()), "I1 hot groups are large")
        _expect(len(groups.sizes) <= 2 / self.alpha, "I1 there are few hot groups")
        ids = np.flatnonzero(self._group_of != NO_GROUP)
        _expect(len(ids) == n, "every interval is there")
        tau = len(canonical(self.lows[ids], self.highs[ids])[1])
        most = (1 + self._partition.epsilon) * tau + 2 / self.alpha
        _expect(len(groups.sizes) + self._partition.group_count <= most, "I2 there are few groups")
        _expect(self.moves <= 5 * self.changes, "I3 few intervals move")
        scattered = np.flatnonzero(self._partition.group_of != NO_GROUP)
        _expect(np.array_equal(scattered, self.scattered), "the scattered ones are in the partition")
        hot = ids[self._group_of[ids] >= 0]
        meets = self._meets[self._group_of[hot]]
        inside = (self.lows[hot] <= meets[:, 0]) & (meets[:, 0] <= meets[:, 1]) & (meets[:, 1] <= self.highs[hot])
        _expect(bool(inside.all()), "I4 intervals contain the meet")
        counts = np.bincount(self._group_of[hot], minlength=len(self._sizes))
        _expect(np.array_equal(counts, self._sizes), "I4 sizes are right")

    def _adjust(self) -> None:
        """Demote what has become small, then promote what is large."""
        small = np.flatnonzero((self._sizes > 0) & (self._sizes < self.alpha / 2 * self._size))
        if len(small):
            self._demote(small, np.empty(0, np.int64))
        while self._partition.largest >= max(self.alpha * self._size, 1):
            self._promote()

    def _demote(self, groups: Ints, new: Ints) -> None:
        """Scatter the intervals of these groups, together with some that are new."""
        ids = np.flatnonzero(np.isin(self._group_of, groups))
        self.moves += len(ids)
        self._sizes[groups] = 0
        ids = np.concatenate((ids, new))
        self._group_of[ids] = SCATTERED
        self._partition.add(ids, self.lows[ids], self.highs[ids])
        self._moved.add(ids, len(self._told))

    def _promote(self) -> None:
        """Make all scattered groups hot that are large."""
        groups = self._partition.groups()
        large = groups.numbers[groups.sizes >= self.alpha * self._size]
        of = self._partition.group_of
        ids = np.flatnonzero(np.isin(of, large))
        free = np.flatnonzero(self._sizes == 0)
        if len(free) < len(large):
            self._sizes = grown(self._sizes, len(self._sizes) + len(large), 0)
            self._meets = grown(self._meets, len(self._sizes), 0.0)
            self._known = grown(self._known, len(self._sizes), False)
            free = np.flatnonzero(self._sizes == 0)
        number = np.empty(int(large.max()) + 1, np.int64)
        number[large] = free[: len(large)]
        hot = number[of[ids]]
        self._group_of[ids] = hot
        self._sizes += np.bincount(hot, minlength=len(self._sizes))
        self._meets[free[: len(large)]] = (-np.inf, np.inf)
        np.maximum.at(self._meets[:, 0], hot, self.lows[ids])
        np.minimum.at(self._meets[:, 1], hot, self.highs[ids])
        self.moves += len(ids)
        self._partition.remove(ids)
        self._moved.add(ids, len(self._told))

    def _reserve(self, ids: int) -> None:
        if ids > len(self._told):
            self.lows, self.highs = grown(self.lows, ids, 0.0), grown(self.highs, ids, 0.0)
            self._told, self._group_of = grown(self._told, ids, NO_GROUP), grown(self._group_of, ids, NO_GROUP)


def _expect(condition: bool, what: str) -> None:
    if not condition:
        raise InvariantBroken(what)


@kernel
def _join_hot(meets: Floats, sizes: Ints, ids: Ints, lows: Floats, highs: Floats, group_of: Ints) -> None:
    """Put each interval in the first hot group whose meet it overlaps, if there is one."""
    for i in range(len(ids)):
        group_of[ids[i]] = SCATTERED
        for group in range(len(sizes)):
            if sizes[group] > 0 and lows[i] <= meets[group, 1] and meets[group, 0] <= highs[i]:
                meets[group, 0], meets[group, 1] = max(meets[group, 0], lows[i]), min(meets[group, 1], highs[i])
                sizes[group] += 1
                group_of[ids[i]] = group
                break

"""Hotspots: the few groups of a stabbing partition that hold most of the intervals.

Xie (2007), section 4.2.2. Processing a group as a whole pays for large groups only, so those are told apart from the
others, with some slack, so that intervals seldom change sides::

                      at least alpha * n: promoted
        hot groups  <------------------------------  scattered intervals
        (a meet each)  ------------------------------>  (a RefinedPartition)
                      below (alpha / 2) * n: demoted

Xie (2007) promotes groups of the partition. But the smallest partition has few groups, not large ones: behind a tiny
interval a group must end, and so a few of them anywhere cut a thousand large ones around one point into crumbs, none of
which is hot. So we look for points that pay (`paying_points`), whatever groups the scattered ones are in::

    1    [--------------|-----]                greedy groups        {1, a}, {2, b}, {3, c}
    2          [--------|--------]             around the point |   {1, 2, 3}; a, b and c are left
    3                [--|-----------]
            a     b   c
"""

from __future__ import annotations

from math import ceil

import numpy as np

from hullcast.broker.joins.ordered import grown
from hullcast.broker.joins.partition import (
    NO_GROUP,
    CollectedIds,
    PartitionChanges,
    RefinedPartition,
    StabbingGroups,
    canonical,
    plain_ids,
)
from hullcast.network.compiled import kernel, part
from hullcast.network.wire.arrays import Booleans, Floats, Ints
from hullcast.network.wire.errors import InvariantBroken

#: What `group_of` says of an interval in no hot group. (NO_GROUP: there is no interval.)
SCATTERED = -1
_AGAIN = -5
_SMALLEST = 16
#: A point pays a little if no other point has this share of the intervals that a hot group needs.
PAYING_SHARE = 1 / 16
#: Scattered intervals are looked at again when so large a share of them is new (and this number more), or a hot group
#: needs so much less than when they were looked at.
CHANGED_SHARE, CHANGED_LEAST = 0.25, 64


class HotspotTracker:
    """Which intervals are in hot groups, and which are scattered, while intervals come and go.

    A new interval joins a hot group whose meet it overlaps; only otherwise is it scattered. After each batch hot
    groups that have become small are demoted, one by one into the scattered partition. Then the scattered ones are
    looked at, and what is found is promoted, if one of their groups is large, or much has changed (CHANGED_SHARE).
    After a look no point at all has alpha * n scattered intervals, whatever groups these are in (`large_groups`).

    With alpha = 0 every group is hot, and nothing is scattered: that is the plain, canonical partition.

    Invariants, n the number of intervals (`check` tests them):
      I1  Every group of at least alpha * n intervals is hot; a hot group has at least (alpha / 2) * n. So there are at
          most 2 / alpha hot groups.
      I2  There are at most (1 + epsilon) tau + 2 / alpha groups, tau the least possible number: the scattered ones are
          a subset, and tau of a subset is at most tau, whichever intervals are hot.
      I3  At most 5 intervals move into or out of the scattered ones per interval added or removed, amortised.
      I4  An interval of a hot group contains its meet; sizes are right.

    Why I3 holds, however often and in whatever way we look: a look only promotes, to groups of alpha * n. An interval
    that gets scattered pays for that one move at once. A group promoted with alpha * n' intervals, n' of the time,
    and demoted with s < (alpha / 2) * n has lost d, and i have been added anywhere: s < d + alpha * i. So two for each
    that leaves it, and 2 alpha for each that is added anywhere, pay for its s demotions and the promotions after
    those; there are at most 2 / alpha such groups: 1 + 4 an interval added, 2 an interval removed.

    A batch at least as large as what is there starts afresh: everything is scattered, then looked at. That moves each
    of the n there at most twice, and each new one at most once: 3 a change, and what I3 needs beyond this is one
    future move for each interval left scattered, which then has made one move less.

    Cost of a change, beside the partition's: O(1 / alpha) for the hot groups; O(n) per demotion and O(n log n) for a
    look that a large group caused, each of which moves (alpha / 2) n intervals or more (fewer only if they left just
    now): by I3 O((1 / alpha) log n) a change; O(log n) for other looks, which come after so many changes only.
    """

    def __init__(self, alpha: float, epsilon: float) -> None:
        if not 0 <= alpha <= 1:
            raise ValueError(f"alpha must be between 0 and 1, not {alpha}")
        self.alpha = alpha
        self.moves = 0  # of intervals, into or out of the scattered ones
        self.changes = 0
        self._partition = RefinedPartition(epsilon)  # of the scattered ones; with alpha = 0, of all
        self._size = 0
        self._new = 0  # intervals scattered since the last look
        self._needed = 0  # what a hot group needed then
        self._enough = 0  # .. and when it was last seen to that no scattered group has so many
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

    def groups(self) -> StabbingGroups:
        """The hot groups. Numbers stay while a group is hot."""
        if not self.alpha:
            return self._partition.groups()
        numbers = np.flatnonzero(self._sizes)
        return StabbingGroups(numbers, self._meets[numbers, 0], self._meets[numbers, 1], self._sizes[numbers])

    def add(self, ids: Ints, lows: Floats, highs: Floats) -> None:
        """Add closed intervals under ids (small whole numbers) that are free."""
        if not len(ids):
            return
        self.changes += len(ids)
        self._size += len(ids)
        if not self.alpha:
            self._partition.add(ids, lows, highs)
            return
        ids = plain_ids(ids)
        lows, highs = lows + 0.0, highs + 0.0  # one sign of zero
        self._reserve(int(ids.max()) + 1)
        self.lows[ids], self.highs[ids] = lows, highs
        self._told[ids] = np.where(self._told[ids] != NO_GROUP, _AGAIN, NO_GROUP)
        self._moved.add(ids, len(self._told))
        if 2 * len(ids) >= self._size:
            self._group_of[ids] = SCATTERED
            self._demoted(np.flatnonzero(self._sizes))
            self._partition = RefinedPartition(self._partition.epsilon)
            self._look()
            rest = self.scattered
            self._partition.add(rest, self.lows[rest], self.highs[rest])
        else:
            _join_hot(self._meets, self._sizes, ids, lows, highs, self._group_of)
            self._adjust(ids[self._group_of[ids] == SCATTERED], have_left=False)

    def remove(self, ids: Ints) -> None:
        """Remove the intervals with these ids, each of which is there."""
        if not len(ids):
            return
        self.changes += len(ids)
        self._size -= len(ids)
        if not self.alpha:
            self._partition.remove(ids)
            return
        ids = plain_ids(ids)
        groups = self._group_of[ids]
        hot = groups >= 0
        np.subtract.at(self._sizes, groups[hot], 1)
        self._group_of[ids] = NO_GROUP
        self._partition.remove(ids[~hot])
        self._moved.add(ids, len(self._told))
        self._adjust(np.empty(0, np.int64), have_left=not hot.all())

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

    def memory_bytes(self) -> int:
        """Bytes held, but for ids collected until the next `take_changes`."""
        arrays = (array for array in vars(self).values() if isinstance(array, np.ndarray))
        return self._partition.memory_bytes() + sum(array.nbytes for array in arrays)

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

    def _adjust(self, loose: Ints, *, have_left: bool) -> None:
        """Demote what has become small, then promote what is large.

        `loose` are scattered, but not in the partition yet; `have_left`: scattered ones have, so there may be other
        groups.
        """
        small = np.flatnonzero((self._sizes > 0) & (self._sizes < self.alpha / 2 * self._size))
        if len(small):
            loose = np.concatenate((loose, self._demoted(small)))
        enough = self._enough_now()
        if not (len(loose) or have_left) and enough >= self._enough:
            return  # as it was; to look for the largest of many groups takes longer than all else here
        self._enough = enough
        self._partition.add(loose, self.lows[loose], self.highs[loose])
        self._new += len(loose)
        scattered = len(self._partition)
        has_changed = (
            self._new > CHANGED_SHARE * scattered + CHANGED_LEAST or enough < (1 - CHANGED_SHARE) * self._needed
        )
        if self._partition.largest >= enough or (has_changed and scattered >= enough):
            self._partition.remove(self._look())

    def _enough_now(self) -> int:
        """How many intervals make a group hot."""
        return max(ceil(self.alpha * self._size), 1)

    def _demoted(self, groups: Ints) -> Ints:
        """Scatter the intervals of these groups. They are not in the partition yet."""
        ids = np.flatnonzero(np.isin(self._group_of, groups))
        self.moves += len(ids)
        self._sizes[groups] = 0
        self._group_of[ids] = SCATTERED
        self._moved.add(ids, len(self._told))
        return ids

    def _look(self) -> Ints:
        """Promote what is around points that pay, and say which intervals they are; the partition has them yet."""
        self._enough = self._needed = self._enough_now()
        self._new = 0
        ids = self.scattered
        groups = large_groups(self.lows[ids], self.highs[ids], self._needed)
        hot = groups >= 0
        self._promote(ids[hot], groups[hot])
        return ids[hot]

    def _promote(self, ids: Ints, groups: Ints) -> None:
        """Make these intervals hot, in groups from 0 on."""
        if not len(ids):
            return
        count = int(groups.max()) + 1
        free = np.flatnonzero(self._sizes == 0)
        if len(free) < count:
            self._sizes = grown(self._sizes, len(self._sizes) + count, 0)
            self._meets = grown(self._meets, len(self._sizes), 0.0)
            self._known = grown(self._known, len(self._sizes), False)
            free = np.flatnonzero(self._sizes == 0)
        free = free[:count]
        hot = free[groups]
        self._group_of[ids] = hot
        self._sizes += np.bincount(hot, minlength=len(self._sizes))
        self._meets[free] = (-np.inf, np.inf)
        np.maximum.at(self._meets[:, 0], hot, self.lows[ids])
        np.minimum.at(self._meets[:, 1], hot, self.highs[ids])
        self.moves += len(ids)
        self._moved.add(ids, len(self._told))

    def _reserve(self, ids: int) -> None:
        if ids > len(self._told):
            self.lows, self.highs = grown(self.lows, ids, 0.0), grown(self.highs, ids, 0.0)
            self._told, self._group_of = grown(self._told, ids, NO_GROUP), grown(self._group_of, ids, NO_GROUP)


def paying_points(lows: Floats, highs: Floats, paying: int) -> Floats:
    """The points, rising, that leave the least: `paying` for each point, and one for each interval without a point.

    (Half of one less for a point, so that none is better than one point more with just `paying` intervals.) So each
    point has `paying` intervals or more that no other point has, and no point has so many of those that are left. There
    are at most tau points, and with `paying` = 1, tau. Costs O(n log n): two sorts, and a pass.
    """
    points, ranks = np.unique(lows, return_inverse=True)
    order = np.argsort(highs, kind="stable")
    chosen = np.empty(len(points), np.int64)
    return points[chosen[: _choose(points, ranks[order], highs[order], 2 * paying - 1, chosen)][::-1]]


def large_groups(lows: Floats, highs: Floats, enough: int) -> Ints:
    """Disjoint groups, numbered from 0 on, of at least `enough` intervals each; SCATTERED for intervals in none.

    If all groups of the smallest partition are large, it is those: nothing is scattered then, and nobody has to look
    there at all. Else points that pay little come first (PAYING_SHARE), as far as they get large groups, so that few
    intervals are left over where crowds overlap; then, of the rest, those that pay in full: now no point has `enough`.
    """
    groups = canonical(lows, highs)[0]
    if np.bincount(groups).min(initial=enough) >= enough:
        return groups
    groups = _around_points(lows, highs, max(int(PAYING_SHARE * enough), 1), enough)
    rest = np.flatnonzero(groups == SCATTERED)
    more = _around_points(lows[rest], highs[rest], enough, enough)
    groups[rest] = np.where(more >= 0, more + groups.max(initial=SCATTERED) + 1, SCATTERED)
    return groups


def _around_points(lows: Floats, highs: Floats, paying: int, enough: int) -> Ints:
    """Groups around points that pay, as far as those have `enough` intervals."""
    points = paying_points(lows, highs, paying)
    groups = _first_in(points, lows, highs)
    sizes = np.bincount(groups[groups >= 0], minlength=len(points))
    return _first_in(points[sizes >= enough], lows, highs)  # what loses its point may have a later one


def _first_in(points: Floats, lows: Floats, highs: Floats) -> Ints:
    """The first of the rising points that is in each interval, SCATTERED where none is."""
    at = np.searchsorted(points, lows)
    return np.where(np.append(points, np.nan)[at] <= highs, at, SCATTERED)


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


@kernel
def _choose(points: Floats, ranks: Ints, highs: Floats, price: int, chosen: Ints) -> int:
    """Which points cost least, if a point costs `price` and an interval that has none costs 2; the last one first.

    Intervals are given in order of their ends: which point they begin at, and where they end. One point suffices for
    each stretch without left ends, so points are left ends.

    Let cost(q) be the least up to point q, if that is chosen: of points so far, and of intervals that lie between them.
    Passing by the end of an interval that begins behind q adds 2 to cost(q), and to that of all points before q. So if
    a later point is as cheap as an earlier one, it remains so, and the earlier one is out. Those that are in, are in
    order of cost, and the first is the one to go on from: all that has to be known is by how much the next one is
    dearer (`more`). What begins at a point raises the points before by 2, that is, the last of them comes 2 closer to
    the next; it is found as sets are in union-find, since what is out points to the one before (`before`).

    Node i + 1 is point i, node 0 is no point yet.
    """
    nodes = len(points) + 1
    before, after, more = np.arange(nodes), np.arange(1, nodes + 1), np.zeros(nodes, np.int64)
    previous = np.arange(-1, nodes - 1)  # of those in
    came_from = np.zeros(nodes, np.int64)
    first, whole, at = 0, 0, 0  # the first that is in; by how much the last is dearer
    for node in range(1, nodes + 1):
        while at < len(highs) and (node == nodes or highs[at] < points[node - 1]):
            q = ranks[at]
            while before[q] != q:
                before[q] = before[before[q]]
                q = before[q]
            at += 1
            if q >= first:  # else all points before it are out
                more[q] -= 2
                whole -= 2
                first, whole = _put_out(q, before, previous, after, more, first, whole)
        if node < nodes:
            came_from[node] = first
            more[node - 1] = price - whole
            whole = price
            first, whole = _put_out(node - 1, before, previous, after, more, first, whole)
    count = 0
    while first > 0:
        chosen[count] = first - 1
        count += 1
        first = came_from[first]
    return count


@part
def _put_out(q: int, before: Ints, previous: Ints, after: Ints, more: Ints, first: int, whole: int) -> tuple[int, int]:
    """While the next one is as cheap as q, q is out; then the same of the one before."""
    while more[q] <= 0:
        following = after[q]
        if q == first:
            return following, whole - more[q]
        left = previous[q]
        before[q] = left
        after[left], previous[following] = following, left
        more[left] += more[q]
        q = left
    return first, whole

"""Stabbing partitions: intervals in few groups, each with a point that all of its intervals share.

Xie (2007), section 4.2. The smallest number of groups, tau, is found greedily: in order of left ends, begin a group
wherever an interval begins behind the end of all that the group has in common. To keep the smallest partition is too
much to ask (after a few changes it may be another one altogether), so a partition of at most (1 + epsilon) tau groups
is kept::

    interval     [0---------9]                         groups    numbers   common intersection ("meet")
                      [4----------14]                            7         [4, 9]
                                       [20---25]                 2         [20, 25]

When the bound might break, `RefinedPartition` computes the partition again in O(tau log n). (The simple way, which
sorts all intervals, is the tests': `tests/support/lazy_partition.py`.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from hullcast.broker.joins.ordered import HIGH, ID, LOW, Ordered, erase, find_runs, grown, insert, last_at_most, pull_up
from hullcast.network.compiled import kernel
from hullcast.network.wire.arrays import Booleans, Floats, Ints, distinct
from hullcast.network.wire.errors import InvariantBroken

#: What `group_of` says of an id that is not there.
NO_GROUP = -2
_BY_RUN, _UNNAMED = -3, -4  # labels: in the group of the run that its left end lies in; in none yet
_AGAIN = -5  # as last told: another interval has the id now, tell again
_FREE, _LOST = 0, 1  # figures: how many numbers are free; by how much tau may have fallen since the last rebuild
_SMALLEST = 16
#: A batch with more intervals than this for each one that is there is sorted in at once.
BULK = 0.25


class StabbingGroups(NamedTuple):
    """The groups of a partition, in order of their meets."""

    numbers: Ints
    lows: Floats  # of the kept common intersection; it may be smaller than the real one, never larger
    highs: Floats
    sizes: Ints


class PartitionChanges(NamedTuple):
    """What a consumer must know to follow a partition."""

    ids: Ints  # moved, new (perhaps another interval under an old id) or gone
    groups: Ints  # where each is now, NO_GROUP for those gone
    vanished: Ints  # numbers of groups that no longer exist


class StabbingPartition(ABC):
    """At most (1 + epsilon) tau groups, while intervals come and go.

    A group keeps its meet, and narrows it when an interval joins; it does not widen it when one leaves. A new
    interval joins a group whose meet it overlaps, and founds a group only where there is none. So meets never
    overlap: they are in one order, and the group to join is found by one search (the last meet that begins before the
    interval's end). Before a rebuild a change affects one group.

    A rebuild computes the greedy partition when |P| > (1 + epsilon) (tau0 - m): tau0 is the size of the greedy
    partition at the last rebuild, and m a limit of what has been lost since (see the subclasses), so tau >= tau0 - m.
    Each new group takes the number of the old group with which it shares most intervals, as far as numbers are not
    taken, so that few intervals move.

    Invariants (`check` tests them):
      P1  Every interval is in one group, and contains the group's meet, which is not empty.
      P2  Meets do not overlap. Sizes are right.
      P3  There are at most (1 + epsilon) tau groups.
    """

    def __init__(self, epsilon: float) -> None:
        if not epsilon > 0:
            raise ValueError(f"epsilon must be more than 0, not {epsilon}")
        self.epsilon = epsilon
        self.rebuilds = 0
        # by id
        self.lows: Floats = np.zeros(_SMALLEST)
        self.highs: Floats = np.zeros(_SMALLEST)
        self._labels: Ints = np.full(_SMALLEST, NO_GROUP, np.int64)
        self._settled: Ints = np.full(_SMALLEST, NO_GROUP, np.int64)
        self._told: Ints = np.full(_SMALLEST, NO_GROUP, np.int64)
        self._counted: Booleans = np.zeros(_SMALLEST, np.bool_)  # a removal counts for m
        self._touched = CollectedIds()  # ids whose settled group may be wrong
        self._moved = CollectedIds()  # ids to tell about
        self._size = 0
        # by number of group
        self._meets = Ordered()
        self._sizes: Ints = np.zeros(_SMALLEST, np.int64)
        self._known: Booleans = np.zeros(_SMALLEST, np.bool_)
        self._free: Ints = np.arange(_SMALLEST)[::-1].copy()
        # runs of the last rebuild: where they begin, and their groups
        self._run_lows: Floats = np.empty(0)
        self._run_groups: Ints = np.empty(0, np.int64)
        self._tau = 0
        self._figures: Ints = np.array([_SMALLEST, 0])

    def __len__(self) -> int:
        return self._size

    @property
    def group_count(self) -> int:
        """How many groups there are."""
        return len(self._meets)

    @property
    def largest(self) -> int:
        """How many intervals the largest group has."""
        return int(self._sizes.max())

    @property
    def group_of(self) -> Ints:
        """The group of each id, NO_GROUP where there is no interval. Not to be changed; valid until the next change."""
        self._settle()
        return self._settled

    def groups(self) -> StabbingGroups:
        """All groups. Numbers stay while a group lives."""
        numbers = self._meets.ids()
        at = self._meets.node_of[numbers]
        return StabbingGroups(numbers, self._meets.keys[at, LOW], self._meets.keys[at, HIGH], self._sizes[numbers])

    def add(self, ids: Ints, lows: Floats, highs: Floats) -> None:
        """Add closed intervals under ids (small whole numbers) that are free."""
        if not len(ids):
            return
        ids = plain_ids(ids)
        lows, highs = lows + 0.0, highs + 0.0  # one sign of zero
        self._reserve(int(ids.max()) + 1, 0)
        self.lows[ids], self.highs[ids] = lows, highs
        told = self._told[ids]
        if told.max() >= 0:
            self._told[ids[told >= 0]] = _AGAIN
        bulk = len(ids) > BULK * self._size + _SMALLEST
        self._size += len(ids)
        self._enter(ids, bulk)
        self._touched.add(ids, len(self._labels))
        if bulk:
            self._labels[ids] = _UNNAMED
            self._rebuild()
            return
        self._reserve(0, self.group_count + len(ids))
        groups = self._meets
        groups.make_room(len(ids))
        own = (self._sizes, self._free, self._figures, self._labels)
        _join(groups.keys, groups.links, groups.node_of, *own, ids, lows, highs, groups.scratch)
        self._keep_bound()

    def remove(self, ids: Ints) -> None:
        """Remove the intervals with these ids, each of which is there."""
        if not len(ids):
            return
        ids = plain_ids(ids)
        groups = self._meets
        own = (self._sizes, self._free, self._figures, self._labels, self._counted)
        runs = (self._run_lows, self._run_groups)
        _leave(groups.keys, groups.links, groups.node_of, *own, *runs, self.lows, ids)
        groups.tidy()
        self._size -= len(ids)
        self._exit(ids)
        self._touched.add(ids, len(self._labels))
        self._keep_bound()

    def take_changes(self) -> PartitionChanges:
        """What changed since this was last asked. Costs as much as there are changes (and groups)."""
        self._settle()
        ids = self._moved.take(len(self._labels))
        ids = ids[self._settled[ids] != self._told[ids]]
        groups = self._settled[ids]
        self._told[ids] = groups
        vanished = np.flatnonzero(self._known & (self._sizes == 0))
        np.greater(self._sizes, 0, out=self._known)
        return PartitionChanges(ids, groups, vanished)

    def memory_bytes(self) -> int:
        """Bytes held, but for ids collected until the next `take_changes`."""
        held = vars(self).values()
        arrays = sum(array.nbytes for array in held if isinstance(array, np.ndarray))
        return arrays + sum(order.memory_bytes() for order in held if isinstance(order, Ordered))

    def check(self) -> None:
        """Verify P1 to P3, or raise InvariantBroken."""
        self._meets.check()
        ids = np.flatnonzero(self.group_of != NO_GROUP)
        _expect(len(ids) == self._size, "P1 every interval is in a group")
        groups, of = self.groups(), self.group_of[ids]
        _expect(bool((groups.lows <= groups.highs).all()), "P1 no meet is empty")
        _expect(bool((groups.highs[:-1] < groups.lows[1:]).all()), "P2 meets do not overlap")
        _expect(bool(np.isin(of, groups.numbers).all()), "P1 every interval's group is there")
        place = np.empty(len(self._sizes), np.int64)
        place[groups.numbers] = np.arange(len(groups.numbers))
        lows, highs = groups.lows[place[of]], groups.highs[place[of]]
        _expect(bool(((self.lows[ids] <= lows) & (highs <= self.highs[ids])).all()), "P1 intervals contain the meet")
        counts = np.bincount(place[of], minlength=len(groups.numbers))
        _expect(bool((counts == groups.sizes).all() and (counts > 0).all()), "P2 sizes are right")
        _expect(int(self._sizes.sum()) == self._size, "P2 sizes are right")
        tau = len(canonical(self.lows[ids], self.highs[ids])[1])
        _expect(len(groups.numbers) <= (1 + self.epsilon) * tau, "P3 few groups")
        free = self._free[: self._figures[_FREE]]
        _expect(len({*free.tolist(), *groups.numbers.tolist()}) == len(self._sizes), "numbers are free or in use")
        _expect(len(free) + len(groups.numbers) == len(self._sizes), "numbers are free or in use")

    # --- what the two ways differ in

    @abstractmethod
    def _enter(self, ids: Ints, bulk: bool) -> None:
        """Intervals have come."""

    @abstractmethod
    def _exit(self, ids: Ints) -> None:
        """Intervals have gone."""

    @abstractmethod
    def _rebuild(self) -> None:
        """Make this the greedy partition."""

    @abstractmethod
    def _settle(self) -> None:
        """Make `_settled` true."""

    # --- what they share

    def _keep_bound(self) -> None:
        if self.group_count > (1 + self.epsilon) * (self._tau - self._figures[_LOST]):
            self._rebuild()

    def _install(self, meets: Floats, sizes: Ints, shared: tuple[Ints, Ints, Ints]) -> Ints:
        """Replace all groups by these; `shared` says how many intervals an old number and a new group share.

        Returns the number of each new group.
        """
        tau = len(sizes)
        self.rebuilds += 1
        old = self._meets.ids()
        self._reserve(0, len(old) + tau)
        groups, runs, weights = shared
        keep = groups >= 0
        keys, weights = groups[keep] * max(tau, 1) + runs[keep], weights[keep]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        if len(first):
            weights = np.add.reduceat(weights[order], first)
            best = np.argsort(-weights, kind="stable")
            best = best[weights[best] > 0]
            keys = keys[first][best]
        numbers = np.full(tau, NO_GROUP, np.int64)
        _name(keys // max(tau, 1), keys % max(tau, 1), sizes, numbers, old, self._sizes, self._free, self._figures)
        self._meets.load(numbers, np.ascontiguousarray(meets[:, 0]), np.ascontiguousarray(meets[:, 1]))
        self._tau, self._figures[_LOST] = tau, 0
        return numbers

    def _reserve(self, ids: int, groups: int) -> None:
        if ids > len(self._labels):
            self.lows, self.highs = grown(self.lows, ids, 0.0), grown(self.highs, ids, 0.0)
            self._labels, self._settled = grown(self._labels, ids, NO_GROUP), grown(self._settled, ids, NO_GROUP)
            self._told, self._counted = grown(self._told, ids, NO_GROUP), grown(self._counted, ids, False)
        before = len(self._sizes)
        if groups > before:
            self._sizes, self._known = grown(self._sizes, groups, 0), grown(self._known, groups, False)
            count = int(self._figures[_FREE])
            free = np.empty(len(self._sizes), np.int64)
            fresh = np.arange(len(free) - 1, before - 1, -1)
            free[: len(fresh)], free[len(fresh) : len(fresh) + count] = fresh, self._free[:count]
            self._free, self._figures[_FREE] = free, count + len(fresh)
            self._meets.reserve(len(free))


class RefinedPartition(StabbingPartition):
    """The refined algorithm: O((1 / epsilon) log n) amortised a change, n the largest number of intervals so far.

    Xie (2007) only names it, with its bound (Agarwal, Xie, Yang and Yu, "Scalable continuous query processing by
    tracking hotspots", VLDB 2006; Katz, Nielsen and Segal, "Maintenance of a piercing set for intervals with
    applications", 2003). This is ours:

      - All intervals are in a search tree by left end (`Ordered`), each subtree with its size and its least right end.
      - A greedy group is a *run* of that order, and the next one begins at a greater left end. So a run is one number:
        the left end it begins at. Its intervals are not labelled; their group is found by a search in the list of runs.
        A rebuild moves them as a whole, by another number in that list.
      - An interval that comes later is labelled with the group it joins, until the next rebuild.
      - m counts the *witnesses* removed: of each run the one interval that ends first. They do not overlap one
        another, since each run begins behind the end of the one before. So no two of those left can share a group:
        tau >= tau0 - m. (Xie (2007) counts every interval removed. Of many intervals in few groups hardly any is a
        witness, and most rebuilds do not happen.)

    Why the bound holds. Without a rebuild a change is one insertion or removal in the tree, one search among the
    meets, and at most one insertion or removal there (`Ordered` too): O(log n). A rebuild finds each of the new tau
    runs in O(log n), because whole subtrees join a run at once (`find_runs`); the same for the sizes that old and new
    runs share: O(log n) for each of |P| + tau stretches; and it forgets the labels given since the last rebuild,
    O(log n) each, which those insertions pay for. tau is at most |P|, and |P| is at most tau0 + i after i insertions.
    At a rebuild tau0 + i > (1 + epsilon) (tau0 - m), that is, the i + m changes since the last one are more than
    epsilon tau0 / (1 + epsilon). Hence (2 |P| + i) log n, shared by them, is O((1 + 1 / epsilon) log n) each. A bulk
    load of k intervals sorts them with those there, at most 4 k: O(log n) each, too.

    To tell a consumer which intervals moved (`take_changes`, `group_of`) takes time for each of them, and is not in
    this bound: stretches whose runs kept their number are passed over, the others are walked.
    """

    def __init__(self, epsilon: float) -> None:
        super().__init__(epsilon)
        self.steps = 0  # nodes that rebuilds visited to find runs
        self._order = Ordered()
        self._labelled = CollectedIds()
        self._witnesses: Ints = np.empty(0, np.int64)
        self._seen = (self._run_lows, self._run_groups)  # runs as of the last `_settle`
        self._room = 16
        self._runs_changed = False

    def check(self) -> None:
        """Verify the order of intervals, too."""
        super().check()
        self._order.check()
        ids = np.flatnonzero(self._settled != NO_GROUP)
        _expect(np.array_equal(np.sort(self._order.ids()), ids), "all intervals are in order")
        _expect(np.array_equal(self._resolved(ids), self._settled[ids]), "settled groups are those of runs and labels")
        at = self._order.node_of[ids]
        _expect(np.array_equal(self._order.keys[at, : HIGH + 1], np.column_stack((self.lows, self.highs))[ids]), "ends")

    def _enter(self, ids: Ints, bulk: bool) -> None:
        order = self._order
        order.reserve(len(self._labels))
        if bulk:
            every = np.concatenate((order.ids(), ids))
            every = every[np.argsort(self.lows[every], kind="stable")]
            order.load(every, self.lows[every], self.highs[every])
        else:
            order.insert(ids, self.lows[ids], self.highs[ids])
        self._labelled.add(ids, len(self._labels))

    def _exit(self, ids: Ints) -> None:
        self._order.remove(ids)

    def _rebuild(self) -> None:
        starts, meets, sizes, witnesses = self._greedy()
        labelled = self._labelled.take(len(self._labels))
        labelled = labelled[(self._labels[labelled] != NO_GROUP) & (self._labels[labelled] != _BY_RUN)]
        numbers = self._install(meets, sizes, self._shared(starts, labelled))
        self._labels[labelled] = _BY_RUN
        self._touched.add(labelled, len(self._labels))
        self._run_lows, self._run_groups = starts, numbers
        self._counted[self._witnesses] = False
        self._counted[witnesses] = True
        self._witnesses = witnesses
        self._runs_changed = True

    def _greedy(self) -> tuple[Floats, Floats, Ints, Ints]:
        """Of each run: where it begins, its meet, its size, and its witness."""
        while True:
            n = self._room
            starts, meets = np.empty(n), np.empty((n, 2))
            sizes, witnesses = np.empty(n, np.int64), np.empty(n, np.int64)
            runs, steps = find_runs(self._order.keys, self._order.links, starts, meets, sizes, witnesses)
            self.steps += steps
            if runs >= 0:
                self._room = 2 * runs + 16
                return starts[:runs].copy(), meets[:runs], sizes[:runs].copy(), witnesses[:runs].copy()
            self._room *= 4

    def _shared(self, starts: Floats, labelled: Ints) -> tuple[Ints, Ints, Ints]:
        """How many intervals an old group and a new run share: those of the old run there, and those labelled."""
        edges = np.union1d(starts, self._run_lows)
        weights = np.diff(self._order.ranks(edges), append=len(self._order))
        lows = self.lows[labelled]
        # a labelled interval lies in the stretch of an old run, too, but is not in its group
        places = np.concatenate((edges, lows))
        runs = np.searchsorted(starts, places, "right") - 1
        groups = np.concatenate((_group_at(self._run_lows, self._run_groups, places), self._labels[labelled]))
        runs = np.concatenate((runs, runs[len(edges) :]))
        weights = np.concatenate((weights, np.full(len(lows), -1), np.ones(len(lows), np.int64)))
        there = runs >= 0  # before the first run there is nothing now
        return groups[there], runs[there], weights[there]

    def _resolved(self, ids: Ints) -> Ints:
        """The groups of these ids."""
        labels = self._labels[ids]
        by_run = labels == _BY_RUN
        if by_run.any():
            labels[by_run] = _group_at(self._run_lows, self._run_groups, self.lows[ids[by_run]])
        return labels

    def _settle(self) -> None:
        if self._runs_changed:
            (old_lows, old_groups), lows = self._seen, self._run_lows
            edges = np.union1d(old_lows, lows)
            other = _group_at(old_lows, old_groups, edges) != _group_at(lows, self._run_groups, edges)
            self._touched.add(self._order.between(edges, other), len(self._labels))
            self._seen, self._runs_changed = (lows, self._run_groups), False
        ids = self._touched.take(len(self._labels))
        self._settled[ids] = self._resolved(ids)
        self._moved.add(ids, len(self._labels))


class CollectedIds:
    """Ids, added in batches, each given back once."""

    def __init__(self) -> None:
        self._batches: list[Ints] = []
        self._count = 0

    def add(self, ids: Ints, below: int) -> None:
        """Add ids that are less than `below`."""
        if len(ids):
            self._batches.append(ids)
            self._count += len(ids)
            if self._count > 2 * below + 1024:
                self.add(self.take(below), below)

    def take(self, below: int) -> Ints:
        """All ids, rising; none are left."""
        if not self._batches:
            return np.empty(0, np.int64)
        # one id, as after a single change: to sort it would take longer than the change did
        ids = self._batches[0] if self._count == 1 else distinct(np.concatenate(self._batches), below)
        self._batches, self._count = [], 0
        return ids


def canonical(lows: Floats, highs: Floats) -> tuple[Ints, Floats]:
    """The greedy partition, in order: the group of each interval, and the common intersection of each group."""
    lows, highs = np.require(lows, np.float64, ["C", "A", "W"]), np.require(highs, np.float64, ["C", "A", "W"])
    order = np.argsort(lows, kind="stable")
    groups, meets = np.empty(len(lows), np.int64), np.empty((len(lows), 2))
    return groups, meets[: _greedy(lows, highs, order, groups, meets)].copy()


def plain_ids(ids: Ints) -> Ints:
    """The ids as kernels take them. (`np.require` alone takes several microseconds.)"""
    return ids if ids.dtype == np.int64 and ids.flags.carray else np.require(ids, np.int64, ["C", "A", "W"])


def _group_at(run_lows: Floats, run_groups: Ints, places: Floats) -> Ints:
    """The group of the run that each place lies in, NO_GROUP before the first."""
    return np.append(run_groups, NO_GROUP)[np.searchsorted(run_lows, places, "right") - 1]


def _expect(condition: bool, what: str) -> None:
    if not condition:
        raise InvariantBroken(what)


# --- kernels -------------------------------------------------------------------------------------------------------


@kernel
def _greedy(lows: Floats, highs: Floats, order: Ints, groups: Ints, meets: Floats) -> int:
    group = -1
    for at in order:
        if group < 0 or lows[at] > meets[group, 1]:
            group += 1
            meets[group, 1] = highs[at]
        meets[group, 0] = lows[at]
        meets[group, 1] = min(meets[group, 1], highs[at])
        groups[at] = group
    return group + 1


@kernel
def _join(
    keys: Floats,
    links: Ints,
    node_of: Ints,
    sizes: Ints,
    free: Ints,
    figures: Ints,
    labels: Ints,
    ids: Ints,
    lows: Floats,
    highs: Floats,
    scratch: Ints,
) -> None:
    """Put each interval in a group whose meet it overlaps, or in a new one."""
    for i in range(len(ids)):
        node = last_at_most(keys, links, highs[i])
        if node and keys[node, HIGH] >= lows[i]:
            group = links[node, ID]
            if lows[i] > keys[node, LOW] or highs[i] < keys[node, HIGH]:
                keys[node, LOW], keys[node, HIGH] = max(keys[node, LOW], lows[i]), min(keys[node, HIGH], highs[i])
                pull_up(keys, links, node)
        else:
            figures[_FREE] -= 1
            group = free[figures[_FREE]]
            node_of[group] = insert(keys, links, lows[i], highs[i], group, scratch)
        sizes[group] += 1
        labels[ids[i]] = group


@kernel
def _leave(
    keys: Floats,
    links: Ints,
    node_of: Ints,
    sizes: Ints,
    free: Ints,
    figures: Ints,
    labels: Ints,
    counted: Booleans,
    run_lows: Floats,
    run_groups: Ints,
    lows: Floats,
    ids: Ints,
) -> None:
    """Take each interval out of its group; a group without any is no more."""
    for i in range(len(ids)):
        group = labels[ids[i]]
        if group == _BY_RUN:
            group = run_groups[np.searchsorted(run_lows, lows[ids[i]], side="right") - 1]
        labels[ids[i]] = NO_GROUP
        if counted[ids[i]]:
            counted[ids[i]] = False
            figures[_LOST] += 1
        sizes[group] -= 1
        if sizes[group] == 0:
            erase(keys, links, node_of[group])
            free[figures[_FREE]] = group
            figures[_FREE] += 1


@kernel
def _name(
    groups: Ints, runs: Ints, counts: Ints, numbers: Ints, old: Ints, sizes: Ints, free: Ints, figures: Ints
) -> None:
    """Give numbers to new groups, by pairs (old number, new group) in order of preference; the rest get free ones."""
    for i in range(len(old)):
        sizes[old[i]] = 0
    for i in range(len(groups)):
        if numbers[runs[i]] < 0 and sizes[groups[i]] == 0:
            numbers[runs[i]] = groups[i]
            sizes[groups[i]] = counts[runs[i]]
    for i in range(len(counts)):
        if numbers[i] < 0:
            figures[_FREE] -= 1
            numbers[i] = free[figures[_FREE]]
            sizes[numbers[i]] = counts[i]
    for i in range(len(old)):
        if sizes[old[i]] == 0:
            free[figures[_FREE]] = old[i]
            figures[_FREE] += 1

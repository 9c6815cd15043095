"""BJ-SSI as Xie (2007), section 4.3.1, has it: each stabbing group of bands in two sorted sequences."""

from __future__ import annotations

import sys
from typing import ClassVar

import numpy as np

from hullcast.broker.index.a2b import A2BTree
from hullcast.broker.index.nodes import COUNT, FREE_NODES, GROUP, HEIGHT, NEXT, ROW, X, Y, insert, remove, seek
from hullcast.broker.joins.partition import RefinedPartition
from hullcast.broker.joins.plan import Y_HIGH, Y_LOW, Arrivals, has_partners
from hullcast.network.compiled import kernel
from hullcast.network.matching.tree import longer
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.joins.band import entries
from hullcast.sim.joins.beside import beside, shared_points


class BandSequences:
    """BJ-SSI: for each group one look for the two rows beside its point, s1 <= p <= s2, then two scans.

    If one of the rows is at the point, the whole group is affected. Otherwise the ranges that begin at or before s1
    are, which are the first ones in order of their left ends; and those that end at or behind s2, the first ones in
    falling order of their right ends::

        rows      |            |            s1 and s2, and nothing between them
        point          p
        ranges  [------]  [-------]         the first is met by s1, the second by s2,
                    [------]                the third by neither

    The sequences of all groups are two A2B-trees, ordered by group first. A range that gets another group, since the
    partition was computed anew, is moved. Ranges of A are not looked at: band joins have none.
    """

    name: ClassVar[str] = "BJ-SSI"

    def __init__(self, epsilon: float = 1.0) -> None:
        self._partition = RefinedPartition(epsilon)
        self._left, self._right = A2BTree(), A2BTree()  # x and y: low and high end; the high end less than 0, and low

    def add(self, ids: Ints, rectangles: Floats) -> None:
        """Ranges come."""
        self._partition.add(ids, rectangles[:, Y_LOW], rectangles[:, Y_HIGH])
        self._follow()

    def remove(self, ids: Ints) -> None:
        """Ranges go."""
        self._partition.remove(ids)
        self._follow()

    def _follow(self) -> None:
        """Take those whose group has changed out of the sequences, and put them where they belong."""
        ids, groups, _ = self._partition.take_changes()
        if not len(ids):
            return
        lows, highs = self._partition.lows[ids], self._partition.highs[ids]
        for tree, x, y in ((self._left, lows, highs), (self._right, -highs, lows)):
            tree.reserve(int(ids.max()) + 1)
            done = _put(tree.memory, tree.leaf_of, ids, groups, x, y, 0)
            while done < len(ids):
                tree.grow()
                done = _put(tree.memory, tree.leaf_of, ids, groups, x, y, done)

    def affected(self, tree: Floats, arrivals: Arrivals) -> tuple[Ints, Ints]:
        """(arrival, id) of each range that gets a row."""
        return self._found(tree, arrivals, True)[1:]

    def count_affected(self, tree: Floats, arrivals: Arrivals) -> Ints:
        """How many that are, for each arrival."""
        return self._found(tree, arrivals, False)[0]

    def reached(self, tree: Floats, arrivals: Arrivals) -> Ints:
        """In how many places of sequences the affected ranges begin, for each arrival: O(tau (log m + log n)).

        To read them off from there is part of the output, one step for each.
        """
        return self._found(tree, arrivals, False, 1)[0]

    def _found(
        self, tree: Floats, arrivals: Arrivals, listed: bool, most: int = sys.maxsize
    ) -> tuple[Ints, Ints, Ints]:
        found = self._partition.groups()
        groups = np.array([found.numbers, shared_points(found), found.sizes])
        return _by_sequences(tree, *arrivals, groups, self._left.memory, self._right.memory, listed, most)

    def check(self) -> None:
        """Verify the partition and both sequences, and that each range is in the one of its group."""
        self._partition.check()
        group_of = self._partition.group_of
        there = np.flatnonzero(group_of >= 0)
        for tree, ends in ((self._left, self._partition.lows), (self._right, -self._partition.highs)):
            tree.check()
            ids, xs = entries(tree.memory)
            assert np.array_equal(np.sort(ids), there), "each range is in each sequence once"
            assert np.array_equal(xs, ends[ids])
            assert (np.diff(group_of[ids]) >= 0).all(), "each range is in the sequence of its group"


@kernel
def _put(m: Floats, leaf_of: Ints, ids: Ints, groups: Ints, xs: Floats, ys: Floats, start: int) -> int:
    """Give these ids, from `start` on, their places, as long as there is room; up to where that was."""
    for k in range(start, len(ids)):
        if m[FREE_NODES] < m[HEIGHT] + 2:
            return k
        if leaf_of[ids[k]] >= 0:
            remove(m, leaf_of, ids[k])
        if groups[k] >= 0:
            insert(m, leaf_of, ids[k], groups[k], xs[k], ys[k])
    return len(ids)


@kernel
def _by_sequences(
    m: Floats,
    groups: Floats,
    offsets: Floats,
    xs: Floats,
    found: Floats,
    left: Floats,
    right: Floats,
    listed: bool,
    most: int,
) -> tuple[Ints, Ints, Ints]:
    """At most so many of each sequence are read, where they are not listed."""
    counts = np.zeros(len(xs), np.int64)
    of, ids, used = np.empty(64, np.int64), np.empty(64, np.int64), 0
    for arrival in range(len(xs)):
        group, offset = groups[arrival], offsets[arrival]
        if not has_partners(group, offset, xs[arrival]):
            continue
        for k in range(found.shape[1]):
            number = found[0, k]
            s1, s2 = beside(m, group, offset, found[1, k])
            if s1 == s2 and not listed:
                counts[arrival] += min(int(found[2, k]), most)
                continue
            sequence, end = left, np.inf if s1 == s2 else s1
            for side in range(1 if s1 == s2 else 2):
                if side == 1:
                    sequence, end = right, -s2
                leaf, i = seek(sequence, number, -np.inf, -np.inf)
                seen = 0
                while leaf >= 0 and seen < most:
                    if i == sequence[leaf + COUNT]:
                        leaf, i = int(sequence[leaf + NEXT]), 0
                        continue
                    if sequence[leaf + GROUP + i] != number or not sequence[leaf + X + i] <= end:
                        break
                    seen += 1
                    if side == 0 or not sequence[leaf + Y + i] <= s1:  # those have been named
                        counts[arrival] += 1
                        if listed:
                            if used == len(of):
                                of, ids = longer(of, used, 1), longer(ids, used, 1)
                            of[used], ids[used] = arrival, int(sequence[leaf + ROW + i])
                            used += 1
                    i += 1
    return counts, of[:used], ids[:used]

"""ChannelTable: which neighbours want which messages of one channel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.compiled import kernel
from hullcast.network.matching.messages import RECTANGLES, dimensions_of, unreachable
from hullcast.network.matching.search import mark_met, report_some
from hullcast.network.routing.carve import Space
from hullcast.network.routing.counted import CountedPoints
from hullcast.network.routing.cover import Cover
from hullcast.network.routing.pool import Pool
from hullcast.network.routing.subtree import Subtree
from hullcast.network.wire.arrays import distinct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hullcast.network.matching.messages import BoxBounds
    from hullcast.network.matching.tree import Tree
    from hullcast.network.wire.arrays import Booleans, Floats, Ints

    Routed = tuple[int, Ints | None]  # a neighbour, and its rows; None: all

#: A neighbour with so many points has an index of its own; with half as many, it returns into the crowd's.
MANY = 64
#: Hits of the crowd's index gathered at a time, and bits of a word they are gathered in.
PORTION = 1 << 17
WORD = 64

NOBODY = -1


@dataclass(slots=True)
class Holding:
    """The points of one neighbour whose every point we know: those of each group, by member (-1: withdrawn)."""

    groups: dict[int, Ints] = field(default_factory=dict)
    points: int = 0
    own: Pool | None = None  # None: they are in the crowd's
    slot: int = NOBODY  # in the crowd


class ChannelTable:
    """The interest of all neighbours in one channel.

    Of clients we know every point (*exact*): those with many have a Pool of their own, asked only whether a message
    concerns anybody; all others share one Pool, which names the owners. Of nodes we know a Subtree, or, where the
    channel is *counted*, every point too. Of a counted channel `take_gone` gives the points that went.

    Invariants (`check` tests them):
      T1  The points of a Holding are those of its groups' members that are not withdrawn.
      T2  A Holding with at least MANY points has a Pool of its own, one with fewer than half as many has none.
      T3  Each slot of the crowd is either a Holding's or free, and owners are slots in use.
    """

    def __init__(self, form: str, coordinates: int, *, partitioned: bool, counted: bool, budget: int) -> None:
        self.form, self.coordinates, self.partitioned, self.counted = form, coordinates, partitioned, counted
        self.dimensions = dimensions_of(form, coordinates, partitioned=partitioned)
        self.space = Space(coordinates, self.dimensions, form == RECTANGLES)
        self._budget = budget
        self._holdings: dict[int, Holding] = {}
        self._subtrees: dict[int, Subtree] = {}
        self._below: dict[int, CountedPoints] = {}  # of nodes, where the channel is counted
        self._gone: list[Floats] = []
        self._crowd = Pool(coordinates)
        self._peers: list[int] = []  # by slot
        self._free_slots: list[int] = []

    def __len__(self) -> int:
        """How many neighbours want something."""
        return len(self._holdings) + len(self._subtrees) + len(self._below)

    def peers(self) -> list[int]:
        """They."""
        return [*self._holdings, *self._subtrees, *self._below]

    @property
    def points(self) -> int:
        """How many points there are below; of subtrees, about."""
        exact = sum(holding.points for holding in self._holdings.values())
        exact += sum(counted.total for counted in self._below.values())
        return exact + sum(subtree.points for subtree in self._subtrees.values())

    def take_gone(self) -> list[Floats]:
        """The points that went since this was asked last, each as often as it was held; only of a counted channel."""
        gone, self._gone = self._gone, []
        return gone

    # --- clients -----------------------------------------------------------------------------------------------

    def hold(self, peer: int, group: int, points: Floats) -> bool:
        """A client's new group, which it does not have yet; whether there is anything to hold."""
        loud = ~unreachable(points, self.dimensions)
        if not loud.any():
            return False
        holding = self._holdings.get(peer)
        if holding is None:
            holding = self._holdings[peer] = Holding()
        holding.points += int(loud.sum())
        if holding.own is None and holding.points >= MANY:
            self._move(peer, holding, alone=True)
        ids = np.full(len(points), NOBODY, np.int64)
        ids[loud] = self._pool(peer, holding).add(points[loud], holding.slot)
        holding.groups[group] = ids
        return True

    def release(self, peer: int, group: int, members: Ints | None = None) -> bool:
        """Forget some members of a client's group, or all of it; whether it has any left."""
        holding = self._holdings.get(peer)
        if holding is None or group not in holding.groups:
            return False
        ids = holding.groups[group]
        if members is None:
            gone = ids[ids >= 0]
            ids = ids[:0]
        else:
            members = distinct(members[(members >= 0) & (members < len(ids))], len(ids))
            gone = ids[members]
            gone = gone[gone >= 0]
            ids[members] = NOBODY
        left = bool((ids >= 0).any())
        if not left:
            del holding.groups[group]
        self._remove(peer, holding, gone)
        return left

    def _remove(self, peer: int, holding: Holding, ids: Ints) -> None:
        """Take points that have left their group out of the index, and free memory that is no longer needed."""
        holding.points -= len(ids)
        if self.counted:
            self._gone.append((holding.own or self._crowd).index.points_of(ids))
        if holding.groups or holding.own is None:
            (holding.own or self._crowd).remove(ids)
        if not holding.groups:
            del self._holdings[peer]
            self._free_slot(holding)
        elif holding.own is not None:
            if 2 * holding.points < MANY:
                self._move(peer, holding, alone=False)
            elif holding.own.wants_compaction:
                _rename(holding, holding.own.compact())
        self._tidy_crowd()

    def _pool(self, peer: int, holding: Holding) -> Pool:
        if holding.own is not None:
            return holding.own
        if holding.slot == NOBODY:
            if not self._free_slots:
                self._free_slots.append(len(self._peers))
                self._peers.append(peer)
            holding.slot = self._free_slots.pop()
            self._peers[holding.slot] = peer
        return self._crowd

    def _free_slot(self, holding: Holding) -> None:
        if holding.slot != NOBODY:
            self._peers[holding.slot] = NOBODY
            self._free_slots.append(holding.slot)
            holding.slot = NOBODY
        if len(self._free_slots) == len(self._peers):
            self._free_slots, self._peers = [], []

    def _move(self, peer: int, holding: Holding, *, alone: bool) -> None:
        """Take a neighbour's points out of the crowd's index into one of its own, or back."""
        old = holding.own or self._crowd
        holding.own = Pool(self.coordinates) if alone else None
        if alone:
            self._free_slot(holding)
        new = self._pool(peer, holding)
        for ids in holding.groups.values():
            moving = ids >= 0
            points = old.index.points_of(ids[moving])
            old.remove(ids[moving])
            ids[moving] = new.add(points, holding.slot)
        self._tidy_crowd()

    def _tidy_crowd(self) -> None:
        """Return what the crowd's index and slots took when it was larger."""
        if not self._crowd.wants_compaction:
            return
        self._peers = [peer for peer in self._peers if peer != NOBODY]
        self._free_slots = []
        renamed = self._crowd.compact()
        for slot, peer in enumerate(self._peers):
            holding = self._holdings[peer]
            holding.slot = slot
            _rename(holding, renamed)
            for ids in holding.groups.values():
                self._crowd.marks[ids[ids >= 0]] = slot

    # --- nodes -------------------------------------------------------------------------------------------------

    def install(self, peer: int, number: int, points: Floats) -> None:
        """Points on their way to somebody behind a node."""
        loud = points[~unreachable(points, self.dimensions)]
        if self.counted:
            if len(loud):
                self._below.setdefault(peer, CountedPoints(self.coordinates)).add(loud)
            return
        subtree = self._subtrees.get(peer)
        if subtree is None:
            if not len(loud):
                return
            subtree = self._subtrees[peer] = Subtree(self.space, self._budget)
        subtree.install(number, loud)

    def replace(self, peer: int, heard: int, lows: Floats, highs: Floats) -> None:
        """What a node says is left."""
        subtree = self._subtrees.get(peer)
        if subtree is None:
            return
        subtree.replace(heard, lows, highs)
        if not len(subtree.cover):
            del self._subtrees[peer]

    def withdraw(self, peer: int, points: Floats) -> None:
        """A node says that these points of a counted channel are not wanted any more."""
        below = self._below.get(peer)
        if below is None:
            return
        self._gone.append(below.remove(points))
        if not len(below):
            del self._below[peer]

    # --- both --------------------------------------------------------------------------------------------------

    def leave(self, peer: int) -> None:
        """Forget a neighbour."""
        self._subtrees.pop(peer, None)
        below = self._below.pop(peer, None)
        if below is not None:
            self._gone.append(below.points())
        holding = self._holdings.get(peer)
        if holding is None:
            return
        gone = [ids[ids >= 0] for ids in holding.groups.values()]
        holding.groups = {}
        self._remove(peer, holding, np.concatenate(gone) if gone else np.empty(0, np.int64))

    def route(self, boxes: Sequence[BoxBounds], *, everything: bool) -> Iterator[Routed]:
        """Which neighbours any of the messages concern, and which ones."""
        n = len(boxes[0][0])
        for peer, subtree in self._subtrees.items():
            if everything:
                yield peer, None
                continue
            mask = np.zeros(n, np.bool_)
            for lows, highs in boxes:
                subtree.cover.mark(lows, highs, mask)
            yield from _chosen(peer, mask)
        pools = [(peer, holding.own) for peer, holding in self._holdings.items() if holding.own is not None]
        if everything:
            yield from ((peer, None) for peer in self._below)
        else:
            pools += [(peer, below.pool) for peer, below in self._below.items()]
        for peer, pool in pools:
            mask = np.zeros(n, np.bool_)
            for lows, highs in boxes:
                mark_met(pool.index.arrays, lows, highs, mask)
            yield from _chosen(peer, mask)
        if len(self._crowd):
            counts, begins, rows = rows_by_owner(self._crowd.index.arrays, self._crowd.marks, len(self._peers), boxes)
            slots = np.flatnonzero(counts)
            places = (slots.tolist(), counts[slots].tolist(), begins[slots].tolist())
            for slot, count, begin in zip(*places, strict=True):
                yield self._peers[slot], None if count == n else rows[begin : begin + count]

    def boxes(self) -> BoxBounds:
        """A cover of everything below."""
        cover = Cover(self.space, self._budget)
        parts = [(points, points) for points in self._exact_points()]
        parts += [subtree.cover.boxes() for subtree in self._subtrees.values()]
        if parts:
            cover.extend_boxes(*(np.concatenate(side) for side in zip(*parts, strict=True)))
        return cover.boxes()

    def partitions_held(self, numbers: Floats) -> Booleans:
        """Which of these partitions somebody below may ask for."""
        mask = np.zeros(len(numbers), np.bool_)
        for points in self._exact_points():
            mask |= np.isin(numbers, points[:, -1])
        for subtree in self._subtrees.values():
            mask |= subtree.cover.holds(self.coordinates - 1, numbers)
        return mask

    def _exact_points(self) -> Iterator[Floats]:
        if len(self._crowd):
            yield self._crowd.index.points()
        for holding in self._holdings.values():
            if holding.own is not None:
                yield holding.own.index.points()
        for below in self._below.values():
            yield below.pool.index.points()

    def sizes(self, peer: int) -> tuple[int, int, int]:
        """Points, boxes and bytes of one neighbour; of the crowd's bytes, its share."""
        subtree = self._subtrees.get(peer)
        if subtree is not None:
            return subtree.points, len(subtree.cover), subtree.memory_bytes()
        below = self._below.get(peer)
        if below is not None:
            return below.total, 0, below.memory_bytes()
        holding = self._holdings[peer]
        own = sum(ids.nbytes for ids in holding.groups.values())
        if holding.own is not None:
            return holding.points, 0, own + holding.own.memory_bytes()
        share = holding.points / max(1, len(self._crowd))
        return holding.points, 0, own + round(share * self._crowd.memory_bytes())

    def memory_bytes(self) -> int:
        """Bytes held for all neighbours."""
        return sum(self.sizes(peer)[2] for peer in self.peers())

    def check(self) -> None:
        """Test T1 to T3 and what lies below; AssertionError names the one that is broken."""
        for subtree in self._subtrees.values():
            subtree.check()
        for below in self._below.values():
            below.check()
            assert len(below), "a node that wants nothing"
        assert not (self._subtrees if self.counted else self._below), "counted points in a cover, or others not"
        crowd = 0
        for peer, holding in self._holdings.items():
            present = [ids[ids >= 0] for ids in holding.groups.values()]
            assert sum(map(len, present)) == holding.points, "T1: number of points"
            assert (holding.own is None) or 2 * holding.points >= MANY, "T2: a small one alone"
            assert (holding.own is not None) or holding.points < MANY, "T2: a large one in the crowd"
            pool = holding.own or self._crowd
            assert all(int(one) in pool.index for ids in present for one in ids), "T1: a member is not in the index"
            if holding.own is None:
                crowd += holding.points
                assert holding.slot == NOBODY or self._peers[holding.slot] == peer, "T3: slot of another"
                assert all((pool.marks[ids] == holding.slot).all() for ids in present), "T3: owner"
            else:
                assert len(pool) == holding.points, "T1: a point of nobody"
        assert crowd == len(self._crowd), "T1: a point of nobody in the crowd"
        used = [slot for slot, peer in enumerate(self._peers) if peer != NOBODY]
        assert sorted([*used, *self._free_slots]) == list(range(len(self._peers))), "T3: a slot is lost"


def _rename(holding: Holding, renamed: Ints) -> None:
    for ids in holding.groups.values():
        present = ids >= 0
        ids[present] = renamed[ids[present]]


def _chosen(peer: int, mask: Booleans) -> tuple[Routed, ...]:
    rows = mask.nonzero()[0]
    return ((peer, None if len(rows) == len(mask) else rows),) if len(rows) else ()


def rows_by_owner(
    tree: Tree, owners: Ints, slots: int, boxes: Sequence[tuple[Floats, Floats]]
) -> tuple[Ints, Ints, Ints]:
    """For owners below `slots`: how many of the messages concern each, where its rows begin, and the rows of all.

    Rows of one owner rise. The rows of an owner that all messages concern are left out.

    A message may concern everybody, several times over (by its old and its new place, by several points of one
    neighbour). So hits are gathered as one bit per neighbour and message, which cost the same however many hits there
    are, and count nobody twice: 10,000 neighbours and 2,000 messages are 2.5 MB, a list of hits could have 20 million
    pairs.
    """
    n = len(boxes[0][0])
    bits = np.zeros((slots, (n + WORD - 1) // WORD), np.int64)
    for lows, highs in boxes:
        start = 0
        while start < n:
            start, rows, ids = report_some(tree, lows, highs, start, n, PORTION)
            mark_bits(bits, owners, rows, ids)
    return listed(bits, n)


@kernel
def mark_bits(bits: Ints, owners: Ints, rows: Ints, ids: Ints) -> None:
    """Set the bit of every hit."""
    for i in range(len(rows)):
        bits[owners[ids[i]], rows[i] // WORD] |= np.int64(1) << (rows[i] % WORD)


@kernel
def listed(bits: Ints, n: int) -> tuple[Ints, Ints, Ints]:
    """The bits of each line counted, and listed as numbers; lines with all n bits set are only counted."""
    counts, begins = np.zeros(len(bits), np.int64), np.zeros(len(bits) + 1, np.int64)
    for slot in range(len(bits)):
        for word in range(bits.shape[1]):
            rest = bits[slot, word]
            while rest != 0:
                rest &= rest - 1
                counts[slot] += 1
        begins[slot + 1] = begins[slot] + (counts[slot] if counts[slot] < n else 0)
    rows = np.empty(begins[-1] + 1, np.int64)  # the last write may be one too far
    for slot in range(len(bits)):
        if counts[slot] == n:
            continue
        place = begins[slot]
        for word in range(bits.shape[1]):
            rest = bits[slot, word]
            if rest == 0:
                continue
            for bit in range(WORD):
                rows[place] = word * WORD + bit
                place += (rest >> bit) & 1
    return counts, begins, rows[:-1]

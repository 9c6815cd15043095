"""The A2B-tree: rows ordered by (group, x, y), every subtree knowing its least and greatest y.

See A2BTREE.md for pictures. This file is the face; `nodes.py` keeps the structure, `find.py` searches it, and
`broker/reformulate/kernel.py` runs a batch of updates over it.
"""

from __future__ import annotations

import numpy as np

from hullcast.broker.index.find import range_best_many
from hullcast.broker.index.nodes import (
    CHILD,
    COUNT,
    ENTRIES,
    FEW_INNER,
    FEW_LEAF,
    FREE_NODES,
    GREATEST,
    GROUP,
    HEIGHT,
    INNER,
    LEAF,
    LEAST,
    NEXT,
    NODE_GREATEST,
    NODE_LEAST,
    PARENT,
    PREVIOUS,
    ROOT,
    ROW,
    S_GROUP,
    S_X,
    S_Y,
    WIDTH,
    X,
    Y,
    add_nodes,
    empty_tree,
)
from hullcast.broker.tables.room import with_room
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.network.wire.errors import InvariantBroken

Entry = tuple[float, float, float]

#: Nodes added at once, and row slots, at most: a fraction of a millisecond.
GROWN_AT_ONCE, RESERVED_AT_ONCE = 256, 1 << 16


class A2BTree:
    """Answers two questions: how far is the nearest row that is at least as good, and what is the best in a range?

    Xie (2007), section 5.3, has two tiers: a B-tree on x, and per x a B-tree of its rows on y. Here the lower tier lies
    *inside* the upper: rows of one x are one run of neighbouring entries, sorted by y, in the same leaves. One kind
    of node serves both, a run may be of any length, its ends are the minimum and the maximum, and MIN and MAX
    (and groups: partitions, or the values of a DISTINCT) share one tree.

    Invariants (`check` tests them; every property test calls it after every step):
      A1  Entries are in order of (group, x, y), over all leaves; the leaf chain agrees with the tree.
      A2  Every node but the root is at least a quarter full; an inner root has two children or more.
      A3  All leaves are equally deep; every child names its parent; `leaf_of` names the leaf of every row.
      A4  Every extent (of a node, and of a child in its parent) is the exact least and greatest y below.
      A5  A separator stands before no entry left of it, and behind no entry right of it.

    Cost for N rows, B entries a node, k messages: insert, remove, find and range_best O(log_B N) nodes; a hull
    O(k log_B N), mostly O(k) inside one leaf.
    """

    def __init__(self) -> None:
        self._room = empty_tree()
        self.memory = self._room  # its nodes; what is beyond is not touched, and so takes no memory yet
        self._slots: Ints = np.empty(0, np.int64)
        self.leaf_of = self._slots
        self.reserve(16)

    def __len__(self) -> int:
        return int(self.memory[ENTRIES])

    def reserve(self, slots: int) -> None:
        """Be ready for row slots below `slots`."""
        known = len(self.leaf_of)
        if slots > known:
            slots = max(slots, known + min(known, RESERVED_AT_ONCE))
            self._slots = with_room(self._slots, slots)
            self.leaf_of = self._slots[:slots]
            self.leaf_of[known:] = -1

    def grow(self) -> None:
        """Add nodes: twice as many as before, or as many as a fraction of a millisecond allows."""
        first = len(self.memory)
        size = first + min(max(8, first // WIDTH), GROWN_AT_ONCE) * WIDTH
        self._room = with_room(self._room, size)
        self.memory = self._room[:size]
        add_nodes(self.memory, first)

    def range_best(self, groups: Floats, lows: Floats, highs: Floats, sign: float) -> Floats:
        """MIN (sign +1) or MAX (-1) of y over each closed range of its group; +inf (-inf) where there is no row."""
        return sign * range_best_many(self.memory, groups, lows, highs, sign)

    def memory_bytes(self) -> int:
        """Bytes held, free nodes included."""
        return self.memory.nbytes + self.leaf_of.nbytes

    def check(self) -> None:
        """Verify A1 to A5, or raise InvariantBroken."""
        m = self.memory
        root, height = int(m[ROOT]), int(m[HEIGHT])
        _expect(m[root + PARENT] == -1, "A3 the root has no parent")
        _expect(height == 0 or m[root + COUNT] >= 2, "A2 an inner root has two children or more")
        nodes, leaves, entries = self._check_node(root, height)
        keys = [entry for entry, _ in entries]
        _expect(keys == sorted(keys), "A1 entries are in order")
        _expect(len(entries) == m[ENTRIES], "A1 the number of entries is right")
        for here, after in zip([-1, *leaves], [*leaves, -1], strict=True):
            _expect(here < 0 or m[here + NEXT] == after, "A1 the leaf chain runs to the right")
            _expect(after < 0 or m[after + PREVIOUS] == here, "A1 the leaf chain runs to the left")
        rows = {slot for _, slot in entries}
        placed = {int(slot) for slot in np.flatnonzero(self.leaf_of >= 0)}
        _expect(placed == rows and len(rows) == len(entries), "A3 leaf_of holds just the rows of the tree")
        _expect(nodes + m[FREE_NODES] + 1 == len(m) // WIDTH, "every node is in the tree or free")

    def _check_node(self, node: int, height: int) -> tuple[int, list[int], list[tuple[Entry, int]]]:
        """(nodes, leaves, entries with their slots) below a node that keeps every invariant."""
        m = self.memory
        count = int(m[node + COUNT])
        few, capacity = (FEW_LEAF, LEAF) if height == 0 else (FEW_INNER, INNER)
        _expect(count <= capacity and (count >= few or node == m[ROOT]), "A2 a node is a quarter full or more")
        if height == 0:
            entries = [
                ((float(m[node + GROUP + i]), float(m[node + X + i]), float(m[node + Y + i])), int(m[node + ROW + i]))
                for i in range(count)
            ]
            _expect(all(self.leaf_of[slot] == node for _, slot in entries), "A3 leaf_of names the leaf")
            self._check_extent(node, entries)
            return 1, [node], entries
        nodes, leaves, entries = 1, list[int](), list[tuple[Entry, int]]()
        for i in range(count):
            child = int(m[node + CHILD + i])
            _expect(m[child + PARENT] == node, "A3 a child names its parent")
            _expect(m[child + NODE_LEAST] == m[node + LEAST + i], "A4 the parent knows the least y")
            _expect(m[child + NODE_GREATEST] == m[node + GREATEST + i], "A4 the parent knows the greatest y")
            below = self._check_node(child, height - 1)
            if i > 0:
                separator = (float(m[node + S_GROUP + i]), float(m[node + S_X + i]), float(m[node + S_Y + i]))
                _expect(entries[-1][0] <= separator <= below[2][0][0], "A5 a separator separates")
            nodes += below[0]
            leaves += below[1]
            entries += below[2]
        self._check_extent(node, entries)
        return nodes, leaves, entries

    def _check_extent(self, node: int, entries: list[tuple[Entry, int]]) -> None:
        ys = [entry[2] for entry, _ in entries]
        _expect(self.memory[node + NODE_LEAST] == min(ys, default=np.inf), "A4 a node knows its least y")
        _expect(self.memory[node + NODE_GREATEST] == max(ys, default=-np.inf), "A4 a node knows its greatest y")


def _expect(holds: object, invariant: str) -> None:
    if not holds:
        raise InvariantBroken(f"A2B-tree: {invariant}")

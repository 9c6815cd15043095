"""Intervals ordered by left end: a search tree that knows the least right end of every subtree.

Two flat arrays, one row per node. Row 0 stands for "no node": its LEFT is the root, its RIGHT the next unused row.

The tree is balanced by rebuilding (a scapegoat tree): no node has a child with more than 0.7 of its nodes, give or
take one; an insertion that breaks this makes the topmost such subtree perfectly balanced. A removed interval leaves
its node behind, dead; when there are more dead nodes than live ones, `Ordered.remove` loads the tree again. So the
height is O(log n), and insertions and removals take O(log n) amortised: a subtree of s nodes is rebuilt in O(s) only
after a constant share of s insertions below it, and the whole tree only after as many removals as it has nodes.

Not a treap (no chance needed, a bulk load is a perfect tree at once), and not the A2B-tree, which is ordered likewise
and knows the least y of every subtree, but not the number of rows: sizes of groups would have to be counted row by row.
"""

from __future__ import annotations

from typing import TypeVar, cast

import numpy as np

from hullcast.network.compiled import kernel, part
from hullcast.network.wire.arrays import Booleans, Floats, Ints
from hullcast.network.wire.errors import InvariantBroken

LEFT, RIGHT, PARENT, LIVE, NODES, ID = range(6)  # columns of links; LIVE and NODES count the subtree; ID is -1 if dead
LOW, HIGH, MIN_LOW, MAX_LOW, MIN_HIGH = range(5)  # columns of keys; the last three are of the subtree's live nodes
HEAVY = 0.7
_SMALLEST = 32

Array = TypeVar("Array", Floats, Ints, Booleans)


class Ordered:
    """Intervals by id, in order of their left ends.

    Invariants (`check` tests them):
      O1  Live nodes are in order of LOW; `node_of` names the live node of every id.
      O2  LIVE, NODES, MIN_LOW, MAX_LOW and MIN_HIGH of every node are right.
      O3  No child has more than 0.7 times the nodes of its parent, plus one.
      O4  At most half of the nodes are dead, a few aside.
    """

    def __init__(self) -> None:
        self.node_of: Ints = np.zeros(_SMALLEST, np.int64)
        self.keys: Floats = np.empty((0, 5))
        self.links: Ints = np.empty((0, 6), np.int64)
        self.scratch: Ints = np.empty(0, np.int64)
        self._clear(_SMALLEST)

    def __len__(self) -> int:
        return int(self.links[self.links[0, LEFT], LIVE])

    def reserve(self, ids: int) -> None:
        """Be ready for ids below `ids`."""
        if ids > len(self.node_of):
            self.node_of = grown(self.node_of, ids, 0)

    def make_room(self, more: int) -> None:
        """Be ready for so many insertions."""
        need = int(self.links[0, RIGHT]) + more
        if need > len(self.links):
            self.keys, self.links = grown(self.keys, need, 0.0), grown(self.links, need, 0)
            self.scratch = np.empty(2 * len(self.links), np.int64)

    def ids(self) -> Ints:
        """All ids, in order."""
        ids = np.empty(len(self), np.int64)
        list_ids(self.links, ids)
        return ids

    def load(self, ids: Ints, lows: Floats, highs: Floats) -> None:
        """Hold just these, which are in order of `lows`."""
        self._clear(max(_SMALLEST, 2 * len(ids)))
        load(self.keys, self.links, ids, lows, highs, self.node_of, self.scratch)

    def insert(self, ids: Ints, lows: Floats, highs: Floats) -> None:
        """Add intervals, one by one."""
        self.make_room(len(ids))
        insert_many(self.keys, self.links, ids, lows, highs, self.node_of, self.scratch)

    def remove(self, ids: Ints) -> None:
        """Forget these."""
        if 4 * len(ids) > len(self):  # faster than one by one
            gone = np.zeros(len(self.node_of), np.bool_)
            gone[ids] = True
            there = self.ids()
            self._reload(there[~gone[there]])
        else:
            remove_many(self.keys, self.links, ids, self.node_of)
            self.tidy()

    def tidy(self) -> None:
        """Drop dead nodes, if there are more of them than live ones."""
        root = self.links[0, LEFT]
        if self.links[root, NODES] > 2 * self.links[root, LIVE] + _SMALLEST:
            self._reload(self.ids())

    def ranks(self, values: Floats) -> Ints:
        """How many left ends lie below each value."""
        found = np.empty(len(values), np.int64)
        ranks(self.keys, self.links, values, found)
        return found

    def between(self, edges: Floats, which: Booleans) -> Ints:
        """Ids of the intervals whose left ends lie between a marked edge and the next edge (or behind the last)."""
        counts = np.diff(self.ranks(edges), append=len(self))[which]
        ids = np.empty(int(counts.sum()), np.int64)
        list_from(self.keys, self.links, edges[which], counts, ids)
        return ids

    def memory_bytes(self) -> int:
        """Bytes held."""
        return self.node_of.nbytes + self.keys.nbytes + self.links.nbytes + self.scratch.nbytes

    def check(self) -> None:
        """Verify O1 to O4, or raise InvariantBroken."""
        nodes = np.arange(1, self.links[0, RIGHT])
        links, keys = self.links[nodes], self.keys[nodes]
        alive = links[:, ID] >= 0
        for side in (LEFT, RIGHT):
            has = links[:, side] > 0
            child = self.links[links[has, side]]
            _expect(bool((child[:, PARENT] == nodes[has]).all()), "O2 children name their parent")
            _expect(bool((child[:, NODES] <= HEAVY * links[has, NODES] + 1).all()), "O3 no child is too heavy")
        both = links[:, [LEFT, RIGHT]]
        for column, own in ((LIVE, alive), (NODES, 1)):
            _expect(bool((links[:, column] == self.links[both, column].sum(axis=1) + own).all()), "O2 counts")
        for column, mine, none, best in (
            (MIN_LOW, LOW, np.inf, np.minimum),
            (MAX_LOW, LOW, -np.inf, np.maximum),
            (MIN_HIGH, HIGH, np.inf, np.minimum),
        ):
            below = best.reduce(self.keys[both, column], axis=1)
            _expect(bool((keys[:, column] == best(below, np.where(alive, keys[:, mine], none))).all()), "O2 ends")
        _expect(self.links[self.links[0, LEFT], NODES] == len(nodes), "O2 every node is in the tree")
        _expect(len(nodes) <= 2 * len(self) + _SMALLEST, "O4 most nodes are alive")
        ids = self.ids()
        _expect(bool((self.links[self.node_of[ids], ID] == ids).all()), "O1 node_of names every node")
        lows = self.keys[self.node_of[ids], LOW]
        _expect(bool((lows[:-1] <= lows[1:]).all()), "O1 live nodes are in order")

    def _reload(self, ids: Ints) -> None:
        at = self.node_of[ids]
        self.load(ids, self.keys[at, LOW], self.keys[at, HIGH])

    def _clear(self, size: int) -> None:
        if not size <= len(self.links) <= 8 * size:
            self.keys, self.links = np.empty((size, 5)), np.empty((size, 6), np.int64)
            self.scratch = np.empty(2 * size, np.int64)
        self.links[0] = 0
        self.keys[0] = (0.0, 0.0, np.inf, -np.inf, np.inf)
        self.links[0, RIGHT] = 1


def grown(array: Array, size: int, fill: float) -> Array:
    """A copy with room for `size` rows and more, the new ones filled."""
    more = np.full((max(size, 2 * len(array)) - len(array), *array.shape[1:]), fill, array.dtype)
    return cast("Array", np.concatenate((array, more)))


def _expect(condition: bool | np.bool_, what: str) -> None:
    if not condition:
        raise InvariantBroken(what)


# --- structure -----------------------------------------------------------------------------------------------------


@part
def _pull(keys: Floats, links: Ints, node: int) -> None:
    """Recompute what a node knows of its subtree."""
    left, right = links[node, LEFT], links[node, RIGHT]
    links[node, LIVE] = links[left, LIVE] + links[right, LIVE]
    links[node, NODES] = links[left, NODES] + links[right, NODES] + 1
    low, high = min(keys[left, MIN_LOW], keys[right, MIN_LOW]), max(keys[left, MAX_LOW], keys[right, MAX_LOW])
    end = min(keys[left, MIN_HIGH], keys[right, MIN_HIGH])
    if links[node, ID] >= 0:
        links[node, LIVE] += 1
        low, high, end = min(low, keys[node, LOW]), max(high, keys[node, LOW]), min(end, keys[node, HIGH])
    keys[node, MIN_LOW], keys[node, MAX_LOW], keys[node, MIN_HIGH] = low, high, end


@part
def pull_up(keys: Floats, links: Ints, node: int) -> None:
    """Recompute a node and all above it."""
    while node:
        _pull(keys, links, node)
        node = links[node, PARENT]


@part
def erase(keys: Floats, links: Ints, node: int) -> None:
    """The node is dead from now on."""
    links[node, ID] = -1
    pull_up(keys, links, node)


@part
def _first(links: Ints, node: int) -> int:
    while links[node, LEFT]:
        node = links[node, LEFT]
    return int(node)


@part
def _after(links: Ints, node: int, root: int) -> int:
    """The next node in order below `root`, 0 behind the last."""
    if links[node, RIGHT]:
        return _first(links, links[node, RIGHT])
    while node != root and links[links[node, PARENT], LEFT] != node:
        node = links[node, PARENT]
    return 0 if node == root else int(links[node, PARENT])


@part
def _push(stack: Ints, at: int, start: int, end: int, parent: int, side: int) -> None:
    stack[at, 0], stack[at, 1], stack[at, 2], stack[at, 3] = start, end, parent, side


@part
def _balance(keys: Floats, links: Ints, nodes: Ints, made: Ints, parent: int, side: int) -> None:
    """Make these nodes, which are in order, a perfectly balanced subtree below `parent`."""
    stack = np.empty((128, 4), np.int64)
    _push(stack, 0, 0, len(nodes), parent, side)
    waiting, n = 1, 0
    while waiting:
        waiting -= 1
        start, end, parent, side = stack[waiting, 0], stack[waiting, 1], stack[waiting, 2], stack[waiting, 3]
        if start == end:
            links[parent, side] = 0
            continue
        middle = (start + end) // 2
        node = nodes[middle]
        links[parent, side] = node
        links[node, PARENT] = parent
        made[n] = node
        n += 1
        _push(stack, waiting, middle + 1, end, node, RIGHT)
        _push(stack, waiting + 1, start, middle, node, LEFT)
        waiting += 2
    for i in range(n - 1, -1, -1):
        _pull(keys, links, made[i])


@part
def insert(keys: Floats, links: Ints, low: float, high: float, number: int, scratch: Ints) -> int:
    """Add an interval; returns its node. There must be room for it."""
    parent, side, heavy = 0, LEFT, 0
    child = links[0, LEFT]
    while child:
        links[child, LIVE] += 1
        links[child, NODES] += 1
        if heavy == 0 and parent and links[child, NODES] > HEAVY * links[parent, NODES] + 1:
            heavy = parent
        keys[child, MIN_LOW], keys[child, MAX_LOW] = min(keys[child, MIN_LOW], low), max(keys[child, MAX_LOW], low)
        keys[child, MIN_HIGH] = min(keys[child, MIN_HIGH], high)
        parent = child
        # the key of a dead node may be out of date (those of groups change), that of live ones never is
        before = keys[child, LOW] if links[child, ID] >= 0 else keys[links[child, LEFT], MAX_LOW]
        side = RIGHT if before <= low else LEFT
        child = links[child, side]
    node = links[0, RIGHT]
    links[0, RIGHT] = node + 1
    keys[node, LOW], keys[node, HIGH] = low, high
    keys[node, MIN_LOW], keys[node, MAX_LOW], keys[node, MIN_HIGH] = low, low, high
    links[node, LEFT] = links[node, RIGHT] = 0
    links[node, PARENT], links[node, ID] = parent, number
    links[node, LIVE] = links[node, NODES] = 1
    links[parent, side] = node
    if heavy:
        n, at = 0, _first(links, heavy)
        while at:
            scratch[n] = at
            n += 1
            at = _after(links, at, heavy)
        above = links[heavy, PARENT]
        _balance(keys, links, scratch[:n], scratch[n:], above, LEFT if links[above, LEFT] == heavy else RIGHT)
    return int(node)


# --- questions -----------------------------------------------------------------------------------------------------


@part
def last_at_most(keys: Floats, links: Ints, value: float) -> int:
    """The last live node whose LOW is at most `value`; 0 if there is none."""
    node = links[0, LEFT]
    while node:
        right = links[node, RIGHT]
        if keys[right, MIN_LOW] <= value and links[right, LIVE]:
            node = right
        elif links[node, ID] >= 0 and keys[node, LOW] <= value:
            return int(node)
        else:
            node = links[node, LEFT]
    return 0


@part
def _first_from(keys: Floats, links: Ints, value: float) -> int:
    """The first live node whose LOW is at least `value`; 0 if there is none."""
    node = links[0, LEFT]
    while node:
        left = links[node, LEFT]
        if keys[left, MAX_LOW] >= value and links[left, LIVE]:
            node = left
        elif links[node, ID] >= 0 and keys[node, LOW] >= value:
            return int(node)
        else:
            node = links[node, RIGHT]
    return 0


@part
def _rank(keys: Floats, links: Ints, value: float) -> int:
    count, node = 0, links[0, LEFT]
    while node:
        if links[node, ID] >= 0:
            right = keys[node, LOW] < value
        else:  # all of the left subtree may be counted at once
            right = keys[links[node, LEFT], MAX_LOW] < value
        if right:
            count += links[links[node, LEFT], LIVE] + (links[node, ID] >= 0)
        node = links[node, RIGHT if right else LEFT]
    return int(count)


@kernel
def find_runs(
    keys: Floats, links: Ints, starts: Floats, meets: Floats, counts: Ints, witnesses: Ints
) -> tuple[int, int]:
    """The greedy partition: of each run its first left end, common intersection, size, and the id that ends first.

    Returns how many there are (-1 if there are more than fit), and how many nodes were visited: O(log n) a run, because
    whole subtrees join a run at once::

        . . . [a  b (c  d  e) (f  g  h  i  j) (k  l) m] n . . .      a run from a to m: from node a up, then down to m.
           node a, then what hangs to the right of the way; (..) is a subtree whose last left end is
           not behind its least right end, nor behind that of the run so far
    """
    runs, steps = 0, 0
    node = _first_from(keys, links, -np.inf)
    while node:
        if runs == len(starts):
            return -1, steps
        starts[runs] = keys[node, LOW]
        last, end, count, least = keys[node, LOW], keys[node, HIGH], 1, node
        whole = False  # whether `least` stands for its subtree
        inside = False  # whether the run ends below `below`
        below = links[node, RIGHT]
        while True:
            steps += 1
            if below:
                if keys[below, MAX_LOW] <= min(end, keys[below, MIN_HIGH]):  # all of it belongs to the run
                    if links[below, LIVE]:
                        if keys[below, MIN_HIGH] < end:
                            end, least, whole = keys[below, MIN_HIGH], below, True
                        last = keys[below, MAX_LOW]
                        count += links[below, LIVE]
                else:
                    inside = True
                    break
            while links[links[node, PARENT], LEFT] != node:  # up, as long as we come from the right
                steps += 1
                node = links[node, PARENT]
            node = links[node, PARENT]
            if node == 0:
                break
            if links[node, ID] >= 0:
                if keys[node, LOW] > end:
                    break
                last = keys[node, LOW]
                count += 1
                if keys[node, HIGH] < end:
                    end, least, whole = keys[node, HIGH], node, False
            below = links[node, RIGHT]
        if inside:
            node = below
            while True:
                steps += 1
                left = links[node, LEFT]
                if links[left, LIVE]:
                    if keys[left, MAX_LOW] > min(end, keys[left, MIN_HIGH]):
                        node = left
                        continue
                    if keys[left, MIN_HIGH] < end:
                        end, least, whole = keys[left, MIN_HIGH], left, True
                    last = keys[left, MAX_LOW]
                    count += links[left, LIVE]
                if links[node, ID] >= 0:
                    if keys[node, LOW] > end:
                        break
                    last = keys[node, LOW]
                    count += 1
                    if keys[node, HIGH] < end:
                        end, least, whole = keys[node, HIGH], node, False
                node = links[node, RIGHT]
        while whole and (links[least, ID] < 0 or keys[least, HIGH] != end):
            steps += 1
            left = links[least, LEFT]
            least = left if links[left, LIVE] and keys[left, MIN_HIGH] == end else links[least, RIGHT]
        meets[runs, 0], meets[runs, 1] = last, end
        counts[runs], witnesses[runs] = count, links[least, ID]
        runs += 1
    return runs, steps


# --- for whole batches ---------------------------------------------------------------------------------------------


@kernel
def load(keys: Floats, links: Ints, ids: Ints, lows: Floats, highs: Floats, node_of: Ints, scratch: Ints) -> None:
    """Fill an empty tree."""
    n = len(ids)
    for i in range(n):
        keys[i + 1, LOW], keys[i + 1, HIGH] = lows[i], highs[i]
        links[i + 1, ID] = ids[i]
        node_of[ids[i]] = scratch[i] = i + 1
    links[0, RIGHT] = n + 1
    _balance(keys, links, scratch[:n], scratch[n:], 0, LEFT)


@kernel
def insert_many(
    keys: Floats, links: Ints, ids: Ints, lows: Floats, highs: Floats, node_of: Ints, scratch: Ints
) -> None:
    """Add intervals."""
    for i in range(len(ids)):
        node_of[ids[i]] = insert(keys, links, lows[i], highs[i], ids[i], scratch)


@kernel
def remove_many(keys: Floats, links: Ints, ids: Ints, node_of: Ints) -> None:
    """Remove intervals."""
    for i in range(len(ids)):
        erase(keys, links, node_of[ids[i]])


@kernel
def list_ids(links: Ints, ids: Ints) -> None:
    """All ids, in order."""
    root = links[0, LEFT]
    n, node = 0, _first(links, root) if root else 0
    while node:
        if links[node, ID] >= 0:
            ids[n] = links[node, ID]
            n += 1
        node = _after(links, node, root)


@kernel
def ranks(keys: Floats, links: Ints, values: Floats, found: Ints) -> None:
    """How many left ends lie below each value."""
    for i in range(len(values)):
        found[i] = _rank(keys, links, values[i])


@kernel
def list_from(keys: Floats, links: Ints, lows: Floats, counts: Ints, ids: Ints) -> None:
    """Ids of `counts` intervals from each low on."""
    n, root = 0, links[0, LEFT]
    for i in range(len(lows)):
        left = counts[i]
        node = _first_from(keys, links, lows[i]) if left else 0
        while left:
            if links[node, ID] >= 0:
                ids[n] = links[node, ID]
                n += 1
                left -= 1
            node = _after(links, node, root)

"""Memory of an A2B-tree: nodes in one flat array, and the work that keeps them a B-tree.

A tree is *one* float64 array. A node is a block of WIDTH numbers, named by the address of its first one; block 0
holds the tree's own figures. Node addresses and row slots are whole numbers and exact in a float64::

    leaf    header | group x LEAF | x x LEAF | y x LEAF | row x LEAF
    inner   header | group x INNER | x x INNER | y x INNER | least x INNER | greatest x INNER | child x INNER

so `m[leaf + X + i]` is the x of a leaf's entry i, and a search reads one stretch of memory per node. One array
because a kernel call pays for every array it is given, to run and to compile (ten took almost twice as long).

Entries are ordered by (group, x, y). `least` and `greatest` are the extremes of y below a child.

Separators are *truncated*: where the left neighbour ends with another (group, x), the separator's y is -inf.
Rows of one x therefore stay on one side of it whatever their y becomes, and a change of y alone can be
made in place. Only where a run of equal x crossed from one leaf into the next is a separator's y a real one.
"""

from __future__ import annotations

import numpy as np

from hullcast.network.compiled import kernel, part
from hullcast.network.wire.arrays import Floats, Ints

#: Entries a node: 3 leaf entries take the room of 2 inner ones. Measured: see A2BTREE.md, "Node size".
INNER = 48
LEAF = INNER * 3 // 2
FEW_INNER = INNER // 4  # below this a node takes from, or merges with, a neighbour
FEW_LEAF = LEAF // 4

# Header of a node. Free nodes are chained by NEXT.
COUNT, PARENT, PREVIOUS, NEXT, NODE_LEAST, NODE_GREATEST = 0, 1, 2, 3, 4, 5
HEADER = 8
WIDTH = HEADER + 6 * INNER

# Where a leaf's rows of entries begin.
GROUP, X, Y, ROW = HEADER, HEADER + LEAF, HEADER + 2 * LEAF, HEADER + 3 * LEAF

# Where an inner node's rows of entries begin; the first three are the separators.
S_GROUP, S_X, S_Y = HEADER, HEADER + INNER, HEADER + 2 * INNER
LEAST, GREATEST, CHILD = HEADER + 3 * INNER, HEADER + 4 * INNER, HEADER + 5 * INNER

# Block 0: figures of the tree. HEIGHT counts the levels above the leaves.
ROOT, HEIGHT, ENTRIES, FREE, FREE_NODES = 0, 1, 2, 3, 4


def empty_tree(nodes: int = 4) -> Floats:
    """A tree without rows: one empty leaf, which is the root."""
    m = np.zeros((1 + nodes) * WIDTH)
    m[FREE] = -1
    add_nodes(m, WIDTH)
    m[ROOT] = take_node(m)
    return m


def add_nodes(m: Floats, first: int) -> None:
    """What lies behind the tree in its memory, from `first` on, are nodes that are free."""
    nodes = np.arange(first, len(m), WIDTH)
    m[nodes + NEXT] = np.append(nodes[1:], m[FREE])
    m[FREE] = first
    m[FREE_NODES] += len(nodes)


@kernel
def take_node(m: Floats) -> int:
    """An empty node from the free list; the caller made sure that there is one."""
    node = int(m[FREE])
    m[FREE] = m[node + NEXT]
    m[FREE_NODES] -= 1
    m[node + COUNT] = 0
    m[node + PARENT] = m[node + PREVIOUS] = m[node + NEXT] = -1
    m[node + NODE_LEAST] = np.inf
    m[node + NODE_GREATEST] = -np.inf
    return node


@part
def _free_node(m: Floats, node: int, height: int) -> None:
    if height == 0:
        left, right = int(m[node + PREVIOUS]), int(m[node + NEXT])
        if left >= 0:
            m[left + NEXT] = right
        if right >= 0:
            m[right + PREVIOUS] = left
    m[node + NEXT] = m[FREE]
    m[FREE] = node
    m[FREE_NODES] += 1


# --- positions ---------------------------------------------------------------------------------------------------


@part
def _first_not_before(m: Floats, node: int, capacity: int, group: float, x: float, y: float) -> int:
    """Where (group, x, y) belongs in a node: the first entry that does not stand before it."""
    groups, xs, ys = node + HEADER, node + HEADER + capacity, node + HEADER + 2 * capacity
    low, high = 0, int(m[node + COUNT])
    while low < high:
        i = (low + high) >> 1
        other = m[xs + i]
        if m[groups + i] != group:
            is_before = m[groups + i] < group
        elif other != x:
            is_before = other < x
        else:
            is_before = m[ys + i] < y
        if is_before:
            low = i + 1
        else:
            high = i
    return low


@part
def _child_at(m: Floats, node: int, group: float, x: float, y: float) -> int:
    """Among which child's entries (group, x, y) falls: the last whose separator stands before it."""
    at = _first_not_before(m, node, INNER, group, x, y)
    return at - 1 if at > 0 else 0


@part
def child_index(m: Floats, node: int, child: int) -> int:
    """At which entry of its parent a node hangs."""
    i = node + CHILD
    while m[i] != child:
        i += 1
    return i - node - CHILD


@part
def seek(m: Floats, group: float, x: float, y: float) -> tuple[int, int]:
    """(leaf, i) of the first entry not before (group, x, y); i = count at the very end."""
    node = int(m[ROOT])
    for _ in range(int(m[HEIGHT])):
        node = int(m[node + CHILD + _child_at(m, node, group, x, y)])
    i = _first_not_before(m, node, LEAF, group, x, y)
    if i == m[node + COUNT] and m[node + NEXT] >= 0:
        return int(m[node + NEXT]), 0
    return node, i


@part
def position_of(m: Floats, leaf: int, slot: int) -> int:
    """At which entry of its leaf a row stands."""
    i = leaf + ROW
    while m[i] != slot:
        i += 1
    return i - leaf - ROW


@part
def separator_of(m: Floats, node: int) -> int:
    """Where the separator before a node stands (m[s + S_X] is its x); -1 before the leftmost node."""
    parent = int(m[node + PARENT])
    while parent >= 0:
        i = child_index(m, parent, node)
        if i > 0:
            return parent + i
        node, parent = parent, int(m[parent + PARENT])
    return -1


# --- extents -----------------------------------------------------------------------------------------------------


@part
def _measure(m: Floats, node: int, height: int) -> None:
    """Set a node's extent from its entries."""
    least, greatest = np.inf, -np.inf
    lows, highs = (node + Y, node + Y) if height == 0 else (node + LEAST, node + GREATEST)
    for i in range(int(m[node + COUNT])):
        least = min(least, m[lows + i])
        greatest = max(greatest, m[highs + i])
    m[node + NODE_LEAST] = least
    m[node + NODE_GREATEST] = greatest


@part
def _tell_parents(m: Floats, node: int) -> None:
    """Carry a node's extent up, as far as it changes anything."""
    parent = int(m[node + PARENT])
    while parent >= 0:
        least, greatest = m[node + NODE_LEAST], m[node + NODE_GREATEST]
        i = parent + child_index(m, parent, node)
        was_least, was_greatest = m[i + LEAST], m[i + GREATEST]
        if was_least == least and was_greatest == greatest:
            return
        m[i + LEAST] = least
        m[i + GREATEST] = greatest
        old_least, old_greatest = m[parent + NODE_LEAST], m[parent + NODE_GREATEST]
        if (was_least == old_least and least > was_least) or (was_greatest == old_greatest and greatest < was_greatest):
            _measure(m, parent, 1)
        else:
            m[parent + NODE_LEAST] = min(old_least, least)
            m[parent + NODE_GREATEST] = max(old_greatest, greatest)
        if m[parent + NODE_LEAST] == old_least and m[parent + NODE_GREATEST] == old_greatest:
            return
        node, parent = parent, int(m[parent + PARENT])


@part
def change_y(m: Floats, leaf: int, i: int, y: float) -> None:
    """Give entry i another y; the caller made sure that its place in the order stays the same."""
    was = m[leaf + Y + i]
    m[leaf + Y + i] = y
    least, greatest = m[leaf + NODE_LEAST], m[leaf + NODE_GREATEST]
    if (was == least and y > was) or (was == greatest and y < was):
        _measure(m, leaf, 0)
        _tell_parents(m, leaf)
    elif y < least or y > greatest:
        m[leaf + NODE_LEAST] = min(least, y)
        m[leaf + NODE_GREATEST] = max(greatest, y)
        _tell_parents(m, leaf)


# --- moving entries ----------------------------------------------------------------------------------------------


@part
def _copy(m: Floats, height: int, source: int, at: int, target: int, to: int, count: int) -> None:
    """Copy entries between nodes, or within one towards either side."""
    capacity, rows = (LEAF, 4) if height == 0 else (INNER, 6)
    for row in range(rows):
        a = source + HEADER + row * capacity + at
        b = target + HEADER + row * capacity + to
        for k in range(count):
            i = k if to <= at else count - 1 - k
            m[b + i] = m[a + i]


@part
def _shift(m: Floats, node: int, height: int, at: int, by: int) -> None:
    """Move the entries from `at` on by one place: to the right (by = 1) or to the left, over at - 1 (by = -1)."""
    count = int(m[node + COUNT])
    _copy(m, height, node, at, node, at + by, count - at)
    m[node + COUNT] = count + by


@part
def _adopt(m: Floats, leaf_of: Ints, node: int, height: int) -> None:
    """Tell every row or child of the node where it is now."""
    for i in range(int(m[node + COUNT])):
        if height == 0:
            leaf_of[int(m[node + ROW + i])] = node
        else:
            m[int(m[node + CHILD + i]) + PARENT] = node


@part
def _separate(m: Floats, parent: int, i: int, left: int, right: int, height: int) -> None:
    """Entry i of the parent separates its child `right` from `left` before it."""
    if height == 0:
        last = left + int(m[left + COUNT]) - 1
        m[parent + S_GROUP + i] = m[right + GROUP]
        m[parent + S_X + i] = m[right + X]
        crossed = m[last + X] == m[right + X] and m[last + GROUP] == m[right + GROUP]
        m[parent + S_Y + i] = m[right + Y] if crossed else -np.inf
    else:
        m[parent + S_GROUP + i] = m[right + S_GROUP]
        m[parent + S_X + i] = m[right + S_X]
        m[parent + S_Y + i] = m[right + S_Y]


@part
def _record(m: Floats, parent: int, i: int, child: int) -> None:
    """Entry i of the parent leads to the child and carries its extent."""
    m[parent + CHILD + i] = child
    m[child + PARENT] = parent
    m[parent + LEAST + i] = m[child + NODE_LEAST]
    m[parent + GREATEST + i] = m[child + NODE_GREATEST]


# --- inserting ---------------------------------------------------------------------------------------------------


@part
def _split(m: Floats, leaf_of: Ints, node: int, parent: int, i: int, height: int) -> None:
    """Halve a full node, entry i of a parent with room.

    before   parent [.. i ..]          after   parent [.. i  i+1 ..]
                     |                                  |   |
              [a b c d e f g h]                   [a b c d] [e f g h]
    """
    right = take_node(m)
    count = int(m[node + COUNT])
    half = count >> 1
    _copy(m, height, node, half, right, 0, count - half)
    m[node + COUNT] = half
    m[right + COUNT] = count - half
    if height == 0:
        after = int(m[node + NEXT])
        m[right + PREVIOUS], m[right + NEXT], m[node + NEXT] = node, after, right
        if after >= 0:
            m[after + PREVIOUS] = right
    for half_node in (node, right):
        _adopt(m, leaf_of, half_node, height)
        _measure(m, half_node, height)
    _shift(m, parent, 1, i + 1, 1)
    _separate(m, parent, i + 1, node, right, height)
    _record(m, parent, i, node)
    _record(m, parent, i + 1, right)


@part
def insert(m: Floats, leaf_of: Ints, slot: int, group: float, x: float, y: float) -> None:
    """Add a row. Full nodes are split on the way down, so a parent always has room."""
    node, height = int(m[ROOT]), int(m[HEIGHT])
    if m[node + COUNT] == (LEAF if height == 0 else INNER):
        root = take_node(m)
        m[root + COUNT] = 1
        m[root + S_GROUP] = m[root + S_X] = m[root + S_Y] = -np.inf
        _record(m, root, 0, node)
        _split(m, leaf_of, node, root, 0, height)
        _measure(m, root, 1)
        height += 1
        m[ROOT], m[HEIGHT] = root, height
        node = root
    while height > 0:
        i = _child_at(m, node, group, x, y)
        height -= 1
        if m[int(m[node + CHILD + i]) + COUNT] == (LEAF if height == 0 else INNER):
            _split(m, leaf_of, int(m[node + CHILD + i]), node, i, height)
            i = _child_at(m, node, group, x, y)
        node = int(m[node + CHILD + i])
    at = _first_not_before(m, node, LEAF, group, x, y)
    _shift(m, node, 0, at, 1)
    m[node + GROUP + at] = group
    m[node + X + at] = x
    m[node + Y + at] = y
    m[node + ROW + at] = slot
    leaf_of[slot] = node
    m[ENTRIES] += 1
    if y < m[node + NODE_LEAST] or y > m[node + NODE_GREATEST]:
        m[node + NODE_LEAST] = min(m[node + NODE_LEAST], y)
        m[node + NODE_GREATEST] = max(m[node + NODE_GREATEST], y)
        _tell_parents(m, node)


# --- removing ----------------------------------------------------------------------------------------------------


@part
def _even_out(m: Floats, leaf_of: Ints, parent: int, i: int, height: int) -> None:
    """Merge children i and i + 1 of the parent if they fit into three quarters of a node, else share evenly."""
    capacity = LEAF if height == 0 else INNER
    left, right = int(m[parent + CHILD + i]), int(m[parent + CHILD + i + 1])
    lefts, rights = int(m[left + COUNT]), int(m[right + COUNT])
    if height > 0:  # the parent's separator is the exact one for right's first child
        m[right + S_GROUP] = m[parent + S_GROUP + i + 1]
        m[right + S_X] = m[parent + S_X + i + 1]
        m[right + S_Y] = m[parent + S_Y + i + 1]
    total = lefts + rights
    merge = total <= capacity - (capacity >> 2)
    wanted = total if merge else total >> 1
    if wanted > lefts:
        moved = wanted - lefts
        _copy(m, height, right, 0, left, lefts, moved)
        _copy(m, height, right, moved, right, 0, rights - moved)
    else:
        moved = lefts - wanted
        _copy(m, height, right, 0, right, moved, rights)
        _copy(m, height, left, wanted, right, 0, moved)
    m[left + COUNT] = wanted
    m[right + COUNT] = total - wanted
    for node in (left, right):
        _adopt(m, leaf_of, node, height)
        _measure(m, node, height)
    _record(m, parent, i, left)
    if merge:
        _shift(m, parent, 1, i + 2, -1)
        _free_node(m, right, height)
    else:
        _separate(m, parent, i + 1, left, right, height)
        _record(m, parent, i + 1, right)


@part
def remove(m: Floats, leaf_of: Ints, slot: int) -> None:
    """Take a row out; nodes below a quarter full are merged with a neighbour or share with it."""
    node, height = leaf_of[slot], 0
    leaf_of[slot] = -1
    m[ENTRIES] -= 1
    at = position_of(m, node, slot)
    y = m[node + Y + at]
    _shift(m, node, 0, at + 1, -1)
    if y == m[node + NODE_LEAST] or y == m[node + NODE_GREATEST]:
        _measure(m, node, 0)
        _tell_parents(m, node)
    parent = int(m[node + PARENT])
    while parent >= 0 and m[node + COUNT] < (FEW_LEAF if height == 0 else FEW_INNER):
        i = child_index(m, parent, node)
        _even_out(m, leaf_of, parent, i - 1 if i > 0 else i, height)
        height += 1
        node, parent = parent, int(m[parent + PARENT])
    root = int(m[ROOT])
    while m[HEIGHT] > 0 and m[root + COUNT] == 1:
        child = int(m[root + CHILD])
        _free_node(m, root, 1)
        m[ROOT] = root = child
        m[HEIGHT] -= 1
        m[root + PARENT] = -1

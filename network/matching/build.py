"""Rebuilding a subtree: gather its points, plan a balanced tree over them, then lay the plan down.

    points of the subtree    [ 3 9 | 1 4 7 | 8 2 2 5 ]      gather: out of the blocks into one array
    after one split at 4     [ 3 1 4 2 2 | 9 7 8 5 ]        plan: partition in place, breadth first, until
                              segment 1    segment 2              a segment fits in a block
    lay down                  every segment becomes a node, a leaf's segment is copied into its blocks

The plan comes first because only then the rows it needs are known exactly (ties decide how well blocks are
filled): if they are not there, nothing has been changed yet, and the caller makes room and asks again.

Why breadth first: the last level, which holds the leaves, is laid down from left to right, so neighbours in
space are neighbours in memory, without a stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.compiled import kernel, part
from hullcast.network.matching.tree import (
    BLOCK,
    BLOCK_POINTS,
    BUILT,
    COUNT,
    DIMENSION,
    IDS,
    LEFT,
    NEXT,
    QUOTA,
    SIZE,
    Tree,
    give_block,
    give_pair,
    longer,
    room,
    take_block,
    take_pair,
)

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats, Ints

SMALLEST_QUOTA = BLOCK_POINTS // 4

# Columns of a plan. The segment is points[START:END]; CHILD: row of its left part (right: the next), or -1.
START, END, CHILD, SPLIT, TURN = 0, 1, 2, 3, 4


@kernel
def rebuild(tree: Tree, node: int, turn: int, new_ids: Ints, new_points: Floats) -> bool:
    """Rebuild the subtree at `node` with some new points in it; False (and no change) if rows are missing.

    Cost O(k m log m) for m points. The row `node` stays where it is, so its parent need not know.
    """
    k, old = tree.coordinates.shape[2], tree.nodes[node, COUNT]
    total = old + len(new_ids)
    ids, points = np.empty(total, np.int64), np.empty((total, k))
    pairs, blocks = gather(tree, node, ids, points, False)
    for i in range(len(new_ids)):
        ids[old + i] = new_ids[i]
        for j in range(k):
            points[old + i, j] = new_points[i, j]
    segments, cuts, number = plan(ids, points, turn)
    needed = 0
    for row in range(number):
        if segments[row, CHILD] < 0:
            needed += (segments[row, END] - segments[row, START] + BLOCK_POINTS - 1) // BLOCK_POINTS
    if not room(tree.header, tree.nodes, tree.blocks, number // 2 - pairs, needed - blocks):
        return False
    gather(tree, node, ids, points, True)
    lay_down(tree, node, ids, points, segments, cuts, number)
    return True


@part
def gather(tree: Tree, node: int, ids: Ints, points: Floats, free: bool) -> tuple[int, int]:
    """Copy out the points below `node`, or (`free`) return its rows; gives how many pairs and blocks."""
    nodes, blocks, k = tree.nodes, tree.blocks, tree.coordinates.shape[2]
    stack = np.empty(64, np.int64)
    stack[0], height, filled, pair_number, block_number = node, 1, 0, 0, 0
    while height > 0:
        height -= 1
        left, block = nodes[stack[height], LEFT], nodes[stack[height], BLOCK]
        if left >= 0:
            if height + 2 > len(stack):
                stack = longer(stack, height, 2)
            stack[height], stack[height + 1] = left + 1, left
            height += 2
            pair_number += 1
            if free:
                give_pair(tree.header, nodes, left)
        while block >= 0:
            following = blocks[block, NEXT]
            block_number += 1
            if free:
                give_block(tree.header, blocks, block)
            else:
                for position in range(blocks[block, SIZE]):
                    ids[filled] = blocks[block, IDS + position]
                    for j in range(k):
                        points[filled, j] = tree.coordinates[block, position, j]
                    filled += 1
            block = following
    return pair_number, block_number


@part
def plan(ids: Ints, points: Floats, turn: int) -> tuple[Ints, Floats, int]:
    """Split the points (in place) down to segments of at most a block; gives (segments, cuts, their number).

    A segment in which all points are equal cannot be split and stays whatever its length.
    """
    total, k = points.shape
    segments = np.empty((4 * (total // BLOCK_POINTS) + 8, 5), np.int64)
    cuts = np.empty(len(segments))
    values = np.empty(total)
    segments[0, START], segments[0, END], segments[0, TURN] = 0, total, turn
    row, number = 0, 1
    while row < number:
        start, end, first = segments[row, START], segments[row, END], segments[row, TURN]
        segments[row, CHILD] = -1
        if end - start > BLOCK_POINTS:
            dimension, cut = choose_cut(points, start, end, first, values)
            if dimension >= 0:
                if number + 2 > len(segments):
                    segments, cuts = more_segments(segments, cuts)
                middle = partition(ids, points, start, end, dimension, cut)
                segments[row, CHILD], segments[row, SPLIT], cuts[row] = number, dimension, cut
                segments[number, START], segments[number, END] = start, middle
                segments[number + 1, START], segments[number + 1, END] = middle, end
                segments[number, TURN] = segments[number + 1, TURN] = (dimension + 1) % k
                number += 2
        row += 1
    return segments, cuts, number


@part
def more_segments(segments: Ints, cuts: Floats) -> tuple[Ints, Floats]:
    """Copies of twice the length: ties have made more segments than halving would."""
    rows = len(segments)
    longer_segments, longer_cuts = np.empty((2 * rows, 5), np.int64), np.empty(2 * rows)
    for row in range(rows):
        longer_cuts[row] = cuts[row]
        for field in range(5):
            longer_segments[row, field] = segments[row, field]
    return longer_segments, longer_cuts


@part
def choose_cut(points: Floats, start: int, end: int, first: int, values: Floats) -> tuple[int, float]:
    """The dimension and value at which to split points[start:end]; dimension -1 if all points are equal.

    Dimensions take turns; one whose median leaves less than 3/8 on a side (ties) loses its turn if another is
    better. A cut lies directly at the median value v or directly below it. Never further away: should v be a
    heavy tie, then after at most two cuts a dimension its leaf holds v alone, whatever arrives later.
    """
    size, k = end - start, points.shape[1]
    best, best_dimension, best_cut = 0, -1, 0.0
    for turn in range(k):
        j = (first + turn) % k
        for i in range(size):
            values[i] = points[start + i, j]
        median = select(values, size, (size - 1) // 2)
        below, above = 0, 0
        for i in range(size):
            below += values[i] < median
            above += values[i] > median
        if min(above, size - above) > best:
            best, best_dimension, best_cut = min(above, size - above), j, median
        if min(below, size - below) > best:
            best, best_dimension, best_cut = min(below, size - below), j, np.nextafter(median, -np.inf)
        if 8 * best >= 3 * size:
            break
    return best_dimension, best_cut


@part
def select(values: Floats, size: int, rank: int) -> float:
    """The value of that rank among values[:size], which are reordered. Expected O(size), whatever the input.

    Hoare's quickselect. The pivot is the median of three places that a multiplicative generator picks: no
    input order is bad for it (a fixed choice has its killer sequence), and equal values are divided evenly.
    """
    low, high, chance = 0, size - 1, 12345
    while low < high:
        chance = (chance * 1103515245 + 12345) & 0x7FFFFFFF
        a = values[low + (chance >> 8) % (high - low + 1)]
        b = values[(low + high) // 2]
        chance = (chance * 1103515245 + 12345) & 0x7FFFFFFF
        c = values[low + (chance >> 8) % (high - low + 1)]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if rank <= j:
            high = j
        elif rank >= i:
            low = i
        else:
            break
    chosen: float = values[rank]
    return chosen


@part
def partition(ids: Ints, points: Floats, start: int, end: int, dimension: int, cut: float) -> int:
    """Bring the points with coordinate <= cut to the front; gives the place where the others begin."""
    k = points.shape[1]
    i, j = start, end - 1
    while True:
        while i <= j and points[i, dimension] <= cut:
            i += 1
        while i <= j and points[j, dimension] > cut:
            j -= 1
        if i > j:
            return i
        ids[i], ids[j] = ids[j], ids[i]
        for d in range(k):
            points[i, d], points[j, d] = points[j, d], points[i, d]
        i += 1
        j -= 1


@part
def lay_down(tree: Tree, root: int, ids: Ints, points: Floats, segments: Ints, cuts: Floats, number: int) -> None:
    """Write a plan into the tree, its first segment at `root`. The caller has seen to the room.

    The first quota of an inner node (see update.py) is short, unless ties forced a lopsided split: looking
    soon would only find the same again. Not longer than half, so that deletes cannot empty the node unseen
    (M5).
    """
    nodes, bounds, k = tree.nodes, tree.bounds, points.shape[1]
    node_of = np.empty(number, np.int64)
    node_of[0] = root
    for row in range(number):
        node, child, start, end = node_of[row], segments[row, CHILD], segments[row, START], segments[row, END]
        count = end - start
        nodes[node, COUNT] = nodes[node, BUILT] = count
        nodes[node, LEFT] = nodes[node, BLOCK] = -1
        if child >= 0:
            pair = take_pair(tree.header, nodes)
            node_of[child], node_of[child + 1] = pair, pair + 1
            nodes[node, LEFT], nodes[node, DIMENSION] = pair, segments[row, SPLIT]
            bounds[node, 2 * k] = cuts[row]
            left = segments[child, END] - start
            lopsided = 8 * max(left, count - left) > 5 * count
            nodes[node, QUOTA] = max(SMALLEST_QUOTA, count // 2 if lopsided else count // 8)
        else:
            fill_leaf(tree, node, ids, points, start, end)
    for row in range(number - 1, -1, -1):  # children come after parents: from the back, their boxes are ready
        if segments[row, CHILD] >= 0:
            node, pair = node_of[row], node_of[segments[row, CHILD]]
            for j in range(k):
                bounds[node, j] = min(bounds[pair, j], bounds[pair + 1, j])
                bounds[node, k + j] = max(bounds[pair, k + j], bounds[pair + 1, k + j])


@part
def fill_leaf(tree: Tree, node: int, ids: Ints, points: Floats, start: int, end: int) -> None:
    """Put points[start:end] into new blocks of the leaf and set its box; the first block may be part full."""
    k, block, size = points.shape[1], -1, BLOCK_POINTS
    bounds = tree.bounds
    for j in range(k):
        bounds[node, j], bounds[node, k + j] = np.inf, -np.inf
    for i in range(start, end):
        if size == BLOCK_POINTS:
            block, size = take_block(tree.header, tree.blocks, block), 0
        tree.blocks[block, IDS + size] = ids[i]
        tree.place_of[ids[i]] = block * BLOCK_POINTS + size
        for j in range(k):
            value = points[i, j]
            tree.coordinates[block, size, j] = value
            bounds[node, j] = min(bounds[node, j], value)
            bounds[node, k + j] = max(bounds[node, k + j], value)
        size += 1
        tree.blocks[block, SIZE] = size
    tree.nodes[node, BLOCK] = block

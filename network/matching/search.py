"""Answering: which points lie in a closed box, how many, is there one. Other kernels may call these.

A node whose box misses the query is skipped, one whose box lies inside it is taken whole, and only leaves
across the border test their points:

        +-----+-----+--------+
        |  A  |  B  |   C    |      query  ####     A  skipped
        |   ##|#####|###     |             ####     B  whole: its box is inside, ids are copied untested
        +---##+#####+###-----+                      C  split further, down to leaves, whose points are tested
            ##|#####|###

On the stack a node to test is n, a node to take whole is ~n (negative). Testing does not branch on the
outcome: the id is always written, and the end moves on if it counts. A branch would be guessed wrong half of
the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.compiled import kernel, part
from hullcast.network.matching.tree import BLOCK, COUNT, IDS, LEFT, NEXT, SIZE, Tree, longer

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Booleans, Floats, Ints

STACK = 128  # enough for most trees; the kernels replace a stack that is too short by a longer one

OUTSIDE, ACROSS, INSIDE = 0, 1, 2


@part
def report(tree: Tree, low: Floats, high: Floats, out: Ints, used: int, stack: Ints) -> tuple[Ints, int]:
    """Append the ids of all points p with low <= p <= high to out[:used]; returns the new (out, used).

    `out` is replaced by a longer array when it is full: always go on with the one returned. `stack` is
    scratch, np.empty(STACK, np.int64). For n points and h hits in k dimensions O(n^(1-1/k) + h) at
    worst; a small box with few hits is nearer to O(log n + h).
    """
    nodes, blocks = tree.nodes, tree.blocks
    stack[0], height = 0, 1
    while height > 0:
        height -= 1
        node = stack[height]
        whole = node < 0
        if whole:
            node = ~node
        else:
            relation = relate(tree.bounds, node, low, high)
            if relation == OUTSIDE:
                continue
            whole = relation == INSIDE
        left = nodes[node, LEFT]
        if left >= 0:
            if height + 2 > len(stack):
                stack = longer(stack, height, 2)
            stack[height] = ~(left + 1) if whole else left + 1
            stack[height + 1] = ~left if whole else left
            height += 2
            continue
        if used + nodes[node, COUNT] > len(out):
            out = longer(out, used, nodes[node, COUNT])
        block = nodes[node, BLOCK]
        while block >= 0:
            size = blocks[block, SIZE]
            if whole:
                for i in range(size):
                    out[used + i] = blocks[block, IDS + i]
                used += size
            else:
                for i in range(size):
                    out[used] = blocks[block, IDS + i]
                    used += contained(tree.coordinates, block, i, low, high)
            block = blocks[block, NEXT]
    return out, used


@part
def count(tree: Tree, low: Floats, high: Floats, stack: Ints, enough: int) -> int:
    """How many points lie in the box, but stop counting at `enough` (1: is there one?).

    Nodes inside the query are counted without being entered, so this costs no more for more hits.
    """
    nodes, blocks = tree.nodes, tree.blocks
    total = 0
    stack[0], height = 0, 1
    while height > 0 and total < enough:
        height -= 1
        node = stack[height]
        relation = relate(tree.bounds, node, low, high)
        left = nodes[node, LEFT]
        if relation == INSIDE:
            total += nodes[node, COUNT]
        elif relation == ACROSS and left >= 0:
            if height + 2 > len(stack):
                stack = longer(stack, height, 2)
            stack[height], stack[height + 1] = left + 1, left
            height += 2
        elif relation == ACROSS:
            block = nodes[node, BLOCK]
            while block >= 0:
                for i in range(blocks[block, SIZE]):
                    total += contained(tree.coordinates, block, i, low, high)
                block = blocks[block, NEXT]
    return total


@kernel
def report_some(tree: Tree, lows: Floats, highs: Floats, start: int, stop: int, enough: int) -> tuple[int, Ints, Ints]:
    """Pairs (row of the query, id of a point in its box) of the queries start to stop, ordered by query.

    Ends after the query that made it `enough` pairs, and says where: a caller can thus bound its memory.
    """
    stack = np.empty(STACK, np.int64)
    queries, out, used = np.empty(64, np.int64), np.empty(64, np.int64), 0
    query = start
    while query < stop and used < enough:
        before = used
        out, used = report(tree, lows[query], highs[query], out, used, stack)
        if used > len(queries):
            queries = longer(queries, before, len(out) - before)
        for i in range(before, used):
            queries[i] = query
        query += 1
    return query, queries[:used], out[:used]


@kernel
def count_many(tree: Tree, lows: Floats, highs: Floats) -> Ints:
    """`count`, to the end, for every row of lows and highs."""
    stack = np.empty(STACK, np.int64)
    counts = np.empty(len(lows), np.int64)
    for query in range(len(lows)):
        counts[query] = count(tree, lows[query], highs[query], stack, len(tree.place_of))
    return counts


@kernel
def mark_met(tree: Tree, lows: Floats, highs: Floats, mask: Booleans) -> None:
    """Set the mask of the query boxes with a point in them; those set already are not looked at."""
    stack = np.empty(STACK, np.int64)
    for query in range(len(lows)):
        if not mask[query]:
            mask[query] = count(tree, lows[query], highs[query], stack, 1) > 0


@part
def relate(bounds: Floats, node: int, low: Floats, high: Floats) -> int:
    """How the box of a node lies to the query."""
    k = len(low)
    relation = INSIDE
    for j in range(k):
        if bounds[node, j] > high[j] or bounds[node, k + j] < low[j]:
            return OUTSIDE
        if bounds[node, j] < low[j] or bounds[node, k + j] > high[j]:
            relation = ACROSS
    return relation


@part
def contained(coordinates: Floats, block: int, position: int, low: Floats, high: Floats) -> bool:
    """Does this point lie in the box? Without a branch, see above."""
    inside = True
    for j in range(len(low)):
        value = coordinates[block, position, j]
        inside &= (low[j] <= value) & (value <= high[j])
    return inside

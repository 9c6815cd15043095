"""Inserting and deleting points, and deciding when a subtree has earned its rebuilding.

The rule. Every inner node has a quota of updates. Each insert or delete below it takes one; at zero the node
is looked at, and if one child holds more than 3/4 of the points, or fewer than half of those it was built
with are left, it is *due*: rebuilt from scratch, unless a node above it is due. Otherwise it gets a new
quota, 1/8 of its points.

    built: 64 | 64     64 more to the right: 64 | 128    2/3, fine
                       144 more to the right: 64 | 208   > 3/4, due, becomes 136 | 136

So a node of m points is rebuilt after Omega(m) updates below it (amortised O(log m) per update and level,
O(log^2 n) in all), and between two looks no child exceeds 6/7, unless ties leave no better split: depth is
O(log n).

Not "when its count has doubled or halved": an adversary who empties the left half, refills the right, and
repeats this one level further down never doubles or halves any count, and adds a level each time. Nor "after
m updates": that would rebuild a tree in a steady state, with random inserts and deletes, which stays balanced
by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.compiled import kernel, part
from hullcast.network.matching.build import SMALLEST_QUOTA, rebuild
from hullcast.network.matching.tree import (
    BLOCK,
    BLOCK_POINTS,
    BUILT,
    COUNT,
    DIMENSION,
    DUE_NODE,
    DUE_TURN,
    IDS,
    LEFT,
    NEXT,
    QUOTA,
    SIZE,
    Tree,
    give_block,
    room,
    take_block,
)

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats, Ints


@kernel
def update_many(tree: Tree, ids: Ints, points: Floats, change: int, start: int) -> int:
    """Insert (change = 1) absent ids or delete (-1) present ones, from `start` on; gives how far it came.

    Finished when that is all and no node is due. Otherwise the header says what is missing: make room and
    call again with the number returned. One kernel for both, because each that can rebuild takes seconds to
    compile.
    """
    header, k, done = tree.header, tree.coordinates.shape[2], start
    no_ids, no_points = np.empty(0, np.int64), np.empty((0, k))
    while True:
        if header[DUE_NODE] >= 0:
            if not rebuild(tree, header[DUE_NODE], header[DUE_TURN], no_ids, no_points):
                return done
            header[DUE_NODE] = -1
        if done == len(ids):
            return done
        if change < 0:
            delete_one(tree, ids[done])
        elif room(header, tree.nodes, tree.blocks, 0, 1):
            insert_one(tree, ids[done], points[done])
        else:
            return done
        done += 1


@part
def descend(tree: Tree, point: Floats, change: int) -> tuple[int, int]:
    """Walk to the leaf of `point`, counting the change (+1, -1) in every node passed.

    Gives the leaf, and the dimension whose turn it would be to split it. Sets DUE_NODE to the topmost node
    that is due, if one is.
    """
    nodes, bounds, k = tree.nodes, tree.bounds, len(point)
    node, turn = 0, 0
    while True:
        nodes[node, COUNT] += change
        if change > 0:
            for j in range(k):
                if point[j] < bounds[node, j]:
                    bounds[node, j] = point[j]
                if point[j] > bounds[node, k + j]:
                    bounds[node, k + j] = point[j]
        left = nodes[node, LEFT]
        if left < 0:
            return node, turn
        child = left if point[nodes[node, DIMENSION]] <= bounds[node, 2 * k] else left + 1
        nodes[node, QUOTA] -= 1
        if nodes[node, QUOTA] <= 0:
            count = nodes[node, COUNT]
            into = nodes[child, COUNT] + change
            lopsided = 4 * max(into, count - into) > 3 * count
            nodes[node, QUOTA] = max(SMALLEST_QUOTA, count // 8)
            if (lopsided or 2 * count < nodes[node, BUILT]) and tree.header[DUE_NODE] < 0:
                tree.header[DUE_NODE], tree.header[DUE_TURN] = node, turn
        turn = (nodes[node, DIMENSION] + 1) % k
        node = child


@part
def insert_one(tree: Tree, new: int, point: Floats) -> None:
    """Insert one absent id. There must be a free block, and no node due."""
    nodes, blocks = tree.nodes, tree.blocks
    leaf, turn = descend(tree, point, 1)
    block = nodes[leaf, BLOCK]
    if block < 0 or blocks[block, SIZE] == BLOCK_POINTS:
        block = take_block(tree.header, blocks, block)
        nodes[leaf, BLOCK] = block
    position = blocks[block, SIZE]
    blocks[block, SIZE] += 1
    blocks[block, IDS + position] = new
    tree.place_of[new] = block * BLOCK_POINTS + position
    k, is_one_point = len(point), True
    for j in range(k):
        tree.coordinates[block, position, j] = point[j]
        is_one_point &= tree.bounds[leaf, j] == tree.bounds[leaf, k + j]
    if nodes[leaf, COUNT] > BLOCK_POINTS and not is_one_point and tree.header[DUE_NODE] < 0:
        tree.header[DUE_NODE], tree.header[DUE_TURN] = leaf, turn  # by M4 only equal points may outgrow a block


@part
def delete_one(tree: Tree, old: int) -> None:
    """Delete one present id: the last point of the leaf's first block takes its place. No node may be due."""
    nodes, blocks, coordinates = tree.nodes, tree.blocks, tree.coordinates
    place = tree.place_of[old]
    block, position = place // BLOCK_POINTS, place % BLOCK_POINTS
    leaf, _ = descend(tree, coordinates[block, position], -1)
    head = nodes[leaf, BLOCK]
    last = blocks[head, SIZE] - 1
    moved = blocks[head, IDS + last]
    blocks[block, IDS + position] = moved
    for j in range(coordinates.shape[2]):
        coordinates[block, position, j] = coordinates[head, last, j]
    tree.place_of[moved] = place
    tree.place_of[old] = -1  # after the line above: the two may be the same
    blocks[head, SIZE] = last
    if last == 0:
        nodes[leaf, BLOCK] = blocks[head, NEXT]
        give_block(tree.header, blocks, head)

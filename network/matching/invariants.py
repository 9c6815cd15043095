"""Checks the invariants M1 to M7 of PointIndex in plain Python, for tests only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.matching.tree import (
    BLOCK,
    BLOCK_FREE,
    BLOCK_POINTS,
    BLOCK_TOP,
    BLOCKS_FREE,
    COUNT,
    DIMENSION,
    DUE_NODE,
    IDS,
    LEFT,
    NEXT,
    PAIR_FREE,
    PAIR_TOP,
    PAIRS_FREE,
    QUOTA,
    SIZE,
    Tree,
)

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats, Ints


def check_tree(tree: Tree) -> None:
    """AssertionError with the invariant's id if one does not hold."""
    header, k = tree.header, tree.coordinates.shape[2]
    assert header[DUE_NODE] == -1, "M7: a node is due"
    pairs, blocks, places = [0], [], 0
    # node, and the part of space that the splits above leave to it: lower bounds exclusive, upper inclusive
    todo: list[tuple[int, Floats, Floats]] = [(0, np.full(k, np.nan), np.full(k, np.inf))]
    while todo:
        node, above, upto = todo.pop()
        left = int(tree.nodes[node, LEFT])
        if left < 0:
            chain = chain_of(tree.blocks, int(tree.nodes[node, BLOCK]))
            blocks += chain
            places += check_leaf(tree, node, chain, above, upto)
            continue
        pairs.append(left // 2)
        assert left in range(2, len(tree.nodes), 2), f"M5: children of node {node} are no pair"
        assert tree.nodes[node, COUNT] == tree.nodes[left : left + 2, COUNT].sum(), f"M5: count of node {node}"
        assert tree.nodes[node, COUNT] >= BLOCK_POINTS // 4, f"M5: node {node} is nearly empty"
        assert tree.nodes[node, QUOTA] > 0, f"M5: node {node} has no quota left"
        for child in (left, left + 1):
            assert (tree.bounds[node, :k] <= tree.bounds[child, :k]).all(), f"M3: box of node {node}"
            assert (tree.bounds[node, k : 2 * k] >= tree.bounds[child, k : 2 * k]).all(), f"M3: box of node {node}"
        dimension, cut = tree.nodes[node, DIMENSION], tree.bounds[node, 2 * k]
        upto_left, above_right = upto.copy(), above.copy()
        upto_left[dimension] = above_right[dimension] = cut
        todo += [(left, above, upto_left), (left + 1, above_right, upto)]
    assert places == np.count_nonzero(tree.place_of >= 0), "M1: place_of names a place that is not in the tree"
    free_pairs = [row // 2 for row in free_list(tree.nodes[:, QUOTA], int(header[PAIR_FREE]))]
    assert len(free_pairs) == header[PAIRS_FREE], "M6: number of free pairs"
    assert sorted(pairs + free_pairs) == list(range(header[PAIR_TOP])), "M6: a pair is lost or used twice"
    free_blocks = free_list(tree.blocks[:, NEXT], int(header[BLOCK_FREE]))
    assert len(free_blocks) == header[BLOCKS_FREE], "M6: number of free blocks"
    assert sorted(blocks + free_blocks) == list(range(header[BLOCK_TOP])), "M6: a block is lost or used twice"


def check_leaf(tree: Tree, node: int, chain: list[int], above: Floats, upto: Floats) -> int:
    """The part of the check that concerns one leaf; gives the number of its points."""
    k = tree.coordinates.shape[2]
    total = 0
    points = []
    for block in chain:
        size = int(tree.blocks[block, SIZE])
        assert size == BLOCK_POINTS or (block == chain[0] and size > 0), f"M4: block {block} of leaf {node}"
        ids = tree.blocks[block, IDS : IDS + size]
        places = block * BLOCK_POINTS + np.arange(size)
        assert (tree.place_of[ids] == places).all(), f"M1: place_of and block {block} disagree"
        points.append(tree.coordinates[block, :size])
        total += size
    assert total == tree.nodes[node, COUNT], f"M5: count of leaf {node}"
    if points:
        rows = np.concatenate(points)
        assert not (rows <= above).any(), f"M2: leaf {node} holds a point that belongs to the left"  # nan: no bound
        assert (rows <= upto).all(), f"M2: leaf {node} holds a point that belongs to the right"
        assert (tree.bounds[node, :k] <= rows).all(), f"M3: box of leaf {node}"
        assert (rows <= tree.bounds[node, k : 2 * k]).all(), f"M3: box of leaf {node}"
        assert total <= BLOCK_POINTS or (rows == rows[0]).all(), f"M4: leaf {node} should have been split"
    return total


def chain_of(blocks: Ints, first: int) -> list[int]:
    """The blocks of a leaf, first one first."""
    chain = []
    while first >= 0:
        chain.append(first)
        first = int(blocks[first, NEXT])
        assert len(chain) <= len(blocks), "M6: a chain of blocks is a ring"
    return chain


def free_list(links: Ints, first: int) -> list[int]:
    """The rows on a free list."""
    rows = []
    while first >= 0:
        rows.append(first)
        first = int(links[first])
        assert len(rows) <= len(links), "M6: a free list is a ring"
    return rows

"""Where a bucket k-d tree lies in memory: six flat arrays, and the handing out of their rows.

        nodes[0]  root: split dimension 0 at 5.0, box of all points     header    counters, free lists
           |                                                            place_of  id -> block and position
     LEFT = 8  ----------------.
     nodes[8]   coordinate 0 <= 5      nodes[9]   coordinate 0 > 5        two children: one *pair* of rows
     leaf, BLOCK = 3                   leaf, BLOCK = 7
           |                                 |
     blocks[3]  SIZE 20, NEXT -1       blocks[7]  SIZE 4, NEXT 2 --> blocks[2]  SIZE 64, NEXT -1
     coordinates[3, :20]                     more than 64 points in one leaf: all equal (M4)

Children lie side by side, so that one pointer serves two and a search that looks at both boxes reads
neighbouring memory. Coordinates lie in the blocks, not in a table by id: a search reads them in the order in
which they lie. Kernels cannot enlarge the arrays they were given: they say how much they miss, and `grown` is
called in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from hullcast.network.compiled import part

if TYPE_CHECKING:
    import numpy.typing as npt

    from hullcast.network.wire.arrays import Floats, Ints


Number = TypeVar("Number", np.int64, np.float64)

BLOCK_POINTS = 64  # points a block holds; what other sizes do: see PointIndex

# Columns of `nodes`. Inner nodes have LEFT >= 0 (right child: LEFT + 1); leaves have LEFT = -1 and use BLOCK.
LEFT, DIMENSION, COUNT, BUILT, QUOTA, BLOCK = 0, 1, 2, 3, 4, 5
NODE_FIELDS = 6

# Columns of `blocks`: points in it, next block of the same leaf (or of the free list), then the ids.
SIZE, NEXT, IDS = 0, 1, 2

# Entries of `header`. *_TOP: rows never used start here. *_FREE: first returned row (a chain), and how many.
PAIR_TOP, PAIR_FREE, PAIRS_FREE = 0, 1, 2
BLOCK_TOP, BLOCK_FREE, BLOCKS_FREE = 3, 4, 5
DUE_NODE, DUE_TURN = 6, 7  # a subtree that waits for its rebuild (-1: none), the dimension to split it by first
MISSING_PAIRS, MISSING_BLOCKS = 8, 9  # what the kernel that gave up would have needed beyond the arrays
HEADER_FIELDS = 10


class Tree(NamedTuple):
    """The arrays of one index, as kernels take them. For k dimensions, P pairs, B blocks and ids below n."""

    header: Ints  # (HEADER_FIELDS,)
    nodes: Ints  # (2 P, NODE_FIELDS)
    bounds: Floats  # (2 P, 2 k + 1): lows, highs of a box around the points below, then the split value
    blocks: Ints  # (B, 2 + BLOCK_POINTS)
    coordinates: Floats  # (B, BLOCK_POINTS, k)
    place_of: Ints  # (n,): block * BLOCK_POINTS + position, -1 for an id that is absent


def empty_tree(dimensions: int, pairs: int = 4, blocks: int = 4, ids: int = 16) -> Tree:
    """A tree of one empty leaf, with room for that many pairs, blocks and ids."""
    tree = Tree(
        header=np.zeros(HEADER_FIELDS, np.int64),
        nodes=np.zeros((2 * pairs, NODE_FIELDS), np.int64),
        bounds=np.zeros((2 * pairs, 2 * dimensions + 1)),
        blocks=np.zeros((blocks, IDS + BLOCK_POINTS), np.int64),
        coordinates=np.zeros((blocks, BLOCK_POINTS, dimensions)),
        place_of=np.full(ids, -1, np.int64),
    )
    tree.header[[PAIR_FREE, BLOCK_FREE, DUE_NODE]] = -1
    tree.header[PAIR_TOP] = 1  # the root has pair 0 to itself
    tree.nodes[0, [LEFT, BLOCK]] = -1
    tree.bounds[0, :dimensions] = np.inf  # the empty box: nothing is in it, and any point makes it right
    tree.bounds[0, dimensions : 2 * dimensions] = -np.inf
    return tree


def grown(tree: Tree, pairs: int = 0, blocks: int = 0, ids: int = 0) -> Tree:
    """The same tree with room for at least so many rows in total; what grows at least doubles."""
    k = tree.coordinates.shape[2]
    header, nodes, bounds, block_rows, coordinates, place_of = tree
    if pairs > len(nodes) // 2:
        rows = 2 * max(pairs, len(nodes))
        nodes = _longer(nodes, np.zeros((rows, NODE_FIELDS), np.int64))
        bounds = _longer(bounds, np.zeros((rows, 2 * k + 1)))
    if blocks > len(block_rows):
        rows = max(blocks, 2 * len(block_rows))
        block_rows = _longer(block_rows, np.zeros((rows, IDS + BLOCK_POINTS), np.int64))
        coordinates = _longer(coordinates, np.zeros((rows, BLOCK_POINTS, k)))
    if ids > len(place_of):
        place_of = _longer(place_of, np.full(max(ids, 2 * len(place_of)), -1, np.int64))
    return Tree(header, nodes, bounds, block_rows, coordinates, place_of)


def _longer(old: npt.NDArray[Number], new: npt.NDArray[Number]) -> npt.NDArray[Number]:
    new[: len(old)] = old
    return new


# The helpers below take single arrays, not the Tree: that compiles in less time.


@part
def take_pair(header: Ints, nodes: Ints) -> int:
    """The left row of a free pair of nodes. The caller knows that there is one."""
    row: int = header[PAIR_FREE]
    if row >= 0:
        header[PAIR_FREE] = nodes[row, QUOTA]
        header[PAIRS_FREE] -= 1
        return row
    row = 2 * header[PAIR_TOP]
    header[PAIR_TOP] += 1
    return row


@part
def give_pair(header: Ints, nodes: Ints, row: int) -> None:
    """Return the pair whose left row is `row`. Its LEFT and BLOCK stay readable until it is taken again."""
    nodes[row, QUOTA] = header[PAIR_FREE]
    header[PAIR_FREE] = row
    header[PAIRS_FREE] += 1


@part
def take_block(header: Ints, blocks: Ints, following: int) -> int:
    """An empty block in front of the chain that begins with `following`. The caller knows there is one."""
    block: int = header[BLOCK_FREE]
    if block >= 0:
        header[BLOCK_FREE] = blocks[block, NEXT]
        header[BLOCKS_FREE] -= 1
    else:
        block = header[BLOCK_TOP]
        header[BLOCK_TOP] += 1
    blocks[block, SIZE] = 0
    blocks[block, NEXT] = following
    return block


@part
def give_block(header: Ints, blocks: Ints, block: int) -> None:
    """Return one block."""
    blocks[block, NEXT] = header[BLOCK_FREE]
    header[BLOCK_FREE] = block
    header[BLOCKS_FREE] += 1


@part
def room(header: Ints, nodes: Ints, blocks: Ints, pairs_needed: int, blocks_needed: int) -> bool:
    """Are so many pairs and blocks free? If not, the header tells what is missing."""
    pairs_missing = pairs_needed - header[PAIRS_FREE] - (len(nodes) // 2 - header[PAIR_TOP])
    blocks_missing = blocks_needed - header[BLOCKS_FREE] - (len(blocks) - header[BLOCK_TOP])
    header[MISSING_PAIRS], header[MISSING_BLOCKS] = max(0, pairs_missing), max(0, blocks_missing)
    enough: bool = pairs_missing <= 0 and blocks_missing <= 0
    return enough


@part
def longer(array: Ints, used: int, more: int) -> Ints:
    """A copy of array[:used] with room for `more`, at least twice as long."""
    copy = np.empty(max(2 * len(array), used + more), np.int64)
    for i in range(used):
        copy[i] = array[i]
    return copy

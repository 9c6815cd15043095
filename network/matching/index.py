"""PointIndex: points in k dimensions that come and go, and the question which of them lie in a box."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.matching import search
from hullcast.network.matching.build import rebuild
from hullcast.network.matching.invariants import check_tree
from hullcast.network.matching.tree import (
    BLOCK_POINTS,
    COUNT,
    DUE_NODE,
    MISSING_BLOCKS,
    MISSING_PAIRS,
    Tree,
    empty_tree,
    grown,
)
from hullcast.network.matching.update import update_many

if TYPE_CHECKING:
    import numpy.typing as npt

    from hullcast.network.wire.arrays import Booleans, Floats, Ints


MANY = 1024  # if so many go, and they are most, they are not deleted one by one: the index is rebuilt from the rest
SPARSE = 16  # the arrays are exchanged for smaller ones when only one in so many places is used
EVERY = np.iinfo(np.int64).max


class PointIndex:
    """Answers one question: which points lie in this closed box? `duality` turns all matching into it.

    A point is k float64 coordinates, finite or infinite, never NaN, with an id of the caller's choice: small
    integers, close together, since memory is spent up to the largest. A query is k lower and k upper bounds,
    all inclusive.

    The structure is a bucket k-d tree (tree.py has the picture), rebuilt in parts as it gets out of balance
    (update.py has the rule).

    Invariants (`check` tests them; the property tests call it after every step):
      M1  Every present id is in exactly one place, and `place_of` names it; absent ids have -1.
      M2  Points left of a split have coordinate <= its value, points right of it have a larger one.
      M3  The box of a node contains the points below it and the boxes of its children.
      M4  A leaf with more points than a block holds has equal points only. Only its first block may be partly
          filled, and none is empty.
      M5  COUNT is the number of points below. An inner node has some quota left, at least BLOCK_POINTS / 4
          points below it, and two children.
      M6  Every row ever taken is either in the tree or in the free list, once.
      M7  Between two calls no node is due.

    Cost for n points and h hits: `insert` and `delete` O(log^2 n) amortised, though the one that makes the
    root due pays for rebuilding everything, about half a second for a million points; `report` in practice O(log
    n + h); `count_many` and `exists_many` the same without h. Many that are most of all are inserted, or deleted,
    by one build of what is there then.

    BLOCK_POINTS, measured two or three times each on a busy machine, where one setting varies by half: with
    32, 64, 128 a million points in the plane take 68, 62, 59 MB; 13 hits cost 2.1 to 3.4 us with any of them;
    3,700 hits cost 23 to 34 us after a bulk load, but 46 to 60, 46 to 49, 30 us after 500,000 points have
    been exchanged (blocks are then out of order and emptier). 16, tried once, was faster for 5 hits (1.4 us,
    not 2.1) and slower for large answers. 64 is the compromise; an index that mostly gives large answers
    would like 128.

    One owner: kernels release the interpreter lock, so no other thread may touch an index that is being
    changed.
    """

    def __init__(self, dimensions: int) -> None:
        if dimensions < 1:
            raise ValueError(f"an index needs at least one dimension, got {dimensions}")
        self._dimensions = dimensions
        self._tree = empty_tree(dimensions)

    def __len__(self) -> int:
        return int(self._tree.nodes[0, COUNT])

    def __contains__(self, id_: int) -> bool:
        return 0 <= id_ < len(self._tree.place_of) and bool(self._tree.place_of[id_] >= 0)

    @property
    def dimensions(self) -> int:
        """Number of coordinates of a point."""
        return self._dimensions

    @property
    def arrays(self) -> Tree:
        """What kernels take (`search.report`). Ask again after every insert or delete: they may move it."""
        return self._tree

    def insert(self, ids: npt.ArrayLike, points: npt.ArrayLike) -> None:
        """Insert points (n, k) under the given absent ids (n,); all of them or, on ValueError, none."""
        new, rows = self._ids(ids), self._rows(points, "points")
        if len(new) != len(rows):
            raise ValueError(f"{len(new)} ids for {len(rows)} points")
        if not len(new):
            return
        self._tree = grown(self._tree, ids=int(new.max()) + 1)
        present = self._tree.place_of[new] >= 0
        if present.any():
            raise ValueError(f"id {new[present][0]} is in the index already; delete it first")
        self._refuse_repeated(new)
        if 2 * len(new) > len(self):
            self._load(new, rows)
            return
        self._update(new, rows, 1)

    def delete(self, ids: npt.ArrayLike) -> None:
        """Delete the points of the given present ids; all of them or, on ValueError, none."""
        old = self._ids(ids)
        known = old < len(self._tree.place_of)
        known[known] = self._tree.place_of[old[known]] >= 0
        if not known.all():
            raise ValueError(f"id {old[~known][0]} is not in the index")
        self._refuse_repeated(old)
        if len(old) >= MANY and 2 * len(old) > len(self):
            self._build_anew(without=old)
            return
        self._update(old, np.empty((0, self._dimensions)), -1)
        if len(self._tree.blocks) > SPARSE * (1 + len(self) // BLOCK_POINTS):
            self._build_anew(without=old[:0])

    def report(self, low: npt.ArrayLike, high: npt.ArrayLike) -> Ints:
        """The ids of all points p with low <= p <= high in every coordinate, in no particular order."""
        return self.report_many(np.asarray(low)[np.newaxis], np.asarray(high)[np.newaxis])[1]

    def report_many(self, lows: npt.ArrayLike, highs: npt.ArrayLike) -> tuple[Ints, Ints]:
        """For m boxes all pairs (row of the box, id of a point in it) as two columns, ordered by row."""
        low, high = self._boxes(lows, highs)
        _, rows, ids = search.report_some(self._tree, low, high, 0, len(low), EVERY)
        return rows, ids

    def count_many(self, lows: npt.ArrayLike, highs: npt.ArrayLike) -> Ints:
        """For each of m boxes the number of points in it."""
        return search.count_many(self._tree, *self._boxes(lows, highs))

    def exists_many(self, lows: npt.ArrayLike, highs: npt.ArrayLike) -> Booleans:
        """For each of m boxes whether there is a point in it."""
        low, high = self._boxes(lows, highs)
        mask = np.zeros(len(low), np.bool_)
        search.mark_met(self._tree, low, high, mask)
        return mask

    def points(self) -> Floats:
        """All points (n, k), by rising id."""
        places = self._tree.place_of[self._tree.place_of >= 0]
        return self._tree.coordinates.reshape(-1, self._dimensions)[places]

    def points_of(self, ids: Ints) -> Floats:
        """The points of some present ids."""
        return self._tree.coordinates.reshape(-1, self._dimensions)[self._tree.place_of[ids]]

    def memory_bytes(self) -> int:
        """Bytes held by the arrays, used or not."""
        return sum(array.nbytes for array in self._tree)

    def check(self) -> None:
        """Test the invariants M1 to M7; AssertionError names the one that is broken. Slow: plain Python."""
        check_tree(self._tree)

    def _update(self, ids: Ints, points: Floats, change: int) -> None:
        """Insert or delete one by one, with more room whenever the kernel asks for it."""
        done = 0
        while done < len(ids) or self._tree.header[DUE_NODE] >= 0:
            done = update_many(self._tree, ids, points, change, done)
            self._make_room()

    def _load(self, ids: Ints, points: Floats) -> None:
        """Insert many at once: one build of everything costs less than that many descents."""
        total = len(self) + len(ids)
        leaves = 2 * (total // BLOCK_POINTS + 1)  # halving leaves blocks at least half full, if ties are few
        self._tree = grown(self._tree, pairs=leaves, blocks=leaves)
        while not rebuild(self._tree, 0, 0, ids, points):
            self._make_room()

    def _make_room(self) -> None:
        """Enlarge what the kernel that just returned has found too small, if anything."""
        pairs, blocks = self._tree.header[[MISSING_PAIRS, MISSING_BLOCKS]].tolist()
        self._tree = grown(
            self._tree,
            pairs=pairs and len(self._tree.nodes) // 2 + pairs,
            blocks=blocks and len(self._tree.blocks) + blocks,
        )

    def _build_anew(self, without: Ints) -> None:
        """Move what is left of a large index into new, smaller arrays."""
        old = self._tree
        left = old.place_of >= 0
        left[without] = False
        ids = np.flatnonzero(left)
        places = old.place_of[ids]
        points = old.coordinates.reshape(-1, self._dimensions)[places]
        self._tree = empty_tree(self._dimensions, ids=int(ids.max(initial=15)) + 1)
        self._load(ids, points)

    def _refuse_repeated(self, ids: Ints) -> None:
        """ValueError if an id occurs twice. Not sorted: of two writes to one place only the last is found."""
        place_of = self._tree.place_of
        before, mine = place_of[ids], np.arange(len(ids))
        place_of[ids] = mine
        repeated = place_of[ids] != mine
        place_of[ids] = before
        if repeated.any():
            raise ValueError(f"id {ids[repeated][0]} occurs more than once in one call")

    def _ids(self, ids: npt.ArrayLike) -> Ints:
        column = np.asarray(ids)
        if column.ndim != 1 or (column.dtype.kind not in "iu" and len(column)):
            raise ValueError(f"ids must be one column of integers, got {column.dtype} of shape {column.shape}")
        checked: Ints = np.require(column, np.int64, ["C", "A", "W"])
        if len(checked) and checked.min() < 0:
            raise ValueError(f"ids must not be negative, got {checked.min()}")
        return checked

    def _rows(self, values: npt.ArrayLike, what: str) -> Floats:
        # kernels are compiled for writable arrays: those of np.frombuffer would have them compiled again
        rows: Floats = np.require(values, np.float64, ["C", "A", "W"])
        if rows.ndim != 2 or rows.shape[1] != self._dimensions:
            raise ValueError(f"{what} must have shape (n, {self._dimensions}), got {rows.shape}")
        if np.isnan(rows).any():
            raise ValueError(f"{what} must not contain NaN, row {int(np.isnan(rows).any(axis=1).argmax())} does")
        return rows

    def _boxes(self, lows: npt.ArrayLike, highs: npt.ArrayLike) -> tuple[Floats, Floats]:
        low, high = self._rows(lows, "lows"), self._rows(highs, "highs")
        if low.shape != high.shape:
            raise ValueError(f"{len(low)} lower bounds for {len(high)} upper bounds")
        return low, high

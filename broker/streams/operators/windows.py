"""Windows of two streams in rings, found by hash chains: what a window join keeps if it may keep all.

Each side has a ring of tuples, numbered as they come. Windows lose their oldest tuples first, so what is in the window
is a stretch of numbers, and nothing is ever unlinked: a chain ends where it meets a number before the stretch.

    numbers        0  1  2  3  4  5  6  7      window [ROWS 4] after tuple 7: 4 to 7
    keys           a  b  a  c  a  b  b  a
    chain of 'a':  heads -> 7 -> 4 -> 2 -> 0   2 is before the window: the chain ends at 4
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.streams.operators.hashing import hash_of
from hullcast.broker.streams.operators.operator import MOST_RESULTS, RESULTS_AT_ONCE, KeptMemory, too_many
from hullcast.broker.streams.operators.window_join import JoinResults
from hullcast.network.compiled import kernel
from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hullcast.broker.streams.operators.window_join import Merged
    from hullcast.network.wire.arrays import Floats, Ints

#: Rows of `numbers`, a column for each side: the first number in the window, the next to be given, and how many tuples
#: of the stream have been consumed (ghosts too).
FIRST, NEXT, CONSUMED = range(3)
_SMALLEST = 256


class StreamWindow(NamedTuple):
    """How far back a window reaches: the last `rows` tuples of the stream, or those not older than `range` (in
    microseconds, as times are) before the time of the tuple that is consumed."""

    rows: float = inf
    range: float = inf


class JoinColumns(NamedTuple):
    """Of both sides' cells: the columns that must be equal, pair by pair, and those that results have, left first."""

    left_keys: Ints
    right_keys: Ints
    left_out: Ints
    right_out: Ints


class Ring(NamedTuple):
    """The tuples of one side; its length is a power of two."""

    cells: Floats
    seqs: Ints
    times: Floats
    ordinals: Ints  # of the stream: which tuple of it this is
    older: Ints  # the number of the tuple before in the same chain, or -1
    heads: Ints  # by hash the number of the newest tuple, or -1


class WindowStore:
    """Two windows, whole.

    Invariants (`check` tests them):
      W1  The numbers FIRST to NEXT - 1 of a side are the tuples of its window (and perhaps, until the other stream
          moves on, some older ones), in order; they fit into the ring.
      W2  From the head of its hash a tuple is reached over newer ones of the same hash.

    Cost: a tuple's hash, its chain (as many as match, about, if keys are spread), and a copy of its codes.
    """

    def __init__(
        self, columns: JoinColumns, widths: tuple[int, int], windows: tuple[StreamWindow, StreamWindow]
    ) -> None:
        self._columns, self._windows = columns, windows
        self._limits = np.array([[window.rows for window in windows], [window.range for window in windows]])
        self._numbers = np.zeros((3, 2), np.int64)
        self._rings = (_new_ring(widths[0], _SMALLEST), _new_ring(widths[1], _SMALLEST))
        self._memory = KeptMemory()
        self._later = np.empty(1024, np.int64)
        self._out = np.empty((len(columns.left_out) + len(columns.right_out), 1024))

    def __len__(self) -> int:
        """How many tuples are kept."""
        return int((self._numbers[NEXT] - self._numbers[FIRST]).sum())

    def consume(self, merged: Merged, unwanted: int = 0) -> JoinResults:
        self._make_room(merged)
        left, right = (
            np.ascontiguousarray(given) if given.shape[1] else np.empty((len(ring.cells), 0))
            for given, ring in zip(merged.cells, self._rings, strict=True)
        )
        laters, outs, at, stop, found = [], [], 0, len(merged.sides), 0
        while True:
            at, made = join_windows(
                (merged.sides, merged.places, merged.seqs),
                merged.times,
                (left, right),
                (at, stop, unwanted),
                self._columns,
                self._limits,
                self._numbers,
                self._rings,
                self._later,
                self._out,
            )
            laters.append(self._later[:made].copy())
            outs.append(self._out[:, :made].copy())
            found += made
            if at < stop and found >= RESULTS_AT_ONCE:  # enough, but for another tuple of the same moment
                stop = at + int(merged.seqs[at] == merged.seqs[at - 1])
            if at == stop:
                break
            if not made:  # one tuple makes more than there is room for
                if len(self._later) >= MOST_RESULTS:
                    raise too_many(len(self._later) + 1)
                self._later = np.empty(4 * len(self._later), np.int64)
                self._out = np.empty((len(self._out), len(self._later)))
        if len(laters) == 1:
            return JoinResults(laters[0], outs[0], at)
        return JoinResults(np.concatenate(laters), np.concatenate(outs, axis=1), at)

    def _make_room(self, merged: Merged) -> None:
        """W1 holds after these tuples, whatever leaves the windows meanwhile."""
        coming = np.bincount(merged.sides[merged.places >= 0], minlength=2)
        left, right = (self._numbers[NEXT] - self._numbers[FIRST] + coming).tolist()
        if left > len(self._rings[0].seqs):
            self._rings = (self._fitting(0, left), self._rings[1])
        if right > len(self._rings[1].seqs):
            self._rings = (self._rings[0], self._fitting(1, right))

    def _fitting(self, side: int, need: int) -> Ring:
        """The ring of a side, or a larger one, if it is too small."""
        ring = self._rings[side]
        if need <= len(ring.seqs):
            return ring
        size = _ring_size(need)
        self._memory.grow(
            self.size_bytes, _ring_bytes(len(ring.cells), size) - _ring_bytes(len(ring.cells), len(ring.seqs))
        )
        larger = _new_ring(len(ring.cells), size)
        keys = self._columns.right_keys if side else self._columns.left_keys
        move(ring, larger, int(self._numbers[FIRST, side]), int(self._numbers[NEXT, side]), keys)
        return larger

    def held(self) -> Iterable[Floats]:
        for side, ring in enumerate(self._rings):
            slots = np.arange(*self._numbers[[FIRST, NEXT], side]) & (len(ring.seqs) - 1)
            yield ring.cells[:, slots]

    @property
    def size_bytes(self) -> int:
        """What the rings hold in memory."""
        return sum(array.nbytes for ring in self._rings for array in ring)

    def bytes_for(self, left: int, right: int) -> int:
        counts = zip(self._rings, (left, right), strict=True)
        return sum(_ring_bytes(len(ring.cells), _ring_size(count)) for ring, count in counts)

    def keep_in(self, memory: KeptMemory) -> None:
        self._memory = memory

    def check(self) -> None:
        """Raise InvariantBroken unless W1 and W2 hold."""
        for side, ring in enumerate(self._rings):
            first, after, consumed = self._numbers[:, side].tolist()
            if not 0 <= after - first <= len(ring.seqs):
                raise InvariantBroken(f"W1: {first} to {after} in a ring of {len(ring.seqs)}")
            slots = np.arange(first, after) & (len(ring.seqs) - 1)
            if (np.diff(ring.ordinals[slots]) <= 0).any() or (np.diff(ring.times[slots]) < 0).any():
                raise InvariantBroken("W1: not in order")
            if len(slots) and ring.ordinals[slots[-1]] > consumed:
                raise InvariantBroken("W1: more than were consumed")
            reached = []
            for head in ring.heads.tolist():
                while head >= first:
                    reached.append(head)
                    older = int(ring.older[head & (len(ring.seqs) - 1)])
                    if older >= head:
                        raise InvariantBroken("W2: a chain that does not lead back")
                    head = older
            if sorted(reached) != list(range(first, after)):
                raise InvariantBroken("W2: a tuple that is not found, or twice")


def _ring_size(tuples: int) -> int:
    """The length of a ring for so many tuples: doubled, and doubled again, so that growing costs little in all."""
    return max(_SMALLEST, 1 << (tuples - 1).bit_length())


def _ring_bytes(width: int, size: int) -> int:
    return 8 * size * (width + 5)


def _new_ring(width: int, size: int) -> Ring:
    return Ring(
        np.empty((width, size)),
        np.zeros(size, np.int64),
        np.zeros(size),
        np.zeros(size, np.int64),
        np.full(size, -1, np.int64),
        np.full(size, -1, np.int64),
    )


@kernel
def move(ring: Ring, larger: Ring, first: int, after: int, keys: Ints) -> None:
    """Put the tuples of one ring into another, under their numbers."""
    mask, wide = len(ring.seqs) - 1, len(larger.seqs) - 1
    code = np.empty(1)
    bits = code.view(np.int64)
    for number in range(first, after):
        slot, to = number & mask, number & wide
        for c in range(ring.cells.shape[0]):
            larger.cells[c, to] = ring.cells[c, slot]
        larger.seqs[to] = ring.seqs[slot]
        larger.times[to] = ring.times[slot]
        larger.ordinals[to] = ring.ordinals[slot]
        bucket = hash_of(larger.cells, to, keys, code, bits) & wide
        larger.older[to] = larger.heads[bucket]
        larger.heads[bucket] = number


@kernel
def join_windows(
    tuples: tuple[Ints, Ints, Ints],
    times: Floats,
    cells: tuple[Floats, Floats],
    which: tuple[int, int, int],
    columns: JoinColumns,
    limits: Floats,
    numbers: Ints,
    rings: tuple[Ring, Ring],
    later: Ints,
    out: Floats,
) -> tuple[int, int]:
    """Join tuples with the windows, and let them in: `which` says from where to where; those before its third number
    are only let in. Stop at a tuple whose results do not fit into `out`. Returns the first tuple that was not joined,
    and the number of results."""
    sides, places, seqs = tuples
    code = np.empty(1)
    bits = code.view(np.int64)
    left_width, made = len(columns.left_out), 0
    start, stop, joins = which
    for i in range(start, stop):
        side, place, time = sides[i], places[i], times[i]
        other = 1 - side
        theirs = rings[other]
        their_mask = len(theirs.seqs) - 1
        first = numbers[FIRST, other]
        while first < numbers[NEXT, other] and theirs.times[first & their_mask] < time - limits[1, other]:
            first += 1  # what is too many left when the last tuple of that side came in
        numbers[FIRST, other] = first
        hashed = -1
        if place >= 0:
            mine_keys = columns.right_keys if side else columns.left_keys
            their_keys = columns.left_keys if side else columns.right_keys
            hashed = hash_of(cells[side], place, mine_keys, code, bits)
        if hashed >= 0 and i >= joins:
            begin = made
            number = theirs.heads[hashed & their_mask]
            while number >= first:
                slot = number & their_mask
                same = True
                for k in range(len(mine_keys)):
                    same &= cells[side][mine_keys[k], place] == theirs.cells[their_keys[k], slot]
                if same:
                    if made == len(later):
                        return i, begin
                    later[made] = slot
                    made += 1
                number = theirs.older[slot]
            for low in range(begin, (begin + made) // 2):  # the chain gave the newest first
                high = made - 1 - (low - begin)
                later[low], later[high] = later[high], later[low]
            for n in range(begin, made):
                slot = later[n]
                for c in range(left_width):
                    column = columns.left_out[c]
                    out[c, n] = theirs.cells[column, slot] if side else cells[0][column, place]
                for c in range(len(columns.right_out)):
                    column = columns.right_out[c]
                    out[left_width + c, n] = cells[1][column, place] if side else theirs.cells[column, slot]
                later[n] = i
        numbers[CONSUMED, side] += 1
        mine = rings[side]
        mask = len(mine.seqs) - 1
        first = numbers[FIRST, side]
        while first < numbers[NEXT, side] and (
            mine.ordinals[first & mask] <= numbers[CONSUMED, side] - limits[0, side]
            or mine.times[first & mask] < time - limits[1, side]
        ):
            first += 1
        numbers[FIRST, side] = first
        if hashed >= 0:
            number = numbers[NEXT, side]
            slot = number & mask
            for c in range(mine.cells.shape[0]):
                mine.cells[c, slot] = cells[side][c, place]
            mine.seqs[slot] = seqs[i]
            mine.times[slot] = time
            mine.ordinals[slot] = numbers[CONSUMED, side]
            mine.older[slot] = mine.heads[hashed & mask]
            mine.heads[hashed & mask] = number
            numbers[NEXT, side] = number + 1
    return stop, made

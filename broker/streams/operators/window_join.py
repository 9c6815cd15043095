"""The window join of two streams: consumes both in order of moments, and waits for the slower one.

    left    (20, 7)  (25, 11)              moments: (effective time, sequence number)
    right   (20, 8)            reached (22, 12)

    consumed: (20, 7) of the left, (20, 8) of the right. (25, 11) must wait: the right stream has reached time 22 only,
    and may still bring a tuple of time 23. A tuple of it, or its publisher's word that none will come (a heartbeat),
    lets the join go on. A tuple is joined with the window of the other stream as it is when the tuple is consumed; then
    it enters the window of its own.

So what is joined depends on the two streams alone, not on who ran when, nor on how tuples were cut into batches. Of two
tuples of one moment (a stream joined with itself) the left one comes first.

What is kept of the streams is the business of a `JoinStore`: `WindowStore` keeps the windows as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from hullcast.broker.streams.batch import BEGINNING, TupleBatch
from hullcast.broker.streams.operators.operator import Ran
from hullcast.network.compiled import kernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hullcast.broker.streams.operators.operator import KeptMemory
    from hullcast.broker.streams.queue import TupleQueue
    from hullcast.network.wire.arrays import Floats, Ints


class Merged(NamedTuple):
    """Tuples of both streams in the order in which they are consumed.

    `sides`: 0 is left, 1 is right. `places`: the tuple's column in the cells of its side, or -1: it is a ghost, which
    only counts in windows of rows.
    """

    sides: Ints
    places: Ints
    seqs: Ints
    times: Floats
    cells: tuple[Floats, Floats]


class JoinResults(NamedTuple):
    """Results in order: which of the merged tuples made each (`later`), and its codes, of shape (columns, results).
    `taken`: so many of the merged tuples were consumed, the first ones.

    A tuple's results come in the order in which its partners came.
    """

    later: Ints
    cells: Floats
    taken: int


class JoinStore(Protocol):
    """What a window join keeps of its streams."""

    def consume(self, merged: Merged, unwanted: int = 0) -> JoinResults:
        """Join these tuples, one after the other, and keep them, or some of them; at least one, and no more when there
        are `RESULTS_AT_ONCE`. Those of one moment are not cut. The results of the first so many are not wanted."""

    def held(self) -> Iterable[Floats]:
        """The codes of what is kept."""

    @property
    def size_bytes(self) -> int:
        """What is kept, in memory."""

    def bytes_for(self, left: int, right: int) -> int:
        """The same if so many tuples of both streams were in their windows."""

    def keep_in(self, memory: KeptMemory) -> None:
        """Ask there before keeping more."""


class WindowJoin:
    """Two queues into one store."""

    name = "window join"

    def __init__(self, store: JoinStore) -> None:
        self.store = store
        self.after = BEGINNING  # results up to there are not wanted: tuples are only let into their windows

    def can_run(self, inputs: Sequence[TupleQueue]) -> bool:
        left, right = inputs
        if left.tuples:
            return right.tuples > 0 or left.first() <= right.reached
        return right.tuples > 0 and right.first() <= left.reached

    def run(self, inputs: Sequence[TupleQueue], most: int) -> Ran:
        left, right = (_head(queue, most) for queue in inputs)
        before = inputs[0].size + inputs[1].size
        room = min(most + 1, len(left.seqs) + len(right.seqs))  # one more: a pair of one moment is not cut
        sides, places, seqs = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
        times = np.empty(room)
        from_left, from_right = merge(
            (left.seqs, right.seqs),
            (left.times, right.times),
            (_places(left), _places(right)),
            ((*left.reached,), (*right.reached,)),
            most,
            sides,
            places,
            seqs,
            times,
        )
        count = from_left + from_right
        merged = Merged(sides[:count], places[:count], seqs[:count], times[:count], (left.cells, right.cells))
        later, cells, taken = self.store.consume(merged, self._unwanted(merged))
        if taken < count:
            from_right = int(np.count_nonzero(merged.sides[:taken]))
            from_left, count = taken - from_right, taken
        inputs[0].drop(from_left)
        inputs[1].drop(from_right)
        reached = min(queue.frontier() for queue in inputs)
        made = TupleBatch(merged.seqs[later], merged.times[later], cells, reached, min(left.arrived, right.arrived))
        return Ran(count, before - inputs[0].size - inputs[1].size, made)

    def _unwanted(self, merged: Merged) -> int:
        """How many of the tuples have results that nobody wants."""
        time, seq = self.after
        if self.after == BEGINNING or (merged.times[0], merged.seqs[0]) > (time, seq):
            return 0
        return int(np.count_nonzero((merged.times < time) | ((merged.times == time) & (merged.seqs <= seq))))

    def held(self) -> Iterable[Floats]:
        return self.store.held()

    @property
    def size_bytes(self) -> int:
        return self.store.size_bytes

    def keep_in(self, memory: KeptMemory) -> None:
        self.store.keep_in(memory)


_NO_SEQS, _NO_TIMES, _NO_CELLS = np.empty(0, np.int64), np.empty(0), np.empty((0, 0))
_FAR = float("inf")


def _head(queue: TupleQueue, least: int) -> TupleBatch:
    if queue.tuples:
        return queue.gather(least)
    return TupleBatch(_NO_SEQS, _NO_TIMES, _NO_CELLS, queue.reached, _FAR)


def _places(batch: TupleBatch) -> Ints:
    return np.arange(len(batch.seqs)) if batch.places is None else batch.places


@kernel
def merge(
    all_seqs: tuple[Ints, Ints],
    all_times: tuple[Floats, Floats],
    all_places: tuple[Ints, Ints],
    reached: tuple[tuple[float, int], tuple[float, int]],
    most: int,
    sides: Ints,
    places: Ints,
    seqs: Ints,
    times: Floats,
) -> tuple[int, int]:
    """List the tuples that can be consumed in order; how many of the left and of the right there are."""
    at, n = np.zeros(2, np.int64), 0
    while True:
        has_left, has_right = at[0] < len(all_seqs[0]), at[1] < len(all_seqs[1])
        if not has_left and not has_right:
            break
        if has_left and has_right:
            left_time, right_time = all_times[0][at[0]], all_times[1][at[1]]
            right_first = right_time < left_time or (
                right_time == left_time and all_seqs[1][at[1]] < all_seqs[0][at[0]]
            )
            side = 1 if right_first else 0
        else:
            side = 0 if has_left else 1
            time, seq = reached[1 - side]
            if all_times[side][at[side]] > time or (
                all_times[side][at[side]] == time and all_seqs[side][at[side]] > seq
            ):
                break
        i = at[side]
        seq = all_seqs[side][i]
        if n >= most and (n > most or seq != seqs[n - 1]):
            break
        sides[n] = side
        places[n] = all_places[side][i]
        seqs[n] = seq
        times[n] = all_times[side][i]
        at[side] += 1
        n += 1
    return int(at[0]), int(at[1])

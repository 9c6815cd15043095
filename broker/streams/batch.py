"""Micro-batches: tuples of a stream as columns, in order, and how far the stream is with them.

seqs     7    8   11   14        the tuple's sequence number in the log (its position)
times   20   20   25   25        effective times: the largest time of the stream so far, so they never fall
cells  1.5  2.5  3.5  4.5        codes, of shape (columns, tuples)
       NaN  0.0  1.0  0.0
reached (25, 16)                 whatever comes later is behind this moment
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.network.wire.arrays import Booleans, Floats, Ints


class StreamMoment(NamedTuple):
    """A place in the order in which a join consumes: by effective time, then by sequence number."""

    time: float
    seq: int


#: Before everything, and behind everything.
BEGINNING, END = StreamMoment(-inf, -1), StreamMoment(inf, (1 << 63) - 1)


class TupleBatch(NamedTuple):
    """Tuples that follow each other.

    A window of rows counts all tuples of its stream, also those that a filter has dropped before it, so they must not
    vanish: they stay as *ghosts*, without cells. `places` then has, for each tuple, its column in `cells`, or -1.

    B1  Moments rise (of results: never fall, for all that one tuple made have its moment). No moment is behind
        `reached`, and none that is not behind it will ever come.
    B2  Without `places`, `cells` has a column for each tuple; with them, a column for each that is not a ghost, in the
        same order.
    """

    seqs: Ints
    times: Floats
    cells: Floats
    reached: StreamMoment
    arrived: float  # when the oldest of them entered the system
    places: Ints | None = None

    @property
    def size_bytes(self) -> int:
        """What they hold in memory."""
        ghosts = 0 if self.places is None else self.places.nbytes
        return int(self.seqs.nbytes + self.times.nbytes + self.cells.nbytes + ghosts)

    @property
    def first(self) -> StreamMoment:
        """The moment of the first tuple."""
        return StreamMoment(float(self.times[0]), int(self.seqs[0]))

    @property
    def last(self) -> StreamMoment:
        """The moment of the last tuple."""
        return StreamMoment(float(self.times[-1]), int(self.seqs[-1]))

    def some(self, rows: slice, reached: StreamMoment) -> TupleBatch:
        """Results that follow each other; there are no ghosts."""
        return TupleBatch(self.seqs[rows], self.times[rows], self.cells[:, rows], reached, self.arrived)

    def split(self, count: int) -> tuple[TupleBatch, TupleBatch]:
        """The first `count` tuples (one at least), and the rest; there are more than that. Nothing is copied."""
        seqs, times, places = self.seqs, self.times, self.places
        same = seqs[count] == seqs[count - 1] and times[count] == times[count - 1]  # more of this moment will come
        reached = StreamMoment(float(times[count - 1]), int(seqs[count - 1]) - int(same))
        if places is None:
            first = TupleBatch(seqs[:count], times[:count], self.cells[:, :count], reached, self.arrived)
            rest = TupleBatch(seqs[count:], times[count:], self.cells[:, count:], self.reached, self.arrived)
            return first, rest
        full = int(np.count_nonzero(places[:count] >= 0))
        after = places[count:]
        first = TupleBatch(seqs[:count], times[:count], self.cells[:, :full], reached, self.arrived, places[:count])
        shifted = np.where(after < 0, -1, after - full)
        rest = TupleBatch(seqs[count:], times[count:], self.cells[:, full:], self.reached, self.arrived, shifted)
        return first, rest

    def keep(self, kept: Booleans, ghosts: bool) -> TupleBatch:
        """Only the tuples (those with cells) that are marked; with `ghosts`, the others stay without their cells."""
        if not ghosts:
            return self._replace(
                seqs=self.seqs[kept], times=self.times[kept], cells=np.compress(kept, self.cells, axis=1)
            )
        if self.places is not None:
            among = np.zeros(len(self.places), np.bool_)
            among[self.places >= 0] = kept
            kept_cells, kept = kept, among
        else:
            kept_cells = kept
        places = np.where(kept, np.cumsum(kept) - 1, -1)
        return self._replace(cells=np.compress(kept_cells, self.cells, axis=1), places=places)


def stretches(seqs: Ints, about: int) -> list[slice]:
    """Results cut into stretches of about so many, never between two that one tuple made (`seqs` says which one): so
    the last one of a stretch says which results there were. Only what one tuple made is longer."""
    if 0 < len(seqs) <= about:
        return [slice(0, len(seqs))]
    ends = np.append(np.flatnonzero(np.diff(seqs)) + 1, len(seqs))
    found: list[slice] = []
    start = cut = 0
    while start < len(seqs):
        cut = max(cut + 1, int(np.searchsorted(ends, start + about, "right")))
        found.append(slice(start, int(ends[cut - 1])))
        start = found[-1].stop
    return found


def empty(columns: int, reached: StreamMoment, now: float) -> TupleBatch:
    """No tuples: only how far the stream is."""
    return TupleBatch(np.empty(0, np.int64), np.empty(0), np.empty((columns, 0)), reached, now)


def joined(batches: Sequence[TupleBatch]) -> TupleBatch:
    """Batches that follow each other as one."""
    if len(batches) == 1:
        return batches[0]
    places = None
    if any(batch.places is not None for batch in batches):
        found, before = [], 0
        for batch in batches:
            own = batch.places if batch.places is not None else np.arange(len(batch.seqs))
            found.append(np.where(own < 0, -1, own + before))
            before += batch.cells.shape[1]
        places = np.concatenate(found)
    return TupleBatch(
        np.concatenate([batch.seqs for batch in batches]),
        np.concatenate([batch.times for batch in batches]),
        np.concatenate([batch.cells for batch in batches], axis=1),
        batches[-1].reached,
        min(batch.arrived for batch in batches),
        places,
    )

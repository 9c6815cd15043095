"""The store of a window join with bounded memory; a policy of `memory/` decides which tuples go.

`BoundedJoin` knows values and numbers; here are the tuples themselves, by these numbers. Results are some of those that
whole windows would give, in the same order; how many are missed is estimated (`statistics`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.streams.memory.bounded_join import BoundedJoin, JoinWindow, KeepBy
from hullcast.broker.streams.operators.operator import MOST_RESULTS, RESULTS_AT_ONCE, too_many
from hullcast.broker.streams.operators.window_join import JoinResults, Merged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hullcast.broker.streams.memory.bounded_join import BoundedJoinStatistics
    from hullcast.broker.streams.operators.operator import KeptMemory
    from hullcast.broker.streams.operators.windows import JoinColumns, StreamWindow
    from hullcast.network.wire.arrays import Booleans, Floats, Ints


#: Tuples consumed together before it is known how many results they make; doubled while these are few.
FEWEST_AT_ONCE = 64
#: What a tuple takes beside its codes, about: its place here, and in the join, its policy and its sample.
BESIDE_CELLS_BYTES = 200
#: Results that may come of what is consumed together, if suddenly every tuple meets all that is kept.
MOST_PAIRS = 1 << 24


def bounded_bytes(memory: int, width: int) -> int:
    """What so many tuples of so many columns take, about."""
    return memory * (8 * width + BESIDE_CELLS_BYTES)


class BoundedStore:
    """At most `memory` tuples of both streams together.

    Where several columns must be equal, the policy looks at the first of them, and results are those in which the
    others are equal, too.

    Invariant (`check` tests it):
      S1  `_numbers` rise, and are those that the join keeps; the other arrays have a tuple for each.

    Cost, beside that of the join: a copy of what is kept, each micro-batch.
    """

    def __init__(
        self,
        columns: JoinColumns,
        widths: tuple[int, int],
        windows: tuple[StreamWindow, StreamWindow],
        memory: int,
        policy: KeepBy = KeepBy.HEEB,
    ) -> None:
        left, right = (JoinWindow(window.rows, window.range) for window in windows)
        self._columns, self._widths, self._memory = columns, widths, memory
        self._join = BoundedJoin(left, right, memory, policy)
        self._arrived = 0  # in all, ghosts too
        self._ordinals = [0, 0]
        self._numbers: Ints = np.empty(0, np.int64)
        self._sides: Ints = np.empty(0, np.int64)
        self._seqs: Ints = np.empty(0, np.int64)
        self._times: Floats = np.empty(0)
        self._cells: Floats = np.empty((max(widths), 0))
        self._at_once = FEWEST_AT_ONCE  # tuples that are consumed together: fewer while each makes many results

    def __len__(self) -> int:
        """How many tuples are kept."""
        return len(self._numbers)

    def consume(self, merged: Merged, unwanted: int = 0) -> JoinResults:
        count = self._few(merged.seqs)
        if count < len(merged.sides):
            sides, places, seqs, times, given = merged
            merged = Merged(sides[:count], places[:count], seqs[:count], times[:count], given)
        results = self._consume(merged)
        found = len(results.later)
        if found > RESULTS_AT_ONCE:
            self._at_once = max(1, count * RESULTS_AT_ONCE // (2 * found))
            most = int(np.bincount(results.later).max())
            if most > MOST_RESULTS:
                raise too_many(most)
        elif found < RESULTS_AT_ONCE // 4 and count >= self._at_once:
            self._at_once = min(2 * self._at_once, max(FEWEST_AT_ONCE, MOST_PAIRS // self._memory))
        if unwanted and found:
            wanted = results.later >= unwanted
            results = JoinResults(results.later[wanted], np.compress(wanted, results.cells, axis=1), count)
        return results

    def _few(self, seqs: Ints) -> int:
        """How many tuples to consume; two of one moment are not cut."""
        count = min(len(seqs), self._at_once)
        while count < len(seqs) and seqs[count] == seqs[count - 1]:
            count += 1
        return count

    def _consume(self, merged: Merged) -> JoinResults:
        count = len(merged.sides)
        cells, values = np.full((max(self._widths), count), np.nan), np.full(count, np.nan)
        ordinals = np.empty(count, np.int64)
        for side, (keys, given) in enumerate(
            zip((self._columns.left_keys, self._columns.right_keys), merged.cells, strict=True)
        ):
            own = np.flatnonzero(merged.sides == side)
            ordinals[own] = np.arange(self._ordinals[side] + 1, self._ordinals[side] + 1 + len(own))
            self._ordinals[side] += len(own)
            own = own[merged.places[own] >= 0]
            if len(own):
                cells[: len(given), own] = given[:, merged.places[own]]
                values[own] = cells[keys[0], own] if len(keys) else 0.0
        found = self._join.add(merged.sides, values, ordinals, merged.times)
        numbers = np.concatenate([self._numbers, np.arange(self._arrived, self._arrived + count)])
        self._arrived += count
        sides = np.concatenate([self._sides, merged.sides])
        all_cells = np.concatenate([self._cells, cells], axis=1)
        results = self._results(found.arrivals, np.searchsorted(numbers, found.kept), merged.sides, cells, all_cells)
        kept = np.ones(len(numbers), np.bool_)
        kept[len(self._numbers) :] = ~np.isnan(values)
        kept[np.searchsorted(numbers, found.let_go)] = False
        self._numbers, self._sides, self._cells = numbers[kept], sides[kept], np.compress(kept, all_cells, axis=1)
        self._seqs = np.concatenate([self._seqs, merged.seqs])[kept]
        self._times = np.concatenate([self._times, merged.times])[kept]
        return results

    def _results(self, later: Ints, partner: Ints, sides: Ints, cells: Floats, all_cells: Floats) -> JoinResults:
        columns = self._columns
        is_left: Booleans = sides[later] == 0
        if len(columns.left_keys) > 1:
            same = np.ones(len(later), np.bool_)
            for left, right in zip(columns.left_keys[1:].tolist(), columns.right_keys[1:].tolist(), strict=True):
                mine = np.where(is_left, cells[left, later], cells[right, later])
                same &= mine == np.where(is_left, all_cells[right, partner], all_cells[left, partner])
            later, partner, is_left = later[same], partner[same], is_left[same]
        out = np.empty((len(columns.left_out) + len(columns.right_out), len(later)))
        for at, column in enumerate(columns.left_out.tolist()):
            out[at] = np.where(is_left, cells[column, later], all_cells[column, partner])
        for at, column in enumerate(columns.right_out.tolist(), len(columns.left_out)):
            out[at] = np.where(is_left, all_cells[column, partner], cells[column, later])
        return JoinResults(later, out, len(sides))

    def held(self) -> Iterable[Floats]:
        return (self._cells,)

    @property
    def size_bytes(self) -> int:
        """About what it keeps when it is full, which it soon is."""
        return bounded_bytes(self._memory, max(self._widths))

    def bytes_for(self, left: int, right: int) -> int:
        return self.size_bytes

    def keep_in(self, memory: KeptMemory) -> None:
        """It never keeps more."""

    def statistics(self) -> BoundedJoinStatistics:
        """What was kept, dropped and, by estimate, missed."""
        return self._join.statistics()

    def check(self) -> None:
        """Raise InvariantBroken unless S1 holds, and what the join promises."""
        self._join.check()
        assert self._numbers.tolist() == self._join.numbers().tolist(), "S1"

"""What is known of a stream besides its tuples: their order, their times, and which are kept.

A stream's tuples are rows of a `TableStore`, which has no order. Here is the order, oldest first: of each tuple its
position and its *effective time*, the largest time that the stream had reached with it. The time column says when a
tuple happened; a late one counts as of the time that the stream had reached, so effective times never fall:

    position          5    8    9   12         the stream's time is 10:04; a heartbeat (ADVANCE STREAM) said so
    time column   10:01 10:03 10:02 10:03
    effective     10:01 10:03 10:03 10:03
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.tables.room import SMALLEST, with_room
from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from hullcast.broker.tables.schema import StreamTerms, Table
    from hullcast.network.wire.arrays import Floats, Ints

#: Tuples removed at once, at most, counted in all tables that have them; and how many too many there may be before some
#: are.
REMOVED_AT_ONCE = 4096
FEWEST_OVER = 1024
#: Tuples beyond `retain_rows` that stay if joins still need them: twice as many as a join may be behind.
HELD_BACK = 500_000


class TimeMark(NamedTuple):
    """The stream had reached a time before any tuple behind a position came."""

    position: int
    time: float


class StreamOrder:
    """The order of a stream's tuples, their effective times, and how far the stream has come.

    Invariants:
      T1  `positions` rise strictly, and are those of the tuples in the store; `times` never fall (NaN: none, where the
          stream has no time column).
      T2  `time` is at least the last of `times`; -inf before the first tuple and heartbeat.
      T3  `restored` with `marks` and the tuples in the store gives the same order, times and time.
      T4  No tuple at or before `removed` is left, and none behind it is missing.
      T5  `gaps` rise, are behind `removed`, and between two of them is a tuple. (Of a derived stream: results are
          missing there. A gap has a position of its own, which is no tuple's.)

    Cost: amortised O(1) a tuple, 16 bytes each.
    """

    def __init__(self, table: Table) -> None:
        assert table.stream is not None, "a stream"
        self._terms: StreamTerms = table.stream
        self._time_column, self._key = table.time, table.key
        self.time = -np.inf  # microseconds since 1970
        self.removed = 0  # the last position that was removed
        self._doomed = 0  # tuples up to this position are no longer to be kept
        self._positions: Ints = np.empty(0, np.int64)
        self._times: Floats = np.empty(0)
        self._start = self._end = 0
        self._marks: list[TimeMark] = []
        self.gaps: list[int] = []

    def __len__(self) -> int:
        return self._end - self._start

    @property
    def positions(self) -> Ints:
        """Of all tuples, oldest first; as long as nothing changes."""
        return self._positions[self._start : self._end]

    @property
    def times(self) -> Floats:
        """The effective times of all tuples; as long as nothing changes."""
        return self._times[self._start : self._end]

    @property
    def last(self) -> int:
        """The position of the last tuple; 0 if there is none."""
        return int(self._positions[self._end - 1]) if len(self) else 0

    @property
    def marks(self) -> tuple[TimeMark, ...]:
        """What the tuples alone do not tell of their effective times."""
        return tuple(self._marks)

    # --- changes -------------------------------------------------------------------------------------------

    def append(self, cells: Floats) -> None:
        """Tuples came: (columns, n) codes, in order."""
        positions = cells[self._key].astype(np.int64)
        n = len(positions)
        if not n:
            return
        if positions[0] <= max(self.last, self.removed) or (np.diff(positions) <= 0).any():
            raise InvariantBroken(f"T1: positions {positions[0]} to {positions[-1]} behind {self.last}")
        self._make_room(n)
        self._positions[self._end : self._end + n] = positions
        self._times[self._end : self._end + n] = self._effective(cells, np.full(n, -np.inf))
        self._end += n

    def _effective(self, cells: Floats, least: Floats) -> Floats:
        """The effective times of tuples behind those that are here, given what each is at `least`."""
        if self._time_column is None:
            return np.full(len(least), np.nan)
        least[:1] = np.maximum(least[:1], self.time)
        times: Floats = np.maximum.accumulate(np.maximum(cells[self._time_column], least))
        self.time = float(times[-1]) if len(times) else self.time
        return times

    def advance(self, time: float, seq: int) -> bool:
        """The stream has come to a time, after all updates up to `seq`; whether that is news."""
        if self._time_column is None or time <= self.time:
            return False
        self.time = time
        self._mark(seq)
        return True

    def _mark(self, position: int) -> None:
        if self._marks and self._marks[-1].position >= max(self.last, self.removed):
            self._marks.pop()  # no tuple came since
        self._marks.append(TimeMark(position, self.time))

    def missing(self, position: int) -> None:
        """Results are missing up to a position, which is behind all others here."""
        if self.gaps and self.gaps[-1] > self.last:
            self.gaps.pop()  # no tuple came since: whoever hears of the later one knows of both
        self.gaps.append(position)

    def gaps_behind(self, position: int) -> list[int]:
        """The gaps behind a position, in order."""
        return self.gaps[bisect_right(self.gaps, position) :]

    def remove(self, positions: Floats) -> None:
        """The oldest tuples go: these, in order."""
        n = len(positions)
        if not n:
            return
        if n > len(self) or not np.array_equal(self.positions[:n], positions):
            raise InvariantBroken(f"T4: {n} tuples are removed that are not the oldest")
        self.removed, reached = int(positions[-1]), float(self.times[n - 1])
        self._start += n
        self.gaps = self.gaps_behind(self.removed)
        if self._time_column is not None:
            later = [mark for mark in self._marks if mark.position >= self.removed]
            self._marks = [TimeMark(self.removed, reached), *later]

    def restored(self, cells: Floats, removed: int, marks: list[TimeMark], gaps: list[int]) -> None:
        """Begin with tuples (columns, n) in any order, and what was known of them."""
        self.gaps = gaps
        order = np.argsort(cells[self._key])
        cells = cells[:, order]
        least = np.full(len(order), -np.inf)
        behind = -np.inf
        for position, time in marks:
            at = int(np.searchsorted(cells[self._key], position, "right"))
            behind = max(behind, time)
            if at < len(order):
                least[at] = max(least[at], time)
        self.removed, self._marks = removed, list(marks)
        self._make_room(len(order))
        self._positions[: len(order)] = cells[self._key]
        self._times[: len(order)] = self._effective(cells, least)
        self._end = len(order)
        if self._time_column is not None:
            self.time = max(self.time, behind)

    # --- retention -----------------------------------------------------------------------------------------

    def overdue(self, tables: int = 1) -> Floats:
        """The positions of the oldest tuples, if so many are no longer to be kept that removing them pays; some at a
        time, as long as there are any. Fewer, if they are to be removed from several tables."""
        if self._doomed <= self.removed:
            self._doomed = self._no_longer_kept()
        doomed = int(np.searchsorted(self.positions, self._doomed, "right"))
        return self.positions[: min(doomed, max(1, REMOVED_AT_ONCE // tables))].astype(np.float64)

    def _no_longer_kept(self) -> int:
        """The last position of the tuples that are not to be kept, if these are so many that removing them pays."""
        rows = self._terms.rows
        over = len(self) - rows
        removing = over if over > min(max(rows // 8, FEWEST_OVER), REMOVED_AT_ONCE) else 0
        if self._terms.retain_s is not None:
            old = int(np.searchsorted(self.times, self.time - self._terms.retain_s * 1e6))
            removing = max(removing, old if old >= min(FEWEST_OVER, max(1, len(self) // 8)) else 0)
        return int(self.positions[removing - 1]) if removing > 0 else 0

    def spare(self, positions: Floats, needed: int) -> Floats:
        """Those of the overdue tuples at `positions` that nobody needs: `needed` is the last position that may go. All
        of them, if too many would stay."""
        if len(self) > self._terms.rows + HELD_BACK:
            return positions
        count = int(np.searchsorted(positions, needed, "right"))
        return positions[: count if count >= min(len(positions), FEWEST_OVER) else 0]

    def behind(self, position: int) -> Ints:
        """The positions of the tuples behind one, in order: a copy."""
        return self.positions[int(np.searchsorted(self.positions, position, "right")) :].copy()

    def since(self, time: float) -> int:
        """How many tuples, the last ones, have an effective time of at least this."""
        return len(self) - int(np.searchsorted(self.times, time))

    def lost_before(self, after: int, created: int) -> bool:
        """Whether tuples behind a position are gone. Position 0 stands for the beginning, whenever that was."""
        return after < self.removed or 0 < after < created

    def memory_bytes(self) -> int:
        """About what it holds."""
        return 16 * self._end + 100 * (len(self._marks) + len(self.gaps))

    def check(self, cells: Floats) -> None:
        """InvariantBroken unless T1 to T4 hold of the tuples (columns, n) in the store."""
        if not np.array_equal(np.sort(cells[self._key]), self.positions) or (np.diff(self.positions) <= 0).any():
            raise InvariantBroken("T1: the order is not that of the tuples")
        if self._time_column is not None and len(self) and (np.diff(self.times).min(initial=0) < 0):
            raise InvariantBroken("T1: times fall")
        if self._time_column is not None and len(self) and self.time < self.times[-1]:
            raise InvariantBroken("T2: the time is behind its tuples")
        if len(self) and self.positions[0] <= self.removed:
            raise InvariantBroken("T4: a tuple is left that was removed")
        gaps = np.array([self.removed, *self.gaps])
        if (np.diff(gaps) <= 0).any() or (np.diff(np.searchsorted(self.positions, gaps[1:])) <= 0).any():
            raise InvariantBroken("T5: gaps do not rise, or have no tuple between them")

    def _make_room(self, more: int) -> None:
        n = len(self)
        if self._start > n + SMALLEST:  # more have gone than are here: these take their places
            self._positions[:n], self._times[:n], self._start, self._end = self.positions, self.times, 0, n
        self._positions = with_room(self._positions, self._end + more)
        self._times = with_room(self._times, self._end + more)

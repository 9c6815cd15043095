"""A window join of two streams that keeps at most so many tuples.

The caller holds the tuples; this knows their values, and names them by numbers: the n-th arrival is number n, counted
over all calls. So a caller keeps payloads by number, and forgets those in `Joined.let_go`::

    join = BoundedJoin(JoinWindow(rows=1000), JoinWindow(span=10.0), memory=5000)
    found = join.add(sides, values, ordinals, times)     # columns of a micro-batch, in the order of consumption
    results = batch[found.arrivals], payloads[found.kept]
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import inf

import numpy as np

from hullcast.broker.streams.memory import worth
from hullcast.broker.streams.memory.fitting import RECENT, Fits, FittedStream, fitted, level_of, write_curves
from hullcast.broker.streams.memory.joining import LOOK_SHARE, join_arrivals, list_worths
from hullcast.broker.streams.memory.kept import COUNT, FREE, check_kept, grown_kept, list_numbers, new_kept
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.network.wire.errors import InvariantBroken

LEFT, RIGHT = 0, 1
#: How many dropped tuples the shadow holds (joining.py): more make the estimate of what is missed more exact.
SHADOW = 1_024
#: Points of the curves of worth, and rows of surfaces.
BINS, KNOTS = 257, 9
#: After how many arrivals models are first fitted, and how often later on; and how often they are also chosen anew.
FIRST_FIT, FIT_EVERY, CHOOSE_EVERY = 256, 4_096, 16_384
_NEVER = 1 << 62
_NO_LIMIT = -1
_NOTHING: Floats = np.zeros(0)
_LARGEST_WIDTH = 1 << 20


class KeepBy(IntEnum):
    """How it is decided which tuple goes when memory is full (worth.py)."""

    RAND = worth.RAND
    LRU = worth.LRU
    PROB = worth.PROB
    LIFE = worth.LIFE
    HEEB = worth.HEEB


@dataclass(frozen=True, slots=True)
class JoinWindow:
    """Which tuples of a stream the other stream's arrivals join: the last `rows`, and those at most `span` old.

    A tuple is in `rows` = n if its ordinal is greater than the stream's last one minus n, and in `span` if its time is
    at least the present time minus `span`.
    """

    rows: float = inf
    span: float = inf

    def __post_init__(self) -> None:
        if not (self.rows >= 1 and self.span >= 0):
            raise ValueError(f"a window needs 1 row or more and a span of 0 or more, got {self.rows} and {self.span}")


@dataclass(frozen=True, slots=True)
class Joined:
    """What a batch gave: a result is an arrival, by its place in the batch, with a tuple that came before, by number.

    Results are in order of arrival of the later tuple, then of the earlier one. `let_go` has the numbers that no later
    result will name: of tuples that left their windows or were dropped, and of arrivals that were not kept.
    """

    arrivals: Ints
    kept: Ints
    let_go: Ints


@dataclass(frozen=True, slots=True)
class BoundedJoinStatistics:
    """What a join did so far."""

    arrived: int
    kept: int
    produced: int
    dropped: int  # to make room: kept ones, and arrivals that were worth less
    expired: int  # left their windows
    missed: float  # results that dropped tuples would have had: an estimate, exact while the shadow holds all of them
    lifetime: float  # mean arrivals that a dropped tuple had been kept for

    @property
    def missed_share(self) -> float:
        """The share of all results that was missed."""
        return self.missed / max(1.0, self.missed + self.produced)


class BoundedJoin:
    """The memory of a window join by equality.

    `memory`: how many tuples of both sides together are kept; None: all that the windows hold, and nothing is dropped.
    The same arrivals give the same results however they are divided into batches.

    Cost of an arrival: O(1), and O(1) for each result; when memory is full, 8 evaluations of worth for a drop,
    amortised. Memory: about 150 bytes a tuple, and 64 for the tables of counters.

    Invariants (`check` tests them):
      M1  At most `memory` tuples are kept; all are in their windows as of the last arrival.
      M2  arrived = kept + dropped + expired + those that were NULL.
      and K1, K2 (kept.py)
    """

    def __init__(
        self,
        left: JoinWindow,
        right: JoinWindow,
        memory: int | None = None,
        policy: KeepBy = KeepBy.HEEB,
        *,
        shadow: int = SHADOW,
    ) -> None:
        if memory is not None and memory < 1:
            raise ValueError(f"a join needs a memory of 1 tuple or more, got {memory}")
        self._windows: Floats = np.array([[left.rows, left.span], [right.rows, right.span]])
        self._memory = _NO_LIMIT if memory is None else memory
        self._policy = policy
        self._kept = new_kept(0)
        self._shadow = new_kept(0 if memory is None else shadow)
        width = min(_LARGEST_WIDTH, max(1_024, 1 << (4 * (memory or 1) - 1).bit_length()))
        self._beliefs = worth.new_beliefs(2 if memory is None else width, KNOTS, BINS)
        self._state: Ints = np.zeros(worth.STATES, np.int64)
        self._clock: Floats = np.zeros(worth.CLOCKS)
        self._clock[worth.NOW] = -inf
        self._clock[worth.SHARE : worth.PACE + 2] = 0.5
        self._clock[worth.LIFETIME] = float(memory or 1)
        self._queue: Ints = np.zeros((max(1, (memory or 1) // LOOK_SHARE), 2), np.int64)
        self._queued_worth: Floats = np.zeros(len(self._queue))
        self._pairs: Ints = np.empty((1_024, 2), np.int64)
        self._recent: Floats = np.full((2, RECENT), np.nan)
        self._declared: dict[int, FittedStream] = {}
        self._fits = [FittedStream(Fits.STATIONARY), FittedStream(Fits.STATIONARY)]
        self._nulls = 0

    def __len__(self) -> int:
        return int(self._kept.ends[LEFT, COUNT] + self._kept.ends[RIGHT, COUNT])

    def add(self, sides: Ints, values: Floats, ordinals: Ints, times: Floats) -> Joined:
        """Take arrivals in the order in which they are consumed; their results with what is kept.

        `sides`: LEFT or RIGHT. `values`: codes of what is joined on, equal where the values are; NaN is NULL, joins
        nothing, and is not kept. `ordinals` rise within a side. `times` never
        fall (an earlier one counts as the latest before it); NaN where streams have no time. Windows of rows move with
        the arrivals given here: tuples that a filter took out, but that count for the window, are given as NaN.
        """
        n = len(values)
        sides = np.require(sides, np.int64, ["C", "A", "W"])
        codes = np.asarray(values, np.float64) + 0.0  # a copy, and -0.0 becomes 0.0
        ordinals, times = (
            np.require(ordinals, np.int64, ["C", "A", "W"]),
            np.require(times, np.float64, ["C", "A", "W"]),
        )
        if not len(sides) == len(ordinals) == len(times) == n:
            raise ValueError(f"columns of one length, got {len(sides)}, {n}, {len(ordinals)} and {len(times)}")
        self._make_room(n)
        self._nulls += int(np.isnan(codes).sum())
        let_go: Ints = np.empty(len(self) + n, np.int64)
        self._state[worth.FOUND] = self._state[worth.LET_GO] = 0
        at = 0
        while at < n:
            next_fit = self._next_fit()
            stop = min(n, at + next_fit - int(self._state[worth.STEPS]))
            at = join_arrivals(
                sides, codes.view(np.int64), codes, ordinals, times, at, stop, self._memory, int(self._policy),
                self._windows, self._kept, self._shadow, self._beliefs, self._state, self._clock, self._queue,
                self._queued_worth, self._recent, self._pairs, let_go,
            )  # fmt: skip
            if at < stop:
                self._pairs = np.concatenate([self._pairs, np.empty_like(self._pairs)])
            elif self._state[worth.STEPS] == next_fit:
                self._fit()
        found = self._pairs[: self._state[worth.FOUND]]
        return Joined(found[:, 0].copy(), found[:, 1].copy(), let_go[: self._state[worth.LET_GO]].copy())

    def declare(self, side: int, model: FittedStream) -> None:
        """Say what a stream is like, rather than let it be fitted."""
        self._declared[side] = model

    def models(self) -> tuple[FittedStream, FittedStream]:
        """What is believed of the two streams."""
        return self._fits[LEFT], self._fits[RIGHT]

    def numbers(self) -> Ints:
        """The numbers of all that is kept, rising."""
        found = np.empty(len(self), np.int64)
        list_numbers(self._kept, found)
        return np.sort(found)

    def worths(self) -> tuple[Ints, Floats]:
        """The numbers of all that is kept, rising, and what each is worth by the policy: the least is dropped first."""
        numbers, found = np.empty(len(self), np.int64), np.empty(len(self))
        list_worths(
            int(self._policy), self._kept, self._beliefs, self._windows, self._state, self._clock, numbers, found
        )
        order = np.argsort(numbers)
        return numbers[order], found[order]

    def statistics(self) -> BoundedJoinStatistics:
        """What was done so far."""
        state, clock = self._state, self._clock
        return BoundedJoinStatistics(
            int(state[worth.STEPS]), len(self), int(state[worth.PRODUCED]),
            int(state[worth.DROPPED] + state[worth.REFUSED]), int(state[worth.EXPIRED]), float(clock[worth.MISSED]),
            float(clock[worth.LIFETIME]),
        )  # fmt: skip

    def memory_bytes(self) -> int:
        """Bytes held."""
        arrays = (*self._kept, *self._shadow, *self._beliefs, self._queue, self._queued_worth, self._pairs)
        return sum(array.nbytes for array in arrays)

    def check(self) -> None:
        """Verify M1, M2, K1 and K2, or raise InvariantBroken."""
        check_kept(self._kept)
        told = self.statistics()
        if self._memory >= 0 and len(self) > self._memory:
            raise InvariantBroken(f"M1 {len(self)} tuples are kept, and memory is {self._memory}")
        if told.arrived != told.kept + told.dropped + told.expired + self._nulls:
            raise InvariantBroken(f"M2 {told} and {self._nulls} NULLs do not add up")

    def _next_fit(self) -> int:
        """Before which arrival models are fitted again; not by batches: where they end must make no difference."""
        steps = int(self._state[worth.STEPS])
        if self._memory < 0 or self._policy is not KeepBy.HEEB:
            return _NEVER
        if steps < FIT_EVERY:
            return max(FIRST_FIT, 1 << steps.bit_length())
        return steps - steps % FIT_EVERY + FIT_EVERY

    def _fit(self) -> None:
        """Fit models to what was shown lately, and make their curves; while nothing was dropped there is no need."""
        if not self._state[worth.DROPPED] + self._state[worth.REFUSED]:
            return
        for side in (LEFT, RIGHT):
            arrived = int(self._state[worth.ARRIVED + side])
            shown = np.roll(self._recent[side], -(arrived % RECENT))[-min(arrived, RECENT) :] if arrived else _NOTHING
            choose = self._state[worth.STEPS] < CHOOSE_EVERY or self._state[worth.STEPS] % CHOOSE_EVERY == 0
            found = fitted if choose else self._fits[side].again
            fit = self._declared.get(side) or found(shown, arrived - len(shown))
            lifetime = float(self._clock[worth.LIFETIME] * self._clock[worth.SHARE + side])
            write_curves(fit, worth.alpha_of(lifetime), self._beliefs.terms[side], self._beliefs.curves[side])
            if fit.model is Fits.WALK and len(shown):
                self._clock[worth.SHOWN + side] = level_of(shown, fit.smooth)
            self._fits[side] = fit

    def _make_room(self, more: int) -> None:
        need = len(self) + more
        if self._memory >= 0:
            need = min(need, self._memory)
        if need > len(self) + self._kept.ends[FREE, COUNT]:
            wanted = 2 * need if self._memory < 0 else min(2 * need, self._memory)
            self._kept = grown_kept(self._kept, wanted)
            self._state[worth.HEAD] = self._state[worth.QUEUED] = 0  # slots changed

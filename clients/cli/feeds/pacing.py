"""When updates of a trace are due, and how long they took: decisions only, the clock is the caller's.

Updates that are due within one tick go together:

    due     0.000  0.001  0.002  0.003  0.004  0.005  0.006 ..     at 1,000 updates/s
            |------------- one batch --------------|------ ..      a tick of 5 ms
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, log

import numpy as np

from hullcast.network.wire.arrays import Floats
from hullcast.network.wire.errors import UsageError

TICK_S = 0.005


@dataclass(frozen=True, slots=True)
class Send:
    """These many updates are to go now; the last of them was due at `due` seconds."""

    count: int
    due: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is to go for so many seconds."""

    seconds: float


class Pacer:
    """Says what to do next, given what time it is. Times are seconds since the start of the replay.

    Either `rate` updates a second (0: all are due at once), or at the times of the trace itself, which `extend` brings.
    A sender that is late gets larger batches, up to `most`, until it has caught up: no update is left out.
    """

    def __init__(self, rate: float | None, most: int = 1000) -> None:
        if rate is not None and not 0 <= rate < inf:
            raise UsageError(f"a rate must be 0 or more updates a second, got {rate}")
        if most < 1:
            raise UsageError(f"a batch must have at least 1 row, got {most}")
        self._rate = rate
        self._most = most
        self._sent = 0
        self._next_tick = 0.0

    @property
    def paced(self) -> bool:
        """Whether there is a pace at all."""
        return self._rate != 0

    def due(self, count: int, times: Floats | None = None) -> Floats:
        """When the next `count` updates are due; `times` are those of the trace, if it has some."""
        if self._rate is None:
            if times is None:
                raise UsageError("a pace by the trace's own times needs times")
            return times
        if not self._rate:
            return np.zeros(count)
        return (self._sent + np.arange(count)) / self._rate

    def decide(self, now: float, due: Floats) -> Send | Wait:
        """What to do with updates that are due at these (ascending) times, of which there is one at least."""
        if not self.paced:
            count = min(self._most, len(due))
            self._sent += count
            return Send(count, now)
        if now < self._next_tick:
            return Wait(self._next_tick - now)
        ready = int(np.searchsorted(due, now, side="right"))
        if not ready:
            return Wait(max(float(due[0]), self._next_tick) - now)
        count = min(ready, self._most)
        self._sent += count
        # behind by more than a batch, or all of these are gone and the next ones may be due: at once again, else with
        # the next tick
        self._next_tick = now if count < ready or count == len(due) else now + TICK_S
        return Send(count, float(due[count - 1]))


class Times:
    """A trace's time column as seconds since its first row, played `speed` times as fast.

    Rows that are out of order are due with the latest before them. A trace that starts again (`restart`) goes on
    where it ended.
    """

    def __init__(self, speed: float) -> None:
        if not 0 < speed < inf:
            raise UsageError(f"a speed must be above 0, got {speed}")
        self._speed = speed
        self._first: float | None = None
        self._offset = 0.0
        self._latest = 0.0

    def restart(self) -> None:
        """The trace starts again."""
        self._first = None
        self._offset = self._latest

    def due(self, seconds: Floats) -> Floats:
        """When rows with these instants are due."""
        if self._first is None:
            self._first = float(seconds[0])
        due = self._offset + (seconds - self._first) / self._speed
        due = np.maximum.accumulate(np.maximum(due, self._latest))
        self._latest = float(due[-1])
        return due


class Latencies:
    """Durations, counted in buckets 2 % wide from 10 µs to 1,000 s: any number of them, in the same memory."""

    _LEAST, _STEP = 1e-5, log(1.02)

    def __init__(self) -> None:
        self._counts = np.zeros(ceil(log(1e3 / self._LEAST) / self._STEP) + 1, np.int64)

    def add(self, seconds: float) -> None:
        """One more."""
        place = int(log(max(seconds, self._LEAST) / self._LEAST) / self._STEP)
        self._counts[min(place, len(self._counts) - 1)] += 1

    def __len__(self) -> int:
        return int(self._counts.sum())

    def quantile(self, share: float) -> float:
        """The duration that this share did not exceed, to about 1 %; 0 if there are none."""
        total = len(self)
        if not total:
            return 0.0
        place = int(np.searchsorted(np.cumsum(self._counts), max(1, ceil(share * total))))
        return float(self._LEAST * np.exp((place + 0.5) * self._STEP))

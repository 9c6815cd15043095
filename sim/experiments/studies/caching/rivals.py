"""Policies that know less than HEEB, or everything: what it is compared with.

    RAND    by chance                                       LRU   the one not used for the longest time
    PROB    the value that the other stream showed least often; in a cache that is LFU
    LIFE    PROB's share times the steps that are left of the window
    LFD     the one that will be referenced last (offline, for caches: the optimum)

RAND and PROB may know a window, too; then what is out of it goes first. (Das, Gehrke, Riedewald, *Approximate join
processing over data streams*, 2003, has PROB and LIFE.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hullcast.sim.experiments.studies.caching.policy import Candidates, MemoryPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.network.wire.arrays import Floats, Ints

#: No window: as many steps as any tuple may stay.
FOR_EVER = 1 << 40


class Rand(MemoryPolicy):
    """By chance."""

    name: ClassVar[str] = "RAND"

    def __init__(self, chance: np.random.Generator, windows: tuple[int, int] = (FOR_EVER, FOR_EVER)) -> None:
        self._chance, self._windows = chance, np.array(windows)

    def worth(self, candidates: Candidates, now: int) -> Floats:
        drawn = self._chance.random(len(candidates.values))
        return np.where(steps_left(candidates, self._windows, now) > 0, drawn, drawn - 1.0)


class Lru(MemoryPolicy):
    """Least recently used."""

    name: ClassVar[str] = "LRU"

    def worth(self, candidates: Candidates, now: int) -> Floats:
        return candidates.used.astype(np.float64)


class CountedValues(MemoryPolicy):
    """Counts what the streams show: the perfect form, without a limit of memory. Not a policy by itself."""

    def __init__(self) -> None:
        self._counts = [np.zeros(1, np.int64), np.zeros(1, np.int64)]
        self._first = [0, 0]
        self._total = [0, 0]

    def show(self, shown: Sequence[int | None], now: int) -> None:
        for side, value in enumerate(shown):
            if value is not None:
                self._count(side, value)

    def share(self, side: int, values: Ints) -> Floats:
        """How often a stream showed each value, of all that it showed."""
        counts = self._counts[side]
        places = values - self._first[side]
        known = (places >= 0) & (places < len(counts))
        return np.where(known, counts[np.where(known, places, 0)], 0) / max(1, self._total[side])

    def of_others(self, candidates: Candidates) -> Floats:
        """How often the stream that each candidate waits for showed its value."""
        by_side = [self.share(1 - side, candidates.values) for side in (0, 1)]
        return np.where(candidates.sides == 0, by_side[0], by_side[1])

    def _count(self, side: int, value: int) -> None:
        counts, first = self._counts[side], self._first[side]
        if self._total[side] == 0:
            self._first[side] = first = value
        if not first <= value < first + len(counts):
            low, high = min(first, value), max(first + len(counts), value + 1)
            spare = high - low
            low, high = (low - spare, high) if value < first else (low, high + spare)
            larger = np.zeros(high - low, np.int64)
            larger[first - low : first - low + len(counts)] = counts
            self._counts[side], self._first[side] = larger, low
        self._counts[side][value - self._first[side]] += 1
        self._total[side] += 1


class Prob(CountedValues):
    """The least frequent value of the other stream goes (LFU, in a cache)."""

    name: ClassVar[str] = "PROB"

    def __init__(self, windows: tuple[int, int] = (FOR_EVER, FOR_EVER)) -> None:
        super().__init__()
        self._windows = np.array(windows)

    def worth(self, candidates: Candidates, now: int) -> Floats:
        share = self.of_others(candidates)
        return np.where(steps_left(candidates, self._windows, now) > 0, share, share - 1.0)


class LifeInWindow(CountedValues):
    """PROB times what is left of the window."""

    name: ClassVar[str] = "LIFE"

    def __init__(self, windows: tuple[int, int]) -> None:
        super().__init__()
        self._windows = np.array(windows)

    def worth(self, candidates: Candidates, now: int) -> Floats:
        left = np.maximum(steps_left(candidates, self._windows, now), 0)
        return np.where(left > 0, self.of_others(candidates) * left, -1.0)


class Lfd(MemoryPolicy):
    """Longest forward distance: optimal for caches, of references that are all known."""

    name: ClassVar[str] = "LFD"

    def __init__(self, references: Ints) -> None:
        self._next = np.full(len(references), FOR_EVER)
        seen: dict[int, int] = {}
        for at in range(len(references) - 1, -1, -1):
            self._next[at] = seen.get(int(references[at]), FOR_EVER)
            seen[int(references[at])] = at

    def worth(self, candidates: Candidates, now: int) -> Floats:
        return -self._next[candidates.used].astype(np.float64)


def steps_left(candidates: Candidates, windows: Ints, now: int) -> Ints:
    """For how many more steps each is in the window of its stream."""
    return candidates.arrived + windows[candidates.sides] - now

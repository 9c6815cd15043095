"""The audience of a channel: who listens here, where each one's predicate lies, what waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from network.answers.outbox import Outbox
from network.matching.index import PointIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

#: Pairs (message, listener) handled at once. More would only cost memory: a message may concern everybody.
PAIRS = 1 << 18
FIRST_CHUNK = 16


class Audience:
    """Numbers for listeners, the index that finds them by predicate, and their outbox.

    Listeners have small numbers, reused after they leave, so that answers can live in plain arrays
    (`ExtremumAnswers`, `AggregateAnswers`) beside the index.
    """

    def __init__(self, dimensions: int, event_limit: int) -> None:
        self.index = PointIndex(max(1, dimensions))
        self.outbox = Outbox(event_limit)
        self._free: list[int] = []
        self._used = 0
        self._silent: set[int] = set()  # listeners that no message can ever concern: not in the index

    def __len__(self) -> int:
        return self._used - len(self._free)

    @property
    def capacity(self) -> int:
        """Numbers given out so far are below this."""
        return self._used

    def admit(self, points: Floats, never: npt.NDArray[np.bool_] | None = None) -> Ints:
        """Numbers for new listeners with these predicates (n, dimensions); `never` marks those that match nothing."""
        n = len(points)
        left = max(0, len(self._free) - n)
        numbers = self._free[left:]
        del self._free[left:]
        numbers.extend(range(self._used, self._used + n - len(numbers)))
        self._used = max(self._used, max(numbers, default=-1) + 1)
        ids = np.array(numbers, np.int64)
        self.outbox.reserve(self._used)
        if never is None or not never.any():
            self.index.insert(ids, points)
        else:
            self._silent.update(ids[never].tolist())
            self.index.insert(ids[~never], points[~never])
        return ids

    def dismiss(self, ids: Ints) -> None:
        """Forget listeners and what waited for them."""
        leaving = set(ids.tolist())
        for number in leaving:
            self.outbox.take(number)
            self.outbox.take_lost(number)
        silent = leaving & self._silent
        self._silent -= silent
        self.index.delete(np.array(sorted(leaving - silent), np.int64))
        self._free.extend(leaving)

    def chunks(self, lows: Floats, highs: Floats) -> Iterator[tuple[int, int, Ints, Ints]]:
        """(first, last + 1, message, listener): who is concerned by which query box, some messages at a time."""
        start, size = 0, min(FIRST_CHUNK, len(lows))
        while start < len(lows):
            stop = min(len(lows), start + size)
            messages, listeners = self.index.report_many(lows[start:stop], highs[start:stop])
            yield start, stop, messages + start if start else messages, listeners
            size = max(1, min(4 * size, size * PAIRS // max(1, len(listeners))))
            start = stop

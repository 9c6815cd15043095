"""The window of recent messages, kept so that who was away for a moment can be told what it missed."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from network.matching.index import PointIndex
from network.matching.messages import query_boxes
from network.wire.columns import concatenate, length, size_bytes, take

if TYPE_CHECKING:
    import numpy.typing as npt

    from network.wire.bodies import ChannelSpec
    from network.wire.columns import Columns

    Floats = npt.NDArray[np.float64]


class Kept(NamedTuple):
    """The messages of one batch in one channel."""

    channel: int
    through: int  # the batch's last sequence number
    columns: Columns
    size_bytes: int
    at: float


class Retention:
    """Messages of all channels, oldest dropped first when there are more than `limit_bytes` of them, or too old.

    Invariants:
      W1  All messages of channel c with a sequence number above `_complete_after[c]` are here.
      W2  `size_bytes` is the sum over what is here, and at most the limit (one batch may exceed it, and is dropped).
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self._kept: deque[Kept] = deque()
        self._complete_after: dict[int, int] = {}

    def open(self, channel: int, seq: int) -> None:
        """A channel begins: nothing before `seq` is known of it."""
        self._complete_after[channel] = seq

    def close(self, channel: int) -> None:
        """A channel ends."""
        self._complete_after.pop(channel, None)
        self._kept = deque(kept for kept in self._kept if kept.channel != channel)
        self.size_bytes = sum(kept.size_bytes for kept in self._kept)

    def forget(self, channel: int, seq: int) -> None:
        """What was kept of a channel must not be used any more (its partition numbers may mean others now)."""
        self.close(channel)
        self.open(channel, seq)

    def keep(self, channel: int, through: int, columns: Columns, now: float = 0.0) -> None:
        """Take in the messages of a batch."""
        size = size_bytes(columns)
        self._kept.append(Kept(channel, through, columns, size, now))
        self.size_bytes += size
        while self.size_bytes > self.limit_bytes:
            self._drop_oldest()

    def expire(self, before: float) -> None:
        """Let go of what was kept before that moment."""
        while self._kept and self._kept[0].at < before:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._kept.popleft()
        self.size_bytes -= oldest.size_bytes
        self._complete_after[oldest.channel] = oldest.through

    def reaches(self, channel: int, since: int) -> bool:
        """Whether all messages after `since` are here."""
        start = self._complete_after.get(channel)
        return start is not None and start <= since

    def after(self, channel: int, since: int) -> list[Columns]:
        """The batches of a channel with messages after `since`, cut to those."""
        found = []
        for kept in self._kept:
            if kept.channel == channel and kept.through > since:
                recent = np.asarray(kept.columns["seq"]) > since
                found.append(kept.columns if recent.all() else take(kept.columns, recent))
        return found

    def replay(self, channel: int, since: int, spec: ChannelSpec, points: Floats) -> Columns | None:
        """The messages after `since` that concern one of these points; None if there are none."""
        batches = self.after(channel, since)
        if not batches:
            return None
        columns = concatenate(batches)
        wanted = np.zeros(length(columns), np.bool_)
        index = PointIndex(points.shape[1])
        index.insert(np.arange(len(points)), points)
        for lows, highs in query_boxes(spec.form, spec.dimensions, spec.partitioned, columns):
            wanted |= index.exists_many(lows, highs)
        return take(columns, wanted) if wanted.any() else None

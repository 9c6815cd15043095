"""The window of recent messages, kept for clients that reconnect: they get what they missed."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.matching.index import PointIndex
from hullcast.network.matching.messages import query_boxes
from hullcast.network.wire.columns import concatenate, length, size_bytes, take

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hullcast.network.wire.arrays import Booleans, Floats
    from hullcast.network.wire.bodies import ChannelSpec
    from hullcast.network.wire.columns import Columns


#: What a dict of small arrays takes beyond the bytes in them; counted, or a million single rows would go unnoticed.
OVERHEAD_BYTES = 1500
#: Batches below this, kept within this time, are dropped together, up to so many bytes ..
SMALL_BYTES, TOGETHER_S, TOGETHER_BYTES = 8 << 10, 1.0, 512 << 10
#: .. and become one as soon as so many lie side by side.
PARTS = 64


@dataclass(slots=True)
class Kept:
    through: int  # the last batch's last sequence number
    at: float  # when the first of them came
    parts: list[Columns]
    size_bytes: int


@dataclass(slots=True)
class ReplayWindow:
    """One channel's: complete after `complete_after`, and only for clients that were there after `opened`."""

    opened: int
    complete_after: int
    kept: deque[Kept] = field(default_factory=deque)


class Retention:
    """Messages of all channels, oldest dropped first when there are more than `limit_bytes` of them, or too old.

    Invariants:
      W1  All messages of a channel with a sequence number above its `complete_after` are here.
      W2  `size_bytes` is the sum over what is here, and at most the limit (one batch may exceed it, and is dropped).
      W3  A client that was complete only up to the channel's opening, and did not listen to this very channel, does not
          hear that nothing is missing: at the same update there may have been another of that name, over another table.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self._windows: dict[int, ReplayWindow] = {}
        self._oldest: list[tuple[float, int, int]] = []  # a heap of (at, through, channel) of each window's first

    def open(self, channel: int, seq: int) -> None:
        self._windows[channel] = ReplayWindow(seq, seq)

    def close(self, channel: int) -> None:
        window = self._windows.pop(channel, None)
        if window is not None:
            self.size_bytes -= sum(kept.size_bytes for kept in window.kept)

    def forget(self, channel: int, seq: int) -> None:
        """Drop what is kept of a channel (its partition numbers may mean other partitions now)."""
        self.close(channel)
        self.open(channel, seq)

    def keep(self, channel: int, through: int, columns: Columns, now: float = 0.0) -> None:
        window = self._windows[channel]
        size = size_bytes(columns) + OVERHEAD_BYTES
        last = window.kept[-1] if window.kept else None
        if last is not None and size < SMALL_BYTES and now - last.at < TOGETHER_S and last.size_bytes < TOGETHER_BYTES:
            last.parts.append(columns)
            last.through = through
            last.size_bytes += size
            self.size_bytes += size
            if len(last.parts) == PARTS:
                self._joined(last)
        else:
            if last is None:
                heapq.heappush(self._oldest, (now, through, channel))
            window.kept.append(Kept(through, now, [columns], size))
            self.size_bytes += size
        while self.size_bytes > self.limit_bytes:
            self._drop_oldest()

    def expire(self, before: float) -> None:
        while self._oldest and self._oldest[0][0] < before:
            self._drop_oldest()

    def reaches(self, channel: int, since: int, *, listened: bool = False) -> bool:
        """Whether all messages after `since` are here; `listened`: the client had this very channel then."""
        window = self._windows.get(channel)
        if window is None or window.complete_after > since:
            return False
        return listened or window.opened < since

    def after(self, channel: int, since: int) -> list[Columns]:
        """The batches of a channel with messages after `since`, cut to those; costs what it gives."""
        found = []
        for kept in self._newest_first(channel):
            if kept.through <= since:
                break
            columns = self._joined(kept)
            later = np.asarray(columns["seq"]) > since
            if later.any():
                found.append(columns if later.all() else take(columns, later))
        return found[::-1]

    def latest(self, channel: int, most_bytes: int) -> list[Columns]:
        """The latest messages of a channel, of about so many bytes, oldest first."""
        found: list[Columns] = []
        for kept in self._newest_first(channel):
            if most_bytes <= 0:
                break
            found.append(self._joined(kept))
            most_bytes -= kept.size_bytes
        return found[::-1]

    def _newest_first(self, channel: int) -> Iterator[Kept]:
        return reversed(self._windows[channel].kept) if channel in self._windows else iter(())

    def replay(self, channel: int, since: int, spec: ChannelSpec, points: Floats) -> Columns | None:
        """The messages after `since` that concern one of these points; None if there are none."""
        batches = self.after(channel, since)
        if not batches:
            return None
        columns = concatenate(batches)
        wanted = concerned(columns, spec, points)
        return take(columns, wanted) if wanted.any() else None

    def _joined(self, kept: Kept) -> Columns:
        if len(kept.parts) > 1:
            kept.parts = [concatenate(kept.parts)]
            joined = size_bytes(kept.parts[0]) + OVERHEAD_BYTES
            self.size_bytes += joined - kept.size_bytes
            kept.size_bytes = joined
        return kept.parts[0]

    def _drop_oldest(self) -> None:
        at, _, channel = heapq.heappop(self._oldest)
        window = self._windows.get(channel)
        if window is None or not window.kept or window.kept[0].at != at:
            return  # of a channel that was closed meanwhile
        oldest = window.kept.popleft()
        self.size_bytes -= oldest.size_bytes
        window.complete_after = oldest.through
        if window.kept:
            heapq.heappush(self._oldest, (window.kept[0].at, window.kept[0].through, channel))


def concerned(columns: Columns, spec: ChannelSpec, points: Floats) -> Booleans:
    wanted = np.zeros(length(columns), np.bool_)
    index = PointIndex(points.shape[1])
    index.insert(np.arange(len(points)), points)
    for lows, highs in query_boxes(spec.form, spec.dimensions, spec.partitioned, columns):
        wanted |= index.exists_many(lows, highs)
    return wanted

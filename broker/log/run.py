"""A run: records about one table, many at a time, as `Tail` gives them; and a place in the log to go on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hullcast.broker.log.walk import Bytes
    from hullcast.network.wire.arrays import Ints


class RecordRun(NamedTuple):
    """Records about a table that follow each other, as bytes; all up to update `last` were looked at."""

    content: Bytes
    noted: Ints  # walk.NOTED of each record
    last: int

    @property
    def records(self) -> int:
        """How many there are."""
        return len(self.noted[0])

    def updates(self, after: int, through: int) -> int:
        """How many updates behind `after` up to `through` they have."""
        before, counts = self.noted[2] - 1, self.noted[3]
        return int((np.minimum(before + counts, through) - np.maximum(before, after)).sum())

    @property
    def last_change(self) -> int:
        """The last update of the last of them."""
        return int(self.noted[2, -1] + self.noted[3, -1]) - 1

    def parts(self, updates: int, size_bytes: int) -> Iterator[RecordRun]:
        """The same in parts: each ends where the first of these is reached. There is at least one."""
        start, ends = 0, np.cumsum(self.noted[[3, 1]], axis=1)
        while True:
            before = ends[:, start - 1].tolist() if start else (0, 0)
            reached = [np.searchsorted(ends[i], before[i] + most) for i, most in enumerate((updates, size_bytes))]
            stop = min(self.records, 1 + int(min(reached)))
            part = RecordRun(self.content, self.noted[:, start:stop].copy(), self.last)
            if stop == self.records:
                yield part
                return
            yield part._replace(last=part.last_change)
            start = stop

    def payload(self, place: int) -> bytes:
        """What one of them says, copied."""
        start, size = self.noted[:2, place].tolist()
        return self.content[start : start + size].tobytes()


class LogPosition(NamedTuple):
    """Where a record stands: all updates up to `seq` stand before it. `seed` is the segment's own, so that a place in
    another file of the same name is not taken for it."""

    segment: int
    seed: int
    offset: int
    seq: int

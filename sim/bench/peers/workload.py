"""The job that all peers do: rows of STOCK, personal ranges, and updates in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.traces.table51 import Mix, Workload

TABLE = "STOCK"
CREATE = "CREATE TABLE STOCK (ID INTEGER PRIMARY KEY, RISK REAL, PER REAL)"
RANGE_MIN = "SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN ? AND ?"
#: Table 5.1 of Xie (2007) with some inserts. No deletes: not every peer takes them in the same call as updates.
INSERTS = 0.01


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of STOCK as columns."""

    ids: Ints
    risk: Floats
    per: Floats

    def __len__(self) -> int:
        return len(self.ids)

    def columns(self) -> dict[str, Floats | Ints]:
        """As `publish` takes them."""
        return {"ID": self.ids, "RISK": self.risk, "PER": self.per}


@dataclass(frozen=True, slots=True)
class Call:
    """What one call publishes: the number of its first update, and its rows; `row` if it is a single one."""

    first: int
    rows: Rows
    row: tuple[int, float, float] | None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def end(self) -> int:
        """How many updates there are up to here."""
        return self.first + len(self.rows)


@dataclass(frozen=True, slots=True)
class Job:
    """Rows at the start, updates (after the last they begin again), and all subscriptions' ranges.

    An update is a whole row, so that publishing one twice leaves the row as it is.
    """

    start: Rows
    updates: Rows
    low: Floats
    high: Floats

    @classmethod
    def drawn(cls, *, rows: int, updates: int, subscriptions: int, seed: int) -> Job:
        """The same for the same numbers."""
        drawn = Workload(rows, root=seed, mix=Mix(inserts=INSERTS))
        changes, ranges = drawn.changes(updates), drawn.ranges(subscriptions)
        start = Rows(drawn.rows.ids, drawn.rows.x, drawn.rows.y)
        return cls(start, Rows(changes.ids, changes.x, changes.y), ranges.low, ranges.high)

    @classmethod
    def load(cls, path: Path) -> Job:
        """As `save` wrote it."""
        with np.load(path) as saved:
            start, updates = (Rows(*(saved[f"{part}_{name}"] for name in Rows.__slots__)) for part in ("start", "new"))
            return cls(start, updates, saved["low"], saved["high"])

    def save(self, path: Path) -> None:
        """For the processes that work on it."""
        parts = {"start": self.start, "new": self.updates}
        columns = {f"{part}_{name}": getattr(rows, name) for part, rows in parts.items() for name in Rows.__slots__}
        np.savez(path, low=self.low, high=self.high, **columns)

    @property
    def capacity(self) -> int:
        """Above the largest ID that ever comes."""
        return int(max(self.start.ids.max(), self.updates.ids.max())) + 1

    def part(self, connection: int, connections: int) -> slice:
        """Which of the ranges belong to a connection."""
        total = len(self.low)
        return slice(total * connection // connections, total * (connection + 1) // connections)

    def calls(self, at: int, size: int) -> Iterator[Call]:
        """Calls of `size` rows without end, the first of them update number `at`."""
        ids, risk, per = (column.tolist() for column in (self.updates.ids, self.updates.risk, self.updates.per))
        total = len(ids)
        while True:
            place = at % total
            which: slice | Ints = slice(place, place + size)
            if place + size > total:
                which = np.arange(place, place + size) % total
            rows = Rows(self.updates.ids[which], self.updates.risk[which], self.updates.per[which])
            yield Call(at, rows, (ids[place], risk[place], per[place]) if size == 1 else None)
            at += size

    def after(self, published: int) -> Rows:
        """The rows as they must be after so many updates."""
        first = max(0, published - len(self.updates))  # older ones were all published again since
        which = np.arange(first, published) % len(self.updates)
        risk, per = np.full(self.capacity, np.nan), np.full(self.capacity, np.nan)
        for rows, chosen in ((self.start, slice(None)), (self.updates, which)):
            risk[rows.ids[chosen]] = rows.risk[chosen]  # of equal IDs the last one stays
            per[rows.ids[chosen]] = rows.per[chosen]
        there = np.flatnonzero(~np.isnan(risk))
        return Rows(there, risk[there], per[there])

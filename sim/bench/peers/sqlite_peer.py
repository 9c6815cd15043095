"""SQLite in the process: each call is applied, then every range with one of its rows is asked again."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from time import monotonic_ns

import numpy as np

from hullcast.network.wire.arrays import Floats
from hullcast.sim.bench.peers.interface import BenchPeer, Facts, Part
from hullcast.sim.bench.peers.workload import CREATE, RANGE_MIN, Call, Job

UPSERT = "INSERT INTO STOCK VALUES (?, ?, ?) ON CONFLICT (ID) DO UPDATE SET RISK = excluded.RISK, PER = excluded.PER"


class SqliteEngine:
    """Both ends in one: `send` returns when all answers are right again."""

    def __init__(self, facts: Facts, part: Part) -> None:
        self._job, self._sampler = part.job, part.sampler
        self._database = sqlite3.connect(facts["path"], isolation_level=None)
        self._answers: Floats = np.empty(0)
        self._when = 0

    async def open(self) -> None:
        """Load the rows, and answer all; the second time there is nothing to do."""
        if len(self._answers):
            return
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute(CREATE)
        self._database.execute("CREATE INDEX BY_RISK ON STOCK (RISK, PER)")
        rows = self._job.start
        self._apply(zip(rows.ids.tolist(), rows.risk.tolist(), rows.per.tolist(), strict=True))
        self._answers = self._asked(self._job.low, self._job.high)

    async def send(self, call: Call, *, wait: bool) -> None:
        """Apply, and ask again."""
        rows = call.rows
        self._apply(zip(rows.ids.tolist(), rows.risk.tolist(), rows.per.tolist(), strict=True))
        low, high, risk = self._job.low, self._job.high, np.sort(rows.risk)
        touched = np.flatnonzero(np.searchsorted(risk, high, "right") > np.searchsorted(risk, low, "left"))
        asked = self._asked(low[touched], high[touched])
        self._when = monotonic_ns()
        if not np.array_equal(asked, self._answers[touched], equal_nan=True):
            self._sampler.heard(self._when, np.arange(call.first, call.end))
        self._answers[touched] = asked

    def _apply(self, rows: object) -> None:
        self._database.execute("BEGIN")
        self._database.executemany(UPSERT, rows)  # type: ignore[arg-type]  # an iterator of rows
        self._database.execute("COMMIT")

    def _asked(self, low: Floats, high: Floats) -> Floats:
        ask = self._database.execute
        ranges = zip(low.tolist(), high.tolist(), strict=True)
        return np.array([ask(RANGE_MIN, between).fetchone()[0] for between in ranges], np.float64)

    async def flush(self) -> None:
        """All is done when `send` returns."""

    async def drained(self, published: int) -> int:
        """The same."""
        return self._when

    async def answers(self) -> list[Floats]:
        """All of them."""
        return [self._answers]

    async def close(self) -> None:
        """Close the file."""
        self._database.close()


class Sqlite(BenchPeer):
    """Nothing to start."""

    name, title, in_process = "sqlite", "SQLite, re-query in process", True
    subscriber = SqliteEngine

    def keeps(self, *, durable: bool) -> str:
        """A file that each call syncs, or none."""
        return "synced" if durable else "memory"

    async def start(self, folder: Path, job: Job, *, durable: bool) -> Facts:
        """Say where the file will be."""
        return {"path": str(folder / "stock.db") if durable else ":memory:"}

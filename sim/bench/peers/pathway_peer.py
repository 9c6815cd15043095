"""Pathway: an incremental engine inside the process. Rows join ranges by bucket of RISK; groups keep their minima."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np

from hullcast.clients.cli.processes.worker import WorkerFailed
from hullcast.network.wire.arrays import Floats
from hullcast.sim.bench.peers.interface import LOOK_S, Facts, Part, importable
from hullcast.sim.bench.peers.workload import Call, Job

#: Every pair of a range and a row in it is kept: of more subscriptions than this some gigabytes.
MOST = 1_000
WINDOW = 256
#: Width of a bucket, for the join: a tenth of a usual range.
BUCKET = 100.0
#: Stands for a range's number in the row that has the number of the last update.
COUNT = -1


class Pathway:
    """Nothing to start."""

    in_process = True
    name, title = "pathway", "Pathway, in process"

    def missing(self) -> str:
        """It is large, so no extra brings it."""
        return "" if importable("pathway") else "not installed (pip install pathway: 1.6 GB)"

    def keeps(self, *, durable: bool) -> str:
        """Its persistence saves snapshots now and then, not each call."""
        return "memory"

    async def start(self, folder: Path, job: Job, *, durable: bool) -> Facts:
        """Refuse what does not fit."""
        if len(job.low) > MOST:
            raise WorkerFailed(
                f"not tried: it keeps each pair of a range and a row in it; at most {MOST:,} ranges here"
            )
        return {}

    @property
    def pids(self) -> list[int]:
        """None of its own."""
        return []

    async def stop(self) -> None:
        """Nothing to stop."""


class PathwayEngine:
    """Both ends in one: rows go in by a queue, answers come back by callbacks, in threads of the engine."""

    def __init__(self, facts: Facts, part: Part) -> None:
        self._job, self._sampler = part.job, part.sampler
        self._calls: queue.Queue[Call | None] = queue.Queue()
        self._answers: Floats = np.full(len(part.job.low), np.nan)
        self._changed = False
        self._last = -1  # number of the last update that the engine has, and of the last whose answers are here
        self._at = -1
        self._when = 0
        self._thread: threading.Thread | None = None

    async def open(self) -> None:
        """Run the engine, and wait for the first answers; the second time there is nothing to do."""
        if self._thread is None:
            self._build()
            self._thread = threading.Thread(target=self._run, name="pathway", daemon=True)
            self._thread.start()
            await self.drained(0)

    def _run(self) -> None:
        import pathway

        pathway.run(monitoring_level=pathway.MonitoringLevel.NONE)

    def _build(self) -> None:
        import pandas  # type: ignore[import-untyped]  # has no types
        import pathway as pw

        logging.disable(logging.INFO)
        job = self._job
        spans = [
            (i, low, high, bucket)
            for i, (low, high) in enumerate(zip(job.low.tolist(), job.high.tolist(), strict=True))
            for bucket in range(int(low // BUCKET), int(high // BUCKET) + 1)
        ]
        ranges = pw.debug.table_from_pandas(pandas.DataFrame(spans, columns=["i", "low", "high", "bucket"]))
        columns = {"risk": float, "per": float, "bucket": int, "number": int}
        definitions = {name: pw.column_definition(dtype=kind) for name, kind in columns.items()}
        schema = pw.schema_builder({"id": pw.column_definition(primary_key=True, dtype=int), **definitions})
        source = _source(pw, job, self._calls)
        stock: Any = pw.io.python.read(source, schema=schema, autocommit_duration_ms=None)
        pairs = ranges.join(stock, ranges.bucket == stock.bucket)
        inside = pairs.select(ranges.i, ranges.low, ranges.high, stock.risk, stock.per).filter(
            (pw.this.risk >= pw.this.low) & (pw.this.risk <= pw.this.high)
        )
        answers = inside.groupby(pw.this.i).reduce(pw.this.i, least=pw.reducers.min(pw.this.per))
        last = stock.reduce(i=COUNT, least=pw.cast(float, pw.reducers.max(pw.this.number)))
        both = answers.concat_reindex(last)  # one table, so that a call's answers and its number come together
        pw.io.subscribe(both, on_change=self._answered, on_time_end=self._ended)

    def _answered(self, key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition and row["i"] == COUNT:
            self._last = int(row["least"])
        elif is_addition:
            self._answers[row["i"]] = row["least"]
            self._changed = True

    def _ended(self, time: int) -> None:
        before, self._at = self._at, max(self._at, self._last)
        self._when = monotonic_ns()
        if self._changed and before >= 0:
            self._sampler.heard(self._when, np.arange(before, self._at))
        self._changed = False

    async def send(self, call: Call, *, wait: bool) -> None:
        """Hand it over."""
        if wait:
            await self.drained(call.first - max(WINDOW, 8 * len(call)))
        self._calls.put(call)

    async def flush(self) -> None:
        """Nothing is acknowledged; `drained` waits for the answers."""

    async def drained(self, published: int) -> int:
        """Wait until the engine has finished with so many updates."""
        while self._at < published:
            if self._thread is not None and not self._thread.is_alive():
                raise WorkerFailed("Pathway's engine has ended")
            await asyncio.sleep(LOOK_S)
        return self._when

    async def answers(self) -> list[Floats]:
        """All of them."""
        return [self._answers.copy()]

    async def close(self) -> None:
        """End the source, and with it the engine."""
        self._calls.put(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 5.0)


def _source(pw: Any, job: Job, calls: queue.Queue[Call | None]) -> Any:
    """What Pathway reads from: the first rows, then one commit a call. `number` counts updates, the call's included."""

    class Source(pw.io.python.ConnectorSubject):  # type: ignore[misc]  # Pathway is not installed where types are checked
        def run(self) -> None:
            self._put(job.start.ids, job.start.risk, job.start.per, 0, 0)
            while (call := calls.get()) is not None:
                self._put(call.rows.ids, call.rows.risk, call.rows.per, call.first + 1, 1)

        def _put(self, ids: Any, risk: Any, per: Any, first: int, step: int) -> None:
            columns = zip(ids.tolist(), risk.tolist(), per.tolist(), strict=True)
            for number, (row, x, y) in enumerate(columns):
                self.next(id=row, risk=x, per=y, bucket=int(x // BUCKET), number=first + step * number)
            self.commit()

    return Source(session_type="upsert")

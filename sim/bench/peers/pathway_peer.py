"""Pathway: an incremental engine inside the process, in Rust."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from typing import Any

import numpy as np

from hullcast.sim.bench.peers.engines import COUNT, EnginePeer, InProcessEngine, bucket, spans
from hullcast.sim.bench.peers.interface import Facts, Part, importable
from hullcast.sim.bench.peers.workload import Call, Job, Rows


class PathwayEngine(InProcessEngine):
    """Rows go in by a queue, one commit a call."""

    def __init__(self, facts: Facts, part: Part) -> None:
        super().__init__(facts, part)
        self._calls: queue.Queue[Call | None] = queue.Queue()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """The engine has a thread, and Pathway gives the source another one."""
        logging.disable(logging.WARNING)
        self._build()
        self._thread = threading.Thread(target=_run, name="pathway", daemon=True)
        self._thread.start()

    def _build(self) -> None:
        import pandas  # type: ignore[import-untyped]  # has no types
        import pathway as pw

        ranges = pw.debug.table_from_pandas(
            pandas.DataFrame(dict(zip(("i", "low", "high", "bucket"), spans(self.job), strict=True)))
        )
        columns = {"risk": float, "per": float, "bucket": int, "number": int}
        definitions = {name: pw.column_definition(dtype=kind) for name, kind in columns.items()}
        schema = pw.schema_builder({"id": pw.column_definition(primary_key=True, dtype=int), **definitions})
        source = _source(pw, self.job, self._calls)
        stock: Any = pw.io.python.read(source, schema=schema, autocommit_duration_ms=None)
        pairs = ranges.join(stock, ranges.bucket == stock.bucket)
        inside = pairs.select(ranges.i, ranges.low, ranges.high, stock.risk, stock.per).filter(
            (pw.this.risk >= pw.this.low) & (pw.this.risk <= pw.this.high)
        )
        answers = inside.groupby(pw.this.i).reduce(pw.this.i, least=pw.reducers.min(pw.this.per))
        last = stock.reduce(i=COUNT, least=pw.cast(float, pw.reducers.max(pw.this.number)))
        both = answers.concat_reindex(last)  # one table, so that a call's answers and its number come together
        pw.io.subscribe(both, on_change=self._answered, on_time_end=lambda time: self.finished())

    def _answered(self, key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            self.took(np.array([row["i"]]), np.array([row["least"]]))

    def put(self, call: Call) -> None:
        """The source takes it from the queue."""
        self._calls.put(call)

    def failed(self) -> str:
        """Whether its thread has ended."""
        return "" if self._thread is not None and self._thread.is_alive() else "Pathway's engine has ended"

    async def close(self) -> None:
        """End the source, and with it the engine."""
        self._calls.put(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 5.0)


def _run() -> None:
    import pathway

    pathway.run(monitoring_level=pathway.MonitoringLevel.NONE)


def _source(pw: Any, job: Job, calls: queue.Queue[Call | None]) -> Any:
    """What Pathway reads from: the first rows, then one commit a call. `number` counts updates."""

    class Source(pw.io.python.ConnectorSubject):  # type: ignore[misc]  # Pathway is not there when types are checked
        def run(self) -> None:
            self._put(job.start, np.zeros(len(job.start), np.int64))
            while (call := calls.get()) is not None:
                self._put(call.rows, np.arange(call.first + 1, call.end + 1))

        def _put(self, rows: Rows, numbers: Any) -> None:
            columns = (rows.ids, rows.risk, rows.per, bucket(rows.risk), numbers)
            for row, risk, per, place, number in zip(*(column.tolist() for column in columns), strict=True):
                self.next(id=row, risk=risk, per=per, bucket=place, number=number)
            self.commit()

    return Source(session_type="upsert")


class Pathway(EnginePeer):
    """Nothing to start."""

    name, title = "pathway", "Pathway, in process"
    subscriber = PathwayEngine

    def missing(self) -> str:
        """It is large, so no extra brings it."""
        return "" if importable("pathway") else "not installed (pip install pathway; with what it needs 1.6 GB)"

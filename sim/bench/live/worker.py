"""Processes of `bench live`: a client with many subscriptions, or the publisher of updates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from time import monotonic_ns, perf_counter
from typing import Any

import numpy as np

from hullcast.sim.bench.frame.worker import Batch, BenchWorker, Told, main, part_of, until
from hullcast.sim.traces.table51 import Changes, Workload


class LiveWorker(BenchWorker):
    """A client that subscribes to a part of Table 5.1's ranges, or publishes prepared updates in order, from the first
    on again after the last."""

    def __init__(self) -> None:
        super().__init__()
        self._changes: Changes | None = None
        self._at = 0
        self._published = 0

    async def subscribe(self, sql: str, seed: int, rows: int, total: int, part: int, parts: int, sync: bool) -> Told:
        """Subscribe to our part of the ranges."""
        ranges, mine = Workload(rows, root=seed).ranges(total), part_of(total, part, parts)
        told = await self._subscribe(sql, ranges.low[mine], ranges.high[mine])
        if sync:
            await self.client.sync()
        return told

    async def answers(self, path: str) -> None:
        """Write all answers to a file, in the order of the ranges."""
        assert self._many is not None, "subscribe comes first"
        np.savez(path, answers=self._many.answers)

    async def prepare(self, seed: int, rows: int, count: int) -> None:
        """Draw the updates."""
        self._changes = Workload(rows, root=seed).changes(count)

    def _next(self, size: int) -> dict[str, Any]:
        assert self._changes is not None, "prepare comes first"
        if self._at + size > len(self._changes):
            self._at = 0
        some = self._changes.slice(self._at, self._at + size)
        self._at += size
        self._published += size
        return some.columns()

    def _batches(self, size: int) -> Iterator[Batch]:
        while True:
            yield "POINTS", self._next(size)

    async def fast(self, seconds: float, batch: int, in_flight: int) -> Told:
        """Publish as fast as receipts come, so many publishes on the way at a time."""
        return await self._publish_all(until(seconds, self._batches(batch)), in_flight)

    async def paced(self, rate: int, batch: int, updates: int, path: str | None = None) -> Told:
        """Publish a batch each time one is due, whether or not the last one has its receipt."""
        client = self.client
        batches: list[tuple[int, int, int, int]] = []
        lateness: list[float] = []

        async def publish() -> None:
            columns = self._next(batch)
            sent = monotonic_ns()
            receipt = await client.publish("POINTS", columns)
            batches.append((sent, monotonic_ns(), receipt.first_seq, receipt.seq))

        began = monotonic_ns()
        async with asyncio.TaskGroup() as tasks:
            async for late_s in _ticks(batch / rate, max(1, updates // batch)):
                lateness.append(late_s)
                tasks.create_task(publish(), name="publish")
        sent, acknowledged, first, last = np.array(sorted(batches), np.int64).T
        if path is not None:
            np.savez(path, sent=sent, last=last)
        return {
            "updates": int((last - first + 1).sum()),
            "began": began,
            "ended": monotonic_ns(),
            "late_p99_ms": 1e3 * float(np.quantile(lateness, 0.99)),
            "receipt_p50_ms": float(np.quantile(acknowledged - sent, 0.5)) / 1e6,
        }

    async def singly(self, count: int) -> Told:
        """Publish rows one at a time, each after the receipt of the one before; their times."""
        client = self.client
        times = []
        for _ in range(count):
            columns = self._next(1)
            started = perf_counter()
            await client.publish("POINTS", columns)
            times.append(1e3 * (perf_counter() - started))
        return {"ms": times}

    async def published(self) -> Told:
        """How many updates all in all."""
        return {"updates": self._published}


async def _ticks(interval_s: float, count: int) -> AsyncIterator[float]:
    """`count` moments, evenly spaced; each with how late it is. One missed is made up for at once."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    for _ in range(count):
        await asyncio.sleep(max(0.0, due - loop.time()))
        yield max(0.0, loop.time() - due)
        due += interval_s


if __name__ == "__main__":
    main(LiveWorker)

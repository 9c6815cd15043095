"""Processes of the live benchmark: a client with many subscriptions, and the publisher of updates."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from time import monotonic_ns, perf_counter
from typing import Any

import numpy as np

from hullcast.clients.processes.worker import serve
from hullcast.clients.sdk.client import Client, connect
from hullcast.clients.sdk.subscriptions import Changed, Subscriptions
from hullcast.network.wire.arrays import Ints
from hullcast.sim.traces.table51 import Changes, Workload


class _BenchClient:
    """A client that is connected once `open` was asked for."""

    def __init__(self) -> None:
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The client, for whatever comes after `open`."""
        assert self._client is not None, "open comes first"
        return self._client

    async def close(self) -> None:
        """Hang up."""
        if self._client is not None:
            await self._client.close()


class BenchSubscriber(_BenchClient):
    """One client with one `subscribe_many`, whose `changes()` a task takes at once."""

    answered = ("open", "subscribe", "unsubscribe", "sample", "samples", "sync", "counts", "answers")

    def __init__(self) -> None:
        super().__init__()
        self._many: Subscriptions | None = None
        self._task: asyncio.Task[None] | None = None
        self._taken = self._yields = 0
        self._sampling = False
        self._samples: list[tuple[int, Ints]] = []

    async def open(self, url: str, name: str) -> dict[str, Any]:
        """Connect."""
        self._client = await connect(url, name=name, timeout=60.0)
        return {}

    async def subscribe(
        self, sql: str, seed: int, rows: int, total: int, part: int, parts: int, sync: bool
    ) -> dict[str, Any]:
        """Subscribe to our part of Table 5.1's ranges."""
        ranges = Workload(rows, root=seed).ranges(total)
        mine = slice(total * part // parts, total * (part + 1) // parts)
        started = perf_counter()
        self._many = await self.client.subscribe_many(sql, ranges.low[mine], ranges.high[mine])
        seconds = perf_counter() - started
        self._taken = self._yields = 0
        self._task = asyncio.create_task(self._take(self._many), name="take changes")
        if sync:
            await self.client.sync()
        return {"seconds": seconds}

    async def unsubscribe(self) -> dict[str, Any]:
        """Leave all of them."""
        if self._many is not None:
            await self._many.close()
        if self._task is not None:
            await self._task
        self._many = self._task = None
        return {}

    async def close(self) -> None:
        """Leave, and hang up."""
        await self.unsubscribe()
        await super().close()

    async def _take(self, many: Subscriptions) -> None:
        async for changed in many.changes():
            now = monotonic_ns()
            self._taken += len(changed)
            self._yields += 1
            if self._sampling:
                self._samples.append((now, _distinct(changed)))

    async def sample(self, on: bool) -> dict[str, Any]:
        """Begin or stop to remember when each update was heard of."""
        self._sampling = on
        if on:
            self._samples.clear()
        return {}

    async def samples(self, path: str) -> dict[str, Any]:
        """Write them to a file: for each update and yield, the time and the update's number."""
        seqs = [seq for _, seq in self._samples] or [np.empty(0, np.int64)]
        times = np.repeat([now for now, _ in self._samples] or [0], [len(seq) for seq in seqs])
        np.savez(path, time=times, seq=np.concatenate(seqs))
        return {"count": len(times)}

    async def sync(self) -> dict[str, Any]:
        """Wait until all that the server has applied is here, and taken."""
        seq = await self.client.sync()
        await asyncio.sleep(0)
        return {"seq": seq, "now": monotonic_ns()}

    async def counts(self) -> dict[str, Any]:
        """What came since these were subscribed: changes taken one by one, and all, with those that newer ones
        replaced first; and whether the link ever broke."""
        assert self._many is not None, "subscribe comes first"
        resumes = self.client.statistics().resumes
        told = self._taken + self._many.conflated
        return {"taken": self._taken, "told": told, "yields": self._yields, "resumes": resumes}

    async def answers(self, path: str) -> dict[str, Any]:
        """Write all answers to a file, in the order of the ranges."""
        assert self._many is not None, "subscribe comes first"
        np.save(path, self._many.answers)
        return {"seq": self._many.seq}


def _distinct(changed: Changed) -> Ints:
    """The updates that a yield tells of, each once; they lie close together."""
    first = int(changed.seq.min())
    heard = np.zeros(int(changed.seq.max()) - first + 1, np.bool_)
    heard[changed.seq - first] = True
    return np.flatnonzero(heard) + first


class BenchPublisher(_BenchClient):
    """Publishes prepared updates in order, from the first on again after the last."""

    answered = ("open", "fast", "paced", "singly", "published")

    def __init__(self) -> None:
        super().__init__()
        self._changes: Changes | None = None
        self._at = 0
        self._published = 0

    async def open(self, url: str, seed: int, rows: int, prepared: int) -> dict[str, Any]:
        """Connect, and draw the updates."""
        self._changes = Workload(rows, root=seed).changes(prepared)
        self._client = await connect(url, name="publisher", timeout=60.0)
        return {}

    def _next(self, size: int) -> dict[str, Any]:
        assert self._changes is not None, "open comes first"
        if self._at + size > len(self._changes):
            self._at = 0
        some = self._changes.slice(self._at, self._at + size)
        self._at += size
        self._published += size
        return some.columns()

    async def fast(self, seconds: float, batch: int, in_flight: int) -> dict[str, Any]:
        """Publish as fast as receipts come, so many publishes on the way at a time."""
        client = self.client
        began, until, updates = monotonic_ns(), perf_counter() + seconds, 0

        async def publish() -> None:
            nonlocal updates
            while perf_counter() < until:
                receipt = await client.publish("POINTS", self._next(batch))
                updates += receipt.updates  # not in one line with `await`, which would add to what was before it

        await asyncio.gather(*(publish() for _ in range(in_flight)))
        return {"updates": updates, "began": began, "ended": monotonic_ns()}

    async def paced(self, rate: int, batch: int, updates: int, path: str | None) -> dict[str, Any]:
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
            np.savez(path, sent=sent, acknowledged=acknowledged, first=first, last=last)
        return {
            "updates": int((last - first + 1).sum()),
            "began": began,
            "ended": monotonic_ns(),
            "late_p99_ms": 1e3 * float(np.quantile(lateness, 0.99)),
            "receipt_p50_ms": float(np.quantile(acknowledged - sent, 0.5)) / 1e6,
        }

    async def singly(self, count: int) -> dict[str, Any]:
        """Publish rows one at a time, each after the receipt of the one before; their times."""
        client = self.client
        times = []
        for _ in range(count):
            columns = self._next(1)
            started = perf_counter()
            await client.publish("POINTS", columns)
            times.append(1e3 * (perf_counter() - started))
        return {"ms": times}

    async def published(self) -> dict[str, Any]:
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


async def main(role: str) -> None:
    """Serve until standard input ends."""
    worker = BenchPublisher() if role == "publisher" else BenchSubscriber()
    try:
        await serve({name: getattr(worker, name) for name in worker.answered})
    finally:
        await worker.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

"""The publishing process of the live benchmark: updates of Table 5.1, as fast as acknowledged, or paced."""

from __future__ import annotations

import asyncio
from time import monotonic_ns, perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.clients.cli.processes.worker import serve
from hullcast.clients.sdk.client import connect
from hullcast.sim.traces.table51 import Workload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from hullcast.clients.sdk.client import Client
    from hullcast.sim.traces.table51 import Changes


class Publisher:
    """Publishes prepared updates in order, from the first on again after the last."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._changes: Changes | None = None
        self._at = 0
        self._published = 0

    async def open(self, url: str, seed: int, rows: int, prepared: int) -> dict[str, Any]:
        """Connect, and draw the updates."""
        self._changes = Workload(rows, root=seed).changes(prepared)
        self._client = await connect(url, name="publisher", timeout=60.0)
        return {}

    async def close(self) -> dict[str, Any]:
        """Hang up."""
        if self._client is not None:
            await self._client.close()
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
        client = self._client
        assert client is not None, "open comes first"
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
        client = self._client
        assert client is not None, "open comes first"
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
        client = self._client
        assert client is not None, "open comes first"
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


async def main() -> None:
    """Serve until standard input ends."""
    publisher = Publisher()
    names = ("open", "close", "fast", "paced", "singly", "published")
    try:
        await serve({name: getattr(publisher, name) for name in names})
    finally:
        await publisher.close()


if __name__ == "__main__":
    asyncio.run(main())

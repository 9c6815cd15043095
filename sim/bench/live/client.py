"""A subscribing process of the live benchmark: many subscriptions, their events taken as they come."""

from __future__ import annotations

import asyncio
from time import monotonic_ns, perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.clients.cli.processes.worker import serve
from hullcast.clients.sdk.client import connect
from hullcast.sim.traces.table51 import Workload

if TYPE_CHECKING:
    from hullcast.clients.sdk.client import Client
    from hullcast.clients.sdk.subscriptions import Changed, LiveSubscriptions


class Subscriber:
    """One client with one `subscribe_many`, whose `changes()` a task takes at once."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._many: LiveSubscriptions | None = None
        self._task: asyncio.Task[None] | None = None
        self._taken = self._yields = 0
        self._sampling = False
        self._samples: list[tuple[int, np.ndarray[Any, np.dtype[np.int64]]]] = []

    async def open(self, url: str, name: str) -> dict[str, Any]:
        """Connect."""
        self._client = await connect(url, name=name, timeout=60.0)
        return {}

    async def subscribe(
        self, sql: str, seed: int, rows: int, total: int, part: int, parts: int, sync: bool
    ) -> dict[str, Any]:
        """Subscribe to our part of Table 5.1's ranges."""
        assert self._client is not None, "open comes first"
        ranges = Workload(rows, root=seed).ranges(total)
        mine = slice(total * part // parts, total * (part + 1) // parts)
        started = perf_counter()
        self._many = await self._client.subscribe_many(sql, ranges.low[mine], ranges.high[mine])
        seconds = perf_counter() - started
        self._taken = self._yields = 0
        self._task = asyncio.create_task(self._take(self._many), name="take changes")
        if sync:
            await self._client.sync()
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
        if self._client is not None:
            await self._client.close()

    async def _take(self, many: LiveSubscriptions) -> None:
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
        assert self._client is not None, "open comes first"
        seq = await self._client.sync()
        await asyncio.sleep(0)
        return {"seq": seq, "now": monotonic_ns()}

    async def counts(self) -> dict[str, Any]:
        """What came since these were subscribed: changes taken one by one, and all, with those that newer ones
        replaced first; and whether the link ever broke."""
        assert self._client is not None, "open comes first"
        assert self._many is not None, "subscribe comes first"
        resumes = self._client.statistics().resumes
        told = self._taken + self._many.conflated
        return {"taken": self._taken, "told": told, "yields": self._yields, "resumes": resumes}

    async def answers(self, path: str) -> dict[str, Any]:
        """Write all answers to a file, in the order of the ranges."""
        assert self._many is not None, "subscribe comes first"
        np.save(path, self._many.answers)
        return {"seq": self._many.seq}


def _distinct(changed: Changed) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The updates that a yield tells of, each once; they lie close together."""
    first = int(changed.seq.min())
    heard = np.zeros(int(changed.seq.max()) - first + 1, np.bool_)
    heard[changed.seq - first] = True
    return np.flatnonzero(heard) + first


async def main() -> None:
    """Serve until standard input ends."""
    subscriber = Subscriber()
    names = ("open", "subscribe", "unsubscribe", "sample", "samples", "sync", "counts", "answers")
    try:
        await serve({name: getattr(subscriber, name) for name in names})
    finally:
        await subscriber.close()


if __name__ == "__main__":
    asyncio.run(main())

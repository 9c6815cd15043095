"""Processes of the live part of `hullcast bench joins`: a client with many joins, and the publisher."""

from __future__ import annotations

import asyncio
from time import monotonic_ns, perf_counter
from typing import Any

import numpy as np

from hullcast.clients.processes.worker import serve
from hullcast.clients.sdk.client import Client, connect
from hullcast.clients.sdk.subscriptions import Subscriptions
from hullcast.sim.traces.merchants import JOIN, Merchants


class JoinBenchClient:
    """A client that subscribes to one part of the merchants' joins, or publishes their changes."""

    answered = ("open", "subscribe", "sync", "answers", "prepare", "publish")

    def __init__(self) -> None:
        self._client: Client | None = None
        self._many: Subscriptions | None = None
        self._taking: asyncio.Task[None] | None = None
        self._batches: list[tuple[str, dict[str, Any]]] = []
        self._taken = 0

    @property
    def client(self) -> Client:
        """The client, after `open`."""
        assert self._client is not None, "open comes first"
        return self._client

    async def open(self, url: str, name: str) -> dict[str, Any]:
        """Connect."""
        self._client = await connect(url, name=name, timeout=110.0)
        return {}

    async def close(self) -> None:
        """Hang up."""
        if self._many is not None:
            await self._many.close()
        if self._taking is not None:
            await self._taking
        if self._client is not None:
            await self._client.close()

    async def subscribe(self, load: dict[str, Any], part: int, parts: int) -> dict[str, Any]:
        """Subscribe to our part, and take what changes from then on."""
        began = perf_counter()
        self._many = await self.client.subscribe_many(JOIN, *Merchants(**load).ranges(part, parts))
        self._taking = asyncio.create_task(self._take(self._many), name="take changes")
        return {"seconds": perf_counter() - began}

    async def _take(self, many: Subscriptions) -> None:
        async for changed in many.changes():
            self._taken += len(changed)

    async def sync(self) -> dict[str, Any]:
        """Wait until all that the server has applied is here, and taken."""
        seq = await self.client.sync()
        await asyncio.sleep(0)
        return {"seq": seq, "now": monotonic_ns(), "taken": self._taken, "resumes": self.client.statistics().resumes}

    async def answers(self, path: str) -> dict[str, Any]:
        """Write all answers to a file: the pairs of all merchants, and how many each has."""
        assert self._many is not None, "subscribe comes first"
        held = [sorted(tuple(row) for row in answer) for answer in self._many.answers]
        pairs = np.array([pair for rows in held for pair in rows], np.int64).reshape(-1, 2)
        np.savez(path, pairs=pairs, counts=np.array([len(rows) for rows in held], np.int64))
        return {"seq": self._many.seq}

    async def prepare(self, load: dict[str, Any], changes: int, batch: int) -> dict[str, Any]:
        """Draw the changes."""
        self._batches = Merchants(**load).changes(changes, batch)
        return {}

    async def publish(self, first: int, count: int, in_flight: int) -> dict[str, Any]:
        """Publish batches from `first` on, as fast as receipts come."""
        waiting = iter(self._batches[first : first + count])
        done = 0

        async def publish() -> None:
            nonlocal done
            for table, columns in waiting:
                receipt = await self.client.publish(table, columns)
                done += receipt.updates  # not in one line with `await`, which would add to what was before it

        began = monotonic_ns()
        await asyncio.gather(*(publish() for _ in range(in_flight)))
        return {"updates": done, "began": began}


async def main() -> None:
    """Serve until standard input ends."""
    worker = JoinBenchClient()
    try:
        await serve({name: getattr(worker, name) for name in worker.answered})
    finally:
        await worker.close()


if __name__ == "__main__":
    asyncio.run(main())

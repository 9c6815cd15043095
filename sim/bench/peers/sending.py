"""A publisher whose connection takes several calls at once: what waits goes out together, in order."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence

from hullcast.sim.bench.peers.interface import Seen
from hullcast.sim.bench.peers.workload import Call

#: Calls that wait for an acknowledgement, at most.
IN_FLIGHT = 64


class BatchingPublisher(ABC):
    """Calls wait while others are under way; then all that wait are delivered as one pipeline."""

    def __init__(self, progress: Seen | None) -> None:
        """`progress`: wait for slow clients. None: they skip what they cannot follow, and nothing piles up."""
        self._progress = progress
        self._waiting: list[Call] = []
        self._under_way = 0
        self._some, self._delivered = asyncio.Event(), asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    @abstractmethod
    async def connect(self) -> None:
        """Open the connection."""

    @abstractmethod
    async def deliver(self, calls: Sequence[Call]) -> None:
        """Send these in one go, and wait until they are acknowledged."""

    @abstractmethod
    async def disconnect(self) -> None:
        """Close it."""

    async def open(self) -> None:
        """Connect."""
        await self.connect()
        self._sender = asyncio.create_task(self._send_on(), name="sender")
        self._sender.add_done_callback(lambda _: self._delivered.set())

    async def send(self, call: Call, *, wait: bool) -> None:
        """Hand a call over."""
        if wait:
            if self._progress is not None:
                await self._progress.wait_room(call)
            await self._wait_fewer(IN_FLIGHT)
        self._waiting.append(call)
        self._some.set()

    async def flush(self) -> None:
        """All calls are acknowledged."""
        await self._wait_fewer(1)

    async def _wait_fewer(self, limit: int) -> None:
        """Until fewer calls than that are not acknowledged."""
        while len(self._waiting) + self._under_way >= limit:
            self._delivered.clear()
            if self._sender is not None and self._sender.done():
                self._sender.result()
            await self._delivered.wait()

    async def close(self) -> None:
        """Hang up."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)
        await self.disconnect()

    async def _send_on(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            while self._waiting:
                calls, self._waiting = self._waiting[:IN_FLIGHT], self._waiting[IN_FLIGHT:]
                self._under_way = len(calls)
                await self.deliver(calls)
                self._under_way = 0
                self._delivered.set()

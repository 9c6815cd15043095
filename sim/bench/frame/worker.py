"""A client in a process of its own: what the benchmarks' processes have in common.

What goes on for a while is begun by one task and ended by `end`, so that several processes do it at the same time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from time import monotonic, monotonic_ns, perf_counter
from typing import Any, TypeAlias

import numpy as np

from hullcast.clients.processes.worker import serve
from hullcast.clients.sdk.client import Client, connect
from hullcast.clients.sdk.subscriptions import Changed, Subscriptions
from hullcast.network.wire.arrays import Ints

#: What is published at once: a table, and rows as columns.
Batch: TypeAlias = tuple[str, dict[str, Any]]
#: Paced publishes that wait for their receipts; with more the next one waits, and is late.
IN_FLIGHT = 16
FILL_ROWS = 20_000
_TIMEOUT_S = 110.0


class BenchWorker:
    """One client. Its public coroutines are what it can be asked for; their results are JSON."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._goes_on: asyncio.Task[dict[str, Any]] | None = None
        self._stop = asyncio.Event()
        self._many: Subscriptions | None = None
        self._taking: asyncio.Task[None] | None = None
        self._events = self._missed = self._last_ns = 0
        self._sampling = False
        self._samples: list[tuple[int, Ints]] = []

    @property
    def client(self) -> Client:
        """The client, after `open`."""
        assert self._client is not None, "open comes first"
        return self._client

    async def open(self, url: str, name: str) -> dict[str, Any]:
        """Connect; elsewhere than before."""
        await self.close()
        self._client = await connect(url, name=name, timeout=_TIMEOUT_S)
        return {}

    async def close(self) -> dict[str, Any]:
        """Give up what goes on, leave, and hang up."""
        if self._goes_on is not None:
            self._goes_on.cancel()
            await asyncio.gather(self._goes_on, return_exceptions=True)
            self._goes_on = None
        await self.unsubscribe()
        if self._client is not None:
            await self._client.close()
            self._client = None
        return {}

    # -- what goes on until `end` ----------------------------------------------------------------------------

    def _begin(self, work: Callable[[], Awaitable[dict[str, Any]]], name: str) -> dict[str, Any]:
        assert self._goes_on is None, "one thing at a time"
        self._stop.clear()

        async def whole() -> dict[str, Any]:
            return await work()

        self._goes_on = asyncio.create_task(whole(), name=name)
        return {}

    async def end(self) -> dict[str, Any]:
        """End what goes on; what came of it."""
        assert self._goes_on is not None, "something was begun"
        self._stop.set()
        going, self._goes_on = self._goes_on, None
        return await going

    async def _wait(self, until: float) -> bool:
        """Wait until a moment; False if the end came first."""
        try:
            async with asyncio.timeout(max(0.0, until - monotonic())):
                await self._stop.wait()
        except TimeoutError:
            return True
        return False

    # -- many subscriptions ----------------------------------------------------------------------------------

    async def _subscribe(self, sql: str, *columns: Any) -> dict[str, Any]:
        """Subscribe to many, and take what changes from then on."""
        began = perf_counter()
        many = self._many = await self.client.subscribe_many(sql, *columns)
        seconds = perf_counter() - began
        self._events = self._missed = self._last_ns = 0
        self._taking = asyncio.create_task(self._take(many), name="take changes")
        return {"seconds": seconds}

    async def _take(self, many: Subscriptions) -> None:
        async for changed in many.changes():
            self._last_ns = monotonic_ns()
            self._events += len(changed)
            self._missed += int(changed.resync.sum())
            if self._sampling:
                self._samples.append((self._last_ns, updates_of(changed)))

    async def unsubscribe(self) -> dict[str, Any]:
        """Leave all of them."""
        if self._many is not None:
            await self._many.close()
        if self._taking is not None:
            await asyncio.gather(self._taking, return_exceptions=True)
        self._many = self._taking = None
        return {}

    async def sync(self) -> dict[str, Any]:
        """Wait until all that the server has applied is here, and taken; up to where, and when."""
        seq = await self.client.sync()
        await asyncio.sleep(0)
        return {"seq": seq, "now": monotonic_ns()}

    async def heard(self) -> dict[str, Any]:
        """What came since these were subscribed: changes taken, all (with those that newer ones replaced first), what
        was missed, when the last one came, and how often the link broke."""
        told = self._events + (self._many.conflated if self._many is not None else 0)
        resumes = self.client.statistics().resumes
        figures = {"events": self._events, "told": told, "missed": self._missed}
        return {**figures, "last_ns": self._last_ns, "resumes": resumes}

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

    # -- publishing ------------------------------------------------------------------------------------------

    async def _publish_all(self, batches: Iterator[Batch], in_flight: int) -> dict[str, Any]:
        """Publish batches in order, as fast as receipts come, so many on the way at a time."""
        began, done = monotonic_ns(), 0

        async def publish() -> None:
            nonlocal done
            for table, columns in batches:
                receipt = await self.client.publish(table, columns)
                done += receipt.updates  # not in one line with `await`, which would add to what was before it

        await asyncio.gather(*(publish() for _ in range(in_flight)))
        return {"updates": done, "began": began, "ended": monotonic_ns()}

    async def _publish_paced(
        self, period_s: float, due_now: Callable[[], Iterable[Batch]], at_most: int = IN_FLIGHT
    ) -> list[float]:
        """Each period publish what is due, whether or not the last one has its receipt, until `end`; how late each was.

        What a second cannot make up for is left out.
        """
        waiting: set[asyncio.Task[Any]] = set()
        late_s, due = [0.0], monotonic()
        while await self._wait(due):
            late_s.append(monotonic() - due)
            due = max(due + period_s, monotonic() - 1.0)
            for table, columns in due_now():
                task = asyncio.create_task(self.client.publish(table, columns), name="publish")
                waiting.add(task)
                task.add_done_callback(waiting.discard)
            if len(waiting) > at_most:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*waiting)
        return late_s

    async def _fill(self, table: str, columns: dict[str, Any], batch: int = FILL_ROWS) -> None:
        """Publish the rows that a table begins with."""
        for start in range(0, len(next(iter(columns.values()))), batch):
            await self.client.publish(table, {name: column[start : start + batch] for name, column in columns.items()})


def until(seconds: float, batches: Iterator[Batch]) -> Iterator[Batch]:
    """Batches for so long, from now on."""
    end = perf_counter() + seconds
    while perf_counter() < end:
        yield next(batches)


def updates_of(changed: Changed) -> Ints:
    """The updates that a yield tells of, each once; they lie close together."""
    first = int(changed.seq.min())
    heard = np.zeros(int(changed.seq.max()) - first + 1, np.bool_)
    heard[changed.seq - first] = True
    return np.flatnonzero(heard) + first


async def tasks_served(worker: Any) -> None:
    """Do what is asked for until standard input ends, then close."""
    public = [name for name, what in inspect.getmembers(type(worker), inspect.iscoroutinefunction) if name[0] != "_"]
    try:
        await serve({name: getattr(worker, name) for name in public})
    finally:
        await worker.close()


def main(worker: Callable[[], Any]) -> None:
    """The whole program of such a process."""

    async def run() -> None:
        await tasks_served(worker())

    asyncio.run(run())

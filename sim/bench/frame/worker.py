"""A client in a process of its own: what the benchmarks' processes have in common.

What goes on for a while is begun by one task and ended by `end`, so that several processes do it at the same time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import wraps
from time import monotonic, monotonic_ns, perf_counter
from typing import Any, TypeAlias

import numpy as np

from hullcast.clients.processes.worker import serve
from hullcast.clients.sdk.client import Client, connect
from hullcast.clients.sdk.subscriptions import Changed, Subscriptions
from hullcast.network.wire.arrays import Ints

#: What is published at once: a table, and rows as columns.
Batch: TypeAlias = tuple[str, dict[str, Any]]
#: What a task gives, as JSON.
Told: TypeAlias = dict[str, Any]
#: Paced publishes that wait for their receipts; with more the next one waits, and is late.
IN_FLIGHT = 16
FILL_ROWS = 20_000
_TIMEOUT_S = 110.0


@dataclass(slots=True)
class Sampler:
    """When this process heard of which updates, while somebody wants to know."""

    on: bool = False
    _heard: list[tuple[int, Ints]] = field(default_factory=list)

    def begin(self) -> None:
        """Somebody wants to know of what comes from now on."""
        self.on = True
        self._heard.clear()

    def heard(self, now: int, updates: Ints) -> None:
        """These changed an answer, and the answer is here."""
        if self.on:
            self._heard.append((now, updates))

    def write(self, path: str) -> None:
        """All of it, to a file: time and number of each update. Then nobody wants to know."""
        self.on = False
        updates = [some for _, some in self._heard] or [np.empty(0, np.int64)]
        times = np.repeat([now for now, _ in self._heard] or [0], [len(some) for some in updates])
        np.savez(path, time=times, update=np.concatenate(updates))


def goes_on(work: Callable[..., Coroutine[Any, Any, Told]]) -> Callable[..., Coroutine[Any, Any, None]]:
    """A task that is only begun; what it gives is the result of `end`."""

    @wraps(work)
    async def begun(self: BenchWorker, **how: Any) -> None:
        self._begin(work(self, **how), work.__name__)

    return begun


class BenchWorker:
    """One client. Its public coroutines are what it can be asked for; their results are JSON, or nothing."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._goes_on: asyncio.Task[Told] | None = None
        self._stop = asyncio.Event()
        self._many: Subscriptions | None = None
        self._taking: asyncio.Task[None] | None = None
        self._events = self._missed = self._last_ns = 0
        self._sampler = Sampler()

    @property
    def client(self) -> Client:
        """The client, after `open`."""
        assert self._client is not None, "open comes first"
        return self._client

    async def open(self, url: str, name: str) -> None:
        """Connect; elsewhere than before."""
        await self.close()
        self._client = await connect(url, name=name, timeout=_TIMEOUT_S)

    async def close(self) -> None:
        """Give up what goes on, leave, and hang up."""
        if self._goes_on is not None:
            self._goes_on.cancel()
            await asyncio.gather(self._goes_on, return_exceptions=True)
            self._goes_on = None
        await self.unsubscribe()
        if self._client is not None:
            await self._client.close()
            self._client = None

    # -- what goes on until `end` ----------------------------------------------------------------------------

    def _begin(self, work: Coroutine[Any, Any, Told], name: str) -> None:
        assert self._goes_on is None, "one thing at a time"
        self._stop.clear()
        self._goes_on = asyncio.create_task(work, name=name)

    async def end(self) -> Told:
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

    async def _subscribe(self, sql: str, *columns: Any) -> Told:
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
            if self._sampler.on:
                self._sampler.heard(self._last_ns, updates_of(changed))

    async def unsubscribe(self) -> None:
        """Leave all of them."""
        if self._many is not None:
            await self._many.close()
        if self._taking is not None:
            await asyncio.gather(self._taking, return_exceptions=True)
        self._many = self._taking = None

    async def sync(self) -> Told:
        """Wait until all that the server has applied is here, and taken; up to where, and when."""
        seq = await self.client.sync()
        await asyncio.sleep(0)
        return {"seq": seq, "now": monotonic_ns()}

    async def heard(self) -> Told:
        """What came since these were subscribed: changes taken, all (with those that newer ones replaced first), what
        was missed, when the last one came, and how often the link broke."""
        told = self._events + (self._many.conflated if self._many is not None else 0)
        resumes = self.client.statistics().resumes
        figures = {"events": self._events, "told": told, "missed": self._missed}
        return {**figures, "last_ns": self._last_ns, "resumes": resumes}

    async def sample(self) -> None:
        """Remember from now on when each update was heard of."""
        self._sampler.begin()

    async def samples(self, path: str) -> None:
        """Write them to a file, and stop."""
        self._sampler.write(path)

    # -- asking ----------------------------------------------------------------------------------------------

    async def _compare(self, asks: Iterable[Sequence[Awaitable[Any]]]) -> Told:
        """Ask for one and for the other, in turns, one after the other; milliseconds of each."""
        times: tuple[list[float], list[float]] = ([], [])
        for both in asks:
            for of, ask in zip(times, both, strict=True):
                started = perf_counter()
                await ask
                of.append(1e3 * (perf_counter() - started))
        return {"ms": times[0], "other_ms": times[1]}

    # -- publishing ------------------------------------------------------------------------------------------

    async def _publish_all(self, batches: Iterator[Batch], in_flight: int) -> Told:
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
    ) -> None:
        """Each period publish what is due, whether or not the last one has its receipt, until `end`.

        What a second cannot make up for is left out.
        """
        waiting: set[asyncio.Task[Any]] = set()
        due = monotonic()
        while await self._wait(due):
            due = max(due + period_s, monotonic() - 1.0)
            for table, columns in due_now():
                task = asyncio.create_task(self.client.publish(table, columns), name="publish")
                waiting.add(task)
                task.add_done_callback(waiting.discard)
            if len(waiting) > at_most:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*waiting)

    async def _fill(self, table: str, columns: dict[str, Any]) -> None:
        """Publish the rows that a table begins with."""
        for some in in_batches(columns, FILL_ROWS):
            await self.client.publish(table, some)


def in_batches(columns: dict[str, Any], size: int) -> Iterator[dict[str, Any]]:
    """Rows as columns, so many at a time."""
    for start in range(0, len(next(iter(columns.values()))), size):
        yield {name: column[start : start + size] for name, column in columns.items()}


def part_of(total: int, part: int, parts: int) -> slice:
    """One of so many equal parts of all."""
    return slice(total * part // parts, total * (part + 1) // parts)


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
